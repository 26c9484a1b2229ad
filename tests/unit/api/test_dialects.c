/* Two small dialects that only exist here, next to the API's own: one with named events, one with a
 * line of JSON for each part. They are rows of a table like any endpoint, served by the whole API,
 * and nothing else knows of them. */
#include "api/api_internal.h"
#include "api/openai.h"

#include "http/sse.h"
#include "served_api.h"

#include <math.h>

/* ---- what both read ---- */

typedef struct {
    sh_job_spec spec;
    const char *ask, *stop;
    const cJSON *tools;
} ask_fields;

#define AT(field) .offset = offsetof(ask_fields, field)

static const sh_field ask_rows[] = {
    {.name = "ask", .type = SH_FIELD_STRING, .required = true, .max = 100, AT(ask)},
    {.name = "script", .type = SH_FIELD_INT, .max = 100, AT(spec.seed)},
    {.name = "stream", .type = SH_FIELD_BOOL, .fallback = "false", AT(spec.stream)},
    {.name = "stop", .type = SH_FIELD_STRING, .max = 100, AT(stop)},
    {.name = "tools", .type = SH_FIELD_JSON, .kinds = SH_KIND_ARRAY, AT(tools)},
};
static const sh_field_table ask_table = {ask_rows, SH_COUNT_OF(ask_rows), NULL};

static cJSON *messages_make(cJSON *body, const char *text)
{
    cJSON *list = cJSON_AddArrayToObject(body, "messages"), *message = cJSON_CreateObject();
    cJSON_AddStringToObject(message, "role", "user");
    cJSON_AddStringToObject(message, "content", text);
    cJSON_AddItemToArray(list, message);
    return list;
}

static bool ask_read(sh_job_spec *spec, sh_api_error *err)
{
    ask_fields fields = {.spec = *spec};
    sh_job_spec *out = &fields.spec;
    out->temperature = out->top_p = out->repetition_penalty = NAN;
    out->top_k = -1;
    out->n = 1;
    out->chat = out->parallel_calls = true;
    bool fine = sh_fields_read(&ask_table, spec->json, &fields, err);
    if (fine) {
        sh_str *stop = sh_arena_alloc(&out->arena, sizeof(*stop));
        *stop = sh_str_of(fields.stop);
        out->stops = stop;
        out->stop_count = fields.stop != NULL;
        out->tools = (cJSON *)fields.tools;
        out->messages = messages_make(out->json, fields.ask);
    }
    *spec = *out;
    return fine;
}

/* ---- a dialect of named events ---- */

typedef struct {
    int parts;
} events_state;

static const char *const events_words[] = {
    [SH_ANSWER_STOP] = "end_turn",
    [SH_ANSWER_STOP_STRING] = "stop_sequence",
    [SH_ANSWER_LENGTH] = "max_tokens",
    [SH_ANSWER_TOOL_CALLS] = "tool_use",
};

static int events_status(const sh_api_error *error)
{
    return error->status == 503 ? 529 : error->status;
}

static void events_error(const sh_api_error *error, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "type", "error");
    sh_write_int(&w, "kind", error->status);
    sh_write_text(&w, "message", error->message);
    sh_write_end(&w, '}');
}

static void events_headers(sh_http_request *req)
{
    sh_http_add_header(req, "Events-Request", sh_http_id(req));
}

static void events_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_str(&w, "text", sh_buf_str(&answer->choices[0].content));
    sh_write_text(&w, "why", events_words[answer->choices[0].finish]);
    sh_write_end(&w, '}');
}

static void events_begin(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, "start", out);
    sh_write_begin(&w, NULL, '{');
    sh_write_bool(&w, "msg", strncmp(answer->id, "msg-", 4) == 0);
    sh_write_end(&w, '}');
    sh_framing_end(&sh_framing_sse, &w);
}

static void events_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    events_state *state = answer->state;
    if (choice->content.len == 0) return;
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, "text", out);
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "part", ++state->parts);
    sh_write_str(&w, "text", sh_buf_str(&choice->content));
    sh_write_end(&w, '}');
    sh_framing_end(&sh_framing_sse, &w);
}

static void events_end(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, "stop", out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "why", events_words[answer->choices[0].finish]);
    sh_write_end(&w, '}');
    sh_framing_end(&sh_framing_sse, &w);
}

static void events_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, "error", out);
    events_error(error, out);
    sh_framing_end(&sh_framing_sse, &w);
}

static void events_keep_alive(sh_buf *out)
{
    sh_sse_event(out, "ping", SH_STR("{}"));
}

static const sh_dialect events = {
    .error_status = events_status,
    .error = events_error,
    .error_schema = "{\"title\":\"of events\"}",
    .headers = events_headers,
};

