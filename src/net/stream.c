/* Two things about OpenSSL shape this file. Its error queue is per thread and sticky, so it is
 * cleared before every call, and errno with it; otherwise SSL_get_error reports an old failure of
 * another connection. And one SSL_write becomes at least one record, which costs more than 20 bytes
 * and a pass of the cipher: a small header is therefore copied in front of the body, to share its
 * record. */
#include "net/stream.h"

#include "net/sock.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECORD_MAX = 16384, /* the payload of one TLS record */
    /* AES-GCM is safe for about 2^24 full records under one key. */
    RECORDS_PER_KEY = 1 << 22,
};

void sh_stream_init(sh_stream *stream, int fd)
{
    *stream = (sh_stream){.fd = fd};
}

void sh_stream_end_tls(sh_stream *stream)
{
    SSL_free(stream->ssl);
    stream->ssl = NULL;
}

void sh_stream_close(sh_stream *stream)
{
    sh_stream_end_tls(stream);
    sh_sock_close(stream->fd);
    stream->fd = -1;
}

sh_status sh_stream_start_tls(sh_stream *stream, sh_tls *tls, bool server, sh_err *err)
{
    return sh_tls_connection(tls, stream->fd, server, &stream->ssl, err);
}

static sh_status closed(sh_err *err)
{
    return sh_err_set(err, SH_ERR_PEER, "the peer closed the connection");
}

static sh_status broken(sh_err *err)
{
    if (errno == EAGAIN || errno == EINTR) return SH_AGAIN;
    sh_err_sys(err, "connection");
    return err->status = SH_ERR_PEER;
}

/* The status for an OpenSSL call that returned rc <= 0. */
static sh_status tls_result(sh_stream *stream, int rc, const char *what, sh_err *err)
{
    switch (SSL_get_error(stream->ssl, rc)) {
    case SSL_ERROR_WANT_READ: stream->blocked_on_write = false; return SH_AGAIN;
    case SSL_ERROR_WANT_WRITE: stream->blocked_on_write = true; return SH_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return closed(err);
    case SSL_ERROR_SYSCALL: return errno == 0 ? closed(err) : broken(err);
    default: break;
    }
    /* OpenSSL 3 reports a connection closed without close_notify as a protocol error. A process
     * that was killed closes like that, so it is not suspicious here. */
    if (ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        ERR_clear_error();
        return closed(err);
    }
    return sh_tls_error(what, err);
}

sh_status sh_stream_handshake(sh_stream *stream, sh_err *err)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_do_handshake(stream->ssl);
    if (rc != 1) return tls_result(stream, rc, "TLS handshake", err);
    if (!sh_tls_is_proven(stream->ssl))
        return sh_err_set(err, SH_ERR_AUTH, "TLS handshake: the peer did not prove the token");
    return SH_OK;
}

static sh_status tls_read(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                          sh_err *err)
{
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        for (size_t done = 0, got; done < parts[i].iov_len; done += got, total += got) {
            ERR_clear_error();
            errno = 0;
            int rc = SSL_read_ex(stream->ssl, (char *)parts[i].iov_base + done,
                                 parts[i].iov_len - done, &got);
            if (rc == 1) continue;
            if (total > 0) goto some; /* report the bytes; the next call returns the error again */
            return tls_result(stream, rc, "TLS", err);
        }
    }
some:
    *moved = total;
    return SH_OK;
}

/* Up to one record from the start of the parts, as contiguous bytes; copied to buf only if the
 * first part, usually a header, does not fill a record by itself. */
static const void *gather_record(const struct iovec *parts, int count, char *buf, size_t *len)
{
    int first = 0;
    while (first < count - 1 && parts[first].iov_len == 0) first++;
    if (first == count - 1 || parts[first].iov_len >= RECORD_MAX) {
        *len = parts[first].iov_len < RECORD_MAX ? parts[first].iov_len : RECORD_MAX;
        return parts[first].iov_base;
    }
    size_t used = 0;
    for (int i = first; i < count && used < RECORD_MAX; i++) {
        size_t part = parts[i].iov_len < RECORD_MAX - used ? parts[i].iov_len : RECORD_MAX - used;
        if (part > 0) memcpy(buf + used, parts[i].iov_base, part);
        used += part;
    }
    *len = used;
    return buf;
}

