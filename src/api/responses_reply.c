/* Writes answers of the Responses API, whole or as the events of a stream, and stores them.
 *
 * An answer is a list of output items: reasoning, a message, calls. Each of them appears in a
 * stream as an item that is added, its deltas, and the finished item; the last event repeats the
 * whole response. So the texts are collected while they pass (`items`, `text`), for streams and
 * whole answers alike. */
#include "api/answer_blocks.h"
#include "api/json_writer.h"
#include "api/openai.h"
#include "api/response_store.h"
#include "api/responses.h"
#include "api/responses_internal.h"
#include "http/sse.h"

#include <stdio.h>
#include <string.h>

enum { ID_MAX = 128 };

typedef struct {
    sh_block_walk walk;
    int64_t sequence;     /* number of the next event */
    sh_buf items;         /* finished ones, as items of a JSON list */
    sh_buf text;          /* of the open item */
    sh_buf logprobs;      /* of the open item, as items of a JSON list */
    sh_buf call_id, name; /* of the open item, if it is a call */
} reply_state;

/* What writes the events of a walk; out is NULL for a whole answer. */
typedef struct {
    const sh_answer *answer;
    const sh_choice *choice;
    reply_state *state;
    sh_buf *out;
    bool last; /* nothing follows the open item */
} stream;

static void state_reset(void *arg)
{
    reply_state *state = arg;
    sh_buf_reset(&state->items);
    sh_buf_reset(&state->text);
    sh_buf_reset(&state->logprobs);
    sh_buf_reset(&state->call_id);
    sh_buf_reset(&state->name);
}

/* ---- the response ---- */

