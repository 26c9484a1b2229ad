/* role.h - which secrets a child process may see.
 *
 * Ranks and the API are started with the command line and the environment of their parent, minus
 * the secrets that they do not need: ranks never see an API key, the API never sees the cluster
 * token.
 *
 * Threads: pure functions over the option table. */
#ifndef SH_CMD_SUPPORT_ROLE_H
#define SH_CMD_SUPPORT_ROLE_H

#include "base/status.h"
#include "cmd/command_list.h"

#define ROLE_RANK FOR(engine)
#define ROLE_HUB_RANK FOR(worker) /* also gets the token of the hub, for --shares-from hub */
#define ROLE_API FOR(api)
#define ROLE_AGENT FOR(agent) /* reads the settings of its rank from files */

/* The path of this program, for its parts; owned by the caller. Where it was started by an absolute
 * path that is kept: it may be a link, which leads to a newer program by the time a part is
 * renewed. */
SH_MUST_CHECK sh_status sh_role_program(char *const *line, char **out, sh_err *err);

/* The command line `line` with another program and without the flags of those secrets. The caller
 * frees the list but not its strings. */
char **sh_role_argv(uint64_t role, char *program, char *const *line);

/* Adds words to such a list, where they count more than what is before them; returns it. */
char **sh_role_argv_add(char **argv, const char *const *words);

/* `env` plus the bare names of the variables of those secrets, which removes them in the child
 * (children.h). Free the list and its strings with sh_role_env_free. */
char **sh_role_env(uint64_t role, char *const *env);
void sh_role_env_free(char **env);

#endif
