/* attend_body.h - the inner loops of attention and the writing of KV, one source for every level.
 *
 * Include it after a vec_*.h, once per file. Every output is summed over its numbers in order,
 * whatever the shape of the tile, so the bits of a query do not depend on the queries next to it.
 * See vector.h for the layouts and for what each kernel does.
 *
 * The functions ..._f32, _f16 and _int8 at the ends of the sections only make `format` a constant,
 * which the compiler then folds into the inlined body.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_ATTEND_BODY_H
#define SH_KERNELS_CPU_ATTEND_BODY_H

#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vector.h"

#include <math.h>
#include <string.h>

enum {
    BLOCK = SH_KV_BLOCK,
    STEP = SH_ATTEND_STEP,
    TILE_SIZE = BLOCK * BLOCK,
    PREFETCH_ROWS = 8, /* up to this many rows are bound by memory, more by arithmetic */
};

/* Sixteen numbers of a block from number `i` on, and the address of number `i`. */
VEC_INLINE v16 kv_load(const void *p, size_t i, sh_kv_format format)
{
    if (format == SH_KV_F16) return v16_load_f16((const uint16_t *)p + i);
    if (format == SH_KV_INT8) return v16_load_i8((const int8_t *)p + i);
    return v16_load((const float *)p + i);
}

VEC_INLINE const void *kv_at(const void *p, size_t i, sh_kv_format format)
{
    size_t size = format == SH_KV_F32 ? 4 : format == SH_KV_F16 ? 2 : 1;
    return (const char *)p + i * size;
}

/* n rows of a panel, as [dim][n]: squares of 16 numbers by 16 rows are transposed. Stores are whole
 * vectors, of which only n numbers count; the next store overwrites the surplus. */
VEC_INLINE void q_pack_panel(float *to, const float *const *q, int n, int dim, float factor)
{
    for (int d = 0; d < dim; d += 16) {
        int count = dim - d < 16 ? dim - d : 16;
        v16 square[16];
        VEC_UNROLL for (int r = 0; r < 16; r++)
        {
            const float *row = q[r < n ? r : 0] + d;
            square[r] = v16_mul(v16_load_n(row, count), v16_set(factor));
        }
        v16_transpose(square);
        VEC_UNROLL for (int i = 0; i < 16; i++) if (i < count) v16_store(to + i * n, square[i]);
        to += 16 * n;
    }
}

static void q_pack(float *to, const float *const *q, int rows, int dim, float factor)
{
    for (int r = 0; r < rows; r += VEC_PANEL) {
        int n = rows - r < VEC_PANEL ? rows - r : VEC_PANEL;
        q_pack_panel(to + r * dim, q + r, n, dim, factor);
    }
}

/* n rows against the tokens [first, first + 16 * VEC_WIDE) of a block; n is a constant. The keys of
 * the next block and the values of this one will be needed soon: prefetch them. */
VEC_INLINE void scores_tile(float *s, const float *q, int n, const void *k, const float *k_scale,
                            int k_dim, const void *next, const void *v, int first,
                            sh_kv_format format)
{
    v16 sum[VEC_PANEL][VEC_WIDE];
    VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
        sum[r][w] = v16_set(0.0f);
    for (int d = 0; d < k_dim; d++, q += n) {
        v16 key[VEC_WIDE];
        if (n <= PREFETCH_ROWS) {
            __builtin_prefetch(kv_at(next, (size_t)d * BLOCK, format), 0, 2);
            __builtin_prefetch(kv_at(v, (size_t)d * BLOCK, format), 0, 2);
        }
        VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
            key[w] = kv_load(k, (size_t)d * BLOCK + first + 16 * w, format);
        VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
            sum[r][w] = v16_fma(v16_set(q[r]), key[w], sum[r][w]);
    }
    VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
    {
        int t = first + 16 * w;
        if (format == SH_KV_INT8) sum[r][w] = v16_mul(sum[r][w], v16_load(k_scale + t));
        v16_store(s + r * STEP + t, sum[r][w]);
    }
}

/* The switch makes the number of rows a constant, so that all sums of a tile are in registers. */
VEC_INLINE void scores_of(float *s, const float *q, int skip, int rows, const void *k,
                          const float *k_scale, int k_dim, const void *next, const void *v,
                          sh_kv_format format)
{
    for (int r = skip / VEC_PANEL * VEC_PANEL; r < rows; r += VEC_PANEL) {
        int n = rows - r < VEC_PANEL ? rows - r : VEC_PANEL;
        for (int t = 0; t < BLOCK; t += 16 * VEC_WIDE) {
#define CASE(count)                                                                                \
    case count:                                                                                    \
        scores_tile(s + r * STEP, q + r * k_dim, count, k, k_scale, k_dim, next, v, t, format);    \
        break;
            switch (n) {
                VEC_EACH_PANEL(CASE)
            }
#undef CASE
        }
    }
}

