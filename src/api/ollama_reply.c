/* Writes answers as Ollama's JSON: one object, or a line for each part and one with the counts.
 *
 * A call is an object with its arguments, so it is sent when it is complete; until then they are
 * collected in the state. One that is never completed is left out. An answer without choices is
 * that to an empty prompt, by which clients ask to load the model. */
#include "api/json_writer.h"
#include "api/ollama.h"

static const char *const done_reasons[] = {
    [SH_ANSWER_RUNNING] = NULL,       [SH_ANSWER_STOP] = "stop",
    [SH_ANSWER_STOP_STRING] = "stop", [SH_ANSWER_LENGTH] = "length",
    [SH_ANSWER_TOOL_CALLS] = "stop",
};

typedef struct {
    char created[SH_OLLAMA_TIME_MAX];
    sh_buf args; /* of the call that is being received */
    int call;    /* its index; all before it were sent */
} reply_state;

static void state_reset(void *arg)
{
    reply_state *state = arg;
    sh_buf_reset(&state->args);
}

static void head_write(const sh_answer *answer, sh_json_writer *w)
{
    reply_state *state = answer->state;
    if (state->created[0] == '\0') sh_ollama_time((time_t)answer->created_s, state->created);
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "model", answer->model);
    sh_write_text(w, "created_at", state->created);
}

static void nanoseconds_write(const char *key, double seconds, sh_json_writer *w)
{
    sh_write_int(w, key, (int64_t)(seconds * 1e9));
}

/* What was done for a request that asks for nothing. */
static const char *empty_reason(const sh_job_spec *spec)
{
    return spec->keep_given && spec->keep_s == 0 ? "unload" : "load";
}

/* The members of the last line. */
static void end_write(const sh_answer *answer, sh_json_writer *w)
{
    sh_usage usage = sh_answer_usage(answer);
    sh_write_bool(w, "done", true);
    sh_write_text(w, "done_reason",
                  answer->count == 0 ? empty_reason(answer->spec)
                                     : done_reasons[answer->choices[0].finish]);
    if (answer->count == 0) return;
    nanoseconds_write("total_duration", answer->seconds, w);
    nanoseconds_write("load_duration", 0, w);
    sh_write_int(w, "prompt_eval_count", usage.prompt_tokens);
    nanoseconds_write("prompt_eval_duration", usage.prefill_s, w);
    sh_write_int(w, "eval_count", usage.completion_tokens);
    nanoseconds_write("eval_duration", usage.decode_s, w);
}

/* ---- chat ---- */

static void call_write(const sh_call *call, const sh_buf *args, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", call->id);
    sh_write_begin(w, "function", '{');
    sh_write_text(w, "name", call->name);
    sh_write_raw(w, "arguments", args->len == 0 ? SH_STR("{}") : sh_buf_str(args));
    sh_write_end(w, '}');
    sh_write_end(w, '}');
}

static void message_begin(sh_str content, sh_str thinking, sh_json_writer *w)
{
    sh_write_begin(w, "message", '{');
    sh_write_text(w, "role", "assistant");
    sh_write_str(w, "content", content);
    if (thinking.len > 0) sh_write_str(w, "thinking", thinking);
}

static void chat_whole(const sh_answer *answer, sh_buf *out)
{
    const sh_choice none = {0}, *choice = answer->count == 0 ? &none : &answer->choices[0];
    bool any = false;
    sh_json_writer w = sh_json_writer_on(out);
    head_write(answer, &w);
    message_begin(sh_buf_str(&choice->content), sh_buf_str(&choice->reasoning), &w);
    for (int i = 0; i < choice->call_count; i++) {
        const sh_call *call = &choice->calls[i];
        if (!call->complete) continue;
        if (!any) sh_write_begin(&w, "tool_calls", '[');
        any = true;
        call_write(call, &call->args, &w);
    }
    if (any) sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    end_write(answer, &w);
    sh_write_end(&w, '}');
}

