/* request.h - one request and its reply, as a handler sees them.
 *
 * The server calls a handler when the request is complete. The handler answers now or later, from
 * the loop, in one of two ways: sh_http_reply, or sh_http_stream_start, _write ..., _end. The
 * reply, or the end of the stream, returns the request to the server, and it must not be used any
 * more. A handler that answers later calls sh_http_watch_client: if the client leaves first, `gone`
 * is called, and the request is returned too.
 *
 * Everything obtained from a request is borrowed until it is returned. Memory for the answer may
 * come from sh_http_arena, which lives as long.
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

sh_str sh_http_path(const sh_http_request *req); /* without query and trailing slash */

/* All are empty if absent. The parameter is what {name} in the route's path matched, decoded. */
sh_str sh_http_header_of(const sh_http_request *req, const char *lower_name);
sh_str sh_http_param(sh_http_request *req);
sh_str sh_http_query(sh_http_request *req, const char *name); /* decoded */
sh_str sh_http_body(sh_http_request *req);                    /* contiguous and zero-terminated */

/* Frees the body before the answer is complete, once it is no longer needed. */
void sh_http_body_done(sh_http_request *req);

const char *sh_http_id(const sh_http_request *req); /* in the log and in X-Request-Id */

/* Gives the request an id that its client chose in its own way; nothing if it cannot be one. */
void sh_http_set_id(sh_http_request *req, sh_str id);
sh_str sh_http_peer(const sh_http_request *req); /* the client's address */

/* Identifies the client, for fair sharing: by its key, or by its address if no key is required. */
uint64_t sh_http_client_of(const sh_http_request *req);

/* The name of the key that it presented; "" if that has none. */
const char *sh_http_key_name(const sh_http_request *req);

/* Whether it presented a valid key, or none is required. False only on open routes. */
bool sh_http_is_trusted(const sh_http_request *req);
int64_t sh_http_start_ns(const sh_http_request *req);
sh_arena *sh_http_arena(sh_http_request *req);

/* Adds a header to the reply; call it before the reply starts. Value: one line of visible ASCII. */
void sh_http_add_header(sh_http_request *req, const char *name, const char *value);

void sh_http_reply(sh_http_request *req, int status, const char *content_type, sh_str body);

void sh_http_stream_start(sh_http_request *req, int status, const char *content_type);
void sh_http_stream_write(sh_http_request *req, sh_str data);
void sh_http_stream_end(sh_http_request *req);

/* True while so much is unsent that the writer should pause; `drained` is called when to resume. */
bool sh_http_stream_blocked(const sh_http_request *req);

/* Closes the connection and returns the request, without calling `gone`. */
void sh_http_abort(sh_http_request *req);

/* gone: the client left or the server closed the connection. drained: see above; may be NULL. */
typedef void (*sh_http_client_fn)(void *arg);
void sh_http_watch_client(sh_http_request *req, sh_http_client_fn gone, sh_http_client_fn drained,
                          void *arg);

#endif
