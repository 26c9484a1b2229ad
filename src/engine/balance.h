/* balance.h - how evenly the work of steps is spread over the ranks, from what they report.
 *
 * All ranks run the same steps, and those that are done first wait for the slowest. What counts is
 * the time that each computes per step, over some hundred steps, without the waiting.
 *
 * Threads: the owner of the model group. */
#ifndef SH_ENGINE_BALANCE_H
#define SH_ENGINE_BALANCE_H

#include "engine/rank_report.h"

#include <stdbool.h>

typedef struct {
    int count;
    double steps;       /* measured; older ones count less and less */
    double mean_s;      /* mean of the ranks' compute times in these steps */
    double *sums;       /* [count] compute time of each */
    double *computed_s; /* [count] as of the last reports */
    uint64_t reported;  /* steps as of then */
} sh_balance;

/* Forgets everything; `count` ranks from now on, 0 to release the memory. */
void sh_balance_reset(sh_balance *b, int count);

/* The counters of the ranks start from 0 again, as they do when a group re-forms. */
void sh_balance_restart(sh_balance *b);

/* Takes the latest report of each rank. */
void sh_balance_add(sh_balance *b, const sh_rank_report *reports);

/* The slowest rank, and its time over the mean (1: as even as can be). False: nothing is known. */
bool sh_balance_slowest(const sh_balance *b, int *rank, double *ratio);

/* Whether it has been so uneven for so long that other shares would be better. */
bool sh_balance_is_off(const sh_balance *b);

/* The shares with which all ranks would be equally fast, as far as one change may go. */
void sh_balance_shares(const sh_balance *b, const double *shares, double *out);

#endif
