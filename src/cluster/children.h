/* children.h - processes that this one starts, watches and ends.
 *
 * Each child has a process group of its own, so that Ctrl-C at a terminal reaches the parent alone,
 * which then ends the children in order; and it is ended by the system when the parent dies without
 * a word (where the system can). A child that crashes is started again, with growing pauses; one
 * that ends by itself with an error in its first seconds is not, since it would fail again (a wrong
 * path, a taken port), nor one that did not come up in a few tries: then all are stopped.
 *
 * A child that is far away (behind ssh) gets no signals from here. It is held by a tether instead:
 * a pipe to its stdin. An 'S' there asks it to end, the end of the pipe asks again, and a '.' every
 * few seconds says that this process is alive. The other end of a tether is sh_children_set_tether.
 *
 * Threads: one owner, which must not have started threads before sh_children_create (signals are
 * blocked there). */
#ifndef SH_CLUSTER_CHILDREN_H
#define SH_CLUSTER_CHILDREN_H

#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct sh_children sh_children;

typedef struct {
    const char *name;  /* for the log: "engine", "rank 1" */
    char *const *argv; /* argv[0] is the program's path; copied, like all of this */
    char *const *env;  /* more variables "NAME=value", and "NAME" for one less; or NULL */
    bool restart;      /* start it again when it crashes */
    bool slow;         /* until sh_children_ready an error is a mistake, however late it comes */
    bool tells;        /* it writes to the descriptor in SHOAL_READY_FD whenever it has come up */
    int waits_code;    /* its exit code when it has waited for others in vain; 0: it has none */
    bool vital;        /* when it ends, even well, all are stopped */
    bool tether;       /* its stdin is a tether */
    bool reloads;      /* SIGHUP is for it: it reads something again */
    int keep_fd;       /* above 2: a descriptor that the child keeps through exec */
    bool prefix;       /* take its output line by line; without a hook: show it behind "[name] " */
} sh_child_spec;

/* What an owner may want to know; `child` counts in the order of adding. Each may be NULL. */
typedef struct {
    void (*line)(void *arg, int child, sh_str line);
    void (*started)(void *arg, int child, pid_t pid);
    void (*ended)(void *arg, int child, const char *how, bool again); /* again: with a pause */
    void *arg;
} sh_children_hooks;

/* Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD in this process; they are waited for in run. */
sh_children *sh_children_create(void);

/* Starts a child. */
SH_MUST_CHECK sh_status sh_children_add(sh_children *children, const sh_child_spec *spec,
                                        sh_err *err);

/* Watches until all children have ended by themselves, one failed for good, or a signal says stop
 * (SIGHUP is passed on instead to those who reload, if there are any); then ends the rest: SIGTERM,
 * and SIGKILL after grace_ms. Returns the exit code for this process: of the child that failed
 * first, 130 behind SIGINT, else 0. */
int sh_children_run(sh_children *children, int64_t grace_ms);

/* When one has failed for good (or a vital one has ended) the others get this long to end by
 * themselves (0 at first): ranks of a group find out what happened and say so. */
void sh_children_set_linger(sh_children *children, int64_t linger_ms);

/* Before the first child is added. */
void sh_children_set_hooks(sh_children *children, const sh_children_hooks *hooks);

/* The end of a tether that holds this process: what comes from fd counts as SIGTERM, and so does a
 * silence of a minute. */
void sh_children_set_tether(sh_children *children, int fd);

/* This child has come up: from now on its errors are crashes. For a hook to call. */
void sh_children_ready(sh_children *children, int child);

/* Ends what is left, at once, and frees. */
void sh_children_free(sh_children *children);

#endif
