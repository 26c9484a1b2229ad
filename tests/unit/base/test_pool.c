#include "base/pool.h"

#include "base/clock.h"

#include "test.h"

#include <stdatomic.h>

enum { PIECES = 1000, RUNS = 300 };

struct work {
    sh_pool *pool;
    atomic_int done[PIECES];
    atomic_int met;
    atomic_int late;
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
        if (run % 100 == 0) sh_sleep_ms(2); /* lets the team fall asleep */
    }
    sh_pool_free(w->pool);
    free(w);
}

TEST(every_piece_is_done_once_in_every_run)
{
    UNUSED_STATE;
    for (int threads = 1; threads <= 5; threads++) check_pieces(threads);
}

static void meet_often(void *arg, int thread, int threads)
{
    (void)thread;
    struct work *w = arg;
    for (int i = 1; i <= 200; i++) {
        atomic_fetch_add(&w->met, 1);
        sh_pool_meet(w->pool);
        if (atomic_load(&w->met) < i * threads) atomic_fetch_add(&w->late, 1);
        sh_pool_meet(w->pool);
    }
}

TEST(nobody_passes_a_meeting_before_all_are_there)
{
    UNUSED_STATE;
    sh_err err;
    for (int threads = 1; threads <= 4; threads++) {
        struct work *w = calloc(1, sizeof(*w));
        CHECK_OK(sh_pool_create(threads, &w->pool, &err), err);
        sh_pool_run(w->pool, meet_often, w);
        assert_int_equal(w->late, 0);
        assert_int_equal(w->met, 200 * threads);
        sh_pool_free(w->pool);
        free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_done_once_in_every_run),
        cmocka_unit_test(nobody_passes_a_meeting_before_all_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
