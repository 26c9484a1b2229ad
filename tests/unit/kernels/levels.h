/* levels.h - shared by the tests of vector kernels: the levels that this CPU supports, and random
 * numbers.
 *
 * Threads: one. */
#ifndef SH_TESTS_UNIT_KERNELS_LEVELS_H
#define SH_TESTS_UNIT_KERNELS_LEVELS_H

#include "kernels/device.h"

#include "test.h"

#include <math.h>

enum { LEVELS_MAX = 7 };

static inline bool level_opens(const char *name)
{
    sh_device *dev;
    sh_err err;
    if (sh_device_open(NULL, &(sh_device_opts){.threads = 1, .level = name}, &dev, &err) != SH_OK)
        return false;
    dev->ops->close(dev);
    return true;
}

/* Names of the levels that this CPU supports, lowest ("generic") first; returns their count. Levels
 * above avx512 and neon differ only in products with weights: product_levels_list has them too. */
static inline int levels_list(const char *names[LEVELS_MAX])
{
    static const char *const all[] = {"generic", "avx2", "avx512", "neon"};
    int count = 0;
    for (size_t i = 0; i < SH_COUNT_OF(all); i++)
        if (level_opens(all[i])) names[count++] = all[i];
    return count;
}

static inline int product_levels_list(const char *names[LEVELS_MAX])
{
    static const char *const more[] = {"avx512vnni", "avx512bf16", "dotprod", "i8mm"};
    int count = levels_list(names);
    for (size_t i = 0; i < SH_COUNT_OF(more); i++)
        if (level_opens(more[i])) names[count++] = more[i];
    return count;
}

static inline sh_device *level_open(const char *name, int threads, const sh_limits *limits)
{
    sh_device *dev;
    sh_err err;
    CHECK_OK(sh_device_open(NULL, &(sh_device_opts){.threads = threads, .level = name}, &dev, &err),
             err);
    CHECK_OK(dev->ops->reserve(dev, limits, &err), err);
    return dev;
}

/* Rows in host memory, as the CPU's ops see them. */
static inline sh_tensor tensor_of(const float *x, int64_t stride)
{
    return (sh_tensor){(void *)(uintptr_t)x, stride, sizeof(*x)};
}

/* A small generator of our own, so that a seed gives the same numbers everywhere. */
static inline uint32_t random_u32(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = *state ^ *state >> 33;
    return (uint32_t)(x * 0x9e3779b97f4a7c15u >> 32);
}

/* In -1..1 */
static inline float random_float(uint64_t *state)
{
    return (float)((double)random_u32(state) / 2147483648.0 - 1.0);
}

static inline float *random_floats(uint64_t *state, size_t count, float scale)
{
    float *x = malloc((count + 1) * sizeof(*x));
    for (size_t i = 0; i < count; i++) x[i] = random_float(state) * scale;
    return x;
}

static inline void check_near(const char *what, const float *got, const double *want, size_t count,
                              double bound)
{
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - want[i]) <= bound))
            fail_msg("%s: number %zu is %.9g, not %.9g within %.2g", what, i, (double)got[i],
                     want[i], bound);
}

static inline void check_same_bits(const char *what, const void *a, const void *b, size_t size)
{
    const uint8_t *x = a, *y = b;
    for (size_t i = 0; i < size; i++)
        if (x[i] != y[i]) fail_msg("%s: byte %zu of %zu differs", what, i, size);
}

/* FNV-1a of the bits; the same on every little-endian architecture. */
static inline uint64_t bits_hash(const void *data, size_t size, uint64_t hash)
{
    const uint8_t *p = data;
    if (hash == 0) hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

#endif
