/* acts.h - activations on their way into products: placed in scratch, quantized once for all rows.
 *
 * A code of 8 bits misses its number by 0.6 % of a step's root mean square. Wide products bear
 * that, since a second code would double their time. Narrow ones (small models, low-rank products
 * and heads of large ones) take little time, so there what the codes miss is coded once more, and
 * the product is the sum of both.
 *
 * Threads: sh_acts_fill may run on several threads for different tokens or columns. */
#ifndef SH_KERNELS_CPU_ACTS_H
#define SH_KERNELS_CPU_ACTS_H

#include "kernels/cpu/cpu.h"

enum { SH_ACTS_NARROW = 512 }; /* columns; so many or fewer are coded twice */

/* Room for the codes of `tokens` rows of `cols` numbers; or, while planning, the count of it. */
sh_acts sh_acts_place(sh_scratch *s, int tokens, int64_t cols, int step);

/* Tokens [first, first + count) as an input of their own. They are tiled from `first` on: this is a
 * part of what was filled as a whole only if first is a multiple of SH_ACTS_TILE. */
sh_acts sh_acts_part(const sh_acts *a, int first, int count, int step);

/* True when products with panel p take int8 codes on this device. */
bool sh_acts_are_codes(const sh_cpu *cpu, const sh_panel *p);

/* Quantizes `count` numbers into columns [col, col + count) of token t; both are multiples of step.
 */
void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int t, int64_t col, const float *x,
                  int64_t count, int step);

/* y[t, 0..rows) = panels * a, by the kernel that the panel's format and the device's mode ask for.
 */
void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, float *y, int64_t y_stride);

#endif
