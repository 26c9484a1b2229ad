/* One HTTP/2 connection: nghttp2 between a bufferevent and the calls.
 *
 * nghttp2 parses, keeps the state of streams and windows, and tells us what to send; this file
 * moves bytes and bounds what a client can cost. Handlers write from anywhere, inside callbacks of
 * nghttp2 too, where output may be queued but not fetched; and fetching it can end a call, with the
 * job that is just writing to it. So sending always waits for its own turn of the loop
 * (output_due).
 *
 * What the client can make us hold is bounded everywhere: header blocks by bytes and by frames, the
 * number of streams, messages by their own limit and by one over all calls, answers by
 * back-pressure (call.c), and what is encoded but not sent by OUTPUT_MAX. Frames without content
 * are counted (calm.h); nghttp2 itself bounds acknowledgements that the client does not read. */
#include "grpc/session.h"

#include "base/alloc.h"
#include "base/log.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    OUTPUT_MAX = 256 << 10, /* encoded bytes that wait for the socket */
    WINDOW = 1 << 20,       /* of a stream: a long prompt should not need many round trips */
    CONNECTION_WINDOW = 4 << 20,
    CONTINUATIONS_MAX = 8,
    READ_AT_ONCE = 64 << 10, /* so that long messages need few turns of the loop */
};

static const sh_grpc_server_opts *opts_of(const sh_grpc_session *session)
{
    return sh_grpc_server_opts_of(session->server);
}

static size_t unsent(const sh_grpc_session *session)
{
    return evbuffer_get_length(bufferevent_get_output(session->bev));
}

static sh_grpc_call *call_of(nghttp2_session *h2, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(h2, stream);
}

/* ---- callbacks of nghttp2 ---- */

/* Returning an error ends the connection; GOAWAY is sent before (session_input). */
static int on_begin_frame(nghttp2_session *h2, const nghttp2_frame_hd *hd, void *arg)
{
    sh_grpc_session *session = arg;
    (void)h2;
    bool calm = sh_calm_received(&session->calm, hd->type, hd->length, sh_clock_ns());
    return calm ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    sh_grpc_session *session = arg;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0; /* trailers of a request */
    if (!sh_grpc_server_call_take(session->server)) {
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_REFUSED_STREAM); /* clients try it again by themselves */
        return 0;
    }
    sh_grpc_call *call = sh_grpc_call_create(session, frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, call);
    return 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    (void)flags;
    (void)arg;
    sh_grpc_call *call = call_of(h2, frame->hd.stream_id);
    if (call == NULL || call->state != CALL_HEAD) return 0;
    sh_grpc_call_header(call, (sh_str){(const char *)name, name_len},
                        (sh_str){(const char *)value, value_len});
    /* A bomb of references to one long header is small on the wire and large here. */
    size_t limit = opts_of(call->session)->header_bytes_max;
    return call->head_bytes > 4 * limit ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    sh_grpc_session *session = arg;
    bool last = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (frame->hd.type == NGHTTP2_SETTINGS) session->started = true;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    sh_grpc_call *call = call_of(h2, frame->hd.stream_id);
    if (call == NULL) return 0;
    if (call->state == CALL_HEAD) sh_grpc_call_head_end(call);
    if (last) sh_grpc_call_data_end(call);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t len, void *arg)
{
    (void)flags;
    (void)arg;
    sh_grpc_call *call = call_of(h2, stream);
    if (call != NULL) sh_grpc_call_data(call, data, len);
    return 0;
}

static int on_stream_close(nghttp2_session *h2, int32_t stream, uint32_t error, void *arg)
{
    sh_grpc_session *session = arg;
    (void)error;
    sh_grpc_call *call = call_of(h2, stream);
    if (call == NULL) return 0;
    nghttp2_session_set_stream_user_data(h2, stream, NULL);
    sh_grpc_call_free(call);
    if (session->call_count == 0) session->idle_ns = sh_clock_ns();
    return 0;
}

/* The answer is complete. A client that is still sending its message is told to stop. */
static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *arg)
{
    sh_grpc_session *session = arg;
    if (frame->hd.type == NGHTTP2_DATA) sh_calm_sent(&session->calm);
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0 || frame->hd.stream_id == 0) return 0;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    if (nghttp2_session_get_stream_remote_close(h2, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    return 0;
}

static nghttp2_session *h2_create(sh_grpc_session *session)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    nghttp2_session *h2 = NULL;
    SH_ASSERT(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_option_set_max_continuations(option, CONTINUATIONS_MAX);
    nghttp2_option_set_no_closed_streams(option, 1);
    int failed = nghttp2_session_server_new2(&h2, callbacks, session, option);
    SH_ASSERT(failed == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return h2;
}

/* ---- bytes ---- */

/* Frames are fetched only while the socket takes them: what waits in nghttp2 is small. */
static void output_fetch(sh_grpc_session *session)
{
    const uint8_t *data;
    ssize_t len;
    while (unsent(session) < OUTPUT_MAX && (len = nghttp2_session_mem_send(session->h2, &data)) > 0)
        bufferevent_write(session->bev, data, (size_t)len);
}

/* Handlers that waited go on only now, since what they write must be fetched as well. */
static bool drained_notify(sh_grpc_session *session)
{
    bool any = false;
    for (sh_grpc_call *call = session->calls, *next; call != NULL; call = next) {
        next = call->next;
        bool waits = call->blocked && call->state == CALL_STREAM;
        if (!waits || evbuffer_get_length(call->out) > opts_of(session)->stream_bytes_max / 4)
            continue;
        any = true;
        sh_grpc_call_drained(call);
    }
    return any;
}

void sh_grpc_session_pump(sh_grpc_session *session)
{
    if (session->dead) return;
    do output_fetch(session);
    while (unsent(session) < OUTPUT_MAX && drained_notify(session));
    bool over = nghttp2_session_want_read(session->h2) == 0 &&
                nghttp2_session_want_write(session->h2) == 0;
    if (over) session->leaving = true;
    if (over && unsent(session) == 0) sh_grpc_session_close(session);
}

/* A timer, even where the next event would do the same: starting it twice costs nothing. */
void sh_grpc_session_output_due(sh_grpc_session *session)
{
    if (!session->dead) sh_trigger_start(session->output_due, 0);
}

void sh_grpc_session_leave(sh_grpc_session *session, uint32_t h2_error)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
    if (session->leaving) return;
    session->leaving = true;
    session->idle_ns = sh_clock_ns();
    if (h2_error == NGHTTP2_NO_ERROR)
        nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, h2_error, NULL, 0);
    else
        nghttp2_session_terminate_session(session->h2, h2_error);
    sh_grpc_session_output_due(session);
}

