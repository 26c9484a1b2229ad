/* Which of several addresses is nearest; all of them are loopback. */
#include "net/address_race.h"

#include "net/interfaces.h"
#include "net/sock.h"

#include "test.h"

#include <math.h>

static sh_addr addr_of(const char *text)
{
    sh_addr addr;
    sh_err err;
    CHECK_OK(sh_addr_parse(text, &addr, &err), err);
    return addr;
}

static void finish(sh_address_race *race)
{
    sh_deadline end = sh_deadline_in_ms(20000);
    while (sh_address_race_step(race) != SH_OK) {
        assert_false(sh_deadline_passed(end));
        sh_sleep_ms(1);
    }
}

TEST(those_that_answer_come_before_those_that_do_not)
{
    UNUSED_STATE;
    sh_addr addr[3] = {addr_of("127.0.0.1:1"), addr_of("127.0.0.1:0"), addr_of("127.0.0.1:1")};
    sh_address_race race;
    sh_err err;
    int fd;
    CHECK_OK(sh_sock_listen(&addr[1], &fd, &err), err);
    CHECK_OK(sh_sock_local(fd, &addr[1], &err), err);
    sh_address_race_start(&race, addr, 3);
    finish(&race);
    assert_memory_equal(&race.addr[0], &addr[1], sizeof(sh_addr));
    assert_true(isfinite(race.rtt_us[0]) && race.rtt_us[0] >= 0);
    assert_true(isinf(race.rtt_us[1]) && isinf(race.rtt_us[2]));
    sh_address_race_reset(&race);
    sh_sock_close(fd);
}

TEST(a_race_that_nobody_answers_ends)
{
    UNUSED_STATE;
    sh_addr addr[2] = {addr_of("127.0.0.1:1"), addr_of("[::1]:1")};
    sh_address_race race;
    sh_address_race_start(&race, addr, 2);
    finish(&race);
    assert_true(isinf(race.rtt_us[0]) && isinf(race.rtt_us[1]));
    assert_memory_equal(&race.addr[0], &addr[0], sizeof(sh_addr)); /* the order stays */
    sh_address_race_reset(&race);
}

TEST(a_race_can_be_given_up)
{
    UNUSED_STATE;
    sh_addr addr[2] = {addr_of("127.0.0.1:1"), addr_of("192.0.2.1:1")};
    sh_address_race race;
    sh_address_race_start(&race, addr, 2);
    sh_address_race_reset(&race);
    assert_int_equal(race.count, 0);
}

TEST(loopback_is_no_address_for_others)
{
    UNUSED_STATE;
    sh_interfaces all;
    sh_addr here = addr_of("127.0.0.1:5");
    sh_err err;
    CHECK_OK(sh_interfaces_read(&all, &err), err);
    assert_false(sh_interfaces_have(&all, &here));
    for (int i = 0; i < all.addr_count; i++) {
        sh_addr same = all.addr[i];
        sh_addr_set_port(&same, 77);
        assert_true(sh_interfaces_have(&all, &same));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_answer_come_before_those_that_do_not),
        cmocka_unit_test(a_race_that_nobody_answers_ends),
        cmocka_unit_test(a_race_can_be_given_up),
        cmocka_unit_test(loopback_is_no_address_for_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
