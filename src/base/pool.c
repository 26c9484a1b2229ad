/* Two words are waited for: `round` by the workers (a new piece of work) and `pending` by the
 * caller (all are done); `met` is the same for the barrier. A waiter spins, then sleeps under the
 * lock; who changes a word looks for sleepers after the change. Both sides use sequentially
 * consistent order, so either the waiter sees the new word or the changer sees the sleeper. */
#include "base/pool.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Long enough to bridge the gap between two ops of a forward pass, short enough that a waiter
 * on a crowded machine soon hands its processor over. */
enum { SPIN_NS = 30000, SPINS_PER_LOOK = 64 };

struct worker {
    pthread_t thread;
    sh_pool *pool;
    int idx;
};

struct sh_pool {
    int threads;
    sh_pool_fn fn;
    void *arg;
    bool quit; /* written before `round`, read behind it */

    alignas(64) atomic_uint round;
    alignas(64) atomic_uint pending;
    alignas(64) atomic_size_t piece;
    alignas(64) atomic_uint met;
    atomic_uint arrived;

    alignas(64) atomic_uint sleepers;
    pthread_mutex_t lock; /* for sleeping only; the words above are atomics */
    pthread_cond_t changed;
    int started;
    struct worker workers[];
};

static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until the word is `want` (or, with `differ`, anything else). */
static void word_wait(sh_pool *pool, atomic_uint *word, unsigned want, bool differ)
{
#define REACHED ((atomic_load(word) == want) != differ)
    for (int64_t end = sh_clock_ns() + SPIN_NS; sh_clock_ns() < end;)
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (REACHED) return;
            cpu_relax();
        }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!REACHED) pthread_cond_wait(&pool->changed, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
#undef REACHED
}

static void sleepers_wake(sh_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    sh_pool *pool = w->pool;
    for (unsigned seen = 0;; seen++) {
        word_wait(pool, &pool->round, seen, true);
        if (pool->quit) return NULL;
        pool->fn(pool->arg, w->idx, pool->threads);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) sleepers_wake(pool);
    }
}

static void round_start(sh_pool *pool)
{
    atomic_store(&pool->pending, (unsigned)pool->started);
    atomic_fetch_add(&pool->round, 1);
    sleepers_wake(pool);
}

sh_status sh_pool_create(int threads, sh_pool **out, sh_err *err)
{
    SH_ASSERT(threads >= 1 && threads <= SH_POOL_THREADS_MAX);
    size_t size = sizeof(sh_pool) + (size_t)threads * sizeof(struct worker);
    sh_pool *pool = aligned_alloc(alignof(sh_pool), (size + 63) / 64 * 64);
    if (pool == NULL) return sh_err_set(err, SH_ERR_MEMORY, "no memory for a thread pool");
    *pool = (sh_pool){.threads = threads};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    for (int i = 1; i < threads; i++) {
        struct worker *w = &pool->workers[i];
        *w = (struct worker){.pool = pool, .idx = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            sh_err_set(err, SH_ERR_SYSTEM, "thread %d of %d could not be started", i + 1, threads);
            sh_pool_free(pool);
            return err->status;
        }
        pool->started++;
    }
    *out = pool;
    return SH_OK;
}

void sh_pool_free(sh_pool *pool)
{
    if (pool == NULL) return;
    pool->quit = true;
    round_start(pool);
    for (int i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

int sh_pool_threads(const sh_pool *pool)
{
    return pool->threads;
}

void sh_pool_run(sh_pool *pool, sh_pool_fn fn, void *arg)
{
    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->piece, 0, memory_order_relaxed);
    if (pool->started > 0) round_start(pool);
    fn(arg, 0, pool->threads);
    if (pool->started > 0) word_wait(pool, &pool->pending, 0, false);
}

size_t sh_pool_next(sh_pool *pool)
{
    return atomic_fetch_add_explicit(&pool->piece, 1, memory_order_relaxed);
}

void sh_pool_meet(sh_pool *pool)
{
    unsigned met = atomic_load(&pool->met);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == (unsigned)pool->threads) {
        atomic_store(&pool->arrived, 0);
        atomic_store_explicit(&pool->piece, 0, memory_order_relaxed);
        atomic_fetch_add(&pool->met, 1);
        sleepers_wake(pool);
    } else {
        word_wait(pool, &pool->met, met, true);
    }
}

int sh_cpu_count(void)
{
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : (int)count;
}
