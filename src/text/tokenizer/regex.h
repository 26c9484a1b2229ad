/* regex.h - the regular expressions of tokenizer files, run by PCRE2.
 *
 * tokenizer.json has patterns in Oniguruma's syntax (that of Ruby). sh_regex_translate() rewrites
 * what PCRE2 writes differently or gives another meaning: \s and \w, classes with && and nested
 * classes, {n}+ and the flag m. A pattern that cannot be rewritten is an error, never a guess.
 *
 * Threads: an sh_regex is immutable; each thread has its own sh_regex_scratch. */
#ifndef SH_TEXT_TOKENIZER_REGEX_H
#define SH_TEXT_TOKENIZER_REGEX_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sh_regex sh_regex;

/* The error says what is wrong with the pattern, and where. */
SH_MUST_CHECK sh_status sh_regex_create(sh_str pattern, sh_regex **out, sh_err *err);
void sh_regex_free(sh_regex *regex);

/* Zero is a valid scratch; sh_regex_scratch_reset() frees its memory. */
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

/* The leftmost match that starts at `from` or later. The text must be valid UTF-8. Fails only if
 * the pattern needs more steps or memory on this text than the limits allow. */
SH_MUST_CHECK sh_status sh_regex_find(const sh_regex *regex, sh_str text, size_t from,
                                      sh_regex_scratch *scratch, sh_regex_hit *out, sh_err *err);

/* Appends the pattern in PCRE2's syntax. */
SH_MUST_CHECK sh_status sh_regex_translate(sh_str pattern, sh_buf *out, sh_err *err);

#endif
