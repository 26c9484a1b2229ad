/* run_list.h - the launchers of this user on this machine, listed apart from their state folders.
 *
 * launch.json tells `shoal stop` which process to stop. If the state folder is removed under a
 * running cluster, this list still does: /tmp/shoal-launch-UID (or below --runtime-dir) has a file
 * for each launcher, named by its state folder, with the process as in state_dir.h.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_CLUSTER_RUN_LIST_H
#define SH_CLUSTER_RUN_LIST_H

#include "cluster/state_dir.h"

/* Enters this process; `dir` is --runtime-dir or NULL, `state` the absolute path of its folder. */
SH_MUST_CHECK sh_status sh_run_list_add(const char *dir, const char *state, sh_err *err);
void sh_run_list_remove(const char *dir, const char *state);

/* False if no launcher that is alive was entered for this state folder. */
bool sh_run_list_find(const char *dir, const char *state, sh_process *out);

#endif
