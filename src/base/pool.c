/* A plain barrier would make every op wait for the slowest worker, and on a shared machine that is
 * regularly a thread which is not even running. Here joining is optional instead. One atomic word
 * holds the number of the run and how many workers are inside: a worker that finds a run open adds
 * itself, and leaves when there is no more to do. The caller works too; when it finds nothing left
 * it closes the run and waits only for the workers inside. A descheduled worker therefore delays
 * nobody, unless it was descheduled in the middle of a piece.
 *
 * Run number and count share a word so that entering and closing cannot race: the compare-exchange
 * of a worker that comes too late fails, and it never touches fn and arg of a closed run.
 *
 * Waiting spins first, then sleeps under the lock. The waiter sets `sleepers` and then checks the
 * word; the other side changes the word and then checks `sleepers`. All of these accesses are
 * sequentially consistent, so at least one side sees the other's write and no wake-up is lost. */
#include "base/pool.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

/* Long enough to bridge the gap between two ops of a forward pass, short enough that a waiter on an
 * overcommitted machine soon yields its CPU. */
enum { SPIN_NS = 30000, SPINS_PER_LOOK = 64, REST_MS = 1 };

struct worker {
    pthread_t thread;
    sh_pool *pool;
    int idx;
};

/* The word: the number of workers inside in the low 16 bits; above them a counter that is odd while
 * a run is open. Opening and closing each add RUN_ONE. */
enum { INSIDE = 0xffff, RUN_ONE = 0x10000 };

struct sh_pool {
    int threads;
    sh_pool_fn fn;
    void *arg; /* fn and arg are only written while no run is open and no worker is inside */
    atomic_bool quit;

    alignas(64) _Atomic uint64_t word;
    atomic_int cpu; /* the CPU that the caller ran on when it opened the run */
    alignas(64) atomic_size_t piece;
    alignas(64) atomic_bool sleepers;
    pthread_mutex_t lock; /* only for sleeping on `changed` */
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

typedef bool (*word_is)(uint64_t word, uint64_t than);

static bool is_left(uint64_t word, uint64_t than)
{
    (void)than;
    return (word & INSIDE) == 0;
}

/* A run is open, and not the one this worker has already seen. */
static bool is_open(uint64_t word, uint64_t than)
{
    return (word & RUN_ONE) != 0 && word / RUN_ONE != than;
}

/* Waits until reached(word, than) holds and returns that word. */
static uint64_t word_wait(sh_pool *pool, word_is reached, uint64_t than, int64_t spin_ns)
{
    uint64_t word;
    for (int64_t end = sh_clock_ns() + spin_ns; sh_clock_ns() < end;)
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (reached(word = atomic_load(&pool->word), than)) return word;
            cpu_relax();
        }
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        atomic_store(&pool->sleepers, true);
        if (reached(word = atomic_load(&pool->word), than)) break;
        pthread_cond_wait(&pool->changed, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return word;
}

/* Called after the word has changed. Taking the lock ensures that a sleeper is either before its
 * check of the word, and will see the change, or already inside pthread_cond_wait. */
static void sleepers_wake(sh_pool *pool)
{
    if (!atomic_load(&pool->sleepers)) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->sleepers, false);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

/* Adds a worker to the run, unless it has been closed in the meantime. */
static bool run_enter(sh_pool *pool, uint64_t word)
{
    uint64_t run = word / RUN_ONE;
    while (word / RUN_ONE == run)
        if (atomic_compare_exchange_weak(&pool->word, &word, word + 1)) return true;
    return false;
}

/* On an overcommitted machine the scheduler may put a worker on the caller's CPU. There the two
 * only take turns, and the worker gains nothing: it sleeps once per run, and joins only if the run
 * is still open after that. */
static bool is_beside_caller(sh_pool *pool)
{
    int cpu = sh_cpu_now();
    return cpu >= 0 && cpu == atomic_load_explicit(&pool->cpu, memory_order_relaxed);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    sh_pool *pool = w->pool;
    for (uint64_t seen = 0, rested = 0;;) {
        uint64_t word = word_wait(pool, is_open, seen, is_beside_caller(pool) ? 0 : SPIN_NS);
        uint64_t run = word / RUN_ONE;
        if (atomic_load(&pool->quit)) return NULL;
        if (is_beside_caller(pool) && rested != run) {
            rested = run;
            sh_sleep_ms(REST_MS); /* the scheduler may wake it on another CPU */
            continue;
        }
        seen = run;
        if (!run_enter(pool, word)) continue;
        pool->fn(pool->arg, w->idx, pool->threads);
        word = atomic_fetch_sub(&pool->word, 1) - 1;
        /* Only the last worker to leave a closed run has somebody to wake: the caller. */
        if ((word & (INSIDE | RUN_ONE)) == 0) sleepers_wake(pool);
    }
}

static void run_open(sh_pool *pool)
{
    /* Stored only if it changed: workers poll this line, and a write would make them all miss. */
    int cpu = sh_cpu_now();
    if (cpu != atomic_load_explicit(&pool->cpu, memory_order_relaxed))
        atomic_store_explicit(&pool->cpu, cpu, memory_order_relaxed);
    atomic_fetch_add(&pool->word, RUN_ONE);
    sleepers_wake(pool);
}

/* After this no worker can enter, and once those inside have left, fn and arg may be replaced. */
static void run_close(sh_pool *pool)
{
    uint64_t word = atomic_fetch_add(&pool->word, RUN_ONE);
    if ((word & INSIDE) != 0) word_wait(pool, is_left, 0, SPIN_NS);
}

sh_status sh_pool_create(int threads, sh_pool **out, sh_err *err)
{
    SH_ASSERT(threads >= 1 && threads <= SH_POOL_THREADS_MAX);
    size_t size = sizeof(sh_pool) + (size_t)threads * sizeof(struct worker);
    /* Aligned to cache lines, so that words which different threads write do not share one. */
    sh_pool *pool = aligned_alloc(alignof(sh_pool), (size + 63) / 64 * 64);
    if (pool == NULL) return sh_err_set(err, SH_ERR_MEMORY, "no memory for a thread pool");
    *pool = (sh_pool){.threads = threads, .cpu = -1};
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    for (int i = 1; i < threads; i++) {
        struct worker *w = &pool->workers[i];
        *w = (struct worker){.pool = pool, .idx = i};
        if (sh_thread_start(&w->thread, worker_main, w) != 0) {
            sh_err_set(err, SH_ERR_SYSTEM, "cannot start thread %d of %d", i + 1, threads);
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
    atomic_store(&pool->quit, true);
    run_open(pool); /* wakes all workers; they check `quit` before they enter */
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
    if (pool->started > 0) run_open(pool);
    fn(arg, 0, pool->threads);
    if (pool->started > 0) run_close(pool);
}

size_t sh_pool_next(sh_pool *pool)
{
    return atomic_fetch_add_explicit(&pool->piece, 1, memory_order_relaxed);
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

int sh_cpu_now(void)
{
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}
