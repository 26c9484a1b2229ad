/* One call: an HTTP/2 stream that is the carrier of a request.
 *
 * The way in: headers, the prefix of the message, the message, the end of the stream; each is
 * refused as soon as it is known to be wrong, so that a refusal costs neither memory nor time. The
 * way out: frames are appended to `out`, from which nghttp2 takes as much as the windows of the
 * client allow (on_output), and the status becomes the trailers. A call that ends before anything
 * was sent is answered by trailers alone, as gRPC prescribes.
 *
 * A handler that streams faster than its client reads learns so from stream_blocked. One that is
 * too slow, or whose client has left, is ended by call_end and `gone`; its request is not used
 * again after that. */
#include "base/alloc.h"
#include "grpc/session.h"
#include "http/router.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADERS_OUT_MAX = 32, STATUS_TEXT_MAX = 1024 };

static const sh_http_carrier carrier;

static const sh_grpc_server_opts *opts_of(const sh_grpc_call *call)
{
    return sh_grpc_server_opts_of(call->session->server);
}

static bool handler_has(const sh_grpc_call *call)
{
    return call->state == CALL_BUSY || call->state == CALL_STREAM;
}

/* ---- the answer ---- */

/* A list of headers whose texts are borrowed; nghttp2 copies them. */
typedef struct {
    nghttp2_nv list[HEADERS_OUT_MAX];
    size_t count;
} header_list;

static void header_put(header_list *headers, sh_str name, sh_str value)
{
    if (headers->count == HEADERS_OUT_MAX) return;
    headers->list[headers->count++] = (nghttp2_nv){(uint8_t *)(uintptr_t)name.ptr,
                                                   (uint8_t *)(uintptr_t)value.ptr, name.len,
                                                   value.len, NGHTTP2_NV_FLAG_NONE};
}

/* Those that the handler has added, which are lines "Name: value"; HTTP/2 wants small letters. */
static void headers_put_lines(header_list *headers, sh_buf *lines)
{
    sh_str rest = sh_buf_str(lines), line, name;
    while (sh_str_cut(&rest, '\n', &line)) {
        if (!sh_str_cut(&line, ':', &name) || name.len == 0) continue;
        char *letters = lines->ptr + (name.ptr - lines->ptr);
        for (size_t i = 0; i < name.len; i++)
            if (letters[i] >= 'A' && letters[i] <= 'Z') letters[i] = (char)(letters[i] + 32);
        header_put(headers, name, sh_str_trim(line));
    }
}

static void headers_put_status(header_list *headers, const sh_grpc_call *call, char code[4],
                               sh_buf *text)
{
    snprintf(code, 4, "%d", (int)call->code);
    sh_grpc_text_encode(sh_buf_str(&call->message), text);
    header_put(headers, SH_STR("grpc-status"), sh_str_of(code));
    if (text->len > 0) header_put(headers, SH_STR("grpc-message"), sh_buf_str(text));
}

static void trailers_submit(const sh_grpc_call *call)
{
    header_list headers = {.count = 0};
    char code[4];
    sh_buf text = {0};
    headers_put_status(&headers, call, code, &text);
    nghttp2_submit_trailer(call->session->h2, call->stream, headers.list, headers.count);
    sh_buf_reset(&text);
}

/* nghttp2 asks for bytes of the answer. */
static ssize_t on_output(nghttp2_session *h2, int32_t stream, uint8_t *to, size_t len,
                         uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    sh_grpc_call *call = source->ptr;
    (void)h2;
    (void)stream;
    (void)arg;
    int got = evbuffer_remove(call->out, to, len);
    bool empty = evbuffer_get_length(call->out) == 0;
    call->moved_ns = sh_clock_ns();
    if (got <= 0 && call->state != CALL_ENDED) return NGHTTP2_ERR_DEFERRED;
    if (empty && call->state == CALL_ENDED) {
        *flags = NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        trailers_submit(call);
    }
    return got < 0 ? 0 : got;
}

