/* sse.h - server-sent events as bytes.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_SSE_H
#define SH_HTTP_SSE_H

#include "base/buf.h"

#define SH_SSE_TYPE "text/event-stream; charset=utf-8"

/* One event; `name` may be NULL. Line ends inside the data start a new data line, as the format
 * asks for, so no data can end the event or forge another. */
void sh_sse_event(sh_buf *out, const char *name, sh_str data);

/* A line that clients skip: keeps proxies from closing a quiet stream. */
void sh_sse_comment(sh_buf *out, const char *text);

#endif
