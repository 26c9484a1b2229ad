/* Times the products of the CPU device, one line per case:
 *   bench_matmul [--level NAME] [--threads N] [--kind NAME|all] [--tokens N] [--shapes] [--hot]
 * GOP/s counts a multiplication and an addition as two operations; GB/s counts the bytes of the
 * panels read. The weights cycle through far more memory than the caches hold, as in a model,
 * unless --hot keeps them in the caches. --shapes runs all shapes, not only the first. The last
 * column is the time next to that of one token. With one thread it is the thread's own time that
 * counts, which other work on the machine disturbs little. */
#include "base/clock.h"
#include "kernels/cpu/peak.h"
#include "kernels/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 7 };
static size_t weights_min = (size_t)400 << 20;

struct kind {
    const char *name;
    sh_quant quant;
};

static const struct kind kinds[] = {
    {"q4g64", {SH_FORMAT_AFFINE, 4, 64, SH_DTYPE_BF16, 1}},
    {"q4g32", {SH_FORMAT_AFFINE, 4, 32, SH_DTYPE_BF16, 1}},
    {"q4g128", {SH_FORMAT_AFFINE, 4, 128, SH_DTYPE_BF16, 1}},
    {"q2g64", {SH_FORMAT_AFFINE, 2, 64, SH_DTYPE_BF16, 1}},
    {"q3g64", {SH_FORMAT_AFFINE, 3, 64, SH_DTYPE_BF16, 1}},
    {"q5g64", {SH_FORMAT_AFFINE, 5, 64, SH_DTYPE_BF16, 1}},
    {"q6g64", {SH_FORMAT_AFFINE, 6, 64, SH_DTYPE_BF16, 1}},
    {"q8g64", {SH_FORMAT_AFFINE, 8, 64, SH_DTYPE_BF16, 1}},
    {"mxfp4", {SH_FORMAT_MXFP4, 4, 32, SH_DTYPE_F32, 1}},
    {"nvfp4", {SH_FORMAT_NVFP4, 4, 16, SH_DTYPE_F32, 1}},
    {"mxfp8", {SH_FORMAT_MXFP8, 8, 32, SH_DTYPE_F32, 1}},
    {"bf16", {SH_FORMAT_BF16, 0, 0, SH_DTYPE_F32, 1}},
    {"f16", {SH_FORMAT_F16, 0, 0, SH_DTYPE_F32, 1}},
    {"f32", {SH_FORMAT_F32, 0, 0, SH_DTYPE_F32, 1}},
};

static const int64_t shapes[][2] = {{8192, 2048}, {2048, 8192}, {2048, 2048},
                                    {512, 2048},  {3072, 1024}, {256, 2048}};
static const int batches[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 512};

static sh_err err;

static void die_if(sh_status status)
{
    if (status == SH_OK) return;
    fprintf(stderr, "bench_matmul: %s\n", err.text);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Any bytes will do as weights, but floats must not be NaN or subnormal, which would be slow. */
static void fill(uint8_t *data, size_t size)
{
    uint32_t state = 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (uint8_t)(0x38 + (state >> 29));
    }
}