/* The head of the answer; with the end of the call in it, if nothing is to follow. */
static void head_send(sh_grpc_call *call, const char *http_status, bool last)
{
    header_list headers = {.count = 0};
    nghttp2_data_provider body = {.source = {.ptr = call}, .read_callback = on_output};
    char code[4];
    sh_buf text = {0};
    call->head_sent = true;
    header_put(&headers, SH_STR(":status"), sh_str_of(http_status));
    header_put(&headers, SH_STR("content-type"), SH_STR("application/grpc"));
    header_put(&headers, SH_STR("x-request-id"), sh_str_of(call->req.id));
    headers_put_lines(&headers, &call->req.headers);
    if (last) headers_put_status(&headers, call, code, &text);
    nghttp2_submit_response(call->session->h2, call->stream, headers.list, headers.count,
                            last ? NULL : &body);
    sh_buf_reset(&text);
}

static void record(const sh_grpc_call *call, int status)
{
    const sh_grpc_server_opts *opts = opts_of(call);
    const sh_http_request *req = &call->req;
    sh_http_record done = {
        .id = req->id,
        .peer = sh_str_of(req->peer),
        .method = SH_STR("POST"),
        .path = req->head.path,
        .route = req->route,
        .status = status,
        .refused = req->refusal.status != 0,
        .bytes_in = req->bytes_in,
        .bytes_out = req->bytes_out,
        .seconds = (double)(sh_clock_ns() - req->start_ns) * 1e-9,
    };
    if (opts->done != NULL) opts->done(opts->arg, &done);
}

/* The request is no longer the handler's. What is in `out` is still sent, then the status. */
static void call_end(sh_grpc_call *call, sh_grpc_code code, sh_str message)
{
    call->code = code;
    sh_buf_clear(&call->message);
    sh_buf_add(&call->message, message.ptr,
               message.len < STATUS_TEXT_MAX ? message.len : STATUS_TEXT_MAX);
    call->state = CALL_ENDED;
    if (call->req.status == 0) call->req.status = code == SH_GRPC_OK ? 200 : 500;
    record(call, call->req.status);
    if (!call->head_sent)
        head_send(call, "200", true);
    else
        nghttp2_session_resume_data(call->session->h2, call->stream);
    sh_grpc_session_output_due(call->session);
}

/* Refused by the server itself. http_status is for records; clients of gRPC look at the code. */
static void call_refuse(sh_grpc_call *call, int http_status, sh_grpc_code code, const char *why)
{
    call->req.refusal = (sh_http_refusal){http_status, why};
    call->req.status = http_status;
    call_end(call, code, sh_str_of(why));
}

static void output_add(sh_grpc_call *call, sh_str data)
{
    if (evbuffer_get_length(call->out) == 0) call->moved_ns = sh_clock_ns();
    evbuffer_add(call->out, data.ptr, data.len);
    call->req.bytes_out += data.len;
    nghttp2_session_resume_data(call->session->h2, call->stream);
}

static bool carrier_blocked(const sh_http_request *req)
{
    const sh_grpc_call *call = (const sh_grpc_call *)req;
    return evbuffer_get_length(call->out) >= opts_of(call)->stream_bytes_max;
}

static void carrier_start(sh_http_request *req, int status, const char *content_type)
{
    sh_grpc_call *call = (sh_grpc_call *)req;
    (void)content_type; /* always gRPC's */
    SH_ASSERT(call->state == CALL_BUSY);
    req->status = status;
    call->state = CALL_STREAM;
    head_send(call, "200", false);
}

static void carrier_write(sh_http_request *req, sh_str data)
{
    sh_grpc_call *call = (sh_grpc_call *)req;
    sh_grpc_code code;
    sh_str message;
    if (data.len == 0) return;
    if (sh_grpc_status_read(data, &code, &message)) {
        call->code = code;
        sh_buf_clear(&call->message);
        sh_buf_add_str(&call->message, message);
        return;
    }
    output_add(call, data);
    if (carrier_blocked(req)) call->blocked = true;
    sh_grpc_session_output_due(call->session);
}

