/* Turns token events into the pending output of a choice.
 *
 * text/answer_text.c does the work on characters: it detokenizes, looks for stop strings and parses
 * reasoning and tool calls. Text can be held back there, because it might be the start of a stop
 * string or of a call. Log-probabilities must arrive with the text of their tokens, so they are
 * held back in step: logprobs[0 .. count) are pending, the next `held` wait for their text.
 *
 * That an answer is the call which tool_choice requires, or has the form which the request
 * prescribes, is the grammar's business (form.c); here all answers are read alike. */
#include "api/answer.h"

#include "base/alloc.h"
#include "text/answer_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sh_choice_text {
    const sh_job_spec *spec;
    sh_answer_text *reader;
    int calls;      /* complete ones */
    int64_t echoed; /* characters of the prompt before the answer */
    size_t scored;  /* bytes of the prompt's text before the latest of prompt_logprobs */
    size_t logprobs_cap;
    size_t logprobs_seen; /* tokens whose logprobs were released so far */
};

/* The call with this index of the parser; calls that were dropped keep their place. */
static sh_call *call_at(sh_choice *choice, int index)
{
    while (choice->call_count <= index) {
        choice->calls = sh_realloc_array(choice->calls, (size_t)choice->call_count + 1,
                                         sizeof(sh_call));
        choice->calls[choice->call_count++] = (sh_call){0};
    }
    return &choice->calls[index];
}

/* Forgets a call, unless it was announced: then it cannot be taken back. */
static void call_drop(sh_call *call)
{
    if (call->announced) return;
    free(call->id);
    free(call->name);
    sh_buf_reset(&call->args);
    *call = (sh_call){0};
}

static void call_begin(sh_choice *choice, const sh_output_event *event)
{
    sh_call *call = call_at(choice, event->call);
    call_drop(call);
    call->id = sh_str_dup(event->id);
    call->name = sh_str_dup(event->name);
}

static void call_end(sh_choice *choice, int index)
{
    const sh_job_spec *spec = choice->text->spec;
    call_at(choice, index)->complete = true;
    choice->text->calls++;
    if (!spec->parallel_calls || spec->tool_choice == SH_TOOLS_NAMED)
        sh_answer_text_stop(choice->text->reader);
}

/* Receives the parsed output of the tokens. */
static void on_output(void *arg, const sh_output_event *event)
{
    sh_choice *choice = arg;
    switch (event->kind) {
    case SH_OUTPUT_CONTENT: sh_buf_add_str(&choice->content, event->text); break;
    case SH_OUTPUT_REASONING: sh_buf_add_str(&choice->reasoning, event->text); break;
    case SH_OUTPUT_CALL_BEGIN: call_begin(choice, event); break;
    case SH_OUTPUT_CALL_ARGS:
        sh_buf_add_str(&call_at(choice, event->call)->args, event->text);
        break;
    case SH_OUTPUT_CALL_END: call_end(choice, event->call); break;
    case SH_OUTPUT_CALL_BROKEN: call_drop(call_at(choice, event->call)); break;
    }
}

static sh_status text_create(sh_answer *answer, sh_choice *choice, sh_err *err)
{
    const sh_job_spec *spec = answer->spec;
    const sh_tokens *prompt = &answer->prompts[choice->prompt];
    bool goes_on = !spec->chat || spec->prompt_end == SH_PROMPT_CONTINUES;
    sh_answer_text_opts opts = {
        .chat = spec->chat,
        .in_reasoning = prompt->in_reasoning,
        .tools = spec->tools,
        .prompt = prompt->ids,
        .prompt_count = goes_on ? prompt->count : 0,
        .stops = spec->stops,
        .stop_count = spec->stop_count,
    };
    choice->text = sh_alloc(sizeof(*choice->text));
    choice->text->spec = spec;
    return sh_answer_text_create(sh_served_model_text(answer->served), &opts, on_output, choice,
                                 &choice->text->reader, err);
}

static void text_free(sh_choice_text *text)
{
    if (text == NULL) return;
    sh_answer_text_free(text->reader);
    free(text);
}

static int64_t characters_of(sh_str text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += (text.ptr[i] & 0xC0) != 0x80;
    return count;
}

