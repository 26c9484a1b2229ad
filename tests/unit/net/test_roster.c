/* The rules of membership, without a group. */
#include "net/roster.h"

#include "test.h"

static int missing_count(const sh_roster *r)
{
    int numbers[SH_RANKS_MAX];
    return sh_roster_missing(r, numbers);
}

/* These ranks set out to form: are some of them new? */
static bool has_new(sh_roster *r, const int *numbers, int count)
{
    sh_roster_begin(r);
    for (int i = 0; i < count; i++) sh_roster_try(r, numbers[i]);
    return sh_roster_has_new(r);
}

static int64_t wait_ms(const sh_roster *r)
{
    return sh_deadline_left_ms(sh_roster_without_at(r));
}

TEST(the_first_group_needs_all_and_lets_nobody_else_in)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 0);
    sh_roster_lost(&r); /* it could not form */
    assert_true(sh_roster_without_at(&r) == SH_DEADLINE_NEVER);
    assert_false(sh_roster_is_open(&r));
    for (int i = 0; i < 3; i++) assert_true(sh_roster_expects(&r, i));
    assert_false(sh_roster_expects(&r, 3));
}

TEST(a_lost_rank_is_waited_for_and_then_missing_until_it_comes_back)
{
    UNUSED_STATE;
    sh_roster r;
    int numbers[] = {0, 2, 1};
    sh_roster_init(&r, 3, 10000);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_lost(&r);
    assert_in_range(wait_ms(&r), 9000, 10000);
    assert_true(sh_roster_expects(&r, 1));
    sh_roster_formed(&r, numbers, 2);
    assert_int_equal(missing_count(&r), 1);
    assert_false(sh_roster_expects(&r, 1)); /* the next loss does not wait for it again */
    assert_true(sh_roster_is_open(&r));
    sh_roster_formed(&r, numbers, 3);
    assert_int_equal(missing_count(&r), 0);
    assert_true(sh_roster_expects(&r, 1));
}

TEST(attempts_that_fail_do_not_prolong_the_wait)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 2, 5000);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_lost(&r);
    sh_deadline first = sh_roster_without_at(&r);
    sh_sleep_ms(20);
    sh_roster_lost(&r);
    assert_true(sh_roster_without_at(&r) == first);
}

TEST(every_attempt_gives_living_ranks_a_moment)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 2, 0);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_lost(&r);
    assert_in_range(wait_ms(&r), 1000, 2000);
}

TEST(without_a_limit_a_lost_rank_is_waited_for)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 2, -1);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_lost(&r);
    assert_true(sh_roster_without_at(&r) == SH_DEADLINE_NEVER);
    sh_roster_expect(&r, 2); /* a new one is taken in, and rank 1 dies just then */
    sh_roster_reform(&r, 5000);
    assert_true(sh_roster_waits_for(&r, 1, true));
    assert_false(sh_roster_waits_for(&r, 2, true));
    sh_roster_came(&r, 1, false);
    assert_false(has_new(&r, (int[]){0, 1}, 2)); /* it cannot be kept out either */
}

TEST(where_memory_does_not_suffice_nobody_can_be_missing)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 0);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_need_all(&r);
    sh_roster_lost(&r);
    assert_true(sh_roster_expects(&r, 2));
    assert_true(sh_roster_without_at(&r) == SH_DEADLINE_NEVER);
    sh_roster_came(&r, 2, true);
    assert_true(sh_roster_without_at(&r) == SH_DEADLINE_NEVER);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_lost(&r);
    assert_true(sh_roster_without_at(&r) != SH_DEADLINE_NEVER);
}

TEST(where_memory_does_not_suffice_another_rank_may_help)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 0);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_need_all(&r);
    sh_roster_came(&r, 3, false); /* in place of rank 2 */
    assert_in_range(wait_ms(&r), 1000, 2000);
}

TEST(a_rank_that_left_is_not_missed_and_may_come_back)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 0);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_leave(&r, 2);
    assert_false(sh_roster_expects(&r, 2));
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    assert_int_equal(missing_count(&r), 0);
    sh_roster_expect(&r, 2); /* it would come back, and does not after all */
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_expect(&r, 2);
    sh_roster_came(&r, 2, false);
    sh_roster_close(&r);
    assert_int_equal(missing_count(&r), 0);
    assert_int_equal(sh_roster_left(&r), 1 << 2);
    assert_true(has_new(&r, (int[]){0, 1, 2}, 3)); /* the group has served without it */
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    assert_true(sh_roster_expects(&r, 2));
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    assert_int_equal(missing_count(&r), 1); /* this time it was lost */
}

