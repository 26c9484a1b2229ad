/* peer_conn.h - one connection between two ranks that know who the other is.
 *
 * A link goes through: TCP connect, TLS handshake (when there is a token), hello from the dialling
 * side, welcome or refusal from the other. After that it carries frames, or is turned into a plain
 * stream for data. It never blocks: call step (and later recv and flush) when poll() says so, and
 * give it up when its deadline passes.
 *
 * Nothing is said to a peer before it has proved the token.
 *
 * Threads: a link has one owner. */
#ifndef SH_NET_PEER_CONN_H
#define SH_NET_PEER_CONN_H

#include "base/clock.h"
#include "base/status.h"
#include "net/addr.h"
#include "net/peer_messages.h"
#include "net/stream.h"
#include "net/tls.h"

#include <poll.h>

typedef struct sh_peer_conn sh_peer_conn;

/* Starts to connector; `mine` is copied, tls (NULL: in clear) is borrowed for the life of the link.
 */
SH_MUST_CHECK sh_status sh_peer_conn_connect(const sh_addr *to, sh_tls *tls, const sh_hello *mine,
                                             sh_deadline deadline, sh_peer_conn **out, sh_err *err);

/* Takes over a connection that was accepted. */
sh_peer_conn *sh_peer_conn_take(int fd, const sh_addr *from, sh_tls *tls, sh_deadline deadline);

void sh_peer_conn_close(sh_peer_conn *conn);

/* Progress of the opening. SH_OK: a dialled link is welcome and ready; an accepted one has said
 * hello and waits for sh_peer_conn_welcome or sh_peer_conn_refuse. SH_ERR_AUTH: tokens differ.
 * SH_ERR_GROUP: refused, with the other side's reason. SH_ERR_TIMEOUT: the deadline passed. */
SH_MUST_CHECK sh_status sh_peer_conn_step(sh_peer_conn *conn, sh_err *err);

/* How far the other end has come in showing that it belongs to us. Without a token its hello is all
 * the proof there is. */
typedef enum { SH_STANDING_SILENT, SH_STANDING_HEARD, SH_STANDING_PROVED } sh_peer_conn_standing;
sh_peer_conn_standing sh_peer_conn_standing_of(const sh_peer_conn *conn);

/* Whether a dialled link has its connection. */
bool sh_peer_conn_is_connected(const sh_peer_conn *conn);

/* Whether what comes from the other end is its own word: the TLS handshake is done, or there is
 * none. Before that, anybody on the way can have sent an alert. */
bool sh_peer_conn_is_vouched(const sh_peer_conn *conn);

void sh_peer_conn_welcome(sh_peer_conn *conn, const sh_hello *mine);
/* The text reaches the peer if it listens; the caller closes the link. */
void sh_peer_conn_refuse(sh_peer_conn *conn, const sh_notice *notice);

const sh_hello *
sh_peer_conn_peer(const sh_peer_conn *conn);             /* what the other side said of itself */
const char *sh_peer_conn_name(const sh_peer_conn *conn); /* "10.0.0.1:9000", for error texts */

/* Frames to send are packed into this buffer, then flushed: SH_OK when all is out, SH_AGAIN when
 * some waits for the socket. */
sh_buf *sh_peer_conn_out(sh_peer_conn *conn);
SH_MUST_CHECK sh_status sh_peer_conn_flush(sh_peer_conn *conn, sh_err *err);

/* The next whole frame; its payload is borrowed until the next call. SH_AGAIN: not here yet. */
SH_MUST_CHECK sh_status sh_peer_conn_recv(sh_peer_conn *conn, sh_frame_head *head,
                                          const uint8_t **payload, sh_err *err);

/* Descriptor and events for poll(). */
struct pollfd sh_peer_conn_poll(const sh_peer_conn *conn);

/* Says that no more comes from this side; recv still works. */
void sh_peer_conn_shut(sh_peer_conn *conn);

/* Hands the connection over as a stream and frees the link. Both sides must have nothing under way.
 */
sh_stream sh_peer_conn_release(sh_peer_conn *conn);

#endif
