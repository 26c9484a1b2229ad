/* open_avx2.h - opens panels into AVX2 registers. A register has half of a panel's vector: 8 rows
 * of four columns; `src` is the first byte of that half.
 *
 * GCC's scheduler after register allocation is switched off, as for AVX-512 (open_avx512.h). */
#ifndef SH_KERNELS_CPU_OPEN_AVX2_H
#define SH_KERNELS_CPU_OPEN_AVX2_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns2")
#endif

#include "kernels/cpu/dot.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS = SH_PANEL_ROWS,
    HALF = SH_PANEL_ROWS / 2,
    VEC = SH_PANEL_VEC,
    UNIT = SH_PANEL_UNIT,
    TILE = SH_ACTS_TILE,
    FP4 = SH_FP4,
};

INLINE __m256i load(const uint8_t *src)
{
    return _mm256_loadu_si256((const __m256i *)src);
}

/* The planes of panel.h. There is no shift of bytes: 16-bit lanes are shifted, and the masks drop
 * the bits that crossed into the other byte. */

/* The bits of `x` shifted left by `left` places (right when negative), masked. */
INLINE __m256i moved(__m256i x, int left, int mask)
{
    x = left >= 0 ? _mm256_slli_epi16(x, left) : _mm256_srli_epi16(x, -left);
    return _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
}

INLINE void open_nibbles(const uint8_t *src, __m256i *w)
{
    UNROLL (i, 4) {
        __m256i v = load(src + i * VEC);
        w[2 * i] = moved(v, 0, 15);
        w[2 * i + 1] = moved(v, -4, 15);
    }
}

INLINE void open_crumbs(const uint8_t *src, __m256i *w)
{
    UNROLL (i, 2) {
        __m256i v = load(src + i * VEC);
        UNROLL (j, 4) w[4 * i + j] = moved(v, -2 * j, 3);
    }
}

INLINE void join_crumbs(const uint8_t *src, __m256i *w)
{
    UNROLL (i, 2) {
        __m256i v = load(src + i * VEC);
        UNROLL (j, 4) w[4 * i + j] = _mm256_or_si256(w[4 * i + j], moved(v, 4 - 2 * j, 0x30));
    }
}

INLINE void join_bits(const uint8_t *src, int to, __m256i *w)
{
    __m256i v = load(src);
    UNROLL (i, 8) w[i] = _mm256_or_si256(w[i], moved(v, to - i, 1 << to));
}

/* The 8 vectors of one unit; `bits` is a constant wherever this is inlined. */
INLINE void open_unit(int bits, const uint8_t *src, __m256i *w)
{
    if (bits == 8) {
        UNROLL (i, 8) w[i] = load(src + i * VEC);
    } else if (bits <= 3) {
        open_crumbs(src, w);
        if (bits == 3) join_bits(src + 2 * VEC, 2, w);
    } else {
        open_nibbles(src, w);
        if (bits == 5) join_bits(src + 4 * VEC, 4, w);
        if (bits == 6) join_crumbs(src + 4 * VEC, w);
    }
    if (bits == FP4) {
        const __m256i table = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        UNROLL (i, 8) w[i] = _mm256_shuffle_epi8(table, w[i]);
    }
}

/* Scales (which = 0) or biases (which = 1) of one half of the rows. */
INLINE __m256 scales_affine(sh_dtype dtype, const uint8_t *meta, int which, int half)
{
    int at = which * ROWS + half * HALF;
    if (dtype == SH_DTYPE_F32) return _mm256_loadu_ps((const float *)meta + at);
    __m128i h = _mm_loadu_si128((const __m128i *)(meta + 2 * at));
    if (dtype == SH_DTYPE_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Powers of two; exponent 0 is 2^-127, a subnormal. */
INLINE __m256 scales_e8m0(const uint8_t *meta, int half)
{
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(meta + half * HALF));
    __m256i e = _mm256_cvtepu8_epi32(bytes);
    __m256i tiny = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
    tiny = _mm256_and_si256(tiny, _mm256_set1_epi32(0x00400000));
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_slli_epi32(e, 23), tiny));
}

/* Half of the scale, since opened FP4 codes are doubled. The cast of E4M3 to f16 is that of half.h.
 */
INLINE __m256 scales_fp4(const sh_panel *p, const uint8_t *meta, int half)
{
    if (p->quant.format == SH_FORMAT_MXFP4)
        return _mm256_mul_ps(_mm256_set1_ps(0.5f), scales_e8m0(meta, half));
    __m128i h = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(meta + half * HALF)));
    h = _mm_and_si128(_mm_slli_epi16(h, 7), _mm_set1_epi16((short)0xbf80));
    __m256 e4m3 = _mm256_mul_ps(_mm256_cvtph_ps(h), _mm256_set1_ps(256.0f));
    return _mm256_mul_ps(_mm256_set1_ps(0.5f * p->quant.global_scale), e4m3);
}

/* Stores the outputs of `tokens` x 16 rows, of which only `rows` exist. */
INLINE void rows_store(const float *out, int tokens, int64_t rows, float *y, int64_t y_stride)
{
    size_t live = (size_t)(rows < ROWS ? rows : ROWS) * sizeof(float);
    for (int t = 0; t < tokens; t++) memcpy(y + t * y_stride, out + t * ROWS, live);
}

#endif
