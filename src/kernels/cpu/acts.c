/* Quantized activations, and the residuals that make narrow products more precise. */
#include "kernels/cpu/acts.h"

enum { STRIPE_MAX = 64 }; /* rows */

sh_acts sh_acts_place(sh_scratch *s, int tokens, int64_t cols, int step)
{
    bool planning = s->base == NULL;
    /* The plan is for all products of up to `cols` columns. Between these two limits the narrow
     * ones need more space, because of their residuals, than the widest. */
    if (planning && cols > SH_ACTS_NARROW && cols < 2 * SH_ACTS_NARROW) cols = SH_ACTS_NARROW;
    int64_t steps = (cols + step - 1) / step;
    int64_t low = cols <= SH_ACTS_NARROW ? tokens * steps : 0;
    size_t rows = (size_t)(tokens * steps + low);
    return (sh_acts){
        .tokens = tokens,
        .q = sh_scratch_take(s, rows * (size_t)step),
        .d = sh_scratch_take(s, rows * 2 * sizeof(float)),
        .sum = sh_scratch_take(s, rows * sizeof(int32_t)),
        .steps = steps,
        .low = low,
    };
}

sh_acts sh_acts_part(const sh_acts *a, int first, int count, int step)
{
    sh_acts part = *a;
    part.tokens = count;
    if (a->q != NULL) {
        part.q += first * a->steps * step;
        part.d += first * a->steps * 2;
        part.sum += first * a->steps;
    }
    if (a->pick != NULL)
        part.pick += first;
    else if (a->x != NULL)
        part.x += first * a->x_stride;
    return part;
}

bool sh_acts_are_codes(const sh_cpu *cpu, const sh_panel *p)
{
    return cpu->activations == SH_ACTIVATIONS_INT8 && sh_panel_has_codes(p);
}

/* The residual: what the codes of a token miss. */
static void residual_of(const float *x, int64_t count, int step, int tile, const int8_t *q,
                        const float *d, float *residual)
{
    for (int64_t c = 0; c < count; c += step, q += tile * step, d += tile * 2)
        for (int i = 0; i < step; i++) residual[c + i] = x[c + i] - d[0] * (float)q[i];
}

void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int t, int64_t col, const float *x,
                  int64_t count, int step)
{
    const sh_matrix_kernels *k = cpu->level->matrix;
    int first = t / SH_ACTS_TILE * SH_ACTS_TILE, tile = sh_acts_tile(a, first);
    int64_t row = first * a->steps + col / step * tile + (t - first);
    k->quantize(x, count, step, tile, a->q + row * step, a->d + row * 2, a->sum + row);
    if (a->low == 0) return;
    float residual[SH_ACTS_NARROW];
    residual_of(x, count, step, tile, a->q + row * step, a->d + row * 2, residual);
    row += a->low;
    k->quantize(residual, count, step, tile, a->q + row * step, a->d + row * 2, a->sum + row);
}

static sh_acts low_part(const sh_acts *a, int step)
{
    sh_acts low = *a;
    low.q += a->low * step;
    low.d += a->low * 2;
    low.sum += a->low;
    return low;
}

/* y += the product with the residuals, a stripe of rows and a tile of tokens at a time. It is
 * summed on its own and added at the end, so that the order of additions does not depend on the
 * tile. */
static void add_low(sh_dot_fn dot, const sh_panel *p, const uint8_t *w, int64_t rows,
                    const sh_acts *a, float *y, int64_t y_stride)
{
    float more[SH_ACTS_TILE * STRIPE_MAX];
    sh_acts low = low_part(a, p->step);
    for (int64_t row = 0; row < rows; row += STRIPE_MAX) {
        int64_t count = rows - row < STRIPE_MAX ? rows - row : STRIPE_MAX;
        const uint8_t *panel = w + (size_t)(row / SH_PANEL_ROWS) * p->panel_bytes;
        for (int t = 0; t < a->tokens; t += SH_ACTS_TILE) {
            sh_acts tile = sh_acts_part(&low, t, sh_acts_tile(a, t), p->step);
            dot(p, panel, count, &tile, more, STRIPE_MAX);
            for (int i = 0; i < tile.tokens; i++)
                for (int64_t r = 0; r < count; r++)
                    y[(t + i) * y_stride + row + r] += more[i * STRIPE_MAX + r];
        }
    }
}

void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, float *y, int64_t y_stride)
{
    const sh_matrix_kernels *k = cpu->level->matrix;
    bool codes = sh_acts_are_codes(cpu, p);
    sh_dot_fn dot = codes ? k->dot_codes : k->dot_f32;
    if (cpu->activations == SH_ACTIVATIONS_INT8 && p->quant.format == SH_FORMAT_BF16 &&
        k->dot_bf16 != NULL)
        dot = k->dot_bf16;
    dot(p, w, rows, a, y, y_stride);
    if (codes && a->low != 0) add_low(dot, p, w, rows, a, y, y_stride);
}