/* A client that floods, bombs or breaks the protocol: its streams end with the connection. */
static void input_refuse(sh_grpc_session *session, ssize_t error)
{
    bool ours = error == NGHTTP2_ERR_CALLBACK_FAILURE || error == NGHTTP2_ERR_FLOODED;
    SH_LOGW("grpc: disconnecting %s: %s", session->peer,
            ours ? "it sends too many frames or headers that ask for nothing"
                 : nghttp2_strerror((int)error));
    bufferevent_disable(session->bev, EV_READ);
    sh_grpc_session_leave(session, ours ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    sh_grpc_session *session = arg;
    struct evbuffer *input = bufferevent_get_input(bev);
    size_t len = evbuffer_get_length(input);
    const uint8_t *data = evbuffer_pullup(input, -1);
    ssize_t used = nghttp2_session_mem_recv(session->h2, data, len);
    evbuffer_drain(input, len);
    if (used < 0)
        input_refuse(session, used);
    else
        sh_grpc_session_pump(session);
}

static void on_write(struct bufferevent *bev, void *arg)
{
    (void)bev;
    sh_grpc_session_pump(arg);
}

/* The end of input too: without a way to cancel or to open a window there is no call to go on with.
 */
static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if ((what & BEV_EVENT_CONNECTED) == 0) sh_grpc_session_close(arg);
}

/* ---- life ---- */

static void on_output_due(void *arg)
{
    sh_grpc_session_pump(arg);
}

sh_grpc_session *sh_grpc_session_create(sh_grpc_server *server, sh_loop *loop,
                                        struct bufferevent *bev, const char *peer, uint64_t peer_id)
{
    const sh_grpc_server_opts *opts = sh_grpc_server_opts_of(server);
    sh_grpc_session *session = sh_alloc(sizeof(*session));
    session->server = server;
    session->bev = bev;
    session->peer_id = peer_id;
    session->idle_ns = sh_clock_ns();
    session->h2 = h2_create(session);
    session->output_due = sh_trigger_timer(loop, on_output_due, session);
    snprintf(session->peer, sizeof(session->peer), "%s", peer);
    sh_calm_init(&session->calm, session->idle_ns);

    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, (uint32_t)opts->calls_max},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, (uint32_t)opts->header_bytes_max},
    };
    nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings, SH_COUNT_OF(settings));
    nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0, CONNECTION_WINDOW);

    struct timeval send = {opts->send_ms / 1000, opts->send_ms % 1000 * 1000};
    bufferevent_setcb(bev, on_read, on_write, on_event, session);
    bufferevent_setwatermark(bev, EV_WRITE, OUTPUT_MAX / 4, 0);
    bufferevent_set_max_single_read(bev, READ_AT_ONCE);
    bufferevent_set_timeouts(bev, NULL, &send);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
    return session;
}

/* Safe to call twice and from any callback. */
void sh_grpc_session_close(sh_grpc_session *session)
{
    if (session->dead) return;
    session->dead = true;
    bufferevent_setcb(session->bev, NULL, NULL, NULL, NULL);
    bufferevent_disable(session->bev, EV_READ | EV_WRITE);
    while (session->calls != NULL) {
        nghttp2_session_set_stream_user_data(session->h2, session->calls->stream, NULL);
        sh_grpc_call_free(session->calls);
    }
    sh_grpc_server_retire(session->server, session);
}

void sh_grpc_session_free(sh_grpc_session *session)
{
    nghttp2_session_del(session->h2);
    sh_trigger_free(session->output_due);
    bufferevent_free(session->bev);
    free(session);
}

/* What a connection without a call waits for: its start, a call, or the end of the last answer. */
static void wait_check(sh_grpc_session *session, int64_t now_ns)
{
    const sh_grpc_server_opts *opts = opts_of(session);
    int64_t waited_ms = (now_ns - session->idle_ns) / 1000000;
    int64_t most_ms = session->leaving   ? opts->send_ms
                      : session->started ? opts->idle_ms
                                         : opts->receive_ms;
    if (session->call_count > 0 || waited_ms <= most_ms) return;
    if (session->started && !session->leaving)
        sh_grpc_session_leave(session, NGHTTP2_NO_ERROR);
    else
        sh_grpc_session_close(session);
}

void sh_grpc_session_check_time(sh_grpc_session *session)
{
    int64_t now_ns = sh_clock_ns();
    for (sh_grpc_call *call = session->calls, *next; call != NULL; call = next) {
        next = call->next;
        if (call->state == CALL_HEAD && sh_deadline_passed(call->due)) {
            sh_grpc_session_close(
                session); /* a header block that does not end blocks all streams */
            return;
        }
        sh_grpc_call_check_time(call, now_ns);
    }
    wait_check(session, now_ns);
}
