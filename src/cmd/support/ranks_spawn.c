/* Starts the ranks of a command on this machine: the same command line once for each. */
#include "base/system.h"
#include "cluster/local_ranks.h"
#include "cmd/support/ranks.h"
#include "cmd/support/role.h"

#include <stdlib.h>

/* The token is checked here, so that a bad one is reported once and not by every rank. */
static sh_status spawn(const sh_command_args *args, int *code, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_status status = s->token == NULL ? SH_OK : sh_cluster_token_check(s->token, err);
    if (status != SH_OK) return status;
    char *program;
    status = sh_program_path(&program, err);
    if (status != SH_OK) return status;
    char **argv = sh_role_argv(ROLE_RANK, program, args->line),
         **env = sh_role_env(ROLE_RANK, NULL);
    sh_local_ranks_spec spec = {
        .argv = argv, .ranks = (int)s->ranks, .token = s->token, .env = env};
    status = sh_local_ranks_run(&spec, code, err);
    sh_role_env_free(env);
    free(argv);
    free(program);
    return status;
}

int sh_ranks_spawn(const sh_command_args *args)
{
    sh_err err;
    int code = SH_EXIT_OK;
    return spawn(args, &code, &err) == SH_OK ? code : sh_command_fail(&err);
}
