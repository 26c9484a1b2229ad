/* Writes answers as OpenAI's JSON, whole or as the chunks of a stream.
 *
 * Details of a stream that clients rely on: the first chunk of a chat has the role and a content
 * string, even an empty one; the finish_reason comes in a chunk of its own with an empty delta;
 * with include_usage every other chunk has "usage": null; a stream ends with [DONE], but one that
 * failed does not.
 *
 * Non-standard members are `timing` and `performance` beside `usage`, `reasoning_content`,
 * `token_ids` and `prompt_token_ids` (as in vLLM), and `conversation_id`. */
#include "api/json_writer.h"
#include "api/openai.h"
#include "api/openai_conversation.h"
#include "base/version.h"
#include "http/sse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const finish_reasons[] = {
    [SH_ANSWER_RUNNING] = NULL,
    [SH_ANSWER_STOP] = "stop",
    [SH_ANSWER_STOP_STRING] = "stop",
    [SH_ANSWER_LENGTH] = "length",
    [SH_ANSWER_TOOL_CALLS] = "tool_calls",
};

static void piece_write(const sh_answer *answer, const char *key, int32_t id, sh_json_writer *w)
{
    sh_buf piece = {0};
    sh_served_model_piece(answer->served, id, &piece);
    sh_write_str(w, key, sh_buf_str(&piece));
    sh_buf_reset(&piece);
}

/* token, logprob and bytes. A token may be part of a character; its bytes are then the only exact
 * form. */
static void logprobs_members(const sh_answer *answer, int32_t id, float logprob, sh_json_writer *w)
{
    sh_buf piece = {0};
    sh_served_model_piece(answer->served, id, &piece);
    sh_write_str(w, "token", sh_buf_str(&piece));
    sh_write_num(w, "logprob", (double)logprob);
    sh_write_begin(w, "bytes", '[');
    for (size_t i = 0; i < piece.len; i++) sh_write_int(w, NULL, (unsigned char)piece.ptr[i]);
    sh_write_end(w, ']');
    sh_buf_reset(&piece);
}

void sh_openai_logprobs_write(const sh_answer *answer, const sh_choice *choice, sh_json_writer *w)
{
    for (size_t i = 0; i < choice->logprobs_count; i++) {
        const sh_token_logprobs *logprobs = &choice->logprobs[i];
        sh_write_begin(w, NULL, '{');
        logprobs_members(answer, logprobs->id, logprobs->logprob, w);
        sh_write_begin(w, "top_logprobs", '[');
        for (int k = 0; k < logprobs->top_count; k++) {
            sh_write_begin(w, NULL, '{');
            logprobs_members(answer, logprobs->top[k].id, logprobs->top[k].logprob, w);
            sh_write_end(w, '}');
        }
        sh_write_end(w, ']');
        sh_write_end(w, '}');
    }
}

static void chat_logprobs_write(const sh_answer *answer, const sh_choice *choice, sh_json_writer *w)
{
    if (!answer->spec->logprobs || choice->logprobs_count == 0) {
        sh_write_null(w, "logprobs");
        return;
    }
    sh_write_begin(w, "logprobs", '{');
    sh_write_begin(w, "content", '[');
    sh_openai_logprobs_write(answer, choice, w);
    sh_write_end(w, ']');
    sh_write_null(w, "refusal");
    sh_write_end(w, '}');
}

static void top_logprobs_write(const sh_answer *answer, const sh_token_logprobs *logprobs,
                               sh_json_writer *w)
{
    sh_buf piece = {0};
    if (isnan(logprobs->logprob)) {
        sh_write_null(w, NULL); /* the first token of a prompt */
        return;
    }
    sh_write_begin(w, NULL, '{');
    for (int k = 0; k < logprobs->top_count; k++) {
        sh_buf_clear(&piece);
        sh_served_model_piece(answer->served, logprobs->top[k].id, &piece);
        sh_write_num(w, piece.ptr == NULL ? "" : piece.ptr, (double)logprobs->top[k].logprob);
    }
    sh_write_end(w, '}');
    sh_buf_reset(&piece);
}

/* The logprobs of a completion: those of the echoed prompt first, in the first chunk of a stream.
 */
