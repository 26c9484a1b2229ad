/* role.h - what a process that is started here may know.
 *
 * Ranks and the API are started with the command line and the environment of whoever starts them.
 * Secrets that are none of their business are left out: ranks never see an API key, the API never
 * sees the cluster token.
 *
 * Threads: pure functions over the option table. */
#ifndef SH_CMD_SUPPORT_ROLE_H
#define SH_CMD_SUPPORT_ROLE_H

#include "cmd/command_list.h"

#define ROLE_RANK (FOR(engine) | FOR(worker))
#define ROLE_API FOR(api)
#define ROLE_AGENT FOR(agent) /* reads its rank's from files */

/* The command line `line` with another program and without the flags of such secrets. The list
 * is the caller's to free, the words are not. */
char **sh_role_argv(uint64_t role, char *program, char *const *line);

/* `env` with the names of such variables added, which takes them out (children.h). The list and the
 * words are freed by sh_role_env_free. */
char **sh_role_env(uint64_t role, char *const *env);
void sh_role_env_free(char **env);

#endif
