/* conn.h - one HTTP connection: reading requests from it and writing replies to it.
 *
 * Private to this layer. A connection handles one request at a time; pipelined requests wait in its
 * input, which is bounded, until the previous one is answered. A request is part of its connection.
 * Closing a connection does not free it at once, since a caller up the stack may still use it: it
 * moves to the server's list of retired connections, which the loop frees.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_CONN_H
#define SH_HTTP_CONN_H

#include "base/clock.h"
#include "http/carrier.h"
#include "http/server.h"

#include <event2/bufferevent.h>

typedef enum {
    CONN_HEAD,   /* waiting for a request head, or for the rest of it */
    CONN_HELD,   /* the head had a wrong key: delaying the answer */
    CONN_BODY,   /* the head is complete, receiving the body */
    CONN_BUSY,   /* the handler has the request */
    CONN_STREAM, /* a reply of unknown length has started */
    CONN_FLUSH,  /* the last reply is queued: close when it has been sent */
    CONN_LINGER, /* everything is sent: wait for the client to close, so that it reads it all */
    CONN_DEAD,
} sh_http_conn_state;

struct sh_http_conn {
    sh_http_server *server;
    sh_http_conn *prev, *next; /* in the server's list of open or of retired connections */
    struct bufferevent *bev;
    sh_http_conn_state state;
    sh_deadline deadline;
    sh_deadline linger_end;
    int64_t since_ns; /* when it was accepted or its last answer was complete */
    bool advancing;
    bool blocked;     /* the stream is over its limit of unsent bytes */
    bool input_ended; /* the client has closed its side, or all of it */
    bool refused;     /* its last request was refused */
    bool proven;      /* it has presented a valid key */
    char peer[SH_HTTP_PEER_MAX];
    uint64_t peer_id; /* see peers.h */
    sh_http_request req;
};

/* Takes ownership of the bufferevent. */
sh_http_conn *sh_http_conn_create(sh_http_server *server, struct bufferevent *bev, const char *peer,
                                  uint64_t peer_id);

/* Processes the input; called when bytes arrive and when a reply has been queued. */
void sh_http_conn_advance(sh_http_conn *conn);

/* The reply of the current request is completely queued: record it, then continue or close. */
void sh_http_conn_exchange_over(sh_http_conn *conn);

/* Notifies the handler, if it has the request, that the client is gone, and retires the connection.
 */
void sh_http_conn_close(sh_http_conn *conn);
void sh_http_conn_free(sh_http_conn *conn); /* called by the server on retired connections */

/* Called for each connection several times a second. */
void sh_http_conn_check_time(sh_http_conn *conn);

/* When the server is full, the connection with the lowest worth is closed, and of equals the one
 * that has waited longest; never one below 0. */
int sh_http_conn_worth(const sh_http_conn *conn);
int64_t sh_http_conn_since_ns(const sh_http_conn *conn);

/* What connections need from the server. */
const sh_http_server_opts *sh_http_server_opts_of(const sh_http_server *server);
bool sh_http_server_draining(const sh_http_server *server);
void sh_http_server_retire(sh_http_server *server, sh_http_conn *conn);
void sh_http_server_new_id(sh_http_server *server, char out[SH_HTTP_ID_MAX + 1]);
const char *sh_http_server_machine(const sh_http_server *server); /* its host name */
int64_t sh_http_server_key_failed(sh_http_server *server, const sh_http_conn *conn);

/* Reserves `more` bytes of the limit for all bodies together; false if that would exceed it. */
bool sh_http_server_body_take(sh_http_server *server, size_t more);
void sh_http_server_body_release(sh_http_server *server, size_t bytes);

/* Replies by the server itself: refusals and OPTIONS. In request.c. */
void sh_http_reply_refusal(sh_http_request *req);
void sh_http_reply_options(sh_http_request *req);

#endif