static void carrier_end(sh_http_request *req)
{
    sh_grpc_call *call = (sh_grpc_call *)req;
    char *message = sh_buf_take(&call->message);
    call_end(call, call->code, sh_str_of(message));
    free(message);
}

/* A message or a status, and the end. */
static void carrier_reply(sh_http_request *req, int status, const char *content_type, sh_str body)
{
    sh_grpc_call *call = (sh_grpc_call *)req;
    sh_grpc_code code = SH_GRPC_OK;
    sh_str message = {"", 0};
    SH_ASSERT(call->state == CALL_BUSY);
    req->status = status;
    if (sh_grpc_status_read(body, &code, &message)) {
        call_end(call, code, message);
        return;
    }
    if (body.len > SH_GRPC_MESSAGE_MAX + SH_GRPC_PREFIX) {
        call_end(call, SH_GRPC_RESOURCE_EXHAUSTED, SH_STR("the answer is longer than 50 MiB"));
        return;
    }
    carrier_start(req, status, content_type);
    output_add(call, body);
    call_end(call, SH_GRPC_OK, message);
}

static void carrier_abort(sh_http_request *req)
{
    sh_grpc_call *call = (sh_grpc_call *)req;
    call_end(call, SH_GRPC_UNAVAILABLE, SH_STR("the server has ended this call"));
}

static void carrier_body_release(sh_http_request *req)
{
    const sh_grpc_call *call = (const sh_grpc_call *)req;
    sh_grpc_server_body_release(call->session->server, req->body_held);
}

static const sh_http_carrier carrier = {
    .reply = carrier_reply,
    .stream_start = carrier_start,
    .stream_write = carrier_write,
    .stream_end = carrier_end,
    .stream_blocked = carrier_blocked,
    .abort = carrier_abort,
    .body_release = carrier_body_release,
};

/* Takes the request from the handler, and answers in its place. */
static void call_take_away(sh_grpc_call *call, sh_grpc_code code, const char *why)
{
    sh_http_client_fn gone = call->req.gone;
    void *arg = call->req.client_arg;
    call->req.gone = call->req.drained = NULL;
    call->req.status = code == SH_GRPC_DEADLINE_EXCEEDED ? 504 : 499;
    call_end(call, code, sh_str_of(why));
    if (gone != NULL) gone(arg);
}

void sh_grpc_call_drained(sh_grpc_call *call)
{
    call->blocked = false;
    if (call->req.drained != NULL) call->req.drained(call->req.client_arg);
}

/* ---- the request ---- */

sh_grpc_call *sh_grpc_call_create(sh_grpc_session *session, int32_t stream)
{
    sh_grpc_call *call = sh_alloc(sizeof(*call));
    call->session = session;
    call->stream = stream;
    call->deadline = SH_DEADLINE_NEVER;
    call->due = sh_deadline_in_ms(sh_grpc_server_opts_of(session->server)->receive_ms);
    call->out = evbuffer_new();
    call->req.body = evbuffer_new();
    SH_ASSERT(call->out != NULL && call->req.body != NULL);
    call->req.carrier = &carrier;
    call->req.peer = session->peer;
    call->req.peer_id = session->peer_id;
    call->req.start_ns = sh_clock_ns();
    call->req.head.method = SH_HTTP_POST;
    call->req.head.path = SH_STR("");
    sh_grpc_server_new_id(session->server, call->req.id);
    call->next = session->calls;
    if (session->calls != NULL) session->calls->prev = call;
    session->calls = call;
    session->call_count++;
    return call;
}

