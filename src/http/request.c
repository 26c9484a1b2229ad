/* The handler's view of a request: reading it, and writing the reply.
 *
 * Replies are queued in the bufferevent and never block. A handler that streams faster than its
 * client reads learns so from sh_http_stream_blocked and the `drained` callback; there is no hidden
 * limit that would drop bytes.
 *
 * After sh_http_reply or sh_http_stream_end the request may already hold the next one of the same
 * connection: nothing here touches it after sh_http_conn_exchange_over. */
#include "http/conn.h"
#include "http/router.h"

#include <event2/http.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

sh_http_method sh_http_method_of(const sh_http_request *req)
{
    return req->head.method;
}

const sh_http_route *sh_http_route_of(const sh_http_request *req)
{
    return req->route;
}

sh_str sh_http_path(const sh_http_request *req)
{
    sh_str path = req->head.path;
    while (path.len > 1 && path.ptr[path.len - 1] == '/') path.len--;
    return path;
}

sh_str sh_http_header_of(const sh_http_request *req, const char *lower_name)
{
    return sh_http_head_find(&req->head, lower_name);
}

/* Percent-decoded, in the arena; "+" is a space in queries only. Invalid UTF-8 or a zero byte gives
 * an empty string, since the result may be displayed. */
static sh_str decoded(sh_http_request *req, sh_str text, bool plus)
{
    char *raw = sh_str_dup(text);
    size_t len = 0;
    char *plain = evhttp_uridecode(raw, plus, &len);
    sh_str out = {"", 0};
    if (plain != NULL && sh_utf8_valid(plain, len) && memchr(plain, '\0', len) == NULL)
        out = sh_arena_str(&req->arena, (sh_str){plain, len});
    free(plain);
    free(raw);
    return out;
}

sh_str sh_http_param(sh_http_request *req)
{
    return decoded(req, req->param, false);
}

sh_str sh_http_query(sh_http_request *req, const char *name)
{
    sh_str rest = req->head.query, pair, key;
    while (sh_str_cut(&rest, '&', &pair)) {
        sh_str value = pair;
        if (!sh_str_cut(&value, '=', &key) || !sh_str_is(key, name)) continue;
        return decoded(req, value, true);
    }
    return (sh_str){"", 0};
}

/* The body arrives as a chain of buffers and is joined only if somebody wants to read it. */
sh_str sh_http_body(sh_http_request *req)
{
    if (req->body == NULL) return (sh_str){"", 0};
    if (req->body_text.ptr == NULL) {
        req->body_text.len = evbuffer_get_length(req->body);
        evbuffer_add(req->body, "", 1); /* the terminating zero */
        req->body_text.ptr = (const char *)evbuffer_pullup(req->body, -1);
        SH_ASSERT(req->body_text.ptr != NULL);
    }
    return req->body_text;
}

void sh_http_body_done(sh_http_request *req)
{
    if (req->body != NULL) evbuffer_free(req->body);
    req->carrier->body_release(req);
    req->body = NULL;
    req->body_text = (sh_str){NULL, 0};
    req->body_held = 0;
}

const char *sh_http_id(const sh_http_request *req)
{
    return req->id;
}

/* Word characters only, since the id is copied to headers and logs. */
static bool id_is_good(sh_str id)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] == '\0' || strchr(allowed, id.ptr[i]) == NULL) return false;
    return id.len > 0 && id.len <= SH_HTTP_ID_MAX;
}

void sh_http_set_id(sh_http_request *req, sh_str id)
{
    if (!id_is_good(id)) return;
    memcpy(req->id, id.ptr, id.len);
    req->id[id.len] = '\0';
}

sh_str sh_http_peer(const sh_http_request *req)
{
    return sh_str_of(req->peer);
}

int64_t sh_http_start_ns(const sh_http_request *req)
{
    return req->start_ns;
}

sh_arena *sh_http_arena(sh_http_request *req)
{
    return &req->arena;
}

void sh_http_watch_client(sh_http_request *req, sh_http_client_fn gone, sh_http_client_fn drained,
                          void *arg)
{
    req->gone = gone;
    req->drained = drained;
    req->client_arg = arg;
}

void sh_http_add_header(sh_http_request *req, const char *name, const char *value)
{
    sh_buf_addf(&req->headers, "%s: %s\r\n", name, value);
}

