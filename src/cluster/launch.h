/* launch.h - the ranks of a cluster while they run: started on their hosts, watched, ended.
 *
 * A rank is run by `shoal agent` on its host, behind ssh or as a child of this process; either way
 * it hangs on a tether (children.h). Lines that an agent prints are the rank's own words, but for
 * those that begin with SH_LAUNCH_MARK, which tell what happens to it:
 *
 *   pid PROCESS     it was started
 *   join load ready lost   where it stands
 *   ended HOW       its process is gone; the agent starts it again
 *
 * launch.json in the state folder says at any time what is known, for `shoal status` and others.
 *
 * Threads: one owner, before other threads start. */
#ifndef SH_CLUSTER_LAUNCH_H
#define SH_CLUSTER_LAUNCH_H

#include "base/json.h"
#include "cluster/remote_hosts.h"
#include "cluster/state_dir.h"

#define SH_LAUNCH_MARK '\x01'

typedef struct {
    const sh_remote_hosts *hosts;
    const char *state;        /* the launcher's state folder */
    cJSON *record;            /* what else launch.json shall hold; changed here */
    int log_fd;               /* lines go there too; -1: to stderr alone */
    char *const *env;         /* of the agents, as for children; or NULL */
    int64_t grace_ms;         /* that ranks have to end */
    void (*ready)(void *arg); /* all are, for the first time; or NULL */
    void *arg;
} sh_launch_opts;

/* Runs until a signal, or until a rank fails before it was ever ready or ends by itself. *code is
 * the exit code for this process. */
SH_MUST_CHECK sh_status sh_launch_run(const sh_launch_opts *opts, int *code, sh_err *err);

/* "[1 name] text", to stderr and log_fd. */
void sh_launch_say(int log_fd, int rank, const char *name, sh_str text);

/* What launch.json holds; SH_ERR_NOT_FOUND when nothing was ever launched from this folder. The
 * caller deletes *record. */
SH_MUST_CHECK sh_status sh_launch_read(const char *state, cJSON **record, sh_err *err);

/* A text of the record or of one of its ranks; "" when there is none. */
const char *sh_launch_text(const cJSON *json, const char *key);

/* The launcher of a record, whether it lives or not. */
sh_process sh_launch_process(const cJSON *record);

#endif
