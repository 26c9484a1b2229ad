/* local_ranks.h - a group of ranks that all run on this machine.
 *
 * The same command line is started once for each rank, with what differs in the environment (names
 * in local_ranks.c are those of the option table). Ranks meet on a loopback port that is opened here, so
 * that none can be taken in between, and prove a token that only they know. Rank 0 keeps stdin,
 * stdout and stderr; what the others say goes to stderr, line by line behind "[rank 1] ". When one
 * fails the others get time to say so, and are then ended.
 *
 * Threads: one owner, before other threads start. */
#ifndef SH_CLUSTER_LOCAL_RANKS_H
#define SH_CLUSTER_LOCAL_RANKS_H

#include "cluster/children.h"

typedef struct {
    char *const *argv; /* the command line with its program; a closing NULL */
    int ranks;
    const char *token; /* NULL: one is made */
    bool restart;      /* a rank that crashes is started again and joins again */
    char *const *env;  /* more variables for all of them, or NULL */
} sh_local_ranks_spec;

/* Adds the ranks to `children`. */
SH_MUST_CHECK sh_status sh_local_ranks_add(sh_children *children, const sh_local_ranks_spec *spec,
                                           sh_err *err);

/* The same, and waits for them. *code is the exit code for this process. */
SH_MUST_CHECK sh_status sh_local_ranks_run(const sh_local_ranks_spec *spec, int *code, sh_err *err);

#endif
