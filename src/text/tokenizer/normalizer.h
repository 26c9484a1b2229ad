/* normalizer.h - changes a text before it is split into words: normal forms, lower case,
 * replacements.
 *
 * Threads: immutable after reading; each thread brings its own scratch. */
#ifndef SH_TEXT_TOKENIZER_NORMALIZER_H
#define SH_TEXT_TOKENIZER_NORMALIZER_H

#include "base/json.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

typedef struct sh_normalizer sh_normalizer;

/* Reads the value of "normalizer"; NULL and null give one that changes nothing. */
SH_MUST_CHECK sh_status sh_normalizer_create(const cJSON *json, const char *where,
                                             sh_normalizer **out, sh_err *err);

/* A normalizer for just a Unicode normal form. */
sh_normalizer *sh_normalizer_create_form(sh_unicode_form form);
void sh_normalizer_free(sh_normalizer *normalizer);

/* Zero is a valid scratch. */
typedef struct {
    sh_regex_scratch regex;
    sh_buf texts[2];
} sh_normalizer_scratch;

void sh_normalizer_scratch_reset(sh_normalizer_scratch *scratch);

/* *out is the text itself, or points into the scratch and is valid until the next call. */
SH_MUST_CHECK sh_status sh_normalizer_apply(const sh_normalizer *normalizer, sh_str text,
                                            sh_normalizer_scratch *scratch, sh_str *out,
                                            sh_err *err);

#endif
