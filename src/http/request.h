/* request.h - one request and its reply, as a handler sees them.
 *
 * The server calls a handler when the request is whole. The handler answers now or later, from the
 * loop, in one of two ways: sh_http_reply, or sh_http_stream_start, _write ..., _end. With the
 * reply, or the end of the stream, the request goes back to the server and must not be touched any
 * more. A handler that answers later calls sh_http_watch_client: when the client leaves first, it
 * is told, and the request is gone too.
 *
 * What a request holds is borrowed until the request goes back. Memory for the answer may come
 * from sh_http_arena, which lives as long.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_REQUEST_H
#define SH_HTTP_REQUEST_H

#include "base/arena.h"
#include "base/buf.h"
#include "http/head.h"

typedef struct sh_http_request sh_http_request;
typedef struct sh_http_route sh_http_route;

sh_http_method sh_http_method_of(const sh_http_request *req);
const sh_http_route *sh_http_route_of(const sh_http_request *req);

sh_str sh_http_path(const sh_http_request *req); /* without query and closing slash */

/* All empty when absent. The parameter is what {name} in the route's path stood for, decoded. */
sh_str sh_http_header_of(const sh_http_request *req, const char *lower_name);
sh_str sh_http_param(sh_http_request *req);
sh_str sh_http_query(sh_http_request *req, const char *name); /* decoded */
sh_str sh_http_body(sh_http_request *req); /* in one piece; a zero byte stands behind it */

/* The body is not needed any more; its memory need not wait for the end of the answer. */
void sh_http_body_done(sh_http_request *req);

const char *sh_http_id(const sh_http_request *req); /* in the log and in X-Request-Id */
sh_str sh_http_peer(const sh_http_request *req);    /* the client's address */

/* Who asks, for shares of the server: the key that was shown, or the address where none is needed.
 */
uint64_t sh_http_client_of(const sh_http_request *req);

/* It showed a good key, or none is needed. False only on open routes. */
bool sh_http_is_trusted(const sh_http_request *req);
int64_t sh_http_start_ns(const sh_http_request *req);
sh_arena *sh_http_arena(sh_http_request *req);

/* A header of the reply; call it before the reply starts. Value: one line, visible ASCII. */
void sh_http_add_header(sh_http_request *req, const char *name, const char *value);

void sh_http_reply(sh_http_request *req, int status, const char *content_type, sh_str body);

/* A reply whose body the server's error_body writes. */
void sh_http_reply_error(sh_http_request *req, int status, const char *message);

void sh_http_stream_start(sh_http_request *req, int status, const char *content_type);
void sh_http_stream_write(sh_http_request *req, sh_str data);
void sh_http_stream_end(sh_http_request *req);

/* True while so much is unsent that the writer should hold back; `drained` tells when to go on. */
bool sh_http_stream_blocked(const sh_http_request *req);

/* Breaks the connection off; the request is gone, without a call of `gone`. */
void sh_http_abort(sh_http_request *req);

/* gone: the client left or the server closed it. drained: see above; may be NULL. */
typedef void (*sh_http_client_fn)(void *arg);
void sh_http_watch_client(sh_http_request *req, sh_http_client_fn gone, sh_http_client_fn drained,
                          void *arg);

#endif
