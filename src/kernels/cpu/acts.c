#include "kernels/cpu/acts.h"

enum { PAD = 64 };

sh_acts sh_acts_place(sh_scratch *s, int64_t tokens, int64_t cols, int step)
{
    int64_t width = (cols + PAD - 1) / PAD * PAD, steps = width / step;
    return (sh_acts){
        .q = sh_scratch_take(s, (size_t)(tokens * width)),
        .d = sh_scratch_take(s, (size_t)(tokens * steps) * sizeof(float)),
        .dsum = sh_scratch_take(s, (size_t)(tokens * steps) * sizeof(float)),
        .q_stride = width,
        .d_stride = steps,
    };
}

bool sh_acts_are_codes(const sh_cpu *cpu, const sh_panel *p)
{
    return cpu->activations == SH_ACTIVATIONS_INT8 && sh_panel_has_codes(p);
}

void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int64_t t, const float *x, int64_t cols,
                  int step)
{
    cpu->level->matrix->quantize(x, cols, step, a->q + t * a->q_stride, a->d + t * a->d_stride,
                                 a->dsum + t * a->d_stride);
}

void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, int tokens, float *y, int64_t y_stride)
{
    const sh_matrix_kernels *k = cpu->level->matrix;
    sh_dot_fn dot = sh_acts_are_codes(cpu, p) ? k->dot_codes : k->dot_f32;
    dot(p, w, rows, a, tokens, y, y_stride);
}
