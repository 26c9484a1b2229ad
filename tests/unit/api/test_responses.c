/* The Responses API, served by the whole API with a scripted engine, and the store of responses.
 * The real client libraries are in tests/api. */
#include "api/messages.h"
#include "api/responses.h"
#include "base/alloc.h"
#include "served_api.h"

enum { SAYS, THINKS, CUT, CALLS, CUT_CALL, LOST, LOST_LATER, FULL };

static const engine_script scripts[] = {
    [SAYS] = {.pieces = {"A", "B"}},
    [THINKS] = {.pieces = {"<think>", "T", "</think>", "B"}},
    [CUT] = {.pieces = {"A"}, .finish = SH_FINISH_LENGTH},
    [CALLS] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                          "{\"city\": \"Oslo\"}}\n</tool_call>"}},
    [CUT_CALL] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"},
                  .finish = SH_FINISH_LENGTH},
    [LOST] = {.error = SH_ERR_GROUP},
    [LOST_LATER] = {.pieces = {"A"}, .error = SH_ERR_GROUP},
    [FULL] = {.error = SH_ERR_LIMIT, .retry = true},
};

#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\",\"parameters\":{\"type\":"        \
    "\"object\"},\"strict\":false}]"

/* The id of the response is that of the request: resp_ID. */
static void ask_as(const char *key, const char *id, int script, const char *more)
{
    char body[BODY_MAX], header[64];
    snprintf(body, sizeof(body), "{\"seed\":%d%s}", script, more);
    snprintf(header, sizeof(header), "X-Request-Id: %s\r\n", id);
    more_headers = header;
    request_as(key, "POST", "/v1/responses", body);
    more_headers = "";
}

static void ask(const char *id, int script, const char *more)
{
    ask_as(KEY, id, script, more);
}

TEST(a_whole_answer_is_a_response)
{
    UNUSED_STATE;
    ask("a", THINKS,
        ",\"input\":\"hi\",\"instructions\":\"be\",\"max_output_tokens\":9,\"metadata\":{\"k\":"
        "\"v\"},\"temperature\":0.5");
    check_status(200);
    CHECK_SEQUENCE(
        "{\"id\":\"resp_a\",\"object\":\"response\",\"created_at\":",
        "\"status\":\"completed\",\"background\":false,\"error\":null,\"incomplete_details\":null,"
        "\"model\":\"demo\",\"output\":["
        "{\"id\":\"rs_a_0\",\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"T\"}],\"status\":\"completed\"},"
        "{\"id\":\"msg_a_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":"
        "\"output_text\",\"text\":\"B\",\"annotations\":[],\"logprobs\":[]}],\"status\":"
        "\"completed\"}],\"instructions\":\"be\",\"max_output_tokens\":9,",
        "\"store\":true,\"temperature\":0.5,", "\"metadata\":{\"k\":\"v\"}",
        "\"usage\":{\"input_tokens\":", "\"input_tokens_details\":{\"cached_tokens\":0}",
        "\"output_tokens_details\":{\"reasoning_tokens\":", "\"total_tokens\":");

    ask("b", CUT, ",\"input\":\"hi\"");
    CHECK_SEQUENCE("\"status\":\"incomplete\"",
                   "\"incomplete_details\":{\"reason\":\"max_output_tokens\"}", "\"text\":\"A\"",
                   "\"status\":\"incomplete\"}]");

    ask("c", CALLS, ",\"input\":\"hi\"" TOOLS);
    CHECK_SEQUENCE("\"output\":[{\"id\":\"fc_c_0\",\"type\":\"function_call\",\"call_id\":\"call_",
                   "\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Oslo\\\"}\","
                   "\"status\":\"completed\"}]");
    ask("e", CUT_CALL, ",\"input\":\"hi\"" TOOLS);
    CHECK_SEQUENCE("\"status\":\"incomplete\"", "\"output\":[{\"id\":\"fc_e_0\"",
                   "\"arguments\":\"{\\\"ci\",\"status\":\"incomplete\"}]");

    ask("d", SAYS, ",\"input\":\"hi\",\"include\":[\"message.output_text.logprobs\"]");
    CHECK_SEQUENCE("\"logprobs\":[{\"token\":\"A\"", "},{\"token\":\"B\"", "}]}]");
}

