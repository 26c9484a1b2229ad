/* The memory of the CPU as a device: the process's own, and f32 for activations. */
#include "kernels/cpu/cpu.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/system.h"

#include <stdlib.h>
#include <string.h>

int64_t sh_cpu_memory_free(sh_device *dev)
{
    (void)dev;
    return sh_memory_available();
}

/* One thread over more than its caches hold, times the threads that still add to that. Good enough
 * to share out a model; `shoal bench` measures properly. */
double sh_cpu_read_speed(sh_device *dev)
{
    enum { WORDS = 8 << 20, THREADS_THAT_ADD = 4 };
    uint64_t *data = sh_alloc_array(WORDS, sizeof(*data)), sum = 0;
    for (size_t i = 0; i < WORDS; i += 512) data[i] = i; /* touch every page */
    int64_t start = sh_clock_ns();
    for (size_t i = 0; i < WORDS; i += 8) sum += data[i]; /* one word per cache line */
    double seconds = (double)(sh_clock_ns() - start) * 1e-9 + (sum == 1 ? 1e-9 : 0);
    free(data);
    int threads = sh_pool_threads(sh_cpu_of(dev)->pool);
    return WORDS * sizeof(*data) / seconds *
           (threads < THREADS_THAT_ADD ? threads : THREADS_THAT_ADD);
}

sh_status sh_cpu_map(sh_device *dev, size_t size, const char *what, void **out, sh_err *err)
{
    (void)dev;
    return sh_mem_map(size, what, out, err);
}

void sh_cpu_unmap(sh_device *dev, void *ptr, size_t size)
{
    (void)dev;
    sh_mem_unmap(ptr, size);
}

void sh_cpu_upload(sh_device *dev, void *dst, const void *src, size_t size)
{
    (void)dev;
    memcpy(dst, src, size);
}

void sh_cpu_copy(sh_device *dev, void *dst, const void *src, size_t size)
{
    (void)dev;
    memcpy(dst, src, size);
}

size_t sh_cpu_tensor_layout(sh_device *dev, int64_t rows, int64_t cols, sh_tensor *out)
{
    (void)dev;
    out->stride = cols;
    out->element_size = sizeof(float);
    return (size_t)(rows * cols) * sizeof(float);
}

void sh_cpu_read_rows(sh_device *dev, sh_tensor x, int64_t first, int64_t rows, int64_t cols,
                      float *out)
{
    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * cols, sh_cpu_f32(x) + (first + r) * x.stride,
               (size_t)cols * sizeof(float));
}

void sh_cpu_write_rows(sh_device *dev, sh_tensor x, int64_t rows, int64_t cols, const float *in)
{
    (void)dev;
    for (int64_t r = 0; r < rows; r++)
        memcpy(sh_cpu_f32(x) + r * x.stride, in + r * cols, (size_t)cols * sizeof(float));
}
