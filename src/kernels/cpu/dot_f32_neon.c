/* Products with f32 activations for arm64, and the quantizer of activations. Built like those for
 * AVX2 (dot_f32_avx2.c), but a column is four registers of 4 rows, and quantized panels are opened
 * by the generic code. */
#include "kernels/cpu/open_neon.h"

/* ---- quantizing ---- */

/* Same bits as quantize_step in dot.c: vcvtn rounds to nearest even like lrintf. */
static void quantize_step(const float *x, int count, int8_t *q, float *d, int32_t *sum)
{
    float32x4_t top = vdupq_n_f32(0);
    for (int i = 0; i < count; i += 4) top = vmaxnmq_f32(top, vabsq_f32(vld1q_f32(x + i)));
    float max = vmaxnmvq_f32(top), inverse = sh_quant_inverse(max);
    int32x4_t total = vdupq_n_s32(0);
    for (int i = 0; i < count; i += 8) {
        int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse));
        int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), inverse));
        vst1_s8(q + i, vqmovn_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))));
        total = vaddq_s32(total, vaddq_s32(a, b));
    }
    *sum = vaddvq_s32(total);
    d[0] = max / 127.0f;
    d[1] = d[0] * (float)*sum;
}

void sh_quantize_neon(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                      int32_t *sum)
{
    for (int64_t c = 0; c < cols; c += step, q += tile * step, d += tile * 2, sum += tile)
        quantize_step(x + c, step, q, d, sum);
}

/* ---- columns times tokens ---- */

/* Quarter `i` of column j (0 or 1) of the pair of columns at w. */
INLINE float32x4_t column(sh_format format, const uint8_t *w, int j, int i)
{
    if (format == SH_FORMAT_F32) return vreinterpretq_f32_u8(vld1q_u8(w + j * VEC + i * 16));
    if (format == SH_FORMAT_F16) {
        uint8x8_t half = vld1_u8(w + j * VEC / 2 + i * 8);
        return vcvt_f32_f16(vreinterpret_f16_u8(half));
    }
    uint32x4_t pair = vreinterpretq_u32_u8(vld1q_u8(w + i * 16));
    if (j == 0) return vreinterpretq_f32_u32(vshlq_n_u32(pair, 16));
    return vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000)));
}

/* `tokens` (at most 4) x 16 sums over `cols` columns; tokens is a constant. */
INLINE void columns_add(sh_format format, int tokens, const uint8_t *w, const float *const *x,
                        int64_t cols, float *sums)
{
    const int bytes = format == SH_FORMAT_F32 ? VEC : VEC / 2;
    float32x4_t sum[16];
    UNROLL (i, 4 * tokens) sum[i] = vld1q_f32(sums + i * 4);
    for (int64_t c = 0; c < cols; c += 2, w += 2 * bytes) {
        UNROLL (j, 2) {
            if (c + j == cols) break;
            UNROLL (i, 4) {
                float32x4_t v = column(format, w, j, i);
                UNROLL (t, tokens) sum[4 * t + i] = vfmaq_n_f32(sum[4 * t + i], v, x[t][c + j]);
            }
        }
    }
    UNROLL (i, 4 * tokens) vst1q_f32(sums + i * 4, sum[i]);
}

INLINE void panel_add(sh_format format, const uint8_t *w, const float *const *x, int tokens,
                      int64_t cols, float *sums)
{
    for (; tokens >= 4; tokens -= 4, x += 4, sums += 4 * ROWS)
        columns_add(format, 4, w, x, cols, sums);
    for (; tokens > 0; tokens--, x++, sums += ROWS) columns_add(format, 1, w, x, cols, sums);
}

static void codes_add(const sh_panel *p, const uint8_t *w, const float *const *x, int tokens,
                      float *sums)
{
    float open[SH_PANEL_BLOCK_MAX * SH_PANEL_ROWS];
    const float *at[TILE];
    for (int64_t c = 0; c < p->cols; c += p->block_cols) {
        int cols = sh_panel_open_f32(p, w, c, open);
        for (int t = 0; t < tokens; t++) at[t] = x[t] + c;
        panel_add(SH_FORMAT_F32, (const uint8_t *)open, at, tokens, cols, sums);
    }
}

void sh_dot_f32_neon(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                     int64_t y_stride)
{
    float sums[TILE * ROWS];
    const float *x[TILE];
    for (int t = 0; t < a->tokens; t += TILE, y += TILE * y_stride) {
        int count = sh_acts_tile(a, t);
        const uint8_t *panel = w;
        for (int i = 0; i < count; i++) x[i] = sh_acts_x(a, t + i);
        for (int64_t row = 0; row < rows; row += ROWS, panel += p->panel_bytes) {
            memset(sums, 0, sizeof(*sums) * (size_t)(count * ROWS));
            switch (p->quant.format) {
            case SH_FORMAT_F32: panel_add(SH_FORMAT_F32, panel, x, count, p->cols, sums); break;
            case SH_FORMAT_F16: panel_add(SH_FORMAT_F16, panel, x, count, p->cols, sums); break;
            case SH_FORMAT_BF16: panel_add(SH_FORMAT_BF16, panel, x, count, p->cols, sums); break;
            default: codes_add(p, panel, x, count, sums);
            }
            rows_store(sums, count, rows - row, y + row, y_stride);
        }
    }
}
