/* device.h - the interface between the model and the hardware that computes it.
 *
 * Weights, activations and KV are in the memory of a device, in layouts that only its ops know.
 * `model` passes addresses and shapes, but never dereferences them; results reach the host through
 * `download`. A device is a table of ops and its state. The CPU is one (kernels/cpu); others can
 * implement the same table.
 *
 * Every device guarantees:
 *  - Batch invariance: each output element is summed in one fixed order, so the result of a token
 *    has the same bits alone, in any batch, and however its prompt is split.
 *  - embed, add, scale, rmsnorm and route are portable: they give the same bits on every CPU level
 *    and architecture, because all ranks of a group must agree on them.
 *  - No op allocates or locks: `reserve` plans the scratch at load.
 *
 * Threads: one owner calls the ops of a device, one at a time; an op spreads its work over the
 * threads of the device. Only upload and matrix_pack, which fill in weights, may be called from
 * several threads at once. */
#ifndef SH_KERNELS_DEVICE_H
#define SH_KERNELS_DEVICE_H

#include "base/status.h"
#include "kernels/rows.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { SH_DTYPE_F32, SH_DTYPE_F16, SH_DTYPE_BF16 } sh_dtype;

/* How the numbers of a matrix are stored; docs/models.md has the layouts. */
typedef enum {
    SH_FORMAT_F32,
    SH_FORMAT_F16,
    SH_FORMAT_BF16,
    SH_FORMAT_AFFINE, /* scale*q + bias, q unsigned of 2, 3, 4, 5, 6 or 8 bits */
    SH_FORMAT_MXFP4,  /* E2M1 with one E8M0 scale per 32 */
    SH_FORMAT_MXFP8,  /* E4M3 with one E8M0 scale per 32 */
    SH_FORMAT_NVFP4,  /* E2M1 with one E4M3 scale per 16 */
} sh_format;

typedef struct {
    sh_format format;
    int bits;             /* AFFINE: of one q; fixed in the other formats */
    int group;            /* columns that share a scale; 0 for F32, F16, BF16 */
    sh_dtype scale_dtype; /* AFFINE: of scales and biases in the file */
    float global_scale;   /* NVFP4: factor of the whole matrix; 1 elsewhere */
} sh_quant;

/* A stack of `count` matrices [rows, cols] (experts or heads; 1 for a single matrix) in device
 * layout. y = W x: each row gives one output. cols is a multiple of the group. */
typedef struct {
    sh_quant quant;
    int64_t rows;
    int64_t cols;
    int64_t count;
    size_t stride; /* bytes from one matrix of the stack to the next */
    void *data;
} sh_matrix;

/* Rows as the file stores them, in host memory; `w` points to the first column that the matrix
 * holds. scales and biases are NULL where the format has none. */
typedef struct {
    const void *w;
    size_t w_stride; /* bytes from row to row */
    const void *scales;
    size_t scales_stride;
    const void *biases;
    size_t biases_stride;
} sh_raw_rows;

/* One product of a matmul: y[t, 0..rows) = W x[t] (+ bias). */
typedef struct {
    const sh_matrix *w;
    const float *bias; /* [rows] or NULL */
    float *y;
    int64_t y_stride; /* elements from token to token */
} sh_product;

typedef enum {
    SH_ACT_SILU,       /* silu(gate) * up */
    SH_ACT_GELU_TANH,  /* gelu_tanh(gate) * up */
    SH_ACT_SWIGLU_OAI, /* gate capped at 7, up in -7..7: gate*sigmoid(1.702*gate) * (up+1) */
} sh_act;

typedef struct {
    sh_matrix gate, up, down; /* one stack of all experts each; a shard has some rows of gate and
                                 up, and the same columns of down */
    const float *gate_bias;   /* [experts, rows] or NULL; so are the others */
    const float *up_bias;
    const float *down_bias;
    sh_act act;
} sh_experts;

/* How experts are chosen from the scores. Ties go to the lower index. */
typedef enum {
    SH_ROUTE_SOFTMAX,      /* softmax over all; the best k keep their probabilities */
    SH_ROUTE_TOPK_SOFTMAX, /* the best k logits, then softmax over these */
    SH_ROUTE_SIGMOID,      /* sigmoid scores; chosen by score + bias, weighted by the score only */
} sh_route_kind;

