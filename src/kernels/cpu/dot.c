/* The generic kernels of matrix products: the reference that every other level is tested against.
 */
#include "kernels/cpu/matrix.h"

#include <math.h>
#include <string.h>

enum { ROWS = SH_PANEL_ROWS, VEC = SH_PANEL_VEC, BLOCK = SH_PANEL_BLOCK_MAX, TILE = 16, PAD = 64 };

static void quantize_step(const float *x, int count, int8_t *q, float *d, float *dsum)
{
    float top = 0;
    int32_t sum = 0;
    for (int i = 0; i < count; i++) top = fmaxf(top, fabsf(x[i]));
    float scale = top / 127.0f, inverse = top > 0 ? 127.0f / top : 0;
    for (int i = 0; i < count; i++) {
        q[i] = (int8_t)lrintf(x[i] * inverse);
        sum += q[i];
    }
    *d = scale;
    *dsum = scale * (float)sum;
}

static void quantize(const float *x, int64_t cols, int step, int8_t *q, float *d, float *dsum)
{
    for (int64_t c = 0; c < cols; c += step) {
        int count = cols - c < step ? (int)(cols - c) : step;
        quantize_step(x + c, count, q + c, d++, dsum++);
    }
    memset(q + cols, 0, (size_t)((PAD - cols % PAD) % PAD));
}

/* What a step of columns adds to the 16 rows of one token. */
static void step_add(const uint8_t *codes, int step, const float *scale, const float *bias,
                     const int8_t *q, float d, float dsum, float *acc)
{
    int32_t dot[ROWS] = {0};
    for (int c = 0; c < step; c += 4, codes += VEC, q += 4)
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < 4; i++) dot[r] += codes[4 * r + i] * q[i];
    for (int r = 0; r < ROWS; r++) {
        acc[r] = fmaf((float)dot[r], scale[r] * d, acc[r]);
        acc[r] = fmaf(bias[r], dsum, acc[r]);
    }
}

static void block_add(const sh_panel *p, const uint8_t *block, int64_t first, const sh_acts *a,
                      int token, int tokens, float (*acc)[ROWS])
{
    uint8_t codes[BLOCK * ROWS];
    float scale[ROWS], bias[ROWS];
    int cols = sh_panel_block_cols(p, first);
    sh_panel_open_codes(p, block, cols, codes);
    for (int c = 0; c < cols && first + c < p->cols; c += p->step) {
        sh_panel_open_scales(p, block, cols, c, scale, bias);
        for (int r = 0; r < ROWS && p->zero != 0; r++) bias[r] = -(float)p->zero * scale[r];
        for (int t = 0; t < tokens; t++) {
            int64_t row = sh_acts_row(a, token + t), i = row * a->d_stride + (first + c) / p->step;
            step_add(codes + c / 4 * VEC, p->step, scale, bias,
                     a->q + row * a->q_stride + first + c, a->d[i], a->dsum[i], acc[t]);
        }
    }
}

static void dot_codes(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                      int tokens, float *y, int64_t y_stride)
{
    for (int64_t row = 0; row < rows; row += ROWS, w += p->panel_bytes)
        for (int t = 0; t < tokens; t += TILE) {
            float acc[TILE][ROWS] = {0};
            int count = tokens - t < TILE ? tokens - t : TILE;
            const uint8_t *block = w;
            for (int64_t c = 0; c < p->cols; c += p->block_cols, block += p->block_bytes)
                block_add(p, block, c, a, t, count, acc);
            size_t live = (size_t)(rows - row < ROWS ? rows - row : ROWS);
            for (int i = 0; i < count; i++)
                memcpy(y + (t + i) * y_stride + row, acc[i], live * sizeof(float));
        }
}

static void columns_add(const float *w, int count, const float *x, float *acc)
{
    for (int c = 0; c < count; c++)
        for (int r = 0; r < ROWS; r++) acc[r] += w[c * ROWS + r] * x[c];
}

static void dot_f32(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, int tokens,
                    float *y, int64_t y_stride)
{
    float open[BLOCK * ROWS];
    for (int64_t row = 0; row < rows; row += ROWS, w += p->panel_bytes)
        for (int t = 0; t < tokens; t += TILE) {
            float acc[TILE][ROWS] = {0};
            int count = tokens - t < TILE ? tokens - t : TILE;
            for (int64_t c = 0; c < p->cols; c += p->block_cols) {
                int cols = sh_panel_open_f32(p, w, c, open);
                for (int i = 0; i < count; i++)
                    columns_add(open, cols, a->x + sh_acts_row(a, t + i) * a->x_stride + c, acc[i]);
            }
            size_t live = (size_t)(rows - row < ROWS ? rows - row : ROWS);
            for (int i = 0; i < count; i++)
                memcpy(y + (t + i) * y_stride + row, acc[i], live * sizeof(float));
        }
}

const sh_matrix_kernels sh_matrix_generic = {
    .quantize = quantize,
    .dot_codes = dot_codes,
    .dot_f32 = dot_f32,
};
