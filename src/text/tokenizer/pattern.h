/* pattern.h - what Replace and Split search for: a string, a regular expression, or a class of
 * characters.
 *
 * Threads: immutable after reading; a walk belongs to its thread. */
#ifndef SH_TEXT_TOKENIZER_PATTERN_H
#define SH_TEXT_TOKENIZER_PATTERN_H

#include "base/json.h"
#include "text/tokenizer/regex.h"

typedef struct {
    sh_regex *regex;
    bool (*is_char)(uint32_t code); /* if regex is NULL: a single character of this class */
    char *literal;                  /* if both are NULL: this text */
    size_t literal_len;
} sh_pattern;

/* {"String": "..."} or {"Regex": "..."} under the key "pattern". *out must be zero. */
SH_MUST_CHECK sh_status sh_pattern_read(const cJSON *json, const char *where, sh_pattern *out,
                                        sh_err *err);
void sh_pattern_reset(sh_pattern *pattern);

/* Iterates over the non-overlapping matches in a text. Set the first three members and zero the
 * rest. An empty match right after the previous match does not count. */
typedef struct {
    const sh_pattern *pattern;
    sh_str text;
    sh_regex_scratch *scratch;
    size_t at;
    size_t done; /* end of the last match */
    bool any;
    sh_regex_hit hit;
} sh_pattern_walk;

/* Sets hit; hit.found is false at the end. Fails only if sh_regex_find() does. */
SH_MUST_CHECK sh_status sh_pattern_next(sh_pattern_walk *walk, sh_err *err);

/* Appends the text with every match replaced. Also fails if the result is excessively long. */
SH_MUST_CHECK sh_status sh_pattern_replace(const sh_pattern *pattern, sh_str text, sh_str with,
                                           sh_regex_scratch *scratch, sh_buf *out, sh_err *err);

#endif
