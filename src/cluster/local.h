/* local.h - a group of ranks that all run on this machine.
 *
 * The same command line is started once for each rank, with what differs in the environment (names
 * in local.c are those of the option table). Ranks meet on a loopback port that is opened here, so
 * that none can be taken in between, and prove a token that only they know. Rank 0 keeps stdin,
 * stdout and stderr; what the others say goes to stderr, line by line behind "[rank 1] ". When one
 * fails the others get time to say so, and are then ended.
 *
 * Threads: one owner, before other threads start. */
#ifndef SH_CLUSTER_LOCAL_H
#define SH_CLUSTER_LOCAL_H

#include "base/status.h"

/* argv: the command line with its program; a closing NULL. token: NULL makes one. *code is the exit
 * code for this process. */
SH_MUST_CHECK sh_status sh_local_run(char *const *argv, int ranks, const char *token, int *code,
                                     sh_err *err);

#endif
