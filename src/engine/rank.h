/* rank.h - what every rank does with a step plan: apply it, run the forward pass, and summarise its
 * part of the logits.
 *
 * All memory is allocated at creation.
 *
 * Threads: one owner, the same that owns the model. */
#ifndef SH_ENGINE_RANK_H
#define SH_ENGINE_RANK_H

#include "engine/step_plan.h"
#include "model/forward.h"

typedef struct sh_rank sh_rank;

/* `model` and `peers` (NULL for a single rank) are borrowed. The results of the last `depth` steps
 * are kept. */
sh_rank *sh_rank_create(sh_model *model, const sh_peers *peers, const sh_step_limits *limits,
                        int depth);
void sh_rank_free(sh_rank *rank);

/* Applies the plan to the batch state and gives the new state's fingerprint. */
SH_MUST_CHECK sh_status sh_rank_apply(sh_rank *rank, const sh_step_plan *plan,
                                      uint64_t *fingerprint, sh_err *err);

/* Where the bits of new masks come from. */
typedef struct {
    /* Returns when the plan's mask_words are complete. */
    sh_status (*get)(void *ctx, sh_step_plan *plan, sh_err *err);
    void *ctx;
} sh_mask_feed;

/* Runs the plan that was applied. If it has new masks, they are asked for at the end of the forward
 * pass, when they are needed, on a rank that draws; `feed` NULL: they are in the plan. */
SH_MUST_CHECK sh_status sh_rank_run(sh_rank *rank, sh_step_plan *plan, const sh_mask_feed *feed,
                                    sh_err *err);

/* One summary for each draw of step `step`, of this rank's part of the vocabulary. NULL when the
 * step is no longer kept. */
const sh_logits_summary *sh_rank_summaries(const sh_rank *rank, uint64_t step);

/* Reads this rank's part of the adjusted row of logits of a draw into out. False when the step is
 * no longer kept. */
SH_MUST_CHECK bool sh_rank_read_row(const sh_rank *rank, uint64_t step, int draw, float *out);

/* The vectors [sh_step_plan_vectors, hidden] that the step completed, on a rank of the last stage
 * that keeps them: its first. NULL when the step is no longer kept. */
const float *sh_rank_vectors(const sh_rank *rank, uint64_t step);

/* The model's output [tokens, hidden] for each token of a step that asks for it, on the same rank.
 * NULL when the step is no longer kept. */
const float *sh_rank_outputs(const sh_rank *rank, uint64_t step);

/* Hash of the hidden states that the step's logits were computed from: the same on all ranks of the
 * last stage. */
uint64_t sh_rank_hash(const sh_rank *rank, uint64_t step);

/* Seconds spent in forward passes so far, including the time waiting for peers but not that for
 * masks. */
double sh_rank_forward_s(const sh_rank *rank);

#endif
