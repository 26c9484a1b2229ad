/* The CPU as a device: opening, memory, and how the work of an op is spread over the pool. */
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

sh_status sh_device_open_cpu(const sh_cpu_opts *opts, sh_device **out, sh_err *err)
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
    free(cpu->next);
    free(cpu);
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

void sh_cpu_download(sh_device *dev, void *dst, const void *src, size_t size)
{
    (void)dev;
    memcpy(dst, src, size);
}

/* Host and device memory are the same here. */
void *sh_cpu_peek(sh_device *dev, const void *ptr)
{
    (void)dev;
    return (void *)(uintptr_t)ptr;
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
    sh_host_fn fn;
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

void sh_cpu_each(sh_cpu *cpu, size_t pieces, bool alone, sh_host_fn fn, void *arg)
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

void sh_cpu_host_each(sh_device *dev, size_t pieces, sh_host_fn fn, void *arg)
{
    sh_cpu_each(sh_cpu_of(dev), pieces, false, fn, arg);
}

int sh_cpu_host_threads(const sh_device *dev)
{
    return sh_pool_threads(((const sh_cpu *)dev)->pool);
}

const sh_row_kernels *sh_cpu_rows(const sh_device *dev)
{
    return &((const sh_cpu *)dev)->level->vector->rows;
}
