/* Products with f32 activations for AVX2, and the quantizer of activations. Built like those for
 * AVX-512 (dot_f32_avx512.c), but a column is two registers of 8 rows. */
#include "kernels/cpu/open_avx2.h"

static inline float largest_of(__m256 x)
{
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
}

static inline int32_t sum_of(__m256i x)
{
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    sum = _mm_add_epi32(sum, _mm_unpackhi_epi64(sum, sum));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 1)));
}

/* Same bits as quantize in dot.c: cvtps rounds to nearest even like lrintf. */
void sh_quantize_avx2(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                      int32_t *sum)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int64_t c = 0; c < cols; c += step, q += tile * step, d += tile * 2, sum += tile) {
        __m256 top = _mm256_setzero_ps();
        for (int i = 0; i < step; i += 8)
            top = _mm256_max_ps(top, _mm256_andnot_ps(sign, _mm256_loadu_ps(x + c + i)));
        float max = largest_of(top);
        __m256 inverse = _mm256_set1_ps(sh_quant_inverse(max));
        __m256i total = _mm256_setzero_si256();
        for (int i = 0; i < step; i += 16) {
            __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + c + i), inverse));
            __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + c + i + 8), inverse));
            __m256i ab = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
            _mm_storeu_si128((__m128i *)(q + i), _mm_packs_epi16(_mm256_castsi256_si128(ab),
                                                                 _mm256_extracti128_si256(ab, 1)));
            total = _mm256_add_epi32(total, _mm256_add_epi32(a, b));
        }
        *sum = sum_of(total);
        d[0] = max / 127.0f;
        d[1] = d[0] * (float)*sum;
    }
}

/* ---- opening blocks ---- */

/* Column `part` (0..3) of a vector of codes, as 32-bit integers. */
static inline __m256i column_codes(__m256i codes, int part)
{
    return _mm256_and_si256(_mm256_srl_epi32(codes, _mm_cvtsi32_si128(8 * part)),
                            _mm256_set1_epi32(255));
}

/* E4M3 bits at the top of an f32, times 2^120 to correct the exponent bias. */
static inline __m256 e4m3_values(__m256i x)
{
    __m256i bits = _mm256_slli_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x7f)), 20);
    __m256i sign = _mm256_slli_epi32(_mm256_and_si256(x, _mm256_set1_epi32(0x80)), 24);
    __m256 value = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
    return _mm256_or_ps(value, _mm256_castsi256_ps(sign));
}

static inline void open_codes(const sh_panel *p, const uint8_t *src, __m256i *w)
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
static inline void group_scales(const sh_panel *p, const uint8_t *meta, int group, int half,
                                __m256 *scale, __m256 *bias)
{
    *bias = _mm256_setzero_ps();
    if (p->quant.format == SH_FORMAT_AFFINE) {
        *scale = scales_affine(p->quant.scale_dtype, meta, 0, half);
        *bias = scales_affine(p->quant.scale_dtype, meta, 1, half);
    } else if (p->quant.format == SH_FORMAT_MXFP8) {
        *scale = scales_e8m0(meta + group * ROWS, half);
    } else {
        *scale = scales_fp4(p, meta + group * ROWS, half);
    }
}

/* 16 columns of 8 rows. */
static inline void open_part(const sh_panel *p, const __m256i *w, __m256 scale, __m256 bias,
                             float *out)
{
    __m256i zero = _mm256_set1_epi32(p->zero);
    for (int c = 0; c < UNIT / 2; c++) {
        __m256i code = column_codes(w[c / 4], c % 4);
        __m256 value = p->quant.format == SH_FORMAT_MXFP8
                           ? e4m3_values(code)
                           : _mm256_cvtepi32_ps(_mm256_sub_epi32(code, zero));
        _mm256_store_ps(out + c * ROWS, _mm256_add_ps(_mm256_mul_ps(scale, value), bias));
    }
}

/* A whole block to f32, as [column][16 rows], one half of the rows at a time. */
static void open_block(const sh_panel *p, const uint8_t *block, int cols, float *out)
{
    const uint8_t *meta = block + sh_panel_code_bytes(p, cols);
    for (int c = 0; c < cols; c += UNIT, block += p->bits * VEC)
        for (int half = 0; half < 2; half++) {
            __m256i w[SH_PANEL_UNIT_VECS];
            open_codes(p, block + half * VEC / 2, w);
            for (int part = 0; part < 2; part++) { /* the smallest group is half a unit */
                int col = c + part * UNIT / 2;
                __m256 scale, bias;
                group_scales(p, meta, col / p->quant.group, half, &scale, &bias);
                open_part(p, w + part * 4, scale, bias, out + col * ROWS + half * HALF);
            }
        }
}

/* ---- columns times tokens ---- */

/* Half a column of a plain panel. A BF16 number is the upper half of an f32: the odd column of a
 * pair is there already, the even one is shifted up. */
INLINE __m256 column(sh_format format, const uint8_t *w, int c, int half)
{
    if (format == SH_FORMAT_F32) return _mm256_loadu_ps((const float *)(w + c * VEC) + half * HALF);
    if (format == SH_FORMAT_F16)
        return _mm256_cvtph_ps(
            _mm_loadu_si128((const __m128i *)(w + c * VEC / 2 + half * HALF * 2)));
    __m256i pair = load(w + c / 2 * VEC + half * HALF * 4);
    if (c % 2 == 0) return _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
    return _mm256_castsi256_ps(_mm256_and_si256(pair, _mm256_set1_epi32((int)0xffff0000)));
}

