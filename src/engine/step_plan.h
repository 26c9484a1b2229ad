/* step_plan.h - the step plan: what all ranks do next, and the batch state that it acts on.
 *
 * Rank 0 fills a plan; every rank (rank 0 too) applies it to its own copy of the batch state and
 * runs the forward pass. A sequence has a slot; the state of a slot is its length and its KV
 * blocks. The masks of answers that are bound to a grammar are part of the state, too: a plan
 * announces those that are new, under numbers that may have belonged to others, and draws name
 * them. Their bits follow in a message of their own, to the ranks that draw, since it takes time to
 * make a mask and only the end of the forward pass needs it.
 *
 * Applying a plan gives a fingerprint of the resulting state; a rank whose fingerprint differs from
 * the plan's must not go on.
 *
 * A plan is allocated once, for fixed limits. Filling, packing and applying allocate nothing but
 * the bytes of the message, whose buffer is reused.
 *
 * Threads: one owner each. */
#ifndef SH_ENGINE_STEP_PLAN_H
#define SH_ENGINE_STEP_PLAN_H

#include "base/buf.h"
#include "engine/sampler.h"
#include "kernels/device.h"
#include "model/pooling.h"

#include <stdint.h>

/* The capacity of plans and batch states; the same on all ranks. */
typedef struct {
    int slots;      /* sequences at once */
    int tokens;     /* of one step */
    int draws;      /* rows of logits of one step */
    int adjusts;    /* logit changes of one step, all rows together */
    int blocks;     /* KV blocks in all */
    int seq_blocks; /* KV blocks of one sequence */
    int vocab;
    int masks;    /* kept at once, numbered from 1; at least one for each draw of a step */
    bool outputs; /* plans may ask for the outputs of their tokens */
} sh_step_limits;

/* The words of a mask: token id is bit id % 64 of word id / 64. */
static inline size_t sh_step_mask_words(const sh_step_limits *limits)
{
    return ((size_t)limits->vocab + 63) / 64;
}

typedef struct {
    int slot;
    bool fresh;      /* the slot is reused: drop its old blocks first */
    int pos;         /* position of the first token; what the slot held from there on is replaced */
    int token_count; /* tokens to run */
    int draw_count;  /* rows of logits, for the last tokens of the sequence */
    int block_count; /* blocks added to the slot */
    bool copies;     /* the block of `pos` begins as a copy of another, `copied` */
    int copied;
    bool long_rope; /* this sequence uses the long factors of its RoPE, if the model has two sets */
    sh_pool_kind pool; /* its hidden states become one vector */
    bool pool_ends;    /* these are its last tokens: the vector is complete */
    int second;        /* tokens from this position on are of the second type; 0: none is */
} sh_step_seq;

typedef struct {
    sh_draw draw;
    int adjust_count;
    int mask;   /* number of the mask to draw with; 0: none, all tokens may be drawn */
    bool whole; /* keep the row, too: rank 0 will fetch it */
} sh_step_draw;

typedef enum {
    SH_STEP_RUN,
    SH_STEP_ROWS,   /* no step: send the whole rows of some draws (indices in `tokens`) of `step` */
    SH_STEP_REPORT, /* no step: send a report (engine/rank_report.h) */
    SH_STEP_STOP,   /* no step: stop working */
} sh_step_kind;

typedef struct {
    sh_step_limits limits;
    sh_step_kind kind;
    uint64_t step;
    uint64_t fingerprint; /* of the batch state after this plan */
    bool outputs;         /* rank 0 wants the model's output for each token: what the head reads */
    int seq_count, token_count, draw_count, adjust_count, block_count, leave_count, mask_count;
    sh_step_seq *seqs;
    int32_t *tokens; /* of all sequences, in their order; likewise draws and blocks */
    sh_step_draw *draws;
    sh_adjust *adjusts; /* of all draws, in their order */
    int32_t *blocks;
    int32_t *leaves;          /* slots to empty, before anything else */
    int32_t *mask_numbers;    /* of new masks; at most one for each draw */
    uint64_t *mask_words;     /* [mask_count, sh_step_mask_words] complete once they are awaited */
    void (*await)(void *ctx); /* rank 0: returns when mask_words is complete; NULL: it is */
    void *await_ctx;
} sh_step_plan;

sh_step_plan *sh_step_plan_create(const sh_step_limits *limits);
void sh_step_plan_free(sh_step_plan *step);
void sh_step_plan_clear(sh_step_plan *step); /* empty, same step number */

/* Whether any of its sequences is pooled, and how many vectors it completes. */
bool sh_step_plan_pooled(const sh_step_plan *step);
int sh_step_plan_vectors(const sh_step_plan *step);

void sh_step_plan_pack(const sh_step_plan *step, sh_buf *out);
/* Checks every count against the limits; tokens, blocks and masks too. */
SH_MUST_CHECK sh_status sh_step_plan_unpack(sh_str bytes, sh_step_plan *out, sh_err *err);

/* On rank 0: returns when the bits of the new masks are there. */
static inline void sh_step_masks_await(const sh_step_plan *step)
{
    if (step->await != NULL) step->await(step->await_ctx);
}

/* The message with the bits of a plan's new masks; both ends know its length. */
size_t sh_step_masks_bytes(const sh_step_plan *step);
void sh_step_masks_pack(const sh_step_plan *step, sh_buf *out);
SH_MUST_CHECK sh_status sh_step_masks_unpack(sh_str bytes, sh_step_plan *step, sh_err *err);

typedef struct sh_batch_state sh_batch_state;

sh_batch_state *sh_batch_state_create(const sh_step_limits *limits);
void sh_batch_state_free(sh_batch_state *state);

/* Applies a plan and fills spans [limits.slots] for the forward pass. An error means that the plan
 * does not match the state; the state is unusable after that. */
SH_MUST_CHECK sh_status sh_batch_state_apply(sh_batch_state *state, const sh_step_plan *step,
                                             sh_span *spans, sh_err *err);

/* Takes the bits of the new masks of the plan that was applied last. */
void sh_batch_state_take_masks(sh_batch_state *state, const sh_step_plan *step);

/* The mask of a draw in the plan that was applied last; NULL: it has none. */
const uint64_t *sh_batch_state_mask(const sh_batch_state *state, const sh_step_draw *draw);

/* Of the current state. */
uint64_t sh_batch_state_fingerprint(const sh_batch_state *state);

#endif
