/* acts.h - the activations of a product: placed in scratch, quantized once for all rows.
 *
 * An 8-bit code is off by 0.6 % of the root mean square of its step. Wide products tolerate that,
 * and a second code would double their time. Narrow ones (small models, low-rank products and heads
 * of large ones) take little time, so there the residual, what the codes miss, is quantized as
 * well, and the product is the sum of both.
 *
 * Threads: sh_acts_fill may run on several threads for different tokens or columns. */
#ifndef SH_KERNELS_CPU_ACTS_H
#define SH_KERNELS_CPU_ACTS_H

#include "kernels/cpu/cpu.h"

enum { SH_ACTS_NARROW = 512 }; /* columns; up to this many have residuals */

/* Space for the codes of `tokens` rows of `cols` numbers; while planning, it is only counted. */
sh_acts sh_acts_place(sh_scratch *s, int tokens, int64_t cols, int step);

/* Tokens [first, first + count) as an input of their own. Its tiles start at `first`. So it must be
 * filled through the part, or, if the whole was filled, first must be a multiple of SH_ACTS_TILE.
 */
sh_acts sh_acts_part(const sh_acts *a, int first, int count, int step);

/* True when products with panel p use int8 codes on this device. */
bool sh_acts_are_codes(const sh_cpu *cpu, const sh_panel *p);

/* Quantizes `count` numbers into columns [col, col + count) of token t; both are multiples of step.
 */
void sh_acts_fill(const sh_cpu *cpu, const sh_acts *a, int t, int64_t col, const float *x,
                  int64_t count, int step);

/* y[t, 0..rows) = panels * a, with the kernel for the format of the panel and the mode of the
 * device. */
void sh_acts_dot(const sh_cpu *cpu, const sh_panel *p, const uint8_t *w, int64_t rows,
                 const sh_acts *a, float *y, int64_t y_stride);

#endif
