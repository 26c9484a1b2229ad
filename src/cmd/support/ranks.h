/* ranks.h - from settings to the options of a group, for commands that run as ranks.
 *
 *   --ranks N                                  starts N ranks on this machine: sh_ranks_spawn
 *   --hostfile F --rank R                      is one rank of the file
 *   --ranks N --rank R --coordinator H:P       is one rank, without a file
 *   --ibv-devices F --rank R --coordinator H:P                   the same over RDMA, N from F
 *   under mpirun or srun                       the same (cmd/support/launcher_settings.h)
 *   --ranks 1 --coordinator H:P                is alone until others come
 *   --join H:P                                 is added to a group that runs
 *   --p2p                                      the last two, with a token in the place of addresses
 *   none of these                              a group of one
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_RANKS_H
#define SH_CMD_SUPPORT_RANKS_H

#include "cluster/hostfile.h"
#include "cmd/command.h"
#include "coll/coll.h"
#include "net/cluster_token.h"
#include "net/connector.h"

/* The options of a group and the strings that they point to. */
typedef struct {
    sh_group_opts opts;
    char token[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    sh_codec wire;
    sh_addr_list listen;
    char coordinator[SH_CONNECTOR_ADDRESS_MAX];
    bool grows; /* alone, but others may come to the coordinator's address */
} sh_ranks;

/* Whether this process must start the ranks instead of being one. */
bool sh_ranks_must_spawn(const sh_command_args *args);

/* Starts them, waits for them, and returns the exit code. */
int sh_ranks_spawn(const sh_command_args *args);

/* The number of ranks in the group of this process, from the hostfile, --ranks or a device matrix.
 */
SH_MUST_CHECK sh_status sh_ranks_world(const sh_command_args *args, int *size, sh_err *err);

/* Fails if the backend is not built in; `from` names the setting or file that asks for it. */
SH_MUST_CHECK sh_status sh_ranks_check_backend(const char *name, const char *from, sh_err *err);

/* Fills the options of the group. Errors name the setting. Log lines show the rank afterwards. */
SH_MUST_CHECK sh_status sh_ranks_init(sh_ranks *ranks, const sh_command_args *args, sh_err *err);

/* Whether there is a group to form: false for a process that works alone and stays so. */
bool sh_ranks_form_group(const sh_ranks *ranks);

/* Call at the end of the program, after the group is closed. Leaves MPI if it was used, and waits
 * for the other ranks to do the same if all went well. */
void sh_ranks_leave(bool all_well);

#endif
