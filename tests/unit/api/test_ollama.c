/* The dialect of Ollama, served by the whole API with a scripted engine. The real client library is
 * in tests/api. */
#include "api/ollama.h"
#include "served_api.h"

#include <math.h>

enum { SAYS, THINKS, CUT, CALLS, TWO_CALLS, CUT_CALL, LOST_LATER, LOST };

#define CALL(city)                                                                                 \
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"" city "\"}}\n"          \
    "</tool_call>"

static const engine_script scripts[] = {
    [SAYS] = {.pieces = {"A", "B"}},
    [THINKS] = {.pieces = {"<think>", "T", "</think>", "B"}},
    [CUT] = {.pieces = {"A"}, .finish = SH_FINISH_LENGTH},
    [CALLS] = {.pieces = {CALL("Oslo")}},
    [TWO_CALLS] = {.pieces = {CALL("Oslo"), "\n", CALL("Rome")}},
    [CUT_CALL] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"},
                  .finish = SH_FINISH_LENGTH},
    [LOST_LATER] = {.pieces = {"A"}, .error = SH_ERR_GROUP},
    [LOST] = {.error = SH_ERR_GROUP},
};

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"   \
    "\"type\":\"object\"}}}]"

static void chat(int script, const char *more)
{
    char body[BODY_MAX];
    snprintf(body, sizeof(body),
             "{\"model\":\"demo:latest\"," HELLO ",\"options\":{\"seed\":%d}%s}", script, more);
    request("POST", "/api/chat", body);
}

static void generate(int script, const char *more)
{
    char body[BODY_MAX];
    snprintf(body, sizeof(body), "{\"prompt\":\"hi\",\"options\":{\"seed\":%d}%s}", script, more);
    request("POST", "/api/generate", body);
}

TEST(a_whole_chat_is_one_object)
{
    UNUSED_STATE;
    chat(THINKS, ",\"stream\":false");
    check_status(200);
    CHECK_SEQUENCE("Content-Type: application/json\r\n", "{\"model\":\"demo\",\"created_at\":\"20",
                   "Z\",\"message\":{\"role\":\"assistant\",\"content\":\"B\",\"thinking\":\"T\"},"
                   "\"done\":true,\"done_reason\":\"stop\",\"total_duration\":",
                   "\"load_duration\":0,\"prompt_eval_count\":", "\"prompt_eval_duration\":",
                   "\"eval_count\":", "\"eval_duration\":");
    chat(CUT, ",\"stream\":false");
    check_holds("\"content\":\"A\"},\"done\":true,\"done_reason\":\"length\"");
    chat(TWO_CALLS, ",\"stream\":false" TOOLS);
    CHECK_SEQUENCE("\"content\":\"\",\"tool_calls\":[{\"id\":\"call_",
                   "\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\": \"Oslo\"}}},",
                   "\"function\":{\"name\":\"get_weather\",\"arguments\":{\"city\": \"Rome\"}}}]}",
                   "\"done_reason\":\"stop\"");
}

TEST(a_stream_is_lines_by_default)
{
    UNUSED_STATE;
    chat(THINKS, "");
    check_status(200);
    CHECK_SEQUENCE("Content-Type: application/x-ndjson\r\n",
                   "\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"T\"},"
                   "\"done\":false}\n{\"model\":\"demo\"",
                   "\"message\":{\"role\":\"assistant\",\"content\":\"B\"},\"done\":false}\n",
                   "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,"
                   "\"done_reason\":\"stop\"",
                   "}\n");
    generate(SAYS, "");
    CHECK_SEQUENCE("\"response\":\"A\",\"done\":false}\n", "\"response\":\"B\",\"done\":false}\n",
                   "\"response\":\"\",\"done\":true,\"done_reason\":\"stop\",\"total_duration\":");
}

TEST(calls_are_sent_when_they_are_complete)
{
    UNUSED_STATE;
    chat(TWO_CALLS, TOOLS);
    CHECK_SEQUENCE("\"tool_calls\":[{\"id\":\"call_",
                   "\"arguments\":{\"city\": \"Oslo\"}}}]},\"done\":false}\n{",
                   "\"arguments\":{\"city\": \"Rome\"}}}]},\"done\":false}\n{", "\"done\":true");
    chat(CUT_CALL, TOOLS);
    assert_null(strstr(reply.ptr, "tool_call"));
    CHECK_SEQUENCE("\"content\":\"\"", "\"done_reason\":\"length\"");
    chat(CUT_CALL, TOOLS ",\"stream\":false");
    assert_null(strstr(reply.ptr, "tool_call"));
    CHECK_SEQUENCE("\"content\":\"\"}", "\"done_reason\":\"length\"");
}

