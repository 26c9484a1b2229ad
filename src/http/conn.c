/* The state machine of a connection, over a libevent bufferevent.
 *
 * Every state has a deadline or a callback that ends it, because the client decides when bytes
 * arrive and may never send any. What a client can make us hold is bounded: the input by a
 * watermark, a body by its own limit and by one over all bodies, pipelined replies by OUTPUT_AHEAD.
 *
 * A request is refused as soon as its head is known, and the connection is closed with it: a body
 * that nobody wants would have to be read otherwise, and after a malformed head we no longer know
 * where the next request starts.
 *
 * Two things about closing are easy to get wrong. Closing a socket with unread input makes the
 * kernel send a reset, which can discard the answer that the client has not read yet; hence
 * CONN_LINGER. And a client that half-closes is allowed to wait for its answer; see gone_probe for
 * how we find out whether it is still there. */
#include "http/conn.h"

#include "base/alloc.h"
#include "http/admit.h"

#include <event2/buffer.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    INPUT_EXTRA = 16 << 10,   /* input buffer beyond the largest head */
    OUTPUT_AHEAD = 256 << 10, /* with more unsent bytes, do not start another request */
    READ_AT_ONCE = 64 << 10,  /* so that large bodies need few turns of the loop */
    LINGER_MS = 2000,         /* without a byte from the client */
    FLUSH_BYTES_PER_MS = 16,  /* a client slower than this loses the rest of its answer */
};

static void on_read(struct bufferevent *bev, void *arg);
static void on_write(struct bufferevent *bev, void *arg);
static void on_event(struct bufferevent *bev, short what, void *arg);

static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";

static const sh_http_server_opts *opts_of(const sh_http_conn *conn)
{
    return sh_http_server_opts_of(conn->server);
}

static struct evbuffer *input_of(const sh_http_conn *conn)
{
    return bufferevent_get_input(conn->bev);
}

static size_t unsent(const sh_http_conn *conn)
{
    return evbuffer_get_length(bufferevent_get_output(conn->bev));
}

sh_http_conn *sh_http_conn_create(sh_http_server *server, struct bufferevent *bev, const char *peer,
                                  uint64_t peer_id)
{
    const sh_http_server_opts *opts = sh_http_server_opts_of(server);
    sh_http_conn *conn = sh_alloc(sizeof(*conn));
    conn->server = server;
    conn->bev = bev;
    conn->req.carrier = &sh_http1;
    conn->req.conn = conn;
    conn->req.peer = conn->peer;
    conn->req.peer_id = peer_id;
    conn->deadline = sh_deadline_in_ms(opts->receive_ms);
    conn->since_ns = sh_clock_ns();
    conn->peer_id = peer_id;
    snprintf(conn->peer, sizeof(conn->peer), "%s", peer);

    struct timeval send = {opts->send_ms / 1000, opts->send_ms % 1000 * 1000};
    bufferevent_setcb(bev, on_read, on_write, on_event, conn);
    bufferevent_setwatermark(bev, EV_READ, 0, opts->header_bytes_max + INPUT_EXTRA);
    bufferevent_setwatermark(bev, EV_WRITE, opts->stream_bytes_max / 4, 0);
    bufferevent_set_max_single_read(bev, READ_AT_ONCE);
    bufferevent_set_timeouts(bev, NULL, &send);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    return conn;
}

/* Field by field: the head alone is several kilobytes that need no clearing between requests. */
static void request_clear(sh_http_request *req)
{
    sh_http_body_done(req);
    req->key = SH_HTTP_KEY_MISSING;
    req->key_name[0] = '\0';
    req->key_admin = false;
    sh_arena_reset(&req->arena);
    sh_buf_clear(&req->headers);
    req->route = NULL;
    req->param = (sh_str){"", 0};
    req->refusal = (sh_http_refusal){0, NULL};
    req->chunked = (sh_http_chunked){0};
    req->head.header_count = 0;
    req->scanned = 0;
    req->status = 0;
    req->start_ns = 0;
    req->bytes_in = req->bytes_out = 0;
    req->raw = false;
    req->gone = req->drained = NULL;
    req->client_arg = NULL;
}

