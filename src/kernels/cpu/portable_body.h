/* portable_body.h - kernels that give the same bits at every level and on every architecture.
 *
 * Every rank computes norms and routing on its own, and must come to the same result as the others,
 * whatever its CPU: a different expert on one rank would ruin the sum of all. So there are no fused
 * multiply-adds, and every sum has sixteen lanes that v16_sum adds up in one fixed order.
 *
 * Include it after a vec_*.h, once per file. See vector.h for what each kernel does.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_PORTABLE_BODY_H
#define SH_KERNELS_CPU_PORTABLE_BODY_H

#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vector.h"

#include <math.h>

enum { DOT_STEP = 512 }; /* columns of a tile of `dots`, so that they stay in the L1 cache */

static void add(float *x, const float *y, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) v16_store(x + i, v16_add(v16_load(x + i), v16_load(y + i)));
    for (; i < count; i++) x[i] += y[i];
}

static void scale(float *x, float factor, size_t count)
{
    size_t i = 0;
    for (; i + 16 <= count; i += 16) v16_store(x + i, v16_mul(v16_load(x + i), v16_set(factor)));
    for (; i < count; i++) x[i] *= factor;
}

/* Four vectors of sums in turn, so that an addition does not wait for the one before. */
static float squares(const float *x, int64_t dim)
{
    v16 sum[4] = {v16_set(0.0f), v16_set(0.0f), v16_set(0.0f), v16_set(0.0f)};
    int64_t i = 0;
    for (; i + 64 <= dim; i += 64) VEC_UNROLL for (int j = 0; j < 4; j++)
        {
            v16 a = v16_load(x + i + 16 * j);
            sum[j] = v16_mul_add(a, a, sum[j]);
        }
    VEC_UNROLL for (int j = 0; j < 4; j++, i += 16)
    {
        if (i >= dim) break;
        v16 a = v16_load_n(x + i, dim - i < 16 ? (int)(dim - i) : 16);
        sum[j] = v16_mul_add(a, a, sum[j]);
    }
    return v16_sum(v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3])));
}

static void rmsnorm(float *y, const float *x, const float *w, int64_t dim, float eps)
{
    float mean = squares(x, dim) / (float)dim;
    float inverse = 1.0f / sqrtf(mean + eps);
    int64_t i = 0;
    for (; i + 16 <= dim; i += 16) {
        v16 a = v16_mul(v16_load(x + i), v16_set(inverse));
        v16_store(y + i, v16_mul(a, v16_load(w + i)));
    }
    for (; i < dim; i++) y[i] = x[i] * inverse * w[i];
}

static float mean_of(const float *x, int64_t dim)
{
    v16 sum = v16_set(0.0f);
    for (int64_t i = 0; i < dim; i += 16)
        sum = v16_add(sum, v16_load_n(x + i, dim - i < 16 ? (int)(dim - i) : 16));
    return v16_sum(sum) / (float)dim;
}

/* y may be x, so x - mean is stored in it first. */
static void layernorm(float *y, const float *x, const float *w, const float *bias, int64_t dim,
                      float eps)
{
    float mean = mean_of(x, dim);
    for (int64_t i = 0; i < dim; i++) y[i] = x[i] - mean;
    float inverse = 1.0f / sqrtf(squares(y, dim) / (float)dim + eps);
    for (int64_t i = 0; i < dim; i++) {
        float scaled = y[i] * inverse * w[i];
        y[i] = bias == NULL ? scaled : scaled + bias[i];
    }
}

/* Adds nx by nw products of the n <= 16 columns at x and w to the sums. */
VEC_INLINE void dot_columns(v16 sum[VEC_DOT_X][VEC_DOT_W], const float *x, int nx, const float *w,
                            int nw, int64_t dim, int n)
{
    v16 b[VEC_DOT_W];
    VEC_UNROLL for (int j = 0; j < nw; j++) b[j] = v16_load_n(w + j * dim, n);
    VEC_UNROLL for (int i = 0; i < nx; i++)
    {
        v16 a = v16_load_n(x + i * dim, n);
        VEC_UNROLL for (int j = 0; j < nw; j++) sum[i][j] = v16_mul_add(a, b[j], sum[i][j]);
    }
}

/* The same for `count` columns; the sums are in rows of SH_DOT_TILE. */
VEC_INLINE void dot_micro(v16 *sums, const float *x, int nx, const float *w, int nw, int64_t dim,
                          int count)
{
    v16 sum[VEC_DOT_X][VEC_DOT_W];
    VEC_UNROLL for (int i = 0; i < nx; i++) VEC_UNROLL for (int j = 0; j < nw; j++)
        sum[i][j] = sums[i * SH_DOT_TILE + j];
    int c = 0;
    for (; c + 16 <= count; c += 16) dot_columns(sum, x + c, nx, w + c, nw, dim, 16);
    if (c < count) dot_columns(sum, x + c, nx, w + c, nw, dim, count - c);
    VEC_UNROLL for (int i = 0; i < nx; i++) VEC_UNROLL for (int j = 0; j < nw; j++)
        sums[i * SH_DOT_TILE + j] = sum[i][j];
}