static const struct {
    int status;
    const char *text;
} reasons[] = {
    {200, "OK"},
    {204, "No Content"},
    {302, "Found"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {529, "Overloaded"},
};

static const char *reason_of(int status)
{
    for (size_t i = 0; i < SH_COUNT_OF(reasons); i++)
        if (reasons[i].status == status) return reasons[i].text;
    return "Status";
}

/* Changes only once a second, and formatting it would be a good part of the cost of a small reply.
 */
static const char *date_now(void)
{
    static char text[40];
    static time_t made_at = -1;
    time_t now = time(NULL);
    if (now != made_at) {
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm);
        made_at = now;
    }
    return text;
}

/* With a list of origins the answer depends on the Origin header, so caches need "Vary" even on
 * answers to origins that are not allowed. */
static void cors_write(sh_http_request *req, sh_buf *out)
{
    const char *cors = sh_http_server_opts_of(req->conn->server)->cors;
    sh_str origin = sh_http_head_find(&req->head, "origin");
    if (cors == NULL || cors[0] == '\0' || origin.len == 0) return;
    if (strcmp(cors, "*") == 0)
        sh_buf_add_text(out, "Access-Control-Allow-Origin: *\r\n");
    else {
        sh_buf_add_text(out, "Vary: Origin\r\n");
        if (!sh_http_list_has(sh_str_of(cors), sh_arena_str(&req->arena, origin).ptr)) return;
        sh_buf_addf(out, "Access-Control-Allow-Origin: %.*s\r\n", (int)origin.len, origin.ptr);
    }
    sh_buf_add_text(out, "Access-Control-Expose-Headers: X-Request-Id, Retry-After, "
                         "X-Shoal-Ignored-Fields\r\n");
}

/* length < 0: not known in advance. The answer to HEAD carries the length that GET would have. */
static void head_write(sh_http_request *req, int status, const char *content_type, int64_t length,
                       sh_buf *out)
{
    req->status = status;
    sh_buf_addf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, reason_of(status), date_now());
    if (content_type != NULL) sh_buf_addf(out, "Content-Type: %s\r\n", content_type);
    if (length >= 0 && status != 204)
        sh_buf_addf(out, "Content-Length: %lld\r\n", (long long)length);
    if (length < 0 && !req->raw) sh_buf_add_text(out, "Transfer-Encoding: chunked\r\n");
    if (!req->head.keep_alive) sh_buf_add_text(out, "Connection: close\r\n");
    if (req->head.keep_alive && req->head.minor == 0)
        sh_buf_add_text(out, "Connection: keep-alive\r\n");
    sh_buf_addf(out, "X-Request-Id: %s\r\nX-Content-Type-Options: nosniff\r\n", req->id);
    cors_write(req, out);
    sh_buf_add_str(out, sh_buf_str(&req->headers));
    sh_buf_add_text(out, "\r\n");
}

static void send_bytes(sh_http_request *req, const void *data, size_t len)
{
    bufferevent_write(req->conn->bev, data, len);
    req->bytes_out += len;
}

static void http1_reply(sh_http_request *req, int status, const char *content_type, sh_str body)
{
    enum { ONE_WRITE = 16 << 10 };
    SH_ASSERT(req->conn->state == CONN_BUSY);
    sh_buf out = {0};
    bool with_body = req->head.method != SH_HTTP_HEAD && status != 204;
    head_write(req, status, content_type, (int64_t)body.len, &out);
    bool small = body.len <= ONE_WRITE; /* head and body in one write, so in one packet or record */
    if (with_body && small) sh_buf_add_str(&out, body);
    send_bytes(req, out.ptr, out.len);
    if (with_body && !small) send_bytes(req, body.ptr, body.len);
    sh_buf_reset(&out);
    sh_http_conn_exchange_over(req->conn);
}

/* The headers that RFC 9110 requires or recommends with these statuses. */
void sh_http_reply_refusal(sh_http_request *req)
{
    const sh_http_server_opts *opts = sh_http_server_opts_of(req->conn->server);
    if (req->refusal.status == 401) sh_http_add_header(req, "WWW-Authenticate", "Bearer");
    if (req->refusal.status == 503) sh_http_add_header(req, "Retry-After", "1");
    if (req->refusal.status == 405) {
        sh_buf methods = {0};
        sh_http_route_methods(opts->routes, opts->route_count, req->head.path, &methods);
        sh_http_add_header(req, "Allow", methods.ptr);
        sh_buf_reset(&methods);
    }
    opts->refused(opts->arg, req, req->refusal.status, req->refusal.why);
}

