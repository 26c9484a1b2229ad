/* shoal token: a new cluster token on stdout. */
#include "net/token.h"

#include "cmd/command.h"

#include <stdio.h>

int sh_cmd_token(const sh_command_args *args)
{
    char token[SH_TOKEN_LEN + 1];
    (void)args;
    sh_token_make(token);
    puts(token);
    return SH_EXIT_OK;
}
