#include "api/messages.h"
#include "api/openai.h"

#include "test.h"

#include <math.h>

static sh_job_spec request;
static sh_api_error error;

static bool reads(const sh_job_format *format, const char *text)
{
    sh_job_spec_reset(&request);
    error = (sh_api_error){0};
    request.json = cJSON_Parse(text);
    assert_non_null(request.json);
    return format->read(&request, &error);
}

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" fields "}"
#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},"                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"b\",\"parameters\":{}}}]"

#define CHECK_REFUSES(dialect, text, field)                                                        \
    do {                                                                                           \
        assert_false(reads(dialect, text));                                                        \
        assert_int_equal(error.status, 400);                                                       \
        assert_string_equal(error.param, field);                                                   \
    } while (0)

static const char *content_of(int index)
{
    const cJSON *message = cJSON_GetArrayItem(request.messages, index);
    return cJSON_GetStringValue(cJSON_GetObjectItem(message, "content"));
}

TEST(keeps_the_models_own_settings_by_default)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_chat, CHAT("")));
    assert_true(request.chat && isnan(request.temperature) && isnan(request.top_p));
    assert_int_equal(request.top_k, -1);
    assert_int_equal(request.seed, -1);
    assert_int_equal(request.n, 1);
    assert_int_equal(request.max_tokens, 0);
    assert_true(request.parallel_calls && !request.stream && !request.logprobs);
    assert_true(reads(&sh_openai_chat, CHAT(",\"temperature\":0,\"top_k\":-1,\"max_tokens\":5,"
                                            "\"max_completion_tokens\":7,\"seed\":3")));
    assert_true(request.temperature == 0);
    assert_int_equal(request.top_k, 0);
    assert_int_equal(request.max_tokens, 7);
    assert_int_equal(request.seed, 3);
}

TEST(reads_stops_biases_and_ids)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_chat, CHAT(",\"stop\":\"END\"")));
    assert_int_equal(request.stop_count, 1);
    assert_true(sh_str_is(request.stops[0], "END"));
    assert_true(reads(&sh_openai_chat, CHAT(",\"stop\":[\"a\",\"b\"],\"stop_token_ids\":[7,8],"
                                            "\"logit_bias\":{\"50\":-100,\"51\":2.5}")));
    assert_int_equal(request.stop_count, 2);
    assert_int_equal(request.stop_id_count, 2);
    assert_int_equal(request.stop_ids[1], 8);
    assert_int_equal(request.bias_count, 2);
    assert_int_equal(request.bias_ids[1], 51);
    assert_true(request.bias[1] == 2.5f);
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"stop\":[\"\"]"), "stop");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"stop\":[1]"), "stop");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"logit_bias\":{\"x\":1}"), "logit_bias");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"logit_bias\":{\"1\":101}"), "logit_bias");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"stop_token_ids\":[-1]"), "stop_token_ids");
}

TEST(joins_text_parts_and_refuses_others)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_chat,
                      "{\"messages\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
                      "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
                      "{\"type\":\"text\",\"text\":\"b\"}]}]}"));
    assert_string_equal(content_of(1), "ab");
    const cJSON *first = cJSON_GetArrayItem(request.messages, 0);
    assert_string_equal(cJSON_GetObjectItem(first, "role")->valuestring, "system");
    CHECK_REFUSES(&sh_openai_chat,
                  "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
                  "\"image_url\":{}}]}]}",
                  "messages[0].content[0]");
}

TEST(makes_objects_of_earlier_arguments)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_chat,
                      "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{"
                      "\"id\":\"x\",\"type\":\"function\",\"function\":{\"name\":\"f\","
                      "\"arguments\":\"{\\\"a\\\":1}\"}},{\"function\":{\"name\":\"g\","
                      "\"arguments\":\"not json\"}}]},"
                      "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"2\"}]}"));
    const cJSON *calls = cJSON_GetObjectItem(request.messages->child, "tool_calls");
    const cJSON *first = cJSON_GetObjectItem(cJSON_GetArrayItem(calls, 0), "function");
    const cJSON *second = cJSON_GetObjectItem(cJSON_GetArrayItem(calls, 1), "function");
    assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(first, "arguments"), "a")->valueint,
                     1);
    assert_string_equal(cJSON_GetObjectItem(second, "arguments")->valuestring, "not json");
}