static const sh_job_format events_format = {
    .kind = "events",
    .id_prefix = "msg-",
    .read = ask_read,
    .whole = events_whole,
    .framing = &sh_framing_sse,
    .state_size = sizeof(events_state),
    .begin = events_begin,
    .part = events_part,
    .end = events_end,
    .fail = events_fail,
    .keep_alive = events_keep_alive,
};

/* ---- a dialect of lines ---- */

static const char *const lines_words[] = {
    [SH_ANSWER_STOP] = "stop",
    [SH_ANSWER_STOP_STRING] = "stop",
    [SH_ANSWER_LENGTH] = "full",
    [SH_ANSWER_TOOL_CALLS] = "calls",
};

static int lines_status(const sh_api_error *error)
{
    return error->status < 500 ? 400 : 500;
}

static void lines_error(const sh_api_error *error, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "error", error->message);
    sh_write_end(&w, '}');
}

static void line_write(sh_str text, const char *why, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_ndjson, NULL, out);
    sh_write_begin(&w, NULL, '{');
    sh_write_str(&w, "text", text);
    sh_write_text(&w, "why", why);
    sh_write_end(&w, '}');
    sh_framing_end(&sh_framing_ndjson, &w);
}

static void lines_whole(const sh_answer *answer, sh_buf *out)
{
    const sh_choice *choice = &answer->choices[0];
    line_write(sh_buf_str(&choice->content), lines_words[choice->finish], out);
}

static void lines_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    (void)answer;
    if (choice->content.len > 0) line_write(sh_buf_str(&choice->content), NULL, out);
}

static void lines_end(const sh_answer *answer, sh_buf *out)
{
    line_write(SH_STR(""), lines_words[answer->choices[0].finish], out);
}

static void lines_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_json_writer w = sh_framing_begin(&sh_framing_ndjson, NULL, out);
    lines_error(error, out);
    sh_framing_end(&sh_framing_ndjson, &w);
}

static const sh_dialect lines = {
    .error_status = lines_status,
    .error = lines_error,
    .error_schema = "{\"title\":\"of lines\"}",
};

static const sh_job_format lines_format = {
    .kind = "lines",
    .id_prefix = "line-",
    .read = ask_read,
    .whole = lines_whole,
    .framing = &sh_framing_ndjson,
    .part = lines_part,
    .end = lines_end,
    .fail = lines_fail,
};

/* ---- the table and the scripts ---- */

/* Lets no time pass before streams are kept alive. */
static void handle_tick(sh_http_request *req, void *arg)
{
    sh_buf json = {0};
    sh_jobs_keep_alive(arg, 0);
    sh_buf_add_text(&json, "{}");
    sh_api_reply_json(req, 200, &json);
    sh_buf_reset(&json);
}

#define DOCUMENTED .tag = "Test", .summary = "A test", .answer = "An answer."

static const sh_endpoint test_rows[] = {
    {.method = SH_HTTP_POST,
     .path = "/v1/chat/completions",
     .handle = sh_handle_generate,
     .dialect = &sh_openai,
     .format = &sh_openai_chat,
     DOCUMENTED},
    {.method = SH_HTTP_POST,
     .path = "/v1/events",
     .handle = sh_handle_generate,
     .dialect = &events,
     .format = &events_format,
     .fields = &ask_table,
     DOCUMENTED},
    {.method = SH_HTTP_POST,
     .path = "/lines/ask",
     .handle = sh_handle_generate,
     .dialect = &lines,
     .format = &lines_format,
     .fields = &ask_table,
     DOCUMENTED},
    {.method = SH_HTTP_GET, .path = "/requests/recent", .handle = sh_handle_recent, DOCUMENTED},
    {.method = SH_HTTP_GET, .path = "/tick", .handle = handle_tick, DOCUMENTED},
    {.method = SH_HTTP_GET, .path = "/health", .handle = sh_handle_ready, DOCUMENTED},
};
static const sh_endpoint_table test_endpoints = {test_rows, SH_COUNT_OF(test_rows)};

enum { SAYS, STOPS, CUT, CALLS, LOST, LOST_LATER, FULL, WAITS };

