/* shoal join: `shoal worker --p2p` with the token as its argument.
 *
 * A token on a command line can be read by every user of the machine. It cannot be helped where the
 * user types it, but it need not stay there, nor be on the command lines of the processes that this
 * one starts. */
#include "base/alloc.h"
#include "cmd/command.h"
#include "cmd/support/p2p.h"

#include <stdlib.h>
#include <string.h>

/* The same command line for `worker`, without the token; the caller frees the list alone. */
static char **worker_line(char *const *line, const char *token)
{
    size_t count = 0, used = 0;
    while (line[count] != NULL) count++;
    char **out = sh_alloc_array(count + 2, sizeof(*out));
    for (size_t i = 0; i < count; i++)
        if (line[i] != token) out[used++] = i == 1 ? (char *)"worker" : line[i];
    return out;
}

static int join_run(const sh_command_args *args)
{
    sh_settings settings = *args->settings;
    sh_command_args mine = *args;
    char *token = NULL;
    sh_err err;
    char *typed = args->argc > 0 ? args->argv[0] : NULL;
    sh_status status = sh_p2p_token(&settings, typed, &token, &err);
    if (status != SH_OK) return sh_command_fail(&err);
    char **line = worker_line(args->line, typed);
    if (typed != NULL) sh_command_hide(typed);
    settings.p2p = true;
    settings.models_dir = NULL; /* a variable may set it for other commands */
    settings.token = token;
    setenv("SHOAL_P2P", "true", 1);
    mine.settings = &settings;
    mine.argc = 0;
    mine.line = line;
    int code = sh_command_worker.run(&mine);
    free(line);
    free(token);
    return code;
}

const sh_command sh_command_join = {
    SH_COMMAND_NAMED(join),
    .arguments = "[TOKEN|-]",
    .args_max = 1,
    .summary = "lend this machine to the server that printed the token",
    .details = "Run `shoal serve --p2p` on one machine; it prints the line to run on others. The "
               "server is found on the local network, or at the addresses in the token. Without an "
               "argument the token is taken from TOKEN, SHOAL_TOKEN or --token-file; -: from "
               "standard input. Ctrl-C leaves the cluster; run it again to come back.",
    .run = join_run,
};