TEST(names_the_message_that_is_wrong)
{
    UNUSED_STATE;
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[]}", "messages");
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[1]}", "messages[0]");
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[{\"role\":\"king\",\"content\":\"\"}]}",
                  "messages[0].role");
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content");
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
                  "messages[0].content");
    CHECK_REFUSES(&sh_openai_chat, "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
                  "messages[0].tool_calls[0].function");
}

TEST(applies_the_choice_of_tools)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_chat, CHAT(TOOLS)));
    assert_int_equal(cJSON_GetArraySize(request.tools), 2);
    assert_true(reads(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":\"none\"")));
    assert_null(request.tools);
    assert_true(reads(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":\"required\"")));
    assert_int_equal(cJSON_GetArraySize(request.tools), 2);
    assert_int_equal(cJSON_GetArraySize(request.messages), 1);
    assert_true(reads(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":{\"type\":\"function\","
                                                  "\"function\":{\"name\":\"b\"}}")));
    assert_int_equal(cJSON_GetArraySize(request.tools), 1);
    assert_string_equal(sh_tool_name(request.tools->child), "b");
    CHECK_REFUSES(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":\"any\""), "tool_choice");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"tool_choice\":\"required\""), "tool_choice");
    CHECK_REFUSES(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":{\"function\":{\"name\":\"c\"}}"),
                  "tool_choice");
    CHECK_REFUSES(&sh_openai_chat,
                  CHAT(",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]"),
                  "tools[0].function.name");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"tools\":[{\"type\":\"web_search\"}]"), "tools[0]");
    assert_true(reads(&sh_openai_chat, CHAT(",\"tools\":[]")));
    assert_null(request.tools);
}

TEST(collects_template_variables)
{
    UNUSED_STATE;
    assert_true(
        reads(&sh_openai_chat, CHAT(",\"chat_template_kwargs\":{\"x\":1},\"enable_thinking\":false,"
                                    "\"reasoning_effort\":\"low\"")));
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(request.variables, "enable_thinking")));
    assert_string_equal(cJSON_GetObjectItem(request.variables, "reasoning_effort")->valuestring,
                        "low");
    assert_int_equal(cJSON_GetObjectItem(request.variables, "x")->valueint, 1);
    assert_true(reads(&sh_openai_chat, CHAT("")));
    assert_null(request.variables);
}

TEST(refuses_unsupported_fields_by_name)
{
    UNUSED_STATE;
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"functions\":[{}]"), "functions");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"audio\":{}"), "audio");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"top_logprobs\":3"), "top_logprobs");
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"repeat_penalty\":1.1"), "repeat_penalty");
    CHECK_REFUSES(&sh_openai_completion, "{\"prompt\":\"a\",\"best_of\":2}", "best_of");
}

TEST(the_prompt_of_a_chat_ends_as_asked)
{
    static const struct {
        const char *fields, *role;
        sh_prompt_end end;
    } cases[] = {
        {"", "user", SH_PROMPT_OPENS_ANSWER},
        {"", "assistant", SH_PROMPT_CONTINUES},
        {",\"add_generation_prompt\":true", "assistant", SH_PROMPT_OPENS_ANSWER},
        {",\"add_generation_prompt\":false", "assistant", SH_PROMPT_CLOSED},
        {",\"continue_final_message\":false", "assistant", SH_PROMPT_OPENS_ANSWER},
        {",\"continue_final_message\":true", "user", SH_PROMPT_CONTINUES},
        {",\"continue_final_message\":true,\"add_generation_prompt\":false", "assistant",
         SH_PROMPT_CONTINUES},
        {",\"continue_final_message\":null", "assistant", SH_PROMPT_CONTINUES},
        {",\"chat_template_kwargs\":{\"add_generation_prompt\":false}", "assistant",
         SH_PROMPT_OPENS_ANSWER}, /* the template's own variable decides */
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[256];
        snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"%s\",\"content\":\"a\"}]%s}",
                 cases[i].role, cases[i].fields);
        assert_true(reads(&sh_openai_chat, body));
        assert_int_equal(request.prompt_end, cases[i].end);
    }
    CHECK_REFUSES(&sh_openai_chat,
                  CHAT(",\"continue_final_message\":true,\"add_generation_prompt\":true"),
                  "continue_final_message");
    /* Calls wait for their results, and an empty message begins nothing. */
    assert_true(reads(&sh_openai_chat,
                      "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{"
                      "\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}]}"));
    assert_int_equal(request.prompt_end, SH_PROMPT_OPENS_ANSWER);
    assert_true(
        reads(&sh_openai_chat, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\"}]}"));
    assert_int_equal(request.prompt_end, SH_PROMPT_OPENS_ANSWER);
    assert_true(reads(&sh_openai_chat, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{"
                                       "\"role\":\"assistant\",\"content\":\"\"}]}"));
    assert_int_equal(request.prompt_end, SH_PROMPT_OPENS_ANSWER);
    assert_int_equal(cJSON_GetArraySize(request.messages), 1);
}

