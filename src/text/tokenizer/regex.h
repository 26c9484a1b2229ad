/* regex.h - regular expressions as tokenizer files write them, run by PCRE2.
 *
 * tokenizer.json has patterns in Oniguruma's spelling (the syntax of Ruby). sh_regex_translate
 * rewrites what PCRE2 spells or means otherwise: \s and \w, classes with && and classes inside
 * classes, {n}+ and the flag m. What cannot be rewritten is refused, not guessed.
 *
 * Threads: an sh_regex is immutable; each thread brings its own sh_regex_scratch. */
#ifndef SH_TEXT_TOKENIZER_REGEX_H
#define SH_TEXT_TOKENIZER_REGEX_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sh_regex sh_regex;

/* The error says what is wrong with the pattern and where in it. */
SH_MUST_CHECK sh_status sh_regex_create(sh_str pattern, sh_regex **out, sh_err *err);
void sh_regex_free(sh_regex *regex);

/* Zero is a valid scratch; sh_regex_scratch_reset frees what it gathered. */
typedef struct {
    void *match;
    void *limits;
} sh_regex_scratch;

void sh_regex_scratch_reset(sh_regex_scratch *scratch);

typedef struct {
    bool found;
    size_t first;
    size_t end;
} sh_regex_hit;

/* The leftmost match at or behind `from`. The text must be valid UTF-8. Fails only when the
 * pattern needs more steps or memory on this text than a bound allows. */
SH_MUST_CHECK sh_status sh_regex_find(const sh_regex *regex, sh_str text, size_t from,
                                      sh_regex_scratch *scratch, sh_regex_hit *out, sh_err *err);

/* The pattern in PCRE2's spelling, appended. */
SH_MUST_CHECK sh_status sh_regex_translate(sh_str pattern, sh_buf *out, sh_err *err);

#endif