TEST(an_empty_prompt_asks_for_the_model)
{
    UNUSED_STATE;
    static const char *const paths[] = {"/api/chat", "/api/generate"};
    for (size_t i = 0; i < SH_COUNT_OF(paths); i++) {
        request("POST", paths[i], "{\"model\":\"demo\",\"keep_alive\":-1}");
        check_status(200);
        CHECK_SEQUENCE("X-Shoal-Ignored-Fields: keep_alive\r\n", "{\"model\":\"demo\"",
                       "\"done\":true,\"done_reason\":\"load\"}\n");
        request("POST", paths[i], "{\"model\":\"demo\",\"stream\":false}");
        check_holds("\"done\":true,\"done_reason\":\"load\"}");
        request("POST", paths[i], "{\"model\":\"llama3\"}");
        check_reply(404, "{\"error\":\"the model 'llama3' is not served here; 'demo' is\"}");
    }
}

TEST(errors_have_ollamas_form)
{
    UNUSED_STATE;
    chat(LOST, "");
    check_reply(503, "{\"error\":\"the script ends here\"}");
    chat(LOST_LATER, "");
    check_status(200);
    check_holds("\"content\":\"A\"},\"done\":false}\n{\"error\":\"the script ends here\"}\n");
    request("POST", "/api/chat", "{");
    check_status(400);
    check_holds("{\"error\":\"the body: ");
    request_as("wrong", "GET", "/api/tags", "");
    check_status(401);
    check_holds("{\"error\":\"a valid API key is required");
    request("POST", "/api/copy", "{}");
    check_status(404);
    check_holds("{\"error\":\"there is no 'POST /api/copy' here");
}

TEST(encodings_that_are_not_known_are_refused)
{
    UNUSED_STATE;
    more_headers = "Content-Encoding: gzip\r\n";
    request("POST", "/v1/completions", "{}");
    check_status(415);
    check_holds("\"code\":\"encoding_not_known\"");
    more_headers = "Content-Encoding: identity\r\n";
    request("POST", "/v1/completions", "{}");
    check_status(400);
    more_headers = "";
    static const char chunked[] = "POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                                  "Transfer-Encoding: gzip, chunked\r\n\r\n";
    int fd = dial();
    assert_int_equal(send(fd, chunked, sizeof(chunked) - 1, MSG_NOSIGNAL), sizeof(chunked) - 1);
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
    check_status(501);
    check_holds("\"code\":\"encoding_not_known\"");
}

TEST(options_without_meaning_are_named)
{
    UNUSED_STATE;
    request("POST", "/api/generate",
            "{\"prompt\":\"hi\",\"context\":[1],\"options\":{\"seed\":0,\"num_ctx\":4096,"
            "\"num_gpu\":1}}");
    check_status(200);
    check_holds("X-Shoal-Ignored-Fields: options.num_ctx, options.num_gpu, context\r\n");
    generate(SAYS, ",\"raw\":true,\"system\":\"Be brief.\",\"think\":false");
    check_status(200);
    check_holds("X-Shoal-Ignored-Fields: system, think\r\n");
}

TEST(fields_that_are_not_known_are_named_where_text_is_converted)
{
    UNUSED_STATE;
    static const char *const cases[][2] = {
        {"/tokenize", "{\"content\":\"a\",\"contents\":1}"},
        {"/tokenize", "{\"contents\":1,\"temperature\":1,\"return_token_strs\":true," HELLO "}"},
        {"/detokenize", "{\"tokens\":[1],\"contents\":1}"},
        {"/apply-template", "{\"temperature\":1,\"contents\":1," HELLO "}"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        request("POST", cases[i][0], cases[i][1]);
        check_status(200);
        check_holds("X-Shoal-Ignored-Fields: contents\r\n");
    }
}

TEST(the_model_is_described)
{
    UNUSED_STATE;
    request("GET", "/api/tags", "");
    CHECK_SEQUENCE("{\"models\":[{\"name\":\"demo\",\"model\":\"demo\",\"modified_at\":\"",
                   "\"size\":", "\"digest\":\"", "\"family\":\"qwen3\"");
    request("GET", "/api/ps", "");
    CHECK_SEQUENCE("\"expires_at\":\"", "\"size_vram\":", "\"context_length\":2048}]}");
    request("POST", "/api/show", "{\"model\":\"demo:latest\"}");
    CHECK_SEQUENCE(
        "\"model_info\":{\"general.architecture\":\"qwen3\",\"qwen3.context_length\":2048}",
        "\"capabilities\":[\"completion\",\"tools\",\"thinking\"]");
    request("POST", "/api/show", "{\"name\":\"llama3\"}");
    check_status(404);
    request("POST", "/api/show", "{}");
    check_reply(400, "{\"error\":\"the field 'model' is missing\"}");
    request("GET", "/api/version", "");
    check_holds("{\"version\":\"");
    request("HEAD", "/", "");
    check_status(200);
}

TEST(models_are_not_changed_unless_the_server_allows_it)
{
    UNUSED_STATE;
    request("POST", "/api/pull", "{\"model\":\"a/b\"}");
    check_status(403);
    check_holds("--manage-models");
    request("DELETE", "/api/delete", "{\"model\":\"a/b\"}");
    check_status(403);
}

/* ---- reading ---- */

static bool read_body(bool (*read)(sh_job_spec *, sh_api_error *), const char *body,
                      sh_job_spec *spec, sh_api_error *err)
{
    sh_err why;
    *spec = (sh_job_spec){0};
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &spec->json, &why), why);
    return read(spec, err);
}