static void usage_write(const sh_answer *answer, sh_json_writer *w)
{
    sh_usage usage = sh_answer_usage(answer);
    sh_write_begin(w, "usage", '{');
    sh_write_int(w, "input_tokens", usage.prompt_tokens);
    sh_write_begin(w, "input_tokens_details", '{');
    sh_write_int(w, "cached_tokens", usage.cached_tokens);
    sh_write_end(w, '}');
    sh_write_int(w, "output_tokens", usage.completion_tokens);
    sh_write_begin(w, "output_tokens_details", '{');
    sh_write_int(w, "reasoning_tokens", usage.reasoning_tokens);
    sh_write_end(w, '}');
    sh_write_int(w, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
    sh_write_end(w, '}');
}

static const char *status_of(const sh_answer *answer, const sh_api_error *error)
{
    if (error != NULL) return error->status == 499 ? "cancelled" : "failed";
    if (answer->open > 0) return "in_progress";
    return answer->choices[0].finish == SH_ANSWER_LENGTH ? "incomplete" : "completed";
}

static void error_write(const sh_api_error *error, sh_json_writer *w)
{
    sh_write_begin(w, "error", '{');
    sh_write_text(w, "code", error->status == 429 ? "rate_limit_exceeded" : "server_error");
    sh_write_text(w, "message", error->message);
    sh_write_end(w, '}');
}

static void response_write(const sh_answer *answer, const char *key, const sh_api_error *error,
                           sh_json_writer *w)
{
    const responses_details *details = answer->spec->details;
    const reply_state *state = answer->state;
    const char *status = status_of(answer, error);
    sh_write_begin(w, key, '{');
    sh_write_text(w, "id", answer->id);
    sh_write_text(w, "object", "response");
    sh_write_int(w, "created_at", answer->created_s);
    sh_write_text(w, "status", status);
    sh_write_bool(w, "background", false);
    if (strcmp(status, "failed") == 0)
        error_write(error, w);
    else
        sh_write_null(w, "error");
    if (strcmp(status, "incomplete") == 0)
        sh_write_raw(w, "incomplete_details", SH_STR("{\"reason\":\"max_output_tokens\"}"));
    else
        sh_write_null(w, "incomplete_details");
    sh_write_text(w, "model", answer->model);
    sh_write_begin(w, "output", '[');
    sh_buf_add_str(w->out, sh_buf_str(&state->items));
    sh_write_end(w, ']');
    sh_buf_add_char(w->out, ',');
    sh_buf_add_str(w->out, details->echo);
    if (strcmp(status, "in_progress") == 0)
        sh_write_null(w, "usage");
    else
        usage_write(answer, w);
    sh_write_end(w, '}');
}

/* ---- items ---- */

static const char *suffix_of(const sh_answer *answer)
{
    return answer->id + strlen(sh_responses.id_prefix);
}

/* The id contains that of the response, see responses_items.c. */
static void item_id(const stream *s, sh_block_kind kind, char out[ID_MAX])
{
    static const char *const prefixes[] = {
        [SH_BLOCK_REASONING] = "rs", [SH_BLOCK_TEXT] = "msg", [SH_BLOCK_CALL] = "fc"};
    snprintf(out, ID_MAX, "%s_%s_%d", prefixes[kind], suffix_of(s->answer), s->state->walk.index);
}

/* A part of content, empty or with the text so far. */
static void part_write(const stream *s, sh_block_kind kind, const char *key, bool full,
                       sh_json_writer *w)
{
    sh_write_begin(w, key, '{');
    sh_write_text(w, "type", kind == SH_BLOCK_TEXT ? "output_text" : "reasoning_text");
    sh_write_str(w, "text", full ? sh_buf_str(&s->state->text) : SH_STR(""));
    if (kind == SH_BLOCK_TEXT) {
        sh_write_raw(w, "annotations", SH_STR("[]"));
        sh_write_begin(w, "logprobs", '[');
        if (full) sh_buf_add_str(w->out, sh_buf_str(&s->state->logprobs));
        sh_write_end(w, ']');
    }
    sh_write_end(w, '}');
}

static void content_write(const stream *s, sh_block_kind kind, bool full, sh_json_writer *w)
{
    sh_write_begin(w, "content", '[');
    if (full) part_write(s, kind, NULL, true, w);
    sh_write_end(w, ']');
}

/* Whether the item that ends now was cut: a call lacks arguments, text ends at the limit. */
static bool item_is_cut(const stream *s, sh_block_kind kind)
{
    if (kind == SH_BLOCK_CALL) return !s->choice->calls[s->state->walk.call].complete;
    return s->last && s->choice->finish == SH_ANSWER_LENGTH;
}

/* The open item: as it is added, or finished. */
static void item_write(const stream *s, sh_block_kind kind, const char *key, bool full,
                       sh_json_writer *w)
{
    char id[ID_MAX];
    const char *status = !full ? "in_progress" : item_is_cut(s, kind) ? "incomplete" : "completed";
    item_id(s, kind, id);
    sh_write_begin(w, key, '{');
    sh_write_text(w, "id", id);
    if (kind == SH_BLOCK_CALL) {
        sh_write_text(w, "type", "function_call");
        sh_write_str(w, "call_id", sh_buf_str(&s->state->call_id));
        sh_write_str(w, "name", sh_buf_str(&s->state->name));
        sh_write_str(w, "arguments", full ? sh_buf_str(&s->state->text) : SH_STR(""));
    } else if (kind == SH_BLOCK_TEXT) {
        sh_write_text(w, "type", "message");
        sh_write_text(w, "role", "assistant");
        content_write(s, kind, full, w);
    } else {
        sh_write_text(w, "type", "reasoning");
        sh_write_raw(w, "summary", SH_STR("[]"));
        content_write(s, kind, full, w);
    }
    sh_write_text(w, "status", status);
    sh_write_end(w, '}');
}

/* ---- events ---- */

static sh_json_writer event_begin(const stream *s, const char *type)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, type, s->out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "type", type);
    sh_write_int(&w, "sequence_number", s->state->sequence++);
    return w;
}

static void event_end(sh_json_writer *w)
{
    sh_write_end(w, '}');
    sh_framing_end(&sh_framing_sse, w);
}

static void response_event(const stream *s, const char *type, const sh_api_error *error)
{
    sh_json_writer w = event_begin(s, type);
    response_write(s->answer, "response", error, &w);
    event_end(&w);
}

