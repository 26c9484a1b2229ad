/* session.h - one HTTP/2 connection and its calls; private to this layer.
 *
 * A session owns its calls, a call its request. A call lives as long as its stream: until the
 * answer has been sent or the client has reset it. Closing a session does not free it at once,
 * since a caller up the stack may still use it: the server does so from the loop.
 *
 * Threads: the loop's. */
#ifndef SH_GRPC_SESSION_H
#define SH_GRPC_SESSION_H

#include "grpc/calm.h"
#include "grpc/frame.h"
#include "grpc/server.h"
#include "http/carrier.h"

#include <event2/bufferevent.h>
#include <nghttp2/nghttp2.h>

typedef struct sh_grpc_session sh_grpc_session;
typedef struct sh_grpc_call sh_grpc_call;

typedef enum {
    CALL_HEAD,   /* its headers are arriving */
    CALL_BODY,   /* its message is arriving */
    CALL_HELD,   /* it had a wrong token: delaying the answer */
    CALL_BUSY,   /* the handler has the request */
    CALL_STREAM, /* and has begun to answer */
    CALL_ENDED,  /* answered; the rest of the answer is being sent */
} sh_grpc_call_state;

struct sh_grpc_call {
    sh_http_request req; /* first: a request of this carrier is a call */
    sh_grpc_session *session;
    sh_grpc_call *prev, *next;
    int32_t stream;
    sh_grpc_call_state state;
    size_t head_bytes;
    bool is_post, is_grpc;
    size_t message_len;   /* known once the prefix is here */
    sh_deadline deadline; /* of the client */
    sh_deadline due;      /* for the message to arrive; of a held call: for its answer */
    struct evbuffer *out; /* frames that have not been sent */
    bool head_sent;       /* or queued */
    bool blocked;         /* the handler waits until there is less in `out` */
    int64_t moved_ns;     /* when `out` became non-empty, or was last read from */
    sh_grpc_code code;    /* of its end */
    sh_buf message;
};

struct sh_grpc_session {
    sh_grpc_server *server;
    sh_grpc_session *prev, *next; /* in the server's list of open or of retired sessions */
    struct bufferevent *bev;
    nghttp2_session *h2;
    sh_grpc_call *calls;
    int call_count;
    sh_calm calm;
    bool dead;
    bool started; /* the client has sent its settings */
    sh_trigger *output_due;
    bool leaving;    /* GOAWAY was sent; close when all is sent */
    int64_t idle_ns; /* since when it has no call */
    char peer[SH_HTTP_PEER_MAX];
    uint64_t peer_id;
};

/* Takes ownership of the bufferevent. */
sh_grpc_session *sh_grpc_session_create(sh_grpc_server *server, sh_loop *loop,
                                        struct bufferevent *bev, const char *peer,
                                        uint64_t peer_id);
void sh_grpc_session_close(sh_grpc_session *session);
void sh_grpc_session_free(sh_grpc_session *session); /* called by the server on retired ones */

/* Sends what is queued, as far as the client reads it. It may end calls and the session, so it is
 * called from the top of the loop only; all others say that there is output. */
void sh_grpc_session_pump(sh_grpc_session *session);
void sh_grpc_session_output_due(sh_grpc_session *session);

/* No more calls; closes when those that run are answered. */
void sh_grpc_session_leave(sh_grpc_session *session, uint32_t h2_error);

/* Called for each session several times a second. */
void sh_grpc_session_check_time(sh_grpc_session *session);

/* ---- call.c ---- */

sh_grpc_call *sh_grpc_call_create(sh_grpc_session *session, int32_t stream);
void sh_grpc_call_header(sh_grpc_call *call, sh_str name, sh_str value);
void sh_grpc_call_head_end(sh_grpc_call *call);
void sh_grpc_call_data(sh_grpc_call *call, const uint8_t *data, size_t len);
void sh_grpc_call_data_end(sh_grpc_call *call);
void sh_grpc_call_check_time(sh_grpc_call *call, int64_t now_ns);

/* The stream is gone; notifies the handler if it has the request, and frees the call. */
void sh_grpc_call_free(sh_grpc_call *call);

/* Tells the handler that it may go on writing, if it waits for that. */
void sh_grpc_call_drained(sh_grpc_call *call);

/* ---- what they need from the server ---- */

const sh_grpc_server_opts *sh_grpc_server_opts_of(const sh_grpc_server *server);
bool sh_grpc_server_draining(const sh_grpc_server *server);

/* Serves a connection that was accepted; the socket is the server's from now on. */
void sh_grpc_server_take(sh_grpc_server *server, int fd, const char *peer, uint64_t peer_id);
void sh_grpc_server_retire(sh_grpc_server *server, sh_grpc_session *session);
void sh_grpc_server_new_id(sh_grpc_server *server, char out[SH_HTTP_ID_MAX + 1]);
int64_t sh_grpc_server_token_failed(sh_grpc_server *server, const sh_grpc_session *session);

/* Counts a call; false if there are too many. */
bool sh_grpc_server_call_take(sh_grpc_server *server);
void sh_grpc_server_call_release(sh_grpc_server *server);
bool sh_grpc_server_body_take(sh_grpc_server *server, size_t more);
void sh_grpc_server_body_release(sh_grpc_server *server, size_t bytes);

#endif