static void scores_f32(float *s, const float *q, int skip, int rows, const void *k,
                       const float *k_scale, int k_dim, const void *next, const void *v)
{
    scores_of(s, q, skip, rows, k, k_scale, k_dim, next, v, SH_KV_F32);
}

static void scores_f16(float *s, const float *q, int skip, int rows, const void *k,
                       const float *k_scale, int k_dim, const void *next, const void *v)
{
    scores_of(s, q, skip, rows, k, k_scale, k_dim, next, v, SH_KV_F16);
}

static void scores_int8(float *s, const float *q, int skip, int rows, const void *k,
                        const float *k_scale, int k_dim, const void *next, const void *v)
{
    scores_of(s, q, skip, rows, k, k_scale, k_dim, next, v, SH_KV_INT8);
}

VEC_INLINE float larger(float a, float b)
{
    return a > b ? a : b;
}

/* 2^x of one number, with the same bits as in a vector. */
static float exp2_of(float x)
{
    float y[16];
    v16_store(y, v16_exp2(v16_set(x)));
    return y[0];
}

static float soften(float *s, int from, int to, int first, int end, const float *v_scale,
                    float *top, float *total)
{
    if (first >= end) { /* the row sees no key here, and -INFINITY minus itself would be NaN */
        memset(s + from, 0, (size_t)(to - from) * sizeof(*s));
        return 1.0f;
    }
    v16 best = v16_set(-INFINITY);
    for (int i = from; i < to; i += 16) {
        v16 x = v16_load(s + i);
        if (first > i || end < i + 16) {
            x = v16_within(x, first - i, end - i, v16_set(-INFINITY));
            v16_store(s + i, x);
        }
        best = v16_max(best, x);
    }
    float before = *top, now = larger(before, v16_top(best));
    v16 sum = v16_set(0.0f);
    for (int i = from; i < to; i += 16) {
        v16 e = v16_exp2(v16_sub(v16_load(s + i), v16_set(now)));
        sum = v16_add(sum, e);
        v16_store(s + i, v_scale == NULL ? e : v16_mul(e, v16_load(v_scale + i)));
    }
    float decay = now == before ? 1.0f : exp2_of(before - now); /* 0 when before is -INFINITY */
    *top = now;
    *total = *total * decay + v16_sum(sum);
    return decay;
}

/* n rows of sums for 16 * VEC_WIDE numbers, which start at number `at` of each block of values. */
VEC_INLINE void mix_tile(float *sum_out, size_t stride, const float *p, const float *decay, int n,
                         const void *const *v, size_t at, int first, int end, sh_kv_format format)
{
    v16 sum[VEC_PANEL][VEC_WIDE];
    VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
        sum[r][w] = v16_mul(v16_load(sum_out + r * stride + 16 * w), v16_set(decay[r]));
    for (int b = first / BLOCK; b * BLOCK < end; b++) {
        int t = first > b * BLOCK ? first : b * BLOCK;
        int stop = end < (b + 1) * BLOCK ? end : (b + 1) * BLOCK;
        const void *values = kv_at(v[b], at, format);
        for (; t < stop; t++) {
            v16 value[VEC_WIDE];
            VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
                value[w] = kv_load(values, (size_t)(t % BLOCK) * BLOCK + 16 * w, format);
            VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
                sum[r][w] = v16_fma(v16_set(p[r * STEP + t]), value[w], sum[r][w]);
        }
    }
    VEC_UNROLL for (int r = 0; r < n; r++) VEC_UNROLL for (int w = 0; w < VEC_WIDE; w++)
        v16_store(sum_out + r * stride + 16 * w, sum[r][w]);
}

VEC_INLINE void mix_of(float *sum, const float *p, const float *decay, const int *ends, int rows,
                       const void *const *v, int first, int end, int v_pad, sh_kv_format format)
{
    for (int d = 0; d < v_pad; d += 16 * VEC_WIDE) {
        size_t at = (size_t)(d / BLOCK) * TILE_SIZE + d % BLOCK;
        for (int r = 0; r < rows; r += VEC_PANEL) {
            int n = rows - r < VEC_PANEL ? rows - r : VEC_PANEL;
            int stop = ends[r + n - 1] < end ? ends[r + n - 1] : end;
            float *sums = sum + (size_t)r * v_pad + d;
#define CASE(count)                                                                                \
    case count:                                                                                    \
        mix_tile(sums, v_pad, p + r * STEP, decay + r, count, v, at, first, stop, format);         \
        break;
            switch (n) {
                VEC_EACH_PANEL(CASE)
            }
#undef CASE
        }
    }
}

