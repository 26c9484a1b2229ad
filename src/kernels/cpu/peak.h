/* peak.h - measures the limits of this machine: the yardstick for `shoal bench`.
 *
 * Both functions use all threads of the device and take a few tenths of a second.
 *
 * Threads: like an op of the device. */
#ifndef SH_KERNELS_CPU_PEAK_H
#define SH_KERNELS_CPU_PEAK_H

#include "kernels/device.h"

/* int8 multiplications and additions, in 10^9 per second, of a loop that has nothing but the
 * level's dot product instruction; 0 at a level without such a loop. */
double sh_peak_int8_gops(sh_device *dev);

typedef struct {
    const void *data;
    size_t size;
} sh_peak_block;

/* 10^9 bytes per second read from the blocks one after the other, which together should be much
 * larger than the caches (the weights of a model, for example). Each thread reads several streams
 * side by side; the best of several numbers of streams counts, each tried once. */
double sh_peak_read_gbps(sh_device *dev, const sh_peak_block *blocks, int count);

#endif
