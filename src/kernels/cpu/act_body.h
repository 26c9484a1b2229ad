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

/* erf by Abramowitz and Stegun, 7.1.26: off by 1.5e-7 at most. */
VEC_INLINE v16 gelu(v16 x)
{
    const v16 one = v16_set(1.0f), zero = v16_set(0.0f);
    v16 z = v16_mul(v16_max(x, v16_sub(zero, x)), v16_set(0.70710678f));
    v16 t = v16_div(one, v16_fma(z, v16_set(0.3275911f), one));
    v16 p = v16_fma(v16_set(1.061405429f), t, v16_set(-1.453152027f));
    p = v16_fma(p, t, v16_set(1.421413741f));
    p = v16_fma(p, t, v16_set(-0.284496736f));
    p = v16_fma(p, t, v16_set(0.254829592f));
    v16 e = v16_exp2(v16_mul(v16_mul(z, z), v16_set(-1.44269504f)));
    /* x/2 (1 + erf(x/sqrt 2)) is max(x, 0) less |x|/2 times what erf lacks to 1. */
    v16 lack = v16_mul(v16_mul(p, t), e);
    return v16_sub(v16_max(x, zero), v16_mul(v16_mul(z, v16_set(0.70710678f)), lack));
}

/* x / (1 + e^-gate). */
VEC_INLINE v16 gated(v16 x, v16 gate)
{
    v16 e = v16_exp2(v16_min(v16_set(126.0f), v16_mul(gate, v16_set(-1.44269504f))));
    return v16_div(x, v16_add(v16_set(1.0f), e));
}

/* `kind` is a constant wherever this is inlined. */
VEC_INLINE v16 act_one(sh_act kind, v16 gate, v16 up)
{
    if (kind == SH_ACT_SILU) return v16_mul(x_sigmoid(gate, v16_set(1.0f)), up);
    if (kind == SH_ACT_GELU) return v16_mul(gelu(gate), up);
    if (kind == SH_ACT_GELU_TANH) return v16_mul(gelu_tanh(gate), up);
    if (kind == SH_ACT_SIGMOID) return gated(up, gate);
    const v16 limit = v16_set(7.0f);
    gate = v16_min(limit, gate);
    up = v16_min(limit, v16_max(v16_set(-7.0f), up));
    return v16_mul(x_sigmoid(gate, v16_set(1.702f)), v16_add(up, v16_set(1.0f)));
}

/* So is whether `up` is NULL. */
VEC_INLINE void act_all(sh_act kind, float *y, const float *gate, const float *up, int64_t count)
{
    const v16 one = v16_set(1.0f);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        v16_store(y + i, act_one(kind, v16_load(gate + i), up == NULL ? one : v16_load(up + i)));
    int n = (int)(count - i);
    if (n == 0) return;
    v16 rest = up == NULL ? one : v16_load_n(up + i, n);
    v16_store_n(y + i, act_one(kind, v16_load_n(gate + i, n), rest), n);
}

/* The feed-forward of an encoder may have no gate. */
VEC_INLINE void act_either(sh_act kind, float *y, const float *gate, const float *up, int64_t count)
{
    if (up == NULL)
        act_all(kind, y, gate, NULL, count);
    else
        act_all(kind, y, gate, up, count);
}

static void act(sh_act kind, float *y, const float *gate, const float *up, int64_t count)
{
    switch (kind) {
    case SH_ACT_SILU: act_either(SH_ACT_SILU, y, gate, up, count); break;
    case SH_ACT_GELU: act_either(SH_ACT_GELU, y, gate, up, count); break;
    case SH_ACT_GELU_TANH: act_either(SH_ACT_GELU_TANH, y, gate, up, count); break;
    case SH_ACT_SIGMOID: act_either(SH_ACT_SIGMOID, y, gate, up, count); break;
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