/* Puts the prompt before the answer. `echoed` counts its characters (not bytes), since text_offset
 * counts characters. */
static void echo_add(sh_answer *answer, sh_choice *choice)
{
    const sh_prompt *prompt = &answer->spec->prompts[choice->prompt];
    if (prompt->text.ptr != NULL)
        sh_buf_add_str(&choice->content, prompt->text);
    else
        sh_tokenizer_decode(sh_served_model_tokenizer(answer->served), prompt->ids,
                            prompt->id_count, true, &choice->content);
    choice->text->echoed = characters_of(sh_buf_str(&choice->content));
}

static bool scores_prompt(const sh_job_spec *spec)
{
    return spec->prompt_logprobs || (spec->echo && spec->logprobs);
}

int sh_answer_score_from(const sh_job_spec *spec)
{
    return scores_prompt(spec) ? 1 : 0;
}

/* What a token is in the echoed text. Special tokens are there only if the client wrote them, and
 * some tokenizers put a space before a text. */
static sh_str echoed_piece(bool special, sh_str piece, sh_str rest)
{
    bool there = sh_str_starts(rest, piece);
    if (special) return there ? piece : (sh_str){NULL, 0};
    if (!there && rest.len > 0 && sh_str_starts(piece, SH_STR(" ")) &&
        sh_str_starts(rest, sh_str_sub(piece, 1, piece.len)))
        return sh_str_sub(piece, 1, piece.len);
    return piece;
}

/* Characters of a token in the echoed text, as far as one token alone has any. */
static int64_t echoed_characters(const sh_answer *answer, sh_choice *choice, int32_t id)
{
    sh_str text = answer->spec->prompts[choice->prompt].text; /* empty: it was given as ids */
    size_t *at = &choice->text->scored;
    sh_buf piece = {0};
    sh_served_model_piece(answer->served, id, &piece);
    sh_str shown = echoed_piece(
        sh_tokenizer_is_special(sh_served_model_tokenizer(answer->served), id), sh_buf_str(&piece),
        *at < text.len ? sh_str_sub(text, *at, text.len) : (sh_str){"", 0});
    int64_t count = characters_of(shown);
    *at += shown.len;
    sh_buf_reset(&piece);
    return count;
}

/* The tokens of a prompt come in order, each at the end of the text of those before. */
static void prompt_logprobs_add(const sh_answer *answer, sh_choice *choice,
                                const sh_token_logprobs *logprobs)
{
    size_t at = choice->prompt_logprobs_count++;
    choice->prompt_logprobs[at] = *logprobs;
    if (at == 0 || !answer->spec->echo) return;
    const sh_token_logprobs *before = &choice->prompt_logprobs[at - 1];
    int64_t offset = before->offset + echoed_characters(answer, choice, before->id);
    int64_t most = choice->text->echoed;
    choice->prompt_logprobs[at].offset = offset < most ? offset : most;
}

static void prompt_logprobs_start(const sh_answer *answer, sh_choice *choice)
{
    const sh_tokens *prompt = &answer->prompts[choice->prompt];
    choice->prompt_logprobs = sh_alloc_array(prompt->count, sizeof(sh_token_logprobs));
    prompt_logprobs_add(answer, choice, &(sh_token_logprobs){.id = prompt->ids[0], .logprob = NAN});
}

static void prompt_token_take(const sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    if (choice->prompt_logprobs_count == answer->prompts[choice->prompt].count) return;
    sh_token_logprobs logprobs = {
        .id = event->token, .logprob = event->logprob, .top_count = event->top_count};
    memcpy(logprobs.top, event->top, (size_t)event->top_count * sizeof(event->top[0]));
    prompt_logprobs_add(answer, choice, &logprobs);
}