static int64_t now_ns(bool own)
{
    struct timespec t;
    if (!own) return sh_clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the best time of a product, in ns; `one_ns` is that of one token, 0 if not known. */
static double run_case(sh_device *dev, const struct kind *kind, int64_t rows, int64_t cols,
                       int tokens, bool own, double one_ns)
{
    sh_matrix m = {.quant = kind->quant, .rows = rows, .cols = cols, .count = 1};
    size_t bytes = m.stride = dev->ops->matrix_bytes(dev, &m.quant, rows, cols);
    size_t copies = (tokens > 8 ? weights_min / 8 : weights_min) / bytes + 1;
    void *data;
    die_if(dev->ops->map(dev, bytes * copies, "weights", &data, &err));
    fill(data, bytes * copies);
    size_t x_size = sizeof(float) * (size_t)(tokens * cols);
    size_t y_size = sizeof(float) * (size_t)(tokens * (rows + 16));
    void *x_data, *y_data;
    die_if(dev->ops->map(dev, x_size, "inputs", &x_data, &err));
    die_if(dev->ops->map(dev, y_size, "outputs", &y_data, &err));
    float *x = x_data, *y = y_data;
    for (int64_t i = 0; i < tokens * cols; i++) x[i] = (float)(i % 37 - 18) * 0.1f;
    double ns[RUNS];
    for (int run = 0; run < RUNS; run++) {
        int64_t start = now_ns(own);
        for (size_t i = 0; i < copies; i++) {
            m.data = (uint8_t *)data + i * bytes;
            sh_product product = {.w = &m, .y = {y, rows, sizeof(*y)}};
            dev->ops->matmul(dev, &product, 1, (sh_tensor){x, cols, sizeof(*x)}, tokens);
        }
        ns[run] = (double)(now_ns(own) - start) / (double)copies;
    }
    qsort(ns, RUNS, sizeof(ns[0]), by_size);
    double mid = ns[RUNS / 2];
    if (one_ns == 0) one_ns = ns[0];
    printf(
        "%-7s %6ld x %-5ld %4d tokens  %9.1f us  %7.1f GOP/s  %6.2f GB/s  (best %.1f us) %6.2f\n",
        kind->name, (long)rows, (long)cols, tokens, mid / 1e3,
        2.0 * (double)rows * (double)cols * tokens / mid, (double)bytes / mid, ns[0] / 1e3,
        ns[0] / one_ns);
    fflush(stdout);
    dev->ops->unmap(dev, x, x_size);
    dev->ops->unmap(dev, y, y_size);
    dev->ops->unmap(dev, data, bytes * copies);
    return ns[0];
}

static void run_shape(sh_device *dev, const struct kind *kind, const int64_t shape[2],
                      int only_tokens, bool own)
{
    double one_ns = 0;
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
        if (only_tokens != 0 && only_tokens != batches[b]) continue;
        double ns = run_case(dev, kind, shape[0], shape[1], batches[b], own, one_ns);
        if (batches[b] == 1) one_ns = ns;
    }
}

static void peaks(sh_device *dev)
{
    size_t size = weights_min;
    void *data;
    die_if(dev->ops->map(dev, size, "buffer", &data, &err));
    memset(data, 1, size);
    printf("peak: %.0f GOP/s int8, %.1f GB/s read\n", sh_peak_int8_gops(dev),
           sh_peak_read_gbps(dev, &(sh_peak_block){data, size}, 1));
    dev->ops->unmap(dev, data, size);
}

int main(int argc, char **argv)
{
    sh_device_opts opts = {.threads = 1};
    const char *only = "q4g64";
    bool all_shapes = false;
    int only_tokens = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--shapes") == 0) all_shapes = true;
        if (strcmp(argv[i], "--hot") == 0) weights_min = 0;
        if (i + 1 == argc) break;
        if (strcmp(argv[i], "--level") == 0) opts.level = argv[i + 1];
        if (strcmp(argv[i], "--threads") == 0) opts.threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--kind") == 0) only = argv[i + 1];
        if (strcmp(argv[i], "--tokens") == 0) only_tokens = atoi(argv[i + 1]);
    }
    sh_device *dev;
    die_if(sh_device_open(NULL, &opts, &dev, &err));
    sh_limits limits = {.tokens = 512, .cols = 8192};
    die_if(dev->ops->reserve(dev, &limits, &err));
    peaks(dev);
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        if (strcmp(only, "all") != 0 && strcmp(only, kinds[k].name) != 0) continue;
        for (size_t s = 0; s < (all_shapes ? sizeof(shapes) / sizeof(shapes[0]) : 1); s++)
            run_shape(dev, &kinds[k], shapes[s], only_tokens, opts.threads == 1);
    }
    dev->ops->close(dev);
    return 0;
}
