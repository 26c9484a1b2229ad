#include "api/answer.h"

#include "api/messages.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "text/detokenizer.h"
#include "text/output.h"
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

enum { PRIME_TOKENS = 8 }; /* of the prompt, before the first of a completion: it keeps its space */

struct sh_choice_text {
    const sh_answer *answer;
    sh_choice *choice;
    sh_detokenizer *detok;
    sh_stop *stop;
    sh_output *output; /* NULL: all text is content */
    sh_buf safe;       /* behind the stop strings */
    bool ended;        /* by a stop string or a call too many: the rest is dropped */
    bool in_reasoning;
    bool must_call;     /* text that is no call is not wanted */
    int calls;          /* whole ones, of functions that may be called */
    int strays;         /* others, while a call is a must */
    int64_t characters; /* of all text that the tokens have given, with an echoed prompt */
    size_t odds_cap;
};

static int64_t characters_of(sh_str text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += (text.ptr[i] & 0xC0) != 0x80;
    return count;
}

static sh_call *call_at(sh_choice *choice, int index)
{
    while (choice->call_count <= index) {
        choice->calls = sh_realloc_array(choice->calls, (size_t)choice->call_count + 1,
                                         sizeof(sh_call));
        choice->calls[choice->call_count++] = (sh_call){0};
    }
    return &choice->calls[index];
}

/* A call of which the client was told can not be taken back. */
static void call_drop(sh_call *call)
{
    if (call->announced) return;
    free(call->id);
    free(call->name);
    sh_buf_reset(&call->args);
    *call = (sh_call){0};
}

/* Who must call something gets no function that it did not offer, or not the one it named. */
static bool call_is_wanted(const sh_choice_text *text, const char *name)
{
    const sh_request *request = text->answer->request;
    if (!text->must_call) return true;
    if (request->tool_name != NULL) return strcmp(name, request->tool_name) == 0;
    return sh_tools_find(request->tools, name) != NULL;
}

static void call_begin(sh_choice_text *text, const sh_output_event *event)
{
    sh_call *call = call_at(text->choice, event->call);
    call_drop(call);
    call->id = sh_str_dup(event->id);
    call->name = sh_str_dup(event->name);
    if (call_is_wanted(text, call->name)) return;
    call_drop(call); /* what follows goes to a call that nobody is told of */
    text->strays++;
}

static void call_end(sh_choice_text *text, const sh_output_event *event)
{
    const sh_request *request = text->answer->request;
    if (call_at(text->choice, event->call)->name != NULL) text->calls++;
    text->ended = !request->parallel_calls || request->tool_choice == SH_TOOLS_NAMED;
}

/* What the parser of the output reports. */
static void on_output(void *arg, const sh_output_event *event)
{
    sh_choice_text *text = arg;
    sh_choice *choice = text->choice;
    if (text->ended) return;
    text->in_reasoning = event->kind == SH_OUTPUT_REASONING;
    switch (event->kind) {
    case SH_OUTPUT_CONTENT:
        if (!text->must_call) sh_buf_add_str(&choice->content, event->text);
        text->ended = text->must_call && text->calls == 0; /* the call is broken */
        break;
    case SH_OUTPUT_REASONING: sh_buf_add_str(&choice->reasoning, event->text); break;
    case SH_OUTPUT_CALL_BEGIN: call_begin(text, event); break;
    case SH_OUTPUT_CALL_ARGS:
        sh_buf_add_str(&call_at(choice, event->call)->args, event->text);
        break;
    case SH_OUTPUT_CALL_END: call_end(text, event); break;
    case SH_OUTPUT_CALL_BROKEN: call_drop(call_at(choice, event->call)); break;
    }
}

static sh_status text_create(sh_answer *answer, sh_choice *choice, sh_err *err)
{
    const sh_request *request = answer->request;
    const sh_tokens *prompt = &answer->prompts[choice->prompt];
    sh_output_dialect used = *sh_served_dialect(answer->served);
    if (request->tools == NULL) used.tools = NULL;
    bool parse = request->chat && (used.reasoning != NULL || used.tools != NULL);
    sh_choice_text *text = sh_alloc(sizeof(*text));
    choice->text = text;
    text->answer = answer;
    text->choice = choice;
    text->detok = sh_detokenizer_create(sh_served_tokenizer(answer->served), !parse);
    for (size_t i = 0; !request->chat && i < PRIME_TOKENS; i++)
        if (prompt->count + i >= PRIME_TOKENS)
            sh_detokenizer_push(text->detok, prompt->ids[prompt->count + i - PRIME_TOKENS]);
    if (parse) {
        uint64_t seed;
        if (sh_random_bytes(&seed, sizeof(seed), err) != SH_OK) return err->status;
        sh_output_opts opts = {
            .in_reasoning = prompt->in_reasoning, .tools = request->tools, .id_seed = seed};
        text->in_reasoning = prompt->in_reasoning;
        text->output = sh_output_create(&used, &opts, on_output, text);
        text->must_call = prompt->lead.len > 0;
        sh_output_push(text->output, prompt->lead);
    }
    return sh_stop_create(request->stops, request->stop_count, &text->stop, err);
}

