/* pretokenizer.h - cuts a text into the words that the merges work on.
 *
 * It is a list of stages. A piece of text goes through them depth first: what a stage cuts off is
 * handed to the next stage at once, and what leaves the last is a word, so no list of pieces is
 * ever made.
 *
 * Threads: immutable after reading; each thread brings its own scratch. */
#ifndef SH_TEXT_TOKENIZER_PRETOKENIZER_H
#define SH_TEXT_TOKENIZER_PRETOKENIZER_H

#include "base/json.h"
#include "text/tokenizer/regex.h"

typedef struct sh_pretokenizer sh_pretokenizer;

/* From the value of "pre_tokenizer"; NULL and null give one that cuts nothing. */
SH_MUST_CHECK sh_status sh_pretokenizer_create(const cJSON *json, const char *where,
                                               sh_pretokenizer **out, sh_err *err);

/* The way of byte-level vocabularies: cut by a pattern, then bytes in their alphabet. */
SH_MUST_CHECK sh_status sh_pretokenizer_create_bytes(sh_str pattern, sh_pretokenizer **out,
                                                     sh_err *err);
void sh_pretokenizer_free(sh_pretokenizer *pre);

/* Zero is a valid scratch; it serves one pre-tokenizer. */
typedef struct {
    sh_regex_scratch regex;
    sh_buf *texts; /* one for each stage */
    size_t count;
} sh_pretokenizer_scratch;

void sh_pretokenizer_scratch_reset(sh_pretokenizer_scratch *scratch);

typedef sh_status (*sh_word_fn)(void *arg, sh_str word, sh_err *err);

/* Calls fn for each word in order, until one fails; words are not empty and live until fn returns.
 * `first` says that the text is the start of what is encoded, which some stages treat apart. */
SH_MUST_CHECK sh_status sh_pretokenizer_run(const sh_pretokenizer *pre, sh_str text, bool first,
                                            sh_pretokenizer_scratch *scratch, sh_word_fn fn,
                                            void *arg, sh_err *err);

#endif
