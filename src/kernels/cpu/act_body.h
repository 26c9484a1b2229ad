/* act_body.h - the activations between gate and down, and the rotation of heads (RoPE).
 *
 * Include it after a vec_*.h, once per file. See vector.h for what each kernel does.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_ACT_BODY_H
#define SH_KERNELS_CPU_ACT_BODY_H

#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/vector.h"

#include <string.h>

/* x / (1 + e^-(factor * x)). The exponent is capped, so that e stays finite. */
VEC_INLINE v16 x_sigmoid(v16 x, v16 factor)
{
    const v16 minus_log2e = v16_set(-1.44269504f);
    v16 e = v16_exp2(v16_min(v16_set(126.0f), v16_mul(v16_mul(x, factor), minus_log2e)));
    return v16_div(x, v16_add(v16_set(1.0f), e));
}

/* tanh(u) = 2 sigmoid(2u) - 1 makes the gelu x * sigmoid(2u). */
VEC_INLINE v16 gelu_tanh(v16 x)
{
    v16 inner = v16_fma(v16_mul(x, x), v16_set(0.044715f), v16_set(1.0f));
    return x_sigmoid(x, v16_mul(inner, v16_set(1.5957691216f))); /* 2 sqrt(2 / pi) */
}

/* `kind` is a constant wherever this is inlined. */
VEC_INLINE v16 act_one(sh_act kind, v16 gate, v16 up)
{
    if (kind == SH_ACT_SILU) return v16_mul(x_sigmoid(gate, v16_set(1.0f)), up);
    if (kind == SH_ACT_GELU_TANH) return v16_mul(gelu_tanh(gate), up);
    const v16 limit = v16_set(7.0f);
    gate = v16_min(limit, gate);
    up = v16_min(limit, v16_max(v16_set(-7.0f), up));
    return v16_mul(x_sigmoid(gate, v16_set(1.702f)), v16_add(up, v16_set(1.0f)));
}

VEC_INLINE void act_all(sh_act kind, float *y, const float *gate, const float *up, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        v16_store(y + i, act_one(kind, v16_load(gate + i), v16_load(up + i)));
    int n = (int)(count - i);
    if (n > 0) v16_store_n(y + i, act_one(kind, v16_load_n(gate + i, n), v16_load_n(up + i, n)), n);
}

static void act(sh_act kind, float *y, const float *gate, const float *up, int64_t count)
{
    switch (kind) {
    case SH_ACT_SILU: act_all(SH_ACT_SILU, y, gate, up, count); break;
    case SH_ACT_GELU_TANH: act_all(SH_ACT_GELU_TANH, y, gate, up, count); break;
    case SH_ACT_SWIGLU_OAI: act_all(SH_ACT_SWIGLU_OAI, y, gate, up, count); break;
    }
}

/* Rotates the pairs (a, b) by the angles with cosines c and sines s. */
VEC_INLINE void rotate(v16 *a, v16 *b, v16 c, v16 s)
{
    v16 x = *a, y = *b;
    *a = v16_sub(v16_mul(x, c), v16_mul(y, s));
    *b = v16_add(v16_mul(y, c), v16_mul(x, s));
}

static void rope_halves(float *x, const float *table, int half)
{
    for (int i = 0; i < half; i += 16) {
        int n = half - i < 16 ? half - i : 16;
        v16 a = v16_load_n(x + i, n), b = v16_load_n(x + half + i, n);
        rotate(&a, &b, v16_load_n(table + i, n), v16_load_n(table + half + i, n));
        v16_store_n(x + i, a, n);
        v16_store_n(x + half + i, b, n);
    }
}

static void rope_pairs(float *x, const float *table, int half)
{
    int i = 0;
    for (; i + 16 <= half; i += 16) {
        v16 a, b;
        v16_load_pairs(x + 2 * i, &a, &b);
        rotate(&a, &b, v16_load(table + i), v16_load(table + half + i));
        v16_store_pairs(x + 2 * i, a, b);
    }
    if (i == half) return;
    float rest[32] = {0};
    size_t size = (size_t)(half - i) * 2 * sizeof(float);
    memcpy(rest, x + 2 * i, size);
    v16 a, b;
    v16_load_pairs(rest, &a, &b);
    rotate(&a, &b, v16_load_n(table + i, half - i), v16_load_n(table + half + i, half - i));
    v16_store_pairs(rest, a, b);
    memcpy(x + 2 * i, rest, size);
}

static void rope(float *x, const float *table, int half, bool interleaved)
{
    if (interleaved)
        rope_pairs(x, table, half);
    else
        rope_halves(x, table, half);
}

#endif
