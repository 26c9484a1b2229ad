/* children.h - processes that this one starts, watches and stops.
 *
 * Each child runs in its own process group, so Ctrl-C at a terminal reaches only the parent, which
 * then stops the children in order. Where the system allows it, a child also dies with a parent
 * that was killed. What happens when a child ends is its policy.
 *
 * A child that is restarted after it had come up finds SHOAL_SERVED=1 in its environment.
 *
 * A child on another host (behind ssh) cannot be signalled from here. It is held by a tether
 * instead, a pipe to its stdin: an 'S' asks it to stop, the end of the pipe asks again, an 'N' asks
 * it to renew its children, an 'L' to let them leave, a 'T' begins a line of text for it, and a '.'
 * every few seconds shows that this process is alive. sh_children_set_tether is the other end.
 *
 * `serve`, `agent` and `launch` are nested supervisors made of this: docs/architecture.md has the
 * picture.
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

/* What the end of a child means. An exit with 0 is always final, unless it was asked for
 * (SIGUSR2). The first three restarts come at once; after them there is a pause of half a second,
 * which doubles up to 10 s while the child does not even come up. A child that has run for a minute
 * starts from zero. A final failure, of a child of any policy but the last, stops all children, and
 * its exit code becomes that of this process. */
typedef enum {
    /* Runs once: any failure is final. */
    SH_CHILD_TASK,
    /* Restarted when it crashes; SIGHUP is passed on to it, to reread its files. It writes an 'R'
     * to the descriptor in SHOAL_READY_FD once it serves. Before that, an error exit in its first
     * seconds is final: a wrong path or a taken port would only fail again. */
    SH_CHILD_SERVICE,
    /* A rank whose peers are all children of this process. As a service, but without SIGHUP, and
     * it must come up: it writes an 'R' to the descriptor in SHOAL_READY_FD each time it has, after
     * which errors are crashes, and a '.' several times a second as a sign of life. Three tries
     * that never came up are final. */
    SH_CHILD_LOCAL_RANK,
    /* A rank with peers on other machines: the same, but exits with SH_CHILD_EXIT_PEERS_MISSING do
     * not count as tries. Those machines may be started much later. */
    SH_CHILD_RANK,
    /* A rank of one model among several. Until it has come up any error exit is final, but neither
     * that nor anything else it does ends the other children. */
    SH_CHILD_MODEL_RANK,
    /* A rank whose owner reads its output and calls sh_children_ready. Loading a model takes as
     * long as it takes, so until then any error exit is final, however late. */
    SH_CHILD_OBSERVED_RANK,
    /* An agent that runs an observed rank on its host: the same, and when it exits, even with 0,
     * all children are stopped. */
    SH_CHILD_AGENT,
    /* An agent without whose rank the others go on: when it exits with 0, that rank has left. */
    SH_CHILD_MEMBER_AGENT,
    /* The same, added while the others serve: that it cannot start is its own affair. */
    SH_CHILD_ADDED_AGENT,
} sh_child_policy;

/* What is written to a tether. */
enum {
    SH_TETHER_STOP = 'S',
    SH_TETHER_RENEW = 'N',
    SH_TETHER_LEAVE = 'L',
    SH_TETHER_TELL = 'T',
};

enum { SH_TETHER_TEXT_MAX = 1024 }; /* bytes of a line of text; what is longer is cut */

enum { SH_CHILD_EXIT_PEERS_MISSING = 3 };

/* A byte to SHOAL_READY_FD with this bit says how much of the model is loaded, in percent. */
enum { SH_CHILD_LOADED = 0x80 };

typedef struct {
    const char *name;  /* for the log: "engine", "rank 1" */
    char *const *argv; /* argv[0] is the program's path; copied, like everything here */
    char *const *env;  /* changes to the environment: "NAME=value" sets, "NAME" unsets; or NULL */
    sh_child_policy policy;
    bool tether;   /* stopped through its stdin instead of by signals */
    bool no_input; /* its stdin is empty, and not that of this process */
    bool
        capture; /* its output goes line by line to the `line` hook, or to stderr after "[name] " */
    const int *keep_fds; /* descriptors that stay open in the child; 0 ends the list. Or NULL */
} sh_child_spec;

