/* model_internal.h - the model's state and buffers; for the files of the forward pass only.
 *
 * Threads: the model's owner. */
#ifndef SH_MODEL_MODEL_INTERNAL_H
#define SH_MODEL_MODEL_INTERNAL_H

#include "model/forward.h"
#include "model/weights.h"

/* Buffers of a step, all in one mapping of device memory. T is tokens_max. */
typedef struct {
    sh_tensor x;        /* [T, hidden] the residual stream */
    sh_tensor xn;       /* [T, hidden] x after a norm */
    sh_tensor y;        /* [T, hidden] the output of a block */
    sh_tensor y2;       /* [T, hidden] the shared experts' part */
    sh_tensor q;        /* [T, heads * head_dim] */
    sh_tensor k;        /* [T, kv heads * head_dim], or the latent */
    sh_tensor v;        /* [T, kv heads * v_dim] */
    sh_tensor q_a;      /* [T, q_rank] */
    sh_tensor q_latent; /* [T, heads * (kv_rank + rope_dim)] */
    sh_tensor o_latent; /* [T, heads * kv_rank] */
    sh_tensor conv[3];  /* [T, channels] what conv_in gives; the result replaces the first */
    sh_tensor q_gates;  /* [T, heads * 2 * head_dim] q and the gate of each head */
    sh_tensor gates;    /* [T, heads * head_dim] the gates alone */
    sh_tensor qkvz;     /* [T, ...] what a gated delta net reads */
    sh_tensor ba;
    sh_tensor delta; /* [T, value heads * v_dim] what it gives */
    sh_tensor attn;  /* [T, columns of o]; columns of other ranks' heads stay zero */
    sh_tensor gate;  /* [T, widest feed-forward of this rank] */
    sh_tensor up;
    sh_tensor shared_gate;     /* [T, 1] */
    sh_tensor rows;            /* [rows_max, hidden] */
    sh_tensor logits;          /* [rows_max, this rank's vocabulary] */
    float *weights;            /* [T, topk] */
    int32_t *experts;          /* [T, topk] */
    float *rope[SH_ROPES_MAX]; /* [T, rope.dim] */
} sh_forward_buffers;

/* What a layer keeps of the sequences, in blocks of SH_KV_BLOCK tokens that all layers number
 * alike: KV, or a fixed-size state. The layer's mixer knows which. */
typedef struct {
    size_t block_bytes; /* 0: this rank has no part of the layer's mixer */
    sh_kv kv;
    sh_state fixed;
} sh_layer_state;

struct sh_model {
    const sh_config *config;
    sh_shard shard;
    sh_device *dev;
    sh_model_opts opts;
    sh_tensors *set; /* stays open: weights of another shard are compared and read from it */
    sh_weights *weights;
    sh_forward_buffers buf;
    void *scratch;
    size_t scratch_size;
    int32_t *kv_of;                /* [heads], host */
    float *inv_freq;               /* host; what `rope` points into */
    sh_rope rope[SH_ROPES_MAX][2]; /* [1]: with longrope's long factors */
    sh_range out_cols;             /* of the attention's output projection */
    sh_layer_state *state;         /* [layer_count] each with a shape of its own */
    void *state_memory;
    size_t state_size;
};

/* The arguments that the functions of one step share. */
typedef struct {
    sh_model *m;
    const sh_ops *ops;
    sh_device *dev;
    const sh_device_batch *batch;
    const sh_peers *peers;
    int tokens;
    sh_tensor in; /* what the current block reads */
} sh_pass;

static inline const sh_layer_config *sh_model_layer(const sh_model *m, int index)
{
    return &m->config->layer[m->shard.layer_first + index];
}

/* y = this rank's contribution of the mixer, from `in`; not reduced yet. */
void sh_pass_attention(const sh_pass *pass, int index);
void sh_pass_mla(const sh_pass *pass, int index);
void sh_pass_short_conv(const sh_pass *pass, int index);
void sh_pass_delta_net(const sh_pass *pass, int index);

#endif
