/* server.h - an HTTP/1.1 server: routes, keys, limits, and callbacks.
 *
 * Requests are checked as soon as their head is complete (host, origin, path, method, key, size)
 * and refused at once, closing the connection, so that a refusal costs neither memory nor time;
 * handlers are called when the body is complete. Every wait has a limit: for an idle connection,
 * for a request to arrive, for a client to read its answer. When the server is full, a connection
 * that was refused is closed first, then an idle one that has not presented a key.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_SERVER_H
#define SH_HTTP_SERVER_H

#include "base/status.h"
#include "http/keys.h"
#include "http/loop.h"
#include "http/request.h"
#include "http/server_tls.h"

typedef void (*sh_http_handler)(sh_http_request *req, void *arg);

struct sh_http_route {
    sh_http_method method; /* GET serves HEAD too; OPTIONS is answered by the server */
    const char *path;      /* "/a/b", or "/a/{name}/c" where {name} matches all in between, slashes
                              included; "/a/{name}" the whole rest */
    bool open;             /* no key is required */
    sh_http_handler handle;
    const void *data; /* for the owner of the table */
};

/* What is known about a finished request. */
typedef struct {
    const char *id;
    sh_str peer;
    sh_str method;
    sh_str path;                /* as sent */
    const sh_http_route *route; /* NULL if none was found */
    int status;                 /* 499 if the client left before the answer was complete */
    bool refused;               /* by the server itself: no handler has seen it */
    size_t bytes_in;
    size_t bytes_out;
    double seconds; /* from the first byte of the request until the whole answer was queued */
} sh_http_record;

typedef struct {
    const char *host;
    int port;              /* 0: any free port */
    const char *inherited; /* numbers of sockets to listen on instead (listeners.h); or NULL */
    int connections_max;
    int peer_connections_max; /* per address; 0: a quarter of all, unlimited from loopback */
    size_t header_bytes_max;
    size_t body_bytes_max;
    size_t bodies_bytes_max;   /* of all requests together */
    size_t stream_bytes_max;   /* unsent bytes that block a stream */
    int64_t idle_ms;           /* between requests of a connection */
    int64_t receive_ms;        /* for one request, from its first byte, and for a TLS handshake */
    int64_t send_ms;           /* without the client reading any byte of an answer */
    const char *cors;          /* comma-separated origins, "*" for any; NULL or "": none */
    bool check_host;           /* without keys, refuse hosts that are not ours; see origin.h */
    const char *allowed_hosts; /* comma-separated names that are ours too; or NULL */

    const sh_http_keys *keys; /* NULL or empty: no key is required. Borrowed, like all others */
    sh_http_tls *tls;         /* NULL: plain */
    const sh_http_route *routes;
    size_t route_count;

    void *arg; /* for handlers and callbacks */
    /* Replies to a request that the server refuses, in the form that its clients expect. */
    void (*refused)(void *arg, sh_http_request *req, int status, const char *message);
    void (*done)(void *arg, const sh_http_record *record);
} sh_http_server_opts;

typedef struct sh_http_server sh_http_server;

/* Listens on every address that the host name resolves to. */
SH_MUST_CHECK sh_status sh_http_server_open(sh_loop *loop, const sh_http_server_opts *opts,
                                            sh_http_server **out, sh_err *err);

int sh_http_server_port(const sh_http_server *server);
int sh_http_server_connections(const sh_http_server *server);
void sh_http_server_set_keys(sh_http_server *server, const sh_http_keys *keys);

/* Stops accepting connections for a while, which then wait in the kernel's queue, or goes on. */
void sh_http_server_accept(sh_http_server *server, bool on);

/* Closes the listening sockets for good, for whoever else holds them too: clients are refused. */
void sh_http_server_refuse(sh_http_server *server);

/* Accepts no more connections; running requests continue, and connections close after their
 * answers.
 */
void sh_http_server_drain(sh_http_server *server);

/* Aborts what is still running. */
void sh_http_server_close(sh_http_server *server);

/* Whether all addresses that the host name resolves to can be reached from this machine only. */
bool sh_http_is_loopback(const char *host);

#endif