static void text_free(sh_choice_text *text)
{
    if (text == NULL) return;
    sh_detokenizer_free(text->detok);
    sh_stop_free(text->stop);
    sh_output_free(text->output);
    sh_buf_reset(&text->safe);
    free(text);
}

static void echo_add(sh_answer *answer, sh_choice *choice)
{
    const sh_prompt *prompt = &answer->request->prompts[choice->prompt];
    if (prompt->text.ptr != NULL)
        sh_buf_add_str(&choice->content, prompt->text);
    else
        sh_tokenizer_decode(sh_served_tokenizer(answer->served), prompt->ids, prompt->id_count,
                            true, &choice->content);
    choice->text->characters = characters_of(sh_buf_str(&choice->content));
}

sh_status sh_answer_create(const sh_request *request, const sh_served *served,
                           const sh_tokens *prompts, size_t prompt_count, sh_answer **out,
                           sh_err *err)
{
    sh_answer *answer = sh_alloc(sizeof(*answer));
    answer->request = request;
    answer->served = served;
    answer->prompts = prompts;
    answer->count = answer->open = (int)prompt_count * (int)request->n;
    answer->choices = sh_alloc_array((size_t)answer->count, sizeof(sh_choice));
    for (int i = 0; i < answer->count; i++) {
        sh_choice *choice = &answer->choices[i];
        choice->index = i;
        choice->prompt = (size_t)(i / (int)request->n);
        choice->prompt_tokens = (int)prompts[choice->prompt].count;
        if (text_create(answer, choice, err) != SH_OK) {
            sh_answer_free(answer);
            return err->status;
        }
        if (request->echo) echo_add(answer, choice);
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
    free(choice->odds);
    sh_buf_reset(&choice->content);
    sh_buf_reset(&choice->reasoning);
    text_free(choice->text);
}

void sh_answer_free(sh_answer *answer)
{
    if (answer == NULL) return;
    for (int i = 0; i < answer->count; i++) choice_free(&answer->choices[i]);
    free(answer->choices);
    free(answer);
}

/* Behind those whose text is known; odds_release moves the border. */
static void odds_add(sh_choice *choice, const sh_event *event)
{
    sh_choice_text *text = choice->text;
    size_t at = choice->odds_count + choice->odds_held++;
    if (at == text->odds_cap) {
        text->odds_cap = text->odds_cap * 2 + 16;
        choice->odds = sh_realloc_array(choice->odds, text->odds_cap, sizeof(sh_token_odds));
    }
    choice->odds[at] = (sh_token_odds){.id = event->token,
                                       .logprob = event->logprob,
                                       .offset = text->characters,
                                       .top_count = event->top_count};
    memcpy(choice->odds[at].top, event->top, (size_t)event->top_count * sizeof(event->top[0]));
}

static void odds_release(sh_choice *choice)
{
    choice->odds_count += choice->odds_held;
    choice->odds_held = 0;
}

static void safe_push(sh_choice_text *text)
{
    if (text->safe.len == 0) return;
    odds_release(text->choice);
    if (text->output != NULL)
        sh_output_push(text->output, sh_buf_str(&text->safe));
    else
        sh_buf_add_str(&text->choice->content, sh_buf_str(&text->safe));
}

/* Text from the detokenizer goes on to the stop strings and what follows them. */
static void text_push(sh_choice_text *text, sh_str piece)
{
    sh_buf_clear(&text->safe);
    text->characters += characters_of(piece);
    bool matched = sh_stop_push(text->stop, piece, &text->safe);
    safe_push(text);
    if (matched) text->ended = true;
}

/* No more tokens: what was held back comes out, unless a stop string has ended the text. */
static void text_finish(sh_choice_text *text)
{
    if (!text->ended) text_push(text, sh_detokenizer_finish(text->detok));
    if (!text->ended) {
        sh_buf_clear(&text->safe);
        sh_stop_finish(text->stop, &text->safe);
        safe_push(text);
        odds_release(text->choice);
    }
    /* Tokens whose text a stop string swallowed are not part of the answer. */
    text->choice->odds_held = 0;
    /* Behind a call too many the parser's last words do not count; behind a stop string they do. */
    text->ended = text->ended && sh_stop_matched(text->stop) < 0;
    if (text->output != NULL) sh_output_finish(text->output);
    text->ended = true;
}

static bool is_end_id(const sh_answer *answer, int32_t id)
{
    int count;
    const int32_t *ids = sh_served_end_ids(answer->served, &count);
    for (int i = 0; i < count; i++)
        if (ids[i] == id) return true;
    return false;
}

/* With ignore_eos the marks of the end come as tokens; they are no text, and neither are special
 * tokens that mean nothing to the parser. */
static bool is_text(const sh_answer *answer, const sh_choice_text *text, int32_t id)
{
    if (is_end_id(answer, id)) return false;
    if (text->output == NULL || !sh_tokenizer_is_special(sh_served_tokenizer(answer->served), id))
        return true;
    sh_buf piece = {0};
    sh_served_piece(answer->served, id, &piece);
    bool reads = sh_output_reads(text->output, sh_buf_str(&piece));
    sh_buf_reset(&piece);
    return reads;
}

/* The end of an answer that had to be a call and is none. */
static void call_missing(sh_choice *choice, bool cut)
{
    choice->failed = true;
    sh_api_fail(&choice->error, 422, "tool_call_failed", "tool_choice", "%s",
                cut                        ? "the answer reached its length before the function "
                                             "call that 'tool_choice' asks for was whole"
                : choice->text->strays > 0 ? "the model called another function than 'tool_choice' "
                                             "asks for"
                                           : "the model did not write the function call that "
                                             "'tool_choice' asks for");
}

/* cut: by its length. */
static void choice_finish(sh_choice *choice, bool cut)
{
    sh_choice_text *text = choice->text;
    text_finish(text);
    choice->finish = cut ? "length" : text->calls > 0 ? "tool_calls" : "stop";
    if (text->must_call && text->calls == 0) call_missing(choice, cut);
}

/* True when the text has ended with this token. */
static bool token_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    sh_choice_text *text = choice->text;
    if (text->ended) return false;
    choice->completion_tokens++;
    if (answer->request->logprobs) odds_add(choice, event);
    if (is_text(answer, text, event->token))
        text_push(text, sh_detokenizer_push(text->detok, event->token));
    if (text->in_reasoning) choice->reasoning_tokens++;
    if (!text->ended) return false;
    choice_finish(choice, false);
    return true;
}

