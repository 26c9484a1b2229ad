/* shares.h - how much of the model each rank gets, and for which ranks that was decided.
 *
 * Rank 0 decides, from the memory and speed of the ranks. After that all of them remember the
 * shares: as long as the same members are there on the same hosts, the shares stay, however the
 * next measurement turns out, and whichever process is rank 0 by then. With the same shards the
 * ranks keep their weights, and an answer goes on with the same bits.
 *
 * Threads: the owner of the model group. */
#ifndef SH_ENGINE_SHARES_H
#define SH_ENGINE_SHARES_H

#include "engine/rank_messages.h"

typedef struct {
    uint64_t number; /* of the decision: a later one has a higher number; 0: there was none */
    int count;
    sh_rank_offer *members; /* [count] whom the shares were decided for */
    double *shares;
} sh_shares;

void sh_shares_reset(sh_shares *shares);

/* Remembers a decision. */
void sh_shares_keep(sh_shares *kept, uint64_t number, const sh_rank_offer *members,
                    const double *shares, int count);

/* A decision as a file has it. */
void sh_shares_pack(const sh_shares *shares, sh_buf *out);
SH_MUST_CHECK sh_status sh_shares_unpack(sh_str bytes, sh_shares *out, sh_err *err);

/* Whether a decision was for exactly these members on these hosts. How much memory is free says
 * little: the ranks that are still there hold most of it. */
bool sh_shares_are_for(const sh_shares *kept, const sh_rank_offer *members, int count);

/* How many of the members share one's memory. */
int sh_host_ranks(const sh_rank_offer *members, int count, const sh_rank_offer *one);

/* Decides on shares [count] by memory and speed. */
SH_MUST_CHECK sh_status sh_shares_decide(const sh_rank_offer *members, int count,
                                         double weight_bytes, double *shares, sh_err *err);

/* The same within the memory of the ranks, but in proportion to `wanted` instead of their speed. */
SH_MUST_CHECK sh_status sh_shares_fit(const sh_rank_offer *members, int count, double weight_bytes,
                                      const double *wanted, double *shares, sh_err *err);

/* Whether all members have the memory for what was decided, now. */
bool sh_shares_fit_now(const sh_shares *kept, const sh_rank_offer *members, double weight_bytes);

/* What each rank says about the decision that it remembers. */
typedef struct {
    uint64_t last;    /* its number */
    uint64_t usable;  /* the same, if it was for these members; 0 otherwise */
    uint64_t refused; /* the number of shares that this rank could not load; 0: none */
} sh_shares_vote;

/* A usable number that says that rank 0 decides anew in any case. */
#define SH_SHARES_MINE UINT64_MAX

/* Whose shares are used, from the votes [count] of all ranks: returns the rank, and the number that
 * they have from now on. Where that rank has nothing to offer (it is rank 0 then), it decides. */
int sh_shares_elect(const sh_shares_vote *votes, int count, uint64_t *number);

#endif