static void request_record(sh_http_request *req, int status)
{
    const sh_http_server_opts *opts = opts_of(req->conn);
    sh_http_record record = {
        .id = req->id,
        .peer = sh_str_of(req->conn->peer),
        .method = req->head.method_text,
        .path = req->head.path,
        .route = req->route,
        .status = status,
        .refused = req->refusal.status != 0,
        .bytes_in = req->bytes_in,
        .bytes_out = req->bytes_out,
        .seconds = (double)(sh_clock_ns() - req->start_ns) * 1e-9,
    };
    if (opts->done != NULL) opts->done(opts->arg, &record);
}

/* Safe to call twice and from any callback. The state is set first: `gone` may call back into the
 * server. 499 is nginx's status for a client that closed its request. */
void sh_http_conn_close(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    if (conn->state == CONN_DEAD) return;
    bool open = conn->state == CONN_BUSY || conn->state == CONN_STREAM;
    conn->state = CONN_DEAD;
    bufferevent_setcb(conn->bev, NULL, NULL, NULL, NULL);
    bufferevent_disable(conn->bev, EV_READ | EV_WRITE);
    if (open) request_record(req, 499);
    if (open && req->gone != NULL) req->gone(req->client_arg);
    sh_http_server_retire(conn->server, conn);
}

void sh_http_conn_free(sh_http_conn *conn)
{
    bufferevent_free(conn->bev);
    request_clear(&conn->req);
    sh_buf_reset(&conn->req.headers);
    free(conn);
}

static sh_deadline sooner(sh_deadline a, sh_deadline b)
{
    return a < b ? a : b;
}

/* Shuts down our side and keeps reading until the client has closed too: closing with unread input
 * would reset the connection and could destroy the answer. A client that is still sending its body
 * may take long until it reads the answer. */
static void linger(sh_http_conn *conn)
{
    SSL *ssl = bufferevent_openssl_get_ssl(conn->bev);
    if (conn->input_ended) {
        sh_http_conn_close(conn);
        return;
    }
    if (ssl != NULL) SSL_shutdown(ssl);
    shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
    conn->state = CONN_LINGER;
    conn->linger_end = sh_deadline_in_ms(opts_of(conn)->receive_ms);
    conn->deadline = sooner(sh_deadline_in_ms(LINGER_MS), conn->linger_end);
    evbuffer_drain(input_of(conn), evbuffer_get_length(input_of(conn)));
}

void sh_http_conn_exchange_over(sh_http_conn *conn)
{
    const sh_http_server_opts *opts = opts_of(conn);
    bool more = !conn->input_ended || evbuffer_get_length(input_of(conn)) > 0;
    bool keep = conn->req.head.keep_alive && more;
    conn->since_ns = sh_clock_ns();
    request_record(&conn->req, conn->req.status);
    request_clear(&conn->req);
    conn->blocked = false;
    conn->state = keep ? CONN_HEAD : CONN_FLUSH;
    /* The last answer gets time in proportion to its length, besides the limit for each byte. */
    conn->deadline = sh_deadline_in_ms(
        keep ? opts->idle_ms : opts->send_ms + (int64_t)unsent(conn) / FLUSH_BYTES_PER_MS);
    if (!keep && unsent(conn) == 0) linger(conn);
    /* The next request may already be in the input, and then no event will announce it. */
    if (keep) sh_http_conn_advance(conn);
}

/* Answers at once and closes: what follows in the input cannot be trusted or is not wanted. */
static void refuse(sh_http_conn *conn, sh_http_refusal refusal)
{
    conn->state = CONN_BUSY;
    conn->refused = true;
    conn->req.refusal = refusal;
    conn->req.head.keep_alive = false;
    sh_http_reply_refusal(&conn->req);
}

/* A client may choose the id of its request, to find it in our logs. */
static void id_choose(sh_http_request *req)
{
    sh_http_server_new_id(req->conn->server, req->id);
    sh_http_set_id(req, sh_http_head_find(&req->head, "x-request-id"));
}

