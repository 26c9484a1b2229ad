#include "http/peers.h"

#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static const int64_t MS = 1000000;

static uint64_t peer(const char *text)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = (in_port_t)rand()};
    if (inet_pton(AF_INET, text, &four.sin_addr) == 1)
        return sh_http_peer_of((struct sockaddr *)&four);
    assert_int_equal(inet_pton(AF_INET6, text, &six.sin6_addr), 1);
    return sh_http_peer_of((struct sockaddr *)&six);
}

TEST(tells_hosts_apart_but_not_their_ports_and_addresses)
{
    UNUSED_STATE;
    assert_true(peer("10.0.0.1") == peer("10.0.0.1"));
    assert_true(peer("10.0.0.1") == peer("::ffff:10.0.0.1"));
    assert_true(peer("10.0.0.1") != peer("10.0.0.2"));
    assert_true(peer("2001:db8::1") == peer("2001:db8::ffff:2"));
    assert_true(peer("2001:db8::1") != peer("2001:db8:0:1::1"));
}

TEST(makes_each_wrong_key_of_an_address_wait_longer)
{
    UNUSED_STATE;
    sh_http_peers peers = {0};
    static const int64_t waits[] = {0, 0, 0, 250, 500, 1000, 2000, 4000, 5000, 5000};
    int64_t now = 1000 * MS;
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++, now += MS)
        assert_int_equal(sh_http_peers_failed(&peers, 7, "there", now), waits[i]);
    assert_int_equal(sh_http_peers_failed(&peers, 8, "elsewhere", now), 0);
    now += (SH_HTTP_FORGIVE_MS + 1) * MS;
    assert_int_equal(sh_http_peers_failed(&peers, 7, "there", now), 0);
}

TEST(forgets_the_quietest_when_there_are_too_many)
{
    UNUSED_STATE;
    sh_http_peers peers = {0};
    int64_t now = 1000 * MS;
    for (int i = 0; i < 4; i++) sh_http_peers_failed(&peers, 1, "first", now += MS);
    for (uint64_t i = 0; i < 2 * SH_HTTP_PEERS_MAX; i++) {
        sh_http_peers_failed(&peers, 1000 + i, "flood", now += MS);
        if (i % 50 == 0) assert_true(sh_http_peers_failed(&peers, 1, "first", now += MS) > 0);
    }
    assert_int_equal(sh_http_peers_failed(&peers, 1000, "flood", now + MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_hosts_apart_but_not_their_ports_and_addresses),
        cmocka_unit_test(makes_each_wrong_key_of_an_address_wait_longer),
        cmocka_unit_test(forgets_the_quietest_when_there_are_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
