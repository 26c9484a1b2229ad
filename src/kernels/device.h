/* device.h - the seam between the model and the hardware that computes it.
 *
 * Weights, activations and sequence state live in a device's memory, in layouts, number formats and
 * alignments that only the device knows. `model` describes what to compute and passes handles
 * (sh_tensor, sh_matrix, sh_kv, sh_state) around; it never reads or writes through them. A device
 * is a table of ops and its own state: the CPU implements the table (kernels/cpu), and a GPU can
 * implement the same one without a change above this line.
 *
 * A step is bracketed. step_begin hands the batch over once: token ids, spans, positions, KV block
 * tables and the rows that want logits. The ops of the step follow; step_end waits until they are
 * done and returns their status. In between, a device may run ops asynchronously, and may fuse
 * neighbours (add with norm, norm with product, rope with kv_write, gate and up with act), because
 * nothing is observed before step_end, except by the exchange ops, which wait for what they need.
 * The structs that an op gets are read before it returns; what they point to, weights, activations
 * and the host arrays of the batch and the queries, stays valid until step_end.
 *
 * Promises of every device:
 *  - Batch invariance: each output element is summed in one fixed order, so a token's result has
 *    the same bits alone, in any batch, and wherever its prompt was cut into chunks.
 *  - embed, add, add_positions, norms and route are portable: the same bits on every CPU level and
 * architecture, because all ranks of a group must agree on them.
 *  - No op allocates: `reserve` plans the scratch when the model is loaded.
 *
 * Threads: one owner calls the ops of a device, one at a time; an op spreads its work over the
 * threads of the device. Only the ops that fill in weights (upload, copy, matrix_pack and
 * matrix_copy) may be called from several threads at once. */
#ifndef SH_KERNELS_DEVICE_H
#define SH_KERNELS_DEVICE_H

#include "base/status.h"
#include "kernels/codec.h"
#include "kernels/scan.h"

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

/* Some rows and columns of matrix `index` of a stack. */
typedef struct {
    int64_t index;
    int64_t row, rows;
    int64_t col, cols;
} sh_matrix_part;

/* Rows as the file stores them, in host memory; `w` points to the first column that is wanted.
 * scales and biases are NULL where the format has none. */
typedef struct {
    const void *w;
    size_t w_stride; /* bytes from row to row */
    const void *scales;
    size_t scales_stride;
    const void *biases;
    size_t biases_stride;
} sh_raw_rows;

/* Activations: rows of numbers in device memory, in the device's own number format. */
typedef struct {
    void *data;
    int64_t stride;   /* elements from row to row */
    int element_size; /* bytes */
} sh_tensor;

/* The same rows from column `col` on. */
static inline sh_tensor sh_tensor_from(sh_tensor t, int64_t col)
{
    t.data = (char *)t.data + col * t.element_size;
    return t;
}

/* One product of a matmul: y[t, 0..rows) = W x[t] (+ bias). */
typedef struct {
    const sh_matrix *w;
    const float *bias; /* [rows] or NULL */
    sh_tensor y;
} sh_product;

