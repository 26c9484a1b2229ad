/* acts.h - activations on their way into products: placed in scratch, quantized once for all rows.
 *
 * Threads: acts_fill may run on several threads for different tokens. */
#ifndef SH_KERNELS_CPU_ACTS_H
#define SH_KERNELS_CPU_ACTS_H

#include "kernels/cpu/cpu.h"

/* Room for `tokens` rows of `cols` numbers in the steps of a panel; or for the plan of it. */
sh_acts sh_acts_place(sh_scratch *s, int64_t tokens, int64_t cols, int step);

/* True when products with panel p take int8 codes on this device. */
bool sh_acts_are_codes(const sh_cpu *cpu, const sh_panel *p);

/* Quantizes row `x` into row t of `a`. */
void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int64_t t, const float *x, int64_t cols,
                  int step);

/* y[t, 0..rows) = panels * a, by the kernel that the panel's format and the device's mode ask for.
 */
void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, int tokens, float *y, int64_t y_stride);

#endif
