/* stop.h - stop strings in a stream of text.
 *
 * Text is pushed in as it comes and released as soon as no stop string can begin in it; so the
 * bytes of a stop string never leave, not even the first of them, however the text is cut. All
 * strings are matched at once by an Aho-Corasick automaton: work is linear in the text.
 *
 * The string that ends first in the text is the one that matches; when several end at the same
 * byte, the longest. Text in front of it is released, it and all behind it is dropped.
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

/* Strings are copied. An empty string, one too long or one too many is refused; none at all is fine
 * and lets everything pass. */
SH_MUST_CHECK sh_status sh_stop_create(const sh_str *strings, size_t count, sh_stop **out,
                                       sh_err *err);
void sh_stop_free(sh_stop *stop);

/* Appends to *out what is safe now. True from the match on, when pushed text is ignored. */
bool sh_stop_push(sh_stop *stop, sh_str text, sh_buf *out);

/* The text has ended: appends what was held back, which is nothing after a match. */
void sh_stop_finish(sh_stop *stop, sh_buf *out);

/* Index of the string that matched, or -1. */
int sh_stop_matched(const sh_stop *stop);

/* Ready for another text with the same strings. */
void sh_stop_reset(sh_stop *stop);

#endif
