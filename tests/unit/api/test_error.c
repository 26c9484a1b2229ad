#include "api/error.h"
#include "api/openai.h"

#include "base/json.h"
#include "test.h"

static cJSON *envelope(const sh_api_error *error)
{
    sh_buf text = {0};
    sh_openai.error(error, &text);
    cJSON *json = cJSON_Parse(text.ptr);
    assert_non_null(json);
    sh_buf_reset(&text);
    return json;
}

static const char *text_of(const cJSON *json, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItem(json, key));
}

TEST(gives_both_kinds_of_clients_the_same_message)
{
    UNUSED_STATE;
    sh_api_error error;
    assert_false(sh_api_fail(&error, 400, "invalid_value", "n", "'n' is %d\nor \"so\"", 7));
    cJSON *json = envelope(&error);
    const cJSON *inner = cJSON_GetObjectItem(json, "error");
    assert_string_equal(text_of(inner, "message"), "'n' is 7?or \"so\"");
    assert_string_equal(text_of(json, "detail"), "'n' is 7?or \"so\"");
    assert_string_equal(text_of(inner, "type"), "invalid_request_error");
    assert_string_equal(text_of(inner, "code"), "invalid_value");
    assert_string_equal(text_of(inner, "param"), "n");
    cJSON_Delete(json);
}

TEST(gives_every_failure_its_status)
{
    UNUSED_STATE;
    static const struct {
        sh_status status;
        bool retry;
        int http;
        const char *type;
        const char *code;
    } cases[] = {
        {SH_ERR_INPUT, false, 400, "invalid_request_error", "invalid_value"},
        {SH_ERR_LIMIT, false, 400, "invalid_request_error", "limit_exceeded"},
        {SH_ERR_LIMIT, true, 429, "rate_limit_error", "queue_full"},
        {SH_ERR_NOT_FOUND, false, 404, "not_found_error", "not_found"},
        {SH_ERR_TIMEOUT, false, 504, "timeout_error", "timeout"},
        {SH_ERR_CANCELLED, true, 503, "unavailable_error", "engine_stopping"},
        {SH_ERR_PEER, false, 503, "unavailable_error", "engine_unavailable"},
        {SH_ERR_GROUP, false, 503, "unavailable_error", "rank_lost"},
        {SH_ERR_GROUP, true, 503, "unavailable_error", "rank_lost"},
        {SH_ERR_MEMORY, false, 507, "out_of_memory_error", "out_of_memory"},
        {SH_ERR_SYSTEM, false, 500, "server_error", "internal_error"},
        {SH_ERR_AUTH, false, 500, "server_error", "internal_error"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err;
        sh_err_set(&err, cases[i].status, "why");
        sh_api_error error = sh_api_error_of(&err, cases[i].retry);
        assert_int_equal(sh_openai.error_status(&error), cases[i].http);
        assert_string_equal(error.code, cases[i].code);
        assert_int_equal(error.retry_after_s > 0, error.status == 429 || error.status == 503);
        cJSON *json = envelope(&error);
        const cJSON *inner = cJSON_GetObjectItem(json, "error");
        assert_string_equal(text_of(inner, "type"), cases[i].type);
        assert_true(cJSON_IsNull(cJSON_GetObjectItem(inner, "param")));
        cJSON_Delete(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_both_kinds_of_clients_the_same_message),
        cmocka_unit_test(gives_every_failure_its_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
