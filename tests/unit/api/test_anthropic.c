/* The dialect of Anthropic, served by the whole API with a scripted engine. The real client
 * libraries are in tests/api. */
#include "api/anthropic.h"
#include "served_api.h"

enum { SAYS, THINKS, STOPS, CUT, CALLS, LOST, LOST_LATER, FULL, CUT_CALL, WAITS };

static const engine_script scripts[] = {
    [SAYS] = {.pieces = {"A", "B"}},
    [THINKS] = {.pieces = {"<think>", "T", "</think>", "B"}},
    [STOPS] = {.pieces = {"A", "B", "C"}},
    [CUT] = {.pieces = {"A"}, .finish = SH_FINISH_LENGTH},
    [CALLS] = {.pieces = {"I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                          "{\"city\": \"Oslo\"}}\n</tool_call>"}},
    [LOST] = {.error = SH_ERR_GROUP},
    [LOST_LATER] = {.pieces = {"A"}, .error = SH_ERR_GROUP},
    [FULL] = {.error = SH_ERR_LIMIT, .retry = true},
    [CUT_CALL] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"},
                  .finish = SH_FINISH_LENGTH},
    [WAITS] = {.pieces = {"A"}, .waits = true},
};

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS                                                                                      \
    ",\"tools\":[{\"name\":\"get_weather\",\"description\":\"d\",\"input_schema\":{\"type\":"      \
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"}}},\"cache_control\":{\"type\":"     \
    "\"ephemeral\"}}]"

static void ask(int script, const char *more)
{
    char body[BODY_MAX];
    snprintf(body, sizeof(body), "{\"max_tokens\":100,\"seed\":%d," HELLO "%s}", script, more);
    request("POST", "/v1/messages", body);
}

TEST(a_whole_answer_is_a_message)
{
    UNUSED_STATE;
    static const struct {
        int script;
        const char *more, *content, *stop;
    } cases[] = {
        {SAYS, "", "[{\"type\":\"text\",\"text\":\"AB\"}]",
         "\"stop_reason\":\"end_turn\",\"stop_sequence\":null"},
        {THINKS, "",
         "[{\"type\":\"thinking\",\"thinking\":\"T\",\"signature\":\"c2hvYWw=\"},{\"type\":"
         "\"text\",\"text\":\"B\"}]",
         "\"stop_reason\":\"end_turn\",\"stop_sequence\":null"},
        {STOPS, ",\"stop_sequences\":[\"X\",\"B\"]", "[{\"type\":\"text\",\"text\":\"A\"}]",
         "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"B\""},
        {CUT, "", "[{\"type\":\"text\",\"text\":\"A\"}]",
         "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null"},
    };
    more_headers = "X-Request-Id: one\r\n";
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        ask(cases[i].script, cases[i].more);
        check_status(200);
        CHECK_SEQUENCE("\r\nrequest-id: one\r\n",
                       "{\"id\":\"msg_one\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"
                       "\"demo\",\"content\":",
                       cases[i].content, cases[i].stop, "\"usage\":{\"input_tokens\":",
                       "\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,"
                       "\"output_tokens\":");
    }
    more_headers = "";
}

TEST(a_call_is_a_block_with_its_input)
{
    UNUSED_STATE;
    ask(CALLS, TOOLS);
    check_status(200);
    CHECK_SEQUENCE("{\"type\":\"text\",\"text\":\"I look.\"},{\"type\":\"tool_use\",\"id\":\"call_",
                   "\"name\":\"get_weather\",\"input\":{\"city\": \"Oslo\"}}]",
                   "\"stop_reason\":\"tool_use\"");
    ask(CUT_CALL, TOOLS);
    CHECK_SEQUENCE("\"content\":[{\"type\":\"tool_use\",\"id\":\"call_",
                   "\"name\":\"get_weather\",\"input\":{}}]", "\"stop_reason\":\"max_tokens\"");
}