static void item_event(const stream *s, const char *type, sh_block_kind kind, bool full)
{
    sh_json_writer w = event_begin(s, type);
    sh_write_int(&w, "output_index", s->state->walk.index);
    item_write(s, kind, "item", full, &w);
    event_end(&w);
}

/* An event inside the open item. */
static sh_json_writer inner_begin(const stream *s, const char *type, sh_block_kind kind)
{
    char id[ID_MAX];
    sh_json_writer w = event_begin(s, type);
    item_id(s, kind, id);
    sh_write_text(&w, "item_id", id);
    sh_write_int(&w, "output_index", s->state->walk.index);
    if (kind != SH_BLOCK_CALL) sh_write_int(&w, "content_index", 0);
    return w;
}

static void part_event(const stream *s, const char *type, sh_block_kind kind, bool full)
{
    sh_json_writer w = inner_begin(s, type, kind);
    part_write(s, kind, "part", full, &w);
    event_end(&w);
}

static const struct {
    const char *delta, *done, *member;
} names[] = {
    [SH_BLOCK_REASONING] = {"response.reasoning_text.delta", "response.reasoning_text.done",
                            "text"},
    [SH_BLOCK_TEXT] = {"response.output_text.delta", "response.output_text.done", "text"},
    [SH_BLOCK_CALL] = {"response.function_call_arguments.delta",
                       "response.function_call_arguments.done", "arguments"},
};

static void done_event(const stream *s, sh_block_kind kind)
{
    sh_json_writer w = inner_begin(s, names[kind].done, kind);
    if (kind == SH_BLOCK_CALL) sh_write_str(&w, "name", sh_buf_str(&s->state->name));
    sh_write_str(&w, names[kind].member, sh_buf_str(&s->state->text));
    if (kind == SH_BLOCK_TEXT) {
        sh_write_begin(&w, "logprobs", '[');
        sh_buf_add_str(w.out, sh_buf_str(&s->state->logprobs));
        sh_write_end(&w, ']');
    }
    event_end(&w);
}

/* ---- the walk ---- */

static void on_block_begin(void *ctx, sh_block_kind kind, const sh_call *call)
{
    const stream *s = ctx;
    reply_state *state = s->state;
    sh_buf_clear(&state->text);
    sh_buf_clear(&state->logprobs);
    if (kind == SH_BLOCK_CALL) {
        sh_buf_clear(&state->call_id);
        sh_buf_clear(&state->name);
        sh_buf_add_text(&state->call_id, call->id);
        sh_buf_add_text(&state->name, call->name);
    }
    if (s->out == NULL) return;
    item_event(s, "response.output_item.added", kind, false);
    if (kind != SH_BLOCK_CALL) part_event(s, "response.content_part.added", kind, false);
}

/* Adds the log-probabilities of the batch, which belong to its text, and returns the new ones. */
static sh_str logprobs_take(const stream *s)
{
    sh_buf *all = &s->state->logprobs;
    sh_json_writer w = {.out = all, .comma = all->len > 0};
    size_t from = all->len + w.comma;
    if (s->answer->spec->logprobs) sh_openai_logprobs_write(s->answer, s->choice, &w);
    return sh_str_sub(sh_buf_str(all), from, all->len);
}

static void on_block_delta(void *ctx, sh_block_kind kind, sh_str text)
{
    const stream *s = ctx;
    sh_str logprobs = kind == SH_BLOCK_TEXT ? logprobs_take(s) : SH_STR("");
    sh_buf_add_str(&s->state->text, text);
    if (s->out == NULL) return;
    sh_json_writer w = inner_begin(s, names[kind].delta, kind);
    sh_write_str(&w, "delta", text);
    if (kind == SH_BLOCK_TEXT) {
        sh_write_begin(&w, "logprobs", '[');
        sh_buf_add_str(w.out, logprobs);
        sh_write_end(&w, ']');
    }
    event_end(&w);
}

