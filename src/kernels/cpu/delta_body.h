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

/* Sixteen columns of S at a time: they stay in the cache between the two passes. */
static void delta_step(float *y, float *s, const float *q, const float *k, const float *v,
                       float decay, float beta, int k_dim, int v_dim)
{
    const v16 keep = v16_set(decay);
    for (int c = 0; c < v_dim; c += 16) {
        v16 known = v16_set(0.0f), sum = known;
        for (int i = 0; i < k_dim; i++)
            known = v16_fma(v16_set(k[i]), v16_load(s + (int64_t)i * v_dim + c), known);
        v16 news = v16_sub(v16_load(v + c), v16_mul(known, keep));
        news = v16_mul(news, v16_set(beta));
        for (int i = 0; i < k_dim; i++) {
            float *at = s + (int64_t)i * v_dim + c;
            v16 now = v16_fma(v16_set(k[i]), news, v16_mul(v16_load(at), keep));
            v16_store(at, now);
            sum = v16_fma(v16_set(q[i]), now, sum);
        }
        v16_store(y + c, sum);
    }
}

#endif