static const engine_script scripts[] = {
    [SAYS] = {.pieces = {"A", "B"}},
    [STOPS] = {.pieces = {"A", "B", "C"}},
    [CUT] = {.pieces = {"A"}, .finish = SH_FINISH_LENGTH},
    [CALLS] = {.pieces = {"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                          "{}}\n</tool_call>"}},
    [LOST] = {.error = SH_ERR_GROUP},
    [LOST_LATER] = {.pieces = {"A"}, .error = SH_ERR_GROUP},
    [FULL] = {.error = SH_ERR_LIMIT, .retry = true},
    [WAITS] = {.pieces = {"A"}, .waits = true},
};

#define TOOLS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}]"

static void ask(const char *path, int script, const char *more)
{
    char body[BODY_MAX];
    snprintf(body, sizeof(body), "{\"ask\":\"hi\",\"script\":%d%s}", script, more);
    request("POST", path, body);
}

/* ---- tests ---- */

TEST(each_dialect_writes_whole_answers_with_its_own_words)
{
    UNUSED_STATE;
    static const struct {
        int script;
        const char *more, *text, *events, *lines;
    } cases[] = {
        {SAYS, "", "AB", "end_turn", "stop"},
        {STOPS, ",\"stop\":\"B\"", "A", "stop_sequence", "stop"},
        {CUT, "", "A", "max_tokens", "full"},
        {CALLS, TOOLS, "", "tool_use", "calls"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[256];
        snprintf(body, sizeof(body), "{\"text\":\"%s\",\"why\":\"%s\"}", cases[i].text,
                 cases[i].events);
        ask("/v1/events", cases[i].script, cases[i].more);
        check_reply(200, body);
        check_holds("\r\nContent-Type: application/json\r\n");
        check_holds("\r\nEvents-Request: req_");

        snprintf(body, sizeof(body), "{\"text\":\"%s\",\"why\":\"%s\"}\n", cases[i].text,
                 cases[i].lines);
        ask("/lines/ask", cases[i].script, cases[i].more);
        check_reply(200, body);
        assert_null(strstr(reply.ptr, "Events-Request"));
    }
}

TEST(each_dialect_frames_its_streams)
{
    UNUSED_STATE;
    ask("/v1/events", SAYS, ",\"stream\":true");
    check_reply(200, "event: start\ndata: {\"msg\":true}\n\n"
                     "event: text\ndata: {\"part\":1,\"text\":\"A\"}\n\n"
                     "event: text\ndata: {\"part\":2,\"text\":\"B\"}\n\n"
                     "event: stop\ndata: {\"why\":\"end_turn\"}\n\n");
    check_holds("\r\nContent-Type: text/event-stream; charset=utf-8\r\n");
    check_holds("\r\nEvents-Request: req_");

    ask("/lines/ask", CUT, ",\"stream\":true");
    check_reply(200, "{\"text\":\"A\",\"why\":null}\n{\"text\":\"\",\"why\":\"full\"}\n");
    check_holds("\r\nContent-Type: application/x-ndjson\r\n");
}

TEST(each_dialect_reports_errors_with_its_own_status_and_body)
{
    UNUSED_STATE;
    static const struct {
        int script;
        const char *more;
        int events, lines;
        const char *events_body, *lines_body;
    } cases[] = {
        {LOST, "", 529, 500,
         "{\"type\":\"error\",\"kind\":503,\"message\":\"the script ends here\"}",
         "{\"error\":\"the script ends here\"}"},
        {FULL, ",\"stream\":true", 429, 400,
         "{\"type\":\"error\",\"kind\":429,\"message\":\"the script ends here\"}",
         "{\"error\":\"the script ends here\"}"},
        {SAYS, ",\"stop\":1", 400, 400,
         "{\"type\":\"error\",\"kind\":400,\"message\":\"'stop' must be a string, not a number\"}",
         "{\"error\":\"'stop' must be a string, not a number\"}"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        ask("/v1/events", cases[i].script, cases[i].more);
        check_reply(cases[i].events, cases[i].events_body);
        ask("/lines/ask", cases[i].script, cases[i].more);
        check_reply(cases[i].lines, cases[i].lines_body);
    }
}

TEST(a_stream_that_fails_ends_in_its_own_dialect)
{
    UNUSED_STATE;
    ask("/v1/events", LOST_LATER, ",\"stream\":true");
    check_status(200);
    check_holds("\"A\"}\n\nevent: error\ndata: {\"type\":\"error\",\"kind\":503,"
                "\"message\":\"the script ends here\"}\n\n");
    assert_null(strstr(reply.ptr, "event: stop"));
    ask("/lines/ask", LOST_LATER, ",\"stream\":true");
    check_reply(200, "{\"text\":\"A\",\"why\":null}\n{\"error\":\"the script ends here\"}\n");
}

/* The stream begins with `expected`, which comes before the engine says anything; or, where a
 * dialect has no such thing, with its first part. */
static void check_kept_alive(const char *path, const char *to_script, const char *expected)
{
    sh_buf heard = {0};
    char body[BODY_MAX];
    snprintf(body, sizeof(body), "{%s:%d,\"stream\":true}", to_script, WAITS);
    int fd = request_send("POST", path, KEY, body);
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    while (!engine_waits() && !sh_deadline_passed(deadline)) usleep(1000);
    request("GET", "/tick", "");
    check_reply(200, "{}");
    engine_go();
    hear(fd, &heard);
    if (strncmp(body_of(heard.ptr), expected, strlen(expected)) != 0)
        fail_msg("%s: '%s'", path, heard.ptr);
    close(fd);
    sh_buf_reset(&heard);
}

TEST(each_dialect_keeps_quiet_streams_alive_in_its_own_way)
{
    UNUSED_STATE;
    check_kept_alive("/v1/events", "\"ask\":\"hi\",\"script\"",
                     "event: start\ndata: {\"msg\":true}\n\nevent: ping\ndata: {}\n\n");
    check_kept_alive("/v1/chat/completions",
                     "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"seed\"",
                     ": waiting\n\n");
    check_kept_alive("/lines/ask", "\"ask\":\"hi\",\"script\"", "{\"text\":\"A\",");
}

TEST(requests_without_a_handler_are_refused_in_the_nearest_dialect)
{
    UNUSED_STATE;
    static const struct {
        const char *method, *path;
        int status;
        const char *starts;
    } cases[] = {
        {"GET", "/v1/events", 405, "{\"type\":\"error\",\"kind\":405,"},
        {"POST", "/v1/events/more", 404, "{\"type\":\"error\",\"kind\":404,"},
        {"POST", "/v1/unknown", 404, "{\"error\":{\"message\":"},
        {"BREW", "/lines/ask", 500, "{\"error\":\"this"},
        {"GET", "/lines", 400, "{\"error\":\"there is no"},
        {"GET", "/lines/", 400, "{\"error\":\"there is no"},
        {"GET", "/linesman", 404, "{\"error\":{\"message\":"},
        {"GET", "/", 404, "{\"error\":{\"message\":"},
        {"GET", "nothing", 400, "{\"error\":{\"message\":"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        request(cases[i].method, cases[i].path, "");
        check_status(cases[i].status);
        if (strncmp(body_of(reply.ptr), cases[i].starts, strlen(cases[i].starts)) != 0)
            fail_msg("%s %s: %s", cases[i].method, cases[i].path, reply.ptr);
    }
}

TEST(the_limits_of_the_server_are_reported_in_the_dialect_of_the_route)
{
    UNUSED_STATE;
    static char large[BODY_MAX + 1];
    memset(large, ' ', sizeof(large) - 1);
    request("POST", "/v1/events", large);
    check_status(413);
    check_holds("{\"type\":\"error\",\"kind\":413,");
    check_holds("\r\nEvents-Request: req_");
    request("POST", "/lines/ask", large);
    check_status(400);
    check_holds("{\"error\":\"the body has 4096 bytes");
    request("POST", "/lines/ask", "{");
    check_status(400);
    check_holds("{\"error\":\"the body: ");

    int fd = request_send("POST", "/v1/events", "", "{}");
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
    check_status(401);
    check_holds("{\"type\":\"error\",\"kind\":401,");
    check_holds("\r\nWWW-Authenticate: Bearer\r\n");
}

TEST(records_have_the_same_words_for_every_dialect)
{
    UNUSED_STATE;
    ask("/lines/ask", CUT, "");
    ask("/v1/events", LOST, "");
    request("GET", "/requests/recent?n=2", "");
    check_holds("\"kind\":\"events\"");
    check_holds(
        "\"http_status\":529,\"error_message\":\"the script ends here\",\"finish_reason\":null");
    check_holds("\"kind\":\"lines\"");
    check_holds("\"http_status\":200,\"error_message\":null,\"finish_reason\":\"length\"");
}

TEST(the_document_describes_the_errors_of_each_dialect)
{
    UNUSED_STATE;
    sh_buf text = {0};
    sh_openapi_write(&test_endpoints, &text);
    assert_non_null(strstr(text.ptr, "{\"schema\":{\"title\":\"of events\"}}"));
    assert_non_null(strstr(text.ptr, "{\"schema\":{\"title\":\"of lines\"}}"));
    assert_non_null(strstr(text.ptr, "\"tags\":[{\"name\":\"Test\"}]"));
    sh_buf_reset(&text);
}

static int serve(void **state)
{
    UNUSED_STATE;
    api_serve(&test_endpoints, scripts);
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
        cmocka_unit_test(each_dialect_writes_whole_answers_with_its_own_words),
        cmocka_unit_test(each_dialect_frames_its_streams),
        cmocka_unit_test(each_dialect_reports_errors_with_its_own_status_and_body),
        cmocka_unit_test(a_stream_that_fails_ends_in_its_own_dialect),
        cmocka_unit_test(each_dialect_keeps_quiet_streams_alive_in_its_own_way),
        cmocka_unit_test(requests_without_a_handler_are_refused_in_the_nearest_dialect),
        cmocka_unit_test(the_limits_of_the_server_are_reported_in_the_dialect_of_the_route),
        cmocka_unit_test(records_have_the_same_words_for_every_dialect),
        cmocka_unit_test(the_document_describes_the_errors_of_each_dialect),
    };
    return cmocka_run_group_tests(tests, serve, serve_end);
}
