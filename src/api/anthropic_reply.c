/* Writes answers as Anthropic's JSON, whole or as the events of a stream.
 *
 * A stream is message_start, for each block of content a content_block_start, its deltas and a
 * content_block_stop, then message_delta with the reason and the usage, and message_stop. A block
 * of reasoning ends with a signature, which clients send back and nobody checks here: the reasoning
 * is not secret. How much of the prompt came from the cache is known at the end only; message_start
 * therefore counts all of it as computed, and message_delta has the final numbers. */
#include "api/answer_blocks.h"
#include "api/anthropic.h"
#include "api/json_writer.h"
#include "http/sse.h"

static const char SIGNATURE[] = "c2hvYWw="; /* clients expect base64 */

static const char *const stop_reasons[] = {
    [SH_ANSWER_RUNNING] = NULL,
    [SH_ANSWER_STOP] = "end_turn",
    [SH_ANSWER_STOP_STRING] = "stop_sequence",
    [SH_ANSWER_LENGTH] = "max_tokens",
    [SH_ANSWER_TOOL_CALLS] = "tool_use",
};

static void stop_write(const sh_answer *answer, sh_json_writer *w)
{
    const sh_choice *choice = &answer->choices[0];
    sh_write_text(w, "stop_reason", stop_reasons[choice->finish]);
    if (choice->finish == SH_ANSWER_STOP_STRING && choice->stop >= 0)
        sh_write_str(w, "stop_sequence", answer->spec->stops[choice->stop]);
    else
        sh_write_null(w, "stop_sequence");
}

static void usage_write(const sh_answer *answer, sh_json_writer *w)
{
    sh_usage usage = sh_answer_usage(answer);
    sh_write_begin(w, "usage", '{');
    sh_write_int(w, "input_tokens", usage.prompt_tokens - usage.cached_tokens);
    sh_write_int(w, "cache_creation_input_tokens", 0);
    sh_write_int(w, "cache_read_input_tokens", usage.cached_tokens);
    sh_write_int(w, "output_tokens", usage.completion_tokens);
    sh_write_end(w, '}');
}

static void head_write(const sh_answer *answer, const char *key, sh_json_writer *w)
{
    sh_write_begin(w, key, '{');
    sh_write_text(w, "id", answer->id);
    sh_write_text(w, "type", "message");
    sh_write_text(w, "role", "assistant");
    sh_write_text(w, "model", answer->model);
}

/* ---- whole ---- */

static void text_block_write(const char *type, const sh_buf *text, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "type", type);
    sh_write_str(w, type, sh_buf_str(text));
    sh_write_end(w, '}');
}

static void thinking_block_write(const sh_buf *text, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "type", "thinking");
    sh_write_str(w, "thinking", sh_buf_str(text));
    sh_write_text(w, "signature", SIGNATURE);
    sh_write_end(w, '}');
}

/* `input` must be an object: that of a call that was cut is empty. */
static void call_block_write(const sh_call *call, sh_json_writer *w)
{
    bool whole = call->complete && call->args.len > 0;
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "type", "tool_use");
    sh_write_text(w, "id", call->id);
    sh_write_text(w, "name", call->name);
    sh_write_raw(w, "input", whole ? sh_buf_str(&call->args) : SH_STR("{}"));
    sh_write_end(w, '}');
}

static void message_whole(const sh_answer *answer, sh_buf *out)
{
    const sh_choice *choice = &answer->choices[0];
    sh_json_writer w = sh_json_writer_on(out);
    head_write(answer, NULL, &w);
    sh_write_begin(&w, "content", '[');
    if (choice->reasoning.len > 0) thinking_block_write(&choice->reasoning, &w);
    if (choice->content.len > 0) text_block_write("text", &choice->content, &w);
    for (int i = 0; i < choice->call_count; i++)
        if (choice->calls[i].name != NULL) call_block_write(&choice->calls[i], &w);
    sh_write_end(&w, ']');
    stop_write(answer, &w);
    usage_write(answer, &w);
    sh_write_end(&w, '}');
}

/* ---- streamed ---- */

static sh_json_writer event_begin(const char *type, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, type, out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "type", type);
    return w;
}

static void event_end(sh_json_writer *w)
{
    sh_write_end(w, '}');
    sh_framing_end(&sh_framing_sse, w);
}

