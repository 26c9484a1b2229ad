/* forward.h - one step of a shard: tokens in, logits out.
 *
 * A step holds runs of tokens of several sequences. It writes their keys and values into the KV
 * blocks that the caller names, and gives logits for the tokens that the caller asks for. A step
 * allocates nothing. What a token gets does not depend on what else is in the step, nor on where
 * its prompt was cut.
 *
 * On several ranks all make the same steps; products that are cut by columns end in peers->reduce.
 * A later pipeline stage finds its input in sh_model_hidden, where the caller has put it, and every
 * stage leaves its output there.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_FORWARD_H
#define SH_MODEL_FORWARD_H

#include "model/model.h"

typedef struct {
    sh_batch batch;
    const int32_t *ids;    /* [tokens] */
    const bool *stretched; /* [spans]: longer than longrope's original context; NULL: none */
    const int32_t *rows;   /* tokens of the batch that want logits, any order */
    int row_count;
} sh_forward_input;

/* How ranks meet; device memory. A model on one rank needs none of it. */
typedef struct {
    void *ctx;
    /* x becomes the sum of all tensor ranks' x, the same bits on each. */
    sh_status (*reduce)(void *ctx, float *x, size_t count, sh_err *err);
} sh_peers;

/* Device memory, valid until the next step. */
typedef struct {
    const float *data; /* [rows, count]; NULL when this stage makes none */
    int64_t first;     /* token id of the first column */
    int64_t count;
} sh_logits;

/* peers may be NULL on one rank. An error leaves the KV of this step's tokens undefined. */
SH_MUST_CHECK sh_status sh_model_step(sh_model *model, const sh_forward_input *step,
                                      const sh_peers *peers, sh_logits *out, sh_err *err);

/* The hidden states [tokens_max, hidden] of the last step, in device memory. */
float *sh_model_hidden(sh_model *model);

#endif
