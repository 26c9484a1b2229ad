/* launch_internal.h - shared by the files of `shoal launch`.
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
    sh_hostfile *matrix; /* --ibv-devices; NULL: none */
    bool uses_devices;   /* the backend needs RDMA, and with it the plugin */
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

#endif
