/* What becomes of answers, and how many packets are looked at. Sockets are in
 * tests/cluster/test_join.sh. */
#include "discover/search.h"

#include "discover/limiter.h"

#include "test.h"

static sh_addr addr_of(const char *text)
{
    sh_addr addr;
    sh_err err;
    CHECK_OK(sh_addr_parse(text, &addr, &err), err);
    return addr;
}

static sh_answer_packet answer_of(uint8_t node, const char *listed)
{
    sh_answer_packet a = {.node = {node}, .port = 100, .addr_count = 1};
    a.addr[0] = addr_of(listed);
    return a;
}

static const char *addresses(const sh_answer_packet *found, const char *own)
{
    static char kept[512];
    sh_interfaces all = {.addr_count = own != NULL};
    sh_buf text = {0};
    if (own != NULL) all.addr[0] = addr_of(own);
    sh_found_addresses(found, &all, &text);
    snprintf(kept, sizeof(kept), "%s", text.len > 0 ? text.ptr : "");
    sh_buf_reset(&text);
    return kept;
}

TEST(a_rank_that_answers_over_several_interfaces_is_one_with_several_addresses)
{
    UNUSED_STATE;
    static sh_answer_packet list[SH_FOUND_MAX];
    int count = 0;
    sh_answer_packet a = answer_of(1, "10.0.0.1:100"), b = answer_of(2, "10.0.0.2:100");
    sh_addr from[] = {addr_of("10.0.0.1:32322"), addr_of("10.1.0.1:32322"),
                      addr_of("127.0.0.1:32322"), addr_of("10.0.0.2:32322")};
    for (int i = 0; i < 3; i++) sh_found_add(list, &count, &a, &from[i]);
    sh_found_add(list, &count, &b, &from[3]);
    assert_int_equal(count, 2);
    assert_string_equal(addresses(&list[0], NULL), "10.1.0.1:100,10.0.0.1:100");
    assert_string_equal(addresses(&list[1], NULL), "10.0.0.2:100");
}

TEST(more_answers_and_addresses_than_fit_are_dropped)
{
    UNUSED_STATE;
    static sh_answer_packet list[SH_FOUND_MAX];
    int count = 0;
    sh_answer_packet a = answer_of(0, "10.0.0.1:100");
    for (int i = 0; i < 2 * SH_FOUND_MAX; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.3.0.%d:1", i + 1);
        sh_addr from = addr_of(text);
        a.node[1] = (uint8_t)i;
        sh_found_add(list, &count, &a, &from);
        sh_found_add(list, &count, &list[0], &from);
    }
    assert_int_equal(count, SH_FOUND_MAX);
    assert_int_equal(list[0].addr_count, SH_LANES_MAX);
}

/* Every machine with containers has 172.17.0.1: from there it leads nowhere. */
TEST(addresses_that_this_machine_has_too_are_left_out)
{
    UNUSED_STATE;
    static sh_answer_packet list[SH_FOUND_MAX];
    int count = 0;
    sh_answer_packet a = answer_of(1, "172.17.0.1:100");
    sh_addr from = addr_of("10.0.0.1:32322");
    sh_found_add(list, &count, &a, &from);
    assert_string_equal(addresses(&list[0], "172.17.0.1:0"), "10.0.0.1:100");
    assert_string_equal(addresses(&a, "172.17.0.1:0"), "172.17.0.1:100"); /* it is this machine */
}

static int taken(sh_limiter *l, const char *from, int tries, int64_t now_ns)
{
    sh_addr addr = addr_of(from);
    int count = 0;
    for (int i = 0; i < tries; i++) count += sh_limiter_take(l, &addr, now_ns);
    return count;
}

TEST(each_source_has_a_rate_and_all_together_have_one)
{
    UNUSED_STATE;
    static sh_limiter l;
    const int64_t second = 1000000000;
    sh_limiter_init(&l, 10, 25);
    assert_int_equal(taken(&l, "10.0.0.1:1", 100, second), 10);
    assert_int_equal(taken(&l, "10.0.0.1:2", 100, second), 0); /* another port, the same machine */
    assert_int_equal(taken(&l, "10.0.0.2:1", 100, second), 10);
    assert_int_equal(taken(&l, "10.0.0.3:1", 100, second), 5); /* the rest for all */
    assert_int_equal(taken(&l, "10.0.0.1:1", 100, second + second / 2), 5);
    assert_int_equal(taken(&l, "10.0.0.1:1", 100, 100 * second),
                     10); /* no more than one second's */
}

TEST(a_flood_of_sources_does_not_make_a_quiet_one_wait)
{
    UNUSED_STATE;
    static sh_limiter l;
    const int64_t second = 1000000000;
    sh_limiter_init(&l, 2, 1e6);
    for (int i = 0; i < 1000; i++) {
        char text[32];
        snprintf(text, sizeof(text), "10.9.%d.%d:1", i / 250, i % 250);
        assert_int_equal(taken(&l, text, 5, second + i), 2);
    }
    assert_int_equal(taken(&l, "10.0.0.1:1", 5, 2 * second), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_answers_over_several_interfaces_is_one_with_several_addresses),
        cmocka_unit_test(more_answers_and_addresses_than_fit_are_dropped),
        cmocka_unit_test(addresses_that_this_machine_has_too_are_left_out),
        cmocka_unit_test(each_source_has_a_rate_and_all_together_have_one),
        cmocka_unit_test(a_flood_of_sources_does_not_make_a_quiet_one_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