typedef struct {
    sh_route_kind kind;
    int experts;
    int topk;
    int groups; /* 1: no groups; else only experts of the best `topk_groups` groups count */
    int topk_groups;
    bool group_top2;         /* a group's score is the sum of its best two (else its best one) */
    bool normalize;          /* the chosen weights are made to sum to 1 before scaling */
    float scale;             /* applied to the weights last */
    const float *gate;       /* [experts, dim] f32, device memory */
    const float *logit_bias; /* [experts] added to the logits (gpt_oss), or NULL */
    const float *pick_bias;  /* [experts] SIGMOID: added for the choice only, or NULL */
} sh_router;

/* Positions -> angles. rope_table computes the table of a batch once per step. */
typedef struct {
    int rotary_dim;        /* leading part of a head that is rotated; even */
    bool interleaved;      /* pairs (2i, 2i+1); else (i, i + rotary_dim/2) */
    float scale;           /* on cos and sin (yarn's and longrope's attention factor) */
    const float *inv_freq; /* [rotary_dim / 2], host memory */
} sh_rope;

enum { SH_KV_BLOCK = 32 }; /* tokens of a KV block */

typedef enum { SH_KV_F32, SH_KV_F16, SH_KV_INT8 } sh_kv_format;

typedef struct {
    sh_kv_format format;
    int heads; /* KV heads */
    int k_dim;
    int v_dim;
    bool v_in_k; /* MLA: values are the first v_dim numbers of the key and not stored again */
} sh_kv_shape;

/* One layer's KV blocks: block b is at data + b * kv_block_bytes(shape). */
typedef struct {
    sh_kv_shape shape;
    void *data;
} sh_kv;

/* Consecutive tokens of one sequence within a batch. */
typedef struct {
    int first; /* index of its first token in the batch */
    int count;
    int pos;               /* position of that first token in the sequence */
    const int32_t *blocks; /* the sequence's KV blocks in order, host memory */
} sh_span;

typedef struct {
    int tokens;
    int span_count;
    const sh_span *spans;
} sh_batch;

typedef struct {
    int heads;            /* query heads; query head h reads KV head kv_of[h] */
    const int32_t *kv_of; /* [heads], host memory, ascending */
    float scale;
    int window;         /* a token sees itself and the window-1 before it; 0: all before it */
    const float *sinks; /* [heads] an extra logit in each softmax, or NULL */
} sh_attention;

/* The largest step that will be run; scratch is planned from it. */
typedef struct {
    int tokens;   /* of one batch */
    int64_t cols; /* widest input of a matmul */
    int64_t rows; /* widest output of an expert's gate or up */
    int64_t hidden;
    int experts;
    int topk;
    int heads;
    int head_dim; /* the larger of k_dim and v_dim */
} sh_limits;

typedef struct sh_device sh_device;

typedef void (*sh_host_fn)(void *arg, size_t piece, int thread);

