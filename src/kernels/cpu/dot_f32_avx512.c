/* Products with f32 activations for AVX-512, and the quantizer of activations.
 *
 * Plain panels are multiplied as they are stored; the blocks of quantized ones are first opened
 * into a small f32 panel (8 KiB at most). An output is one chain of fused multiply-adds over its
 * columns. A chain must not be split, or its bits would depend on the shape of the tile; several
 * panels (SIDE) or several tokens (WIDE) at a time keep enough chains in flight instead. */
#include "kernels/cpu/open_avx512.h"

/* ---- quantizing ---- */

/* Same bits as quantize in dot.c: cvtps rounds to nearest even like lrintf. */
void sh_quantize_avx512(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                        int32_t *sum)
{
    for (int64_t c = 0; c < cols; c += step, q += tile * step, d += tile * 2, sum += tile) {
        __m512 top = _mm512_setzero_ps();
        for (int i = 0; i < step; i += 16)
            top = _mm512_max_ps(top, _mm512_abs_ps(_mm512_loadu_ps(x + c + i)));
        float max = _mm512_reduce_max_ps(top);
        __m512 inverse = _mm512_set1_ps(sh_quant_inverse(max));
        __m512i total = _mm512_setzero_si512();
        for (int i = 0; i < step; i += 16) {
            __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + c + i), inverse);
            __m512i codes = _mm512_cvtps_epi32(scaled);
            _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtsepi32_epi8(codes));
            total = _mm512_add_epi32(total, codes);
        }
        d[0] = max / 127.0f;
        *sum = _mm512_reduce_add_epi32(total);
        d[1] = d[0] * (float)*sum;
    }
}

/* ---- opening blocks ---- */

/* Column `part` (0..3) of a vector of codes, as 32-bit integers. */
static inline __m512i column_codes(__m512i codes, int part)
{
    return _mm512_and_si512(_mm512_srlv_epi32(codes, _mm512_set1_epi32(8 * part)),
                            _mm512_set1_epi32(255));
}

/* E4M3 bits at the top of an f32, times 2^120 to correct the exponent bias. */
static inline __m512 e4m3_values(__m512i x)
{
    __m512i bits = _mm512_slli_epi32(_mm512_and_si512(x, _mm512_set1_epi32(0x7f)), 20);
    __m512i sign = _mm512_slli_epi32(_mm512_and_si512(x, _mm512_set1_epi32(0x80)), 24);
    __m512 value = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(value), sign));
}

static inline void open_codes(const sh_panel *p, const uint8_t *src, __m512i *w)
{
    switch (p->zero != 0 ? FP4 : p->bits) {
    case 2: open_unit(2, src, w); break;
    case 3: open_unit(3, src, w); break;
    case 4: open_unit(4, src, w); break;
    case 5: open_unit(5, src, w); break;
    case 6: open_unit(6, src, w); break;
    case 8: open_unit(8, src, w); break;
    default: open_unit(FP4, src, w); break;
    }
}

/* A weight is scale * (code - zero) + bias, with two roundings, as in sh_panel_open_f32. */
static inline void group_scales(const sh_panel *p, const uint8_t *meta, int group, __m512 *scale,
                                __m512 *bias)
{
    *bias = _mm512_setzero_ps();
    if (p->quant.format == SH_FORMAT_AFFINE) {
        *scale = scales_affine(p->quant.scale_dtype, meta, 0);
        *bias = scales_affine(p->quant.scale_dtype, meta, 1);
    } else if (p->quant.format == SH_FORMAT_MXFP8) {
        *scale = scales_e8m0(meta + group * ROWS);
    } else {
        *scale = scales_fp4(p, meta + group * ROWS);
    }
}

static inline void open_half(const sh_panel *p, const __m512i *w, __m512 scale, __m512 bias,
                             float *out)
{
    __m512i zero = _mm512_set1_epi32(p->zero);
    for (int c = 0; c < UNIT / 2; c++) {
        __m512i code = column_codes(w[c / 4], c % 4);
        __m512 value = p->quant.format == SH_FORMAT_MXFP8
                           ? e4m3_values(code)
                           : _mm512_cvtepi32_ps(_mm512_sub_epi32(code, zero));
        _mm512_store_ps(out + c * ROWS, _mm512_add_ps(_mm512_mul_ps(scale, value), bias));
    }
}

static void open_block(const sh_panel *p, const uint8_t *block, int cols, float *out)
{
    const uint8_t *meta = block + sh_panel_code_bytes(p, cols);
    for (int c = 0; c < cols; c += UNIT, block += p->bits * VEC) {
        __m512i w[SH_PANEL_UNIT_VECS];
        open_codes(p, block, w);
        for (int half = 0; half < 2; half++) { /* the smallest group is half a unit */
            int col = c + half * UNIT / 2;
            __m512 scale, bias;
            group_scales(p, meta, col / p->quant.group, &scale, &bias);
            open_half(p, w + half * 4, scale, bias, out + col * ROWS);
        }
    }
}

/* ---- columns times tokens ---- */

/* A BF16 number is the upper half of an f32: the odd column of a pair is there already, the even
 * one is shifted up. */
INLINE __m512 column(sh_format format, const uint8_t *panel, int64_t c)
{
    if (format == SH_FORMAT_F32) return _mm512_load_ps(panel + c * VEC);
    if (format == SH_FORMAT_F16)
        return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)(panel + c * VEC / 2)));
    __m512i pair = _mm512_load_si512(panel + c / 2 * VEC);
    if (c % 2 == 0) return _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
    return _mm512_castsi512_ps(_mm512_and_si512(pair, _mm512_set1_epi32((int)0xffff0000)));
}

