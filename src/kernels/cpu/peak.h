/* peak.h - what this machine could do at best, measured: the ruler for `shoal bench`.
 *
 * Both use all threads of the device and take some tenths of a second.
 *
 * Threads: as an op of the device. */
#ifndef SH_KERNELS_CPU_PEAK_H
#define SH_KERNELS_CPU_PEAK_H

#include "kernels/device.h"

/* int8 multiplications and additions, in 10^9 a second, of a loop of nothing but the level's dot
 * product instruction; 0 at a level that has no such loop. */
double sh_peak_int8_gops(sh_device *dev);

/* 10^9 bytes a second read from `data`, which should be much larger than the caches (a model's
 * weights serve): the best of several numbers of streams read side by side by each thread, each
 * once. */
double sh_peak_read_gbps(sh_device *dev, const void *data, size_t size);

#endif
