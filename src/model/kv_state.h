/* kv_state.h - what a model holds between steps; for the files of the forward pass alone.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_KV_STATE_H
#define SH_MODEL_KV_STATE_H

#include "model/forward.h"
#include "model/weights.h"

/* Buffers of a step, all in one piece of device memory. T is tokens_max. */
typedef struct {
    float *x;        /* [T, hidden] the residual stream */
    float *xn;       /* [T, hidden] behind a norm */
    float *y;        /* [T, hidden] what a block adds */
    float *y2;       /* [T, hidden] the shared experts' part */
    float *q;        /* [T, heads * head_dim] */
    float *k;        /* [T, kv heads * head_dim], or the latent */
    float *v;        /* [T, kv heads * v_dim] */
    float *q_a;      /* [T, q_rank] */
    float *q_latent; /* [T, heads * (kv_rank + rope_dim)] */
    float *o_latent; /* [T, heads * kv_rank] */
    float *attn;     /* [T, columns of o]; the borders that other ranks own stay zero */
    float *gate;     /* [T, widest own feed-forward] */
    float *up;
    float *weights;            /* [T, topk] */
    int32_t *experts;          /* [T, topk] */
    float *rope[SH_ROPES_MAX]; /* [T, rope.dim] */
    float *rows;               /* [rows_max, hidden] */
    float *logits;             /* [rows_max, own vocabulary] */
} sh_forward_buffers;

struct sh_model {
    const sh_config *config;
    sh_shard shard;
    sh_device *dev;
    sh_model_opts opts;
    sh_weights *weights;
    sh_forward_buffers buf;
    void *scratch;
    size_t scratch_size;
    int32_t *positions;            /* [T], host */
    int32_t *kv_of;                /* [heads], host */
    float *inv_freq;               /* host, for all below */
    sh_rope rope[SH_ROPES_MAX][2]; /* plain and stretched */
    sh_range out_cols;             /* of the attention's output projection */
    sh_kv_shape kv_shape;
    sh_kv *kv; /* [layer_count] */
    void *kv_memory;
    size_t kv_size;
    int kv_blocks;
};

/* What the blocks of a step pass along. */
typedef struct {
    sh_model *m;
    const sh_ops *ops;
    sh_device *dev;
    const sh_forward_input *step;
    const sh_peers *peers;
    int tokens;
} sh_pass;

/* y = the block's contribution of this rank, from xn; not yet reduced. */
void sh_pass_attention(const sh_pass *pass, int index);
void sh_pass_mla(const sh_pass *pass, int index);

/* The part that both share: softmax over the KV blocks. `heads` rows of q at q_stride. */
void sh_pass_attend(const sh_pass *pass, int index, const float *q, int64_t q_stride, float *out,
                    int64_t out_stride);

#endif
