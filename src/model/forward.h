/* forward.h - one step of a shard: tokens in, logits out.
 *
 * A step holds runs of tokens of several sequences. It writes their keys and values into the KV
 * blocks that the caller names, and computes logits for the tokens that the caller asks for. A step
 * allocates nothing. The result of a token does not depend on what else is in the step, nor on how
 * its prompt was split into steps.
 *
 * All tensor ranks of a stage run the same steps; products that are cut by columns end in
 * peers->reduce. For a later pipeline stage the caller puts the input into sh_model_hidden, and so
 * it does for a multi-token-prediction layer; every stage leaves its output there.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_FORWARD_H
#define SH_MODEL_FORWARD_H

#include "model/model.h"

/* One step's input, in host memory, and where its results go. */
typedef struct {
    sh_batch batch;
    const sh_row_query *queries;  /* [batch.row_count] how to adjust and summarize each row of
                                     logits;  NULL: leave them as computed */
    sh_logits_summary *summaries; /* [batch.row_count] filled where there are queries */
    /* Called when the queries are about to be read, if there are any; NULL: they are complete. */
    sh_status (*complete_queries)(void *ctx, sh_err *err);
    void *complete_ctx;
    bool pooled; /* the output of all tokens is wanted: sh_model_output */
    uint64_t hash_seed;
    uint64_t *hash; /* set to the hash of the hidden states, seeded; NULL: not wanted */
} sh_forward_input;

/* How the tensor ranks of a stage sum their parts. A model on one rank needs none of it. */
typedef struct {
    void *ctx;
    /* x [rows, cols] becomes the sum of all tensor ranks' x, the same bits on each. */
    sh_status (*reduce)(void *ctx, sh_tensor x, int rows, int64_t cols, sh_err *err);
} sh_peers;

/* Rows of logits in device memory, valid until the next step. */
typedef struct {
    sh_tensor rows; /* [batch.row_count, count]; rows.data is NULL when this stage computes none */
    int64_t first;  /* token id of the first column */
    int64_t count;
} sh_logits;

/* peers may be NULL on one rank. After an error, the KV of this step's tokens is undefined. */
SH_MUST_CHECK sh_status sh_model_step(sh_model *model, const sh_forward_input *in,
                                      const sh_peers *peers, sh_logits *out, sh_err *err);

/* The hidden states [tokens_max, hidden] of the last step. */
sh_tensor sh_model_hidden(sh_model *model);

/* What the last stage makes of the hidden states of the last step, which was `pooled`: the final
 * norm of each token's. */
sh_tensor sh_model_output(sh_model *model);

/* The memory of the tensors that peers->reduce gets, if the device lends it in place; *at is NULL
 * if it does not. */
void sh_model_sum_memory(sh_model *model, void **at, size_t *len);

#endif