TEST(messages_are_read)
{
    UNUSED_STATE;
    sh_job_spec spec;
    sh_api_error err;
    if (!read_body(
            sh_ollama_chat_read,
            "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
            "\"q\",\"images\":[]},{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"t\","
            "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"k\":1}}}]},{\"role\":"
            "\"tool\",\"content\":\"r\",\"tool_name\":\"f\"}],\"think\":\"low\"}",
            &spec, &err))
        fail_msg("%s", err.message);
    char *text = cJSON_PrintUnformatted(spec.messages),
         *vars = cJSON_PrintUnformatted(spec.variables);
    assert_string_equal(text,
                        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
                        "\"q\"},{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"function\","
                        "\"function\":{\"name\":\"f\",\"arguments\":{\"k\":1}}}],"
                        "\"reasoning_content\":\"t\"},{\"role\":\"tool\",\"name\":\"f\","
                        "\"content\":\"r\"}]");
    assert_string_equal(vars, "{\"reasoning_effort\":\"low\",\"enable_thinking\":true}");
    cJSON_free(text);
    cJSON_free(vars);
    sh_job_spec_reset(&spec);
}

TEST(options_are_read)
{
    UNUSED_STATE;
    sh_job_spec spec;
    sh_api_error err;
    if (!read_body(
            sh_ollama_generate_read,
            "{\"prompt\":\"p\",\"raw\":true,\"format\":\"json\",\"options\":{\"num_predict\":"
            "7,\"stop\":[\"x\"],\"temperature\":0.25,\"top_k\":3,\"repeat_penalty\":1.5,"
            "\"repeat_last_n\":9,\"seed\":4}}",
            &spec, &err))
        fail_msg("%s", err.message);
    assert_false(spec.chat);
    assert_true(spec.stream);
    assert_true(sh_str_is(spec.prompts[0].text, "p"));
    assert_int_equal(spec.form.kind, SH_FORM_JSON_OBJECT);
    assert_int_equal(spec.max_tokens, 7);
    assert_int_equal(spec.stop_count, 1);
    assert_true(spec.temperature == 0.25 && spec.repetition_penalty == 1.5 && isnan(spec.top_p));
    assert_int_equal(spec.top_k, 3);
    assert_int_equal(spec.repetition_window, 9);
    assert_int_equal(spec.seed, 4);
    sh_job_spec_reset(&spec);
}

TEST(what_cannot_be_read_is_named)
{
    UNUSED_STATE;
    static const struct {
        const char *body, *param, *part;
    } cases[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"images\":[\"x\"]}]}",
         "messages[0].images", "text only"},
        {"{\"messages\":[{\"role\":\"robot\"}]}", "messages[0].role", "not robot"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "messages[0].content",
         "must be a string"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
         "messages[0].tool_calls[0]", "'name'"},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
         "\"arguments\":\"{}\"}}]}]}",
         "messages[0].tool_calls[0]", "must be an object"},
        {"{" HELLO ",\"format\":\"xml\"}", "format", "'xml'"},
        {"{" HELLO ",\"options\":{\"mirostat\":1}}", "options.mirostat", "not supported"},
        {"{" HELLO ",\"options\":{\"num_predict\":\"x\"}}", "options.num_predict", "whole number"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_job_spec spec;
        sh_api_error err;
        if (read_body(sh_ollama_chat_read, cases[i].body, &spec, &err))
            fail_msg("%s", cases[i].body);
        assert_string_equal(err.param, cases[i].param);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s", err.message);
        sh_job_spec_reset(&spec);
    }
    generate(SAYS, ",\"suffix\":\"x\"");
    check_status(400);
    generate(SAYS, ",\"suffix\":\"\",\"template\":\"\",\"images\":[]");
    check_status(200);
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
        cmocka_unit_test(a_whole_chat_is_one_object),
        cmocka_unit_test(a_stream_is_lines_by_default),
        cmocka_unit_test(calls_are_sent_when_they_are_complete),
        cmocka_unit_test(an_empty_prompt_asks_for_the_model),
        cmocka_unit_test(errors_have_ollamas_form),
        cmocka_unit_test(encodings_that_are_not_known_are_refused),
        cmocka_unit_test(options_without_meaning_are_named),
        cmocka_unit_test(fields_that_are_not_known_are_named_where_text_is_converted),
        cmocka_unit_test(the_model_is_described),
        cmocka_unit_test(models_are_not_changed_unless_the_server_allows_it),
        cmocka_unit_test(messages_are_read),
        cmocka_unit_test(options_are_read),
        cmocka_unit_test(what_cannot_be_read_is_named),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
