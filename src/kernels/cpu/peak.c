/* Measures the two limits of the machine: memory bandwidth and integer dot products. */
#include "kernels/cpu/peak.h"

#include "base/clock.h"
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>

enum { ROUNDS = 4, SPIN_LOOPS = 2000000, LINE = 64, LINES = 4, STREAMS_MAX = 16 };

struct read {
    const uint8_t *data;
    size_t part; /* bytes of one stream */
    int streams; /* of one piece */
};

static atomic_uint_fast64_t sink; /* keeps the compiler from eliminating the reads */

/* One word per cache line is enough to fetch the line; four lines of each stream in turn. */
static void read_run(void *arg, size_t piece, int thread)
{
    const struct read *r = arg;
    const uint8_t *data = r->data + piece * r->part * (size_t)r->streams;
    uint64_t sum = 0, word;
    (void)thread;
    for (size_t at = 0; at + LINES * LINE <= r->part; at += LINES * LINE)
        for (int s = 0; s < r->streams; s++)
            for (int i = 0; i < LINES; i++) {
                __builtin_memcpy(&word, data + (size_t)s * r->part + at + (size_t)i * LINE,
                                 sizeof(word));
                sum += word;
            }
    atomic_fetch_add_explicit(&sink, sum, memory_order_relaxed);
}

/* How many streams per thread reach the full bandwidth depends on the CPU's prefetchers, so several
 * numbers are tried. */
double sh_peak_read_gbps(sh_device *dev, const sh_peak_block *blocks, int count)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    size_t threads = (size_t)sh_pool_threads(cpu->pool);
    double best = 0;
    for (int streams = 1; streams <= STREAMS_MAX; streams *= 2) {
        double bytes = 0;
        int64_t start = sh_clock_ns();
        for (int i = 0; i < count; i++) {
            size_t part = blocks[i].size / threads / (size_t)streams / LINE * LINE;
            struct read r = {blocks[i].data, part, streams};
            sh_cpu_each(cpu, threads, false, read_run, &r);
            bytes += (double)(part * threads * (size_t)streams);
        }
        double gbps = bytes / (double)(sh_clock_ns() - start);
        if (gbps > best) best = gbps;
    }
    return best;
}

struct spin {
    int64_t (*fn)(int64_t loops);
    atomic_llong ops;
};

static void spin_run(void *arg, size_t piece, int thread)
{
    struct spin *s = arg;
    (void)piece;
    (void)thread;
    atomic_fetch_add(&s->ops, s->fn(SPIN_LOOPS));
}

double sh_peak_int8_gops(sh_device *dev)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    size_t threads = (size_t)sh_pool_threads(cpu->pool);
    struct spin spin = {.fn = cpu->level->matrix->spin};
    double best = 0;
    for (int round = 0; round < ROUNDS && spin.fn != NULL; round++) {
        atomic_store(&spin.ops, 0);
        int64_t start = sh_clock_ns();
        sh_cpu_each(cpu, threads, false, spin_run, &spin);
        double gops = (double)atomic_load(&spin.ops) / (double)(sh_clock_ns() - start);
        if (gops > best) best = gops;
    }
    return best;
}
