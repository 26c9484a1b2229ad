/* rows.h - passes over long rows of numbers in host memory, for whoever chooses among logits.
 *
 * A row is looked at in blocks of SH_ROW_BLOCK numbers. Every level and architecture gives the same
 * bits, and so does any cut of a row between two blocks. A device says by its op `rows` which
 * kernels suit the threads of host_each.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_KERNELS_ROWS_H
#define SH_KERNELS_ROWS_H

#include <stdbool.h>
#include <stdint.h>

enum { SH_ROW_BLOCK = 64 };

typedef struct {
    /* tops[b] = the largest number of block b, or -INFINITY; NaN is passed over. The last block may
     * be short. */
    void (*tops)(float *tops, const float *x, int64_t count);
    /* sums[b] = the sum of e^(x - max), to 2e-7, over whole block b; no x is above max. */
    void (*exps)(double *sums, const float *x, int64_t blocks, float max);
    /* Whether sh_mix64(key ^ id) is without all bits of `mask`, as far as these are among the upper
     * 31, for some id of the SH_ROW_BLOCK from `first` on. */
    bool (*noise_lacks)(uint64_t key, uint32_t first, uint64_t mask);
} sh_row_kernels;

#endif
