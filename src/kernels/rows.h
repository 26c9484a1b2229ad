/* rows.h - passes over long rows of numbers in host memory, for sampling from logits.
 *
 * A row is processed in blocks of SH_ROW_BLOCK numbers. Every level and architecture gives the same
 * bits, and so does any split of a row between two blocks.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_KERNELS_ROWS_H
#define SH_KERNELS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

enum { SH_ROW_BLOCK = 64 };

typedef struct {
    /* tops[b] = the largest number of block b, -INFINITY if there is none; NaN is ignored. The last
     * block may be short. */
    void (*tops)(float *tops, const float *x, int64_t count);
    /* sums[b] = the sum of e^(x - max) over block b, accurate to 2e-7. Blocks are whole, and no x
     * is above max. */
    void (*exps)(double *sums, const float *x, int64_t blocks, float max);
    /* Whether sh_mix64(key ^ id) has none of the bits of `mask` for at least one id of
     * [first, first + SH_ROW_BLOCK). Only the upper 31 bits of the mask are used. */
    bool (*noise_lacks)(uint64_t key, uint32_t first, uint64_t mask);
} sh_row_kernels;

/* Those for the best instruction set of this CPU. */
const sh_row_kernels *sh_row_kernels_best(void);

#endif