/* The CORS preflight. Any header that the page asks for is allowed: what protects the server is the
 * list of origins, and keys. */
void sh_http_reply_options(sh_http_request *req)
{
    const sh_http_server_opts *opts = sh_http_server_opts_of(req->conn->server);
    sh_buf methods = {0};
    sh_http_route_methods(opts->routes, opts->route_count, req->head.path, &methods);
    sh_http_add_header(req, "Allow", methods.ptr);
    sh_str wanted = sh_http_head_find(&req->head, "access-control-request-headers");
    bool preflight = sh_http_head_find(&req->head, "access-control-request-method").len > 0;
    if (preflight && opts->cors != NULL && opts->cors[0] != '\0') {
        sh_http_add_header(req, "Access-Control-Allow-Methods", methods.ptr);
        sh_http_add_header(req, "Access-Control-Max-Age", "600");
        if (wanted.len > 0)
            sh_http_add_header(req, "Access-Control-Allow-Headers",
                               sh_arena_str(&req->arena, wanted).ptr);
    }
    sh_buf_reset(&methods);
    sh_http_reply(req, 204, NULL, SH_STR(""));
}

/* HTTP/1.0 has no chunks: there the end of the connection marks the end of the reply. */
static void http1_stream_start(sh_http_request *req, int status, const char *content_type)
{
    SH_ASSERT(req->conn->state == CONN_BUSY);
    sh_buf out = {0};
    req->raw = req->head.minor == 0;
    if (req->raw) req->head.keep_alive = false;
    head_write(req, status, content_type, -1, &out);
    send_bytes(req, out.ptr, out.len);
    sh_buf_reset(&out);
    req->conn->state = CONN_STREAM;
}

static bool http1_stream_blocked(const sh_http_request *req)
{
    return evbuffer_get_length(bufferevent_get_output(req->conn->bev)) >=
           sh_http_server_opts_of(req->conn->server)->stream_bytes_max;
}

static void http1_stream_write(sh_http_request *req, sh_str data)
{
    SH_ASSERT(req->conn->state == CONN_STREAM);
    if (data.len == 0 || req->head.method == SH_HTTP_HEAD) return;
    char size[24];
    if (!req->raw) send_bytes(req, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", data.len));
    send_bytes(req, data.ptr, data.len);
    if (!req->raw) send_bytes(req, "\r\n", 2);
    if (http1_stream_blocked(req)) req->conn->blocked = true;
}

static void http1_stream_end(sh_http_request *req)
{
    SH_ASSERT(req->conn->state == CONN_STREAM);
    if (!req->raw && req->head.method != SH_HTTP_HEAD) send_bytes(req, "0\r\n\r\n", 5);
    sh_http_conn_exchange_over(req->conn);
}

static void http1_abort(sh_http_request *req)
{
    sh_http_conn_close(req->conn);
}

static void http1_body_release(sh_http_request *req)
{
    sh_http_server_body_release(req->conn->server, req->body_held);
}

const sh_http_carrier sh_http1 = {
    .reply = http1_reply,
    .stream_start = http1_stream_start,
    .stream_write = http1_stream_write,
    .stream_end = http1_stream_end,
    .stream_blocked = http1_stream_blocked,
    .abort = http1_abort,
    .body_release = http1_body_release,
};

void sh_http_reply(sh_http_request *req, int status, const char *content_type, sh_str body)
{
    req->carrier->reply(req, status, content_type, body);
}

void sh_http_stream_start(sh_http_request *req, int status, const char *content_type)
{
    req->carrier->stream_start(req, status, content_type);
}

void sh_http_stream_write(sh_http_request *req, sh_str data)
{
    req->carrier->stream_write(req, data);
}

void sh_http_stream_end(sh_http_request *req)
{
    req->carrier->stream_end(req);
}

bool sh_http_stream_blocked(const sh_http_request *req)
{
    return req->carrier->stream_blocked(req);
}

void sh_http_abort(sh_http_request *req)
{
    req->gone = NULL;
    req->carrier->abort(req);
}
