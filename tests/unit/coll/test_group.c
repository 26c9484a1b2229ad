/* How a group ends: by a failure, by a deadline, by a rank that leaves, or as planned. */
#include "coll/coll.h"

#include "base/log.h"
#include "unit/ranks.h"

#include <poll.h>
#include <signal.h>

static sh_status open_group(ranks_one *one, int op_ms, const sh_transport *wanted, sh_group **group)
{
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.wanted = wanted;
    opts.op_ms = op_ms;
    opts.silence_ms = 10000; /* sanitizers and a busy machine are slow */
    return sh_group_open(&opts, group, &one->err);
}

static const sh_transport *wanted_of(const ranks_one *one)
{
    return one->arg;
}

static const sh_transport *const BOTH[] = {&sh_transport_tcp, &sh_transport_shm};

static void fail_on_rank_2(ranks_one *one)
{
    sh_group *group;
    float x[100] = {0};
    one->status = open_group(one, 20000, wanted_of(one), &group);
    if (one->status != SH_OK) return;
    if (one->rank == 2) {
        sh_sleep_ms(50);
        sh_group_fail(group, "rank 2: the disk is full");
    }
    one->status = sh_coll_allreduce(group, x, 1, 100, SH_CODEC_F32, &one->err);
    /* Whatever comes next fails at once, for the same reason. */
    sh_err err;
    int64_t start_ns = sh_clock_ns();
    if (sh_coll_barrier(group, &err) != SH_ERR_GROUP || strcmp(err.text, one->err.text) != 0 ||
        sh_group_check(group, &err) != SH_ERR_GROUP || sh_clock_ns() - start_ns > 100000000)
        one->status = SH_OK;
    struct pollfd p = {.fd = sh_group_fd(group), .events = POLLIN};
    if (poll(&p, 1, 0) != 1) one->status = SH_OK;
    sh_group_close(group);
}

TEST(a_failure_reaches_every_rank_also_those_that_wait)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(BOTH); i++) {
        ranks_one ranks[3];
        int64_t start_ns = sh_clock_ns();
        ranks_run(3, 3, fail_on_rank_2, (void *)(uintptr_t)BOTH[i], ranks);
        for (int r = 0; r < 3; r++) CHECK_FAILS(ranks[r].status, ranks[r].err, "the disk is full");
        assert_true(sh_clock_ns() - start_ns < 5000000000);
    }
}

static void sleep_on_rank_1(ranks_one *one)
{
    sh_group *group;
    one->status = open_group(one, one->rank == 0 ? 1000 : 20000, wanted_of(one), &group);
    if (one->status != SH_OK) return;
    one->status = sh_coll_barrier(group, &one->err);
    if (one->status == SH_OK && one->rank == 1)
        sh_sleep_ms(2000); /* heartbeats report its progress */
    if (one->status == SH_OK) one->status = sh_coll_barrier(group, &one->err);
    sh_group_close(group);
}

TEST(an_operation_that_is_late_names_the_rank_that_is_awaited)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(BOTH); i++) {
        ranks_one ranks[3];
        ranks_run(3, 3, sleep_on_rank_1, (void *)(uintptr_t)BOTH[i], ranks);
        for (int r = 0; r < 3; r++) {
            CHECK_FAILS(ranks[r].status, ranks[r].err, "barrier 1");
            CHECK_FAILS(ranks[r].status, ranks[r].err,
                        "waiting for rank 1 (which completed 1 oper");
        }
    }
}

static void leave_with_rank_1(ranks_one *one)
{
    sh_group *group;
    one->status = open_group(one, 20000, wanted_of(one), &group);
    if (one->status != SH_OK) return;
    one->status = sh_coll_barrier(group, &one->err);
    if (one->rank != 1) one->status = sh_coll_barrier(group, &one->err);
    sh_group_close(group);
}

