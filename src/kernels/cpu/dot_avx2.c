/* Code products for AVX2. vpmaddubsw multiplies bytes and leaves sums of two products in 16 bits,
 * which must not overflow: as many of these sums are added as the largest codes allow before they
 * are widened (SH_SAFE_RUN), and codes of 8 bits are multiplied as two halves of 4.
 *
 * Half of the registers hold the weights, 32 columns of 8 rows, while the tokens of a tile go by;
 * the integer sums of a step are kept in memory until all its columns have been added. */
#include "kernels/cpu/open_avx2.h"

enum {
    NT = 2,    /* tokens whose sums are computed together */
    AHEAD = 4, /* prefetch distance of the weights, in blocks */
};

/* The tokens of a tile at one step. */
struct walk {
    const int8_t *q;
    const float *d;
    const int32_t *sum;
    int tokens;
    int32_t *dots; /* [tokens][16] */
    float *out;    /* [tokens][16] */
};

/* Keeps the compiler from adding in another order. GCC would make all products first, and those of
 * two tokens do not fit into the registers (122 instead of 199 GOP/s on a Zen 4 core). */
#define IN_ORDER(sum) __asm__("" : "+x"(sum))

INLINE __m256i four_codes(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof(x));
    return _mm256_set1_epi32(x);
}

/* `factor` times the dots of `vecs` vectors with `count` tokens, which are `stride` apart. madd
 * with the factor widens and scales in one instruction. */
INLINE void tokens_dot(int bits, int vecs, int count, const __m256i *w, const int8_t *q, int stride,
                       int factor, __m256i *dot)
{
    const int safe = SH_SAFE_RUN(bits), run = safe < vecs ? safe : vecs;
    UNROLL (r, vecs / run) {
        __m256i sum[NT];
        UNROLL (v, run) {
            UNROLL (t, count) {
                __m256i x = four_codes(q + t * stride + 4 * (r * run + v));
                __m256i two = _mm256_maddubs_epi16(w[r * run + v], x);
                sum[t] = v == 0 ? two : _mm256_add_epi16(sum[t], two);
                if (count > 1) IN_ORDER(sum[t]);
            }
        }
        UNROLL (t, count) {
            __m256i four = _mm256_madd_epi16(sum[t], _mm256_set1_epi16((short)factor));
            dot[t] = r == 0 ? four : _mm256_add_epi32(dot[t], four);
        }
    }
}

INLINE void tokens_add(int bits, int step, int vecs, int count, bool first, const __m256i *w,
                       const int8_t *q, int factor, int32_t *dots)
{
    __m256i dot[NT];
    tokens_dot(bits, vecs, count, w, q, step, factor, dot);
    UNROLL (t, count) {
        __m256i *to = (__m256i *)(dots + t * ROWS);
        if (!first) dot[t] = _mm256_add_epi32(dot[t], _mm256_load_si256(to));
        _mm256_store_si256(to, dot[t]);
    }
}

/* Some columns of a step for all tokens; the first columns set the sums, the others add to them. */
INLINE void columns_dot(int bits, int step, int vecs, bool first, const __m256i *w, int col,
                        int factor, const struct walk *at, int32_t *dots)
{
    const int8_t *q = at->q + col;
    int left = at->tokens;
    for (; left >= NT; left -= NT, q += NT * step, dots += NT * ROWS)
        tokens_add(bits, step, vecs, NT, first, w, q, factor, dots);
    if (left > 0) tokens_add(bits, step, vecs, 1, first, w, q, factor, dots);
}

/* The dots of 8 rows with all columns of a step; for a step of 16, `part` is the half of the unit.
 * Codes of 8 bits are split as 16 * high + low. */
INLINE void half_dot(int bits, int step, const uint8_t *codes, int part, const struct walk *at,
                     int32_t *dots)
{
    const int unit = (bits == FP4 ? 4 : bits) * VEC, units = step > UNIT ? 2 : 1;
    const int vecs = step < UNIT ? step / 4 : 8;
    UNROLL (u, units) {
        __m256i w[8];
        open_unit(bits, codes + u * unit, w);
        if (bits == 8) {
            __m256i high[8];
            UNROLL (v, 8) {
                high[v] = moved(w[v], -4, 15);
                w[v] = moved(w[v], 0, 15);
            }
            columns_dot(bits, step, vecs, u == 0, w, u * UNIT, 1, at, dots);
            columns_dot(bits, step, vecs, false, high, u * UNIT, 16, at, dots);
        } else {
            columns_dot(bits, step, vecs, u == 0, w + part * 4, u * UNIT, 1, at, dots);
        }
    }
}

