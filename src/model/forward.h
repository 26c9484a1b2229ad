/* forward.h - one step of a shard: tokens in, logits out.
 *
 * A step holds runs of tokens of several sequences. It writes their keys and values into the KV
 * blocks that the caller names, and computes logits for the tokens that the caller asks for. A step
 * allocates nothing. The result of a token does not depend on what else is in the step, nor on how
 * its prompt was split into steps.
 *
 * All tensor ranks of a stage run the same steps; products that are cut by columns end in
 * peers->reduce. For a later pipeline stage the caller puts the input into sh_model_hidden; every
 * stage leaves its output there.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_FORWARD_H
#define SH_MODEL_FORWARD_H

#include "model/model.h"

typedef struct {
    sh_batch batch;
    const int32_t *ids;    /* [tokens] */
    const bool *stretched; /* [spans]: use longrope's long factors; NULL: none does */
    const int32_t *rows;   /* tokens of the batch to compute logits for, in any order */
    int row_count;
} sh_forward_input;

/* What a step needs from the other tensor ranks. Works on device memory. */
typedef struct {
    void *ctx;
    /* Replaces x by the sum over all tensor ranks, with the same bits on each. */
    sh_status (*reduce)(void *ctx, float *x, size_t count, sh_err *err);
} sh_peers;

/* Device memory, valid until the next step. */
typedef struct {
    const float *data; /* [rows, count]; NULL when this stage computes none */
    int64_t first;     /* token id of the first column */
    int64_t count;
} sh_logits;

/* peers may be NULL on one rank. An error leaves the KV of this step's tokens undefined. */
SH_MUST_CHECK sh_status sh_model_step(sh_model *model, const sh_forward_input *step,
                                      const sh_peers *peers, sh_logits *out, sh_err *err);

/* The hidden states [tokens_max, hidden] of the last step, in device memory. */
float *sh_model_hidden(sh_model *model);

#endif
