/* The CPU as a device: opening, memory, and how the work of an op is spread over the pool. */
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

sh_status sh_cpu_open(const sh_device_opts *opts, sh_device **out, sh_err *err)
{
    int threads = opts->threads == 0 ? sh_cpu_count() : opts->threads;
    if (threads < 1 || threads > SH_POOL_THREADS_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "threads: %d is not in the range 1 to %d", threads,
                          SH_POOL_THREADS_MAX);
    sh_cpu *cpu = sh_alloc(sizeof(*cpu));
    cpu->base.ops = &sh_cpu_ops;
    cpu->activations = opts->activations;
    if (sh_cpu_level_find(opts->level, &cpu->level, err) != SH_OK) goto fail;
    if (sh_pool_create(threads, &cpu->pool, err) != SH_OK) goto fail;
    cpu->next = sh_alloc_array((size_t)threads, sizeof(*cpu->next));
    *out = &cpu->base;
    return SH_OK;

fail:
    sh_cpu_close(&cpu->base);
    return err->status;
}

void sh_cpu_close(sh_device *dev)
{
    if (dev == NULL) return;
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_mem_unmap(cpu->scratch, cpu->scratch_size);
    sh_pool_free(cpu->pool);
    sh_cpu_scan_free(cpu->scan);
    free(cpu->batch.positions);
    free(cpu->batch.long_rope);
    free(cpu->next);
    free(cpu);
}

sh_status sh_cpu_reserve(sh_device *dev, const sh_limits *limits, sh_err *err)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    size_t needs[] = {sh_cpu_matmul_scratch(cpu, limits), sh_cpu_experts_scratch(cpu, limits),
                      sh_cpu_route_scratch(limits), sh_cpu_kv_scratch(limits),
                      sh_cpu_attend_scratch(cpu, limits)};
    size_t size = 1;
    for (size_t i = 0; i < SH_COUNT_OF(needs); i++) size = needs[i] > size ? needs[i] : size;
    /* The new scratch is mapped before the old one goes, so that a failure changes nothing. */
    void *scratch;
    if (sh_mem_map(size, "kernel scratch", &scratch, err) != SH_OK) return err->status;
    sh_mem_unmap(cpu->scratch, cpu->scratch_size);
    cpu->scratch = scratch;
    cpu->scratch_size = size;
    cpu->limits = *limits;
    sh_cpu_scan_free(cpu->scan);
    cpu->scan = sh_cpu_scan_create(cpu, limits);
    free(cpu->batch.positions);
    free(cpu->batch.long_rope);
    cpu->batch.positions = sh_alloc_array((size_t)limits->tokens, sizeof(*cpu->batch.positions));
    cpu->batch.long_rope = sh_alloc_array((size_t)limits->tokens, sizeof(*cpu->batch.long_rope));
    return SH_OK;
}

const sh_device_batch *sh_cpu_step_begin(sh_device *dev, const sh_batch *batch)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_device_batch *b = &cpu->batch;
    int next = 0;
    SH_ASSERT(batch->tokens <= cpu->limits.tokens && batch->row_count <= cpu->limits.rows);
    b->in = *batch;
    for (int s = 0; s < batch->span_count; s++) {
        const sh_span *span = &batch->spans[s];
        SH_ASSERT(span->first == next && span->count > 0 && span->pos >= 0);
        next += span->count;
        SH_ASSERT(next <= batch->tokens);
        for (int i = 0; i < span->count; i++) {
            b->positions[span->first + i] = span->pos + i;
            b->long_rope[span->first + i] = span->long_rope;
        }
    }
    SH_ASSERT(next == batch->tokens);
    return b;
}

/* Ops have finished when they return. */
sh_status sh_cpu_step_end(sh_device *dev, const sh_device_batch *b, sh_err *err)
{
    (void)dev;
    (void)b;
    (void)err;
    return SH_OK;
}

void *sh_scratch_take(sh_scratch *s, size_t size)
{
    uint8_t *ptr = s->base == NULL ? NULL : s->base + s->used;
    s->used += (size + ALIGN - 1) / ALIGN * ALIGN;
    return ptr;
}

struct each {
    sh_cpu *cpu;
    size_t pieces;
    sh_cpu_fn fn;
    void *arg;
};

/* Every thread starts on a run of adjacent pieces of its own, so that it reads one contiguous part
 * of the weights. A thread that is done early takes pieces from the runs of the others, so that a
 * descheduled thread delays a single piece. Relaxed atomics are enough: the counters only hand out
 * pieces, and sh_pool_run orders everything before and after. */
static void each_run(void *arg, int thread, int threads)
{
    struct each *e = arg;
    for (int i = 0; i < threads; i++) {
        size_t owner = (size_t)((thread + i) % threads);
        size_t end = e->pieces * (owner + 1) / (size_t)threads;
        atomic_size_t *next = &e->cpu->next[owner].piece;
        for (size_t piece;
             (piece = atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < end;)
            e->fn(e->arg, piece, thread);
    }
}

void sh_cpu_each(sh_cpu *cpu, size_t pieces, bool alone, sh_cpu_fn fn, void *arg)
{
    struct each e = {cpu, pieces, fn, arg};
    size_t threads = (size_t)sh_pool_threads(cpu->pool);
    if (alone || pieces <= 1) {
        for (size_t i = 0; i < pieces; i++) fn(arg, i, 0);
        return;
    }
    for (size_t i = 0; i < threads; i++)
        atomic_store_explicit(&cpu->next[i].piece, pieces * i / threads, memory_order_relaxed);
    sh_pool_run(cpu->pool, each_run, &e);
}
