#include "http/origin.h"

#include "base/status.h"
#include "test.h"

TEST(knows_names_that_only_a_far_page_has)
{
    UNUSED_STATE;
    static const struct {
        const char *host;
        bool ours;
    } cases[] = {
        {"", true},
        {"localhost", true},
        {"localhost:8100", true},
        {"LOCALHOST.", true},
        {"app.LocalHost", true},
        {"127.0.0.1:8100", true},
        {"192.168.1.20", true},
        {"[::1]:8100", true},
        {"[::1]", true},
        {"box", true},
        {"Box.local:8100", true},
        {"own.example:1", true},
        {"proxy.example", true},
        {"a.b.example", true},
        {"b.example", false},
        {"evil", false},
        {"evil.local", false},
        {"evil.box.local", false},
        {"evil.example", false},
        {"evil.example:80", false},
        {"evil.example.", false},
        {"evilproxy.example", false},
        {"127.0.0.1.evil.example", false},
        {"1.2.3.4.5", false},
        {"localhost.evil", false},
        {"evillocalhost", false},
        {".localhost", false},
        {"[::1.evil.example", false},
        {"[::1]evil.example", false},
        {"[evil.example]", false},
        {"xn--local.co", false},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_str host = sh_str_of(cases[i].host);
        if (sh_http_host_is_ours(host, "own.example", "box", "proxy.example, .b.example") !=
            cases[i].ours)
            fail_msg("%s", cases[i].host);
    }
    assert_false(sh_http_host_is_ours(SH_STR("evil.local"), NULL, "", NULL));
    assert_true(sh_http_host_is_ours(SH_STR("mac.local"), NULL, "mac.local", NULL));
}

TEST(accepts_its_own_pages_and_the_configured_ones)
{
    UNUSED_STATE;
    static const struct {
        const char *origin, *host;
        bool ours;
    } cases[] = {
        {"http://localhost:8100", "localhost:8100", true},
        {"http://LOCALHOST:8100", "localhost:8100", true},
        {"https://shoal.example", "shoal.example", true},
        {"http://good.example", "localhost:8100", true},
        {"https://evil.example", "localhost:8100", false},
        {"http://localhost:3000", "localhost:8100", false},
        {"http://localhost", "localhost:8100", false},
        {"http://localhost:8100.evil.example", "localhost:8100", false},
        {"http://good.example.evil", "localhost:8100", false},
        {"null", "localhost:8100", false},
        {"file://", "", false},
        {"http://", "", false},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++)
        if (sh_http_origin_is_ours(sh_str_of(cases[i].origin), sh_str_of(cases[i].host),
                                   "http://other.example,http://good.example") != cases[i].ours)
            fail_msg("%s at %s", cases[i].origin, cases[i].host);
    assert_true(sh_http_origin_is_ours(SH_STR("null"), SH_STR("a"), "*"));
    assert_false(sh_http_origin_is_ours(SH_STR("http://a"), SH_STR("b"), NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_names_that_only_a_far_page_has),
        cmocka_unit_test(accepts_its_own_pages_and_the_configured_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