static void stream_begin(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = event_begin("message_start", out);
    head_write(answer, "message", &w);
    sh_write_begin(&w, "content", '[');
    sh_write_end(&w, ']');
    sh_write_null(&w, "stop_reason");
    sh_write_null(&w, "stop_sequence");
    usage_write(answer, &w);
    sh_write_end(&w, '}');
    event_end(&w);
}

/* What writes the events of a walk. */
typedef struct {
    const sh_block_walk *walk;
    sh_buf *out;
} stream;

static void on_block_begin(void *ctx, sh_block_kind kind, const sh_call *call)
{
    const stream *s = ctx;
    sh_json_writer w = event_begin("content_block_start", s->out);
    sh_write_int(&w, "index", s->walk->index);
    sh_write_begin(&w, "content_block", '{');
    if (kind == SH_BLOCK_CALL) {
        sh_write_text(&w, "type", "tool_use");
        sh_write_text(&w, "id", call->id);
        sh_write_text(&w, "name", call->name);
        sh_write_raw(&w, "input", SH_STR("{}"));
    } else if (kind == SH_BLOCK_REASONING) {
        sh_write_text(&w, "type", "thinking");
        sh_write_text(&w, "thinking", "");
        sh_write_text(&w, "signature", "");
    } else {
        sh_write_text(&w, "type", "text");
        sh_write_text(&w, "text", "");
    }
    sh_write_end(&w, '}');
    event_end(&w);
}

static void delta_write(const stream *s, const char *type, const char *member, sh_str text)
{
    sh_json_writer w = event_begin("content_block_delta", s->out);
    sh_write_int(&w, "index", s->walk->index);
    sh_write_begin(&w, "delta", '{');
    sh_write_text(&w, "type", type);
    sh_write_str(&w, member, text);
    sh_write_end(&w, '}');
    event_end(&w);
}

static void on_block_delta(void *ctx, sh_block_kind kind, sh_str text)
{
    static const struct {
        const char *type, *member;
    } names[] = {
        [SH_BLOCK_REASONING] = {"thinking_delta", "thinking"},
        [SH_BLOCK_TEXT] = {"text_delta", "text"},
        [SH_BLOCK_CALL] = {"input_json_delta", "partial_json"},
    };
    delta_write(ctx, names[kind].type, names[kind].member, text);
}

static void on_block_end(void *ctx, sh_block_kind kind)
{
    const stream *s = ctx;
    if (kind == SH_BLOCK_REASONING)
        delta_write(s, "signature_delta", "signature", sh_str_of(SIGNATURE));
    sh_json_writer w = event_begin("content_block_stop", s->out);
    sh_write_int(&w, "index", s->walk->index);
    event_end(&w);
}

static const sh_block_fns block_fns = {on_block_begin, on_block_delta, on_block_end};

static void stream_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    sh_block_walk *walk = answer->state;
    sh_blocks_walk(walk, choice, &block_fns, &(stream){walk, out});
}

static void stream_end(const sh_answer *answer, sh_buf *out)
{
    sh_block_walk *walk = answer->state;
    sh_blocks_close(walk, &block_fns, &(stream){walk, out});
    sh_json_writer w = event_begin("message_delta", out);
    sh_write_begin(&w, "delta", '{');
    stop_write(answer, &w);
    sh_write_end(&w, '}');
    usage_write(answer, &w);
    event_end(&w);
    w = event_begin("message_stop", out);
    event_end(&w);
}

static void stream_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, "error", out);
    sh_anthropic.error(error, out);
    sh_framing_end(&sh_framing_sse, &w);
}

static void keep_alive(sh_buf *out)
{
    sh_sse_event(out, "ping", SH_STR("{\"type\":\"ping\"}"));
}

const sh_job_format sh_anthropic_messages = {
    .kind = "messages",
    .id_prefix = "msg_",
    .read = sh_anthropic_messages_read,
    .whole = message_whole,
    .framing = &sh_framing_sse,
    .state_size = sizeof(sh_block_walk),
    .begin = stream_begin,
    .part = stream_part,
    .end = stream_end,
    .fail = stream_fail,
    .keep_alive = keep_alive,
};

const sh_job_format sh_anthropic_count = {.kind = "messages", .read = sh_anthropic_count_read};