static size_t echoed_count(const sh_answer *answer, const sh_choice *choice)
{
    bool echoed = answer->spec->echo && answer->spec->logprobs && !choice->begun;
    return echoed ? choice->prompt_logprobs_count : 0;
}

static const sh_token_logprobs *logprobs_at(const sh_answer *answer, const sh_choice *choice,
                                            size_t i)
{
    size_t echoed = echoed_count(answer, choice);
    return i < echoed ? &choice->prompt_logprobs[i] : &choice->logprobs[i - echoed];
}

/* The older format: four parallel lists. */
static void completion_logprobs_write(const sh_answer *answer, const sh_choice *choice,
                                      sh_json_writer *w)
{
    size_t count = echoed_count(answer, choice) + choice->logprobs_count;
    if (!answer->spec->logprobs || count == 0) {
        sh_write_null(w, "logprobs");
        return;
    }
    sh_write_begin(w, "logprobs", '{');
    sh_write_begin(w, "tokens", '[');
    for (size_t i = 0; i < count; i++)
        piece_write(answer, NULL, logprobs_at(answer, choice, i)->id, w);
    sh_write_end(w, ']');
    sh_write_begin(w, "token_logprobs", '[');
    for (size_t i = 0; i < count; i++)
        sh_write_num(w, NULL, (double)logprobs_at(answer, choice, i)->logprob);
    sh_write_end(w, ']');
    sh_write_begin(w, "top_logprobs", '[');
    for (size_t i = 0; i < count; i++)
        top_logprobs_write(answer, logprobs_at(answer, choice, i), w);
    sh_write_end(w, ']');
    sh_write_begin(w, "text_offset", '[');
    for (size_t i = 0; i < count; i++)
        sh_write_int(w, NULL, logprobs_at(answer, choice, i)->offset);
    sh_write_end(w, ']');
    sh_write_end(w, '}');
}

/* vLLM's `prompt_logprobs`: for each token of the prompt an object by token id, null for the first.
 * In a stream they come in the first chunk of a choice. */
static void prompt_logprob_write(const sh_answer *answer, int32_t id, float logprob, int rank,
                                 sh_json_writer *w)
{
    char key[16];
    snprintf(key, sizeof(key), "%d", id);
    sh_write_begin(w, key, '{');
    sh_write_num(w, "logprob", (double)logprob);
    if (rank > 0)
        sh_write_int(w, "rank", rank);
    else
        sh_write_null(w, "rank"); /* not among those asked for */
    piece_write(answer, "decoded_token", id, w);
    sh_write_end(w, '}');
}

static void prompt_logprobs_write(const sh_answer *answer, const sh_choice *choice,
                                  sh_json_writer *w)
{
    if (!answer->spec->prompt_logprobs || choice->begun) return;
    sh_write_begin(w, "prompt_logprobs", '[');
    for (size_t i = 0; i < choice->prompt_logprobs_count; i++) {
        const sh_token_logprobs *token = &choice->prompt_logprobs[i];
        int top = token->top_count < answer->spec->prompt_top_logprobs
                      ? token->top_count
                      : (int)answer->spec->prompt_top_logprobs;
        bool listed = false;
        if (i == 0) {
            sh_write_null(w, NULL);
            continue;
        }
        sh_write_begin(w, NULL, '{');
        for (int k = 0; k < top; k++) {
            prompt_logprob_write(answer, token->top[k].id, token->top[k].logprob, k + 1, w);
            listed = listed || token->top[k].id == token->id;
        }
        if (!listed) prompt_logprob_write(answer, token->id, token->logprob, 0, w);
        sh_write_end(w, '}');
    }
    sh_write_end(w, ']');
}

/* Token ids as vLLM reports them: those of the prompt once, those of the answer with their text. */
static void token_ids_write(const sh_answer *answer, const sh_choice *choice, sh_json_writer *w)
{
    if (!answer->spec->token_ids) return;
    sh_write_begin(w, "token_ids", '[');
    for (size_t i = 0; i < choice->logprobs_count; i++)
        sh_write_int(w, NULL, choice->logprobs[i].id);
    sh_write_end(w, ']');
}