TEST(a_stream_has_named_and_numbered_events)
{
    UNUSED_STATE;
    ask("a", THINKS, ",\"input\":\"hi\",\"stream\":true");
    check_status(200);
    CHECK_SEQUENCE(
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,"
        "\"response\":{\"id\":\"resp_a\"",
        "\"status\":\"in_progress\"",
        "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"sequence_number\":"
        "1,",
        "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\","
        "\"sequence_number\":2,\"output_index\":0,\"item\":{\"id\":\"rs_a_0\",\"type\":"
        "\"reasoning\",\"summary\":[],\"content\":[],\"status\":\"in_progress\"}}\n\n"
        "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\","
        "\"sequence_number\":3,\"item_id\":\"rs_a_0\",\"output_index\":0,\"content_index\":0,"
        "\"part\":{\"type\":\"reasoning_text\",\"text\":\"\"}}\n\n"
        "event: response.reasoning_text.delta\ndata: {\"type\":\"response.reasoning_text.delta\","
        "\"sequence_number\":4,\"item_id\":\"rs_a_0\",\"output_index\":0,\"content_index\":0,"
        "\"delta\":\"T\"}\n\n"
        "event: response.reasoning_text.done\ndata: {\"type\":\"response.reasoning_text.done\","
        "\"sequence_number\":5,\"item_id\":\"rs_a_0\",\"output_index\":0,\"content_index\":0,"
        "\"text\":\"T\"}\n\n"
        "event: response.content_part.done\n",
        "event: response.output_item.done\n", "\"text\":\"T\"}],\"status\":\"completed\"}}",
        "event: response.output_item.added\n", "\"sequence_number\":8,\"output_index\":1,",
        "event: response.content_part.added\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\","
        "\"sequence_number\":10,\"item_id\":\"msg_a_1\",\"output_index\":1,\"content_index\":0,"
        "\"delta\":\"B\",\"logprobs\":[]}\n\n"
        "event: response.output_text.done\n",
        "event: response.content_part.done\n", "event: response.output_item.done\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":14,",
        "\"status\":\"completed\"", "\"output\":[{\"id\":\"rs_a_0\"", "{\"id\":\"msg_a_1\"",
        "\"usage\":{\"input_tokens\":");
    assert_null(strstr(reply.ptr, "[DONE]"));

    ask("b", CUT, ",\"input\":\"hi\",\"stream\":true");
    CHECK_SEQUENCE("event: response.output_item.done\n", "\"status\":\"incomplete\"",
                   "event: response.incomplete\n");

    ask("c", CALLS, ",\"input\":\"hi\",\"stream\":true" TOOLS);
    CHECK_SEQUENCE("\"item\":{\"id\":\"fc_c_0\",\"type\":\"function_call\",\"call_id\":\"call_",
                   "\"arguments\":\"\",\"status\":\"in_progress\"}",
                   "event: response.function_call_arguments.delta\n", "\"delta\":\"{",
                   "event: response.function_call_arguments.done\n",
                   "\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Oslo\\\"}\"}",
                   "event: response.output_item.done\n", "event: response.completed\n");

    ask("d", CUT_CALL, ",\"input\":\"hi\",\"stream\":true" TOOLS);
    CHECK_SEQUENCE("\"item\":{\"id\":\"fc_d_0\",\"type\":\"function_call\"",
                   "event: response.output_item.done\n",
                   "\"arguments\":\"{\\\"ci\",\"status\":\"incomplete\"}",
                   "event: response.incomplete\n");
    assert_null(strstr(reply.ptr, "output_text"));
}

TEST(old_items_are_left_out_of_a_long_conversation_on_request)
{
    UNUSED_STATE;
    static char digits[2500], more[BODY_MAX - 100];
    for (size_t i = 0; i + 1 < sizeof(digits); i++) digits[i] = (char)('0' + i % 10);
    static const struct {
        const char *truncation;
        int status;
    } cases[] = {{"disabled", 400}, {"auto", 200}};
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        snprintf(more, sizeof(more),
                 ",\"truncation\":\"%s\",\"input\":[{\"role\":\"system\",\"content\":\"s\"},{"
                 "\"role\":\"user\",\"content\":\"%s\"},{\"role\":\"assistant\",\"content\":"
                 "\"a\"},{\"role\":\"user\",\"content\":\"q\"}]",
                 cases[i].truncation, digits);
        ask("long", SAYS, more);
        check_status(cases[i].status);
    }
    check_holds("\"truncation\":\"auto\"");
    snprintf(more, sizeof(more), ",\"truncation\":\"auto\",\"input\":\"%s\"", digits);
    ask("long", SAYS, more);
    check_status(400);
    check_holds("'input' has ");
}

