/* Who decides on shares, from what the ranks remember, and when shares change. */
#include "engine/balance.h"
#include "engine/shares.h"

#include "test.h"

#include <math.h>

static sh_rank_offer offer(int member, const char *host, double speed)
{
    sh_rank_offer o = {.resources = {100e9, speed}, .member = member};
    snprintf(o.host, sizeof(o.host), "%s", host);
    return o;
}

TEST(shares_are_remembered_for_exactly_the_members_they_were_for)
{
    UNUSED_STATE;
    sh_shares kept = {0};
    sh_rank_offer members[3] = {offer(0, "a", 1), offer(1, "b", 1), offer(4, "c", 1)};
    assert_false(sh_shares_are_for(&kept, members, 3));
    sh_shares_keep(&kept, 3, members, (const double[]){1, 2, 3}, 3);
    assert_true(sh_shares_are_for(&kept, members, 3));
    members[1].resources.speed = 7; /* measured again */
    assert_true(sh_shares_are_for(&kept, members, 3));
    assert_false(sh_shares_are_for(&kept, members, 2));
    members[2].member = 2;
    assert_false(sh_shares_are_for(&kept, members, 3));
    members[2] = offer(4, "d", 1);
    assert_false(sh_shares_are_for(&kept, members, 3));
    sh_shares_reset(&kept);
}

TEST(shares_come_back_from_a_file_and_count_while_they_fit)
{
    UNUSED_STATE;
    sh_shares kept = {0}, back = {0};
    sh_rank_offer members[2] = {offer(0, "a", 1), offer(3, "b", 1)};
    sh_buf bytes = {0};
    sh_err err;
    sh_shares_keep(&kept, 7, members, (const double[]){0.75, 0.25}, 2);
    sh_shares_pack(&kept, &bytes);
    CHECK_OK(sh_shares_unpack(sh_buf_str(&bytes), &back, &err), err);
    assert_int_equal(back.number, 7);
    assert_true(sh_shares_are_for(&back, members, 2));
    assert_memory_equal(back.shares, kept.shares, 2 * sizeof(double));
    for (size_t cut = 0; cut < bytes.len; cut++)
        assert_int_not_equal(sh_shares_unpack((sh_str){bytes.ptr, cut}, &back, &err), SH_OK);
    assert_true(sh_shares_fit_now(&back, members, 100e9));
    members[0].resources.memory = 60e9; /* less than it has to hold */
    assert_false(sh_shares_fit_now(&back, members, 100e9));
    sh_buf_reset(&bytes);
    sh_shares_reset(&kept);
    sh_shares_reset(&back);
}

