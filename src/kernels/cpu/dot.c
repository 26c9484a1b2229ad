/* The generic kernels of matrix products, in plain C. They define the results: matrix.h states the
 * order of every sum, and the tests compare all other levels to this one. */
#include "kernels/cpu/matrix.h"

#include <math.h>
#include <string.h>

enum { ROWS = SH_PANEL_ROWS, VEC = SH_PANEL_VEC, BLOCK = SH_PANEL_BLOCK_MAX, TILE = SH_ACTS_TILE };

static void quantize_step(const float *x, int count, int8_t *q, float *d, int32_t *sum)
{
    float top = 0;
    for (int i = 0; i < count; i++) top = fmaxf(top, fabsf(x[i]));
    float inverse = sh_quant_inverse(top);
    *sum = 0;
    for (int i = 0; i < count; i++) {
        q[i] = (int8_t)lrintf(x[i] * inverse);
        *sum += q[i];
    }
    d[0] = top / 127.0f;
    d[1] = d[0] * (float)*sum;
}

static void quantize(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                     int32_t *sum)
{
    for (int64_t c = 0; c < cols; c += step, q += tile * step, d += tile * 2, sum += tile)
        quantize_step(x + c, step, q, d, sum);
}

/* Adds a step of columns to the 16 rows of one token. `less` is zero * sum(q): subtracting it from
 * the dot is the same as subtracting the zero from every code. fmaf, not a * b + c, whatever the
 * compiler's flags: all levels must round alike. */
static void step_add(const uint8_t *codes, int step, const float *scale, const float *bias,
                     const int8_t *q, const float *d, int32_t less, float *acc)
{
    int32_t dot[ROWS];
    for (int r = 0; r < ROWS; r++) dot[r] = -less;
    for (int c = 0; c < step; c += 4, codes += VEC, q += 4)
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < 4; i++) dot[r] += codes[4 * r + i] * q[i];
    for (int r = 0; r < ROWS; r++) {
        acc[r] = fmaf((float)dot[r], scale[r] * d[0], acc[r]);
        if (bias != NULL) acc[r] = fmaf(bias[r], d[1], acc[r]);
    }
}

/* Adds a block of one panel to the tokens of the tile that starts at token t. */
static void block_add(const sh_panel *p, const uint8_t *block, int64_t first, const sh_acts *a,
                      int t, float (*acc)[ROWS])
{
    uint8_t codes[BLOCK * ROWS];
    float scale[ROWS], bias[ROWS];
    int cols = sh_panel_block_cols(p, first), tile = sh_acts_tile(a, t);
    sh_panel_open_codes(p, block, cols, codes);
    for (int c = 0; c < cols && first + c < p->cols; c += p->step) {
        int64_t at = t * a->steps + (first + c) / p->step * tile;
        sh_panel_open_scales(p, block, cols, c, scale, bias);
        for (int i = 0; i < tile; i++, at++)
            step_add(codes + c / 4 * VEC, p->step, scale, p->zero == 0 ? bias : NULL,
                     a->q + at * p->step, a->d + 2 * at, p->zero * a->sum[at], acc[i]);
    }
}

static void store(float (*acc)[ROWS], int tile, int64_t rows, float *y, int64_t y_stride)
{
    size_t live = (size_t)(rows < ROWS ? rows : ROWS);
    for (int i = 0; i < tile; i++) memcpy(y + i * y_stride, acc[i], live * sizeof(float));
}

static void dot_codes(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                      int64_t y_stride)
{
    for (int64_t row = 0; row < rows; row += ROWS, w += p->panel_bytes)
        for (int t = 0; t < a->tokens; t += TILE) {
            float acc[TILE][ROWS] = {0};
            const uint8_t *block = w;
            for (int64_t c = 0; c < p->cols; c += p->block_cols, block += p->block_bytes)
                block_add(p, block, c, a, t, acc);
            store(acc, sh_acts_tile(a, t), rows - row, y + t * y_stride + row, y_stride);
        }
}

/* f32 products need not have the same bits at all levels, so this is not fused: fmaf is slow on a
 * CPU without the instruction. */
static void columns_add(const float *w, int count, const float *x, float *acc)
{
    for (int c = 0; c < count; c++)
        for (int r = 0; r < ROWS; r++) acc[r] += w[c * ROWS + r] * x[c];
}

static void dot_f32(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                    int64_t y_stride)
{
    float open[BLOCK * ROWS];
    for (int64_t row = 0; row < rows; row += ROWS, w += p->panel_bytes)
        for (int t = 0; t < a->tokens; t += TILE) {
            float acc[TILE][ROWS] = {0};
            int tile = sh_acts_tile(a, t);
            for (int64_t c = 0; c < p->cols; c += p->block_cols) {
                int cols = sh_panel_open_f32(p, w, c, open);
                for (int i = 0; i < tile; i++)
                    columns_add(open, cols, sh_acts_x(a, t + i) + c, acc[i]);
            }
            store(acc, tile, rows - row, y + t * y_stride + row, y_stride);
        }
}

const sh_matrix_kernels sh_matrix_generic = {
    .quantize = quantize,
    .dot_codes = dot_codes,
    .dot_f32 = dot_f32,
};
