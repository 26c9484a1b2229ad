/* served_api.h - the whole API in this process, with a scripted engine, and a client for it.
 *
 * Include it in one file per program.
 *
 * Threads: the API has a thread of its own; the tests call what follows. */
#ifndef SH_TESTS_UNIT_API_SERVED_API_H
#define SH_TESTS_UNIT_API_SERVED_API_H

#include "api/api_internal.h"

#include "scripted_engine.h"

#include <arpa/inet.h>
#include <signal.h>

#define KEY "of-a-test-0123456789"
#define OTHER_KEY "of-another-test-0123456789"

enum { BODY_MAX = 4096, PATIENCE_MS = 30000 };

static sh_served_model *served;
static sh_api_opts api_opts;
static const char *api_keeper_path; /* of several models; NULL: there is one */
static int api_control_fd;          /* of a supervisor; 0: none */
static pthread_t api_thread;

static void *api_main(void *arg)
{
    sh_err err;
    if (sh_api_run_endpoints(&api_opts, arg, &err) != SH_OK) fprintf(stderr, "%s\n", err.text);
    return NULL;
}

/* ---- clients ---- */

static int dial(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)api_opts.port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) return fd;
    close(fd);
    return -1;
}

/* What arrives until the server closes. */
static void hear(int fd, sh_buf *out)
{
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    char bytes[4096];
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) == 0)
            fail_msg("only '%s' came", out->len == 0 ? "" : out->ptr);
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got <= 0) break;
        sh_buf_add(out, bytes, (size_t)got);
    }
}

static const char *more_headers = ""; /* of the next requests */

/* HTTP/1.0, so that a stream comes without chunks. */
static int request_send(const char *method, const char *path, const char *key, const char *body)
{
    int fd = dial();
    char text[2 * BODY_MAX];
    int len = snprintf(
        text, sizeof(text),
        "%s %s HTTP/1.0\r\nAuthorization: Bearer %s\r\n%sContent-Length: %zu\r\n\r\n%s", method,
        path, key, more_headers, strlen(body), body);
    assert_true(fd >= 0 && len < (int)sizeof(text));
    assert_int_equal(send(fd, text, (size_t)len, MSG_NOSIGNAL), len);
    return fd;
}

static sh_buf reply; /* the last one */

static void request_as(const char *key, const char *method, const char *path, const char *body)
{
    int fd = request_send(method, path, key, body);
    sh_buf_clear(&reply);
    hear(fd, &reply);
    close(fd);
}

static void request(const char *method, const char *path, const char *body)
{
    request_as(KEY, method, path, body);
}

static const char *body_of(const char *text)
{
    const char *end = strstr(text, "\r\n\r\n");
    return end == NULL ? "(no body)" : end + 4;
}

static void check_status(int status)
{
    char line[32];
    snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
    if (strncmp(reply.ptr, line, strlen(line)) != 0) fail_msg("not %d: %s", status, reply.ptr);
}

static inline void check_reply(int status, const char *body)
{
    check_status(status);
    assert_string_equal(body_of(reply.ptr), body);
}

static inline void check_holds(const char *part)
{
    if (strstr(reply.ptr, part) == NULL) fail_msg("no '%s' in '%s'", part, reply.ptr);
}

/* These parts, in this order. */
static inline void check_sequence(const char *const *parts, size_t count)
{
    const char *at = reply.ptr;
    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, parts[i]);
        if (found == NULL) fail_msg("no '%s' in '%s'", parts[i], at);
        at = found + strlen(parts[i]);
    }
}

#define CHECK_SEQUENCE(...)                                                                        \
    check_sequence((const char *const[]){__VA_ARGS__},                                             \
                   SH_COUNT_OF(((const char *const[]){__VA_ARGS__})))

/* ---- setup ---- */

static int free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    close(fd);
    return ntohs(addr.sin_port);
}

static void ready_await(void)
{
    sh_deadline deadline = sh_deadline_in_ms(PATIENCE_MS);
    while (!sh_deadline_passed(deadline)) {
        int fd = dial();
        if (fd >= 0) close(fd);
        if (fd >= 0) request("GET", "/health", "");
        if (fd >= 0 && strncmp(reply.ptr, "HTTP/1.1 200 ", 13) == 0) return;
        usleep(20000);
    }
    fail_msg("the API did not come up");
}

static void api_serve(const sh_endpoint_table *endpoints, const engine_script *scripts)
{
    sh_err err;
    sh_engine_info info = {.model_dir = ENGINE_MODEL, .vocab = 4096, .context = 2048};
    CHECK_OK(sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err), err);
    engine_start(scripts, sh_served_model_tokenizer(served));
    api_opts = (sh_api_opts){.host = "127.0.0.1",
                             .port = free_port(),
                             .socket_path = engine.path,
                             .keeper_path = api_keeper_path,
                             .replay_s = api_keeper_path == NULL ? 0 : 60,
                             .reasoning_parser = "think",
                             .api_keys = KEY "," OTHER_KEY,
                             .grace_s = 2,
                             .control_fd = api_control_fd,
                             .connections_max = 16,
                             .header_bytes_max = 8192,
                             .body_bytes_max = BODY_MAX - 1,
                             .bodies_bytes_max = 1 << 20,
                             .idle_s = 10,
                             .receive_s = 10,
                             .send_s = 10};
    void *table = (void *)(uintptr_t)endpoints;
    assert_int_equal(pthread_create(&api_thread, NULL, api_main, table), 0);
    ready_await();
}

static void api_serve_end(void)
{
    kill(getpid(), SIGTERM);
    pthread_join(api_thread, NULL);
    engine_stop();
    sh_served_model_close(served);
    sh_buf_reset(&reply);
}

#endif
