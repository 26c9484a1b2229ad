/* h2_client.h - a client of gRPC that sends whatever frames it likes, to 127.0.0.1 and `port`.
 *
 * Include it in one file per program.
 *
 * Threads: a client has one owner. */
#ifndef SH_TESTS_H2_CLIENT_H
#define SH_TESTS_H2_CLIENT_H

#include "base/buf.h"
#include "base/clock.h"
#include "grpc/frame.h"

#include "test.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { H2_PATIENCE_MS = 30000, H2_HEAD = 9 };

static int port;

typedef struct {
    int fd;
    nghttp2_hd_deflater *deflater;
    nghttp2_hd_inflater *inflater;
    uint8_t type, flags;
    int32_t stream;
    sh_buf payload; /* of the last frame */
    sh_buf headers; /* of the last block: lines "name: value" */
    bool auto_window;
} client;

static void bytes_send(const client *c, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t sent = send(c->fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the server has hung up, which is what many tests wait for */
        at += (size_t)sent;
    }
}

static void frame_send(const client *c, uint8_t type, uint8_t flags, int32_t stream,
                       const void *payload, size_t len)
{
    uint8_t head[H2_HEAD] = {(uint8_t)(len >> 16),
                             (uint8_t)(len >> 8),
                             (uint8_t)len,
                             type,
                             flags,
                             (uint8_t)(stream >> 24),
                             (uint8_t)(stream >> 16),
                             (uint8_t)(stream >> 8),
                             (uint8_t)stream};
    bytes_send(c, head, sizeof(head));
    bytes_send(c, payload, len);
}

static void client_dial(client *c)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *c = (client){.fd = socket(AF_INET, SOCK_STREAM, 0), .auto_window = true};
    int on = 1;
    assert_int_equal(connect(c->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    assert_int_equal(nghttp2_hd_deflate_new(&c->deflater, 4096), 0);
    assert_int_equal(nghttp2_hd_inflate_new(&c->inflater), 0);
}

static void client_open(client *c)
{
    client_dial(c);
    bytes_send(c, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    frame_send(c, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void client_close(client *c)
{
    close(c->fd);
    nghttp2_hd_deflate_del(c->deflater);
    nghttp2_hd_inflate_del(c->inflater);
    sh_buf_reset(&c->payload);
    sh_buf_reset(&c->headers);
}

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* A header of one's own, if name is not NULL. */
static void head_send(client *c, int32_t stream, const char *path, const char *name,
                      const char *value)
{
    uint8_t block[16384];
    nghttp2_nv list[] = {nv(":method", "POST"),
                         nv(":scheme", "http"),
                         nv(":path", path),
                         nv(":authority", "test"),
                         nv("content-type", "application/grpc"),
                         nv("te", "trailers"),
                         nv(name == NULL ? "x" : name, name == NULL ? "" : value)};
    ssize_t len = nghttp2_hd_deflate_hd(c->deflater, block, sizeof(block), list,
                                        SH_COUNT_OF(list) - (name == NULL ? 1 : 0));
    assert_true(len > 0);
    frame_send(c, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, block, (size_t)len);
}

/* In frames of at most 16 KiB, as the protocol wants. */
static void message_send(const client *c, int32_t stream, const void *data, size_t len)
{
    enum { MOST = 16384 };
    uint8_t prefix[SH_GRPC_PREFIX] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
                                      (uint8_t)(len >> 8), (uint8_t)len};
    frame_send(c, NGHTTP2_DATA, len == 0 ? NGHTTP2_FLAG_END_STREAM : 0, stream, prefix,
               sizeof(prefix));
    for (size_t at = 0; at < len; at += MOST) {
        size_t part = len - at < MOST ? len - at : MOST;
        frame_send(c, NGHTTP2_DATA, at + part == len ? NGHTTP2_FLAG_END_STREAM : 0, stream,
                   (const char *)data + at, part);
    }
}

static inline void call_send(client *c, int32_t stream, const char *path, const char *message)
{
    head_send(c, stream, path, NULL, NULL);
    message_send(c, stream, message, strlen(message));
}

static bool bytes_read(const client *c, void *to, size_t len)
{
    sh_deadline deadline = sh_deadline_in_ms(H2_PATIENCE_MS);
    for (size_t at = 0; at < len;) {
        struct pollfd p = {.fd = c->fd, .events = POLLIN};
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) == 0) fail_msg("the server says nothing");
        ssize_t got = recv(c->fd, (char *)to + at, len - at, 0);
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}

static void headers_read(client *c)
{
    const uint8_t *in = (const uint8_t *)c->payload.ptr;
    size_t left = c->payload.len;
    int flags = 0;
    sh_buf_clear(&c->headers);
    while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
        nghttp2_nv pair;
        ssize_t used = nghttp2_hd_inflate_hd2(c->inflater, &pair, &flags, in, left, 1);
        assert_true(used >= 0);
        in += used;
        left -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0)
            sh_buf_addf(&c->headers, "%.*s: %.*s\n", (int)pair.namelen, pair.name,
                        (int)pair.valuelen, pair.value);
    }
    nghttp2_hd_inflate_end_headers(c->inflater);
}

static void window_open(const client *c, int32_t stream, uint32_t bytes)
{
    uint32_t wire = htonl(bytes);
    frame_send(c, NGHTTP2_WINDOW_UPDATE, 0, stream, &wire, sizeof(wire));
}

/* The next frame; false at the end of the connection. */
static bool frame_read(client *c)
{
    uint8_t head[H2_HEAD];
    if (!bytes_read(c, head, sizeof(head))) return false;
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    c->type = head[3];
    c->flags = head[4];
    c->stream = (int32_t)((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 |
                          (uint32_t)head[7] << 8 | head[8]);
    sh_buf_clear(&c->payload);
    if (!bytes_read(c, sh_buf_reserve(&c->payload, len + 1), len)) return false;
    c->payload.len = len;
    c->payload.ptr[len] = '\0';
    if (c->type == NGHTTP2_HEADERS) headers_read(c);
    if (c->type == NGHTTP2_DATA && len > 0 && c->auto_window) {
        window_open(c, 0, (uint32_t)len);
        window_open(c, c->stream, (uint32_t)len);
    }
    return true;
}

/* Reads until a frame of this type; false: the connection ended first. */
static inline bool frame_await(client *c, uint8_t type)
{
    while (frame_read(c))
        if (c->type == type) return true;
    return false;
}

/* Reads the answer of a stream to its end; its DATA is in *out, the trailers in c->headers. */
static void answer_read(client *c, int32_t stream, sh_buf *out)
{
    sh_buf_clear(out);
    for (;;) {
        if (!frame_read(c)) fail_msg("the connection ended before the answer");
        if (c->stream != stream) continue;
        if (c->type == NGHTTP2_DATA) sh_buf_add(out, c->payload.ptr, c->payload.len);
        if (c->type == NGHTTP2_HEADERS && (c->flags & NGHTTP2_FLAG_END_STREAM) != 0) return;
    }
}

static void check_trailer(const client *c, const char *line)
{
    if (c->headers.len == 0 || strstr(c->headers.ptr, line) == NULL)
        fail_msg("no '%s' in '%s'", line, c->headers.len == 0 ? "" : c->headers.ptr);
}

/* The code of GOAWAY. */
static inline uint32_t goaway_code(const client *c)
{
    uint32_t code;
    assert_true(c->payload.len >= 8);
    memcpy(&code, c->payload.ptr + 4, sizeof(code));
    return ntohl(code);
}

#endif
