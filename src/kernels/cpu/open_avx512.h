/* open_avx512.h - opens panels into AVX-512 registers, for every kernel that reads them.
 *
 * GCC's scheduler after register allocation costs 7 % in the code products (375 -> 348 GOP/s on a
 * Zen 4 core whose peak is 464), so it is switched off for the files that include this first. */
#ifndef SH_KERNELS_CPU_OPEN_AVX512_H
#define SH_KERNELS_CPU_OPEN_AVX512_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns2")
#endif

#include "kernels/cpu/dot.h"

#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS = SH_PANEL_ROWS,
    VEC = SH_PANEL_VEC,
    UNIT = SH_PANEL_UNIT,
    TILE = SH_ACTS_TILE,
    FP4 = SH_FP4,
};

INLINE __m512i load(const uint8_t *src)
{
    return _mm512_loadu_si512(src);
}

/* The planes of panel.h. There is no shift of bytes: 16-bit lanes are shifted, and the masks drop
 * the bits that crossed into the other byte. */

/* low | (x shifted left by `left` places (right when negative) & mask): 0xf8 is a | (b & c). */
INLINE __m512i join(__m512i low, __m512i x, int left, int mask)
{
    __m512i moved = left >= 0 ? _mm512_slli_epi16(x, (unsigned)left)
                              : _mm512_srli_epi16(x, (unsigned)-left);
    return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8((char)mask), 0xf8);
}

INLINE void open_nibbles(const uint8_t *src, __m512i *w)
{
    const __m512i mask = _mm512_set1_epi8(15);
    UNROLL (i, 4) {
        __m512i v = load(src + i * VEC);
        w[2 * i] = _mm512_and_si512(v, mask);
        w[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
    }
}

INLINE void open_crumbs(const uint8_t *src, __m512i *w)
{
    UNROLL (i, 2) {
        __m512i v = load(src + i * VEC);
        UNROLL (j, 4)
            w[4 * i + j] = _mm512_and_si512(_mm512_srli_epi16(v, 2 * j), _mm512_set1_epi8(3));
    }
}

INLINE void join_crumbs(const uint8_t *src, __m512i *w)
{
    UNROLL (i, 2) {
        __m512i v = load(src + i * VEC);
        UNROLL (j, 4) w[4 * i + j] = join(w[4 * i + j], v, 4 - 2 * j, 0x30);
    }
}

INLINE void join_bits(const uint8_t *src, int to, __m512i *w)
{
    __m512i v = load(src);
    UNROLL (i, 8) w[i] = join(w[i], v, to - i, 1 << to);
}

/* The 8 vectors of one unit; `bits` is a constant wherever this is inlined. */
INLINE void open_unit(int bits, const uint8_t *src, __m512i *w)
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
        const __m512i table = _mm512_broadcast_i32x4(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        UNROLL (i, 8) w[i] = _mm512_shuffle_epi8(table, w[i]);
    }
}

INLINE __m512 scales_affine(sh_dtype dtype, const uint8_t *meta, int which)
{
    if (dtype == SH_DTYPE_F32) return _mm512_loadu_ps(meta + which * VEC);
    __m256i h = _mm256_loadu_si256((const __m256i *)(meta + which * VEC / 2));
    if (dtype == SH_DTYPE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Powers of two; exponent 0 is 2^-127, a subnormal. */
INLINE __m512 scales_e8m0(const uint8_t *meta)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)meta));
    __m512i power = _mm512_slli_epi32(e, 23);
    __mmask16 tiny = _mm512_testn_epi32_mask(e, e);
    return _mm512_castsi512_ps(_mm512_mask_mov_epi32(power, tiny, _mm512_set1_epi32(0x00400000)));
}

/* Half of the scale, since opened FP4 codes are doubled. The cast of E4M3 to f16 is that of half.h.
 */
INLINE __m512 scales_fp4(const sh_panel *p, const uint8_t *meta)
{
    if (p->quant.format == SH_FORMAT_MXFP4)
        return _mm512_mul_ps(_mm512_set1_ps(0.5f), scales_e8m0(meta));
    __m128i bytes = _mm_loadu_si128((const __m128i *)meta);
    __m256i h = _mm256_cvtepi8_epi16(bytes);
    h = _mm256_and_si256(_mm256_slli_epi16(h, 7), _mm256_set1_epi16((short)0xbf80));
    __m512 e4m3 = _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256.0f));
    return _mm512_mul_ps(_mm512_set1_ps(0.5f * p->quant.global_scale), e4m3);
}

/* Stores the outputs of `tokens` x 16 rows, of which only `rows` exist. */
INLINE void rows_store(const float *sums, int tokens, int64_t rows, float *y, int64_t y_stride)
{
    __mmask16 live = (__mmask16)(rows >= ROWS ? 0xffffu : (1u << rows) - 1);
    for (int t = 0; t < tokens; t++)
        _mm512_mask_storeu_ps(y + t * y_stride, live, _mm512_load_ps(sums + t * ROWS));
}

#endif