/* In a stream only in the first chunk of a choice. */
static void prompt_ids_write(const sh_answer *answer, const sh_choice *choice, sh_json_writer *w)
{
    const sh_tokens *prompt = &answer->prompts[choice->prompt];
    if (!answer->spec->token_ids || choice->begun) return;
    sh_write_begin(w, "prompt_token_ids", '[');
    for (size_t i = 0; i < prompt->count; i++) sh_write_int(w, NULL, prompt->ids[i]);
    sh_write_end(w, ']');
}

static void head_write(const sh_answer *answer, const char *object, sh_json_writer *w)
{
    char fingerprint[64];
    snprintf(fingerprint, sizeof(fingerprint), "shoal-%s", sh_version());
    sh_write_begin(w, NULL, '{');
    sh_write_text(w, "id", answer->id);
    sh_write_text(w, "object", object);
    sh_write_int(w, "created", answer->created_s);
    sh_write_text(w, "model", answer->model);
    sh_write_text(w, "system_fingerprint", fingerprint);
}

static double rate(double count, double seconds)
{
    return seconds > 0 ? count / seconds : 0;
}

/* Rates: the prompt's over the tokens that were computed, not those from the cache; the answer's
 * without the first token of each choice, which belongs to the prefill. */
static void usage_write(const sh_answer *answer, sh_json_writer *w)
{
    sh_usage usage = sh_answer_usage(answer);
    int computed = usage.prompt_tokens - usage.cached_tokens;
    sh_write_begin(w, "usage", '{');
    sh_write_int(w, "prompt_tokens", usage.prompt_tokens);
    sh_write_int(w, "completion_tokens", usage.completion_tokens);
    sh_write_int(w, "total_tokens", usage.prompt_tokens + usage.completion_tokens);
    sh_write_begin(w, "prompt_tokens_details", '{');
    sh_write_int(w, "cached_tokens", usage.cached_tokens);
    sh_write_end(w, '}');
    sh_write_begin(w, "completion_tokens_details", '{');
    sh_write_int(w, "reasoning_tokens", usage.reasoning_tokens);
    sh_write_end(w, '}');
    sh_write_end(w, '}');
    sh_write_begin(w, "timing", '{');
    sh_write_num(w, "seconds", answer->seconds);
    sh_write_num(w, "tokens_per_sec", rate(usage.completion_tokens, answer->seconds));
    sh_write_num(w, "queue_seconds", usage.queue_s);
    sh_write_num(w, "prefill_seconds", usage.prefill_s);
    sh_write_num(w, "decode_seconds", usage.decode_s);
    sh_write_end(w, '}');
    sh_write_begin(w, "performance", '{');
    sh_write_num(w, "prompt_eval_tokens_per_second", rate(computed, usage.prefill_s));
    sh_write_num(w, "eval_tokens_per_second",
                 rate(usage.completion_tokens - answer->count, usage.decode_s));
    sh_write_bool(w, "cache_hit", usage.cached_tokens > 0);
    sh_write_end(w, '}');
}

static void conversation_write(const sh_answer *answer, sh_json_writer *w)
{
    const char *id = openai_conversation_id(answer);
    if (id != NULL) sh_write_text(w, "conversation_id", id);
}

/* id, type and name are sent once; later chunks of a call have its index and more arguments only.
 */
static void call_write(const sh_call *call, int index, bool chunk, sh_json_writer *w)
{
    sh_write_begin(w, NULL, '{');
    if (chunk) sh_write_int(w, "index", index);
    if (!call->announced) {
        sh_write_text(w, "id", call->id);
        sh_write_text(w, "type", "function");
    }
    sh_write_begin(w, "function", '{');
    if (!call->announced) sh_write_text(w, "name", call->name);
    sh_write_str(w, "arguments", sh_buf_str(&call->args));
    sh_write_end(w, '}');
    sh_write_end(w, '}');
}

/* The calls with pending output, if there are any. */
static void calls_write(const sh_choice *choice, bool chunk, sh_json_writer *w)
{
    bool any = false;
    int index = 0; /* among the calls that were not dropped */
    for (int i = 0; i < choice->call_count; i++) {
        const sh_call *call = &choice->calls[i];
        if (sh_call_has_pending(call)) {
            if (!any) sh_write_begin(w, "tool_calls", '[');
            any = true;
            call_write(call, index, chunk, w);
        }
        if (call->name != NULL) index++;
    }
    if (any) sh_write_end(w, ']');
}

