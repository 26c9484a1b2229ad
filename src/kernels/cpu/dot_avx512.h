/* dot_avx512.h - the body of the code products for AVX-512, with or without VNNI.
 *
 * Included by dot_avx512.c and dot_avx512vnni.c, which first include open_avx512.h and define
 *     dots(bits, vecs, count, stride, w, q, dot)
 * It adds to dot[t], for each of `count` tokens, the products of the `vecs` vectors of codes `w`
 * with the 4 * vecs codes of the token at q + stride * t. All arguments but the addresses are
 * constants.
 *
 * The weights of one step of a panel are opened into registers (4 to 16 of the 32), then the tokens
 * of a tile go by and leave their sums in memory. So the cost of opening is shared by up to 32
 * tokens. A few tokens (one that is decoded, and its drafts) keep their sums in registers: there
 * the time is that of reading the weights, as long as nothing keeps the CPU from running ahead to
 * the next ones. Both ways do the same operations on the same numbers in the same order. */
#ifndef SH_KERNELS_CPU_DOT_AVX512_H
#define SH_KERNELS_CPU_DOT_AVX512_H

#include "kernels/cpu/open_avx512.h"

enum {
    NT = 4,           /* tokens whose sums are computed together */
    FEW = 5,          /* tokens whose outputs stay in registers */
    AHEAD = 10 << 10, /* prefetch distance of the weights, in bytes */
    TOUCH = 2, /* outputs to prefetch per step, in tokens: all at once stall the other loads */
};

/* The position in a walk over a panel: the codes of the step's tokens, with their scales and sums,
 * and the outputs, unless they are in registers. */
struct walk {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    int tokens;
    float *out;
    const float *y; /* where the outputs will be stored */
    int64_t y_stride;
    int touched; /* tokens whose y has been prefetched */
};

/* For FP4 the dots start at -zero * sum(q), which takes the zero off every code; the others have a
 * bias. */
INLINE void dots_start(int bits, int count, const struct walk *at, __m512i *dot)
{
    UNROLL (t, count)
        dot[t] = bits == FP4 ? _mm512_set1_epi32(-SH_FP4_ZERO * at->sum[t])
                             : _mm512_setzero_si512();
}

/* Adds the dots of one step to the outputs of `count` tokens. */
INLINE void dots_add(int bits, int count, const __m512i *dot, __m512 scale, __m512 bias,
                     const struct walk *at, __m512 *out)
{
    UNROLL (t, count) {
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(at->d[2 * t]));
        out[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]), both, out[t]);
        if (bits != FP4) out[t] = _mm512_fmadd_ps(bias, _mm512_set1_ps(at->d[2 * t + 1]), out[t]);
    }
}

/* One step for outputs in memory; moves on to the next tokens. */
INLINE void stored_add(int bits, int vecs, int count, const __m512i *w, __m512 scale, __m512 bias,
                       struct walk *at)
{
    __m512 out[NT];
    __m512i dot[NT];
    UNROLL (t, count) out[t] = _mm512_load_ps(at->out + t * ROWS);
    dots_start(bits, count, at, dot);
    dots(bits, vecs, count, 4 * vecs, w, at->q, dot);
    dots_add(bits, count, dot, scale, bias, at, out);
    UNROLL (t, count) _mm512_store_ps(at->out + t * ROWS, out[t]);
    at->q += 4 * count * vecs;
    at->d += 2 * count;
    at->sum += count;
    at->out += count * ROWS;
}

/* One step for all tokens of the tile; moves on to the next step. */
INLINE void step_add(int bits, int step, const __m512i *w, __m512 scale, __m512 bias,
                     struct walk *at)
{
    struct walk to = *at;
    int left = at->tokens;
    for (int i = 0; i < TOUCH && at->touched < at->tokens; i++)
        __builtin_prefetch(at->y + at->touched++ * at->y_stride, 1);
    for (; left >= NT; left -= NT) stored_add(bits, step / 4, NT, w, scale, bias, &to);
    for (; left > 0; left--) stored_add(bits, step / 4, 1, w, scale, bias, &to);
    at->q = to.q;
    at->d = to.d;
    at->sum = to.sum;
}

/* Scales of the step at column `col` of a block. */
INLINE void step_scales(int bits, const sh_panel *p, const uint8_t *meta, int col, __m512 *scale,
                        __m512 *bias)
{
    if (bits == FP4) {
        *scale = scales_fp4(p, meta + col / p->quant.group * ROWS);
        *bias = _mm512_setzero_ps();
    } else {
        *scale = scales_affine(p->quant.scale_dtype, meta, 0);
        *bias = scales_affine(p->quant.scale_dtype, meta, 1);
    }
}

/* Bytes of a unit of codes. */
INLINE size_t unit_bytes(int bits)
{
    return (size_t)(bits == FP4 ? 4 : bits) * VEC;
}

/* Prefetches weights. For a single token the hardware prefetcher does best with a hint for the next
 * block only, and the line need not stay in the cache (NTA). It does not keep up with the
 * arithmetic of more tokens, and hints for the first level get in the way of their codes: there the
 * weights come to the second level, from so far ahead that pages do not matter (on a Zen 4 core,
 * four tokens take 23 ns for a block of 64 columns, as with all weights in the cache; 34 ns with
 * hints for the first level, four blocks ahead). */
INLINE void prefetch(int few, const uint8_t *codes, size_t block, int lines)
{
    const char *next = (const char *)codes + (few == 1 ? block : AHEAD);
    UNROLL (i, lines) {
        if (few == 1)
            _mm_prefetch(next + i * VEC, _MM_HINT_NTA);
        else
            _mm_prefetch(next + i * VEC, _MM_HINT_T1);
    }
}