/* Notifications for the owner; `child` is an index in the order of adding. Each may be NULL. An
 * owner that takes the lines also reports what happens to the children; otherwise that is logged.
 * `signalled` and `polled` may add children. */
typedef struct {
    void (*line)(void *arg, int child, sh_str line);
    void (*started)(void *arg, int child, pid_t pid);
    void (*ended)(void *arg, int child, const char *how, bool restarts);
    void (*signalled)(void *arg, int number); /* SIGUSR1 or SIGUSR2, which then do nothing else */
    void (*polled)(void *arg);                /* many times a second */
    void (*told)(void *arg, sh_str text);     /* a line that came over the tether */
    void *arg;
} sh_children_hooks;

/* Blocks SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD in this process; sh_children_run
 * waits for them. */
sh_children *sh_children_create(void);

/* Starts a child. */
SH_MUST_CHECK sh_status sh_children_add(sh_children *children, const sh_child_spec *spec,
                                        sh_err *err);

/* The index of the child that was added last. It is the next free one, unless a child that was
 * stopped alone has left a gap. */
int sh_children_last(const sh_children *children);

/* Stops one child for good: SIGTERM, and SIGKILL after grace_ms. Its end is reported like any
 * other; its index goes to a child that is added after that. */
void sh_children_stop(sh_children *children, int child, int64_t grace_ms);

typedef enum {
    SH_CHILD_STARTING, /* or waiting to be restarted */
    SH_CHILD_UP,       /* has come up since it was started last */
    SH_CHILD_GONE,     /* has ended for good */
} sh_child_state;
sh_child_state sh_children_state(const sh_children *children, int child);

/* What it said about its failure (cmd/support/progress.h), else how it ended; "" before that. */
const char *sh_children_reason(const sh_children *children, int child);

/* Watches until all children have exited, one has failed for good, or a signal asks to stop
 * (SIGHUP stops only where there is no service to reload). On SIGUSR2 every child is sent the same
 * and replaced by a new process, of a new program if there is one; a child that is a supervisor
 * stays and does so to its own. SIGUSR1 asks ranks to leave. Then stops the rest: SIGTERM, and
 * SIGKILL after grace_ms. Returns the exit code for this process: that of the first failure, 130
 * after SIGINT, else 0. */
int sh_children_run(sh_children *children, int64_t grace_ms);

/* After a final failure, or the exit of an agent, the others get this long (0 unless set) to exit
 * on their own: ranks notice what happened and log it. */
void sh_children_set_linger(sh_children *children, int64_t linger_ms);

/* The first request to stop is only passed on to the children, which may take as long as they like,
 * or go on; one that ends is not restarted. The second request stops them. */
void sh_children_set_patient(sh_children *children);

/* sh_children_run goes on without children: they come and go. */
void sh_children_set_standing(sh_children *children);

/* Ends sh_children_run, with this exit code. */
void sh_children_give_up(sh_children *children, int code);

/* Reports the state of the children to the service manager, if there is one (notify.h). Call it
 * before adding the first child. They are ready once all have come up; with `when_alive` a first
 * sign of life is enough, for a rank that may have to wait a long time for its peers. */
void sh_children_set_notify(sh_children *children, bool when_alive);

/* Replaces one child, as SIGUSR2 does with all of them. */
void sh_children_renew(sh_children *children, int child);

/* Asks one child to leave: to end, if its group can go on without it. False: it is not running, and
 * will not be restarted. */
bool sh_children_ask_to_leave(sh_children *children, int child);

/* Sends a line of text to a child that is held by a tether; lost if it does not read. */
void sh_children_tell(sh_children *children, int child, sh_str text);

/* A rank that has shown signs of life, but none for so long, is killed (0, the default: never). */
void sh_children_set_frozen(sh_children *children, int64_t frozen_ms);

/* Call before adding the first child. */
void sh_children_set_hooks(sh_children *children, const sh_children_hooks *hooks);

/* Holds this process by a tether: a request to stop on fd counts as SIGTERM, and so does silence
 * for a minute. */
void sh_children_set_tether(sh_children *children, int fd);

/* This child has come up: from now on its errors are crashes. Meant to be called from a hook. */
void sh_children_ready(sh_children *children, int child);

/* Stops what still runs, without grace, and frees. */
void sh_children_free(sh_children *children);

#endif