static void mix_f32(float *sum, const float *p, const float *decay, const int *ends, int rows,
                    const void *const *v, int first, int end, int v_pad)
{
    mix_of(sum, p, decay, ends, rows, v, first, end, v_pad, SH_KV_F32);
}

static void mix_f16(float *sum, const float *p, const float *decay, const int *ends, int rows,
                    const void *const *v, int first, int end, int v_pad)
{
    mix_of(sum, p, decay, ends, rows, v, first, end, v_pad, SH_KV_F16);
}

static void mix_int8(float *sum, const float *p, const float *decay, const int *ends, int rows,
                     const void *const *v, int first, int end, int v_pad)
{
    mix_of(sum, p, decay, ends, rows, v, first, end, v_pad, SH_KV_INT8);
}

/* Squares of 16 numbers by 16 tokens are transposed. */
VEC_INLINE void v_of_k_all(float *v, const void *k, int v_dim, sh_kv_format format)
{
    for (int d = 0; d < v_dim; d += 16)
        for (int t = 0; t < BLOCK; t += 16) {
            v16 square[16];
            VEC_UNROLL for (int i = 0; i < 16; i++)
            {
                size_t row = (size_t)(d + i) * BLOCK + t;
                square[i] = d + i < v_dim ? kv_load(k, row, format) : v16_set(0.0f);
            }
            v16_transpose(square);
            float *to = v + (size_t)(d / BLOCK) * TILE_SIZE + t * BLOCK + d % BLOCK;
            VEC_UNROLL for (int i = 0; i < 16; i++) v16_store(to + i * BLOCK, square[i]);
        }
}

static void v_of_k_f32(float *v, const void *k, int v_dim)
{
    v_of_k_all(v, k, v_dim, SH_KV_F32);
}

static void v_of_k_f16(float *v, const void *k, int v_dim)
{
    v_of_k_all(v, k, v_dim, SH_KV_F16);
}

static void v_of_k_int8(float *v, const void *k, int v_dim)
{
    v_of_k_all(v, k, v_dim, SH_KV_INT8);
}

/* out = out * a + sum * b */
static void blend(float *out, float a, const float *sum, float b, int dim)
{
    for (int i = 0; i < dim; i += 16) {
        int n = dim - i < 16 ? dim - i : 16;
        v16 old = v16_mul(v16_load_n(out + i, n), v16_set(a));
        v16_store_n(out + i, v16_fma(v16_load(sum + i), v16_set(b), old), n);
    }
}

static void fold(float *out, float *out_top, float *out_total, const float *sum, float top,
                 float total, int dim)
{
    if (top == -INFINITY) return; /* the row sees no key of this chunk */
    if (*out_top == -INFINITY) {
        memcpy(out, sum, (size_t)dim * sizeof(*out));
        *out_top = top, *out_total = total;
        return;
    }
    float now = larger(*out_top, top), a = exp2_of(*out_top - now), b = exp2_of(top - now);
    blend(out, a, sum, b, dim);
    *out_total = *out_total * a + total * b;
    *out_top = now;
}

/* The sink may be larger than every score, so it takes part in the maximum. */
static void finish(float *out, float top, float total, const float *sink, int dim)
{
    float factor = 1.0f;
    if (sink != NULL) {
        float now = larger(top, *sink);
        factor = exp2_of(top - now);
        total = total * factor + exp2_of(*sink - now);
    }
    factor = factor / total;
    for (int i = 0; i < dim; i += 16) {
        int n = dim - i < 16 ? dim - i : 16;
        v16_store_n(out + i, v16_mul(v16_load_n(out + i, n), v16_set(factor)), n);
    }
}

/* Stores sixteen numbers in the format. f16 saturates at its largest finite number: an infinity in
 * the cache would turn every later softmax of the sequence into NaN. */
VEC_INLINE void kv_put(void *to, v16 x, sh_kv_format format)
{
    const v16 limit = v16_set(65504.0f);
    if (format == SH_KV_F16)
        v16_store_f16(to, v16_min(limit, v16_max(v16_sub(v16_set(0.0f), limit), x)));
    else if (format == SH_KV_INT8) /* a NaN becomes some code; its scale is NaN */
        v16_store_i8(to, v16_max(v16_min(x, v16_set(127.0f)), v16_set(-127.0f)));
    else
        v16_store(to, x);
}

/* For INT8: writes the scale of x and returns the factor from numbers to codes. A NaN must stay
 * one, as in the other formats. v16_max may drop it, so a sum that is 0 otherwise carries it into
 * the scale. */
