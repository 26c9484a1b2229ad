/* Bytes of a gRPC client after its preface: frames of HTTP/2, headers, prefixes of messages. One
 * server gets them all, so that what a connection leaves behind is found, too. */
#include "base/log.h"
#include "grpc/session.h"
#include "http/listeners.h"
#include "http/loop_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static sh_loop *loop;
static sh_grpc_server *server;

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

static void nobody(void *arg)
{
    (void)arg;
}

static void handle_hold(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_http_watch_client(req, nobody, NULL, NULL);
}

static const sh_http_route routes[] = {
    {.method = SH_HTTP_POST, .path = "/a", .handle = handle_echo},
    {.method = SH_HTTP_POST, .path = "/b", .handle = handle_hold},
};

static void server_start(void)
{
    sh_err err;
    sh_listeners sockets;
    char number[16];
    sh_grpc_server_opts opts = {.connections_max = 4,
                                .calls_max = 8,
                                .all_calls_max = 12,
                                .header_bytes_max = 2048,
                                .bodies_bytes_max = 1 << 20,
                                .stream_bytes_max = 4096,
                                .idle_ms = 60000,
                                .receive_ms = 60000,
                                .send_ms = 60000,
                                .inherited = number,
                                .routes = routes,
                                .route_count = SH_COUNT_OF(routes)};
    sh_log_set_level(SH_LOG_ERROR);
    if (sh_loop_create(&loop, &err) != SH_OK ||
        sh_listeners_open("127.0.0.1", 0, &sockets, &err) != SH_OK)
        abort();
    snprintf(number, sizeof(number), "%d", sockets.fds[0]);
    if (sh_grpc_server_open(loop, &opts, &server, &err) != SH_OK) abort();
}

static void turn(int times)
{
    while (times-- > 0) event_base_loop(sh_loop_base(loop), EVLOOP_NONBLOCK);
}

/* The first byte says where the bytes are cut in two. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { SIZE_MAX_BYTES = 32768 };
    int ends[2];
    if (server == NULL) server_start();
    if (size < 1 || size > SIZE_MAX_BYTES) return 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0) abort();
    sh_grpc_server_take(server, ends[0], "fuzz", 1);
    size_t cut = (size - 1) * data[0] / 256;
    send(ends[1], NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN, MSG_NOSIGNAL);
    send(ends[1], data + 1, cut, MSG_NOSIGNAL);
    turn(3);
    send(ends[1], data + 1 + cut, size - 1 - cut, MSG_NOSIGNAL);
    turn(3);
    close(ends[1]);
    turn(3);
    if (sh_grpc_server_connections(server) != 0) abort();
    if (!sh_grpc_server_body_take(server, 1 << 20)) abort(); /* all bytes were given back */
    sh_grpc_server_body_release(server, 1 << 20);
    return 0;
}