TEST(dropping_messages_keeps_turns_whole)
{
    UNUSED_STATE;
    cJSON *list = cJSON_Parse("[{\"role\":\"system\"},{\"role\":\"user\",\"n\":1},{\"role\":"
                              "\"assistant\"},{\"role\":\"tool\"},{\"role\":\"user\",\"n\":2}]");
    assert_true(sh_messages_drop_oldest(list, 1));
    char *text = cJSON_PrintUnformatted(list);
    assert_string_equal(text, "[{\"role\":\"system\"},{\"role\":\"user\",\"n\":2}]");
    assert_false(sh_messages_drop_oldest(list, 1));
    cJSON_free(text);
    cJSON_Delete(list);
}

TEST(failures_have_their_own_events_and_states)
{
    UNUSED_STATE;
    ask("a", LOST, ",\"input\":\"hi\",\"stream\":true");
    check_status(503);
    check_holds("{\"error\":{\"message\":\"the script ends here\"");
    ask("full", FULL, ",\"input\":\"hi\"");
    check_status(429);
    ask("c", LOST_LATER, ",\"input\":\"hi\",\"stream\":true");
    check_status(200);
    CHECK_SEQUENCE("event: error\ndata: {\"type\":\"error\",\"sequence_number\":",
                   "\"code\":\"rank_lost\",\"message\":\"the script ends here\",\"param\":null}",
                   "event: response.failed\n", "\"status\":\"failed\"",
                   "\"error\":{\"code\":\"server_error\",\"message\":\"the script ends here\"}");
    request("GET", "/v1/responses/resp_c", "");
    check_status(200);
    check_holds("\"status\":\"failed\"");
    request("GET", "/v1/responses/resp_full", "");
    check_status(404);
}

TEST(responses_are_stored_for_their_key)
{
    UNUSED_STATE;
    ask("a", SAYS, ",\"input\":\"hi\"");
    sh_buf first = {0};
    sh_buf_add_text(&first, body_of(reply.ptr));
    request("GET", "/v1/responses/resp_a", "");
    check_reply(200, first.ptr);
    sh_buf_reset(&first);
    request_as(OTHER_KEY, "GET", "/v1/responses/resp_a", "");
    check_status(404);
    ask_as(OTHER_KEY, "x", SAYS, ",\"input\":\"on\",\"previous_response_id\":\"resp_a\"");
    check_status(404);
    request_as(OTHER_KEY, "DELETE", "/v1/responses/resp_a", "");
    check_status(404);
    request("POST", "/v1/responses/resp_a/cancel", "");
    check_status(400);
    check_holds("only background responses can be cancelled");
    request("DELETE", "/v1/responses/resp_a", "");
    check_reply(200, "{\"id\":\"resp_a\",\"object\":\"response\",\"deleted\":true}");
    request("GET", "/v1/responses/resp_a", "");
    check_status(404);
    check_holds("{\"error\":{\"message\":\"the response 'resp_a' is not stored here (any more)\"");

    ask("gone", SAYS, ",\"input\":\"hi\",\"store\":false");
    check_holds("\"store\":false");
    request("GET", "/v1/responses/resp_gone", "");
    check_status(404);
}

TEST(input_items_are_listed_in_pages)
{
    UNUSED_STATE;
    ask("a", SAYS,
        ",\"input\":[{\"role\":\"user\",\"content\":\"one, \\\"]\\\\\"},{\"type\":\"message\","
        "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"two\"}]},"
        "{\"role\":\"user\",\"content\":\"three\"}]");
    check_status(200);
    request("GET", "/v1/responses/resp_a/input_items?order=asc", "");
    check_reply(200,
                "{\"object\":\"list\",\"data\":[{\"role\":\"user\",\"content\":\"one, "
                "\\\"]\\\\\",\"id\":\"in_0\",\"type\":\"message\"},{\"type\":\"message\",\"role\":"
                "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"two\"}],\"id\":"
                "\"in_1\"},{\"role\":\"user\",\"content\":\"three\",\"id\":\"in_2\",\"type\":"
                "\"message\"}],\"first_id\":\"in_0\",\"last_id\":\"in_2\",\"has_more\":false}");
    request("GET", "/v1/responses/resp_a/input_items?limit=1", "");
    CHECK_SEQUENCE("three", "\"first_id\":\"in_2\",\"last_id\":\"in_2\",\"has_more\":true}");
    request("GET", "/v1/responses/resp_a/input_items?limit=1&after=in_2", "");
    CHECK_SEQUENCE("two", "\"last_id\":\"in_1\",\"has_more\":true}");
    request("GET", "/v1/responses/resp_a/input_items?after=in_0", "");
    check_holds("\"data\":[],\"first_id\":null,\"last_id\":null,\"has_more\":false}");
    static const char *const bad[] = {"limit=0", "limit=101", "order=up", "after=x"};
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        char path[128];
        snprintf(path, sizeof(path), "/v1/responses/resp_a/input_items?%s", bad[i]);
        request("GET", path, "");
        check_status(400);
    }
    request("GET", "/v1/responses/none/input_items", "");
    check_status(404);
}