/* The request is complete: pass it to its handler. */
static void dispatch(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    conn->state = CONN_BUSY;
    conn->deadline = SH_DEADLINE_NEVER;
    if (req->refusal.status != 0)
        sh_http_reply_refusal(req);
    else if (req->head.method == SH_HTTP_OPTIONS)
        sh_http_reply_options(req);
    else
        req->route->handle(req, opts_of(conn)->arg);
}

/* A refused request is answered now, without waiting for a body that is not wanted. */
static void body_begin(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    const sh_http_server_opts *opts = opts_of(conn);
    bool follows = req->head.chunked || req->head.content_length > 0;
    if (req->refusal.status == 0 && req->head.content_length > opts->body_bytes_max)
        req->refusal = sh_http_refusal_of(
            req, 413, "the body has %llu bytes; this server accepts at most %zu",
            (unsigned long long)req->head.content_length, opts->body_bytes_max);
    if (!follows) {
        dispatch(conn);
        return;
    }
    if (req->refusal.status != 0) {
        refuse(conn, req->refusal);
        return;
    }
    conn->state = CONN_BODY;
    req->body = evbuffer_new();
    SH_ASSERT(req->body != NULL);
    if (req->head.expect_continue && evbuffer_get_length(input_of(conn)) == 0)
        bufferevent_write(conn->bev, go_on, sizeof(go_on) - 1);
}

/* A wrong key is answered after a delay (CONN_HELD) that grows with each failure; no more input is
 * processed until then. */
static void head_decide(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    int64_t wait_ms = 0;
    req->refusal = sh_http_admit(req);
    conn->refused = req->refusal.status != 0;
    if (req->key == SH_HTTP_KEY_GOOD) conn->proven = true;
    if (req->key == SH_HTTP_KEY_WRONG) wait_ms = sh_http_server_key_failed(conn->server, conn);
    if (wait_ms == 0) {
        body_begin(conn);
        return;
    }
    conn->state = CONN_HELD;
    conn->deadline = sh_deadline_in_ms(wait_ms);
}

static void head_handle(sh_http_conn *conn, size_t len)
{
    sh_http_request *req = &conn->req;
    char *text = sh_arena_alloc(&req->arena, len);
    evbuffer_remove(input_of(conn), text, len);
    req->bytes_in += len;
    sh_http_refusal refusal = sh_http_head_parse(text, len, &req->head);
    id_choose(req);
    if (refusal.status != 0)
        refuse(conn, refusal);
    else {
        if (sh_http_server_draining(conn->server)) req->head.keep_alive = false;
        head_decide(conn);
    }
}

/* RFC 9112 asks servers to ignore empty lines before a request: old clients send them after a body.
 */
static void empty_lines_skip(struct evbuffer *input)
{
    char two[2];
    while (evbuffer_copyout(input, two, 2) == 2 && two[0] == '\r' && two[1] == '\n')
        evbuffer_drain(input, 2);
}

/* True if something was done, so that more may be possible. */
static bool head_read(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    const sh_http_server_opts *opts = opts_of(conn);
    struct evbuffer *input = input_of(conn);
    if (unsent(conn) > OUTPUT_AHEAD) return false;
    if (req->start_ns == 0) empty_lines_skip(input);
    size_t have = evbuffer_get_length(input);
    if (have == 0) return false;
    if (req->start_ns == 0) {
        req->start_ns = sh_clock_ns();
        conn->deadline = sh_deadline_in_ms(opts->receive_ms);
    }
    struct evbuffer_ptr from;
    evbuffer_ptr_set(input, &from, req->scanned, EVBUFFER_PTR_SET);
    struct evbuffer_ptr end = evbuffer_search(input, "\r\n\r\n", 4, &from);
    size_t len = end.pos < 0 ? have : (size_t)end.pos + 4;
    if (len > opts->header_bytes_max) {
        sh_http_server_new_id(conn->server, req->id);
        req->head.method_text = req->head.path = SH_STR("");
        refuse(conn, (sh_http_refusal){431, "the request head is too long"});
        return true;
    }
    req->scanned = have > 3 ? have - 3 : 0; /* the end may be split across reads */
    if (end.pos < 0) return false;
    head_handle(conn, len);
    return true;
}

