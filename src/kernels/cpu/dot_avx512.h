/* dot_avx512.h - the body of the code products for AVX-512, with or without VNNI.
 *
 * Included by dot_avx512.c and dot_avx512vnni.c, which first include open_avx512.h and define
 *     dots(bits, vecs, count, w, q, dot)
 * It adds to dot[t], for each of `count` tokens, the products of the `vecs` vectors of codes `w`
 * with the 4 * vecs codes of the token at q + 4 * vecs * t. All arguments but the addresses are
 * constants.
 *
 * The weights of one step of a panel are opened into registers (4 to 16 of the 32), then the tokens
 * of a tile go by and leave their sums in memory. So the cost of opening is shared by up to 32
 * tokens, and a single token runs the same instructions on the same numbers. */
#ifndef SH_KERNELS_CPU_DOT_AVX512_H
#define SH_KERNELS_CPU_DOT_AVX512_H

#include "kernels/cpu/open_avx512.h"

enum {
    NT = 4,    /* tokens whose sums are computed together */
    AHEAD = 4, /* prefetch distance of the weights, in blocks */
    TOUCH = 2, /* outputs to prefetch per step, in tokens: all at once stall the other loads */
};

/* The position in a walk over a panel: the codes of the step's tokens, with their scales and sums,
 * and the outputs. The outputs of a single token stay in a register, those of several are in
 * memory.
 */
struct walk {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    int tokens;
    float *out;
    __m512 one;
    const float *y; /* where the outputs will be stored */
    int64_t y_stride;
    int touched; /* tokens whose y has been prefetched */
};

/* Adds one step to the outputs of `count` tokens. For FP4 the dots start at -zero * sum(q), which
 * takes the zero off every code; the others have a bias. */
INLINE void tokens_add(int bits, int vecs, int count, const __m512i *w, __m512 scale, __m512 bias,
                       const struct walk *at, __m512 *out)
{
    __m512i dot[NT];
    UNROLL (t, count)
        dot[t] = bits == FP4 ? _mm512_set1_epi32(-SH_FP4_ZERO * at->sum[t])
                             : _mm512_setzero_si512();
    dots(bits, vecs, count, w, at->q, dot);
    UNROLL (t, count) {
        __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(at->d[2 * t]));
        out[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t]), both, out[t]);
        if (bits != FP4) out[t] = _mm512_fmadd_ps(bias, _mm512_set1_ps(at->d[2 * t + 1]), out[t]);
    }
}

/* The same for outputs in memory; moves on to the next tokens. */
INLINE void stored_add(int bits, int vecs, int count, const __m512i *w, __m512 scale, __m512 bias,
                       struct walk *at)
{
    __m512 out[NT];
    UNROLL (t, count) out[t] = _mm512_load_ps(at->out + t * ROWS);
    tokens_add(bits, vecs, count, w, scale, bias, at, out);
    UNROLL (t, count) _mm512_store_ps(at->out + t * ROWS, out[t]);
    at->q += 4 * count * vecs;
    at->d += 2 * count;
    at->sum += count;
    at->out += count * ROWS;
}

/* One step for all tokens of the tile; moves on to the next step. */
INLINE void step_add(int few, int bits, int step, const __m512i *w, __m512 scale, __m512 bias,
                     struct walk *at)
{
    if (few == 1) {
        tokens_add(bits, step / 4, 1, w, scale, bias, at, &at->one);
        at->q += step;
        at->d += 2;
        at->sum++;
        return;
    }
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

/* Opens the codes of one step, or of a unit that has two steps, and prefetches. For a single token
 * the hardware prefetcher does best with a hint for the next block only, and the line need not stay
 * in the cache (NTA). With more tokens there is more to do before the weights AHEAD are needed, and
 * the next tile of tokens reads them again. */
INLINE void codes_open(int few, int bits, int step, const uint8_t *codes, size_t block, __m512i *w)
{
    const int unit = (bits == FP4 ? 4 : bits) * VEC, lines = unit / VEC * (step > UNIT ? 2 : 1);
    const char *next = (const char *)codes + block * (few == 1 ? 1 : AHEAD);
    open_unit(bits, codes, w);
    if (step > UNIT) open_unit(bits, codes + unit, w + SH_PANEL_UNIT_VECS);
    UNROLL (i, lines + 1) {
        if (few == 1)
            _mm_prefetch(next + i * VEC, _MM_HINT_NTA);
        else
            _mm_prefetch(next + i * VEC, _MM_HINT_T0);
    }
}

INLINE void block_add(int few, int bits, int step, const sh_panel *p, const uint8_t *block,
                      int cols, struct walk *at)
{
    const size_t unit = (size_t)(bits == FP4 ? 4 : bits) * VEC;
    const uint8_t *meta = block + (size_t)((cols + UNIT - 1) / UNIT) * unit;
    for (int c = 0; c < cols; c += step < UNIT ? UNIT : step) {
        __m512i w[2 * SH_PANEL_UNIT_VECS];
        __m512 scale, bias;
        codes_open(few, bits, step, block + (size_t)(c / UNIT) * unit, p->block_bytes, w);
        step_scales(bits, p, meta, c, &scale, &bias);
        step_add(few, bits, step, w, scale, bias, at);
        if (step >= UNIT || c + step >= cols) continue;
        step_scales(bits, p, meta, c + step, &scale, &bias);
        step_add(few, bits, step, w + step / 4, scale, bias, at);
    }
}

/* One panel for the tokens of one tile. */
INLINE void panel_dot(int few, int bits, int step, const sh_panel *p, const uint8_t *w,
                      struct walk at)
{
    at.one = _mm512_setzero_ps();
    for (int t = 0; t < at.tokens; t++) _mm512_store_ps(at.out + t * ROWS, at.one);
    for (int64_t left = p->cols; left > 0; left -= p->block_cols, w += p->block_bytes)
        block_add(few, bits, step, p, w, left < p->block_cols ? (int)left : p->block_cols, &at);
    if (few == 1) _mm512_store_ps(at.out, at.one);
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
            if (at.tokens == 1)
                panel_dot(1, bits, step, p, panel, at);
            else
                panel_dot(0, bits, step, p, panel, at);
            rows_store(out, at.tokens, rows - row, y + row, y_stride);
        }
    }
}

#include "kernels/cpu/dot_table.h"

#endif
