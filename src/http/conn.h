/* conn.h - one connection: its bytes become requests, and replies become its bytes.
 *
 * For this layer alone. A connection handles one request at a time; requests that a client sends
 * ahead wait in its input, which is bounded, until the one before is answered. A request is part
 * of its connection. Closing a connection never frees it at once, since some caller up the stack
 * may hold it: it goes to the server's graveyard, which the loop clears.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_CONN_H
#define SH_HTTP_CONN_H

#include "base/clock.h"
#include "http/chunked.h"
#include "http/server.h"

#include <event2/bufferevent.h>

enum { SH_HTTP_ID_MAX = 64, SH_HTTP_PEER_MAX = 64 };

typedef enum {
    CONN_HEAD,   /* a head is awaited or has come in part */
    CONN_HELD,   /* the head has a wrong key, which costs time */
    CONN_BODY,   /* the head is there, the body comes */
    CONN_BUSY,   /* the handler has the request */
    CONN_STREAM, /* a reply of unknown length has begun */
    CONN_FLUSH,  /* the last reply is queued: close when it is sent */
    CONN_LINGER, /* all is sent: wait for the client to close, so that it reads all */
    CONN_DEAD,
} sh_http_conn_state;

typedef struct sh_http_conn sh_http_conn;

typedef enum {
    SH_HTTP_KEY_MISSING,
    SH_HTTP_KEY_NOT_NEEDED,
    SH_HTTP_KEY_GOOD,
    SH_HTTP_KEY_WRONG,
} sh_http_key;

struct sh_http_request {
    sh_http_conn *conn;
    sh_arena arena;
    sh_http_head head;
    const sh_http_route *route;
    sh_str param;
    sh_http_key key;
    sh_http_refusal refusal;
    sh_http_chunked chunked;
    struct evbuffer *body; /* NULL when there is none */
    sh_str body_text;      /* its bytes in one piece, once they were asked for */
    size_t body_held;      /* of the server's room for all bodies */
    sh_buf headers;        /* of the reply, as lines */
    char id[SH_HTTP_ID_MAX + 1];
    int status;
    size_t scanned;   /* bytes of the input in which no head ends */
    int64_t start_ns; /* first byte; 0: none came yet */
    size_t bytes_in;
    size_t bytes_out;
    bool raw; /* stream without chunks: HTTP/1.0 */
    sh_http_client_fn gone;
    sh_http_client_fn drained;
    void *client_arg;
};

struct sh_http_conn {
    sh_http_server *server;
    sh_http_conn *prev, *next; /* in the server's list, or in the graveyard */
    struct bufferevent *bev;
    sh_http_conn_state state;
    sh_deadline deadline;
    sh_deadline linger_end;
    int64_t since_ns; /* when it came, or its last answer was done */
    bool advancing;
    bool blocked;     /* the stream was told to hold back */
    bool input_ended; /* the client has closed its side, or all of it */
    bool refused;     /* what it asked last was */
    bool proven;      /* it has shown a good key */
    char peer[SH_HTTP_PEER_MAX];
    uint64_t peer_id; /* see peers.h */
    sh_http_request req;
};

/* Takes the bufferevent over. */
sh_http_conn *sh_http_conn_create(sh_http_server *server, struct bufferevent *bev, const char *peer,
                                  uint64_t peer_id);

/* Handles whatever the input holds; called when bytes come and when a reply is queued. */
void sh_http_conn_advance(sh_http_conn *conn);

/* The reply of the current request is queued whole: tell the record, go on or close. */
void sh_http_conn_exchange_over(sh_http_conn *conn);

/* Tells the handler that the client is gone, if one waits, and buries the connection. */
void sh_http_conn_close(sh_http_conn *conn);
void sh_http_conn_free(sh_http_conn *conn); /* by the server, from the graveyard */

/* Called for each connection several times a second. */
void sh_http_conn_check_time(sh_http_conn *conn);

/* Who gives way when there is no room: the lowest, and of these who waits longest; below 0 never.
 */
int sh_http_conn_worth(const sh_http_conn *conn);
int64_t sh_http_conn_since_ns(const sh_http_conn *conn);

/* Parts of the server that connections need. */
const sh_http_server_opts *sh_http_server_opts_of(const sh_http_server *server);
bool sh_http_server_draining(const sh_http_server *server);
void sh_http_server_bury(sh_http_server *server, sh_http_conn *conn);
void sh_http_server_new_id(sh_http_server *server, char out[SH_HTTP_ID_MAX + 1]);
const char *sh_http_server_machine(const sh_http_server *server); /* its host name */
int64_t sh_http_server_key_failed(sh_http_server *server, const sh_http_conn *conn);

/* Room for `more` bytes of bodies; false when all bodies together would be too many. */
bool sh_http_server_body_take(sh_http_server *server, size_t more);
void sh_http_server_body_release(sh_http_server *server, size_t bytes);

/* Replies that the server gives itself: refusals, and OPTIONS. In request.c. */
void sh_http_reply_refusal(sh_http_request *req);
void sh_http_reply_options(sh_http_request *req);

#endif
