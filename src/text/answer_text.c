/* The pipeline is detokenizer -> stop strings -> parser -> callback. The order matters: stop
 * strings are matched on the decoded text, markers included, before the parser turns any of it into
 * events, so no byte of a stop string is ever reported. */
#include "text/answer_text.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "text/output/stop.h"
#include "text/tokenizer/detokenizer.h"

#include <stdlib.h>

/* Tokens of the prompt that the detokenizer sees first, if the answer goes on with its text: some
 * decoders strip the space before the first word of a text, and this word is not the first. */
enum { PRIME_TOKENS = 8 };

struct sh_answer_text {
    const sh_model_text *model;
    sh_output_fn fn;
    void *arg;
    sh_detokenizer *detok; /* NULL: there is no tokenizer */
    sh_stop *stop;
    sh_output *output; /* NULL: all text is content */
    sh_buf safe;       /* text that cannot be part of a stop string any more */
    size_t pushed, settled;
    int64_t characters;
    bool ended;   /* drop everything from here on */
    bool stopped; /* by sh_answer_text_stop() */
    bool in_reasoning;
    bool in_call;
};

static void on_output(void *arg, const sh_output_event *event)
{
    sh_answer_text *text = arg;
    if (text->ended) return;
    text->in_reasoning = event->kind == SH_OUTPUT_REASONING;
    text->in_call = event->kind == SH_OUTPUT_CALL_BEGIN || event->kind == SH_OUTPUT_CALL_ARGS;
    text->fn(text->arg, event);
}

void sh_answer_text_stop(sh_answer_text *text)
{
    text->ended = text->stopped = true;
}

static sh_status parser_create(sh_answer_text *text, const sh_answer_text_opts *opts, sh_err *err)
{
    sh_output_dialect used = *sh_model_text_dialect(text->model);
    uint64_t seed;
    if (opts->tools == NULL) used.tools = NULL;
    if (!opts->chat || (used.reasoning == NULL && used.tools == NULL)) return SH_OK;
    if (sh_random_bytes(&seed, sizeof(seed), err) != SH_OK) return err->status;
    sh_output_opts with = {
        .in_reasoning = opts->in_reasoning, .tools = opts->tools, .id_seed = seed};
    text->in_reasoning = opts->in_reasoning;
    text->output = sh_output_create(&used, &with, on_output, text);
    return SH_OK;
}

/* With a parser the detokenizer must keep special tokens, because most markers are special tokens;
 * is_text() filters the others. */
static void detok_create(sh_answer_text *text, const sh_answer_text_opts *opts)
{
    const sh_tokenizer *tok = sh_model_text_tokenizer(text->model);
    if (tok == NULL) return;
    text->detok = sh_detokenizer_create(tok, text->output == NULL);
    size_t count = opts->prompt_count;
    for (size_t i = count > PRIME_TOKENS ? count - PRIME_TOKENS : 0; i < count; i++)
        (void)sh_detokenizer_push(text->detok, opts->prompt[i]);
}

sh_status sh_answer_text_create(const sh_model_text *model, const sh_answer_text_opts *opts,
                                sh_output_fn fn, void *arg, sh_answer_text **out, sh_err *err)
{
    sh_answer_text *text = sh_alloc(sizeof(*text));
    *text = (sh_answer_text){.model = model, .fn = fn, .arg = arg};
    sh_status status = parser_create(text, opts, err);
    if (status == SH_OK) status = sh_stop_create(opts->stops, opts->stop_count, &text->stop, err);
    if (status != SH_OK) {
        sh_answer_text_free(text);
        return status;
    }
    detok_create(text, opts);
    *out = text;
    return SH_OK;
}

void sh_answer_text_free(sh_answer_text *text)
{
    if (text == NULL) return;
    sh_detokenizer_free(text->detok);
    sh_stop_free(text->stop);
    sh_output_free(text->output);
    sh_buf_reset(&text->safe);
    free(text);
}

/* Text that got past the stop strings settles all tokens so far: none of them can be dropped any
 * more. */
static void safe_push(sh_answer_text *text)
{
    if (text->safe.len == 0) return;
    text->settled = text->pushed;
    if (text->output != NULL) {
        sh_output_push(text->output, sh_buf_str(&text->safe));
    } else {
        sh_output_event event = {.kind = SH_OUTPUT_CONTENT, .text = sh_buf_str(&text->safe)};
        text->fn(text->arg, &event);
    }
}

/* Counts the bytes that start a character. */
static int64_t characters_of(sh_str text)
{
    int64_t count = 0;
    for (size_t i = 0; i < text.len; i++) count += (text.ptr[i] & 0xC0) != 0x80;
    return count;
}

/* Passes decoded text to the stop strings, and what they release to the parser. */
static void piece_push(sh_answer_text *text, sh_str piece)
{
    sh_buf_clear(&text->safe);
    text->characters += characters_of(piece);
    bool matched = sh_stop_push(text->stop, piece, &text->safe);
    safe_push(text);
    if (matched) text->ended = true;
}

/* End tokens arrive here when a request ignores them; they are not text, and neither are special
 * tokens that mean nothing to the parser. */
static bool is_text(const sh_answer_text *text, int32_t id)
{
    if (text->detok == NULL || sh_model_text_is_end_id(text->model, id)) return false;
    if (text->output == NULL || !sh_tokenizer_is_special(sh_model_text_tokenizer(text->model), id))
        return true;
    sh_buf piece = {0};
    sh_model_text_piece(text->model, id, &piece);
    bool reads = sh_output_reads(text->output, sh_buf_str(&piece));
    sh_buf_reset(&piece);
    return reads;
}

bool sh_answer_text_push(sh_answer_text *text, int32_t id)
{
    if (text->ended) return true;
    text->pushed++;
    if (is_text(text, id)) piece_push(text, sh_detokenizer_push(text->detok, id));
    return text->ended;
}

void sh_answer_text_finish(sh_answer_text *text)
{
    if (!text->ended && text->detok != NULL) piece_push(text, sh_detokenizer_finish(text->detok));
    if (!text->ended) {
        sh_buf_clear(&text->safe);
        sh_stop_finish(text->stop, &text->safe);
        safe_push(text);
        text->settled = text->pushed;
    }
    /* A stop string set `ended`, which would also mute the parser; what the parser still holds came
     * before the stop string and must go out. After sh_answer_text_stop() it must not. */
    text->ended = text->stopped;
    if (text->output != NULL) sh_output_finish(text->output);
    text->ended = true;
}

size_t sh_answer_text_settled(const sh_answer_text *text)
{
    return text->settled;
}

int sh_answer_text_stop_matched(const sh_answer_text *text)
{
    return sh_stop_matched(text->stop);
}

int64_t sh_answer_text_characters(const sh_answer_text *text)
{
    return text->characters;
}

bool sh_answer_text_in_reasoning(const sh_answer_text *text)
{
    return text->in_reasoning;
}

bool sh_answer_text_in_call(const sh_answer_text *text)
{
    return text->in_call;
}

const char *sh_answer_text_finish_reason(const sh_answer_text *text)
{
    bool called = text->output != NULL && sh_output_calls(text->output) > 0;
    return called && !text->in_call ? "tool_calls" : "stop";
}
