/* shoal token: prints a new cluster token. */
#include "net/cluster_token.h"

#include "cmd/command.h"

#include <stdio.h>

static int token_run(const sh_command_args *args)
{
    char token[SH_CLUSTER_TOKEN_LEN + 1];
    (void)args;
    sh_cluster_token_make(token);
    puts(token);
    return SH_EXIT_OK;
}

const sh_command sh_command_token = {
    SH_COMMAND_NAMED(token),
    .summary = "make a cluster token",
    .details = "Ranks on several machines prove to each other that they know it: pass it as "
               "--token or SHOAL_TOKEN.",
    .run = token_run,
};
