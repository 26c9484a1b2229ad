#include "api/quota.h"

#include "test.h"

#include <string.h>

static const int64_t SECOND = 1000000000;

TEST(requests_come_back_at_their_rate)
{
    UNUSED_STATE;
    sh_http_key_info key = {.name = "alice", .requests_per_minute = 6};
    sh_quotas *quotas = sh_quotas_create();
    sh_quota *q = sh_quotas_of(quotas, &key);
    sh_api_error err;
    int64_t now = 5 * SECOND;
    for (int i = 0; i < 6; i++) assert_true(sh_quota_take(q, &key, now, &err));
    assert_false(sh_quota_take(q, &key, now, &err));
    assert_int_equal(err.status, 429);
    assert_int_equal(err.retry_after_s, 10);
    assert_non_null(strstr(err.message, "alice"));
    assert_false(sh_quota_take(q, &key, now + 9 * SECOND, &err));
    assert_int_equal(err.retry_after_s, 1);
    assert_true(sh_quota_take(q, &key, now + 10 * SECOND, &err));
    /* However long it waits, a minute's worth is all it has. */
    for (int i = 0; i < 6; i++) assert_true(sh_quota_take(q, &key, now + 999 * SECOND, &err));
    assert_false(sh_quota_take(q, &key, now + 999 * SECOND, &err));
    sh_quotas_free(quotas);
}

TEST(tokens_are_charged_when_they_are_known)
{
    UNUSED_STATE;
    sh_http_key_info key = {.name = "bob", .tokens_per_minute = 60};
    sh_quotas *quotas = sh_quotas_create();
    sh_quota *q = sh_quotas_of(quotas, &key);
    sh_api_error err;
    assert_true(sh_quota_take(q, &key, SECOND, &err));
    sh_quota_charge(q, 50, 0);
    assert_true(sh_quota_take(q, &key, SECOND, &err));
    sh_quota_charge(q, 0, 40);
    assert_false(sh_quota_take(q, &key, SECOND, &err)); /* 30 below nothing */
    assert_int_equal(err.retry_after_s, 31);
    assert_true(sh_quota_take(q, &key, 32 * SECOND, &err));
    sh_quotas_free(quotas);
}

TEST(a_quota_goes_on_when_its_limits_change)
{
    UNUSED_STATE;
    sh_http_key_info key = {.name = "carol", .requests_per_minute = 1}, none = {.name = "carol"};
    sh_quotas *quotas = sh_quotas_create();
    sh_quota *q = sh_quotas_of(quotas, &key);
    sh_api_error err;
    assert_null(sh_quotas_of(quotas, NULL));
    sh_quota_charge(NULL, 1, 1);
    assert_true(sh_quota_take(q, &key, SECOND, &err));
    assert_false(sh_quota_take(q, &key, SECOND, &err));
    for (int i = 0; i < 100; i++) assert_true(sh_quota_take(q, &none, SECOND, &err));
    sh_quota_charge(q, 1000000, 7);
    key.tokens_per_minute = 10;
    assert_ptr_equal(sh_quotas_of(quotas, &key), q);
    assert_true(sh_quota_take(q, &key, SECOND, &err)); /* a new limit starts full */
    sh_buf text = {0};
    sh_quotas_write(quotas, &text);
    assert_non_null(strstr(text.ptr, "shoal_key_requests_total{key=\"carol\"} 102\n"));
    assert_non_null(strstr(text.ptr, "shoal_key_refused_requests_total{key=\"carol\"} 1\n"));
    assert_non_null(strstr(text.ptr, "shoal_key_prompt_tokens_total{key=\"carol\"} 1000000\n"));
    assert_non_null(strstr(text.ptr, "shoal_key_generated_tokens_total{key=\"carol\"} 7\n"));
    sh_buf_reset(&text);
    sh_quotas_free(quotas);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_back_at_their_rate),
        cmocka_unit_test(tokens_are_charged_when_they_are_known),
        cmocka_unit_test(a_quota_goes_on_when_its_limits_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