static void message_write(const sh_choice *choice, sh_json_writer *w)
{
    bool called = false;
    for (int i = 0; i < choice->call_count; i++)
        called = called || sh_call_has_pending(&choice->calls[i]);
    sh_write_begin(w, "message", '{');
    sh_write_text(w, "role", "assistant");
    if (choice->content.len == 0 && called)
        sh_write_null(w, "content");
    else
        sh_write_str(w, "content", sh_buf_str(&choice->content));
    if (choice->reasoning.len > 0)
        sh_write_str(w, "reasoning_content", sh_buf_str(&choice->reasoning));
    calls_write(choice, false, w);
    sh_write_null(w, "refusal");
    sh_write_end(w, '}');
}

static void chat_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    head_write(answer, "chat.completion", &w);
    sh_write_begin(&w, "choices", '[');
    for (int i = 0; i < answer->count; i++) {
        const sh_choice *choice = &answer->choices[i];
        sh_write_begin(&w, NULL, '{');
        sh_write_int(&w, "index", i);
        message_write(choice, &w);
        chat_logprobs_write(answer, choice, &w);
        token_ids_write(answer, choice, &w);
        sh_write_text(&w, "finish_reason", finish_reasons[choice->finish]);
        sh_write_end(&w, '}');
    }
    sh_write_end(&w, ']');
    prompt_ids_write(answer, &answer->choices[0], &w);
    prompt_logprobs_write(answer, &answer->choices[0], &w);
    usage_write(answer, &w);
    conversation_write(answer, &w);
    sh_write_end(&w, '}');
}

static void completion_whole(const sh_answer *answer, sh_buf *out)
{
    sh_json_writer w = sh_json_writer_on(out);
    head_write(answer, "text_completion", &w);
    sh_write_begin(&w, "choices", '[');
    for (int i = 0; i < answer->count; i++) {
        const sh_choice *choice = &answer->choices[i];
        sh_write_begin(&w, NULL, '{');
        sh_write_int(&w, "index", i);
        sh_write_str(&w, "text", sh_buf_str(&choice->content));
        completion_logprobs_write(answer, choice, &w);
        token_ids_write(answer, choice, &w);
        prompt_ids_write(answer, choice, &w);
        prompt_logprobs_write(answer, choice, &w);
        sh_write_text(&w, "finish_reason", finish_reasons[choice->finish]);
        sh_write_end(&w, '}');
    }
    sh_write_end(&w, ']');
    usage_write(answer, &w);
    conversation_write(answer, &w);
    sh_write_end(&w, '}');
}

static sh_json_writer event_begin(const sh_answer *answer, const char *object, sh_buf *out)
{
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, NULL, out);
    head_write(answer, object, &w);
    return w;
}

static void event_end(sh_json_writer *w)
{
    sh_write_end(w, '}');
    sh_framing_end(&sh_framing_sse, w);
}

static void chunk_end(const sh_answer *answer, sh_json_writer *w)
{
    if (answer->spec->include_usage) sh_write_null(w, "usage");
    event_end(w);
}

static void chat_delta_write(const sh_choice *choice, sh_json_writer *w)
{
    sh_write_begin(w, "delta", '{');
    if (!choice->begun) sh_write_text(w, "role", "assistant");
    if (choice->reasoning.len > 0)
        sh_write_str(w, "reasoning_content", sh_buf_str(&choice->reasoning));
    if (choice->content.len > 0 || !choice->begun)
        sh_write_str(w, "content", sh_buf_str(&choice->content));
    calls_write(choice, true, w);
    sh_write_end(w, '}');
}

static void chat_chunk(const sh_answer *answer, const sh_choice *choice, sh_answer_finish finish,
                       sh_buf *out)
{
    sh_json_writer w = event_begin(answer, "chat.completion.chunk", out);
    sh_write_begin(&w, "choices", '[');
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "index", choice->index);
    if (finish == SH_ANSWER_RUNNING) {
        chat_delta_write(choice, &w);
        chat_logprobs_write(answer, choice, &w);
        token_ids_write(answer, choice, &w);
    } else {
        sh_write_begin(&w, "delta", '{');
        sh_write_end(&w, '}');
        sh_write_null(&w, "logprobs");
    }
    sh_write_text(&w, "finish_reason", finish_reasons[finish]);
    sh_write_end(&w, '}');
    sh_write_end(&w, ']');
    if (finish == SH_ANSWER_RUNNING) {
        prompt_ids_write(answer, choice, &w);
        prompt_logprobs_write(answer, choice, &w);
    } else {
        conversation_write(answer, &w);
    }
    chunk_end(answer, &w);
}