sh_status sh_answer_create(const sh_job_spec *spec, const sh_served_model *served,
                           const sh_tokens *prompts, size_t prompt_count, sh_answer **out,
                           sh_err *err)
{
    sh_answer *answer = sh_alloc(sizeof(*answer));
    answer->spec = spec;
    answer->served = served;
    answer->model = served == NULL ? "" : sh_served_model_name(served);
    answer->prompts = prompts;
    answer->count = answer->open = (int)prompt_count * (int)spec->n;
    answer->choices = sh_alloc_array((size_t)answer->count, sizeof(sh_choice));
    for (int i = 0; i < answer->count; i++) {
        sh_choice *choice = &answer->choices[i];
        choice->index = i;
        choice->stop = -1;
        choice->prompt = (size_t)(i / (int)spec->n);
        choice->prompt_tokens = (int)prompts[choice->prompt].count;
        if (spec->pooled) continue;
        if (text_create(answer, choice, err) != SH_OK) {
            sh_answer_free(answer);
            return err->status;
        }
        if (spec->echo) echo_add(answer, choice);
        if (scores_prompt(spec)) prompt_logprobs_start(answer, choice);
    }
    *out = answer;
    return SH_OK;
}

static void choice_free(sh_choice *choice)
{
    for (int i = 0; i < choice->call_count; i++) {
        free(choice->calls[i].id);
        free(choice->calls[i].name);
        sh_buf_reset(&choice->calls[i].args);
    }
    free(choice->calls);
    free(choice->logprobs);
    free(choice->prompt_logprobs);
    free(choice->vector);
    sh_buf_reset(&choice->content);
    sh_buf_reset(&choice->reasoning);
    text_free(choice->text);
}

void sh_answer_free(sh_answer *answer)
{
    if (answer == NULL) return;
    for (int i = 0; i < answer->count; i++) choice_free(&answer->choices[i]);
    free(answer->choices);
    free(answer->state);
    free(answer);
}

/* Appends to the held ones; logprobs_release() makes them pending. */
static void logprobs_add(sh_choice *choice, const sh_event *event)
{
    sh_choice_text *text = choice->text;
    int top = event->top_count < text->spec->top_logprobs ? event->top_count
                                                          : (int)text->spec->top_logprobs;
    size_t at = choice->logprobs_count + choice->logprobs_held++;
    if (at == text->logprobs_cap) {
        text->logprobs_cap = text->logprobs_cap * 2 + 16;
        choice->logprobs = sh_realloc_array(choice->logprobs, text->logprobs_cap,
                                            sizeof(sh_token_logprobs));
    }
    choice->logprobs[at] = (sh_token_logprobs){.id = event->token,
                                               .logprob = event->logprob,
                                               .offset = text->echoed +
                                                         sh_answer_text_characters(text->reader),
                                               .top_count = top};
    memcpy(choice->logprobs[at].top, event->top, (size_t)top * sizeof(event->top[0]));
}

/* Makes the logprobs of all tokens pending whose text has been settled. */
static void logprobs_release(sh_choice *choice)
{
    size_t settled = sh_answer_text_settled(choice->text->reader);
    size_t fresh = settled - choice->text->logprobs_seen;
    choice->text->logprobs_seen = settled;
    if (choice->logprobs_held == 0) return;
    choice->logprobs_count += fresh;
    choice->logprobs_held -= fresh;
}

static void text_finish(sh_choice *choice)
{
    sh_answer_text_finish(choice->text->reader);
    logprobs_release(choice);
    /* Tokens that belong to a stop string are not part of the answer. */
    choice->logprobs_held = 0;
}

/* An answer that ends by itself after a call waits for the result of the call; one whose last call
 * was cut does not. */
static void choice_finish(sh_choice *choice, sh_answer_finish finish)
{
    const sh_choice_text *text = choice->text;
    text_finish(choice);
    bool cut = finish == SH_ANSWER_LENGTH || sh_answer_text_in_call(text->reader);
    choice->finish = !cut && text->calls > 0 ? SH_ANSWER_TOOL_CALLS : finish;
}

/* True when the text has ended with this token. */
static bool token_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    if (answer->spec->pooled) return false; /* there is no text for it */
    sh_answer_text *reader = choice->text->reader;
    if (choice->finish != SH_ANSWER_RUNNING) return false; /* in flight when it was cancelled */
    if (answer->spec->prompt_only) return false;
    choice->completion_tokens++;
    if (answer->spec->logprobs || answer->spec->token_ids) logprobs_add(choice, event);
    bool ended = sh_answer_text_push(reader, event->token);
    logprobs_release(choice);
    if (sh_answer_text_in_reasoning(reader)) choice->reasoning_tokens++;
    if (!ended) return false;
    choice->stop = sh_answer_text_stop_matched(reader);
    choice_finish(choice, SH_ANSWER_STOP_STRING);
    return true;
}

