/* role.h - which secrets a child process may see.
 *
 * Ranks and the API are started with the command line and the environment of their parent, minus
 * the secrets that they do not need: ranks never see an API key, the API never sees the cluster
 * token.
 *
 * Threads: pure functions over the option table. */
#ifndef SH_CMD_SUPPORT_ROLE_H
#define SH_CMD_SUPPORT_ROLE_H

#include "cmd/command_list.h"

#define ROLE_RANK (FOR(engine) | FOR(worker))
#define ROLE_API FOR(api)
#define ROLE_AGENT FOR(agent) /* reads the settings of its rank from files */

/* The command line `line` with another program and without the flags of those secrets. The caller
 * frees the list but not its strings. */
char **sh_role_argv(uint64_t role, char *program, char *const *line);

/* `env` plus the bare names of the variables of those secrets, which removes them in the child
 * (children.h). Free the list and its strings with sh_role_env_free. */
char **sh_role_env(uint64_t role, char *const *env);
void sh_role_env_free(char **env);

#endif
