/* launched.h - a launched cluster, for the commands that change it: `restart`, `hosts add` and
 * `hosts remove`.
 *
 * They recall the launch from its record: the command line, the folder and the variables of then,
 * with the files of now. So they can prepare hosts as the launch did. Then they signal the
 * launcher, and show its log until what they asked for is done.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_LAUNCHED_H
#define SH_CMD_LAUNCHED_H

#include "cmd/launch_internal.h"

typedef struct {
    char *state;
    cJSON *record; /* launch.json, as it was when the command began */
    sh_process launcher;
    sh_placement members;
    int lock; /* only one command at a time changes a cluster */
    int log;  /* read from where it ended when the command began */

    char **line; /* the recalled launch */
    sh_settings settings;
    char *model; /* that a file names, which was given instead of one */
    sh_options *options;
    sh_command_args args;
    sh_launch launch;
} sh_launched;

/* Reads the record and takes the lock. SH_ERR_NOT_FOUND when nothing was launched from the folder.
 * Call sh_launched_close in any case. */
SH_MUST_CHECK sh_status sh_launched_open(sh_launched *c, const char *state_dir, sh_err *err);
void sh_launched_close(sh_launched *c);

/* Whether the launcher runs. */
bool sh_launched_is_alive(const sh_launched *c);

/* Recalls the launch: sets settings and c->launch, with the hostfile as it is now. This process
 * changes into the folder of the launch and takes its variables over. */
SH_MUST_CHECK sh_status sh_launched_recall(sh_launched *c, sh_err *err);

/* Whether the hostfile is another one since the launch. Call after recalling. */
bool sh_launched_has_new_hostfile(const sh_launched *c);

/* Launches again, in the background, with the hosts that were added and without those that were
 * removed (unless the hostfile has changed). Only returns on failure. */
SH_MUST_CHECK sh_status sh_launched_repeat(sh_launched *c, sh_err *err);

/* Looks at a new state of launch.json; SH_AGAIN: not done yet. */
typedef sh_status (*sh_launched_check)(const cJSON *record, void *arg, sh_err *err);

/* Shows the log until `check` is satisfied or fails, the launcher ends, or nothing changes for ten
 * minutes. */
SH_MUST_CHECK sh_status sh_launched_await(sh_launched *c, sh_launched_check check, void *arg,
                                          sh_err *err);

/* Waits until the API serves with `ranks` at most, and the record says that all are ready. The
 * record alone cannot tell: each rank reports a new group by itself, so it may still show the old
 * one. */
SH_MUST_CHECK sh_status sh_launched_await_api(sh_launched *c, int ranks, sh_err *err);

/* A rank in the record, by its number; or NULL. */
const cJSON *sh_launched_rank(const cJSON *record, int number);

#endif
