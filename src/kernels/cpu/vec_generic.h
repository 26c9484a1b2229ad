/* vec_generic.h - sixteen floats at a time, in plain C; defines what vec_avx512.h and the others
 * do.
 *
 * Floating-point ops other than products with weights are written once, with `v16`; each level
 * includes its own vec_*.h before them. Sixteen lanes at every level keep the order of sums, and
 * with it the bits, the same. Each function gives the same result everywhere, except v16_fma, which
 * rounds once where the CPU can.
 *
 * VEC_PANEL rows by VEC_WIDE vectors of sums fit into the registers in attention, VEC_DOT_X by
 * VEC_DOT_W in the router's product.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_VEC_GENERIC_H
#define SH_KERNELS_CPU_VEC_GENERIC_H

#include "kernels/cpu/vec.h"
#include "kernels/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { VEC_PANEL = 2, VEC_WIDE = 1, VEC_DOT_X = 1, VEC_DOT_W = 2 };
#define VEC_EACH_PANEL(X) X(1) X(2)

/* Four lanes, which the compiler can map to any SIMD, or split into scalars. */
typedef float f4 __attribute__((vector_size(16)));
typedef int32_t i4 __attribute__((vector_size(16)));
typedef uint32_t u4 __attribute__((vector_size(16)));

typedef struct {
    f4 part[4];
} v16;

#define V16_EACH(i) VEC_UNROLL for (int i = 0; i < 4; i++)

VEC_INLINE v16 v16_load(const float *p)
{
    v16 a;
    memcpy(&a, p, sizeof(a));
    return a;
}

VEC_INLINE void v16_store(float *p, v16 a)
{
    memcpy(p, &a, sizeof(a));
}

/* The first n <= 16 lanes, zero in the others. */
VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    if (n == 16) return v16_load(p);
    float a[16] = {0};
    memcpy(a, p, (size_t)n * sizeof(float));
    return v16_load(a);
}

VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    if (n == 16)
        v16_store(p, a);
    else
        memcpy(p, &a, (size_t)n * sizeof(float));
}

VEC_INLINE v16 v16_set(float x)
{
    f4 a = {x, x, x, x};
    return (v16){{a, a, a, a}};
}

VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] += b.part[i];
    return a;
}

VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] -= b.part[i];
    return a;
}

VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] *= b.part[i];
    return a;
}

VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] /= b.part[i];
    return a;
}

/* a*b + c */
VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return v16_add(v16_mul(a, b), c);
}

/* a where `mask` is all ones, else b. */
VEC_INLINE f4 f4_select(i4 mask, f4 a, f4 b)
{
    return (f4)((mask & (i4)a) | (~mask & (i4)b));
}

/* Returns b when either is NaN, like the x86 instruction. */
VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] = f4_select(a.part[i] > b.part[i], a.part[i], b.part[i]);
    return a;
}

VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    V16_EACH(i) a.part[i] = f4_select(a.part[i] < b.part[i], a.part[i], b.part[i]);
    return a;
}

VEC_INLINE v16 v16_abs(v16 a)
{
    V16_EACH(i) a.part[i] = (f4)((i4)a.part[i] & 0x7fffffff);
    return a;
}

/* To the nearest integer, ties to even, for |a| < 2^22. */
VEC_INLINE v16 v16_round(v16 a)
{
    const v16 magic = v16_set(0x1.8p23f);
    return v16_sub(v16_add(a, magic), magic);
}

/* 2^n for integers n in -126..127 */
VEC_INLINE v16 v16_pow2(v16 n)
{
    n = v16_add(n, v16_set(0x1.8p23f)); /* leaves n in the low bits of the mantissa */
    V16_EACH(i) n.part[i] = (f4)(((u4)n.part[i] - 0x4b400000 + 127) << 23);
    return n;
}

/* 0 where x < limit, else a */
VEC_INLINE v16 v16_zero_if_less(v16 a, v16 x, v16 limit)
{
    V16_EACH(i) a.part[i] = (f4)(~(x.part[i] < limit.part[i]) & (i4)a.part[i]);
    return a;
}

/* a in the lanes [first, end), `other` elsewhere */
VEC_INLINE v16 v16_within(v16 a, int first, int end, v16 other)
{
    i4 lane = {0, 1, 2, 3};
    V16_EACH(i)
    {
        a.part[i] = f4_select((lane >= first) & (lane < end), a.part[i], other.part[i]);
        lane += 4;
    }
    return a;
}

/* Lane i plus i + 8, then i plus i + 4, and so on: the order in which registers can be halved, and
 * part of the contract, since it decides the bits. */
VEC_INLINE float v16_sum(v16 a)
{
    f4 b = (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
    return (b[0] + b[2]) + (b[1] + b[3]);
}

/* The largest lane. */
VEC_INLINE float v16_top(v16 a)
{
    float top = a.part[0][0];
    for (int i = 1; i < 16; i++) top = fmaxf(top, a.part[i / 4][i % 4]);
    return top;
}

VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    v16 a;
    V16_EACH(i)
    { /* like sh_f16_to_f32, four at a time */
        u4 h = {p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]};
        u4 magnitude = (h & 0x7fff) << 13;
        u4 large = (u4)(magnitude >= 0x7c00u << 13) & 0x7f800000;
        f4 x = (f4)magnitude * 0x1p112f;
        a.part[i] = (f4)((u4)x | large | (h & 0x8000) << 16);
    }
    return a;
}

VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    for (int i = 0; i < 16; i++) p[i] = sh_f32_to_f16(a.part[i / 4][i % 4]);
}

VEC_INLINE v16 v16_load_i8(const int8_t *p)
{
    float a[16];
    for (int i = 0; i < 16; i++) a[i] = p[i];
    return v16_load(a);
}

/* Rounds to nearest even; |a| <= 127. */
VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    a = v16_round(a);
    for (int i = 0; i < 16; i++) p[i] = (int8_t)a.part[i / 4][i % 4];
}

/* 32 numbers, separated by even and odd index. */
VEC_INLINE void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    float a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = p[2 * i], b[i] = p[2 * i + 1];
    *even = v16_load(a), *odd = v16_load(b);
}

VEC_INLINE void v16_store_pairs(float *p, v16 even, v16 odd)
{
    for (int i = 0; i < 16; i++) {
        p[2 * i] = even.part[i / 4][i % 4];
        p[2 * i + 1] = odd.part[i / 4][i % 4];
    }
}

VEC_INLINE void v16_transpose(v16 a[16])
{
    float b[16][16];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) b[j][i] = a[i].part[j / 4][j % 4];
    memcpy(a, b, sizeof(b));
}

#endif
