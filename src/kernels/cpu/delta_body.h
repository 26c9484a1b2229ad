/* delta_body.h - the kernels of gated delta nets.
 *
 * Include it after a vec_*.h, once per file. See vector.h for what each kernel does. Every number
 * is summed on its own, over taps or over the rows of S in order, so nothing depends on the batch.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_DELTA_BODY_H
#define SH_KERNELS_CPU_DELTA_BODY_H

#include "kernels/cpu/vec.h"
#include "kernels/cpu/vector.h"

static void delta_conv(float *y, const float *x, const float *past, int64_t past_stride,
                       const float *w, int64_t w_stride, int taps, int count)
{
    for (int c = 0; c < count; c += 16) {
        v16 sum = v16_mul(v16_load(w + (taps - 1) * w_stride + c), v16_load(x + c));
        for (int j = 0; j < taps - 1; j++)
            sum = v16_fma(v16_load(w + j * w_stride + c), v16_load(past + j * past_stride + c),
                          sum);
        v16_store(y + c, sum);
    }
}

enum { DELTA_LANES = 4 }; /* sums at once, so that none waits for itself */

/* Some columns of S, which stay in the cache between the two passes. `lanes` is a constant wherever
 * this is inlined. */
VEC_INLINE void delta_columns(float *y, float *s, const float *q, const float *k, const float *v,
                              float decay, float beta, int k_dim, int v_dim, int lanes)
{
    const v16 keep = v16_set(decay), rate = v16_set(beta);
    v16 known[DELTA_LANES], news[DELTA_LANES], sum[DELTA_LANES];
    VEC_UNROLL for (int l = 0; l < lanes; l++) known[l] = sum[l] = v16_set(0.0f);
    for (int i = 0; i < k_dim; i++) {
        const v16 key = v16_set(k[i]);
        const float *at = s + (int64_t)i * v_dim;
        VEC_UNROLL for (int l = 0; l < lanes; l++)
            known[l] = v16_fma(key, v16_load(at + 16 * l), known[l]);
    }
    VEC_UNROLL for (int l = 0; l < lanes; l++)
        news[l] = v16_mul(v16_sub(v16_load(v + 16 * l), v16_mul(known[l], keep)), rate);
    for (int i = 0; i < k_dim; i++) {
        const v16 key = v16_set(k[i]), query = v16_set(q[i]);
        float *at = s + (int64_t)i * v_dim;
        VEC_UNROLL for (int l = 0; l < lanes; l++)
        {
            v16 now = v16_fma(key, news[l], v16_mul(v16_load(at + 16 * l), keep));
            v16_store(at + 16 * l, now);
            sum[l] = v16_fma(query, now, sum[l]);
        }
    }
    VEC_UNROLL for (int l = 0; l < lanes; l++) v16_store(y + 16 * l, sum[l]);
}

static void delta_step(float *y, float *s, const float *q, const float *k, const float *v,
                       float decay, float beta, int k_dim, int v_dim)
{
    int c = 0;
    for (; c + 16 * DELTA_LANES <= v_dim; c += 16 * DELTA_LANES)
        delta_columns(y + c, s + c, q, k, v + c, decay, beta, k_dim, v_dim, DELTA_LANES);
    for (; c < v_dim; c += 16)
        delta_columns(y + c, s + c, q, k, v + c, decay, beta, k_dim, v_dim, 1);
}

#endif
