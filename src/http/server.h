/* server.h - an HTTP/1.1 server: routes, keys, limits, and whom it tells.
 *
 * Requests are checked as soon as their head is there (host, origin, path, method, key, size) and
 * refused at once, with the connection, so that a refusal costs neither memory nor time; handlers
 * are called when the body is whole. Every wait has a limit: for an idle connection, for a request
 * to arrive, for a client to take its answer. When there is no room for another connection, one
 * that was refused gives way first, then one that waits and has not shown a key.
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
    const char *path;      /* "/a/b", or "/a/{name}" where {name} takes all that follows */
    bool open;             /* no key is asked for */
    sh_http_handler handle;
    const void *data; /* the table's owner's */
};

/* What is known of a request that is over. */
typedef struct {
    const char *id;
    sh_str peer;
    sh_str method;
    sh_str path;                /* as sent */
    const sh_http_route *route; /* NULL when none was found */
    int status;                 /* 499 when the client left before the answer was whole */
    bool refused;               /* by the server itself: no handler has seen it */
    size_t bytes_in;
    size_t bytes_out;
    double seconds; /* from the first byte of the request to the last of the answer queued */
} sh_http_record;

typedef struct {
    const char *host;
    int port; /* 0: any that is free */
    int connections_max;
    int peer_connections_max; /* of one address; 0: a quarter of all, and any number from loopback
                               */
    size_t header_bytes_max;
    size_t body_bytes_max;
    size_t bodies_bytes_max;   /* of all requests together */
    size_t stream_bytes_max;   /* unsent bytes that block a stream */
    int64_t idle_ms;           /* between requests of a connection */
    int64_t receive_ms;        /* for one request, from its first byte, and for a TLS handshake */
    int64_t send_ms;           /* without any byte of an answer taken by the client */
    const char *cors;          /* origins by commas, "*" for any; NULL or "": none */
    bool check_host;           /* without keys, refuse hosts that origin.h does not take for ours */
    const char *allowed_hosts; /* names by commas that are ours too; or NULL */

    const sh_http_keys *keys; /* NULL or empty: no key is asked for. Borrowed, as all here */
    sh_http_tls *tls;         /* NULL: plain */
    const sh_http_route *routes;
    size_t route_count;

    void *arg; /* of handlers and callbacks */
    /* Writes the body of a refusal: JSON. */
    void (*error_body)(void *arg, int status, const char *message, sh_buf *out);
    void (*done)(void *arg, const sh_http_record *record);
} sh_http_server_opts;

typedef struct sh_http_server sh_http_server;

/* Listens on every address of the host's name. */
SH_MUST_CHECK sh_status sh_http_server_open(sh_loop *loop, const sh_http_server_opts *opts,
                                            sh_http_server **out, sh_err *err);

int sh_http_server_port(const sh_http_server *server);
int sh_http_server_connections(const sh_http_server *server);
void sh_http_server_set_keys(sh_http_server *server, const sh_http_keys *keys);

/* No new connections; what runs goes on, and connections close behind their answers. */
void sh_http_server_drain(sh_http_server *server);

/* Breaks off what still runs. */
void sh_http_server_close(sh_http_server *server);

/* True when only this machine can reach an address of the host's name. */
bool sh_http_is_loopback(const char *host);

#endif
