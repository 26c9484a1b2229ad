#include "cluster/rendezvous.h"

#include "test.h"

#include <arpa/inet.h>

/* "10.0.0.1/24 fd00::1/64 ..." */
static sh_card card_of(const char *text)
{
    sh_card card = {0};
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *part = strtok(copy, " "); part != NULL; part = strtok(NULL, " ")) {
        sh_card_addr *addr = &card.addr[card.count++];
        char *slash = strchr(part, '/');
        *slash = '\0';
        bool six = strchr(part, ':') != NULL;
        assert_int_equal(inet_pton(six ? AF_INET6 : AF_INET, part, addr->bytes), 1);
        addr->len = six ? 16 : 4;
        addr->prefix = (uint8_t)atoi(slash + 1);
    }
    return card;
}

static int pick(const char *zero, const char *one, const char *two)
{
    sh_card cards[3] = {card_of(zero), card_of(one), card_of(two)};
    return sh_rendezvous_pick(cards, 3);
}

TEST(ranks_of_one_machine_meet_on_loopback)
{
    UNUSED_STATE;
    assert_int_equal(
        pick("10.0.0.1/24 10.9.0.1/16", "10.9.0.1/16 10.0.0.1/24", "10.0.0.1/24 10.9.0.1/16"), -1);
    assert_int_equal(pick("", "", ""), -1);
}

TEST(an_address_that_all_machines_reach_is_taken)
{
    UNUSED_STATE;
    assert_int_equal(
        pick("192.168.5.1/24 10.0.0.1/24", "10.0.0.2/24 192.168.6.1/24", "10.0.0.3/24"), 1);
    assert_int_equal(pick("192.168.5.1/24 fd00::1/64", "fd00::2/64", "fd00::3/64 192.168.5.9/24"),
                     1);
    assert_int_equal(
        pick("192.168.5.1/24 10.0.0.1/24", "192.168.5.1/24 10.0.0.1/24", "10.0.0.3/24"), 1);
}

TEST(an_address_that_every_machine_has_leads_nowhere)
{
    UNUSED_STATE;
    assert_int_equal(
        pick("172.17.0.1/16 10.0.0.1/24", "172.17.0.1/16 10.0.0.2/24", "172.17.0.1/16 10.0.0.3/24"),
        1);
}

TEST(with_routers_between_the_address_that_reaches_most_is_taken)
{
    UNUSED_STATE;
    assert_int_equal(pick("192.168.5.1/24 10.0.0.1/24", "10.0.0.2/24", "10.1.0.3/24"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_one_machine_meet_on_loopback),
        cmocka_unit_test(an_address_that_all_machines_reach_is_taken),
        cmocka_unit_test(an_address_that_every_machine_has_leads_nowhere),
        cmocka_unit_test(with_routers_between_the_address_that_reaches_most_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
