/* dot_neon.h - the body of the code products for arm64.
 *
 * Included by dot_neon.c, dot_dotprod.c and dot_i8mm.c, which first include open_neon.h and define
 *     reorder(vecs, w)
 * which brings `vecs` open registers into the order that its products need, and
 *     dots(bits, vecs, count, w, q, dot)
 * which adds to dot[t], for each of `count` tokens (NT or 1), the products of 4 rows with the 4 *
 * vecs codes of the token at q + 4 * vecs * t. All arguments but the addresses are constants.
 *
 * The weights of 4 rows of a step stay in up to 16 of the 32 registers while the tokens of a tile
 * go by and leave their sums in memory. A single token runs the same sums on the same numbers. */
#ifndef SH_KERNELS_CPU_DOT_NEON_H
#define SH_KERNELS_CPU_DOT_NEON_H

#include "kernels/cpu/open_neon.h"

enum { AHEAD = 4 }; /* prefetch distance of the weights, in blocks */

/* The tokens of a tile at one step. */
struct walk {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    int tokens;
    float *out; /* [tokens][16] */
};

/* Adds one step to the outputs of 4 rows for `count` tokens, and moves on to the next tokens. The
 * dots start at -zero * sum(q), where codes of 8 bits have a zero of -128 (see open_unit). */
INLINE void tokens_add(int bits, int vecs, int count, const int8x16_t *w, float32x4_t scale,
                       float32x4_t bias, struct walk *at)
{
    float *to = at->out;
    const int zero = bits == FP4 ? SH_FP4_ZERO : bits == 8 ? -128 : 0;
    int32x4_t dot[NT];
    UNROLL (t, count) dot[t] = vdupq_n_s32(zero == 0 ? 0 : -zero * at->sum[t]);
    dots(bits, vecs, count, w, at->q, dot);
    UNROLL (t, count) {
        float32x4_t both = vmulq_n_f32(scale, at->d[2 * t]);
        float32x4_t out = vfmaq_f32(vld1q_f32(to + t * ROWS), vcvtq_f32_s32(dot[t]), both);
        if (bits != FP4) out = vfmaq_n_f32(out, bias, at->d[2 * t + 1]);
        vst1q_f32(to + t * ROWS, out);
    }
    at->q += 4 * count * vecs;
    at->d += 2 * count;
    at->sum += count;
    at->out += count * ROWS;
}

/* One step of 4 rows for all tokens; for a step of 16, `part` is the half of the unit. */
INLINE void quarter_add(int bits, int step, const sh_panel *p, const uint8_t *codes,
                        const uint8_t *meta, int col, int part, int quarter, struct walk at)
{
    const int unit = (bits == FP4 ? 4 : bits) * VEC, vecs = step / 4;
    uint8x16_t open[16];
    int8x16_t w[16];
    float32x4_t scale, bias = vdupq_n_f32(0);
    open_unit(bits, codes + quarter * VEC / 4, open);
    if (step > UNIT) open_unit(bits, codes + unit + quarter * VEC / 4, open + 8);
    UNROLL (v, vecs) w[v] = vreinterpretq_s8_u8(open[part * 4 + v]);
    reorder(vecs, w);
    if (bits == FP4) {
        scale = scales_fp4(p, meta + col / p->quant.group * ROWS, quarter);
    } else {
        scale = scales_affine(p->quant.scale_dtype, meta, 0, quarter);
        bias = scales_affine(p->quant.scale_dtype, meta, 1, quarter);
    }
    at.out += quarter * QUARTER;
    for (; at.tokens >= NT; at.tokens -= NT) tokens_add(bits, vecs, NT, w, scale, bias, &at);
    for (; at.tokens > 0; at.tokens--) tokens_add(bits, vecs, 1, w, scale, bias, &at);
}

INLINE void step_add(int bits, int step, const sh_panel *p, const uint8_t *codes,
                     const uint8_t *meta, int col, int part, struct walk *at)
{
    for (int quarter = 0; quarter < 4; quarter++)
        quarter_add(bits, step, p, codes, meta, col, part, quarter, *at);
    at->q += at->tokens * step;
    at->d += at->tokens * 2;
    at->sum += at->tokens;
}

INLINE void block_add(int bits, int step, const sh_panel *p, const uint8_t *block, int cols,
                      struct walk *at)
{
    const size_t unit = (size_t)(bits == FP4 ? 4 : bits) * VEC;
    const uint8_t *meta = block + (size_t)((cols + UNIT - 1) / UNIT) * unit;
    for (size_t i = 0; i < p->block_bytes; i += VEC)
        __builtin_prefetch(block + AHEAD * p->block_bytes + i);
    for (int c = 0; c < cols; c += step < UNIT ? UNIT : step) {
        const uint8_t *codes = block + (size_t)(c / UNIT) * unit;
        step_add(bits, step, p, codes, meta, c, 0, at);
        if (step < UNIT && c + step < cols) step_add(bits, step, p, codes, meta, c + step, 1, at);
    }
}

INLINE void dot_body(int bits, int step, const sh_panel *p, const uint8_t *w, int64_t rows,
                     const sh_acts *a, float *y, int64_t y_stride)
{
    float out[TILE * ROWS];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        const uint8_t *panel = w;
        for (int64_t row = 0; row < rows; row += ROWS, panel += p->panel_bytes) {
            struct walk at = {
                .q = a->q + t * a->steps * step,
                .d = a->d + t * a->steps * 2,
                .sum = a->sum + t * a->steps,
                .tokens = sh_acts_tile(a, t),
                .out = out,
            };
            const uint8_t *block = panel;
            memset(out, 0, sizeof(*out) * (size_t)(at.tokens * ROWS));
            for (int64_t left = p->cols; left > 0; left -= p->block_cols, block += p->block_bytes)
                block_add(bits, step, p, block, left < p->block_cols ? (int)left : p->block_cols,
                          &at);
            rows_store(out, at.tokens, rows - row, y + row, y_stride);
        }
    }
}

#include "kernels/cpu/dot_table.h"

#endif
