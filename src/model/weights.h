/* weights.h - the matrices and vectors of a shard, in device memory.
 *
 * What a layer does not have is zero: a matrix has no data, a vector is NULL. A rank that owns no
 * heads has no attention matrices at all, and so on.
 *
 * Threads: read-only once loaded. */
#ifndef SH_MODEL_WEIGHTS_H
#define SH_MODEL_WEIGHTS_H

#include "model/loader.h"
#include "model/shard.h"

/* A matrix and the vector that is added to its product, or NULL. */
typedef struct {
    sh_matrix w;
    const float *bias;
} sh_linear;

/* bias is NULL where the model has none; without w there is no norm. */
typedef struct {
    const float *w;
    const float *bias;
} sh_norm;

typedef struct {
    sh_norm mixer_norm;      /* before attention, or what the layer has in its place */
    sh_norm mixer_post_norm; /* after it (gemma) */
    sh_norm mixer_sum_norm;  /* after it was added to the hidden states (BERT) */
    sh_norm ffn_norm;
    sh_norm ffn_post_norm;
    sh_norm ffn_sum_norm;
    const float *q_norm; /* on each head */
    const float *k_norm;
    const float *sinks;
    sh_linear q, k, v; /* with MLA there are no k and v */
    sh_linear o;       /* from the mixer back to the residual stream */

    /* MLA: queries may come from a low-rank vector, keys and values from the latent. */
    sh_linear q_a;
    const float *q_a_norm;
    sh_linear kv_a;
    const float *kv_a_norm;
    sh_matrix embed_q; /* [heads]: from a head's query to the latent space */
    sh_matrix unembed; /* [heads]: from there to the head's output */

    sh_linear conv_in[3]; /* the gate before the convolution, the one after it, and its input */
    sh_short_conv conv;

    sh_linear delta_qkvz, delta_ba;
    sh_delta_net delta;

    sh_linear gate, up, down; /* of a dense layer, or the shared experts; `up` may be missing */
    sh_matrix shared_gate;    /* [1, hidden] of the shared experts */
    sh_router router;         /* experts is 0 for a dense layer */
    sh_experts experts;
} sh_layer;

/* How a multi-token-prediction layer joins its two inputs: norms, and the halves of the projection
 * that read them. */
typedef struct {
    sh_norm embed_norm;
    sh_norm hidden_norm;
    sh_matrix from_embed;
    sh_matrix from_hidden;
} sh_mtp_join;

typedef struct {
    sh_device *dev;
    sh_matrix embed;
    sh_norm embed_norm;
    const float *positions; /* [config.positions, hidden] or NULL */
    const float *types;     /* [config.types, hidden] or NULL */
    sh_matrix head;         /* no data when it is the embedding */
    sh_norm norm;
    sh_mtp_join join;  /* of a multi-token-prediction layer */
    sh_layer *layers;  /* [shard.layer_count] */
    sh_loader *loader; /* which owns the memory */
} sh_weights;

/* What `before` (or NULL), weights of another shard from the same set, has of these is taken from
 * it; in any case there is nothing left of it but to free it. */
SH_MUST_CHECK sh_status sh_weights_load(const sh_tensors *set, const sh_config *config,
                                        const sh_shard *shard, sh_device *dev,
                                        const sh_load_opts *opts, sh_weights *before,
                                        sh_weights **out, sh_err *err);
void sh_weights_free(sh_weights *weights);

/* Bytes of device memory. */
size_t sh_weights_size(const sh_weights *weights);

#endif