/* One step for `few` tokens with their outputs in registers; moves on to the next step. Codes are
 * opened a unit at a time, which leaves registers for the sums of all tokens. For a step of 16,
 * `part` is the half of the unit. */
INLINE void few_add(int few, int bits, int step, const uint8_t *codes, int part, size_t block,
                    __m512 scale, __m512 bias, struct walk *at, __m512 *out)
{
    const int vecs = step < UNIT ? step / 4 : SH_PANEL_UNIT_VECS, units = step > UNIT ? 2 : 1;
    __m512i dot[FEW];
    dots_start(bits, few, at, dot);
    UNROLL (u, units) {
        const uint8_t *src = codes + (size_t)u * unit_bytes(bits);
        __m512i w[SH_PANEL_UNIT_VECS];
        open_unit(bits, src, w);
        if (part == 0) prefetch(few, src, block, (int)unit_bytes(bits) / VEC + (u == units - 1));
        dots(bits, vecs, few, step, w + part * vecs, at->q + u * UNIT, dot);
    }
    dots_add(bits, few, dot, scale, bias, at, out);
    at->q += few * step;
    at->d += 2 * few;
    at->sum += few;
}

/* Opens the codes of one step, or of a unit that has two steps, and adds them. */
INLINE void columns_add(int few, int bits, int step, int part, const uint8_t *codes, size_t block,
                        __m512 scale, __m512 bias, struct walk *at, __m512 *out)
{
    if (few > 0) {
        few_add(few, bits, step, codes, part, block, scale, bias, at, out);
        return;
    }
    __m512i w[2 * SH_PANEL_UNIT_VECS];
    open_unit(bits, codes, w);
    if (step > UNIT) open_unit(bits, codes + unit_bytes(bits), w + SH_PANEL_UNIT_VECS);
    if (part == 0)
        prefetch(0, codes, block, (int)unit_bytes(bits) / VEC * (step > UNIT ? 2 : 1) + 1);
    step_add(bits, step, w + part * step / 4, scale, bias, at);
}

INLINE void block_add(int few, int bits, int step, const sh_panel *p, const uint8_t *block,
                      int cols, struct walk *at, __m512 *out)
{
    const uint8_t *meta = block + (size_t)((cols + UNIT - 1) / UNIT) * unit_bytes(bits);
    for (int c = 0; c < cols; c += step < UNIT ? UNIT : step) {
        const uint8_t *codes = block + (size_t)(c / UNIT) * unit_bytes(bits);
        __m512 scale, bias;
        step_scales(bits, p, meta, c, &scale, &bias);
        columns_add(few, bits, step, 0, codes, p->block_bytes, scale, bias, at, out);
        if (step >= UNIT || c + step >= cols) continue;
        step_scales(bits, p, meta, c + step, &scale, &bias);
        columns_add(few, bits, step, 1, codes, p->block_bytes, scale, bias, at, out);
    }
}

/* One panel for the tokens of one tile: `few` of them, or (0) any number. */
INLINE void panel_dot(int few, int bits, int step, const sh_panel *p, const uint8_t *w,
                      struct walk at)
{
    __m512 out[FEW];
    UNROLL (t, few) out[t] = _mm512_setzero_ps();
    for (int t = 0; t < at.tokens && few == 0; t++)
        _mm512_store_ps(at.out + t * ROWS, _mm512_setzero_ps());
    for (int64_t left = p->cols; left > 0; left -= p->block_cols, w += p->block_bytes)
        block_add(few, bits, step, p, w, left < p->block_cols ? (int)left : p->block_cols, &at,
                  out);
    UNROLL (t, few) _mm512_store_ps(at.out + t * ROWS, out[t]);
}

/* The same, with the number of a few tokens as a constant: registers have no index. A sanitizer
 * build keeps everything in memory anyway, and takes seconds to compile each of the copies. */
INLINE void tile_dot(int bits, int step, const sh_panel *p, const uint8_t *w, struct walk at)
{
#if defined(SANITIZED)
    panel_dot(at.tokens <= FEW ? at.tokens : 0, bits, step, p, w, at);
#else
    switch (at.tokens) {
    case 1: panel_dot(1, bits, step, p, w, at); break;
    case 2: panel_dot(2, bits, step, p, w, at); break;
    case 3: panel_dot(3, bits, step, p, w, at); break;
    case 4: panel_dot(4, bits, step, p, w, at); break;
    case FEW: panel_dot(FEW, bits, step, p, w, at); break;
    default: panel_dot(0, bits, step, p, w, at); break;
    }
#endif
}

INLINE void dot_body(int bits, int step, const sh_panel *p, const uint8_t *w, int64_t rows,
                     const sh_acts *a, float *y, int64_t y_stride)
{
    _Alignas(64) float out[TILE * ROWS];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        struct walk at = {
            .q = a->q + t * a->steps * step,
            .d = a->d + t * a->steps * 2,
            .sum = a->sum + t * a->steps,
            .tokens = sh_acts_tile(a, t),
            .out = out,
            .y_stride = y_stride,
        };
        const uint8_t *panel = w;
        for (int64_t row = 0; row < rows; row += ROWS, panel += p->panel_bytes) {
            at.y = y + row;
            tile_dot(bits, step, p, panel, at);
            rows_store(out, at.tokens, rows - row, y + row, y_stride);
        }
    }
}

#include "kernels/cpu/dot_table.h"

#endif
