/* Chats that go on by their conversation_id: what a request becomes, and what is kept of an answer,
 * with the whole API and a scripted engine. */
#include "api/openai.h"
#include "base/alloc.h"
#include "served_api.h"

enum { SAYS, CALLS, LOST };

static const engine_script scripts[] = {
    [SAYS] = {.pieces = {"A", "B"}},
    [CALLS] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                          "{\"city\": \"Oslo\"}}\n</tool_call>"}},
    [LOST] = {.error = SH_ERR_GROUP},
};

#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"   \
    "\"type\":\"object\"}}}]"

static void ask_as(const char *key, const char *id, int script, const char *messages,
                   const char *more)
{
    char body[BODY_MAX], header[64];
    snprintf(body, sizeof(body), "{\"seed\":%d,\"messages\":[%s]%s}", script, messages, more);
    snprintf(header, sizeof(header), "X-Request-Id: %s\r\n", id);
    more_headers = header;
    request_as(key, "POST", "/v1/chat/completions", body);
    more_headers = "";
}

static void ask(const char *id, int script, const char *messages, const char *more)
{
    ask_as(KEY, id, script, messages, more);
}

/* The number of tokens of the prompt, which grows with what is put before the messages. */
static int prompt_tokens(void)
{
    const char *at = strstr(reply.ptr, "\"prompt_tokens\":");
    assert_non_null(at);
    return atoi(at + strlen("\"prompt_tokens\":"));
}

TEST(an_answer_names_its_conversation_and_can_be_continued)
{
    UNUSED_STATE;
    ask("a", SAYS, MESSAGE("user", "one"), "");
    check_status(200);
    check_holds("\"conversation_id\":\"chatcmpl-a\"");
    int first = prompt_tokens();
    ask("b", SAYS, MESSAGE("user", "one"), ",\"conversation_id\":\"chatcmpl-a\"");
    check_holds("\"conversation_id\":\"chatcmpl-a\"");
    int second = prompt_tokens();
    assert_true(second > first);
    ask("c", SAYS, MESSAGE("user", "one"), ",\"conversation_id\":\"chatcmpl-a\",\"stream\":true");
    CHECK_SEQUENCE("\"finish_reason\":\"stop\"", "\"conversation_id\":\"chatcmpl-a\"", "[DONE]");
    ask("d", SAYS, MESSAGE("user", "one"), ",\"conversation_id\":\"chatcmpl-a\"");
    assert_int_equal(prompt_tokens() - second, 2 * (second - first)); /* the stream was kept too */
    ask_as(OTHER_KEY, "e", SAYS, MESSAGE("user", "one"), ",\"conversation_id\":\"chatcmpl-a\"");
    assert_int_equal(prompt_tokens(), first);
}

TEST(what_is_not_kept_is_not_named)
{
    UNUSED_STATE;
    static const char *const without[] = {",\"store\":false", ",\"n\":2"};
    for (size_t i = 0; i < SH_COUNT_OF(without); i++) {
        ask("n", SAYS, MESSAGE("user", "one"), without[i]);
        check_status(200);
        assert_null(strstr(reply.ptr, "conversation_id"));
    }
    ask("p", SAYS, MESSAGE("user", "one") "," MESSAGE("assistant", "tw"), "");
    assert_null(strstr(reply.ptr, "conversation_id")); /* the answer is the rest of a message */
    ask("l", LOST, MESSAGE("user", "one"), ",\"conversation_id\":\"lost\"");
    ask("m", SAYS, MESSAGE("user", "one"), ",\"conversation_id\":\"lost\"");
    int first = prompt_tokens();
    ask("o", SAYS, MESSAGE("user", "one"), "");
    assert_int_equal(prompt_tokens(), first); /* nothing of a failed request */
}

static sh_response_store *store;

/* Reads a body as the chat of owner 1; its messages as they go to the template. */
static void check_messages(const char *body, const char *want)
{
    sh_job_spec spec = {.conversations = store, .owner = 1};
    sh_api_error error = {0};
    sh_err why;
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &spec.json, &why), why);
    if (!sh_openai_chat_read(&spec, &error)) fail_msg("%s", error.message);
    char *text = cJSON_PrintUnformatted(spec.messages);
    assert_string_equal(text, want);
    cJSON_free(text);
    sh_job_spec_reset(&spec);
}

