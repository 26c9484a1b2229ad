#include "base/pool.h"

#include "base/clock.h"

#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { PIECES = 1000, RUNS = 300 };

struct work {
    sh_pool *pool;
    atomic_int done[PIECES];
    atomic_int in;
    atomic_int out;
    int came; /* workers that came before this run; written by the caller */
    pthread_t thread;
};

static void take_pieces(void *arg, int thread, int threads)
{
    (void)thread, (void)threads;
    struct work *w = arg;
    for (size_t i; (i = sh_pool_next(w->pool)) < PIECES;) atomic_fetch_add(&w->done[i], 1);
}

static void check_pieces(int threads)
{
    sh_err err;
    struct work *w = calloc(1, sizeof(*w));
    CHECK_OK(sh_pool_create(threads, &w->pool, &err), err);
    assert_int_equal(sh_pool_threads(w->pool), threads);
    for (int run = 1; run <= RUNS; run++) {
        sh_pool_run(w->pool, take_pieces, w);
        for (int i = 0; i < PIECES; i++) assert_int_equal(w->done[i], run);
        if (run % 100 == 0) sh_sleep_ms(2); /* lets the workers fall asleep */
    }
    sh_pool_free(w->pool);
    free(w);
}

TEST(every_piece_is_done_once_in_every_run)
{
    UNUSED_STATE;
    for (int threads = 1; threads <= 5; threads++) check_pieces(threads);
}

/* Thread 0 is done when the first worker has come; workers stay inside for a while. */
static void stay(void *arg, int thread, int threads)
{
    (void)threads;
    struct work *w = arg;
    if (thread == 0) {
        while (atomic_load(&w->in) == w->came) sched_yield();
        return;
    }
    atomic_fetch_add(&w->in, 1);
    sh_sleep_ms(1);
    atomic_fetch_add(&w->out, 1);
}

TEST(a_run_ends_when_all_workers_inside_are_done)
{
    UNUSED_STATE;
    sh_err err;
    struct work *w = calloc(1, sizeof(*w));
    CHECK_OK(sh_pool_create(4, &w->pool, &err), err);
    for (int run = 0; run < RUNS; run++) {
        sh_pool_run(w->pool, stay, w);
        assert_int_equal(atomic_load(&w->out), atomic_load(&w->in));
        w->came = atomic_load(&w->in);
    }
    sh_pool_free(w->pool);
    free(w);
}

static atomic_int aside, released;

static void put_aside(int signal)
{
    (void)signal;
    atomic_store(&aside, 1);
    while (atomic_load(&released) == 0) sh_sleep_ms(1);
}

static void tell_thread(void *arg, int thread, int threads)
{
    (void)threads;
    struct work *w = arg;
    sigset_t usr1;
    if (thread == 0) {
        while (atomic_load(&w->in) == 0) sh_sleep_ms(1);
        return;
    }
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    w->thread = pthread_self();
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &usr1, NULL); /* workers block all signals */
    atomic_fetch_add(&w->in, 1);
}

/* A signal handler stops the worker, as if the scheduler had given its CPU to another thread. */
TEST(a_thread_that_is_put_aside_is_not_waited_for)
{
    UNUSED_STATE;
    sh_err err;
    struct work *w = calloc(1, sizeof(*w));
    signal(SIGUSR1, put_aside);
    alarm(60); /* a pool that waits for it would hang */
    CHECK_OK(sh_pool_create(2, &w->pool, &err), err);
    sh_pool_run(w->pool, tell_thread, w);
    pthread_kill(w->thread, SIGUSR1);
    while (atomic_load(&aside) == 0) sh_sleep_ms(1);
    for (int run = 1; run <= RUNS; run++) {
        sh_pool_run(w->pool, take_pieces, w);
        for (int i = 0; i < PIECES; i++) assert_int_equal(w->done[i], run);
    }
    atomic_store(&released, 1);
    sh_pool_free(w->pool);
    alarm(0);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once_in_every_run),
        cmocka_unit_test(a_run_ends_when_all_workers_inside_are_done),
        cmocka_unit_test(a_thread_that_is_put_aside_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
