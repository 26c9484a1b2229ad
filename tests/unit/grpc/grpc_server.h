/* grpc_server.h - a gRPC server in a thread of its own, and the client of it.
 *
 * Include it in one file per program. */
#ifndef SH_TESTS_UNIT_GRPC_GRPC_SERVER_H
#define SH_TESTS_UNIT_GRPC_GRPC_SERVER_H

#include "base/log.h"
#include "grpc/server.h"
#include "http/listeners.h"

#include "h2_client.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PIECE = 1000 };

static sh_loop *loop;
static sh_grpc_server *server;
static sh_trigger *stop_wake, *drain_wake;
static pthread_t loop_thread;
static atomic_int gone_count, held_count;

/* ---- what it serves ---- */

static void handle_echo(sh_http_request *req, void *arg)
{
    sh_buf out = {0};
    (void)arg;
    size_t at = sh_grpc_message_begin(&out);
    sh_buf_add_str(&out, sh_http_body(req));
    sh_grpc_message_end(&out, at);
    sh_http_reply(req, 200, "", sh_buf_str(&out));
    sh_buf_reset(&out);
}

static void handle_refuse(sh_http_request *req, void *arg)
{
    sh_buf out = {0};
    (void)arg;
    sh_grpc_status_write(SH_GRPC_FAILED_PRECONDITION, "50 % so\n", &out);
    sh_http_reply(req, 409, "", sh_buf_str(&out));
    sh_buf_reset(&out);
}

static void on_gone(void *arg)
{
    (void)arg;
    atomic_fetch_add(&gone_count, 1);
}

static void handle_hold(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_http_watch_client(req, on_gone, NULL, NULL);
    atomic_fetch_add(&held_count, 1);
}

/* Sends as many messages as the body says, as fast as the client reads, then a status. */
typedef struct {
    sh_http_request *req;
    int left;
} flow;

static void flow_free(void *arg)
{
    free(arg);
    atomic_fetch_add(&gone_count, 1);
}

static void flow_go_on(void *arg)
{
    flow *f = arg;
    sh_buf out = {0};
    char piece[PIECE] = {0};
    size_t at = sh_grpc_message_begin(&out);
    sh_buf_add(&out, piece, sizeof(piece));
    sh_grpc_message_end(&out, at);
    for (; f->left > 0 && !sh_http_stream_blocked(f->req); f->left--)
        sh_http_stream_write(f->req, sh_buf_str(&out));
    sh_buf_clear(&out);
    if (f->left == 0) {
        sh_grpc_status_write(SH_GRPC_RESOURCE_EXHAUSTED, "enough", &out);
        sh_http_stream_write(f->req, sh_buf_str(&out));
        sh_http_stream_end(f->req);
        free(f);
    }
    sh_buf_reset(&out);
}

static void handle_flow(sh_http_request *req, void *arg)
{
    flow *f = calloc(1, sizeof(*f));
    (void)arg;
    f->req = req;
    f->left = atoi(sh_http_body(req).ptr);
    sh_http_watch_client(req, flow_free, flow_go_on, f);
    sh_http_stream_start(req, 200, "");
    flow_go_on(f);
}

static const sh_http_route routes[] = {
    {.method = SH_HTTP_POST, .path = "/t.T/Echo", .handle = handle_echo},
    {.method = SH_HTTP_POST, .path = "/t.T/Refuse", .handle = handle_refuse},
    {.method = SH_HTTP_POST, .path = "/t.T/Hold", .handle = handle_hold},
    {.method = SH_HTTP_POST, .path = "/t.T/Flow", .handle = handle_flow},
};

static void on_stop(void *arg)
{
    (void)arg;
    sh_loop_stop(loop);
}

static void on_drain(void *arg)
{
    (void)arg;
    sh_grpc_server_drain(server);
}

static void *loop_main(void *arg)
{
    (void)arg;
    sh_loop_run(loop);
    return NULL;
}

static sh_grpc_server_opts server_opts(void)
{
    return (sh_grpc_server_opts){
        .connections_max = 8,
        .calls_max = 16,
        .all_calls_max = 24,
        .header_bytes_max = 4096,
        .bodies_bytes_max = 64 << 20,
        .stream_bytes_max = 64 << 10,
        .idle_ms = 60000,
        .receive_ms = 20000,
        .send_ms = 20000,
        .routes = routes,
        .route_count = SH_COUNT_OF(routes),
    };
}

static void server_start(sh_grpc_server_opts opts)
{
    sh_err err;
    sh_listeners sockets;
    char number[16];
    sh_log_set_level(SH_LOG_ERROR);
    assert_int_equal(sh_listeners_open("127.0.0.1", 0, &sockets, &err), SH_OK);
    port = sockets.port;
    snprintf(number, sizeof(number), "%d", sockets.fds[0]);
    opts.inherited = number;
    gone_count = held_count = 0;
    assert_int_equal(sh_loop_create(&loop, &err), SH_OK);
    assert_int_equal(sh_trigger_wake(loop, on_stop, NULL, &stop_wake, &err), SH_OK);
    assert_int_equal(sh_trigger_wake(loop, on_drain, NULL, &drain_wake, &err), SH_OK);
    if (sh_grpc_server_open(loop, &opts, &server, &err) != SH_OK) fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&loop_thread, NULL, loop_main, NULL), 0);
}

static void server_stop(void)
{
    sh_trigger_poke(stop_wake);
    pthread_join(loop_thread, NULL);
    sh_grpc_server_close(server);
    sh_trigger_free(stop_wake);
    sh_trigger_free(drain_wake);
    sh_loop_free(loop);
}

static inline bool becomes(const atomic_int *value, int want)
{
    sh_deadline deadline = sh_deadline_in_ms(H2_PATIENCE_MS);
    while (!sh_deadline_passed(deadline)) {
        if (atomic_load(value) == want) return true;
        sh_sleep_ms(2);
    }
    return false;
}

#endif
