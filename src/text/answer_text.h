/* answer_text.h - from the token ids of an answer to what they mean.
 *
 * Ids go through the detokenizer, the stop strings and, in a chat, the parser of reasoning and tool
 * calls; what comes out are the events of output.h. HTTP answers and those of `shoal chat` and
 * `generate` are read here, so that they end at the same place and show the same text.
 *
 * Text is held back while a stop string or a marker may begin in it, so events lag behind the
 * tokens; sh_answer_text_settled says how many tokens are certain to be part of the answer.
 *
 * Threads: one owner; the model_text must outlive it. */
#ifndef SH_TEXT_ANSWER_TEXT_H
#define SH_TEXT_ANSWER_TEXT_H

#include "text/model_text.h"

typedef struct {
    bool chat;             /* read reasoning and tool calls; else all text is content */
    bool in_reasoning;     /* the prompt ends inside the reasoning */
    const cJSON *tools;    /* of the request, borrowed; NULL: none, and calls are plain text */
    const int32_t *prompt; /* what a plain text goes on from: its first word keeps its space */
    size_t prompt_count;
    sh_str lead; /* the beginning of the answer, which the prompt has already */
    const sh_str *stops;
    size_t stop_count;
} sh_answer_text_opts;

typedef struct sh_answer_text sh_answer_text;

/* Events go to fn, inside the calls below; without a tokenizer there are none. */
SH_MUST_CHECK sh_status sh_answer_text_create(const sh_model_text *model,
                                              const sh_answer_text_opts *opts, sh_output_fn fn,
                                              void *arg, sh_answer_text **out, sh_err *err);
void sh_answer_text_free(sh_answer_text *text);

/* Takes the next token. True when the answer has ended by itself (a stop string, or who hears the
 * events said so): tokens that still come are ignored. */
bool sh_answer_text_push(sh_answer_text *text, int32_t id);

/* For who hears an event: the answer ends with it, and there are no more. */
void sh_answer_text_stop(sh_answer_text *text);

/* The answer has ended: what was held back comes out. Call it once, also after push was true. */
void sh_answer_text_finish(sh_answer_text *text);

/* Tokens so far that belong to the answer for certain; those that a stop string swallowed never
 * do. */
size_t sh_answer_text_settled(const sh_answer_text *text);

/* Characters of all text that the tokens so far have given; special tokens have none. */
int64_t sh_answer_text_characters(const sh_answer_text *text);

bool sh_answer_text_in_reasoning(const sh_answer_text *text);

/* Why it ended, in OpenAI's words: "tool_calls" when there was one, else "stop". */
const char *sh_answer_text_finish_reason(const sh_answer_text *text);

#endif
