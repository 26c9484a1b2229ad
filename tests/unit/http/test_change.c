#include "http/change.h"

#include "test.h"

TEST(knows_addresses_of_this_machine)
{
    UNUSED_STATE;
    static const char *const ours[] = {"", "127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"};
    static const char *const others[] = {"10.0.0.1",        "::",      "1270.0.0.1",
                                         "::ffff:10.0.0.1", "fe80::1", "0.0.0.0"};
    for (size_t i = 0; i < SH_COUNT_OF(ours); i++) assert_true(sh_http_peer_is_local(ours[i]));
    for (size_t i = 0; i < SH_COUNT_OF(others); i++) assert_false(sh_http_peer_is_local(others[i]));
}

/* A change that is allowed, which each case spoils in one way. */
#define FINE                                                                                       \
    .peer = "127.0.0.1", .host = SH_STR("127.0.0.1:8100"),                                         \
    .content_type = SH_STR("application/json"), .has_body = true, .host_is_ours = true

TEST(decides_who_may_change_the_server)
{
    UNUSED_STATE;
    const struct {
        sh_http_change change;
        int status;
        const char *says;
    } cases[] = {
        {{FINE}, 0, NULL},
        {{FINE, .origin = SH_STR("http://127.0.0.1:8100")}, 0, NULL},
        {{FINE, .keyed = true, .admin = true}, 0, NULL},
        {{FINE, .keyed = true, .admin = false}, 403, "\"admin\""},
        /* With a key it may come from anywhere, through anything and under any name. */
        {{.keyed = true,
          .admin = true,
          .peer = "10.0.0.9",
          .host = SH_STR("a.example"),
          .forwarded = true},
         0,
         NULL},
        {{.peer = "10.0.0.9", .host_is_ours = true}, 403, "own machine"},
        {{.peer = "127.0.0.1", .host_is_ours = true, .forwarded = true}, 403, "own machine"},
        {{.peer = "127.0.0.1",
          .host = SH_STR("evil.example"),
          .origin = SH_STR("http://evil.example")},
         403,
         "own name"},
        {{FINE, .origin = SH_STR("http://evil.example")}, 403, "web pages"},
        {{FINE, .origin = SH_STR("null")}, 403, "web pages"},
        {{FINE, .keyed = true, .admin = true, .origin = SH_STR("https://evil.example")},
         403,
         "web pages"},
        {{.peer = "::1", .host_is_ours = true}, 0, NULL}, /* no body, no type */
        {{.peer = "::1", .host_is_ours = true, .has_body = true}, 415, "application/json"},
        {{.peer = "",
          .host_is_ours = true,
          .has_body = true,
          .content_type = SH_STR("Application/JSON ; charset=utf-8")},
         0,
         NULL},
        {{.peer = "",
          .host_is_ours = true,
          .has_body = true,
          .content_type = SH_STR("text/plain; application/json")},
         415,
         "application/json"},
        {{.peer = "",
          .host_is_ours = true,
          .has_body = true,
          .content_type = SH_STR("application/json-seq")},
         415,
         "application/json"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_http_refusal refusal = sh_http_change_check(&cases[i].change);
        if (refusal.status != cases[i].status) fail_msg("case %zu: %d", i, refusal.status);
        if (cases[i].says != NULL) assert_non_null(strstr(refusal.why, cases[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_addresses_of_this_machine),
        cmocka_unit_test(decides_who_may_change_the_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
