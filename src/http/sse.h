/* sse.h - server-sent events as bytes.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_SSE_H
#define SH_HTTP_SSE_H

#include "base/buf.h"

#include <stdbool.h>

#define SH_SSE_TYPE "text/event-stream; charset=utf-8"

/* One event; `name` may be NULL. Line ends inside the data start a new data line, as the format
 * asks for, so no data can end the event or forge another. */
void sh_sse_event(sh_buf *out, const char *name, sh_str data);

/* The other way: takes the first whole event off the front of `in` and puts its data into `data`.
 * False when none is whole yet. Names and comments are skipped; lines end with LF or CR LF. */
bool sh_sse_take(sh_buf *in, sh_buf *data);

/* A line that clients skip: keeps proxies from closing a quiet stream. */
void sh_sse_comment(sh_buf *out, const char *text);

#endif
