/* json_writer.h - writes JSON directly into a buffer.
 *
 * All replies are written with it: there is no tree, and commas are set automatically. Text is
 * escaped, and bytes that are not UTF-8 become U+FFFD, so the output is always valid JSON. Keys are
 * NULL inside arrays.
 *
 * Threads: a writer has one owner. */
#ifndef SH_API_JSON_WRITER_H
#define SH_API_JSON_WRITER_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    sh_buf *out;
    bool comma; /* the next item on this level needs a comma */
} sh_json_writer;

sh_json_writer sh_json_writer_on(sh_buf *out);

void sh_write_begin(sh_json_writer *w, const char *key, char bracket); /* '{' or '[' */
void sh_write_end(sh_json_writer *w, char bracket);                    /* '}' or ']' */

void sh_write_str(sh_json_writer *w, const char *key, sh_str text);
void sh_write_text(sh_json_writer *w, const char *key, const char *text); /* NULL: null */
void sh_write_int(sh_json_writer *w, const char *key, int64_t value);
void sh_write_num(sh_json_writer *w, const char *key, double value); /* not finite: null */
void sh_write_fixed(sh_json_writer *w, const char *key, double value, int decimals);
void sh_write_bool(sh_json_writer *w, const char *key, bool value);
void sh_write_null(sh_json_writer *w, const char *key);
void sh_write_raw(sh_json_writer *w, const char *key, sh_str json); /* a complete JSON value */

/* "text" with the quotes. */
void sh_write_quoted(sh_buf *out, sh_str text);

#endif