/* Adds the dots of a step to the outputs of 8 rows, in the order of operations that matrix.h
 * prescribes. */
INLINE void half_add(int bits, const sh_panel *p, const uint8_t *meta, int col, int half,
                     const struct walk *at)
{
    __m256 scale, bias = _mm256_setzero_ps();
    if (bits == FP4) {
        scale = scales_fp4(p, meta + col / p->quant.group * ROWS, half);
    } else {
        scale = scales_affine(p->quant.scale_dtype, meta, 0, half);
        bias = scales_affine(p->quant.scale_dtype, meta, 1, half);
    }
    for (int t = 0; t < at->tokens; t++) {
        __m256i dot = _mm256_load_si256((const __m256i *)(at->dots + t * ROWS + half * HALF));
        float *to = at->out + t * ROWS + half * HALF;
        __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(at->d[2 * t]));
        if (bits == FP4) dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(SH_FP4_ZERO * at->sum[t]));
        __m256 out = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, _mm256_load_ps(to));
        if (bits != FP4) out = _mm256_fmadd_ps(bias, _mm256_set1_ps(at->d[2 * t + 1]), out);
        _mm256_store_ps(to, out);
    }
}

INLINE void step_add(int bits, int step, const sh_panel *p, const uint8_t *codes,
                     const uint8_t *meta, int col, int part, struct walk *at)
{
    UNROLL (half, 2) {
        half_dot(bits, step, codes + half * VEC / 2, part, at, at->dots + half * HALF);
        half_add(bits, p, meta, col, half, at);
    }
    at->q += at->tokens * step;
    at->d += at->tokens * 2;
    at->sum += at->tokens;
}

/* A step of 16 (NVFP4) is half a unit: two steps for each opened unit. */
INLINE void block_add(int bits, int step, const sh_panel *p, const uint8_t *block, int cols,
                      struct walk *at)
{
    const size_t unit = (size_t)(bits == FP4 ? 4 : bits) * VEC;
    const uint8_t *meta = block + (size_t)((cols + UNIT - 1) / UNIT) * unit;
    const uint8_t *next = block + p->block_bytes * (at->tokens == 1 ? 1 : AHEAD);
    for (size_t i = 0; i < p->block_bytes; i += VEC)
        _mm_prefetch((const char *)next + i, _MM_HINT_T0);
    for (int c = 0; c < cols; c += step < UNIT ? UNIT : step) {
        const uint8_t *codes = block + (size_t)(c / UNIT) * unit;
        step_add(bits, step, p, codes, meta, c, 0, at);
        if (step < UNIT && c + step < cols) step_add(bits, step, p, codes, meta, c + step, 1, at);
    }
}

INLINE void dot_body(int bits, int step, const sh_panel *p, const uint8_t *w, int64_t rows,
                     const sh_acts *a, float *y, int64_t y_stride)
{
    _Alignas(32) float out[TILE * ROWS];
    _Alignas(32) int32_t dots[TILE * ROWS];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        const uint8_t *panel = w;
        for (int64_t row = 0; row < rows; row += ROWS, panel += p->panel_bytes) {
            struct walk at = {
                .q = a->q + t * a->steps * step,
                .d = a->d + t * a->steps * 2,
                .sum = a->sum + t * a->steps,
                .tokens = sh_acts_tile(a, t),
                .dots = dots,
                .out = out,
            };
            const uint8_t *block = panel;
            for (int i = 0; i < at.tokens; i++) __builtin_prefetch(y + row + i * y_stride, 1);
            memset(out, 0, sizeof(*out) * (size_t)(at.tokens * ROWS));
            for (int64_t left = p->cols; left > 0; left -= p->block_cols, block += p->block_bytes)
                block_add(bits, step, p, block, left < p->block_cols ? (int)left : p->block_cols,
                          &at);
            rows_store(out, at.tokens, rows - row, y + row, y_stride);
        }
    }
}

#include "kernels/cpu/dot_table.h"

/* The destination is write-only, so the instructions do not wait for each other. */
static int64_t spin(int64_t loops)
{
    __m256i acc[12], w = _mm256_set1_epi8(1);
    for (int64_t l = 0; l < loops; l++)
        UNROLL (i, 12) __asm__ volatile("vpmaddubsw %1, %1, %0" : "=x"(acc[i]) : "x"(w));
    return loops * 12 * 32 * 2;
}

const sh_matrix_kernels sh_matrix_avx2 = {
    .quantize = sh_quantize_avx2,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_avx2,
    .spin = spin,
};