TEST(a_rank_that_leaves_is_an_error_for_those_who_still_need_it)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(BOTH); i++) {
        ranks_one ranks[3];
        ranks_run(3, 3, leave_with_rank_1, (void *)(uintptr_t)BOTH[i], ranks);
        CHECK_OK(ranks[1].status, ranks[1].err);
        CHECK_FAILS(ranks[0].status, ranks[0].err, "rank 1 at");
        CHECK_FAILS(ranks[2].status, ranks[2].err, "rank 1 at");
    }
}

static void end_as_planned(ranks_one *one)
{
    sh_group *group;
    one->status = open_group(one, 20000, wanted_of(one), &group);
    for (int i = 0; i < 20 && one->status == SH_OK; i++)
        one->status = sh_coll_barrier(group, &one->err);
    if (one->rank == 1) sh_sleep_ms(50); /* the others leave before it */
    if (one->status == SH_OK) one->status = sh_group_check(group, &one->err);
    sh_group_close(group);
}

TEST(good_byes_are_no_failure)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(BOTH); i++) {
        ranks_one ranks[3];
        ranks_run(3, 3, end_as_planned, (void *)(uintptr_t)BOTH[i], ranks);
        for (int r = 0; r < 3; r++) CHECK_OK(ranks[r].status, ranks[r].err);
    }
}

static void send_a_long_plan(ranks_one *one)
{
    sh_group *group;
    sh_buf plan = {0};
    one->status = open_group(one, 20000, wanted_of(one), &group);
    if (one->status != SH_OK) return;
    if (one->rank == 0)
        for (int i = 0; i < 5000; i++) sh_buf_add_char(&plan, 'x');
    one->status = sh_coll_broadcast_buf(group, 0, &plan, one->rank == 0 ? 5000 : 4999,
                                        SH_DEADLINE_NEVER, &one->err);
    if (one->status == SH_OK) one->status = sh_coll_barrier(group, &one->err);
    sh_buf_reset(&plan);
    sh_group_close(group);
}

TEST(a_plan_longer_than_its_bound_ends_the_group)
{
    UNUSED_STATE;
    ranks_one ranks[2];
    ranks_run(2, 2, send_a_long_plan, (void *)(uintptr_t)BOTH[0], ranks);
    for (int r = 0; r < 2; r++) CHECK_FAILS(ranks[r].status, ranks[r].err, "plan 0 of 5000 bytes");
}

TEST(a_silence_that_is_too_short_to_beat_in_is_refused)
{
    UNUSED_STATE;
    sh_group_opts opts;
    sh_group *group;
    sh_err err;
    sh_group_opts_init(&opts);
    opts.silence_ms = 99;
    CHECK_FAILS(sh_group_open(&opts, &group, &err), err, "99 ms");
}

TEST(whether_a_group_can_form_again_depends_on_its_transport)
{
    UNUSED_STATE;
    sh_group_opts opts;
    sh_group_opts_init(&opts);
    assert_true(sh_group_opts_can_reform(&opts));
    assert_string_equal(sh_group_opts_backend(&opts), "ring");
    opts.mesh.wanted = &sh_transport_tcp;
    assert_true(sh_group_opts_can_reform(&opts));
    assert_string_equal(sh_group_opts_backend(&opts), "ring");
    opts.mesh.wanted = &sh_transport_mpi;
    assert_false(sh_group_opts_can_reform(&opts));
    assert_string_equal(sh_group_opts_backend(&opts), "mpi");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_reaches_every_rank_also_those_that_wait),
        cmocka_unit_test(an_operation_that_is_late_names_the_rank_that_is_awaited),
        cmocka_unit_test(a_rank_that_leaves_is_an_error_for_those_who_still_need_it),
        cmocka_unit_test(good_byes_are_no_failure),
        cmocka_unit_test(a_plan_longer_than_its_bound_ends_the_group),
        cmocka_unit_test(whether_a_group_can_form_again_depends_on_its_transport),
        cmocka_unit_test(a_silence_that_is_too_short_to_beat_in_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
