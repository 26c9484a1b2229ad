/* open_neon.h - opens panels into NEON registers. A register has a quarter of a panel's vector: 4
 * rows of four columns; `src` is the first byte of that quarter.
 *
 * GCC's schedulers serialize the chains of sums that the source interleaves, so they are switched
 * off for the files that include this first.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_OPEN_NEON_H
#define SH_KERNELS_CPU_OPEN_NEON_H

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-schedule-insns", "no-schedule-insns2")
#endif

#include "kernels/cpu/dot.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS = SH_PANEL_ROWS,
    QUARTER = SH_PANEL_ROWS / 4,
    VEC = SH_PANEL_VEC,
    UNIT = SH_PANEL_UNIT,
    TILE = SH_ACTS_TILE,
    FP4 = SH_FP4,
};

/* The planes of panel.h: the bits of `x` shifted left by `left` places (right when negative),
 * masked. */
INLINE uint8x16_t moved(uint8x16_t x, int left, int mask)
{
    if (left != 0) x = vshlq_u8(x, vdupq_n_s8((int8_t)left));
    return vandq_u8(x, vdupq_n_u8((uint8_t)mask));
}

INLINE void open_nibbles(const uint8_t *src, uint8x16_t *w)
{
    UNROLL (i, 4) {
        uint8x16_t v = vld1q_u8(src + i * VEC);
        w[2 * i] = moved(v, 0, 15);
        w[2 * i + 1] = vshrq_n_u8(v, 4);
    }
}

INLINE void open_crumbs(const uint8_t *src, uint8x16_t *w)
{
    UNROLL (i, 2) {
        uint8x16_t v = vld1q_u8(src + i * VEC);
        UNROLL (j, 4) w[4 * i + j] = moved(v, -2 * j, 3);
    }
}

INLINE void join_crumbs(const uint8_t *src, uint8x16_t *w)
{
    UNROLL (i, 2) {
        uint8x16_t v = vld1q_u8(src + i * VEC);
        UNROLL (j, 4) w[4 * i + j] = vorrq_u8(w[4 * i + j], moved(v, 4 - 2 * j, 0x30));
    }
}

INLINE void join_bits(const uint8_t *src, int to, uint8x16_t *w)
{
    uint8x16_t v = vld1q_u8(src);
    UNROLL (i, 8) w[i] = vorrq_u8(w[i], moved(v, to - i, 1 << to));
}

/* The 8 vectors of one unit; `bits` is a constant wherever this is inlined. Arm's products take two
 * signed operands, so codes of 8 bits come out 128 too small; tokens_add makes up for it. */
INLINE void open_unit(int bits, const uint8_t *src, uint8x16_t *w)
{
    if (bits == 8) {
        UNROLL (i, 8) w[i] = veorq_u8(vld1q_u8(src + i * VEC), vdupq_n_u8(0x80));
    } else if (bits <= 3) {
        open_crumbs(src, w);
        if (bits == 3) join_bits(src + 2 * VEC, 2, w);
    } else {
        open_nibbles(src, w);
        if (bits == 5) join_bits(src + 4 * VEC, 4, w);
        if (bits == 6) join_crumbs(src + 4 * VEC, w);
    }
    if (bits == FP4) {
        static const uint8_t codes[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                          12, 11, 10, 9,  8,  6,  4,  0};
        UNROLL (i, 8) w[i] = vqtbl1q_u8(vld1q_u8(codes), w[i]);
    }
}

/* Scales (which = 0) or biases (which = 1) of one quarter of the rows. */
INLINE float32x4_t scales_affine(sh_dtype dtype, const uint8_t *meta, int which, int quarter)
{
    int at = which * ROWS + quarter * QUARTER;
    if (dtype == SH_DTYPE_F32) return vreinterpretq_f32_u8(vld1q_u8(meta + 4 * at));
    uint16x4_t h = vreinterpret_u16_u8(vld1_u8(meta + 2 * at));
    if (dtype == SH_DTYPE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

/* Four bytes, sign-extended to 16-bit lanes. */
INLINE int16x4_t four_bytes(const uint8_t *src)
{
    uint32_t word;
    memcpy(&word, src, sizeof(word));
    return vget_low_s16(vmovl_s8(vreinterpret_s8_u32(vdup_n_u32(word))));
}

/* Half of the scale, since opened FP4 codes are doubled. E8M0 is a power of two, where exponent 0
 * is 2^-127, a subnormal; E4M3 is shifted to where f16 has its bits, as in half.h. */
INLINE float32x4_t scales_fp4(const sh_panel *p, const uint8_t *meta, int quarter)
{
    int16x4_t x = four_bytes(meta + quarter * QUARTER);
    if (p->quant.format == SH_FORMAT_MXFP4) {
        uint32x4_t e = vandq_u32(vreinterpretq_u32_s32(vmovl_s16(x)), vdupq_n_u32(255));
        uint32x4_t tiny = vandq_u32(vceqq_u32(e, vdupq_n_u32(0)), vdupq_n_u32(0x00400000));
        float32x4_t power = vreinterpretq_f32_u32(vorrq_u32(vshlq_n_u32(e, 23), tiny));
        return vmulq_n_f32(power, 0.5f);
    }
    uint16x4_t h = vand_u16(vreinterpret_u16_s16(vshl_n_s16(x, 7)), vdup_n_u16(0xbf80));
    float32x4_t e4m3 = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(h)), 256.0f);
    return vmulq_n_f32(e4m3, 0.5f * p->quant.global_scale);
}

/* Stores the outputs of `tokens` x 16 rows, of which only `rows` exist. */
INLINE void rows_store(const float *out, int tokens, int64_t rows, float *y, int64_t y_stride)
{
    size_t live = (size_t)(rows < ROWS ? rows : ROWS) * sizeof(float);
    for (int t = 0; t < tokens; t++) memcpy(y + t * y_stride, out + t * ROWS, live);
}

#endif