VEC_INLINE float kv_factor(float *scale, int slot, const float *x, int dim, sh_kv_format format)
{
    if (format != SH_KV_INT8) return 1.0f;
    v16 most = v16_set(0.0f), nan = v16_set(0.0f);
    for (int i = 0; i < dim; i += 16) {
        v16 a = v16_load_n(x + i, dim - i < 16 ? dim - i : 16);
        most = v16_max(most, v16_abs(a));
        nan = v16_add(nan, v16_sub(a, a));
    }
    float top = v16_top(most) + v16_sum(nan);
    scale[slot] = top / 127.0f;
    return top > 0.0f ? 127.0f / top : 0.0f;
}

/* A single token: its numbers go to one column of the block. */
VEC_INLINE void k_put(void *k, float *scale, int slot, const float *x, int dim, sh_kv_format format)
{
    size_t size = format == SH_KV_F32 ? 4 : format == SH_KV_F16 ? 2 : 1;
    v16 factor = v16_set(kv_factor(scale, slot, x, dim, format));
    for (int i = 0; i < dim; i += 16) {
        int n = dim - i < 16 ? dim - i : 16;
        char codes[64], *to = (char *)k + ((size_t)i * BLOCK + slot) * size;
        kv_put(codes, v16_mul(v16_load_n(x + i, n), factor), format);
        for (int j = 0; j < n; j++, to += BLOCK * size) memcpy(to, codes + j * size, size);
    }
}

/* Sixteen tokens: squares of 16 numbers by 16 tokens are transposed, and stored as whole vectors.
 */
VEC_INLINE void k_put_square(void *k, float *scale, int slot, const float *x, int64_t stride,
                             int dim, sh_kv_format format)
{
    float factor[16];
    for (int t = 0; t < 16; t++)
        factor[t] = kv_factor(scale, slot + t, x + t * stride, dim, format);
    for (int i = 0; i < dim; i += 16) {
        int n = dim - i < 16 ? dim - i : 16;
        v16 square[16];
        VEC_UNROLL for (int t = 0; t < 16; t++)
            square[t] = v16_mul(v16_load_n(x + t * stride + i, n), v16_set(factor[t]));
        v16_transpose(square);
        VEC_UNROLL for (int j = 0; j < 16; j++) if (j < n)
            kv_put((void *)kv_at(k, (size_t)(i + j) * BLOCK + slot, format), square[j], format);
    }
}

VEC_INLINE void k_store_as(void *k, float *scale, int slot, const float *x, int64_t stride,
                           int count, int dim, sh_kv_format format)
{
    for (int end = slot + count; slot < end;) {
        int run = slot % 16 == 0 && end - slot >= 16 ? 16 : 1;
        if (run == 16)
            k_put_square(k, scale, slot, x, stride, dim, format);
        else
            k_put(k, scale, slot, x, dim, format);
        slot += run;
        x += run * stride;
    }
}

VEC_INLINE void v_store_as(void *v, float *scale, int slot, const float *x, int64_t stride,
                           int count, int dim, sh_kv_format format)
{
    for (int end = slot + count; slot < end; slot++, x += stride) {
        v16 factor = v16_set(kv_factor(scale, slot, x, dim, format));
        for (int i = 0; i < dim; i += 16) {
            size_t at = (size_t)(i / BLOCK) * TILE_SIZE + slot * BLOCK + i % BLOCK;
            v16 a = v16_mul(v16_load_n(x + i, dim - i < 16 ? dim - i : 16), factor);
            kv_put((void *)kv_at(v, at, format), a, format);
        }
    }
}

static void k_store_f32(void *k, float *scale, int slot, const float *x, int64_t stride, int count,
                        int dim)
{
    k_store_as(k, scale, slot, x, stride, count, dim, SH_KV_F32);
}

static void k_store_f16(void *k, float *scale, int slot, const float *x, int64_t stride, int count,
                        int dim)
{
    k_store_as(k, scale, slot, x, stride, count, dim, SH_KV_F16);
}

static void k_store_int8(void *k, float *scale, int slot, const float *x, int64_t stride, int count,
                         int dim)
{
    k_store_as(k, scale, slot, x, stride, count, dim, SH_KV_INT8);
}

static void v_store_f32(void *v, float *scale, int slot, const float *x, int64_t stride, int count,
                        int dim)
{
    v_store_as(v, scale, slot, x, stride, count, dim, SH_KV_F32);
}

static void v_store_f16(void *v, float *scale, int slot, const float *x, int64_t stride, int count,
                        int dim)
{
    v_store_as(v, scale, slot, x, stride, count, dim, SH_KV_F16);
}

static void v_store_int8(void *v, float *scale, int slot, const float *x, int64_t stride, int count,
                         int dim)
{
    v_store_as(v, scale, slot, x, stride, count, dim, SH_KV_INT8);
}

#endif