static void on_block_end(void *ctx, sh_block_kind kind)
{
    const stream *s = ctx;
    if (s->out != NULL) {
        done_event(s, kind);
        if (kind != SH_BLOCK_CALL) part_event(s, "response.content_part.done", kind, true);
        item_event(s, "response.output_item.done", kind, true);
    }
    sh_json_writer w = {.out = &s->state->items, .comma = s->state->items.len > 0};
    item_write(s, kind, NULL, true, &w);
}

static const sh_block_fns block_fns = {on_block_begin, on_block_delta, on_block_end};

/* ---- the format ---- */

static void response_whole(const sh_answer *answer, sh_buf *out)
{
    reply_state *state = answer->state;
    stream s = {.answer = answer, .choice = &answer->choices[0], .state = state};
    sh_blocks_walk(&state->walk, s.choice, &block_fns, &s);
    s.last = true;
    sh_blocks_close(&state->walk, &block_fns, &s);
    sh_json_writer w = sh_json_writer_on(out);
    response_write(answer, NULL, NULL, &w);
}

static void stream_begin(const sh_answer *answer, sh_buf *out)
{
    stream s = {.answer = answer, .state = answer->state, .out = out};
    response_event(&s, "response.created", NULL);
    response_event(&s, "response.in_progress", NULL);
}

static void stream_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    reply_state *state = answer->state;
    stream s = {.answer = answer, .choice = choice, .state = state, .out = out};
    sh_blocks_walk(&state->walk, choice, &block_fns, &s);
}

static void stream_end(const sh_answer *answer, sh_buf *out)
{
    reply_state *state = answer->state;
    stream s = {
        .answer = answer, .choice = &answer->choices[0], .state = state, .out = out, .last = true};
    bool cut = answer->choices[0].finish == SH_ANSWER_LENGTH;
    sh_blocks_close(&state->walk, &block_fns, &s);
    response_event(&s, cut ? "response.incomplete" : "response.completed", NULL);
}

/* What has begun stays unfinished; the response says why. */
static void stream_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    stream s = {.answer = answer, .state = answer->state, .out = out};
    sh_json_writer w = event_begin(&s, "error");
    sh_write_text(&w, "code", error->code);
    sh_write_text(&w, "message", error->message);
    sh_write_text(&w, "param", error->param[0] == '\0' ? NULL : error->param);
    event_end(&w);
    response_event(&s, "response.failed", error);
}

/* Of a response that failed before its first event the client does not know the id. */
static void answer_ended(const sh_answer *answer, const sh_api_error *error)
{
    const sh_job_spec *spec = answer->spec;
    const responses_details *details = spec->details;
    const reply_state *state = answer->state;
    sh_buf response = {0}, output = {0};
    if (!details->store || (error != NULL && state->sequence == 0)) return;
    sh_json_writer w = sh_json_writer_on(&response);
    response_write(answer, NULL, error, &w);
    sh_buf_add_char(&output, '[');
    sh_buf_add_str(&output, sh_buf_str(&state->items));
    sh_buf_add_char(&output, ']');
    /* A conversation goes on from what was completed. */
    sh_response_store_put(spec->store, spec->owner,
                          &(sh_stored_response){
                              .id = answer->id,
                              .previous = details->previous,
                              .conversation = error == NULL ? details->conversation : NULL,
                              .response = sh_buf_str(&response),
                              .input = details->input,
                              .output = sh_buf_str(&output),
                          });
    sh_buf_reset(&response);
    sh_buf_reset(&output);
}

static void keep_alive(sh_buf *out)
{
    sh_sse_comment(out, "waiting");
}

const sh_job_format sh_responses = {
    .kind = "response",
    .id_prefix = "resp_",
    .read = sh_responses_read,
    .whole = response_whole,
    .framing = &sh_framing_sse,
    .state_size = sizeof(reply_state),
    .state_reset = state_reset,
    .begin = stream_begin,
    .part = stream_part,
    .end = stream_end,
    .fail = stream_fail,
    .ended = answer_ended,
    .keep_alive = keep_alive,
};
