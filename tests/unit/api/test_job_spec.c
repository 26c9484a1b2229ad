/* What the server adds to requests. */
#include "api/job_spec.h"
#include "text/output/stop.h"

#include "test.h"

static sh_job_spec spec;
static sh_api_error error;

static void chat(const char *messages)
{
    sh_job_spec_reset(&spec);
    spec.json = cJSON_Parse(messages);
    assert_non_null(spec.json);
    spec.messages = spec.json;
    spec.chat = true;
}

static int tidy(void **state)
{
    UNUSED_STATE;
    sh_job_spec_reset(&spec);
    return 0;
}

static void check_messages(const char *want)
{
    char *text = cJSON_PrintUnformatted(spec.messages);
    assert_string_equal(text, want);
    cJSON_free(text);
}

TEST(a_chat_without_a_system_message_gets_the_servers)
{
    UNUSED_STATE;
    sh_job_defaults defaults = {.system = "Be brief."};
    chat("[{\"role\":\"user\",\"content\":\"x\"}]");
    assert_true(sh_job_spec_add_defaults(&spec, &defaults, &error));
    check_messages("[{\"role\":\"system\",\"content\":\"Be brief.\"},"
                   "{\"role\":\"user\",\"content\":\"x\"}]");
    chat("[{\"role\":\"system\",\"content\":\"own\"}]");
    assert_true(sh_job_spec_add_defaults(&spec, &defaults, &error));
    check_messages("[{\"role\":\"system\",\"content\":\"own\"}]");
}

TEST(stop_strings_of_the_server_come_after_those_of_the_request)
{
    UNUSED_STATE;
    cJSON *stops = cJSON_Parse("[\"b\",\"c\"]"), *own = cJSON_Parse("[\"a\"]");
    sh_job_defaults defaults = {.stops = stops};
    chat("[]");
    assert_true(sh_job_spec_read_stops(&spec, own, "stop", &error));
    assert_true(sh_job_spec_add_defaults(&spec, &defaults, &error));
    assert_int_equal(spec.stop_count, 3);
    assert_true(sh_str_is(spec.stops[0], "a") && sh_str_is(spec.stops[2], "c"));
    while (cJSON_GetArraySize(own) < SH_STOP_COUNT_MAX)
        cJSON_AddItemToArray(own, cJSON_CreateString("x"));
    assert_true(sh_job_spec_read_stops(&spec, own, "stop", &error));
    assert_false(sh_job_spec_add_defaults(&spec, &defaults, &error));
    assert_non_null(strstr(error.message, "and the server has 2"));
    spec.pooled = true; /* there is no answer to end */
    assert_true(sh_job_spec_add_defaults(&spec, &defaults, &error));
    cJSON_Delete(stops);
    cJSON_Delete(own);
}

TEST(penalties_of_the_server_are_for_requests_without)
{
    UNUSED_STATE;
    sh_job_defaults defaults = {.presence_penalty = 0.5, .frequency_penalty = 1};
    chat("[]");
    spec.frequency_penalty = -1;
    assert_true(sh_job_spec_add_defaults(&spec, &defaults, &error));
    assert_true(spec.presence_penalty == 0.5 && spec.frequency_penalty == -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_without_a_system_message_gets_the_servers),
        cmocka_unit_test(stop_strings_of_the_server_come_after_those_of_the_request),
        cmocka_unit_test(penalties_of_the_server_are_for_requests_without),
    };
    return cmocka_run_group_tests(tests, NULL, tidy);
}