TEST(a_prompt_may_be_all_that_is_wanted)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_completion,
                      "{\"prompt\":\"a\",\"echo\":true,\"logprobs\":1,\"max_tokens\":0}"));
    assert_true(request.prompt_only && request.echo && request.logprobs);
    assert_true(reads(&sh_openai_completion, "{\"prompt\":\"a\",\"prompt_logprobs\":2}"));
    assert_true(request.prompt_logprobs && !request.logprobs && !request.prompt_only);
    assert_int_equal(request.prompt_top_logprobs, 2);
    CHECK_REFUSES(&sh_openai_chat, CHAT(",\"max_tokens\":0"), "max_tokens");
    assert_true(reads(&sh_openai_completion, "{\"prompt\":\"a\",\"suffix\":\"b\"}"));
    assert_true(sh_str_is(request.suffix, "b"));
}

TEST(reads_the_form_of_the_answer_by_all_its_names)
{
    static const struct {
        const char *fields, *name;
        sh_form_kind kind;
    } cases[] = {
        {"\"response_format\":{\"type\":\"text\"}", NULL, SH_FORM_FREE},
        {"\"response_format\":{\"type\":\"json_object\"}", "response_format", SH_FORM_JSON_OBJECT},
        {"\"response_format\":{\"type\":\"json_object\",\"schema\":{}}", "response_format.schema",
         SH_FORM_JSON_SCHEMA},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","
         "\"strict\":false,\"schema\":{\"type\":\"object\"}}}",
         "response_format.json_schema.schema", SH_FORM_JSON_SCHEMA},
        {"\"guided_json\":{}", "guided_json", SH_FORM_JSON_SCHEMA},
        {"\"guided_json\":\"{\\\"type\\\":\\\"null\\\"}\"", "guided_json", SH_FORM_JSON_SCHEMA},
        {"\"guided_regex\":\"a+\"", "guided_regex", SH_FORM_REGEX},
        {"\"guided_choice\":[\"a\",\"b\"]", "guided_choice", SH_FORM_CHOICE},
        {"\"guided_grammar\":\"root ::= 'a'\"", "guided_grammar", SH_FORM_GRAMMAR},
        {"\"guided_json_object\":true", "guided_json_object", SH_FORM_JSON_OBJECT},
        {"\"structured_outputs\":{\"json\":{}}", "structured_outputs.json", SH_FORM_JSON_SCHEMA},
        {"\"structured_outputs\":{\"regex\":\"a\"}", "structured_outputs.regex", SH_FORM_REGEX},
        {"\"structured_outputs\":{\"choice\":[\"a\"]}", "structured_outputs.choice",
         SH_FORM_CHOICE},
        {"\"structured_outputs\":{\"grammar\":\"x\"}", "structured_outputs.grammar",
         SH_FORM_GRAMMAR},
        {"\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object",
         SH_FORM_JSON_OBJECT},
        {"\"grammar\":\"root ::= \\\"a\\\"\"", "grammar", SH_FORM_GRAMMAR},
        {"\"json_schema\":{}", "json_schema", SH_FORM_JSON_SCHEMA},
        {"\"grammar\":\"\",\"guided_json\":null,\"structured_outputs\":{\"json_object\":false}",
         NULL, SH_FORM_FREE},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[512];
        snprintf(body, sizeof(body), CHAT(",%s"), cases[i].fields);
        if (!reads(&sh_openai_chat, body)) fail_msg("%s: %s", body, error.message);
        assert_int_equal(request.form.kind, cases[i].kind);
        if (cases[i].name != NULL) assert_string_equal(request.form.field, cases[i].name);
        if (cases[i].kind == SH_FORM_JSON_SCHEMA) assert_true(cJSON_IsObject(request.form.json));
        snprintf(body, sizeof(body), "{\"prompt\":\"a\",%s}", cases[i].fields);
        assert_true(reads(&sh_openai_completion, body));
        assert_int_equal(request.form.kind, cases[i].kind);
    }
}