void sh_grpc_call_free(sh_grpc_call *call)
{
    sh_grpc_session *session = call->session;
    if (call->prev != NULL)
        call->prev->next = call->next;
    else
        session->calls = call->next;
    if (call->next != NULL) call->next->prev = call->prev;
    session->call_count--;
    sh_grpc_server_call_release(session->server);
    bool open = handler_has(call);
    call->state = CALL_ENDED;
    if (open) record(call, 499);
    if (open && call->req.gone != NULL) call->req.gone(call->req.client_arg);
    sh_http_body_done(&call->req);
    sh_arena_reset(&call->req.arena);
    sh_buf_reset(&call->req.headers);
    sh_buf_reset(&call->message);
    evbuffer_free(call->out);
    free(call);
}

/* What does not fit is counted, and refused at the end of the head. */
void sh_grpc_call_header(sh_grpc_call *call, sh_str name, sh_str value)
{
    enum { OVERHEAD = 32 }; /* as HTTP/2 counts */
    sh_http_request *req = &call->req;
    sh_http_head *head = &req->head;
    call->head_bytes += name.len + value.len + OVERHEAD;
    if (call->head_bytes > opts_of(call)->header_bytes_max) return;
    if (sh_str_is(name, ":path")) head->path = sh_arena_str(&req->arena, value);
    if (sh_str_is(name, ":method")) call->is_post = sh_str_is(value, "POST");
    if (sh_str_is(name, "content-type"))
        call->is_grpc = sh_str_starts(value, SH_STR("application/grpc"));
    if (name.ptr[0] == ':') return;
    if (head->header_count == SH_HTTP_HEADERS_MAX) {
        call->head_bytes = opts_of(call)->header_bytes_max + 1;
        return;
    }
    head->headers[head->header_count++] = (sh_http_header){sh_arena_str(&req->arena, name),
                                                           sh_arena_str(&req->arena, value)};
}

/* Answers something that is not gRPC in terms of HTTP. */
static void http_refuse(sh_grpc_call *call, const char *status)
{
    call->state = CALL_ENDED;
    call->code = SH_GRPC_UNIMPLEMENTED;
    call->req.refusal = (sh_http_refusal){atoi(status), "not a gRPC call"};
    record(call, atoi(status));
    head_send(call, status, true);
}

static bool timeout_take(sh_grpc_call *call)
{
    sh_str timeout = sh_http_head_find(&call->req.head, "grpc-timeout");
    if (timeout.len == 0 || sh_grpc_timeout_read(timeout, &call->deadline)) return true;
    call_refuse(call, 400, SH_GRPC_INVALID_ARGUMENT,
                "'grpc-timeout' must be a number of up to 8 digits and a unit: H, M, S, m, u or n");
    return false;
}

/* True if the call has a valid token, or needs none. A wrong one is answered after a delay that
 * grows with each failure. */
static bool token_check(sh_grpc_call *call)
{
    sh_http_request *req = &call->req;
    req->key = sh_http_key_check(req, opts_of(call)->keys);
    if (sh_http_is_trusted(req)) return true;
    int64_t wait_ms = req->key == SH_HTTP_KEY_WRONG
                          ? sh_grpc_server_token_failed(call->session->server, call->session)
                          : 0;
    call->state = CALL_HELD;
    call->due = sh_deadline_in_ms(wait_ms);
    return false;
}

void sh_grpc_call_head_end(sh_grpc_call *call)
{
    const sh_grpc_server_opts *opts = opts_of(call);
    sh_http_request *req = &call->req;
    call->state = CALL_BODY;
    if (call->head_bytes > opts->header_bytes_max) {
        call_refuse(call, 431, SH_GRPC_RESOURCE_EXHAUSTED, "the metadata of the call is too long");
        return;
    }
    if (!call->is_post || !call->is_grpc) {
        http_refuse(call, call->is_post ? "415" : "405");
        return;
    }
    sh_http_set_id(req, sh_http_head_find(&req->head, "x-request-id"));
    if (!token_check(call) || !timeout_take(call)) return;
    req->route =
        sh_http_route_find(opts->routes, opts->route_count, SH_HTTP_POST, req->head.path).route;
    if (req->route == NULL)
        call_refuse(call, 404, SH_GRPC_UNIMPLEMENTED, "this server has no such method");
}

