/* pretokenizer.h - splits a text into the words that BPE works on.
 *
 * It is a list of stages. Text passes through them depth first: a stage hands each piece to the
 * next one at once, and what leaves the last stage is a word, so there is never a list of pieces.
 *
 * Threads: immutable after reading; each thread brings its own scratch. */
#ifndef SH_TEXT_TOKENIZER_PRETOKENIZER_H
#define SH_TEXT_TOKENIZER_PRETOKENIZER_H

#include "base/json.h"
#include "text/tokenizer/regex.h"

typedef struct sh_pretokenizer sh_pretokenizer;

/* Reads the value of "pre_tokenizer"; NULL and null give one that does not split. */
SH_MUST_CHECK sh_status sh_pretokenizer_create(const cJSON *json, const char *where,
                                               sh_pretokenizer **out, sh_err *err);

/* For byte-level vocabularies: split by a pattern, then write bytes in the byte-level alphabet. */
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

/* Calls fn for each word in order until it fails; words are not empty and valid until fn returns.
 * `first`: the text is the start of what is encoded, which some stages treat differently. */
SH_MUST_CHECK sh_status sh_pretokenizer_run(const sh_pretokenizer *pre, sh_str text, bool first,
                                            sh_pretokenizer_scratch *scratch, sh_word_fn fn,
                                            void *arg, sh_err *err);

#endif
