#include "kernels/cpu/acts.h"

sh_acts sh_acts_place(sh_scratch *s, int tokens, int64_t cols, int step)
{
    int64_t steps = (cols + step - 1) / step;
    size_t rows = (size_t)(tokens * steps);
    return (sh_acts){
        .tokens = tokens,
        .q = sh_scratch_take(s, rows * (size_t)step),
        .d = sh_scratch_take(s, rows * 2 * sizeof(float)),
        .sum = sh_scratch_take(s, rows * sizeof(int32_t)),
        .steps = steps,
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

void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int t, int64_t col, const float *x,
                  int64_t count, int step)
{
    int first = t / SH_ACTS_TILE * SH_ACTS_TILE, tile = sh_acts_tile(a, first);
    int64_t row = first * a->steps + col / step * tile + (t - first);
    cpu->level->matrix->quantize(x, count, step, tile, a->q + row * step, a->d + row * 2,
                                 a->sum + row);
}

void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, float *y, int64_t y_stride)
{
    const sh_matrix_kernels *k = cpu->level->matrix;
    sh_dot_fn dot = sh_acts_are_codes(cpu, p) ? k->dot_codes : k->dot_f32;
    if (cpu->activations == SH_ACTIVATIONS_INT8 && p->quant.format == SH_FORMAT_BF16 &&
        k->dot_bf16 != NULL)
        dot = k->dot_bf16;
    dot(p, w, rows, a, y, y_stride);
}