/* All rows of x against nw rows of w. */
VEC_INLINE void dot_strip(v16 *sum, const float *x, int x_count, const float *w, int nw,
                          int64_t dim, int count)
{
    int i = 0;
    for (; i + VEC_DOT_X <= x_count; i += VEC_DOT_X)
        dot_micro(sum + i * SH_DOT_TILE, x + i * dim, VEC_DOT_X, w, nw, dim, count);
    for (; i < x_count; i++) dot_micro(sum + i * SH_DOT_TILE, x + i * dim, 1, w, nw, dim, count);
}

static void dots(float *y, int64_t y_stride, const float *x, int x_count, const float *w,
                 int w_count, int64_t dim)
{
    v16 sum[SH_DOT_TILE * SH_DOT_TILE];
    for (int i = 0; i < x_count; i++)
        for (int j = 0; j < w_count; j++) sum[i * SH_DOT_TILE + j] = v16_set(0.0f);
    for (int64_t c = 0; c < dim; c += DOT_STEP) {
        int count = dim - c < DOT_STEP ? (int)(dim - c) : DOT_STEP, j = 0;
        for (; j + VEC_DOT_W <= w_count; j += VEC_DOT_W)
            dot_strip(sum + j, x + c, x_count, w + j * dim + c, VEC_DOT_W, dim, count);
        for (; j < w_count; j++) dot_strip(sum + j, x + c, x_count, w + j * dim + c, 1, dim, count);
    }
    for (int i = 0; i < x_count; i++)
        for (int j = 0; j < w_count; j++) y[i * y_stride + j] = v16_sum(sum[i * SH_DOT_TILE + j]);
}

/* The lanes past `count` must not add e^(0 - top) to the sum. */
static void softmax(float *x, int count)
{
    float top = x[0];
    for (int i = 1; i < count; i++) top = x[i] > top ? x[i] : top;
    v16 sum = v16_set(0.0f);
    for (int i = 0; i < count; i += 16) {
        int n = count - i < 16 ? count - i : 16;
        v16 e = v16_exp_portable(v16_sub(v16_load_n(x + i, n), v16_set(top)));
        sum = v16_add(sum, v16_within(e, 0, n, v16_set(0.0f)));
        v16_store_n(x + i, e, n);
    }
    v16 total = v16_set(v16_sum(sum));
    for (int i = 0; i < count; i += 16) {
        int n = count - i < 16 ? count - i : 16;
        v16_store_n(x + i, v16_div(v16_load_n(x + i, n), total), n);
    }
}

static void sigmoid(float *x, int count)
{
    const v16 one = v16_set(1.0f);
    for (int i = 0; i < count; i += 16) {
        int n = count - i < 16 ? count - i : 16;
        v16 e = v16_exp_portable(v16_sub(v16_set(0.0f), v16_load_n(x + i, n)));
        v16_store_n(x + i, v16_div(one, v16_add(one, e)), n);
    }
}

/* Sixteen channels of a short convolution. `past` is the window, oldest first; the token's own
 * input comes last. */
VEC_INLINE void conv_lanes(const sh_conv_run *r, int64_t c, int n)
{
    int old = r->taps - 1;
    v16 past[SH_CONV_TAPS_MAX], w[SH_CONV_TAPS_MAX];
    v16 bias = r->bias == NULL ? v16_set(0.0f) : v16_load_n(r->bias + c, n);
    for (int j = 0; j <= old; j++) w[j] = v16_load_n(r->w + j * r->w_stride + c, n);
    for (int j = 0; j < old; j++)
        past[j] = r->from == NULL ? v16_set(0.0f) : v16_load_n(r->from + j * r->w_stride + c, n);
    for (int64_t t = 0; t < r->tokens; t++) {
        past[old] = v16_mul(v16_load_n(r->gate_in + t * r->in_stride + c, n),
                            v16_load_n(r->x + t * r->x_stride + c, n));
        v16 sum = bias;
        for (int j = 0; j <= old; j++) sum = v16_mul_add(w[j], past[j], sum);
        for (int j = 0; j < old; j++) past[j] = past[j + 1];
        v16_store_n(r->y + t * r->y_stride + c,
                    v16_mul(v16_load_n(r->gate_out + t * r->out_stride + c, n), sum), n);
    }
    for (int j = 0; j < old; j++) v16_store_n(r->to + j * r->w_stride + c, past[j], n);
}

static void conv(const sh_conv_run *r)
{
    int64_t c = 0;
    for (; c + 16 <= r->channels; c += 16) conv_lanes(r, c, 16);
    if (c < r->channels) conv_lanes(r, c, (int)(r->channels - c));
}

#endif