/* `panels` x `tokens` sums over `cols` columns; all but cols and the addresses are constants.
 * `tile`: sums from one panel to the next. */
INLINE void columns_add(sh_format format, int panels, int tokens, const uint8_t *w, size_t stride,
                        const float *const *x, int64_t cols, float (*sums)[ROWS], int tile)
{
    __m512 sum[16];
    UNROLL (i, panels * tokens) sum[i] = _mm512_load_ps(sums[i / tokens * tile + i % tokens]);
    for (int64_t c = 0; c < cols; c += 2) {
        UNROLL (j, 2) {
            if (c + j == cols) break;
            UNROLL (i, panels) {
                __m512 v = column(format,
                                  w + (size_t)i * stride +
                                      (size_t)c * (format == SH_FORMAT_F32 ? VEC : VEC / 2),
                                  j);
                UNROLL (t, tokens)
                    sum[i * tokens + t] = _mm512_fmadd_ps(v, _mm512_set1_ps(x[t][c + j]),
                                                          sum[i * tokens + t]);
            }
        }
    }
    UNROLL (i, panels * tokens) _mm512_store_ps(sums[i / tokens * tile + i % tokens], sum[i]);
}

enum { WIDE = 8, SIDE = 4 };

/* Some tokens, `side` panels at once; side and tokens are constants. */
INLINE void tokens_add(sh_format format, int side, int tokens, int panels, const uint8_t *w,
                       size_t stride, const float *const *x, int64_t cols, float (*sums)[ROWS],
                       int tile)
{
    int i = 0;
    for (; i + side <= panels; i += side)
        columns_add(format, side, tokens, w + (size_t)i * stride, stride, x, cols, sums + i * tile,
                    tile);
    for (; i < panels; i++)
        columns_add(format, 1, tokens, w + (size_t)i * stride, stride, x, cols, sums + i * tile,
                    tile);
}

/* sums [panels][tokens]. Tokens take several panels side by side, the more the fewer they are. */
INLINE void panels_add(sh_format format, int panels, const uint8_t *w, size_t stride,
                       const float *const *x, int tokens, int64_t cols, float (*sums)[ROWS])
{
    int t = 0;
    for (; t + WIDE <= tokens; t += WIDE)
        tokens_add(format, 2, WIDE, panels, w, stride, x + t, cols, sums + t, tokens);
    x += t;
    sums += t;
    switch (tokens - t) {
    case 1: tokens_add(format, 4, 1, panels, w, stride, x, cols, sums, tokens); break;
    case 2: tokens_add(format, 4, 2, panels, w, stride, x, cols, sums, tokens); break;
    case 3: tokens_add(format, 4, 3, panels, w, stride, x, cols, sums, tokens); break;
    case 4: tokens_add(format, 4, 4, panels, w, stride, x, cols, sums, tokens); break;
    case 5: tokens_add(format, 2, 5, panels, w, stride, x, cols, sums, tokens); break;
    case 6: tokens_add(format, 2, 6, panels, w, stride, x, cols, sums, tokens); break;
    case 7: tokens_add(format, 2, 7, panels, w, stride, x, cols, sums, tokens); break;
    default: break;
    }
}

static void codes_add(const sh_panel *p, const uint8_t *w, const float *const *x, int tokens,
                      float (*sums)[ROWS])
{
    _Alignas(64) float open[SH_PANEL_BLOCK_MAX * SH_PANEL_ROWS];
    const float *at[TILE];
    for (int64_t c = 0; c < p->cols; c += p->block_cols, w += p->block_bytes) {
        int cols = p->cols - c < p->block_cols ? (int)(p->cols - c) : p->block_cols;
        for (int t = 0; t < tokens; t++) at[t] = x[t] + c;
        open_block(p, w, sh_panel_block_cols(p, c), open);
        panels_add(SH_FORMAT_F32, 1, (const uint8_t *)open, 0, at, tokens, cols, sums);
    }
}

static void tile_add(const sh_panel *p, const uint8_t *w, int panels, const float *const *x,
                     int tokens, float (*sums)[ROWS])
{
    switch (p->quant.format) {
    case SH_FORMAT_F32:
        panels_add(SH_FORMAT_F32, panels, w, p->panel_bytes, x, tokens, p->cols, sums);
        break;
    case SH_FORMAT_F16:
        panels_add(SH_FORMAT_F16, panels, w, p->panel_bytes, x, tokens, p->cols, sums);
        break;
    case SH_FORMAT_BF16:
        panels_add(SH_FORMAT_BF16, panels, w, p->panel_bytes, x, tokens, p->cols, sums);
        break;
    default:
        for (int i = 0; i < panels; i++)
            codes_add(p, w + (size_t)i * p->panel_bytes, x, tokens, sums + i * tokens);
    }
}

void sh_dot_f32_avx512(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                       float *y, int64_t y_stride)
{
    _Alignas(64) float sums[SIDE * TILE][ROWS];
    const float *x[TILE];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        int count = sh_acts_tile(a, t);
        for (int i = 0; i < count; i++) x[i] = sh_acts_x(a, t + i);
        for (int64_t row = 0; row < rows; row += SIDE * ROWS) {
            int64_t left = (rows - row + ROWS - 1) / ROWS, panels = left < SIDE ? left : SIDE;
            memset(sums, 0, sizeof(*sums) * (size_t)(panels * count));
            tile_add(p, w + (size_t)(row / ROWS) * p->panel_bytes, (int)panels, x, count, sums);
            for (int64_t i = 0; i < panels; i++)
                rows_store(sums[i * count], count, rows - row - i * ROWS, y + row + i * ROWS,
                           y_stride);
        }
    }
}
