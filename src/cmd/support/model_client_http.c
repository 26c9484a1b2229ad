/* The model client for a running server, which may be Shoal or any other with OpenAI's API.
 *
 * Fields that only Shoal sends (token ids, timings) are used where present and never required. The
 * server is untrusted input: sizes are bounded, numbers are range-checked, and any field may be
 * missing or of the wrong type.
 *
 * The stream is parsed inside the HTTP client's data callback. An error found there cannot be
 * returned from it directly, so it is kept in the stream and reported by stream_end. */
#include "base/alloc.h"
#include "base/clock.h"
#include "cmd/support/api_call.h"
#include "cmd/support/model_client.h"
#include "http/sse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While it streams, a server sends something at least every ten seconds; but one that computes a
 * long prompt before its first byte may take longer. */
enum { QUIET_MS = 300000, EVENT_MAX = 64 << 20 };

typedef struct {
    sh_model_client base;
    const sh_settings *s;
    char *url;   /* without a path */
    char *model; /* its name on the server; NULL: let the server choose */
} remote;

static void remote_close(sh_model_client *base)
{
    remote *r = (remote *)base;
    free(base->label);
    free(r->url);
    free(r->model);
    free(r);
}

static const cJSON *at(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_at(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(at(object, name));
}

static double number_at(const cJSON *object, const char *name, double fallback)
{
    const cJSON *item = at(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : fallback;
}

/* The server may send any number; one that does not fit an int is treated as absent. */
static int int_at(const cJSON *object, const char *name, int fallback)
{
    double value = number_at(object, name, fallback);
    return value >= 0 && value <= INT32_MAX ? (int)value : fallback;
}

/* The error of a response with a status other than 200. Servers send it as a string or as an
 * object. */
static sh_status refused(const remote *r, int code, const cJSON *json, sh_err *err)
{
    const cJSON *error = at(json, "error");
    const char *message = cJSON_IsString(error) ? error->valuestring : text_at(error, "message");
    return sh_err_set(err, SH_ERR_INPUT, "%s returned HTTP status %d%s%s", r->url, code,
                      message == NULL ? "" : ": ", message == NULL ? "" : message);
}

/* A stream in progress: the bytes of an incomplete event, and what has arrived so far. */
typedef struct {
    const remote *r;
    const sh_reply_handler *handler;
    sh_reply *out;
    sh_buf in, data;
    int64_t start_ns, first_ns, last_ns;
    bool chat;
    bool done; /* a finish_reason has arrived */
    bool failed;
    sh_err error;
} stream;

static void emit(stream *st, sh_output_kind kind, const char *text)
{
    if (text == NULL || text[0] == '\0') return;
    sh_output_event event = {.kind = kind, .text = sh_str_of(text)};
    st->handler->event(st->handler->ctx, &event);
}

/* A tool call begins with its name; its arguments follow in pieces. */
static void calls_emit(stream *st, const cJSON *calls)
{
    for (const cJSON *call = calls == NULL ? NULL : calls->child; call != NULL; call = call->next) {
        const cJSON *function = at(call, "function");
        const char *name = text_at(function, "name"), *id = text_at(call, "id");
        const char *args = text_at(function, "arguments");
        sh_output_event event = {.call = int_at(call, "index", 0)};
        if (name != NULL && name[0] != '\0') {
            event.kind = SH_OUTPUT_CALL_BEGIN;
            event.name = sh_str_of(name);
            event.id = sh_str_of(id);
            st->handler->event(st->handler->ctx, &event);
        }
        if (args == NULL || args[0] == '\0') continue;
        event.kind = SH_OUTPUT_CALL_ARGS;
        event.text = sh_str_of(args);
        st->handler->event(st->handler->ctx, &event);
    }
}

/* Chat and plain completions report log-probabilities in different shapes. */
static void ids_take(const cJSON *choice, bool chat, sh_reply *out)
{
    const cJSON *ids = at(choice, "token_ids"), *logprobs = at(choice, "logprobs");
    const cJSON *list = at(logprobs, chat ? "content" : "token_logprobs");
    for (const cJSON *id = ids == NULL ? NULL : ids->child; id != NULL; id = id->next)
        if (cJSON_IsNumber(id) && id->valuedouble >= 0 && id->valuedouble <= INT32_MAX)
            sh_ids_add(&out->ids, (int32_t)id->valuedouble);
    for (const cJSON *one = list == NULL ? NULL : list->child; one != NULL; one = one->next)
        sh_reply_add_logprob(out,
                             chat ? number_at(one, "logprob", NAN) : cJSON_GetNumberValue(one));
}

/* Token counts and times: every server sends "usage", only Shoal sends "timing". */
static void figures_take(const cJSON *json, sh_reply *out)
{
    const cJSON *usage = at(json, "usage"), *timing = at(json, "timing");
    const cJSON *details = at(usage, "prompt_tokens_details");
    out->prompt_tokens = int_at(usage, "prompt_tokens", out->prompt_tokens);
    out->completion_tokens = int_at(usage, "completion_tokens", out->completion_tokens);
    out->cached_tokens = int_at(details, "cached_tokens", out->cached_tokens);
    if (at(timing, "prefill_seconds") == NULL) return;
    out->prompt_s = number_at(timing, "queue_seconds", 0) + number_at(timing, "prefill_seconds", 0);
    out->answer_s = number_at(timing, "decode_seconds", 0);
}

/* Chat completions have a "delta", plain completions a "text". Reasoning has two names, depending
 * on the server. */
static void chunk_take(stream *st, const cJSON *json)
{
    const cJSON *choice = cJSON_GetArrayItem(at(json, "choices"), 0), *delta = at(choice, "delta");
    const char *finish = text_at(choice, "finish_reason");
    const char *reasoning = text_at(delta, "reasoning_content");
    emit(st, SH_OUTPUT_REASONING, reasoning != NULL ? reasoning : text_at(delta, "reasoning"));
    emit(st, SH_OUTPUT_CONTENT, text_at(delta, "content"));
    emit(st, SH_OUTPUT_CONTENT, text_at(choice, "text"));
    calls_emit(st, at(delta, "tool_calls"));
    ids_take(choice, st->chat, st->out);
    figures_take(json, st->out);
    if (choice == NULL) return;
    st->last_ns = sh_clock_ns();
    if (st->first_ns == 0) st->first_ns = st->last_ns;
    if (finish == NULL) return;
    snprintf(st->out->finish, sizeof(st->out->finish), "%s", finish);
    st->done = true;
}

static void event_take(stream *st)
{
    if (sh_str_is(sh_buf_str(&st->data), "[DONE]")) return;
    cJSON *json = NULL;
    sh_status status = sh_json_parse(sh_buf_str(&st->data), st->r->url, &json, &st->error);
    if (status == SH_OK && at(json, "error") != NULL)
        status = refused(st->r, int_at(at(json, "error"), "code", 200), json, &st->error);
    if (status == SH_OK) chunk_take(st, json);
    st->failed = st->failed || status != SH_OK;
    cJSON_Delete(json);
}

/* Returns false to make the HTTP client hang up. Only an incomplete event is kept in memory, so its
 * bound is the bound of the stream. */
static bool on_data(void *ctx, sh_str bytes)
{
    stream *st = ctx;
    sh_buf_add_str(&st->in, bytes);
    while (!st->failed && sh_sse_take(&st->in, &st->data)) event_take(st);
    if (!st->failed && st->in.len > EVENT_MAX) {
        st->failed = true;
        sh_err_set(&st->error, SH_ERR_LIMIT, "%s sent an event of more than %d MiB", st->r->url,
                   EVENT_MAX >> 20);
    }
    return !st->failed;
}

/* NaN means "the model's own": the field is omitted, and the server decides. */
static void number_put(cJSON *body, const char *name, double value)
{
    if (!isnan(value)) cJSON_AddNumberToObject(body, name, value);
}

static sh_status prompt_put(cJSON *body, const sh_question *q, sh_err *err)
{
    if (q->messages != NULL) {
        cJSON_AddItemReferenceToObject(body, "messages", (cJSON *)q->messages);
        if (q->tools != NULL) cJSON_AddItemReferenceToObject(body, "tools", (cJSON *)q->tools);
        return SH_OK;
    }
    if (q->text != NULL) {
        cJSON_AddStringToObject(body, "prompt", q->text);
        return SH_OK;
    }
    cJSON *list = cJSON_AddArrayToObject(body, "prompt");
    sh_str rest = sh_str_of(q->ids), part;
    for (int64_t id; sh_str_cut(&rest, ',', &part);) {
        if (!sh_str_to_int(sh_str_trim(part), &id) || id < 0 || id > INT32_MAX)
            return sh_err_set(err, SH_ERR_INPUT, "--ids: '%.*s' is not a token id", (int)part.len,
                              part.ptr);
        cJSON_AddItemToArray(list, cJSON_CreateNumber((double)id));
    }
    return SH_OK;
}

/* The request body; owned by the caller. NULL when the question is invalid. */
static char *body_make(const remote *r, const sh_question *q, sh_err *err)
{
    cJSON *body = cJSON_CreateObject();
    sh_status status = prompt_put(body, q, err);
    if (r->model != NULL) cJSON_AddStringToObject(body, "model", r->model);
    number_put(body, "temperature", q->temperature);
    number_put(body, "top_p", q->top_p);
    number_put(body, "repetition_penalty", q->repetition_penalty);
    if (q->top_k >= 0) cJSON_AddNumberToObject(body, "top_k", (double)q->top_k);
    if (q->min_p > 0) cJSON_AddNumberToObject(body, "min_p", q->min_p);
    if (q->max_tokens > 0) cJSON_AddNumberToObject(body, "max_tokens", (double)q->max_tokens);
    cJSON_AddNumberToObject(body, "seed", (double)q->seed);
    if (q->stops != NULL) cJSON_AddItemReferenceToObject(body, "stop", (cJSON *)q->stops);
    if (q->details) {
        cJSON_AddTrueToObject(body, "return_token_ids");
        cJSON_AddItemToObject(body, "logprobs",
                              q->messages != NULL ? cJSON_CreateTrue() : cJSON_CreateNumber(0));
    }
    cJSON_AddTrueToObject(body, "stream");
    cJSON_AddTrueToObject(cJSON_AddObjectToObject(body, "stream_options"), "include_usage");
    char *text = status == SH_OK ? cJSON_PrintUnformatted(body) : NULL;
    cJSON_Delete(body);
    return text;
}

static double seconds(int64_t from_ns, int64_t to_ns)
{
    return (double)(to_ns - from_ns) * 1e-9;
}

/* The result of a stream. An interrupted answer is a success: the user wanted it. */
static sh_status stream_end(stream *st, sh_status status, int code, const sh_buf *body_text,
                            sh_err *err)
{
    if (status == SH_ERR_CANCELLED) {
        snprintf(st->out->finish, sizeof(st->out->finish), "interrupted");
        return SH_OK;
    }
    if (status == SH_ERR_NOT_FOUND) err->status = SH_ERR_PEER;
    if (status != SH_OK) return err->status;
    if (code != 200) {
        cJSON *json = cJSON_ParseWithLength(body_text->ptr, body_text->len);
        status = refused(st->r, code, json, err);
        cJSON_Delete(json);
        return status;
    }
    if (st->failed) {
        *err = st->error;
        return err->status;
    }
    if (!st->done)
        return sh_err_set(err, SH_ERR_PEER, "%s ended its answer without a finish_reason",
                          st->r->url);
    return SH_OK;
}

/* Servers that send no timing are timed here, from the first and last piece of the stream. */
static sh_status remote_ask(sh_model_client *base, const sh_question *q,
                            const sh_reply_handler *handler, sh_reply *out, sh_err *err)
{
    remote *r = (remote *)base;
    char *body = body_make(r, q, err);
    if (body == NULL) return err->status;
    stream st = {.r = r,
                 .handler = handler,
                 .out = out,
                 .chat = q->messages != NULL,
                 .start_ns = sh_clock_ns()};
    sh_buf body_text = {0};
    int code = 0;
    sh_http_get_opts opts = {
        .body = body, .wait_ms = QUIET_MS, .data = on_data, .ctx = &st, .stop = handler->stop};
    sh_status status = sh_api_call_with(r->s, r->url,
                                        st.chat ? "/v1/chat/completions" : "/v1/completions", opts,
                                        &code, &body_text, err);
    status = stream_end(&st, status, code, &body_text, err);
    out->has_text = true;
    if (out->prompt_s <= 0 && st.first_ns != 0) {
        out->prompt_s = seconds(st.start_ns, st.first_ns);
        out->answer_s = seconds(st.first_ns, st.last_ns);
    }
    free(body);
    sh_buf_reset(&body_text);
    sh_buf_reset(&st.in);
    sh_buf_reset(&st.data);
    return status;
}

/* Accepts "http://host:8100/v1/" as well as "http://host:8100". */
static char *url_base(const char *url)
{
    sh_str text = sh_str_of(url);
    while (sh_str_ends(text, SH_STR("/"))) text.len--;
    if (sh_str_ends(text, SH_STR("/v1"))) text.len -= 3;
    return sh_str_dup(text);
}

/* Asks which model is served. Besides the name, this makes a wrong address or key an error at the
 * start instead of after the first question. */
static sh_status model_find(remote *r, sh_err *err)
{
    sh_buf body_text = {0};
    int code = 0;
    sh_status status = sh_api_call(r->s, r->url, "/v1/models", NULL, 0, &code, &body_text, err);
    if (status == SH_ERR_NOT_FOUND) err->status = status = SH_ERR_PEER;
    if (status != SH_OK) return status;
    cJSON *json = cJSON_ParseWithLength(body_text.ptr, body_text.len);
    const char *first = text_at(cJSON_GetArrayItem(at(json, "data"), 0), "id");
    if (code == 401 || code == 403)
        status = refused(r, code, json, err);
    else if (r->model == NULL && code == 200 && first != NULL)
        r->model = sh_strdup(first);
    cJSON_Delete(json);
    sh_buf_reset(&body_text);
    return status;
}

sh_status sh_model_client_http(const sh_command_args *args, const sh_model_client_opts *opts,
                               sh_model_client **out, sh_err *err)
{
    (void)opts;
    const sh_settings *s = args->settings;
    remote *r = sh_alloc(sizeof(*r));
    r->base = (sh_model_client){.remote = true, .ask = remote_ask, .close = remote_close};
    r->s = s;
    r->url = url_base(s->url);
    if (s->model_name != NULL) r->model = sh_strdup(s->model_name);
    sh_status status = model_find(r, err);
    if (status != SH_OK) {
        remote_close(&r->base);
        return status;
    }
    r->base.label = sh_asprintf("%s at %s", r->model == NULL ? "the model" : r->model, r->url);
    *out = &r->base;
    return SH_OK;
}
