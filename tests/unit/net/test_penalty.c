#include "net/penalty.h"

#include "test.h"

static sh_addr address(const char *text)
{
    sh_addr addr;
    sh_err err;
    CHECK_OK(sh_addr_parse(text, &addr, &err), err);
    return addr;
}

static int64_t wait_ms(sh_penalty *penalty, const sh_addr *from)
{
    int64_t now = sh_clock_ns();
    return (sh_penalty_start(penalty, from) - now) / 1000000;
}

TEST(a_source_that_keeps_failing_waits_and_others_do_not)
{
    UNUSED_STATE;
    sh_penalty penalty = {0};
    sh_addr bad = address("10.0.0.1:1"), good = address("10.0.0.2:1");
    for (int i = 0; i < SH_PENALTY_FREE_TRIES; i++) {
        assert_int_equal(wait_ms(&penalty, &bad), 0);
        sh_penalty_add(&penalty, &bad);
    }
    assert_int_equal(wait_ms(&penalty, &bad), 0); /* its turn, but the next waits */
    assert_true(wait_ms(&penalty, &bad) > SH_PENALTY_PAUSE_MS / 2);
    assert_int_equal(wait_ms(&penalty, &good), 0);
}

TEST(no_wait_is_longer_than_a_connecting_rank_tolerates)
{
    UNUSED_STATE;
    enum { PATIENCE_MS = 2000 };
    sh_penalty penalty = {0};
    sh_addr from = address("10.0.0.1:1");
    for (int i = 0; i < SH_PENALTY_FREE_TRIES; i++) sh_penalty_add(&penalty, &from);
    for (int i = 0; i < 2000; i++) assert_true(wait_ms(&penalty, &from) < PATIENCE_MS);
}

TEST(machines_on_one_cable_are_distinguished)
{
    UNUSED_STATE;
    sh_addr a = address("[fe80::1]:1"), b = address("[fe80::2]:1");
    assert_false(sh_addr_same_host(&a, &b));
    sh_addr c = address("[2001:db8::1]:1"), d = address("[2001:db8::2]:1");
    assert_true(sh_addr_same_host(&c, &d)); /* one machine can use all of these */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_that_keeps_failing_waits_and_others_do_not),
        cmocka_unit_test(no_wait_is_longer_than_a_connecting_rank_tolerates),
        cmocka_unit_test(machines_on_one_cable_are_distinguished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