static void completion_chunk(const sh_answer *answer, const sh_choice *choice,
                             sh_answer_finish finish, sh_buf *out)
{
    sh_json_writer w = event_begin(answer, "text_completion", out);
    sh_write_begin(&w, "choices", '[');
    sh_write_begin(&w, NULL, '{');
    sh_write_int(&w, "index", choice->index);
    sh_write_str(&w, "text",
                 finish == SH_ANSWER_RUNNING ? sh_buf_str(&choice->content) : SH_STR(""));
    if (finish == SH_ANSWER_RUNNING) {
        completion_logprobs_write(answer, choice, &w);
        token_ids_write(answer, choice, &w);
        prompt_ids_write(answer, choice, &w);
        prompt_logprobs_write(answer, choice, &w);
    } else {
        sh_write_null(&w, "logprobs");
    }
    sh_write_text(&w, "finish_reason", finish_reasons[finish]);
    sh_write_end(&w, '}');
    sh_write_end(&w, ']');
    chunk_end(answer, &w);
}

static bool has_finished(const sh_choice *choice)
{
    return choice->done && choice->finish != SH_ANSWER_RUNNING;
}

static void chat_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    openai_conversation_part(answer, choice);
    if (sh_choice_has_pending(choice) || !choice->begun)
        chat_chunk(answer, choice, SH_ANSWER_RUNNING, out);
    if (has_finished(choice)) chat_chunk(answer, choice, choice->finish, out);
}

/* Unlike a chat, a completion has no role to announce, so there is no empty first chunk. */
static void completion_part(const sh_answer *answer, const sh_choice *choice, sh_buf *out)
{
    if (sh_choice_has_pending(choice)) completion_chunk(answer, choice, SH_ANSWER_RUNNING, out);
    if (has_finished(choice)) completion_chunk(answer, choice, choice->finish, out);
}

static void stream_end(const sh_answer *answer, const char *object, sh_buf *out)
{
    if (answer->spec->include_usage) {
        sh_json_writer w = event_begin(answer, object, out);
        sh_write_begin(&w, "choices", '[');
        sh_write_end(&w, ']');
        usage_write(answer, &w);
        conversation_write(answer, &w);
        event_end(&w);
    }
    sh_sse_event(out, NULL, SH_STR("[DONE]"));
}

static void chat_end(const sh_answer *answer, sh_buf *out)
{
    stream_end(answer, "chat.completion.chunk", out);
}

static void completion_end(const sh_answer *answer, sh_buf *out)
{
    stream_end(answer, "text_completion", out);
}

/* OpenAI's client libraries raise an error when a chunk has the key `error`. */
static void stream_fail(const sh_answer *answer, const sh_api_error *error, sh_buf *out)
{
    (void)answer;
    sh_json_writer w = sh_framing_begin(&sh_framing_sse, NULL, out);
    sh_openai.error(error, out);
    sh_framing_end(&sh_framing_sse, &w);
}

static void keep_alive(sh_buf *out)
{
    sh_sse_comment(out, "waiting");
}

const sh_job_format sh_openai_chat = {
    .kind = "chat",
    .id_prefix = "chatcmpl-",
    .read = sh_openai_chat_read,
    .whole = chat_whole,
    .framing = &sh_framing_sse,
    .state_size = sizeof(openai_conversation),
    .state_reset = openai_conversation_reset,
    .part = chat_part,
    .end = chat_end,
    .fail = stream_fail,
    .ended = openai_conversation_ended,
    .keep_alive = keep_alive,
};

const sh_job_format sh_openai_completion = {
    .kind = "completion",
    .id_prefix = "cmpl-",
    .read = sh_openai_completion_read,
    .whole = completion_whole,
    .framing = &sh_framing_sse,
    .part = completion_part,
    .end = completion_end,
    .fail = stream_fail,
    .keep_alive = keep_alive,
};
