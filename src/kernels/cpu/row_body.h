/* row_body.h - the kernels of kernels/rows.h; include it once per file.
 *
 * Written with the compiler's vector types, as wide as the registers of the level that the file is
 * built for. No fused multiply-adds, and sums always in four lanes, so that all levels give the
 * same bits.
 *
 * Threads: pure functions on the caller's memory. */
#ifndef SH_KERNELS_CPU_ROW_BODY_H
#define SH_KERNELS_CPU_ROW_BODY_H

#include "kernels/cpu/vec.h"
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
enum { ROW_BYTES = 64 };
#elif defined(__AVX2__)
enum { ROW_BYTES = 32 };
#else
enum { ROW_BYTES = 16 };
#endif

enum { ROW_LANES = ROW_BYTES / 4, ROW_SUMS = 4 };

typedef float row_f __attribute__((vector_size(ROW_BYTES)));
typedef uint32_t row_u __attribute__((vector_size(ROW_BYTES)));
typedef uint64_t row_l __attribute__((vector_size(ROW_BYTES)));
typedef uint32_t row_four __attribute__((vector_size(4 * ROW_SUMS)));
typedef float row_sum __attribute__((vector_size(4 * ROW_SUMS)));

VEC_INLINE row_f row_load(const float *x)
{
    row_f v;
    memcpy(&v, x, sizeof(v));
    return v;
}

/* The larger of each pair; b where a is not larger, so that a NaN in a is ignored. */
VEC_INLINE row_f row_max(row_f a, row_f b)
{
#if defined(__AVX512F__)
    return (row_f)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (row_f)_mm256_max_ps((__m256)a, (__m256)b);
#else
    row_u larger = (row_u)(a > b);
    return (row_f)(((row_u)a & larger) | ((row_u)b & ~larger));
#endif
}

/* The largest lane of a vector without NaN, four lanes at a time. */
VEC_INLINE float row_lanes_max(row_f v)
{
    row_sum part[ROW_LANES / ROW_SUMS], most;
    memcpy(part, &v, sizeof(v));
    most = part[0];
    VEC_UNROLL for (int i = 1; i < ROW_LANES / ROW_SUMS; i++)
    {
        row_four larger = (row_four)(part[i] > most);
        most = (row_sum)(((row_four)part[i] & larger) | ((row_four)most & ~larger));
    }
    float a = most[0] > most[1] ? most[0] : most[1], b = most[2] > most[3] ? most[2] : most[3];
    return a > b ? a : b;
}

static float row_top(const float *x, int64_t count)
{
    float top = -INFINITY;
    for (int64_t i = 0; i < count; i++) top = x[i] > top ? x[i] : top;
    return top;
}

static void row_tops(float *tops, const float *x, int64_t count)
{
    int64_t at = 0;
    for (; at + SH_ROW_BLOCK <= count; at += SH_ROW_BLOCK) {
        row_f most = (row_f){0} - INFINITY;
        VEC_UNROLL for (int i = 0; i < SH_ROW_BLOCK; i += ROW_LANES)
            most = row_max(row_load(x + at + i), most);
        *tops++ = row_lanes_max(most);
    }
    if (at < count) *tops = row_top(x + at, count - at);
}

/* e^x for x <= 0, as 2^n times a polynomial of the remainder. */
VEC_INLINE row_f row_exp(row_f x)
{
    /* Adding 1.5 * 2^23 rounds t to an integer and leaves it in the low bits. */
    const row_f zero = {0}, round = zero + 12582912.0f;
    row_f t = row_max(x * 1.44269504f, zero - 126.0f), shifted = t + round;
    row_f r = t - (shifted - round);
    row_f p = r * 1.5252734e-5f + 1.5403530e-4f;
    p = p * r + 1.3333558e-3f;
    p = p * r + 9.6181291e-3f;
    p = p * r + 5.5504109e-2f;
    p = p * r + 2.4022651e-1f;
    p = p * r + 6.9314718e-1f;
    p = p * r + 1.0f;
    return p * (row_f)(((row_u)shifted << 23) + 0x3f800000u);
}

/* The exponentials are as wide as the level allows, but they are added four by four: the width of
 * the sum would otherwise show in its bits. */
static void row_exps(double *sums, const float *x, int64_t blocks, float max)
{
    for (int64_t b = 0; b < blocks; b++, x += SH_ROW_BLOCK) {
        float e[SH_ROW_BLOCK];
        VEC_UNROLL for (int i = 0; i < SH_ROW_BLOCK; i += ROW_LANES)
        {
            row_f v = row_exp(row_load(x + i) - max);
            memcpy(e + i, &v, sizeof(v));
        }
        row_sum sum = {0}, four;
        VEC_UNROLL for (int i = 0; i < SH_ROW_BLOCK; i += ROW_SUMS)
        {
            memcpy(&four, e + i, sizeof(four));
            sum += four;
        }
        sums[b] = (double)sum[0] + (double)sum[1] + (double)sum[2] + (double)sum[3];
    }
}

/* sh_mix64 in every lane, without its last x ^= x >> 31, which does not change the upper 31 bits.
 */
VEC_INLINE row_l row_mix(row_l x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (x ^ x >> 27) * 0x94d049bb133111ebu;
}

static bool row_noise_lacks(uint64_t key, uint32_t first, uint64_t mask)
{
    enum { LANES = ROW_BYTES / 8 };
    uint64_t some[LANES];
    row_l id, found = {0};
    mask &= ~(UINT64_MAX >> 31);
    for (int i = 0; i < LANES; i++) some[i] = (uint64_t)first + (uint64_t)i;
    memcpy(&id, some, sizeof(id));
    for (int i = 0; i < SH_ROW_BLOCK; i += LANES, id += LANES) {
        row_l bits = row_mix(id ^ key) & mask;
        found |= ~bits & (bits - 1); /* the highest bit is set only if bits is 0 */
    }
    memcpy(some, &found, sizeof(found));
    uint64_t any = 0;
    for (int i = 0; i < LANES; i++) any |= some[i];
    return any >> 63 != 0;
}

#endif