static void done_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    choice->done = true;
    answer->open--;
    choice->cached_tokens = event->cached_tokens;
    choice->queue_s = event->queue_s;
    choice->prefill_s = event->prefill_s;
    choice->decode_s = event->decode_s;
    if (choice->finish != NULL) return;
    choice_finish(choice, event->finish == SH_FINISH_LENGTH);
}

static void error_take(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    choice->done = true;
    answer->open--;
    if (choice->finish != NULL) return; /* it had ended; only its figures are lost */
    choice->failed = true;
    choice->error = sh_api_error_of(&event->error, event->retry);
}

bool sh_answer_event(sh_answer *answer, sh_choice *choice, const sh_event *event)
{
    SH_ASSERT(!choice->done);
    switch (event->kind) {
    case SH_EVENT_TOKEN: return token_take(answer, choice, event);
    case SH_EVENT_DONE: done_take(answer, choice, event); return false;
    case SH_EVENT_ERROR: error_take(answer, choice, event); return false;
    case SH_EVENT_STATS: break;
    }
    return false;
}

bool sh_call_has_news(const sh_call *call)
{
    return call->name != NULL && (!call->announced || call->args.len > 0);
}

bool sh_choice_has_news(const sh_choice *choice)
{
    if (choice->content.len > 0 || choice->reasoning.len > 0) return true;
    for (int i = 0; i < choice->call_count; i++)
        if (sh_call_has_news(&choice->calls[i])) return true;
    /* Odds go with the text that they belong to; at the end, those of tokens without text. */
    return choice->done && choice->odds_count > 0;
}

void sh_choice_told(sh_choice *choice)
{
    sh_buf_clear(&choice->content);
    sh_buf_clear(&choice->reasoning);
    for (int i = 0; i < choice->call_count; i++) {
        choice->calls[i].announced = choice->calls[i].name != NULL;
        sh_buf_clear(&choice->calls[i].args);
    }
    if (choice->odds_count > 0 && choice->odds_held > 0)
        memmove(choice->odds, choice->odds + choice->odds_count,
                choice->odds_held * sizeof(sh_token_odds));
    choice->odds_count = 0;
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
