/* vec_avx2.h - sixteen floats as two registers; see vec_generic.h for what each function means.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_VEC_AVX2_H
#define SH_KERNELS_CPU_VEC_AVX2_H

#include "kernels/cpu/vec.h"

#include <immintrin.h>
#include <stdint.h>

/* 12 sums, two loads and a broadcast fill the 16 registers. */
enum { VEC_PANEL = 6, VEC_WIDE = 1, VEC_DOT_X = 2, VEC_DOT_W = 2 };
#define VEC_EACH_PANEL(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef struct {
    __m256 lo, hi;
} v16;

/* Applies a function to both halves. */
#define V16_BOTH(f, a) ((v16){f((a).lo), f((a).hi)})
#define V16_BOTH2(f, a, b) ((v16){f((a).lo, (b).lo), f((a).hi, (b).hi)})

/* All ones in the lanes [first, end) of eight that start at lane `base`. */
VEC_INLINE __m256i lanes_within(int base, int first, int end)
{
    __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                                    _mm256_set1_epi32(base));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}

VEC_INLINE v16 v16_load(const float *p)
{
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
}

VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    if (n == 16) return v16_load(p);
    return (v16){_mm256_maskload_ps(p, lanes_within(0, 0, n)),
                 _mm256_maskload_ps(p + 8, lanes_within(8, 0, n))};
}

VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    if (n == 16) { /* masked stores are slow */
        v16_store(p, a);
        return;
    }
    _mm256_maskstore_ps(p, lanes_within(0, 0, n), a.lo);
    _mm256_maskstore_ps(p + 8, lanes_within(8, 0, n), a.hi);
}

VEC_INLINE v16 v16_set(float x)
{
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_add_ps, a, b);
}

VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_sub_ps, a, b);
}

VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_mul_ps, a, b);
}

VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_div_ps, a, b);
}

VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_max_ps, a, b);
}

VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    return V16_BOTH2(_mm256_min_ps, a, b);
}

VEC_INLINE v16 v16_abs(v16 a)
{
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}

VEC_INLINE __m256 half_round(__m256 a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE v16 v16_round(v16 a)
{
    return V16_BOTH(half_round, a);
}

VEC_INLINE __m256 half_pow2(__m256 n)
{
    __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

VEC_INLINE v16 v16_pow2(v16 n)
{
    return V16_BOTH(half_pow2, n);
}

VEC_INLINE v16 v16_zero_if_less(v16 a, v16 x, v16 limit)
{
    return (v16){_mm256_and_ps(_mm256_cmp_ps(x.lo, limit.lo, _CMP_NLT_UQ), a.lo),
                 _mm256_and_ps(_mm256_cmp_ps(x.hi, limit.hi, _CMP_NLT_UQ), a.hi)};
}

VEC_INLINE v16 v16_within(v16 a, int first, int end, v16 other)
{
    __m256 lo = _mm256_castsi256_ps(lanes_within(0, first, end));
    __m256 hi = _mm256_castsi256_ps(lanes_within(8, first, end));
    return (v16){_mm256_blendv_ps(other.lo, a.lo, lo), _mm256_blendv_ps(other.hi, a.hi, hi)};
}

VEC_INLINE float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(a.lo, a.hi);
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE float v16_top(v16 a)
{
    __m256 b = _mm256_max_ps(a.lo, a.hi);
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                 _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE v16 v16_load_i8(const int8_t *p)
{
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(a)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(a, 8)))};
}

VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    __m256i both = _mm256_packs_epi32(_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi));
    both = _mm256_permute4x64_epi64(both, 0xd8);
    __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(both),
                                    _mm256_extracti128_si256(both, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}

VEC_INLINE void half_load_pairs(const float *p, __m256 *even, __m256 *odd)
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 lo = _mm256_permute2f128_ps(a, b, 0x20), hi = _mm256_permute2f128_ps(a, b, 0x31);
    *even = _mm256_shuffle_ps(lo, hi, 0x88);
    *odd = _mm256_shuffle_ps(lo, hi, 0xdd);
}

VEC_INLINE void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    half_load_pairs(p, &even->lo, &odd->lo);
    half_load_pairs(p + 16, &even->hi, &odd->hi);
}

VEC_INLINE void half_store_pairs(float *p, __m256 even, __m256 odd)
{
    __m256 a = _mm256_unpacklo_ps(even, odd), b = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(a, b, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(a, b, 0x31));
}

VEC_INLINE void v16_store_pairs(float *p, v16 even, v16 odd)
{
    half_store_pairs(p, even.lo, odd.lo);
    half_store_pairs(p + 16, even.hi, odd.hi);
}

VEC_INLINE void transpose_8x8(__m256 a[8])
{
    __m256 b[8];
    VEC_UNROLL for (int i = 0; i < 8; i += 4)
    {
        __m256 p = _mm256_unpacklo_ps(a[i], a[i + 1]), q = _mm256_unpackhi_ps(a[i], a[i + 1]);
        __m256 r = _mm256_unpacklo_ps(a[i + 2], a[i + 3]);
        __m256 s = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
        b[i] = _mm256_shuffle_ps(p, r, 0x44), b[i + 1] = _mm256_shuffle_ps(p, r, 0xee);
        b[i + 2] = _mm256_shuffle_ps(q, s, 0x44), b[i + 3] = _mm256_shuffle_ps(q, s, 0xee);
    }
    VEC_UNROLL for (int i = 0; i < 4; i++)
    {
        a[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        a[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

VEC_INLINE void v16_transpose(v16 a[16])
{
    __m256 quarter[4][8];
    VEC_UNROLL for (int i = 0; i < 8; i++)
    {
        quarter[0][i] = a[i].lo, quarter[1][i] = a[i].hi;
        quarter[2][i] = a[i + 8].lo, quarter[3][i] = a[i + 8].hi;
    }
    VEC_UNROLL for (int i = 0; i < 4; i++) transpose_8x8(quarter[i]);
    VEC_UNROLL for (int i = 0; i < 8; i++)
    {
        a[i] = (v16){quarter[0][i], quarter[2][i]};
        a[i + 8] = (v16){quarter[1][i], quarter[3][i]};
    }
}

#endif
