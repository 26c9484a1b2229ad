/* vec_avx512.h - sixteen floats as one register; see vec_generic.h for what each function means.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_VEC_AVX512_H
#define SH_KERNELS_CPU_VEC_AVX512_H

#include "kernels/cpu/vec.h"

#include <immintrin.h>
#include <stdint.h>

/* 24 sums, two loads and a broadcast fill the 32 registers. */
enum { VEC_PANEL = 12, VEC_WIDE = 2, VEC_DOT_X = 4, VEC_DOT_W = 4 };
#define VEC_EACH_PANEL(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

typedef __m512 v16;

VEC_INLINE __mmask16 v16_first(int n)
{
    return (__mmask16)((1u << n) - 1);
}

VEC_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VEC_INLINE void v16_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}

VEC_INLINE v16 v16_load_n(const float *p, int n)
{
    if (n == 16) return v16_load(p);
    return _mm512_maskz_loadu_ps(v16_first(n), p);
}

VEC_INLINE void v16_store_n(float *p, v16 a, int n)
{
    _mm512_mask_storeu_ps(p, v16_first(n), a);
}

VEC_INLINE v16 v16_set(float x)
{
    return _mm512_set1_ps(x);
}

VEC_INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

VEC_INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

VEC_INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

VEC_INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

VEC_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VEC_INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

VEC_INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

VEC_INLINE v16 v16_abs(v16 a)
{
    return _mm512_abs_ps(a);
}

VEC_INLINE v16 v16_round(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VEC_INLINE v16 v16_pow2(v16 n)
{
    __m512i e = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

VEC_INLINE v16 v16_zero_if_less(v16 a, v16 x, v16 limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), a);
}

VEC_INLINE v16 v16_within(v16 a, int first, int end, v16 other)
{
    __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 in = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(first));
    in = _mm512_mask_cmplt_epi32_mask(in, lane, _mm512_set1_epi32(end));
    return _mm512_mask_mov_ps(other, in, a);
}

VEC_INLINE float v16_sum(v16 a)
{
    __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE float v16_top(v16 a)
{
    __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    c = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

VEC_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

VEC_INLINE void v16_store_f16(uint16_t *p, v16 a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

VEC_INLINE v16 v16_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

VEC_INLINE void v16_store_i8(int8_t *p, v16 a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}

VEC_INLINE void v16_load_pairs(const float *p, v16 *even, v16 *odd)
{
    const __m512i idx = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28,
                                          30);
    __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    *even = _mm512_permutex2var_ps(a, idx, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(idx, _mm512_set1_epi32(1)), b);
}

VEC_INLINE void v16_store_pairs(float *p, v16 even, v16 odd)
{
    const __m512i idx = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, idx, odd));
    __m512i upper = _mm512_add_epi32(idx, _mm512_set1_epi32(8));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even, upper, odd));
}

VEC_INLINE void v16_transpose(v16 a[16])
{
    /* Transposes the 4x4 squares within each group of four rows, then the squares themselves. */
    __m512 b[16];
    VEC_UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512 p = _mm512_unpacklo_ps(a[i], a[i + 1]), q = _mm512_unpackhi_ps(a[i], a[i + 1]);
        __m512 r = _mm512_unpacklo_ps(a[i + 2], a[i + 3]);
        __m512 s = _mm512_unpackhi_ps(a[i + 2], a[i + 3]);
        b[i] = _mm512_shuffle_ps(p, r, 0x44), b[i + 1] = _mm512_shuffle_ps(p, r, 0xee);
        b[i + 2] = _mm512_shuffle_ps(q, s, 0x44), b[i + 3] = _mm512_shuffle_ps(q, s, 0xee);
    }
    VEC_UNROLL for (int i = 0; i < 4; i++)
    {
        __m512 p = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
        __m512 q = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd);
        __m512 r = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
        __m512 s = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
        a[i] = _mm512_shuffle_f32x4(p, r, 0x88), a[i + 8] = _mm512_shuffle_f32x4(p, r, 0xdd);
        a[i + 4] = _mm512_shuffle_f32x4(q, s, 0x88), a[i + 12] = _mm512_shuffle_f32x4(q, s, 0xdd);
    }
}

#endif
