/* cluster.h - what the commands around a launched cluster share.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_CLUSTER_H
#define SH_CMD_SUPPORT_CLUSTER_H

#include "base/json.h"
#include "cluster/ssh.h"
#include "cmd/command.h"

/* From --ssh-options and --ssh-timeout. */
sh_ssh_opts sh_cluster_ssh(const sh_settings *settings);

/* Runs `shoal call PATH [BODY]` on the host of rank 0, where the API is reached whatever address it
 * listens on, with the settings that it serves with. */
SH_MUST_CHECK sh_status sh_cluster_call(const cJSON *record, const sh_settings *settings,
                                        const char *path, const char *body, sh_buf *out,
                                        sh_err *err);

/* Takes all variables that set this row, whatever their name, out of the environment; NULL: those
 * of all rows. */
void sh_cluster_unset(const sh_option *row);

#endif