/* `panels` x `tokens` (together at most 6) x 16 sums over `cols` columns; both are constants.
 * `tile`: tokens of the sums from one panel to the next. */
INLINE void columns_add(sh_format format, int panels, int tokens, const uint8_t *w, size_t stride,
                        const float *const *x, int64_t cols, float *sums, int tile)
{
    const int bytes = format == SH_FORMAT_F32 ? VEC : VEC / 2;
    __m256 sum[12];
    UNROLL (i, panels)
        UNROLL (t, 2 * tokens)
            sum[2 * i * tokens + t] = _mm256_load_ps(sums + i * tile * ROWS + t * HALF);
    for (int64_t c = 0; c < cols; c += 2, w += 2 * bytes) {
        UNROLL (j, 2) {
            if (c + j == cols) break;
            UNROLL (i, panels) {
                const uint8_t *at = w + (size_t)i * stride;
                __m256 low = column(format, at, j, 0), high = column(format, at, j, 1);
                UNROLL (t, tokens) {
                    int k = 2 * (i * tokens + t);
                    __m256 xt = _mm256_broadcast_ss(x[t] + c + j);
                    sum[k] = _mm256_fmadd_ps(low, xt, sum[k]);
                    sum[k + 1] = _mm256_fmadd_ps(high, xt, sum[k + 1]);
                }
            }
        }
    }
    UNROLL (i, panels)
        UNROLL (t, 2 * tokens)
            _mm256_store_ps(sums + i * tile * ROWS + t * HALF, sum[2 * i * tokens + t]);
}

enum { WIDE = 4, SIDE = 4 };

/* Some tokens, `side` panels at once; side and tokens are constants. */
INLINE void tokens_add(sh_format format, int side, int tokens, int panels, const uint8_t *w,
                       size_t stride, const float *const *x, int64_t cols, float *sums, int tile)
{
    int i = 0;
    for (; i + side <= panels; i += side)
        columns_add(format, side, tokens, w + (size_t)i * stride, stride, x, cols,
                    sums + i * tile * ROWS, tile);
    for (; i < panels; i++)
        columns_add(format, 1, tokens, w + (size_t)i * stride, stride, x, cols,
                    sums + i * tile * ROWS, tile);
}

/* sums [panels][tokens]: four tokens at a time; fewer take several panels side by side, so that no
 * chain of sums waits for its own latency. */
INLINE void panels_add(sh_format format, int panels, const uint8_t *w, size_t stride,
                       const float *const *x, int tokens, int64_t cols, float *sums)
{
    int t = 0;
    for (; t + WIDE <= tokens; t += WIDE)
        tokens_add(format, 1, WIDE, panels, w, stride, x + t, cols, sums + t * ROWS, tokens);
    x += t;
    sums += t * ROWS;
    switch (tokens - t) {
    case 1: tokens_add(format, 4, 1, panels, w, stride, x, cols, sums, tokens); break;
    case 2: tokens_add(format, 2, 2, panels, w, stride, x, cols, sums, tokens); break;
    case 3: tokens_add(format, 2, 3, panels, w, stride, x, cols, sums, tokens); break;
    default: break;
    }
}

static void codes_add(const sh_panel *p, const uint8_t *w, const float *const *x, int tokens,
                      float *sums)
{
    _Alignas(32) float open[SH_PANEL_BLOCK_MAX * SH_PANEL_ROWS];
    const float *at[TILE];
    for (int64_t c = 0; c < p->cols; c += p->block_cols, w += p->block_bytes) {
        int cols = p->cols - c < p->block_cols ? (int)(p->cols - c) : p->block_cols;
        for (int t = 0; t < tokens; t++) at[t] = x[t] + c;
        open_block(p, w, sh_panel_block_cols(p, c), open);
        panels_add(SH_FORMAT_F32, 1, (const uint8_t *)open, 0, at, tokens, cols, sums);
    }
}

static void tile_add(const sh_panel *p, const uint8_t *w, int panels, const float *const *x,
                     int tokens, float *sums)
{
    size_t stride = p->panel_bytes;
    switch (p->quant.format) {
    case SH_FORMAT_F32:
        panels_add(SH_FORMAT_F32, panels, w, stride, x, tokens, p->cols, sums);
        break;
    case SH_FORMAT_F16:
        panels_add(SH_FORMAT_F16, panels, w, stride, x, tokens, p->cols, sums);
        break;
    case SH_FORMAT_BF16:
        panels_add(SH_FORMAT_BF16, panels, w, stride, x, tokens, p->cols, sums);
        break;
    default:
        for (int i = 0; i < panels; i++)
            codes_add(p, w + (size_t)i * stride, x, tokens, sums + i * tokens * ROWS);
    }
}

void sh_dot_f32_avx2(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                     int64_t y_stride)
{
    _Alignas(32) float sums[SIDE * TILE * ROWS];
    const float *x[TILE];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        int count = sh_acts_tile(a, t);
        for (int i = 0; i < count; i++) x[i] = sh_acts_x(a, t + i);
        for (int64_t row = 0; row < rows; row += SIDE * ROWS) {
            int64_t left = (rows - row + ROWS - 1) / ROWS;
            int panels = left < SIDE ? (int)left : SIDE;
            memset(sums, 0, sizeof(*sums) * (size_t)(panels * count * ROWS));
            tile_add(p, w + (size_t)(row / ROWS) * p->panel_bytes, panels, x, count, sums);
            for (int i = 0; i < panels; i++)
                rows_store(sums + i * count * ROWS, count, rows - row - i * ROWS,
                           y + row + i * ROWS, y_stride);
        }
    }
}
