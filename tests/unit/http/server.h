/* server.h - a server in a thread of its own, and clients that send raw bytes.
 *
 * For the tests of this folder. Include it in one file per program. */
#ifndef SH_TESTS_UNIT_HTTP_SERVER_H
#define SH_TESTS_UNIT_HTTP_SERVER_H

#include "base/clock.h"
#include "http/server.h"

#include "test.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LATER_MS = 150, PIECES = 4, PIECE_MS = 30, ANSWER_MAX = 1 << 16, PATIENCE_MS = 25000 };

static sh_loop *loop;
static sh_http_server *server;
static sh_trigger *stop_wake;
static pthread_t loop_thread;
static atomic_int gone_count;
static atomic_int late_count; /* requests that a handler has not answered at once */

/* ---- what it serves ---- */

typedef struct {
    sh_http_request *req;
    sh_trigger *timer;
    int pieces;
} late;

static void late_free(late *l)
{
    sh_trigger_free(l->timer);
    free(l);
}

static void on_gone(void *arg)
{
    late_free(arg);
    atomic_fetch_add(&gone_count, 1);
}

static void on_later(void *arg)
{
    late *l = arg;
    sh_http_request *req = l->req;
    late_free(l);
    sh_http_reply(req, 200, "text/plain", SH_STR("at last"));
}

static void on_piece(void *arg)
{
    late *l = arg;
    sh_http_request *req = l->req;
    if (l->pieces++ < PIECES) {
        sh_http_stream_write(req, SH_STR("piece "));
        sh_trigger_start(l->timer, PIECE_MS);
        return;
    }
    late_free(l);
    sh_http_stream_end(req);
}

static void late_start(sh_http_request *req, sh_trigger_fn fn, int64_t wait_ms)
{
    late *l = calloc(1, sizeof(*l));
    l->req = req;
    l->timer = sh_trigger_timer(loop, fn, l);
    sh_http_watch_client(req, on_gone, NULL, l);
    sh_trigger_start(l->timer, wait_ms);
    atomic_fetch_add(&late_count, 1);
}

static void handle_now(sh_http_request *req, void *arg)
{
    (void)arg;
    char text[64];
    snprintf(text, sizeof(text), "body %zu client %llx trusted %d", sh_http_body(req).len,
             (unsigned long long)sh_http_client_of(req), sh_http_is_trusted(req));
    sh_http_reply(req, 200, "text/plain", sh_str_of(text));
}

static void handle_later(sh_http_request *req, void *arg)
{
    (void)arg;
    late_start(req, on_later, LATER_MS);
}

static void handle_never(sh_http_request *req, void *arg)
{
    (void)arg;
    late_start(req, on_later, 60000);
}

static void handle_stream(sh_http_request *req, void *arg)
{
    (void)arg;
    sh_http_stream_start(req, 200, "text/plain");
    late_start(req, on_piece, PIECE_MS);
}

static void on_refused(void *arg, sh_http_request *req, int status, const char *message)
{
    (void)arg;
    char text[SH_ERR_TEXT_MAX + 8];
    snprintf(text, sizeof(text), "%d %s", status, message);
    sh_http_reply(req, status, "text/plain", sh_str_of(text));
}

static const sh_http_route routes[] = {
    {.method = SH_HTTP_GET, .path = "/now", .handle = handle_now},
    {.method = SH_HTTP_GET, .path = "/open", .open = true, .handle = handle_now},
    {.method = SH_HTTP_POST, .path = "/now", .handle = handle_now},
    {.method = SH_HTTP_POST, .path = "/later", .handle = handle_later},
    {.method = SH_HTTP_GET, .path = "/later", .handle = handle_later},
    {.method = SH_HTTP_GET, .path = "/never", .handle = handle_never},
    {.method = SH_HTTP_GET, .path = "/stream", .handle = handle_stream},
};

static void on_stop(void *arg)
{
    (void)arg;
    sh_loop_stop(loop);
}

static void *loop_main(void *arg)
{
    (void)arg;
    sh_loop_run(loop);
    return NULL;
}

/* What a test changes; the rest is as in production, with shorter timeouts. */
static sh_http_server_opts server_opts(void)
{
    return (sh_http_server_opts){.host = "127.0.0.1",
                                 .connections_max = 64,
                                 .header_bytes_max = 8192,
                                 .body_bytes_max = 4 << 20,
                                 .bodies_bytes_max = 16 << 20,
                                 .stream_bytes_max = 1 << 16,
                                 .idle_ms = 30000,
                                 .receive_ms = 30000,
                                 .send_ms = 30000,
                                 .check_host = true,
                                 .routes = routes,
                                 .route_count = SH_COUNT_OF(routes),
                                 .refused = on_refused};
}

static void serve(const sh_http_server_opts *opts)
{
    sh_err err;
    CHECK_OK(sh_loop_create(&loop, &err), err);
    CHECK_OK(sh_http_server_open(loop, opts, &server, &err), err);
    CHECK_OK(sh_trigger_wake(loop, on_stop, NULL, &stop_wake, &err), err);
    assert_int_equal(pthread_create(&loop_thread, NULL, loop_main, NULL), 0);
}

static void serve_end(void)
{
    sh_trigger_poke(stop_wake);
    pthread_join(loop_thread, NULL);
    sh_http_server_close(server);
    sh_trigger_free(stop_wake);
    sh_loop_free(loop);
}

/* ---- clients ---- */

static int dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)sh_http_server_port(server)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Everything received until the server closes, `enough` occurs in it, or the time is over. A reset
 * appears as "(reset)". */
static const char *hear(int fd, const char *enough)
{
    static char text[ANSWER_MAX];
    size_t len = 0;
    text[0] = '\0';
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    while (len < sizeof(text) - 16 && (enough == NULL || strstr(text, enough) == NULL)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) == 0) fail_msg("only '%s' came", text);
        ssize_t got = recv(fd, text + len, sizeof(text) - 16 - len, 0);
        if (got < 0) strcpy(text + len, "(reset)");
        if (got <= 0) break;
        len += (size_t)got;
        text[len] = '\0';
    }
    return text;
}

static void check_hears(int fd, const char *enough)
{
    const char *text = hear(fd, enough);
    if (strstr(text, enough) == NULL) fail_msg("no '%s' in '%s'", enough, text);
}

/* One request over a connection of its own, and its complete answer. */
static const char *ask(const char *request)
{
    int fd = dial();
    say(fd, request);
    shutdown(fd, SHUT_WR);
    const char *text = hear(fd, NULL);
    close(fd);
    return text;
}

static void check_asked(const char *request, const char *part)
{
    const char *text = ask(request);
    if (strstr(text, part) == NULL)
        fail_msg("no '%s' in the answer to '%s': '%s'", part, request, text);
}

static int64_t now_ms(void)
{
    return sh_clock_ns() / 1000000;
}

#endif