TEST(a_stream_has_the_events_of_each_block)
{
    UNUSED_STATE;
    more_headers = "X-Request-Id: one\r\n";
    ask(THINKS, ",\"stream\":true");
    more_headers = "";
    check_status(200);
    CHECK_SEQUENCE(
        "Content-Type: text/event-stream", "request-id: one\r\n",
        "\r\nevent: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":"
        "\"msg_one\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"demo\",\"content\":[],"
        "\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
        "\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
        "{\"type\":\"thinking_delta\",\"thinking\":\"T\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":"
        "{\"type\":\"signature_delta\",\"signature\":\"c2hvYWw=\"}}\n\n"
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,"
        "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":"
        "{\"type\":\"text_delta\",\"text\":\"B\"}}\n\n"
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n"
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
        "\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
}

TEST(a_call_is_streamed_as_pieces_of_json)
{
    UNUSED_STATE;
    ask(CALLS, TOOLS ",\"stream\":true");
    check_status(200);
    CHECK_SEQUENCE("\"delta\":{\"type\":\"text_delta\",\"text\":\"I",
                   "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
                   "\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_",
                   "\"name\":\"get_weather\",\"input\":{}}}",
                   "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{",
                   "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}",
                   "\"stop_reason\":\"tool_use\"");
    ask(CUT_CALL, TOOLS ",\"stream\":true");
    CHECK_SEQUENCE("\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_",
                   "\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{",
                   "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}",
                   "\"stop_reason\":\"max_tokens\"");
    assert_null(strstr(reply.ptr, "<tool_call>"));
}

TEST(errors_have_anthropics_form)
{
    UNUSED_STATE;
    static const struct {
        int script;
        const char *more;
        int status;
        const char *body;
    } cases[] = {
        {LOST, "", 529,
         "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"the script "
         "ends here\"}}"},
        {FULL, ",\"stream\":true", 429,
         "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"the script "
         "ends here\"}}"},
        {SAYS, ",\"top_k\":\"x\"", 400,
         "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"'top_k' "
         "must be a whole number, not a string\"}}"},
        {SAYS, ",\"model\":\"claude-x\"", 404,
         "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"the model "
         "'claude-x' is not served here; 'demo' is\"}}"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        ask(cases[i].script, cases[i].more);
        check_reply(cases[i].status, cases[i].body);
        check_holds("\r\nrequest-id: req_");
    }
    ask(LOST_LATER, ",\"stream\":true");
    check_status(200);
    check_holds("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"");
    request_as("wrong", "POST", "/v1/messages", "{}");
    check_status(401);
    check_holds("\"type\":\"authentication_error\"");
    request("POST", "/v1/messages/batches", "{}");
    check_status(404);
    check_holds("\"type\":\"not_found_error\"");
}

/* Coding agents shorten their conversation when they read this. */
TEST(a_long_prompt_is_reported_in_the_words_that_agents_know)
{
    UNUSED_STATE;
    char body[BODY_MAX] = "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"";
    size_t at = strlen(body);
    for (; at < 3000; at++) body[at] = (char)('0' + at % 10);
    snprintf(body + at, sizeof(body) - at, "\"}]}");
    request("POST", "/v1/messages", body);
    check_status(400);
    check_holds("\"message\":\"prompt is too long: 'messages' has ");
}

TEST(keys_come_in_anthropics_header_too)
{
    UNUSED_STATE;
    more_headers = "X-Api-Key: " KEY "\r\nanthropic-version: 2023-06-01\r\n";
    int fd = dial();
    char text[256];
    int len = snprintf(text, sizeof(text), "GET /v1/models HTTP/1.0\r\n%s\r\n", more_headers);
    more_headers = "";
    assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
    check_status(200);
    CHECK_SEQUENCE("{\"data\":[{\"type\":\"model\",\"id\":\"demo\",\"display_name\":\"demo\"",
                   "\"has_more\":false,\"first_id\":\"demo\",\"last_id\":\"demo\"}");
}

TEST(models_have_the_form_of_the_client)
{
    UNUSED_STATE;
    request("GET", "/v1/models", "");
    check_holds("{\"object\":\"list\",\"data\":[{\"id\":\"demo\"");
    more_headers = "anthropic-version: 2023-06-01\r\n";
    request("GET", "/v1/models/demo", "");
    check_holds("{\"type\":\"model\",\"id\":\"demo\"");
    request("GET", "/v1/models/other", "");
    check_status(404);
    check_holds("{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\"");
    request_as("wrong", "GET", "/v1/models", "");
    check_status(401);
    check_holds("{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\"");
    more_headers = "";
}

TEST(tokens_are_counted_as_they_are_used)
{
    UNUSED_STATE;
    int counted = -1, used = -2;
    request("POST", "/v1/messages/count_tokens", "{\"system\":\"s\"," HELLO TOOLS "}");
    check_status(200);
    assert_int_equal(sscanf(body_of(reply.ptr), "{\"input_tokens\":%d}", &counted), 1);
    ask(SAYS, ",\"system\":\"s\"" TOOLS);
    const char *usage = strstr(reply.ptr, "\"usage\":");
    assert_int_equal(sscanf(usage, "\"usage\":{\"input_tokens\":%d", &used), 1);
    assert_int_equal(counted, used);
}

TEST(unknown_fields_are_named_and_do_no_harm)
{
    UNUSED_STATE;
    ask(SAYS, ",\"context_management\":{\"edits\":[]},\"speed\":\"fast\",\"thinking\":{\"type\":"
              "\"enabled\",\"budget_tokens\":50,\"x\":1},\"b\\u00e9\":1");
    check_status(200);
    check_holds("\r\nX-Shoal-Ignored-Fields: context_management, speed, thinking.x, "
                "b??\r\n");
    ask(SAYS, ",\"metadata\":{\"user_id\":\"u\"}");
    assert_null(strstr(reply.ptr, "X-Shoal-Ignored-Fields"));
}

/* ---- the conversation ---- */

/* What the template gets for a request; or the error. */
static cJSON *messages_of(const char *body, sh_job_spec *spec, sh_api_error *err)
{
    sh_err why;
    *spec = (sh_job_spec){0};
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &spec->json, &why), why);
    return sh_anthropic_messages_read(spec, err) ? spec->messages : NULL;
}

TEST(blocks_become_messages)
{
    UNUSED_STATE;
    sh_job_spec spec;
    sh_api_error err;
    cJSON *messages = messages_of(
        "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"s1\",\"cache_control\":{"
        "\"type\":\"ephemeral\"}},{\"type\":\"text\",\"text\":\"s2\"}],\"messages\":["
        "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"q\"}]},"
        "{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\","
        "\"signature\":\"x\"},{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"tool_use\",\"id\":"
        "\"i1\",\"name\":\"f\",\"input\":{\"k\":1}},{\"type\":\"tool_use\",\"id\":\"i2\",\"name\":"
        "\"g\",\"input\":{}}]},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"i1\","
        "\"content\":\"r1\"},{\"type\":\"tool_result\",\"tool_use_id\":\"i2\",\"content\":[{"
        "\"type\":\"text\",\"text\":\"r2\"}],\"is_error\":true},{\"type\":\"text\",\"text\":\"go\"}"
        "]},{\"role\":\"user\",\"content\":\"on\"}]}",
        &spec, &err);
    if (messages == NULL) fail_msg("%s", err.message);
    char *text = cJSON_PrintUnformatted(messages);
    assert_string_equal(
        text, "[{\"role\":\"system\",\"content\":\"s1\\ns2\"},{\"role\":\"user\",\"content\":\"q\"}"
              ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i1\",\"type\":\"function\","
              "\"function\":{\"name\":\"f\",\"arguments\":{\"k\":1}}},{\"id\":\"i2\",\"type\":"
              "\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}],\"content\":\"a\","
              "\"reasoning_content\":\"t\"},{\"role\":\"tool\",\"tool_call_id\":\"i1\",\"content\":"
              "\"r1\"},{\"role\":\"tool\",\"tool_call_id\":\"i2\",\"content\":\"r2\"},{\"role\":"
              "\"user\",\"content\":\"go\\non\"}]");
    cJSON_free(text);
    sh_job_spec_reset(&spec);
}

TEST(tools_and_settings_are_read)
{
    UNUSED_STATE;
    sh_job_spec spec;
    sh_api_error err;
    if (messages_of("{\"max_tokens\":9," HELLO TOOLS ",\"tool_choice\":{\"type\":\"tool\",\"name\":"
                    "\"get_weather\",\"disable_parallel_tool_use\":true},\"thinking\":{\"type\":"
                    "\"disabled\"},\"top_k\":5,\"temperature\":0.5,\"output_config\":{\"effort\":"
                    "\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}"
                    "}}",
                    &spec, &err) == NULL)
        fail_msg("%s", err.message);
    char *tools = cJSON_PrintUnformatted(spec.tools),
         *vars = cJSON_PrintUnformatted(spec.variables);
    assert_string_equal(tools, "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\","
                               "\"description\":\"d\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"city\":{\"type\":\"string\"}}}}}]");
    assert_string_equal(vars, "{\"reasoning_effort\":\"low\",\"enable_thinking\":false}");
    assert_int_equal(spec.tool_choice, SH_TOOLS_NAMED);
    assert_false(spec.parallel_calls);
    assert_int_equal(spec.max_tokens, 9);
    assert_int_equal(spec.top_k, 5);
    assert_int_equal(spec.form.kind, SH_FORM_JSON_SCHEMA);
    cJSON_free(tools);
    cJSON_free(vars);
    sh_job_spec_reset(&spec);
}

TEST(what_cannot_be_read_is_named)
{
    UNUSED_STATE;
    static const struct {
        const char *body, *param, *part;
    } cases[] = {
        {"{" HELLO "}", "max_tokens", "is missing"},
        {"{\"max_tokens\":1,\"messages\":[]}", "messages", "is empty"},
        {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
         "\"source\":{}}]}]}",
         "messages[0].content[0]", "type 'image'"},
        {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\"}]}"
         "]}",
         "messages[0].content[0]", "type 'document'"},
        {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\""
         ",\"tool_use_id\":\"i\",\"content\":[{\"type\":\"image\"}]}]}]}",
         "messages[0].content[0].content[0]", "type 'image'"},
        {"{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_use\"}]}"
         "]}",
         "messages[0].content[0]", "a message of role 'user' cannot have"},
        {"{\"max_tokens\":1,\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}",
         "messages[0].role", "not robot"},
        {"{\"max_tokens\":1," HELLO ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":"
         "\"web_search\"}]}",
         "tools[0]", "'web_search_20250305'"},
        {"{\"max_tokens\":1," HELLO ",\"tool_choice\":{\"type\":\"any\"}}", "tool_choice.type",
         "no 'tools'"},
        {"{\"max_tokens\":1," HELLO ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
         "tool_choice.name", "not in 'tools'"},
        {"{\"max_tokens\":9," HELLO ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}}",
         "thinking.budget_tokens", "below 'max_tokens'"},
        {"{\"max_tokens\":9," HELLO ",\"mcp_servers\":[{}]}", "mcp_servers", "not supported"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_job_spec spec;
        sh_api_error err;
        if (messages_of(cases[i].body, &spec, &err) != NULL) fail_msg("%s", cases[i].body);
        assert_string_equal(err.param, cases[i].param);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s", err.message);
        sh_job_spec_reset(&spec);
    }
}

static int serve(void **state)
{
    UNUSED_STATE;
    api_serve(&sh_endpoints, scripts);
    return 0;
}

static int serve_end(void **state)
{
    UNUSED_STATE;
    api_serve_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_is_a_message),
        cmocka_unit_test(a_call_is_a_block_with_its_input),
        cmocka_unit_test(a_stream_has_the_events_of_each_block),
        cmocka_unit_test(a_call_is_streamed_as_pieces_of_json),
        cmocka_unit_test(errors_have_anthropics_form),
        cmocka_unit_test(a_long_prompt_is_reported_in_the_words_that_agents_know),
        cmocka_unit_test(keys_come_in_anthropics_header_too),
        cmocka_unit_test(models_have_the_form_of_the_client),
        cmocka_unit_test(tokens_are_counted_as_they_are_used),
        cmocka_unit_test(unknown_fields_are_named_and_do_no_harm),
        cmocka_unit_test(blocks_become_messages),
        cmocka_unit_test(tools_and_settings_are_read),
        cmocka_unit_test(what_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
