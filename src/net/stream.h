/* stream.h - the bytes of one connection, in clear or inside TLS, without blocking.
 *
 * A stream may start inside TLS and go on in clear: after both ends have proved the token and said
 * what they had to say, a bulk link on a trusted cable can do without the cost. OpenSSL takes
 * exactly one record at a time from the socket, so nothing of the clear part is lost in its
 * buffers.
 *
 * Errors say what happened but not to whom; the caller puts the peer's name in front.
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
    int fd;                /* owned; -1 when closed */
    SSL *ssl;              /* owned; NULL when in clear */
    bool blocked_on_write; /* what TLS waits for, when a call said SH_AGAIN */
    uint32_t records;      /* written with the present key */
} sh_stream;

/* Takes over fd. */
void sh_stream_init(sh_stream *stream, int fd);
void sh_stream_close(sh_stream *stream); /* also twice */

/* From now on inside TLS; sh_stream_handshake until it says SH_OK. SH_ERR_AUTH when the tokens
 * differ. */
SH_MUST_CHECK sh_status sh_stream_start_tls(sh_stream *stream, sh_tls *tls, bool server,
                                            sh_err *err);
SH_MUST_CHECK sh_status sh_stream_handshake(sh_stream *stream, sh_err *err);

/* From now on in clear, without a word to the peer, who does the same at the same byte. */
void sh_stream_end_tls(sh_stream *stream);

/* Moves what can be moved now, *moved > 0 bytes of the parts in order; SH_AGAIN when nothing can.
 * SH_ERR_PEER when the connection has ended. */
SH_MUST_CHECK sh_status sh_stream_read(sh_stream *stream, const struct iovec *parts, int count,
                                       size_t *moved, sh_err *err);
SH_MUST_CHECK sh_status sh_stream_write(sh_stream *stream, const struct iovec *parts, int count,
                                        size_t *moved, sh_err *err);

/* Says that no more comes from this side; the peer reads what is under way and then the end. */
void sh_stream_shut_write(sh_stream *stream);

#endif
