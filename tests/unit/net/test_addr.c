#include "net/addr.h"

#include "test.h"

TEST(splits_names_and_numbers_at_the_port)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        const char *host;
        int port;
    } cases[] = {
        {"10.0.0.1:9000", "10.0.0.1", 9000}, {"node-3.local:1", "node-3.local", 1},
        {"[::1]:65535", "::1", 65535},       {"[fe80::1%eth0]:80", "fe80::1%eth0", 80},
        {"localhost:0", "localhost", 0},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char host[SH_ADDR_HOST_MAX];
        uint16_t port;
        sh_err err;
        CHECK_OK(sh_addr_split(cases[i].text, host, &port, &err), err);
        assert_string_equal(host, cases[i].host);
        assert_int_equal(port, cases[i].port);
    }
}

TEST(refuses_what_has_no_clear_port)
{
    UNUSED_STATE;
    static const char *const bad[] = {"",        "host",    ":9000", "fe80::1:9000", "a:b",
                                      "a:65536", "a:-1",    "[::1]", "[]:1",         "a:1x",
                                      "::1",     "a: 9000", "a:",    "[::1:9000"};
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        char host[SH_ADDR_HOST_MAX];
        uint16_t port;
        sh_err err;
        if (sh_addr_split(bad[i], host, &port, &err) != SH_ERR_INPUT) fail_msg("took '%s'", bad[i]);
        if (strstr(err.text, bad[i]) == NULL) fail_msg("'%s' does not name it", err.text);
    }
    char host[SH_ADDR_HOST_MAX];
    uint16_t port;
    sh_err err;
    char name[600];
    memset(name, 'a', sizeof(name));
    memcpy(name + sizeof(name) - 3, ":1", 3);
    assert_int_equal(sh_addr_split(name, host, &port, &err), SH_ERR_INPUT);
}

TEST(formats_back_what_it_parsed)
{
    UNUSED_STATE;
    static const char *const texts[] = {"127.0.0.1:80", "[::1]:8100", "[2001:db8::5]:1",
                                        "0.0.0.0:0"};
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++) {
        sh_addr addr;
        sh_err err;
        char out[SH_ADDR_TEXT_MAX];
        CHECK_OK(sh_addr_parse(texts[i], &addr, &err), err);
        sh_addr_format(&addr, out);
        assert_string_equal(out, texts[i]);
        sh_addr_set_port(&addr, 7);
        assert_int_equal(sh_addr_port(&addr), 7);
    }
}

TEST(knows_loopback_and_any)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        bool loopback;
        bool any;
    } cases[] = {
        {"127.0.0.1:1", true, false},
        {"127.9.9.9:1", true, false},
        {"10.0.0.1:1", false, false},
        {"[::1]:1", true, false},
        {"[::ffff:127.0.0.1]:1", true, false},
        {"[::ffff:10.0.0.1]:1", false, false},
        {"0.0.0.0:1", false, true},
        {"[::]:1", false, true},
        {"[fe80::1]:1", false, false},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_addr addr;
        sh_err err;
        CHECK_OK(sh_addr_parse(cases[i].text, &addr, &err), err);
        assert_int_equal(sh_addr_is_loopback(&addr), cases[i].loopback);
        assert_int_equal(sh_addr_is_any(&addr), cases[i].any);
    }
}

TEST(resolves_localhost_and_names_what_it_cannot)
{
    UNUSED_STATE;
    sh_addr addr[SH_ADDR_HOST_MAX];
    int count = 0;
    sh_err err;
    CHECK_OK(sh_addr_resolve("localhost:9", 8, addr, &count, &err), err);
    assert_true(count >= 1);
    for (int i = 0; i < count; i++) assert_true(sh_addr_is_loopback(&addr[i]));
    CHECK_FAILS(sh_addr_resolve("no-such-host.invalid:9", 8, addr, &count, &err), err,
                "no-such-host.invalid:9");
    CHECK_FAILS(sh_addr_parse("localhost:9", &addr[0], &err), err, "localhost:9");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_names_and_numbers_at_the_port),
        cmocka_unit_test(refuses_what_has_no_clear_port),
        cmocka_unit_test(formats_back_what_it_parsed),
        cmocka_unit_test(knows_loopback_and_any),
        cmocka_unit_test(resolves_localhost_and_names_what_it_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