static void vector_take(sh_choice *choice, const sh_event *event)
{
    size_t size = (size_t)event->vector_len * sizeof(*choice->vector);
    choice->finish = SH_ANSWER_STOP;
    choice->vector_len = event->vector_len;
    choice->vector = sh_alloc(size + 1);
    if (size > 0) memcpy(choice->vector, event->vector, size);
}

static void done_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    choice->done = true;
    answer->open--;
    choice->cached_tokens = event->cached_tokens;
    choice->queue_s = event->queue_s;
    choice->prefill_s = event->prefill_s;
    choice->decode_s = event->decode_s;
    if (answer->spec->pooled) vector_take(choice, event);
    if (choice->finish != SH_ANSWER_RUNNING) return;
    bool cut = event->finish == SH_FINISH_LENGTH || answer->spec->prompt_only;
    choice_finish(choice, cut ? SH_ANSWER_LENGTH : SH_ANSWER_STOP);
}

static void error_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    choice->done = true;
    answer->open--;
    /* The text was complete; only its times are lost. */
    if (choice->finish != SH_ANSWER_RUNNING) return;
    choice->failed = true;
    choice->error = sh_api_error_of(&event->error, event->retry);
}

bool sh_answer_event(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    SH_ASSERT(!choice->done);
    switch (event->kind) {
    case SH_EVENT_PROMPT_TOKEN: prompt_token_take(answer, choice, event); return false;
    case SH_EVENT_TOKEN: return token_take(answer, choice, event);
    case SH_EVENT_DONE: done_take(answer, choice, event); return false;
    case SH_EVENT_ERROR: error_take(answer, choice, event); return false;
    case SH_EVENT_PROGRESS:
    case SH_EVENT_STATS: break;
    }
    return false;
}

bool sh_call_has_pending(const sh_call *call)
{
    return call->name != NULL && (!call->announced || call->args.len > 0);
}

bool sh_choice_has_pending(const sh_choice *choice)
{
    if (choice->content.len > 0 || choice->reasoning.len > 0) return true;
    for (int i = 0; i < choice->call_count; i++)
        if (sh_call_has_pending(&choice->calls[i])) return true;
    /* Logprobs go out with their text; at the end, also those of tokens without text. */
    return choice->done && choice->logprobs_count > 0;
}

void sh_choice_sent(sh_choice *choice)
{
    sh_buf_clear(&choice->content);
    sh_buf_clear(&choice->reasoning);
    for (int i = 0; i < choice->call_count; i++) {
        choice->calls[i].announced = choice->calls[i].name != NULL;
        sh_buf_clear(&choice->calls[i].args);
    }
    if (choice->logprobs_count > 0 && choice->logprobs_held > 0)
        memmove(choice->logprobs, choice->logprobs + choice->logprobs_count,
                choice->logprobs_held * sizeof(sh_token_logprobs));
    choice->logprobs_count = 0;
    choice->begun = true;
    choice->over = choice->done;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

sh_usage sh_answer_usage(const sh_answer *answer)
{
    sh_usage usage = {0};
    for (int i = 0; i < answer->count; i++) {
        const sh_choice *choice = &answer->choices[i];
        bool first = i == 0 || choice->prompt != answer->choices[i - 1].prompt;
        if (first) usage.prompt_tokens += choice->prompt_tokens;
        if (first) usage.cached_tokens += choice->cached_tokens;
        usage.completion_tokens += choice->completion_tokens;
        usage.reasoning_tokens += choice->reasoning_tokens;
        usage.queue_s = larger(usage.queue_s, choice->queue_s);
        usage.prefill_s = larger(usage.prefill_s, choice->prefill_s);
        usage.decode_s = larger(usage.decode_s, choice->decode_s);
    }
    return usage;
}
