/* model_internal.h - the model's state and buffers; for the files of the forward pass only.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_MODEL_INTERNAL_H
#define SH_MODEL_MODEL_INTERNAL_H

#include "model/forward.h"
#include "model/weights.h"

/* Buffers of a step, all in one mapping of device memory. T is tokens_max. */
typedef struct {
    float *x;        /* [T, hidden] the residual stream */
    float *xn;       /* [T, hidden] x after a norm */
    float *y;        /* [T, hidden] the output of a block */
    float *y2;       /* [T, hidden] the shared experts' part */
    float *q;        /* [T, heads * head_dim] */
    float *k;        /* [T, kv heads * head_dim], or the latent */
    float *v;        /* [T, kv heads * v_dim] */
    float *q_a;      /* [T, q_rank] */
    float *q_latent; /* [T, heads * (kv_rank + rope_dim)] */
    float *o_latent; /* [T, heads * kv_rank] */
    float *attn;     /* [T, columns of o]; columns of other ranks' heads stay zero */
    float *gate;     /* [T, widest feed-forward of this rank] */
    float *up;
    float *weights;            /* [T, topk] */
    int32_t *experts;          /* [T, topk] */
    float *rope[SH_ROPES_MAX]; /* [T, rope.dim] */
    float *rows;               /* [rows_max, hidden] */
    float *logits;             /* [rows_max, this rank's vocabulary] */
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
    float *inv_freq;               /* host; what `rope` points into */
    sh_rope rope[SH_ROPES_MAX][2]; /* [1]: with longrope's long factors */
    sh_range out_cols;             /* of the attention's output projection */
    sh_kv_shape kv_shape;
    sh_kv *kv; /* [layer_count] */
    void *kv_memory;
    size_t kv_size;
    int kv_blocks;
};

/* The arguments that the functions of one step share. */
typedef struct {
    sh_model *m;
    const sh_ops *ops;
    sh_device *dev;
    const sh_forward_input *step;
    const sh_peers *peers;
    int tokens;
} sh_pass;

/* y = this rank's contribution of the block, from xn; not reduced yet. */
void sh_pass_attention(const sh_pass *pass, int index);
void sh_pass_mla(const sh_pass *pass, int index);

/* The part that both share: softmax over the KV blocks. q_stride and out_stride are elements from
 * token to token. */
void sh_pass_attend(const sh_pass *pass, int index, const float *q, int64_t q_stride, float *out,
                    int64_t out_stride);

#endif
