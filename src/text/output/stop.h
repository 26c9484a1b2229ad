/* stop.h - finds stop strings in a stream of text.
 *
 * Text is pushed as it arrives and released as soon as no stop string can start in it, so that not
 * one byte of a stop string gets out, however the text was split. An Aho-Corasick automaton matches
 * all strings at once in time linear in the text.
 *
 * The string that ends first in the text matches; if several end at the same byte, the longest one
 * does. Text before the match is released; the match and everything after it are dropped.
 *
 * Threads: a matcher has one owner. */
#ifndef SH_TEXT_OUTPUT_STOP_H
#define SH_TEXT_OUTPUT_STOP_H

#include "base/buf.h"
#include "base/status.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

enum { SH_STOP_COUNT_MAX = 32, SH_STOP_LEN_MAX = 512 };

typedef struct sh_stop sh_stop;

/* Copies the strings. Fails on an empty string, one that is too long, or too many; with no strings
 * at all, all text passes. */
SH_MUST_CHECK sh_status sh_stop_create(const sh_str *strings, size_t count, sh_stop **out,
                                       sh_err *err);
void sh_stop_free(sh_stop *stop);

/* Appends to *out the text that is now safe to release. Returns true from the match on; text pushed
 * after it is ignored. */
bool sh_stop_push(sh_stop *stop, sh_str text, sh_buf *out);

/* Ends the text: appends what was held back, which is nothing after a match. */
void sh_stop_finish(sh_stop *stop, sh_buf *out);

/* Index of the string that matched, or -1. */
int sh_stop_matched(const sh_stop *stop);

/* Prepares for another text with the same strings. */
void sh_stop_reset(sh_stop *stop);

#endif