/* Moves what has arrived into the body. The limit over all bodies is taken as bytes arrive and not
 * from Content-Length, which a client could announce without ever sending it. */
static bool body_read(sh_http_conn *conn)
{
    sh_http_request *req = &conn->req;
    struct evbuffer *input = input_of(conn);
    size_t have = evbuffer_get_length(input);
    bool done;
    sh_http_refusal refusal = {0, NULL};
    if (have == 0) return false;
    if (req->head.chunked) {
        refusal = sh_http_chunked_read(&req->chunked, input, req->body,
                                       opts_of(conn)->body_bytes_max, &done);
        req->bytes_in += have - evbuffer_get_length(input);
    } else {
        size_t take = have < req->head.content_length ? have : (size_t)req->head.content_length;
        evbuffer_remove_buffer(input, req->body, take);
        req->bytes_in += take;
        req->head.content_length -= take;
        done = req->head.content_length == 0;
    }
    size_t more = evbuffer_get_length(req->body) - req->body_held;
    if (refusal.status == 0 && !sh_http_server_body_take(conn->server, more))
        refusal = (sh_http_refusal){503, "the bodies of all requests together exceed the limit of "
                                         "this server"};
    else if (refusal.status == 0)
        req->body_held += more;
    if (refusal.status != 0)
        refuse(conn, refusal);
    else if (done)
        dispatch(conn);
    return done || refusal.status != 0;
}

/* While a handler has the request, further input stays in the buffer, up to its watermark. */
static bool step(sh_http_conn *conn)
{
    switch (conn->state) {
    case CONN_HEAD: return head_read(conn);
    case CONN_BODY: return body_read(conn);
    case CONN_LINGER:
        conn->deadline = sooner(sh_deadline_in_ms(LINGER_MS), conn->linger_end);
        evbuffer_drain(input_of(conn), evbuffer_get_length(input_of(conn)));
        return false;
    case CONN_FLUSH:
        evbuffer_drain(input_of(conn), evbuffer_get_length(input_of(conn)));
        return false;
    case CONN_HELD:
    case CONN_BUSY:
    case CONN_STREAM:
    case CONN_DEAD: return false;
    }
    return false;
}

/* There will be no more input. An incomplete request will never be complete, but queued answers are
 * still sent. */
static void input_end(sh_http_conn *conn)
{
    bool waits = conn->state == CONN_BODY ||
                 (conn->state == CONN_HEAD && unsent(conn) <= OUTPUT_AHEAD);
    if (!waits) return;
    if (unsent(conn) == 0) {
        sh_http_conn_close(conn);
        return;
    }
    conn->state = CONN_FLUSH;
    conn->deadline = sh_deadline_in_ms(opts_of(conn)->send_ms);
}

void sh_http_conn_advance(sh_http_conn *conn)
{
    /* A handler that answers synchronously gets here recursively; the loop below continues for it,
     * so pipelined requests do not grow the stack. */
    if (conn->advancing) return;
    conn->advancing = true;
    while (step(conn)) continue;
    conn->advancing = false;
    if (conn->input_ended) input_end(conn);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    sh_http_conn_advance(arg);
}

/* Called when the output has fallen below its low watermark, a quarter of what blocks a stream. */
static void on_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    sh_http_conn *conn = arg;
    if (conn->state == CONN_FLUSH && unsent(conn) == 0) linger(conn);
    if (conn->state == CONN_HEAD) sh_http_conn_advance(conn);
    if (conn->state == CONN_STREAM && conn->blocked) {
        conn->blocked = false;
        if (conn->req.drained != NULL) conn->req.drained(conn->req.client_arg);
    }
}

