/* carrier.h - what is behind a request: its memory, and how its reply travels.
 *
 * Handlers see request.h only. A request usually belongs to an HTTP/1 connection (conn.h), but
 * anything that can carry a reply may make one and pass it to a handler: it fills the struct, with
 * conn NULL, and implements the calls below, to which those of request.h lead. The rules are those
 * of request.h: a reply, the end of a stream and abort return the request to its carrier.
 *
 * Threads: the loop's. */
#ifndef SH_HTTP_CARRIER_H
#define SH_HTTP_CARRIER_H

#include "http/chunked.h"
#include "http/keys.h"
#include "http/request.h"

enum { SH_HTTP_ID_MAX = 64, SH_HTTP_PEER_MAX = 64 };

typedef struct {
    void (*reply)(sh_http_request *req, int status, const char *content_type, sh_str body);
    void (*stream_start)(sh_http_request *req, int status, const char *content_type);
    void (*stream_write)(sh_http_request *req, sh_str data);
    void (*stream_end)(sh_http_request *req);
    bool (*stream_blocked)(const sh_http_request *req);
    void (*abort)(sh_http_request *req);
    void (*body_release)(sh_http_request *req); /* body_held bytes were freed */
} sh_http_carrier;

typedef enum {
    SH_HTTP_KEY_MISSING,
    SH_HTTP_KEY_NOT_NEEDED,
    SH_HTTP_KEY_GOOD,
    SH_HTTP_KEY_WRONG,
    SH_HTTP_KEY_EXPIRED,
} sh_http_key;

typedef struct sh_http_conn sh_http_conn;

struct sh_http_request {
    const sh_http_carrier *carrier;
    sh_http_conn *conn; /* NULL: another carrier's */
    const char *peer;   /* its address; the carrier's memory */
    uint64_t peer_id;   /* see peers.h */
    sh_arena arena;
    sh_http_head head;
    const sh_http_route *route;
    sh_str param;
    sh_http_key key;
    char key_name[SH_KEY_NAME_MAX + 1]; /* of a good key that has one */
    bool key_admin;                     /* of a good key */
    sh_http_refusal refusal;
    sh_http_chunked chunked;
    struct evbuffer *body; /* NULL if there is none */
    sh_str body_text;      /* its bytes, contiguous; set by the first sh_http_body */
    size_t body_held;      /* bytes counted against the server's limit for all bodies */
    sh_buf headers;        /* of the reply, as lines */
    char id[SH_HTTP_ID_MAX + 1];
    int status;
    size_t scanned;   /* bytes of the input already searched for the end of the head */
    int64_t start_ns; /* when its first byte arrived; 0: none yet */
    size_t bytes_in;
    size_t bytes_out;
    bool raw; /* streamed without chunks, for HTTP/1.0 */
    sh_http_client_fn gone;
    sh_http_client_fn drained;
    void *client_arg;
};

extern const sh_http_carrier sh_http1; /* request.c */

/* Checks the key that the head presents, and keeps its name. In admit.c. */
sh_http_key sh_http_key_check(sh_http_request *req, const sh_http_keys *keys);

#endif
