/* dot_x86.h - kernels that several x86 levels share. */
#ifndef SH_KERNELS_CPU_DOT_X86_H
#define SH_KERNELS_CPU_DOT_X86_H

#include "kernels/cpu/matrix.h"

void sh_quantize_avx512(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                        int32_t *sum);
void sh_dot_f32_avx512(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                       float *y, int64_t y_stride);

extern const sh_matrix_kernels sh_matrix_avx512vnni;

#endif
