/* local_ranks.h - a group of ranks that all run on this machine.
 *
 * The same command line is started once per rank; what differs goes through the environment (the
 * names in local_ranks.c are those of the option table). The ranks join on a loopback port that is
 * opened here, so nobody can take it in between, and prove a token that only they know. Rank 0
 * keeps stdin, stdout and stderr; the output of the others goes to stderr, each line after
 * "[rank 1] ". When one fails, the others get time to log why before they are stopped.
 *
 * Threads: one owner, before other threads start. */
#ifndef SH_CLUSTER_LOCAL_RANKS_H
#define SH_CLUSTER_LOCAL_RANKS_H

#include "cluster/children.h"

typedef struct {
    char *const *argv; /* with the program; NULL-terminated */
    int ranks;
    const char *token;      /* NULL: make one */
    sh_child_policy policy; /* of each rank */
    const char *model;      /* for the log, where there are several; or NULL */
    bool alike; /* rank 0 keeps nothing: it has no stdin, and its output is like the others' */
    char *const *env; /* more variables for all ranks, or NULL */
} sh_local_ranks_spec;

/* Adds the ranks to `children`. *fd is the socket that they join at: it stays open in this process,
 * so that a restarted rank 0 finds it still bound. `places`, if not NULL, gets their indices. */
SH_MUST_CHECK sh_status sh_local_ranks_add(sh_children *children, const sh_local_ranks_spec *spec,
                                           int *fd, int *places, sh_err *err);

/* The same, and waits for them. *code is the exit code for this process. */
SH_MUST_CHECK sh_status sh_local_ranks_run(const sh_local_ranks_spec *spec, int *code, sh_err *err);

#endif
