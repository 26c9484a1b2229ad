/* launch_internal.h - shared by `shoal launch` and the commands that change what it has launched.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_LAUNCH_INTERNAL_H
#define SH_CMD_LAUNCH_INTERNAL_H

#include "cluster/launch.h"
#include "cmd/command.h"
#include "net/cluster_token.h"

typedef struct {
    const sh_command_args *args;
    sh_hostfile *hosts;
    sh_buf hosts_text;
    char hosts_digest[SH_DIGEST_TEXT_LEN + 1]; /* of that */
    sh_hostfile *matrix;                       /* --ibv-devices; NULL: none */
    bool uses_devices;                         /* the backend needs RDMA, and with it the plugin */
    sh_remote_hosts remote;
    char *state; /* the launcher's state folder */
    char *model; /* path or name, the same on all hosts; "./..." is relative to the state folder;
                    NULL: none */
    char token[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    int lock, log, ready_fd;
    cJSON *record;
} sh_launch;

/* Adds the files that hosts need to `remote`: the program, settings.env with the cluster token,
 * hostfile.json, and the demo model when no other is set; for rank 0's host also api.env. Sets
 * token and model. */
SH_MUST_CHECK sh_status sh_launch_gather(sh_launch *launcher, sh_err *err);

/* The settings that hosts would get become variables of this process, for a program that it starts
 * itself. */
void sh_launch_export(const sh_command_args *args);

/* Runs the program after `--` once for each rank, all on this machine; returns the exit code. */
int sh_launch_program_local(const sh_command_args *args);

/* Reads and checks the hostfile of the launch, and prepares `remote` for its hosts. */
SH_MUST_CHECK sh_status sh_launch_open(sh_launch *launcher, sh_err *err);

/* The second half of that: `remote` for the hosts of launcher->hosts. `where` is for errors. */
SH_MUST_CHECK sh_status sh_launch_reach(sh_launch *launcher, const char *where, sh_err *err);
void sh_launch_reset(sh_launch *launcher);

/* From now on Ctrl-C ends commands on other hosts early, and this says so. */
void sh_launch_catch_signals(void);
bool sh_launch_is_cancelled(void);

#endif