typedef enum {
    SH_ACT_SILU,       /* silu(gate) * up */
    SH_ACT_GELU,       /* gelu(gate) * up, with the exact gelu */
    SH_ACT_GELU_TANH,  /* gelu_tanh(gate) * up */
    SH_ACT_SIGMOID,    /* sigmoid(gate) * up */
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

/* Positions to angles. rope_table makes the table of a batch once per step. */
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

/* One layer's fixed-size state, for layers whose memory of a sequence does not grow with it.
 * Block b is at data + b * block_bytes and holds the state after the last token that was computed
 * in that block, so a full block is a snapshot at its end: it can be shared, cached and continued
 * like a KV block. A span that starts at position p reads the block of position p - 1 (zeros at
 * p = 0) and writes every block that it touches. A state cannot be cut back: whoever drops tokens
 * that were computed continues at the start of their block. Numbers are kept as activations are, or
 * bits would depend on where a prompt was cut. */
typedef struct {
    size_t block_bytes;
    void *data;
} sh_state;

enum { SH_CONV_TAPS_MAX = 16 };

/* A depthwise causal convolution; its state is the last taps - 1 inputs. */
typedef struct {
    int64_t channels;
    int taps;          /* a token sees itself and the taps - 1 before it; 2 to SH_CONV_TAPS_MAX */
    const float *w;    /* [taps, channels] f32, device memory; the oldest token's first */
    const float *bias; /* [channels] or NULL */
} sh_short_conv;

enum { SH_DELTA_DIM_MAX = 256, SH_DELTA_VALUES_MAX = 8 };

/* A gated delta net, which is linear attention: a value head remembers its sequence in a matrix S
 * [k_dim, v_dim], and a key head has a query and a key for each of its `values` value heads. With
 * the queries, keys and values of a token after a depthwise convolution and silu, q and k of
 * length 1,
 *   S = decay S;  S += k (beta (v - k S))';  y = q S / sqrt(k_dim)
 * where beta = sigmoid(b) and decay = e^(-e^a_log softplus(a + dt_bias)); y is then normed (RMS)
 * and multiplied by silu(z). Its state are the last taps - 1 inputs of the convolution, and S. */
typedef struct {
    int heads;  /* key heads */
    int values; /* value heads of each; at most SH_DELTA_VALUES_MAX */
    int k_dim;  /* both at most SH_DELTA_DIM_MAX, and multiples of 16 */
    int v_dim;
    int taps; /* 2 to SH_CONV_TAPS_MAX */
    float eps;
    const float *conv_q; /* [taps, heads * k_dim] f32, device memory; the oldest token's first */
    const float *conv_k;
    const float *conv_v;  /* [taps, heads * values * v_dim] */
    const float *a_log;   /* [heads * values] */
    const float *dt_bias; /* [heads * values] */
    const float *norm;    /* [v_dim] */
} sh_delta_net;

/* Consecutive tokens of one sequence within a batch. */
typedef struct {
    int first; /* index of its first token in the batch */
    int count;
    int pos;               /* position of that first token in the sequence */
    int second;            /* tokens from this position on are of the second type; 0: none is */
    bool long_rope;        /* uses the second of two ropes: see rope_table */
    const int32_t *blocks; /* the sequence's KV blocks in order */
} sh_span;

/* One step's input, in host memory. Spans cover the tokens in order, without gaps. */
typedef struct {
    int tokens;
    const int32_t *ids; /* [tokens] */
    int span_count;
    const sh_span *spans;
    const int32_t *rows; /* [row_count] tokens that want logits, in any order */
    int row_count;
} sh_batch;

/* A batch in the device's own form, between step_begin and step_end. */
typedef struct sh_device_batch sh_device_batch;

typedef struct {
    int heads;            /* query heads; query head h reads KV head kv_of[h] */
    const int32_t *kv_of; /* [heads], host memory, ascending */
    float scale;
    int window;         /* a token sees itself and the window-1 before it; 0: all before it */
    bool both;          /* and as many after it; a span is then a whole sequence */
    const float *sinks; /* [heads] an extra logit in each softmax, or NULL */
} sh_attention;

/* The largest step that will be run; scratch is planned from it. */
typedef struct {
    int tokens;   /* of one batch */
    int rows;     /* of logits of one batch */
    int64_t cols; /* widest input of a matmul */
    int64_t vocab;
    int64_t expert_rows; /* widest output of an expert's gate or up */
    int64_t hidden;
    int experts;
    int topk;
    int heads;
    int head_dim; /* the larger of k_dim and v_dim */
} sh_limits;

typedef struct sh_device sh_device;

typedef struct {
    const char *name;
    int pack_rows; /* parts of a matrix that are filled in begin at multiples of this row */

    void (*close)(sh_device *dev);

    /* What there is to plan with: bytes that could be mapped now, and bytes per second that the
     * device reads from its memory, measured roughly, in a few milliseconds. */
    int64_t (*memory_free)(sh_device *dev);
    double (*read_speed)(sh_device *dev);

    /* Memory. map returns zeros, or fails with the size in the error; unmap takes NULL. upload
     * copies from host memory into a weight vector, copy from device memory. */
    sh_status (*map)(sh_device *dev, size_t size, const char *what, void **out, sh_err *err);
    void (*unmap)(sh_device *dev, void *ptr, size_t size);
    void (*upload)(sh_device *dev, void *dst, const void *src, size_t size);
    void (*copy)(sh_device *dev, void *dst, const void *src, size_t size);
    sh_status (*reserve)(sh_device *dev, const sh_limits *limits, sh_err *err);

    /* Activations. tensor_layout fills stride and element size for rows of `cols` numbers and
     * returns the bytes of `rows` of them; the caller maps memory and sets data. read_rows and
     * write_rows move rows [first, first + rows) to and from f32 in host memory, outside a step. */
    size_t (*tensor_layout)(sh_device *dev, int64_t rows, int64_t cols, sh_tensor *out);
    void (*read_rows)(sh_device *dev, sh_tensor x, int64_t first, int64_t rows, int64_t cols,
                      float *out);
    void (*write_rows)(sh_device *dev, sh_tensor x, int64_t rows, int64_t cols, const float *in);

    /* Weights. matrix_bytes is the stride that one matrix of a stack needs; its memory is zero when
     * the first part is filled in. matrix_pack lays out rows as the file stores them, matrix_copy
     * takes a part from (row, col) of matrix `index` of another stack with the same quant. Parts
     * are filled in from any thread, in any order, provided that their rows are multiples of
     * pack_rows and their columns multiples of matrix_cut (except at the end of the matrix), and
     * that threads do not fill in the same rows. A part that is copied may begin at any row of its
     * source; its column must be a multiple of matrix_cut there, too, and what ends with columns
     * that are none must end both matrices. */
    size_t (*matrix_bytes)(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols);
    int64_t (*matrix_cut)(sh_device *dev, const sh_quant *quant);
    void (*matrix_pack)(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_raw_rows *raw);
    void (*matrix_copy)(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_matrix *from, int64_t index, int64_t row, int64_t col);

    /* A step; one at a time. Whatever scan and hash_rows put into host memory is there after
     * step_end. */
    const sh_device_batch *(*step_begin)(sh_device *dev, const sh_batch *batch);
    sh_status (*step_end)(sh_device *dev, const sh_device_batch *b, sh_err *err);

    /* y[t] = scale * row id(t) of w, whose row 0 is token row_first; other tokens give zeros. */
    void (*embed)(sh_device *dev, const sh_device_batch *b, const sh_matrix *w, int64_t row_first,
                  float scale, sh_tensor y);
    /* x[t] += positions[position(t) + offset] + types[type(t)]: rows of `cols` numbers, f32 in
     * device memory; either may be NULL. With one type, all tokens are of the first. */
    void (*add_positions)(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                          const float *positions, int offset, const float *types, int type_count);
    void (*add)(sh_device *dev, sh_tensor x, sh_tensor y, int rows, int64_t cols); /* x += y */
    void (*zero)(sh_device *dev, sh_tensor x, int rows, int64_t cols);
    /* y[i] = x[row(i)] for the rows of the batch that want logits. */
    void (*copy_rows)(sh_device *dev, const sh_device_batch *b, sh_tensor y, sh_tensor x,
                      int64_t cols);
    /* y[t, h] = x[t, h], dim numbers each; head strides in elements. */
    void (*copy_heads)(sh_device *dev, sh_tensor y, int64_t y_head_stride, sh_tensor x,
                       int64_t x_head_stride, int tokens, int heads, int64_t dim);
    /* x[t] *= 1 + beta * ln(1 + floor(position(t) / every)). */
    void (*scale_by_position)(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                              float beta, int every);

    /* y = x / rms(x) * w for each of `heads` runs of dim numbers at the start of each row; y may be
     * x. */
    void (*rmsnorm)(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, int rows, int heads,
                    int64_t dim, float eps);
    /* y = (x - mean) / sqrt(variance + eps) * w + bias for each row; bias may be NULL, y may be x.
     */
    void (*layernorm)(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, const float *bias,
                      int rows, int64_t dim, float eps);

    /* All products share the input x [tokens, cols]; made in one pass over it. */
    void (*matmul)(sh_device *dev, const sh_product *products, int count, sh_tensor x, int tokens);
    /* Matrix h of the stack turns x[t, h] into y[t, h]; head strides in elements. */
    void (*matmul_heads)(sh_device *dev, const sh_matrix *w, sh_tensor x, int64_t x_head_stride,
                         sh_tensor y, int64_t y_head_stride, int tokens);

    /* y may be gate or up. Without data in `up`, it counts as ones. */
    void (*act)(sh_device *dev, sh_act act, sh_tensor y, sh_tensor gate, sh_tensor up, int tokens,
                int64_t cols);

    /* x[t] *= sigmoid(gate[t][0]). */
    void (*gate_rows)(sh_device *dev, sh_tensor x, sh_tensor gate, int tokens, int64_t cols);

    /* Chooses router->topk experts for each token: ids (int32) and weights (f32), [tokens, topk] in
     * device memory. */
    void (*route)(sh_device *dev, const sh_router *router, sh_tensor x, int tokens, int64_t cols,
                  int32_t *ids, float *weights);
    /* y[t] = sum over the chosen of weight * down(act(gate x, up x)); each token's sum in the order
     * of its ids. */
    void (*experts)(sh_device *dev, const sh_experts *ex, sh_tensor x, int tokens,
                    const int32_t *ids, const float *weights, int topk, sh_tensor y);

    /* cos and sin for each token: table [tokens, rotary_dim], f32 in device memory. Spans with
     * long_rope use rope[1], the others rope[0]; both have the same dimensions. */
    void (*rope_table)(sh_device *dev, const sh_device_batch *b, const sh_rope rope[2],
                       float *table);
    void (*rope)(sh_device *dev, const sh_rope *rope, const float *table, sh_tensor x, int tokens,
                 int heads, int64_t head_stride);

    size_t (*kv_block_bytes)(sh_device *dev, const sh_kv_shape *shape);
    /* k [tokens, heads * k_dim], v [tokens, heads * v_dim]; v is unused with v_in_k. */
    void (*kv_write)(sh_device *dev, const sh_device_batch *b, const sh_kv *kv, sh_tensor k,
                     sh_tensor v);
    /* out[t, h] = softmax(scale * q[t, h] . K) V over the sequence's blocks up to the token itself,
     * or what else the token sees. */
    void (*attend)(sh_device *dev, const sh_device_batch *b, const sh_attention *attn,
                   const sh_kv *kv, sh_tensor q, sh_tensor out);

    /* Bytes of a block of state of a convolution. */
    size_t (*conv_state_bytes)(sh_device *dev, int64_t channels, int taps);
    /* y[t] = gate_out[t] * (bias + sum over j of w[j] * z[t - taps + 1 + j]) with z = gate_in * x
     * within each sequence; y may be gate_in. */
    void (*short_conv)(sh_device *dev, const sh_device_batch *b, const sh_short_conv *conv,
                       const sh_state *state, sh_tensor gate_in, sh_tensor gate_out, sh_tensor x,
                       sh_tensor y);

    /* Bytes of a block of state of a gated delta net. */
    size_t (*delta_state_bytes)(sh_device *dev, const sh_delta_net *net);
    /* qkvz has for each key head its q, k, the v of its value heads and their z; ba has for each
     * key head the b of its value heads and their a. y [tokens, heads * values * v_dim]. */
    void (*delta_net)(sh_device *dev, const sh_device_batch *b, const sh_delta_net *net,
                      const sh_state *state, sh_tensor qkvz, sh_tensor ba, sh_tensor y);

    /* Applies each query's changes to its row of logits [row_count, len] in place, then summarizes
     * it; `first` is the token of column 0. queries and out have row_count entries. */
    void (*scan)(sh_device *dev, const sh_device_batch *b, sh_tensor logits, int32_t first,
                 int32_t len, const sh_row_query *queries, sh_logits_summary *out);
    /* A hash, seeded with `seed`, of the rows of x that want logits, or of the last token's row
     * where none does: equal on all ranks that hold the same bits. */
    void (*hash_rows)(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                      uint64_t seed, uint64_t *out);

    /* Exchange: how the ranks of a group sum a tensor. Its numbers are blocks of a layout
     * (kernels/codec.h). encode, fold and decode return when they are done. fold sets x to the sum
     * of `count` parts in wire form, added in order; with `sum` it also writes that sum in wire
     * form and rounds x to it, so that all ranks end up with the same numbers. exchange_at is where
     * a block lies in wire form in memory that others may read and write, or NULL if there is no
     * such place; a part may be that place. exchange_buffer lends `size` bytes for what is in
     * transit, for the life of the device; NULL: any host memory will do. */
    void *(*exchange_buffer)(sh_device *dev, size_t size);
    void *(*exchange_at)(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t block);
    void (*encode)(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   void *wire);
    void (*fold)(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                 const void *const *parts, int count, void *sum);
    void (*decode)(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   const void *wire);
} sh_ops;

struct sh_device {
    const sh_ops *ops; /* while profiling, a table that counts time and bytes: kernels/profile.h */
};

typedef enum { SH_ACTIVATIONS_INT8, SH_ACTIVATIONS_F32 } sh_activations;

typedef struct {
    int threads;       /* 0: one per processor */
    const char *level; /* "generic", "avx2", ... ; NULL or "auto": the best that this CPU has */
    sh_activations activations; /* inputs of matmul and experts; norms and routers are always f32 */
} sh_device_opts;

/* A kind of device, known by its name. */
typedef struct {
    const char *name;
    sh_status (*open)(const sh_device_opts *opts, sh_device **out, sh_err *err);
} sh_device_kind;

/* Makes a kind known besides those that are built in, before the first open. */
void sh_device_register(const sh_device_kind *kind);

/* Opens a device by name (NULL: "cpu"). An unknown name, or an option that this machine cannot
 * satisfy, is an error that lists what there is. Close with dev->ops->close(dev). */
SH_MUST_CHECK sh_status sh_device_open(const char *name, const sh_device_opts *opts,
                                       sh_device **out, sh_err *err);

#endif
