/* shoal token: a new cluster token on stdout. */
#include "net/cluster_token.h"

#include "cmd/command.h"

#include <stdio.h>

int sh_cmd_token(const sh_command_args *args)
{
    char token[SH_CLUSTER_TOKEN_LEN + 1];
    (void)args;
    sh_cluster_token_make(token);
    puts(token);
    return SH_EXIT_OK;
}