TEST(ranks_without_a_number_get_one_that_stays_theirs)
{
    UNUSED_STATE;
    sh_roster r;
    const uint8_t a[SH_NODE_ID_LEN] = {1}, b[SH_NODE_ID_LEN] = {2}, none[SH_NODE_ID_LEN] = {0};
    sh_roster_init(&r, 2, 0);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    assert_int_equal(sh_roster_assign(&r, a), 2);
    assert_int_equal(sh_roster_assign(&r, b), 3);
    assert_int_equal(sh_roster_assign(&r, a), 2);
    sh_roster_expect(&r, 4); /* came with a number of its own */
    uint8_t next[SH_NODE_ID_LEN] = {3};
    assert_int_equal(sh_roster_assign(&r, next), 5);
    assert_int_equal(sh_roster_assign(&r, none), 6);
    sh_roster_expect(&r, 6);
    for (int i = 7; i < SH_RANKS_MAX; i++) {
        next[1] = (uint8_t)i;
        assert_int_equal(sh_roster_assign(&r, next), i);
    }
    next[1] = 99;
    assert_int_equal(sh_roster_assign(&r, next), 2); /* its rank never came in */
    for (int i = 1; i < SH_RANKS_MAX; i++) sh_roster_expect(&r, i);
    assert_int_equal(sh_roster_assign(&r, next), 2);
    next[1] = 100;
    assert_int_equal(sh_roster_assign(&r, next), -1);
    sh_roster_leave(&r, 9);
    assert_int_equal(sh_roster_assign(&r, next), 9);
}

TEST(new_ranks_that_do_not_fit_stay_out_for_longer_and_longer)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 2, 0);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_expect(&r, 2);
    assert_true(has_new(&r, (int[]){0, 1, 2}, 3));
    int64_t first_ms = sh_roster_close(&r);
    assert_false(sh_roster_is_open(&r));
    assert_false(sh_roster_expects(&r, 2));
    assert_true(sh_roster_expects(&r, 1));
    r.open_at = 0;
    assert_true(sh_roster_is_open(&r));
    assert_false(has_new(&r, (int[]){0, 1}, 2));
    sh_roster_formed(&r, (int[]){0, 1}, 2); /* without it: that says nothing of the next time */
    assert_int_equal(sh_roster_close(&r), 2 * first_ms);
    for (int i = 0; i < 99; i++) assert_in_range(sh_roster_close(&r), first_ms, 1000000);
    assert_true(has_new(&r, (int[]){0, 1, 2}, 3));
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    assert_int_equal(sh_roster_close(&r), first_ms);
}

TEST(a_rank_that_comes_back_and_does_not_fit_is_missing_again)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 0);
    sh_roster_formed(&r, (int[]){0, 1, 2}, 3);
    sh_roster_lost(&r);
    sh_roster_came(&r, 1, true);
    assert_false(has_new(&r, (int[]){0, 1, 2}, 3));
    sh_roster_came(&r, 2, false); /* another process */
    assert_true(has_new(&r, (int[]){0, 1, 2}, 3));
    sh_roster_close(&r);
    assert_true(sh_roster_expects(&r, 1));
    assert_false(sh_roster_expects(&r, 2));
    assert_int_equal(missing_count(&r), 1);
}

TEST(a_new_rank_that_does_not_come_after_all_is_not_missed)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 2, 0);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    sh_roster_expect(&r, 2);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    assert_int_equal(missing_count(&r), 0);
    assert_false(sh_roster_expects(&r, 2));
    assert_false(sh_roster_is_open(&r)); /* the next time it waits, not the group */
}

