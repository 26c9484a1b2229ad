/* stream.h - a non-blocking byte stream over one connection, plain or TLS.
 *
 * A stream may start with TLS and continue in plain text: once both ends have proved the token and
 * exchanged their hellos, a bulk connection on a trusted cable can do without the cost. OpenSSL
 * reads exactly one record at a time from the socket, so none of the plain bytes are lost in its
 * buffers.
 *
 * Error texts do not name the peer; the caller adds it as a prefix.
 *
 * Threads: a stream has one owner. */
#ifndef SH_NET_STREAM_H
#define SH_NET_STREAM_H

#include "base/status.h"
#include "net/tls.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

typedef struct {
    int fd;                /* owned; -1 if closed */
    SSL *ssl;              /* owned; NULL if plain */
    bool blocked_on_write; /* after SH_AGAIN: TLS waits to write, not to read */
    uint32_t records;      /* TLS records written with the current key */
} sh_stream;

/* Takes ownership of fd. */
void sh_stream_init(sh_stream *stream, int fd);
void sh_stream_close(sh_stream *stream); /* may be called twice */

/* Switches to TLS; then call sh_stream_handshake until it returns SH_OK. SH_ERR_AUTH if the tokens
 * differ. */
SH_MUST_CHECK sh_status sh_stream_start_tls(sh_stream *stream, sh_tls *tls, bool server,
                                            sh_err *err);
SH_MUST_CHECK sh_status sh_stream_handshake(sh_stream *stream, sh_err *err);

/* Switches to plain text without notifying the peer, which must do the same at the same byte. */
void sh_stream_end_tls(sh_stream *stream);

/* Transfers what can be transferred now, *moved > 0 bytes of the parts in order; SH_AGAIN if
 * nothing can, SH_ERR_PEER if the connection has ended. */
SH_MUST_CHECK sh_status sh_stream_read(sh_stream *stream, const struct iovec *parts, int count,
                                       size_t *moved, sh_err *err);
SH_MUST_CHECK sh_status sh_stream_write(sh_stream *stream, const struct iovec *parts, int count,
                                        size_t *moved, sh_err *err);

/* Transfers all of it, waiting as long as bytes keep moving. SH_ERR_TIMEOUT: none did for idle_ms.
 * SH_ERR_GROUP: stop_fd (-1: none) became readable. */
SH_MUST_CHECK sh_status sh_stream_recv(sh_stream *stream, void *data, size_t len, int stop_fd,
                                       int idle_ms, sh_err *err);
SH_MUST_CHECK sh_status sh_stream_send(sh_stream *stream, struct iovec *parts, int count,
                                       int stop_fd, int idle_ms, sh_err *err);

/* Ends our direction; the peer reads what is in flight and then end of file. */
void sh_stream_shut_write(sh_stream *stream);

#endif
