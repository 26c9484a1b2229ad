/* sse.h - encoding and decoding of server-sent events.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_SSE_H
#define SH_HTTP_SSE_H

#include "base/buf.h"

#include <stdbool.h>

#define SH_SSE_TYPE "text/event-stream; charset=utf-8"

/* Appends one event; `name` may be NULL. Line ends inside the data start a new data line, as the
 * format requires, so data cannot end the event or forge another one. */
void sh_sse_event(sh_buf *out, const char *name, sh_str data);

/* Decodes: removes the first complete event from the front of `in` and stores its data in `data`.
 * False if none is complete yet. Names and comments are skipped; lines end with LF or CR LF. */
bool sh_sse_take(sh_buf *in, sh_buf *data);

/* Appends a line that clients ignore: keeps proxies from closing a quiet stream. */
void sh_sse_comment(sh_buf *out, const char *text);

#endif
