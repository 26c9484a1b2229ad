/* pattern.h - what Replace and Split look for: a string, a regular expression, or characters of
 * one kind.
 *
 * Threads: immutable after reading; a walk belongs to its thread. */
#ifndef SH_TEXT_TOKENIZER_PATTERN_H
#define SH_TEXT_TOKENIZER_PATTERN_H

#include "base/json.h"
#include "text/tokenizer/regex.h"

typedef struct {
    sh_regex *regex;
    bool (*is_char)(uint32_t code); /* a single character of this kind, when regex is NULL */
    char *literal;                  /* else this text */
    size_t literal_len;
} sh_pattern;

/* {"String": "..."} or {"Regex": "..."} under the key "pattern". *out must be zero. */
SH_MUST_CHECK sh_status sh_pattern_read(const cJSON *json, const char *where, sh_pattern *out,
                                        sh_err *err);
void sh_pattern_reset(sh_pattern *pattern);

/* A walk over the matches in a text, which do not overlap. Set the first three, the rest is zero.
 * An empty match right behind the last match does not count. */
typedef struct {
    const sh_pattern *pattern;
    sh_str text;
    sh_regex_scratch *scratch;
    size_t at;
    size_t done; /* behind the last match */
    bool any;
    sh_regex_hit hit;
} sh_pattern_walk;

/* Sets hit; hit.found is false at the end. Fails only where sh_regex_find fails. */
SH_MUST_CHECK sh_status sh_pattern_next(sh_pattern_walk *walk, sh_err *err);

/* Appends the text with every match replaced. Fails too when that makes it absurdly long. */
SH_MUST_CHECK sh_status sh_pattern_replace(const sh_pattern *pattern, sh_str text, sh_str with,
                                           sh_regex_scratch *scratch, sh_buf *out, sh_err *err);

#endif