/* A client that closes its side may still be waiting for its answer, or be gone altogether; the
 * kernel does not know until we send bytes that nobody accepts. With HTTP/1.1 we send a "100
 * Continue" at once, which has no meaning here and also passes through tunnels and proxies; for
 * older clients TCP keep-alive finds out, within a minute or so. sh_http_conn_check_time looks at
 * the result. */
static void gone_probe(sh_http_conn *conn)
{
    enum { IDLE_S = 10, INTERVAL_S = 5, COUNT = 3 };
    int fd = bufferevent_getfd(conn->bev), on = 1, idle = IDLE_S, interval = INTERVAL_S,
        count = COUNT;
#ifdef TCP_KEEPIDLE
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
#else
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPALIVE, &idle, sizeof(idle));
#endif
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    if (conn->state == CONN_BUSY && conn->req.head.minor == 1)
        bufferevent_write(conn->bev, go_on, sizeof(go_on) - 1);
}

/* For a client that has closed its side: whether its kernel has answered with a reset since. */
static bool is_gone(const sh_http_conn *conn)
{
    int error = 0;
    socklen_t len = sizeof(error);
    return getsockopt(bufferevent_getfd(conn->bev), SOL_SOCKET, SO_ERROR, &error, &len) != 0 ||
           error != 0;
}

static bool is_busy(const sh_http_conn *conn)
{
    return conn->state == CONN_BUSY || conn->state == CONN_STREAM;
}

/* Errors and timeouts close the connection. End of input does not: the client may have sent all of
 * its requests and be waiting for the answers. */
static void on_event(struct bufferevent *bev, short what, void *arg)
{
    sh_http_conn *conn = arg;
    if ((what & BEV_EVENT_CONNECTED) != 0) return;
    if ((what & BEV_EVENT_EOF) == 0 || conn->state == CONN_LINGER) {
        sh_http_conn_close(conn);
        return;
    }
    conn->input_ended = true;
    bufferevent_enable(bev, EV_WRITE); /* with TLS, libevent disables both directions on EOF */
    sh_http_conn_advance(conn);
    if (is_busy(conn)) gone_probe(conn);
}

/* A request that is partly here gets a 408, so that its sender learns why. An idle connection is
 * just closed: an answer without a request would be taken for that of the next one. */
void sh_http_conn_check_time(sh_http_conn *conn)
{
    if (conn->input_ended && is_busy(conn) && is_gone(conn)) {
        sh_http_conn_close(conn);
        return;
    }
    if (!sh_deadline_passed(conn->deadline)) return;
    if (conn->state == CONN_HELD) {
        conn->deadline = sh_deadline_in_ms(opts_of(conn)->receive_ms);
        body_begin(conn);
        sh_http_conn_advance(conn);
        return;
    }
    bool partial = conn->state == CONN_BODY ||
                   (conn->state == CONN_HEAD && conn->req.start_ns != 0);
    if (!partial) {
        sh_http_conn_close(conn);
        return;
    }
    if (conn->state == CONN_HEAD) {
        sh_http_server_new_id(conn->server, conn->req.id);
        conn->req.head.method_text = conn->req.head.path = SH_STR("");
    }
    refuse(conn, (sh_http_refusal){408, "the request took too long to arrive"});
}

/* A connection that a handler works for is never evicted, and one that has presented a key only
 * after those that have not: strangers cannot push users with a key out. */
int sh_http_conn_worth(const sh_http_conn *conn)
{
    enum { NEVER = -1, REFUSED, UNPROVEN, PROVEN };
    switch (conn->state) {
    case CONN_HELD:
    case CONN_LINGER: return REFUSED;
    case CONN_FLUSH: return conn->refused ? REFUSED : PROVEN;
    case CONN_HEAD: return conn->proven || unsent(conn) > 0 ? PROVEN : UNPROVEN;
    case CONN_BODY: return conn->proven ? PROVEN : UNPROVEN;
    case CONN_BUSY:
    case CONN_STREAM:
    case CONN_DEAD: break;
    }
    return NEVER;
}

int64_t sh_http_conn_since_ns(const sh_http_conn *conn)
{
    return conn->req.start_ns != 0 ? conn->req.start_ns : conn->since_ns;
}
