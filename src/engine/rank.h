/* rank.h - what every rank does with a step plan: apply it, run the forward pass, scan its part of
 * the logits.
 *
 * All memory is made at the start.
 *
 * Threads: one owner, the same that owns the model. */
#ifndef SH_ENGINE_RANK_H
#define SH_ENGINE_RANK_H

#include "engine/step_plan.h"
#include "model/forward.h"

typedef struct sh_rank sh_rank;

/* `model` and `peers` (NULL on one rank) are borrowed. The results of the last `depth` steps are
 * kept. */
sh_rank *sh_rank_create(sh_model *model, const sh_peers *peers, const sh_step_limits *limits,
                        int depth);
void sh_rank_free(sh_rank *rank);

/* Brings the batch state to where the plan says and gives its fingerprint. */
SH_MUST_CHECK sh_status sh_rank_apply(sh_rank *rank, const sh_step_plan *plan,
                                      uint64_t *fingerprint, sh_err *err);

/* Runs the plan that was applied. */
SH_MUST_CHECK sh_status sh_rank_run(sh_rank *rank, const sh_step_plan *plan, sh_err *err);

/* One scan for each draw of step `step`, of this rank's part of the vocabulary. NULL when it is not
 * kept any more. */
const sh_logits_summary *sh_rank_summaries(const sh_rank *rank, uint64_t step);

/* The row of logits of a draw, adjusted: this rank's part. */
const float *sh_rank_row(const sh_rank *rank, uint64_t step, int draw);

/* Of the hidden states that the step's logits were made from: the same on all ranks that share
 * them. */
uint64_t sh_rank_hash(const sh_rank *rank, uint64_t step);

/* Seconds in forward passes so far, what the peers took included. */
double sh_rank_forward_s(const sh_rank *rank);

#endif