static sh_status tls_write(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                           sh_err *err)
{
    char buf[RECORD_MAX];
    size_t len;
    const void *data = gather_record(parts, count, buf, &len);
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write_ex(stream->ssl, data, len, moved);
    if (rc != 1) return tls_result(stream, rc, "TLS", err);
    if (++stream->records >= RECORDS_PER_KEY &&
        SSL_key_update(stream->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        stream->records = 0;
    return SH_OK;
}

sh_status sh_stream_read(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                         sh_err *err)
{
    if (stream->ssl != NULL) return tls_read(stream, parts, count, moved, err);
    ssize_t got = readv(stream->fd, parts, count);
    if (got == 0) return closed(err);
    if (got < 0) return broken(err);
    *moved = (size_t)got;
    return SH_OK;
}

sh_status sh_stream_write(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                          sh_err *err)
{
    if (stream->ssl != NULL) return tls_write(stream, parts, count, moved, err);
    struct msghdr msg = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};
    ssize_t put = sendmsg(stream->fd, &msg, MSG_NOSIGNAL);
    if (put < 0) return broken(err);
    *moved = (size_t)put;
    return SH_OK;
}

/* Sleeps until the stream may move bytes again. */
static sh_status stream_wait(const sh_stream *stream, bool write, int stop_fd, int idle_ms,
                             sh_err *err)
{
    if (stream->ssl != NULL) write = stream->blocked_on_write;
    struct pollfd fds[2] = {{.fd = stream->fd, .events = write ? POLLOUT : POLLIN},
                            {.fd = stop_fd, .events = POLLIN}};
    int count = poll(fds, 2, idle_ms);
    if (count < 0 && errno != EINTR) return sh_err_sys(err, "poll");
    if (fds[1].revents != 0) return sh_err_set(err, SH_ERR_GROUP, "the group has ended");
    if (count == 0)
        return sh_err_set(err, SH_ERR_TIMEOUT, "nothing was %s for %g s",
                          write ? "taken" : "received", idle_ms / 1000.0);
    return SH_OK;
}

sh_status sh_stream_recv(sh_stream *stream, void *data, size_t len, int stop_fd, int idle_ms,
                         sh_err *err)
{
    size_t done = 0, moved;
    sh_status status = SH_OK;
    while (status == SH_OK && done < len) {
        struct iovec part = {(char *)data + done, len - done};
        status = sh_stream_read(stream, &part, 1, &moved, err);
        if (status == SH_OK) done += moved;
        if (status == SH_AGAIN) status = stream_wait(stream, false, stop_fd, idle_ms, err);
    }
    return status;
}

sh_status sh_stream_send(sh_stream *stream, struct iovec *parts, int count, int stop_fd,
                         int idle_ms, sh_err *err)
{
    size_t moved;
    sh_status status = SH_OK;
    while (status == SH_OK && count > 0) {
        status = sh_stream_write(stream, parts, count, &moved, err);
        if (status == SH_AGAIN) {
            status = stream_wait(stream, true, stop_fd, idle_ms, err);
            continue;
        }
        for (; status == SH_OK && count > 0 && moved >= parts->iov_len; parts++, count--)
            moved -= parts->iov_len;
        if (status == SH_OK && count > 0) {
            parts->iov_base = (char *)parts->iov_base + moved;
            parts->iov_len -= moved;
        }
    }
    return status;
}

void sh_stream_shut_write(sh_stream *stream)
{
    if (stream->ssl != NULL) SSL_shutdown(stream->ssl);
    if (stream->fd >= 0) shutdown(stream->fd, SHUT_WR);
}
