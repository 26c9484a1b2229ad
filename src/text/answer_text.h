/* answer_text.h - turns the token ids of an answer into content, reasoning and tool calls.
 *
 * Ids pass through the detokenizer, the stop strings and, in a chat, the parser of reasoning and
 * tool calls; the result is a stream of the events of output.h. The HTTP API, `shoal chat` and
 * `shoal generate` all decode answers here, so an answer ends at the same token and shows the same
 * text in all of them.
 *
 * Text is held back while it may be the start of a stop string or a marker, so events lag behind
 * the tokens; sh_answer_text_settled() tells how many tokens are certain to be part of the answer.
 *
 * Threads: one owner; the sh_model_text must outlive it. */
#ifndef SH_TEXT_ANSWER_TEXT_H
#define SH_TEXT_ANSWER_TEXT_H

#include "text/model_text.h"

typedef struct {
    bool chat;             /* parse reasoning and tool calls; else all text is content */
    bool in_reasoning;     /* the prompt ends inside the reasoning */
    const cJSON *tools;    /* of the request, borrowed; NULL: none, and calls are plain text */
    const int32_t *prompt; /* that the text goes on with, so that its first word keeps its space:
                              a plain one, or one that ends inside a message */
    size_t prompt_count;
    const sh_str *stops;
    size_t stop_count;
} sh_answer_text_opts;

typedef struct sh_answer_text sh_answer_text;

/* Calls fn for each event, from inside the functions below. A model without a tokenizer yields no
 * events. */
SH_MUST_CHECK sh_status sh_answer_text_create(const sh_model_text *model,
                                              const sh_answer_text_opts *opts, sh_output_fn fn,
                                              void *arg, sh_answer_text **out, sh_err *err);
void sh_answer_text_free(sh_answer_text *text);

/* Adds the next token. Returns true once the answer is over (a stop string matched, or the callback
 * called sh_answer_text_stop()); further tokens are ignored. */
bool sh_answer_text_push(sh_answer_text *text, int32_t id);

/* May be called from the callback: the current event becomes the last one. */
void sh_answer_text_stop(sh_answer_text *text);

/* Ends the answer and reports the text that was held back. Call it exactly once, also after push
 * returned true. */
void sh_answer_text_finish(sh_answer_text *text);

/* Tokens so far that certainly belong to the answer; those consumed by a stop string never do. */
size_t sh_answer_text_settled(const sh_answer_text *text);

/* Index of the stop string that ended the answer, or -1. */
int sh_answer_text_stop_matched(const sh_answer_text *text);

/* Characters of all text decoded so far; special tokens contribute none. */
int64_t sh_answer_text_characters(const sh_answer_text *text);

bool sh_answer_text_in_reasoning(const sh_answer_text *text);

/* Whether the text so far ends inside a call that was reported; after the end of the answer:
 * whether that end has cut one. */
bool sh_answer_text_in_call(const sh_answer_text *text);

/* OpenAI's finish_reason: "tool_calls" if there was at least one complete call and none was cut,
 * else "stop". */
const char *sh_answer_text_finish_reason(const sh_answer_text *text);

#endif
