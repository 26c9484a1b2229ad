/* router.h - finds the route of a request.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_ROUTER_H
#define SH_HTTP_ROUTER_H

#include "http/server.h"

typedef struct {
    const sh_http_route *route; /* NULL if there is none */
    bool path_known;            /* the path exists, perhaps for other methods */
    sh_str param;               /* what {name} matched, not decoded */
} sh_http_match;

sh_http_match sh_http_route_find(const sh_http_route *routes, size_t count, sh_http_method method,
                                 sh_str path);

/* "GET, HEAD, OPTIONS": the methods of a path, for the Allow header. */
void sh_http_route_methods(const sh_http_route *routes, size_t count, sh_str path, sh_buf *out);

#endif
