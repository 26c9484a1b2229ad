/* launch.h - the ranks of a running cluster: starts them on their hosts, watches and stops them.
 *
 * Each rank is run by a `shoal agent` on its host, over ssh or as a child of this process; either
 * way it is held by a tether (children.h). Lines that an agent prints are the rank's own output,
 * except those that begin with SH_LAUNCH_MARK, which report its state:
 *
 *   pid PROCESS     the rank was started
 *   join load ready lost   the state it has entered
 *   ended HOW       its process has ended and is restarted
 *   refused WHY     it was asked to leave, but the group cannot do without it
 *   change ID ...   from rank 0 only: the API asks for a change (change.h); the result goes back
 *                   to the agent of rank 0
 *
 * launch.json in the state folder always holds the current state, for `shoal status` and others.
 * Which ranks there are is in hosts.json (placement.h), which is read again on SIGUSR1. SIGUSR2
 * renews all ranks and the API: launch.json counts that in "renewals", and its state is "ready"
 * again when all of them have come up anew.
 *
 * Threads: one owner, before other threads start. */
#ifndef SH_CLUSTER_LAUNCH_H
#define SH_CLUSTER_LAUNCH_H

#include "base/json.h"
#include "cluster/children.h"
#include "cluster/placement.h"
#include "cluster/state_dir.h"

#define SH_LAUNCH_MARK '\x01'

/* The first word of a line to the agent of rank 0, before the numbers of the ranks that were
 * removed. */
#define SH_LAUNCH_REMOVED "removed"

typedef struct {
    const char *state; /* the launcher's state folder */
    sh_ssh_opts ssh;
    sh_child_policy first, others; /* what the end of an agent means: of rank 0, of another */
    bool outputs;                  /* lines of the ranks are output, which goes to stdout */
    cJSON *record;            /* other contents of launch.json; ranks and state are added to it */
    int log_fd;               /* output also goes there; -1: to stderr only */
    const char *program;      /* this one, for the commands that change the cluster; or NULL */
    char *const *env;         /* environment of the agents, as in sh_child_spec; or NULL */
    int64_t grace_ms;         /* how long ranks may take to stop */
    void (*ready)(void *arg); /* called once, when all ranks are ready; or NULL */
    void *arg;
} sh_launch_opts;

/* Runs until a signal, until a rank of the launch fails before it was ever ready, or until rank 0
 * exits. *code is the exit code for this process. */
SH_MUST_CHECK sh_status sh_launch_run(const sh_launch_opts *opts, int *code, sh_err *err);

/* Writes "[1 name] text" to stderr and log_fd. */
void sh_launch_say(int log_fd, int rank, const char *name, sh_str text);

/* The same to a file of choice. */
void sh_launch_say_to(int fd, int log_fd, int rank, const char *name, sh_str text);

/* Reads launch.json; SH_ERR_NOT_FOUND when nothing was launched from this folder. The caller
 * deletes *record. */
SH_MUST_CHECK sh_status sh_launch_read(const char *state, cJSON **record, sh_err *err);

/* A string of the record or of one of its ranks; "" when there is none. */
const char *sh_launch_text(const cJSON *json, const char *key);

/* The launcher process of a record, whether it is still alive or not. */
sh_process sh_launch_process(const cJSON *record);

#endif
