/* change.h - who may change the server itself: its hosts, its processes, its models.
 *
 * To use a model is one thing, to take it away from everybody another. Where there are keys, one
 * without a name may make changes, and one with a name if its entry says "admin". Without keys only
 * this machine may: not a client of a proxy on it, and not a web page that has made a browser on it
 * connect here, under whatever name. With and without keys, a web page must be the server's own,
 * and bodies must be JSON by their type, which a foreign page cannot send unless it is allowed to.
 *
 * Threads: pure functions. */
#ifndef SH_HTTP_CHANGE_H
#define SH_HTTP_CHANGE_H

#include "http/server.h"

/* What a request shows. Texts are empty if there is no such header. */
typedef struct {
    bool keyed; /* the server has keys, and the request one of them */
    bool admin; /* which may make changes */
    const char *peer;
    sh_str host, origin, content_type;
    bool has_body;
    bool forwarded;    /* by a proxy */
    bool host_is_ours; /* see origin.h */
} sh_http_change;

/* Status 0: it may. Else 403 or 415, with the reason. */
sh_http_refusal sh_http_change_check(const sh_http_change *change);

/* The same for a request that a handler has. */
sh_http_refusal sh_http_change_admit(const sh_http_request *req);

/* What it says about the key alone, for changes that clients of other servers ask for in their own
 * way: with any type of body, and from other machines. */
sh_http_refusal sh_http_change_admit_key(const sh_http_request *req);

/* Whether an address, as text, is of this machine: loopback, or "" for a Unix socket. */
bool sh_http_peer_is_local(const char *peer);

#endif