static void put(const char *id, const char *previous, const char *input, const char *output)
{
    sh_response_store_put(store, 1,
                          &(sh_stored_response){.id = id,
                                                .previous = previous,
                                                .conversation = "c",
                                                .input = sh_str_of(input),
                                                .output = sh_str_of(output)});
}

#define HISTORY MESSAGE("user", "q1") "," MESSAGE("assistant", "a1")
#define BODY(messages) "{\"messages\":[" messages "],\"conversation_id\":\"c\"}"

TEST(kept_messages_come_before_new_ones)
{
    UNUSED_STATE;
    store = sh_response_store_create((sh_response_limits){10, 1 << 20, 1 << 20});
    put("1", NULL, "[" MESSAGE("system", "old") "," MESSAGE("user", "q1") "]",
        "[" MESSAGE("assistant", "a1") "]");
    put("2", "1", "[" MESSAGE("user", "q2") "]", "[" MESSAGE("assistant", "a2") "]");
    check_messages(BODY(MESSAGE("user", "q3")),
                   "[" MESSAGE("system", "old") "," HISTORY "," MESSAGE("user", "q2") "," MESSAGE(
                       "assistant", "a2") "," MESSAGE("user", "q3") "]");
    check_messages(BODY(MESSAGE("system", "new") "," MESSAGE("user", "q3")),
                   "[" MESSAGE("system", "new") "," HISTORY "," MESSAGE("user", "q2") "," MESSAGE(
                       "assistant", "a2") "," MESSAGE("user", "q3") "]");
    /* A client that sends an answer keeps the history itself. */
    check_messages(BODY(HISTORY "," MESSAGE("user", "other")),
                   "[" HISTORY "," MESSAGE("user", "other") "]");

    sh_job_spec spec = {.conversations = store, .owner = 1};
    sh_api_error error = {0};
    sh_err why;
    assert_true(sh_response_store_delete(store, 1, "1"));
    CHECK_OK(sh_json_parse(SH_STR(BODY(MESSAGE("user", "x"))), "body", &spec.json, &why), why);
    assert_false(sh_openai_chat_read(&spec, &error));
    assert_int_equal(error.status, 404);
    assert_string_equal(error.param, "conversation_id");
    sh_job_spec_reset(&spec);
    sh_response_store_free(store);
}

TEST(a_retry_cannot_continue_a_conversation)
{
    UNUSED_STATE;
    store = sh_response_store_create((sh_response_limits){10, 1 << 20, 1 << 20});
    sh_job_spec spec = {.conversations = store, .owner = 1, .retriable = true};
    sh_api_error error = {0};
    sh_err why;
    CHECK_OK(sh_json_parse(SH_STR(BODY(MESSAGE("user", "x"))), "body", &spec.json, &why), why);
    assert_false(sh_openai_chat_read(&spec, &error));
    assert_string_equal(error.param, "conversation_id");
    sh_job_spec_reset(&spec);
    sh_response_store_free(store);
}

TEST(the_result_of_a_call_is_enough_to_go_on)
{
    UNUSED_STATE;
    static const char *const ways[] = {TOOLS ",\"conversation_id\":\"w\"",
                                       TOOLS ",\"conversation_id\":\"s\",\"stream\":true"};
    static const char *const after[] = {TOOLS ",\"conversation_id\":\"w\"",
                                        TOOLS ",\"conversation_id\":\"s\""};
    for (int i = 0; i < 2; i++) {
        ask("call", CALLS, MESSAGE("user", "weather?"), ways[i]);
        check_status(200);
        const char *at = strstr(reply.ptr, "\"id\":\"call_");
        char id[64] = "", result[256];
        assert_non_null(at);
        sscanf(at, "\"id\":\"%63[^\"]", id);
        snprintf(result, sizeof(result),
                 "{\"role\":\"tool\",\"tool_call_id\":\"%s\",\"content\":\"rain\"}", id);
        ask("result", SAYS, result, after[i]);
        check_status(200);
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
        cmocka_unit_test(an_answer_names_its_conversation_and_can_be_continued),
        cmocka_unit_test(what_is_not_kept_is_not_named),
        cmocka_unit_test(kept_messages_come_before_new_ones),
        cmocka_unit_test(a_retry_cannot_continue_a_conversation),
        cmocka_unit_test(the_result_of_a_call_is_enough_to_go_on),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