static sh_json_writer line_begin(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_ndjson, NULL, out);
    head_write(answer, &w);
    return w;
}

static void line_end(sh_json_writer *w)
{
    sh_write_end(w, '}');
    sh_framing_end(&sh_framing_ndjson, w);
}

static void call_line(const sh_answer *answer, const sh_call *call, sh_buf *out)
{
    const reply_state *state = answer->state;
    sh_json_writer w = line_begin(answer, out);
    message_begin(SH_STR(""), SH_STR(""), &w);
    sh_write_begin(&w, "tool_calls", '[');
    call_write(call, &state->args, &w);
    sh_write_end(&w, ']');
    sh_write_end(&w, '}');
    sh_write_bool(&w, "done", false);
    line_end(&w);
}

/* Sends the calls that are complete. */
static void calls_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    reply_state *state = answer->state;
    for (; state->call < choice->call_count; state->call++) {
        const sh_call *call = &choice->calls[state->call];
        sh_buf_add_str(&state->args, sh_buf_str(&call->args));
        bool last = state->call + 1 == choice->call_count && !choice->done;
        if (!call->complete && last) return;
        if (call->complete) call_line(answer, call, out);
        sh_buf_clear(&state->args);
    }
}

static void chat_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    if (choice->content.len > 0 || choice->reasoning.len > 0) {
        sh_json_writer w = line_begin(answer, out);
        message_begin(sh_buf_str(&choice->content), sh_buf_str(&choice->reasoning), &w);
        sh_write_end(&w, '}');
        sh_write_bool(&w, "done", false);
        line_end(&w);
    }
    calls_part(answer, choice, out);
}

static void chat_end(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = line_begin(answer, out);
    message_begin(SH_STR(""), SH_STR(""), &w);
    sh_write_end(&w, '}');
    end_write(answer, &w);
    line_end(&w);
}

/* ---- generate ---- */

static void text_write(sh_str text, sh_str thinking, sh_json_writer *w)
{
    sh_write_str(w, "response", text);
    if (thinking.len > 0) sh_write_str(w, "thinking", thinking);
}

static void generate_whole(const sh_answer *answer, sh_buf *out)
{
    const sh_choice none = {0}, *choice = answer->count == 0 ? &none : &answer->choices[0];
    sh_json_writer w = sh_json_writer_on(out);
    head_write(answer, &w);
    text_write(sh_buf_str(&choice->content), sh_buf_str(&choice->reasoning), &w);
    end_write(answer, &w);
    sh_write_end(&w, '}');
}

static void generate_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    if (choice->content.len == 0 && choice->reasoning.len == 0) return;
    sh_json_writer w = line_begin(answer, out);
    text_write(sh_buf_str(&choice->content), sh_buf_str(&choice->reasoning), &w);
    sh_write_bool(&w, "done", false);
    line_end(&w);
}

static void generate_end(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = line_begin(answer, out);
    text_write(SH_STR(""), SH_STR(""), &w);
    end_write(answer, &w);
    line_end(&w);
}

static void stream_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_json_writer w = sh_framing_begin(&sh_framing_ndjson, NULL, out);
    sh_ollama.error(error, out);
    sh_framing_end(&sh_framing_ndjson, &w);
}

const sh_job_format sh_ollama_chat = {
    .kind = "ollama_chat",
    .id_prefix = "ollama-",
    .read = sh_ollama_chat_read,
    .whole = chat_whole,
    .framing = &sh_framing_ndjson,
    .state_size = sizeof(reply_state),
    .state_reset = state_reset,
    .part = chat_part,
    .end = chat_end,
    .fail = stream_fail,
};

const sh_job_format sh_ollama_generate = {
    .kind = "ollama_generate",
    .id_prefix = "ollama-",
    .read = sh_ollama_generate_read,
    .whole = generate_whole,
    .framing = &sh_framing_ndjson,
    .state_size = sizeof(reply_state),
    .state_reset = state_reset,
    .part = generate_part,
    .end = generate_end,
    .fail = stream_fail,
};