TEST(refuses_forms_that_are_none_and_more_than_one)
{
    static const struct {
        const char *fields, *param;
    } cases[] = {
        {"\"response_format\":{\"type\":\"xml\"}", "response_format.type"},
        {"\"response_format\":{}", "response_format.type"},
        {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema.schema"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":5}}",
         "response_format.json_schema.schema"},
        {"\"guided_json\":\"{\"", "guided_json"},
        {"\"guided_json\":\"[]\"", "guided_json"},
        {"\"guided_json\":5", "guided_json"},
        {"\"guided_choice\":[]", "guided_choice"},
        {"\"guided_choice\":[1]", "guided_choice"},
        {"\"structured_outputs\":{\"structural_tag\":\"x\"}", "structured_outputs.structural_tag"},
        {"\"grammar\":\"x\",\"response_format\":{\"type\":\"json_object\"}", "grammar"},
        {"\"guided_regex\":\"x\",\"guided_choice\":[\"x\"]", "guided_choice"},
        {"\"structured_outputs\":{\"regex\":\"x\",\"json\":{}}", "structured_outputs.regex"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[512];
        snprintf(body, sizeof(body), CHAT(",%s"), cases[i].fields);
        CHECK_REFUSES(&sh_openai_chat, body, cases[i].param);
    }
}

TEST(reads_prompts_of_all_four_forms)
{
    UNUSED_STATE;
    assert_true(reads(&sh_openai_completion, "{\"prompt\":\"one\"}"));
    assert_int_equal(request.prompt_count, 1);
    assert_true(sh_str_is(request.prompts[0].text, "one"));
    assert_true(reads(&sh_openai_completion, "{\"prompt\":[\"one\",\"two\"],\"logprobs\":0}"));
    assert_int_equal(request.prompt_count, 2);
    assert_true(request.logprobs && request.top_logprobs == 0);
    assert_true(reads(&sh_openai_completion, "{\"prompt\":[5,6,7]}"));
    assert_int_equal(request.prompt_count, 1);
    assert_null(request.prompts[0].text.ptr);
    assert_int_equal(request.prompts[0].id_count, 3);
    assert_true(reads(&sh_openai_completion, "{\"prompt\":[[5],[6,7]],\"n\":2}"));
    assert_int_equal(request.prompt_count, 2);
    assert_int_equal(request.prompts[1].ids[1], 7);
    CHECK_REFUSES(&sh_openai_completion, "{\"prompt\":[]}", "prompt");
    CHECK_REFUSES(&sh_openai_completion, "{\"prompt\":[1,\"a\"]}", "prompt");
    CHECK_REFUSES(&sh_openai_completion, "{\"prompt\":[[]]}", "prompt");
    CHECK_REFUSES(&sh_openai_completion, "{\"prompt\":[\"a\",\"b\"],\"n\":128}", "prompt");
    CHECK_REFUSES(&sh_openai_completion, "{}", "prompt");
}

static int cleanup(void **state)
{
    UNUSED_STATE;
    sh_job_spec_reset(&request);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_models_own_settings_by_default),
        cmocka_unit_test(reads_stops_biases_and_ids),
        cmocka_unit_test(joins_text_parts_and_refuses_others),
        cmocka_unit_test(makes_objects_of_earlier_arguments),
        cmocka_unit_test(names_the_message_that_is_wrong),
        cmocka_unit_test(applies_the_choice_of_tools),
        cmocka_unit_test(collects_template_variables),
        cmocka_unit_test(refuses_unsupported_fields_by_name),
        cmocka_unit_test(the_prompt_of_a_chat_ends_as_asked),
        cmocka_unit_test(a_prompt_may_be_all_that_is_wanted),
        cmocka_unit_test(reads_the_form_of_the_answer_by_all_its_names),
        cmocka_unit_test(refuses_forms_that_are_none_and_more_than_one),
        cmocka_unit_test(reads_prompts_of_all_four_forms),
    };
    return cmocka_run_group_tests(tests, NULL, cleanup);
}
