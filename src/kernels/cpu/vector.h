/* vector.h - the kernels of norms, activations, the router, short convolutions and attention, one
 * table per level.
 *
 * Each kernel is written once with sixteen lanes (portable_body.h, act_body.h, ..._body.h) and
 * compiled for each level by vector.c and vector_<isa>.c. `add` to `conv` give the same bits at all
 * levels.
 *
 * Attention reads KV in blocks of 32 tokens. A head's part of a block has its keys as
 * [k_dim][32 tokens], its values as [v_pad / 32][32 tokens][32 numbers] with zeros from v_dim to
 * v_pad, and for INT8 a scale for each token. So both products have sixteen tokens, or sixteen
 * numbers of a value, in the lanes, need no horizontal sums, and read memory sequentially.
 *
 * A tile is up to SH_ATTEND_ROWS rows; a row is one query head of one token. It goes over the keys
 * in steps of SH_ATTEND_STEP, which start at position 0 of the sequence. Exponents are to base 2.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_VECTOR_H
#define SH_KERNELS_CPU_VECTOR_H

#include "kernels/device.h"
#include "kernels/rows.h"

enum {
    SH_ATTEND_ROWS = 48,
    SH_ATTEND_STEP = 128,
    SH_STEP_BLOCKS = SH_ATTEND_STEP / SH_KV_BLOCK,
    SH_DOT_TILE = 16,   /* rows of x, and of w, in one call of `dots` */
    SH_PACK_SPILL = 15, /* floats that q_pack may write past its output */
    SH_KV_FORMATS = 3,
};

/* The arguments of `conv`; all pointers are to the first of its channels. */
typedef struct {
    float *y;
    const float *gate_in, *gate_out, *x;
    int64_t y_stride, in_stride, out_stride, x_stride;
    int tokens;
    int taps;
    int64_t channels;
    const float *w;    /* [taps] rows */
    const float *bias; /* or NULL */
    const float *from; /* [taps - 1] rows: the state before; NULL: zeros */
    float *to;         /* the state after; may be `from` */
    int64_t w_stride;  /* from row to row of w and of the states */
} sh_conv_run;

typedef struct {
    void (*add)(float *x, const float *y, size_t count);
    void (*scale)(float *x, float factor, size_t count);
    void (*rmsnorm)(float *y, const float *x, const float *w, int64_t dim, float eps);
    void (*layernorm)(float *y, const float *x, const float *w, const float *bias, int64_t dim,
                      float eps);
    /* y[i * y_stride + j] = x[i * dim ...] . w[j * dim ...] for up to SH_DOT_TILE of each */
    void (*dots)(float *y, int64_t y_stride, const float *x, int x_count, const float *w,
                 int w_count, int64_t dim);
    void (*softmax)(float *x, int count);
    void (*sigmoid)(float *x, int count);
    /* Tokens of one sequence through some channels of a gated short convolution; kernels/device.h
     * has the formula. */
    void (*conv)(const sh_conv_run *run);

    /* One token of a gated delta net; counts and dimensions are multiples of 16. delta_conv:
     * `count` channels of the convolution, of which `past` has the inputs before x, oldest first.
     */
    void (*delta_conv)(float *y, const float *x, const float *past, int64_t past_stride,
                       const float *w, int64_t w_stride, int taps, int count);
    /* y = q S after S [k_dim, v_dim] has forgotten a little and taken v in. */
    void (*delta_step)(float *y, float *s, const float *q, const float *k, const float *v,
                       float decay, float beta, int k_dim, int v_dim);

    /* up: NULL for ones */
    void (*act)(sh_act act, float *y, const float *gate, const float *up, int64_t count);
    /* Rotates one head by the angles of `table`: cos [half], sin [half]. */
    void (*rope)(float *x, const float *table, int half, bool interleaved);

    /* Stores keys or values of `count` tokens, `stride` apart, in slots [slot, slot + count) of a
     * block; scales are written for INT8 only. */
    void (*k_store[SH_KV_FORMATS])(void *k, float *scale, int slot, const float *x, int64_t stride,
                                   int count, int dim);
    void (*v_store[SH_KV_FORMATS])(void *v, float *scale, int slot, const float *x, int64_t stride,
                                   int count, int dim);

    /* Rows of numbers, times the factor, in the layout that `scores` of the same table reads; up to
     * SH_PACK_SPILL numbers after them are overwritten. */
    void (*q_pack)(float *to, const float *const *q, int rows, int dim, float factor);
    /* s[r * SH_ATTEND_STEP + t] = q[r] . k[t] for the 32 tokens of a block and the rows from `skip`
     * on, at least; `next` and `v` are what will be read afterwards, to be prefetched. */
    void (*scores[SH_KV_FORMATS])(float *s, const float *q, int skip, int rows, const void *k,
                                  const float *k_scale, int k_dim, const void *next, const void *v);
    /* One step of the online softmax of a row: the scores of keys [first, end) become weights 2^(s
     * - top), those of the others in [from, to) zero; top and total are updated. Returns the factor
     * for the sums so far. v_scale, if any, is multiplied into the weights but not into total. */
    float (*soften)(float *s, int from, int to, int first, int end, const float *v_scale,
                    float *top, float *total);
    /* sum[r * v_pad + d] = decay[r] * sum[...] + weights . values, for tokens [first, end) of a
     * step; v[b] is block b of the step. The weights of row r are zero from ends[r] on; ends is
     * ascending. */
    void (*mix[SH_KV_FORMATS])(float *sum, const float *p, const float *decay, const int *ends,
                               int rows, const void *const *v, int first, int end, int v_pad);
    /* The first v_dim numbers of a block's keys as f32 values, not scaled. */
    void (*v_of_k[SH_KV_FORMATS])(float *v, const void *k, int v_dim);
    /* Adds the sums of the next chunk of keys to out [dim]; out_top is -INFINITY at first. */
    void (*fold)(float *out, float *out_top, float *out_total, const float *sum, float top,
                 float total, int dim);
    /* out / total, with `sink` (or NULL) as one more logit in the total. */
    void (*finish)(float *out, float top, float total, const float *sink, int dim);

    sh_row_kernels rows;
} sh_vector_kernels;

extern const sh_vector_kernels sh_vector_generic;
extern const sh_vector_kernels sh_vector_avx2;
extern const sh_vector_kernels sh_vector_avx512;
extern const sh_vector_kernels sh_vector_neon;

#endif