/* The message is in the body with its prefix, until it is complete. */
static bool prefix_check(sh_grpc_call *call)
{
    unsigned char prefix[SH_GRPC_PREFIX];
    const char *why;
    if (evbuffer_copyout(call->req.body, prefix, sizeof(prefix)) != SH_GRPC_PREFIX) return true;
    sh_grpc_code code = sh_grpc_prefix_read(prefix, &call->message_len, &why);
    if (code == SH_GRPC_OK) return true;
    call_refuse(call, code == SH_GRPC_RESOURCE_EXHAUSTED ? 413 : 400, code, why);
    return false;
}

void sh_grpc_call_data(sh_grpc_call *call, const uint8_t *data, size_t len)
{
    sh_http_request *req = &call->req;
    if (call->state != CALL_BODY) return;
    bool prefix = evbuffer_get_length(req->body) < SH_GRPC_PREFIX;
    if (!sh_grpc_server_body_take(call->session->server, len)) {
        call_refuse(call, 503, SH_GRPC_RESOURCE_EXHAUSTED,
                    "the messages of all calls together exceed the limit of this server");
        return;
    }
    req->body_held += len;
    req->bytes_in += len;
    evbuffer_add(req->body, data, len);
    if (prefix && !prefix_check(call)) return;
    size_t have = evbuffer_get_length(req->body);
    if (have > SH_GRPC_PREFIX && have - SH_GRPC_PREFIX > call->message_len)
        call_refuse(call, 400, SH_GRPC_UNIMPLEMENTED, "a call takes one message, not several");
}

/* The message is complete: pass it to the handler. */
void sh_grpc_call_data_end(sh_grpc_call *call)
{
    sh_http_request *req = &call->req;
    if (call->state != CALL_BODY) return;
    if (evbuffer_get_length(req->body) != SH_GRPC_PREFIX + call->message_len) {
        call_refuse(call, 400, SH_GRPC_INVALID_ARGUMENT, "the message of the call is incomplete");
        return;
    }
    evbuffer_drain(req->body, SH_GRPC_PREFIX);
    call->state = CALL_BUSY;
    call->due = SH_DEADLINE_NEVER;
    req->route->handle(req, opts_of(call)->arg);
}

/* ---- time ---- */

static void due_take(sh_grpc_call *call)
{
    if (call->state == CALL_HELD)
        call_refuse(call, 401, SH_GRPC_UNAUTHENTICATED,
                    "a valid token is required: the metadata authorization: Bearer <token>");
    else if (call->state == CALL_BODY)
        call_refuse(call, 408, SH_GRPC_DEADLINE_EXCEEDED,
                    "the message of the call took too long to arrive");
}

/* A client that does not read one of its answers must not hold it for as long as it likes, even if
 * it reads the others. */
static bool is_stuck(const sh_grpc_call *call, int64_t now_ns)
{
    return call->head_sent && evbuffer_get_length(call->out) > 0 &&
           (now_ns - call->moved_ns) / 1000000 > opts_of(call)->send_ms;
}

void sh_grpc_call_check_time(sh_grpc_call *call, int64_t now_ns)
{
    if (is_stuck(call, now_ns)) {
        nghttp2_submit_rst_stream(call->session->h2, NGHTTP2_FLAG_NONE, call->stream,
                                  NGHTTP2_CANCEL);
        evbuffer_drain(call->out, evbuffer_get_length(call->out));
        if (handler_has(call))
            call_take_away(call, SH_GRPC_CANCELLED, "the client does not read its answer");
        return;
    }
    if (handler_has(call) && sh_deadline_passed(call->deadline))
        call_take_away(call, SH_GRPC_DEADLINE_EXCEEDED, "the deadline of the call has passed");
    else if (sh_deadline_passed(call->due))
        due_take(call);
}