TEST(a_rank_0_that_takes_over_does_not_wait_for_ever)
{
    UNUSED_STATE;
    sh_roster r;
    sh_roster_init(&r, 3, 2000);
    sh_roster_resume(&r, 0); /* a rank came that had been in the group */
    assert_in_range(wait_ms(&r), 1500, 2000);
    sh_roster_formed(&r, (int[]){0, 1}, 2);
    assert_int_equal(missing_count(&r), 1);
    sh_roster_leave(&r, 2);
    sh_roster next;
    sh_roster_init(&next, 3, 2000);
    sh_roster_resume(&next, 0);                  /* from its supervisor */
    sh_roster_resume(&next, sh_roster_left(&r)); /* and from a rank, which knows who had left */
    assert_false(sh_roster_expects(&next, 2));
    sh_roster_formed(&next, (int[]){0, 1}, 2);
    assert_int_equal(missing_count(&next), 0);
}

/* ---- the first group of those who come ---- */

static const int64_t SECOND = 1000000000;

static bool asks(sh_roster *r, uint8_t node, uint64_t life, int64_t now_ns)
{
    sh_hello hello = {.node = {node}, .life = life};
    return sh_roster_invite(r, &hello, now_ns);
}

/* The node ids of members 1, 2, ... that are expected, as digits. */
static const char *members(const sh_roster *r)
{
    static char text[SH_RANKS_MAX + 1];
    int count = 0;
    for (int i = 1; i < SH_RANKS_MAX; i++)
        if (sh_roster_expects(r, i)) text[count++] = (char)('0' + r->member[i].node[0]);
    text[count] = '\0';
    return text;
}

static void gather(sh_roster *r, int min_ranks, int64_t wait_ms)
{
    sh_roster_init(r, 1, 0);
    sh_roster_gather(r, min_ranks, wait_ms);
}

TEST(without_a_number_or_a_time_the_first_group_forms_at_once)
{
    UNUSED_STATE;
    static sh_roster r;
    gather(&r, 0, -1);
    assert_false(r.gathering);
    gather(&r, 1, -1);
    assert_false(r.gathering);
    gather(&r, 0, 0);
    assert_false(r.gathering);
}

TEST(the_first_group_forms_when_there_are_enough_and_numbers_follow_node_ids)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 4, -1);
    assert_true(asks(&r, 7, 1, now) && asks(&r, 3, 2, now));
    assert_true(asks(&r, 3, 2, now)); /* once more */
    assert_false(sh_roster_settle(&r, now + 100 * SECOND));
    assert_int_equal(sh_roster_guests(&r, now), 2);
    assert_true(asks(&r, 7, 1, now + 10) && asks(&r, 3, 2, now + 10) && asks(&r, 5, 3, now + 10));
    assert_true(sh_roster_settle(&r, now + 20));
    assert_false(r.gathering);
    assert_string_equal(members(&r), "357");
    assert_int_equal(sh_roster_assign(&r, r.member[2].node), 2);
    assert_in_range(wait_ms(&r), 4000, 5000); /* for those who do not come after all */
    sh_roster_formed(&r, (int[]){0, 1, 3}, 3);
    assert_int_equal(missing_count(&r), 0);
}

TEST(after_its_time_it_forms_with_those_who_are_there)
{
    UNUSED_STATE;
    static sh_roster r;
    gather(&r, 4, 5000);
    int64_t now = sh_clock_ns();
    asks(&r, 1, 1, now);
    asks(&r, 2, 2, now + 3 * SECOND);
    assert_false(sh_roster_settle(&r, now + 3 * SECOND));
    assert_true(sh_roster_settle(&r, now + 5 * SECOND)); /* the first one is gone by then */
    assert_string_equal(members(&r), "2");
}

TEST(where_the_model_does_not_fit_another_rank_is_waited_for)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 0, -1);
    sh_roster_regather(&r, true); /* rank 0 alone */
    assert_false(sh_roster_settle(&r, now));
    asks(&r, 4, 1, now);
    assert_true(sh_roster_settle(&r, now));
    assert_string_equal(members(&r), "4");
    sh_roster_begin(&r);
    sh_roster_try(&r, 1);
    sh_roster_regather(&r, true);
    asks(&r, 4, 1, now + 1); /* the same again is of no use */
    assert_false(sh_roster_settle(&r, now + 1));
    asks(&r, 2, 2, now + 2);
    assert_true(sh_roster_settle(&r, now + 2));
    assert_string_equal(members(&r), "24");
}

