/* server.h - a gRPC server: HTTP/2 in clear text, whose calls are requests like any other.
 *
 * A call becomes an sh_http_request whose body is the message (without its prefix), and is passed
 * to the handler of its path. The handler answers in frames (frame.h). What HTTP/1 does for a
 * request is done here for a call: its key is checked, its size and its time are limited, and a
 * client that leaves or cancels is reported by `gone`. A call has a deadline of its own
 * (grpc-timeout), after which it is answered DEADLINE_EXCEEDED whatever its handler does.
 *
 * Threads: the loop's. */
#ifndef SH_GRPC_SERVER_H
#define SH_GRPC_SERVER_H

#include "http/server.h"

typedef struct {
    const char *inherited; /* numbers of the sockets to listen on (http/listeners.h) */
    int connections_max;
    int calls_max;           /* open on one connection at the same time */
    int all_calls_max;       /* open on all connections together */
    size_t header_bytes_max; /* of one call */
    size_t bodies_bytes_max; /* of all calls together */
    size_t stream_bytes_max; /* unsent bytes that block a stream */
    int64_t idle_ms;         /* of a connection without a call */
    int64_t receive_ms;      /* for the message of a call, and for the start of a connection */
    int64_t send_ms;         /* without the client reading any byte of an answer */

    const sh_http_keys *keys; /* NULL or empty: no token is required. Borrowed, like all others */
    const sh_http_route *routes;
    size_t route_count;

    void *arg; /* for handlers and the callback */
    void (*done)(void *arg, const sh_http_record *record);
} sh_grpc_server_opts;

typedef struct sh_grpc_server sh_grpc_server;

SH_MUST_CHECK sh_status sh_grpc_server_open(sh_loop *loop, const sh_grpc_server_opts *opts,
                                            sh_grpc_server **out, sh_err *err);

int sh_grpc_server_port(const sh_grpc_server *server);
int sh_grpc_server_connections(const sh_grpc_server *server);

void sh_grpc_server_set_keys(sh_grpc_server *server, const sh_http_keys *keys);

/* Tells all clients to take further calls elsewhere (GOAWAY); those that run go on. */
void sh_grpc_server_drain(sh_grpc_server *server);

/* Aborts what is still running. */
void sh_grpc_server_close(sh_grpc_server *server);

#endif
