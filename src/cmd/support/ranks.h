/* ranks.h - what the commands that run as ranks share: from settings to a group.
 *
 *   --ranks N                                  starts N ranks here: sh_ranks_spawn
 *   --hostfile F --rank R                      is one of them
 *   --ranks N --rank R --coordinator H:P       likewise, without a file
 *   --ibv-devices F --rank R --coordinator H:P --backend ring    likewise, N from the matrix
 *   under mpirun or srun                       likewise (cmd/support/launcher_settings.h)
 *   nothing                                    a group of one
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_RANKS_H
#define SH_CMD_SUPPORT_RANKS_H

#include "cluster/hostfile.h"
#include "cmd/command.h"
#include "coll/coll.h"
#include "net/cluster_token.h"

/* A group's options and the texts that they point to. */
typedef struct {
    sh_group_opts opts;
    char token[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    sh_codec wire;
    bool over_mpi; /* asked for by flag or hostfile */
    sh_addr_list listen;
    char coordinator[SH_ADDR_HOST_MAX + 8];
} sh_ranks;

/* Whether this process must start the ranks in place of being one. */
bool sh_ranks_must_spawn(const sh_command_args *args);

/* Starts them, waits for them, and returns the exit code. */
int sh_ranks_spawn(const sh_command_args *args);

/* How many ranks the group of this process has: as the hostfile, --ranks or a matrix of devices
 * says.
 */
SH_MUST_CHECK sh_status sh_ranks_world(const sh_command_args *args, int *size, sh_err *err);

/* Whether this program has the backend; `from` says who asks for it. */
SH_MUST_CHECK sh_status sh_ranks_check_backend(const char *name, const char *from, sh_err *err);

/* Errors name the setting. The log shows the rank from here on. */
SH_MUST_CHECK sh_status sh_ranks_init(sh_ranks *ranks, const sh_command_args *args, sh_err *err);

/* At the end of the program: leaves MPI, if it was used, together with the other ranks when all
 * went well. */
void sh_ranks_leave(bool all_well);

#endif