TEST(those_who_were_lost_on_the_way_may_try_again)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 2, -1);
    asks(&r, 4, 1, now);
    assert_true(sh_roster_settle(&r, now));
    sh_roster_begin(&r);
    sh_roster_try(&r, 1);
    sh_roster_regather(&r, false);
    assert_true(r.gathering);
    asks(&r, 4, 1, now + 1);
    assert_true(sh_roster_settle(&r, now + 1));
}

TEST(a_rank_0_that_takes_over_does_not_gather)
{
    UNUSED_STATE;
    static sh_roster r;
    gather(&r, 3, -1);
    sh_roster_resume(&r, 0);
    assert_false(r.gathering);
    assert_true(r.formed);
}

TEST(of_two_guests_with_one_node_id_the_second_is_told_once_both_have_asked_for_a_while)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 3, -1);
    for (int i = 0; i < 6; i++) {
        assert_true(asks(&r, 1, 10, now + i * SECOND));
        assert_true(asks(&r, 1, 11, now + i * SECOND + 1));
        assert_int_equal(sh_roster_guests(&r, now + i * SECOND + 1), 1);
    }
    assert_true(asks(&r, 1, 10, now + 7 * SECOND));
    assert_false(asks(&r, 1, 11, now + 7 * SECOND));
    assert_true(asks(&r, 9, 11, now + 7 * SECOND)); /* it has a new one */
    assert_true(sh_roster_settle(&r, now + 7 * SECOND));
    assert_string_equal(members(&r), "19");
}

TEST(a_restarted_guest_keeps_its_node_id)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 3, -1);
    assert_true(asks(&r, 1, 10, now));
    for (int i = 1; i < 20; i++) assert_true(asks(&r, 1, 11, now + i * SECOND));
}

TEST(more_guests_than_ranks_ask_again)
{
    UNUSED_STATE;
    static sh_roster r;
    int64_t now = sh_clock_ns();
    gather(&r, 64, -1);
    for (int i = 0; i < 2 * SH_RANKS_MAX; i++) assert_true(asks(&r, (uint8_t)i, (uint64_t)i, now));
    assert_int_equal(sh_roster_guests(&r, now), SH_RANKS_MAX - 1);
    assert_true(sh_roster_settle(&r, now));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_group_needs_all_and_lets_nobody_else_in),
        cmocka_unit_test(a_lost_rank_is_waited_for_and_then_missing_until_it_comes_back),
        cmocka_unit_test(attempts_that_fail_do_not_prolong_the_wait),
        cmocka_unit_test(every_attempt_gives_living_ranks_a_moment),
        cmocka_unit_test(without_a_limit_a_lost_rank_is_waited_for),
        cmocka_unit_test(where_memory_does_not_suffice_nobody_can_be_missing),
        cmocka_unit_test(a_rank_that_left_is_not_missed_and_may_come_back),
        cmocka_unit_test(ranks_without_a_number_get_one_that_stays_theirs),
        cmocka_unit_test(where_memory_does_not_suffice_another_rank_may_help),
        cmocka_unit_test(new_ranks_that_do_not_fit_stay_out_for_longer_and_longer),
        cmocka_unit_test(a_rank_that_comes_back_and_does_not_fit_is_missing_again),
        cmocka_unit_test(a_new_rank_that_does_not_come_after_all_is_not_missed),
        cmocka_unit_test(a_rank_0_that_takes_over_does_not_wait_for_ever),
        cmocka_unit_test(without_a_number_or_a_time_the_first_group_forms_at_once),
        cmocka_unit_test(the_first_group_forms_when_there_are_enough_and_numbers_follow_node_ids),
        cmocka_unit_test(after_its_time_it_forms_with_those_who_are_there),
        cmocka_unit_test(where_the_model_does_not_fit_another_rank_is_waited_for),
        cmocka_unit_test(those_who_were_lost_on_the_way_may_try_again),
        cmocka_unit_test(a_rank_0_that_takes_over_does_not_gather),
        cmocka_unit_test(
            of_two_guests_with_one_node_id_the_second_is_told_once_both_have_asked_for_a_while),
        cmocka_unit_test(a_restarted_guest_keeps_its_node_id),
        cmocka_unit_test(more_guests_than_ranks_ask_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