TEST(the_newest_usable_shares_win)
{
    UNUSED_STATE;
    static const struct {
        sh_shares_vote votes[3];
        int rank;
        uint64_t number;
    } cases[] = {
        {{{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 0, 1},              /* a first group */
        {{{0, 0, 0}, {5, 5, 0}, {5, 5, 0}}, 1, 5},              /* a new rank 0 */
        {{{5, 5, 0}, {0, 0, 0}, {5, 5, 0}}, 0, 5},              /* a new rank 1 */
        {{{4, 4, 0}, {5, 5, 0}, {6, 0, 0}}, 1, 5},              /* 6 was for others */
        {{{6, 0, 0}, {6, 0, 0}, {0, 0, 0}}, 0, 7},              /* nobody knows these members */
        {{{5, 5, 0}, {5, 5, 5}, {5, 5, 0}}, 0, 6},              /* rank 1 could not load them */
        {{{4, 4, 0}, {5, 5, 0}, {5, 5, 5}}, 0, 4},              /* but the ones before */
        {{{5, SH_SHARES_MINE, 0}, {6, 6, 0}, {0, 0, 0}}, 0, 7}, /* --split */
        {{{5, 5, 0}, {5, SH_SHARES_MINE, 0}, {5, 5, 0}}, 0, 5}, /* not for rank 1 to say */
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        uint64_t number;
        assert_int_equal(sh_shares_elect(cases[i].votes, 3, &number), cases[i].rank);
        assert_int_equal(number, cases[i].number);
    }
}

TEST(equal_machines_get_equal_shares_and_memory_limits_all)
{
    UNUSED_STATE;
    sh_err err;
    double shares[3];
    sh_rank_offer members[3] = {offer(0, "a", 10), offer(1, "b", 7), offer(2, "c", 2)};
    CHECK_OK(sh_shares_decide(members, 3, 100e9, shares, &err), err);
    assert_true(shares[0] == shares[1]);
    assert_true(shares[2] > 0.199 * shares[0] && shares[2] < 0.201 * shares[0]);
    members[0].resources.memory = 20e9;
    CHECK_OK(sh_shares_fit(members, 3, 100e9, (const double[]){2, 1, 1}, shares, &err), err);
    assert_true(shares[0] < 0.201 && shares[1] > 0.399 && shares[2] > 0.399);
}

/* One window: `steps` more, in which rank i computed for times[i]. */
static void window(sh_balance *b, sh_rank_report *reports, int steps, const double *times)
{
    for (int i = 0; i < b->count; i++) {
        reports[i].steps += (uint64_t)steps;
        reports[i].compute_s += times[i];
    }
    sh_balance_add(b, reports);
}

static double slowest(const sh_balance *b, int rank)
{
    int got;
    double ratio = 0;
    assert_true(sh_balance_slowest(b, &got, &ratio));
    assert_int_equal(got, rank);
    return ratio;
}

TEST(a_rank_that_is_slow_for_long_gets_less)
{
    UNUSED_STATE;
    sh_balance b = {0};
    sh_rank_report reports[3];
    int rank;
    double ratio, out[3];
    sh_balance_reset(&b, 3);
    memset(reports, 0, sizeof(reports));
    assert_false(sh_balance_slowest(&b, &rank, &ratio));
    window(&b, reports, 0, (const double[]){0, 0, 0});
    assert_false(sh_balance_slowest(&b, &rank, &ratio));
    window(&b, reports, 100, (const double[]){1, 1, 1.6});
    assert_true(fabs(slowest(&b, 2) - 4.0 / 3) < 1e-9);
    assert_false(sh_balance_is_off(&b)); /* for now */
    for (int i = 0; i < 3; i++) window(&b, reports, 100, (const double[]){1, 1, 1.6});
    assert_true(sh_balance_is_off(&b));
    sh_balance_shares(&b, (const double[]){2, 2, 2}, out);
    assert_true(fabs(out[0] - 2.4) < 1e-9 && fabs(out[2] - 1.5) < 1e-9);

    sh_balance_restart(&b); /* the group re-formed: counters from 0, the memory stays */
    memset(reports, 0, sizeof(reports));
    window(&b, reports, 10, (const double[]){0.1, 0.1, 0.16});
    assert_true(fabs(slowest(&b, 2) - 4.0 / 3) < 1e-9);
    sh_balance_reset(&b, 0);
}

TEST(noise_and_pauses_do_not_count_as_slow)
{
    UNUSED_STATE;
    sh_balance b = {0};
    sh_rank_report reports[2];
    double out[2];
    sh_balance_reset(&b, 2);
    memset(reports, 0, sizeof(reports));
    for (int i = 0; i < 20; i++) window(&b, reports, 100, (const double[]){1, 1.04});
    assert_false(sh_balance_is_off(&b));
    window(&b, reports, 50, (const double[]){1, 100}); /* swapped out once */
    assert_false(sh_balance_is_off(&b));
    reports[1].compute_s = 0; /* a counter that runs backwards */
    window(&b, reports, 100, (const double[]){1, 1});
    assert_false(sh_balance_is_off(&b));

    /* Slow steps count for as long as they take, not as often as they come. */
    sh_balance_reset(&b, 2);
    memset(reports, 0, sizeof(reports));
    for (int i = 0; i < 10; i++) {
        window(&b, reports, 100, (const double[]){1, 1});
        window(&b, reports, 50, (const double[]){0.5, 1.5});
    }
    assert_true(slowest(&b, 1) > 1.2);

    /* However slow it is, one change is bounded. */
    for (int i = 0; i < 100; i++) window(&b, reports, 100, (const double[]){1, 50});
    assert_true(sh_balance_is_off(&b));
    sh_balance_shares(&b, (const double[]){1, 1}, out);
    assert_true(fabs(out[0] - 1.5) < 1e-9 && fabs(out[1] - 1 / 1.5) < 1e-9);
    sh_balance_reset(&b, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_remembered_for_exactly_the_members_they_were_for),
        cmocka_unit_test(shares_come_back_from_a_file_and_count_while_they_fit),
        cmocka_unit_test(the_newest_usable_shares_win),
        cmocka_unit_test(equal_machines_get_equal_shares_and_memory_limits_all),
        cmocka_unit_test(a_rank_that_is_slow_for_long_gets_less),
        cmocka_unit_test(noise_and_pauses_do_not_count_as_slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