typedef struct {
    const char *name;

    /* Memory. map returns zeroed memory, or an error with the size in it; unmap accepts NULL.
     * Weights are loaded by several threads: upload and matrix_pack may be called from any of them,
     * on disjoint memory, while no other op runs. */
    sh_status (*map)(sh_device *dev, size_t size, const char *what, void **out, sh_err *err);
    void (*unmap)(sh_device *dev, void *ptr, size_t size);
    void (*upload)(sh_device *dev, void *dst, const void *src, size_t size);
    void (*download)(sh_device *dev, void *dst, const void *src, size_t size);
    void *(*peek)(sh_device *dev,
                  const void *ptr); /* the host's address of ptr; NULL: not accessible */
    sh_status (*reserve)(sh_device *dev, const sh_limits *limits, sh_err *err);
    /* Runs host work on the threads of the device: fn(arg, piece, thread) once for each piece. */
    void (*host_each)(sh_device *dev, size_t pieces, sh_host_fn fn, void *arg);
    int (*host_threads)(const sh_device *dev);
    const sh_row_kernels *(*rows)(const sh_device *dev); /* for such work */

    /* Weights. matrix_bytes is the stride that one matrix of a stack needs. matrix_pack converts
     * rows [row_first, row_first + row_count) of matrix `index` to the device's layout. It may be
     * called from any thread and in any order, but row_first must be a multiple of SH_PACK_ROWS,
     * and so must row_count, except at the end of the matrix. */
    size_t (*matrix_bytes)(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols);
    void (*matrix_pack)(sh_device *dev, const sh_matrix *m, int64_t index, int64_t row_first,
                        int64_t row_count, const sh_raw_rows *raw);

    /* y[t] = scale * row ids[t] of w, whose row 0 is token row_first; zeros for a token outside w.
     * ids are in host memory. */
    void (*embed)(sh_device *dev, const sh_matrix *w, int64_t row_first, const int32_t *ids,
                  int tokens, float scale, float *y);
    void (*add)(sh_device *dev, float *x, const float *y, size_t count); /* x += y */
    void (*scale)(sh_device *dev, float *x, float factor, size_t count);
    void (*copy_rows)(sh_device *dev, float *y, const float *x, const int32_t *rows, int count,
                      int64_t dim);                       /* y[i] = x[rows[i]] */
    void (*zero)(sh_device *dev, float *x, size_t count); /* x = 0, even where x is NaN */
    /* y[t, h] = x[t, h], dim numbers each; strides in elements. */
    void (*copy_heads)(sh_device *dev, float *y, int64_t y_token_stride, int64_t y_head_stride,
                       const float *x, int64_t x_token_stride, int64_t x_head_stride, int tokens,
                       int heads, int64_t dim);

    /* y = x / rms(x) * w for `rows` rows of dim numbers. Row r is at
     *     r / inner * stride + r % inner * dim
     * so that heads within the row of a token can be normed in place (inner = heads). y may be x.
     */
    void (*rmsnorm)(sh_device *dev, float *y, const float *x, const float *w, int64_t rows,
                    int64_t inner, int64_t stride, int64_t dim, float eps);

    /* All products share the input x [tokens, cols], which is read once. */
    void (*matmul)(sh_device *dev, const sh_product *products, int count, const float *x,
                   int64_t x_stride, int tokens);

    /* y[t, h] = W_h x[t, h], with matrix h of the stack; strides in elements. */
    void (*matmul_heads)(sh_device *dev, const sh_matrix *w, const float *x, int64_t x_token_stride,
                         int64_t x_head_stride, float *y, int64_t y_token_stride,
                         int64_t y_head_stride, int tokens);

    void (*act)(sh_device *dev, sh_act act, float *y, const float *gate, const float *up,
                int tokens, int64_t dim, int64_t stride); /* y may be gate */

    /* Chooses router->topk experts for each token; ids and weights are [tokens, topk] in device
     * memory. */
    void (*route)(sh_device *dev, const sh_router *router, const float *x, int tokens, int64_t dim,
                  int32_t *ids, float *weights);
    /* y[t] = sum over the chosen experts of weight * down(act(gate x, up x)), in the order of the
     * token's ids. */
    void (*experts)(sh_device *dev, const sh_experts *ex, const float *x, int tokens,
                    const int32_t *ids, const float *weights, int topk, float *y);

    /* cos and sin of each token: table [tokens, rotary_dim] in device memory. */
    void (*rope_table)(sh_device *dev, const sh_rope *rope, const int32_t *positions, int tokens,
                       float *table);
    void (*rope)(sh_device *dev, const sh_rope *rope, const float *table, float *x, int tokens,
                 int64_t stride, int heads, int64_t head_stride);

    size_t (*kv_block_bytes)(sh_device *dev, const sh_kv_shape *shape);
    /* Stores k [tokens, heads * k_dim] and v [tokens, heads * v_dim], at the given strides; v is
     * not used with v_in_k. */
    void (*kv_write)(sh_device *dev, const sh_kv *kv, const sh_batch *batch, const float *k,
                     int64_t k_stride, const float *v, int64_t v_stride);
    /* out[t, h] = softmax(scale * q[t, h] . K) V over the blocks of the sequence, up to and
     * including the token itself. */
    void (*attend)(sh_device *dev, const sh_attention *attn, const sh_kv *kv, const sh_batch *batch,
                   const float *q, int64_t q_stride, float *out, int64_t out_stride);

    void (*close)(sh_device *dev);
} sh_ops;

struct sh_device {
    const sh_ops *ops;
    /* kernels/profile.h replaces the table while it measures. */
};

enum { SH_PACK_ROWS = 64 };

typedef enum { SH_ACTIVATIONS_INT8, SH_ACTIVATIONS_F32 } sh_activations;

typedef struct {
    int threads;       /* 0: one per CPU */
    const char *level; /* "generic", "avx2", ...; NULL or "auto": the best that this CPU supports */
    sh_activations activations; /* of matmul and experts; norms and routers are always f32 */
} sh_cpu_opts;

/* Opens the CPU as a device. An unknown level, or one that this CPU does not support, is an error
 * that lists the available ones. Close with dev->ops->close(dev). */
SH_MUST_CHECK sh_status sh_device_open_cpu(const sh_cpu_opts *opts, sh_device **out, sh_err *err);

#endif