/* ---- the conversation ---- */

static const sh_response_limits LIMITS = {.count = 10, .bytes = 30000, .bytes_max = 100000};
static sh_response_store *store; /* not that of the API */

static void put(const char *id, const char *previous, const char *conversation, const char *input,
                const char *output)
{
    sh_response_store_put(store, 1,
                          &(sh_stored_response){.id = id,
                                                .previous = previous,
                                                .conversation = conversation,
                                                .response = SH_STR("{}"),
                                                .input = sh_str_of(input),
                                                .output = sh_str_of(output)});
}

static bool read_body(const char *body, sh_job_spec *spec, sh_api_error *err)
{
    sh_err why;
    *spec = (sh_job_spec){.store = store, .owner = 1};
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &spec->json, &why), why);
    return sh_responses_read(spec, err);
}

static void check_messages(const char *body, const char *messages)
{
    sh_job_spec spec;
    sh_api_error err;
    if (!read_body(body, &spec, &err)) fail_msg("%s: %s", body, err.message);
    char *text = cJSON_PrintUnformatted(spec.messages);
    assert_string_equal(text, messages);
    cJSON_free(text);
    sh_job_spec_reset(&spec);
}

TEST(items_become_messages)
{
    UNUSED_STATE;
    check_messages(
        "{\"input\":\"q\",\"instructions\":\"s\"}",
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q\"}]");
    check_messages(
        "{\"input\":[{\"role\":\"developer\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{"
        "\"type\":\"input_text\",\"text\":\"q\"},{\"type\":\"input_text\",\"text\":\"!\"}]},{"
        "\"type\":\"reasoning\",\"id\":\"x\",\"summary\":[],\"content\":[{\"type\":"
        "\"reasoning_text\",\"text\":\"t\"}]},{\"type\":\"message\",\"role\":\"assistant\","
        "\"content\":[{\"type\":\"output_text\",\"text\":\"a\"}]},{\"type\":\"function_call\","
        "\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"k\\\":1}\"},{\"type\":"
        "\"function_call\",\"call_id\":\"c2\",\"name\":\"g\",\"arguments\":\"oops\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"c1\",\"output\":\"r\"},{\"type\":"
        "\"function_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":"
        "\"r2\"}]}]}",
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\"q!\"},{\"role\":"
        "\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":"
        "\"f\",\"arguments\":{\"k\":1}}},{\"id\":\"c2\",\"type\":\"function\",\"function\":{"
        "\"name\":\"g\",\"arguments\":\"oops\"}}],\"content\":\"a\",\"reasoning_content\":\"t\"},{"
        "\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"r\"},{\"role\":\"tool\","
        "\"tool_call_id\":\"c2\",\"content\":\"r2\"}]");
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAID(id, text)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"message\",\"role\":\"assistant\",\"content\":\"" text "\"}"
#define MESSAGE(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

TEST(a_response_continues_another)
{
    UNUSED_STATE;
    put("resp_1", NULL, NULL, "[" USER("q1") "]", "[" SAID("msg_1_0", "a1") "]");
    put("resp_2", "resp_1", "talk", "[" USER("q2") "]", "[" SAID("msg_2_0", "a2") "]");
    static const char whole[] =
        "[" MESSAGE("user", "q1") "," MESSAGE("assistant", "a1") "," MESSAGE(
            "user", "q2") "," MESSAGE("assistant", "a2") "," MESSAGE("user", "q3") "]";
    check_messages("{\"input\":\"q3\",\"previous_response_id\":\"resp_2\"}", whole);
    check_messages("{\"input\":\"q3\",\"conversation\":\"talk\"}", whole);
    check_messages("{\"input\":\"q3\",\"conversation\":{\"id\":\"talk\"}}", whole);
    check_messages("{\"input\":\"q1\",\"conversation\":\"new\"}", "[" MESSAGE("user", "q1") "]");
    check_messages("{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_2_0\"}," USER("q") "]}",
                   "[" MESSAGE("assistant", "a2") "," MESSAGE("user", "q") "]");
    assert_true(sh_response_store_delete(store, 1, "resp_1"));
    sh_job_spec spec;
    sh_api_error err;
    assert_false(read_body("{\"input\":\"q3\",\"previous_response_id\":\"resp_2\"}", &spec, &err));
    assert_string_equal(err.message, "the response 'resp_1' is not stored here (any more)");
    assert_int_equal(err.status, 404);
    sh_job_spec_reset(&spec);
}

TEST(a_retry_adds_nothing_to_a_conversation)
{
    static const char *const bodies[] = {"{\"input\":\"q\",\"conversation\":\"talk\"}",
                                         "{\"input\":\"q\"}"};
    UNUSED_STATE;
    for (int i = 0; i < 2; i++) {
        sh_job_spec spec = {.store = store, .owner = 1, .retriable = true};
        sh_api_error error;
        sh_err why;
        CHECK_OK(sh_json_parse(sh_str_of(bodies[i]), "body", &spec.json, &why), why);
        assert_int_equal(sh_responses_read(&spec, &error), i);
        if (i == 0) assert_string_equal(error.param, "conversation");
        sh_job_spec_reset(&spec);
    }
}

TEST(what_cannot_be_read_is_named)
{
    UNUSED_STATE;
    static const struct {
        const char *body, *param, *part;
    } cases[] = {
        {"{}", "input", "is missing"},
        {"{\"input\":[]}", "input", "is empty"},
        {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
         "input[0].content[0]", "'input_image'"},
        {"{\"input\":[{\"type\":\"web_search_call\"}]}", "input[0]", "'web_search_call'"},
        {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"msg_9_0\"}]}", "input[0]",
         "item 'msg_9_0'"},
        {"{\"input\":[1]}", "input[0]", "must be an object"},
        {"{\"input\":\"q\",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0]",
         "hosted tool 'web_search'"},
        {"{\"input\":\"q\",\"tool_choice\":\"required\"}", "tool_choice", "no 'tools'"},
        {"{\"input\":\"q\",\"background\":true}", "background", "while its client waits"},
        {"{\"input\":\"q\",\"truncation\":\"some\"}", "truncation", "auto|disabled"},
        {"{\"input\":\"q\",\"text\":{\"format\":{\"type\":\"json_schema\"}}}", "text.format.schema",
         "missing"},
        {"{\"input\":\"q\",\"text\":{\"format\":{\"type\":\"xml\"}}}", "text.format.type",
         "json_schema"},
        {"{\"input\":\"q\",\"conversation\":\"a\",\"previous_response_id\":\"b\"}", "conversation",
         "cannot both"},
        {"{\"input\":\"q\",\"conversation\":{}}", "conversation", "must be an id"},
        {"{\"input\":\"q\",\"previous_response_id\":\"resp_9\"}", "previous_response_id",
         "'resp_9' is not stored"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_job_spec spec;
        sh_api_error err;
        if (read_body(cases[i].body, &spec, &err)) fail_msg("%s", cases[i].body);
        assert_string_equal(err.param, cases[i].param);
        if (strstr(err.message, cases[i].part) == NULL) fail_msg("%s", err.message);
        sh_job_spec_reset(&spec);
    }
}

/* ---- the store ---- */

static bool is_stored(uint64_t owner, const char *id)
{
    sh_buf out = {0};
    bool found = sh_response_store_get(store, owner, id, SH_STORED_RESPONSE, &out);
    sh_buf_reset(&out);
    return found;
}

static void put_sized(uint64_t owner, int number, size_t bytes)
{
    static char text[30000];
    char id[32];
    snprintf(id, sizeof(id), "r%d", number);
    sh_response_store_put(
        store, owner,
        &(sh_stored_response){
            .id = id, .response = {text, bytes}, .input = SH_STR("[]"), .output = SH_STR("[]")});
}

/* The client leaves in the middle of a stream. */
TEST(an_answer_whose_client_has_left_is_cancelled)
{
    UNUSED_STATE;
    sh_job_spec spec;
    sh_api_error error;
    sh_err err;
    sh_tokens *prompts;
    size_t count;
    sh_answer *answer = NULL;
    sh_buf out = {0}, stored = {0};
    assert_true(
        read_body("{\"input\":\"q\",\"stream\":true,\"conversation\":\"c\"}", &spec, &error));
    assert_true(sh_served_model_prepare(served, &spec, &prompts, &count, &error));
    CHECK_OK(sh_answer_create(&spec, served, prompts, count, &answer, &err), err);
    snprintf(answer->id, sizeof(answer->id), "resp_left");
    answer->state = sh_alloc(sh_responses.state_size);
    sh_responses.begin(answer, &out);
    sh_answer_event(answer, &answer->choices[0], &(sh_event){.kind = SH_EVENT_TOKEN, .token = 'A'});
    sh_responses.part(answer, &answer->choices[0], &out);
    sh_api_fail(&error, 499, "cancelled", NULL, "the client disconnected");
    sh_responses.ended(answer, &error);
    assert_true(sh_response_store_get(store, 1, "resp_left", SH_STORED_RESPONSE, &stored));
    assert_non_null(strstr(stored.ptr, "\"status\":\"cancelled\""));
    assert_false(sh_response_store_latest(store, 1, "c", &stored));
    sh_responses.state_reset(answer->state);
    sh_answer_free(answer);
    sh_job_spec_reset(&spec);
    sh_buf_reset(&out);
    sh_buf_reset(&stored);
}

TEST(the_store_is_bounded_and_drops_the_oldest)
{
    UNUSED_STATE;
    for (int i = 0; i <= (int)LIMITS.count; i++) put_sized(5, i, 10);
    assert_false(is_stored(5, "r0"));
    assert_true(is_stored(5, "r1"));
    put_sized(6, 0, 10);
    assert_true(is_stored(5, "r1"));

    for (int i = 0; i < 4; i++) put_sized(7, i, LIMITS.bytes / 3);
    assert_false(is_stored(7, "r1"));
    assert_true(is_stored(7, "r2") && is_stored(7, "r3"));
    put_sized(7, 4, LIMITS.bytes); /* with its names it is too large by itself */
    assert_false(is_stored(7, "r4") || is_stored(7, "r3"));

    uint64_t owners = LIMITS.bytes_max / LIMITS.bytes + 1;
    for (uint64_t i = 0; i <= owners; i++) put_sized(100 + i, 0, LIMITS.bytes - 1000);
    assert_false(is_stored(5, "r1") || is_stored(6, "r0") || is_stored(100, "r0"));
    assert_true(is_stored(100 + owners, "r0"));
}

TEST(a_response_that_continues_itself_ends)
{
    UNUSED_STATE;
    sh_buf out = {0};
    put("resp_s", "resp_s", NULL, "[]", "[]");
    assert_false(sh_response_store_history(store, 1, "resp_s", &out));
    sh_buf_reset(&out);
}

static int serve(void **state)
{
    UNUSED_STATE;
    store = sh_response_store_create(LIMITS);
    api_serve(&sh_endpoints, scripts);
    return 0;
}

static int serve_end(void **state)
{
    UNUSED_STATE;
    api_serve_end();
    sh_response_store_free(store);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_answer_is_a_response),
        cmocka_unit_test(a_stream_has_named_and_numbered_events),
        cmocka_unit_test(old_items_are_left_out_of_a_long_conversation_on_request),
        cmocka_unit_test(dropping_messages_keeps_turns_whole),
        cmocka_unit_test(failures_have_their_own_events_and_states),
        cmocka_unit_test(responses_are_stored_for_their_key),
        cmocka_unit_test(input_items_are_listed_in_pages),
        cmocka_unit_test(items_become_messages),
        cmocka_unit_test(a_response_continues_another),
        cmocka_unit_test(a_retry_adds_nothing_to_a_conversation),
        cmocka_unit_test(what_cannot_be_read_is_named),
        cmocka_unit_test(an_answer_whose_client_has_left_is_cancelled),
        cmocka_unit_test(the_store_is_bounded_and_drops_the_oldest),
        cmocka_unit_test(a_response_that_continues_itself_ends),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
