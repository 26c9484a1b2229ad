/* cluster.h - shared by the commands that deal with a launched cluster.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_CLUSTER_H
#define SH_CMD_SUPPORT_CLUSTER_H

#include "base/json.h"
#include "cluster/ssh.h"
#include "cluster/state_dir.h"
#include "cmd/command.h"

/* Options for ssh from --ssh-options and --ssh-timeout. */
sh_ssh_opts sh_cluster_ssh(const sh_settings *settings);

/* The record of the launched cluster, if it is running; NULL if not, or if --host or --port was
 * given as a flag, which means another server. The caller deletes it. */
SH_MUST_CHECK sh_status sh_cluster_find(const sh_command_args *args, cJSON **record, sh_err *err);

/* Runs `shoal call PATH [BODY]` on the host of rank 0, with the settings of its API: there the API
 * can be reached whatever address it listens on. */
SH_MUST_CHECK sh_status sh_cluster_call(const cJSON *record, const sh_settings *settings,
                                        const char *path, const char *body, sh_buf *out,
                                        sh_err *err);

/* Stops the launcher of the record and waits until it has ended. False when it was not running. */
bool sh_cluster_stop(const cJSON *record);
bool sh_cluster_stop_launcher(const sh_process *launcher, int64_t grace_ms);

/* Removes all variables that set this option, under any of their names, from the environment;
 * NULL: those of all options. */
void sh_cluster_unset(const sh_option *row);

#endif
