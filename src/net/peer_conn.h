/* peer_conn.h - one authenticated connection between two ranks.
 *
 * It goes through these stages: TCP connect, TLS handshake (if there is a token), hello from the
 * connecting side, welcome or refusal from the accepting side. After that it carries frames, or is
 * turned into a stream for data. It never blocks: call step (and later recv and flush) when poll()
 * says so, and close it when its deadline passes.
 *
 * Nothing is sent to a peer before it has proved the token.
 *
 * Threads: a connection has one owner. */
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

/* Starts connecting; `mine` is copied, tls (NULL: plain) is borrowed for the life of the
 * connection.
 */
SH_MUST_CHECK sh_status sh_peer_conn_connect(const sh_addr *to, sh_tls *tls, const sh_hello *mine,
                                             sh_deadline deadline, sh_peer_conn **out, sh_err *err);

/* Takes ownership of an accepted connection. */
sh_peer_conn *sh_peer_conn_accept(int fd, const sh_addr *from, sh_tls *tls, sh_deadline deadline);

void sh_peer_conn_close(sh_peer_conn *conn);

/* Advances the handshake. SH_OK: an outgoing connection was welcomed and is ready; an incoming one
 * has sent its hello and waits for sh_peer_conn_welcome or sh_peer_conn_refuse. SH_ERR_AUTH: the
 * tokens differ. SH_ERR_GROUP: refused, with the peer's reason; SH_ERR_CONFLICT: because another
 * rank has this node id; SH_ERR_NOT_FOUND: because it is not the rank that was meant. SH_ERR_PEER:
 * to be tried again. SH_ERR_TIMEOUT: the deadline passed.
 */
SH_MUST_CHECK sh_status sh_peer_conn_step(sh_peer_conn *conn, sh_err *err);

/* How far the peer has come in proving that it belongs to the group. Without a token its hello is
 * the only proof. */
typedef enum { SH_STANDING_SILENT, SH_STANDING_HEARD, SH_STANDING_PROVED } sh_peer_conn_standing;
sh_peer_conn_standing sh_peer_conn_standing_of(const sh_peer_conn *conn);

/* Whether TCP has connected. */
bool sh_peer_conn_is_connected(const sh_peer_conn *conn);

/* Whether errors from now on really come from the peer: the TLS handshake is done, or there is
 * none. Before that, anybody who can inject packets may have sent an alert. */
bool sh_peer_conn_is_authenticated(const sh_peer_conn *conn);

void sh_peer_conn_welcome(sh_peer_conn *conn, const sh_hello *mine);
/* Sends the notice without waiting for it to arrive; the caller closes the connection. */
/* `answer` is REFUSE, WAIT, TAKEN, PREPARE or ELSEWHERE. */
void sh_peer_conn_refuse(sh_peer_conn *conn, sh_frame_type answer, const sh_notice *notice);

/* Refuses and closes a connection that is not meant for this rank (SH_RANK_ANY: it has no number
 * yet, and is only not rank 0). False: it is. */
bool sh_peer_conn_turn_away(sh_peer_conn *conn, int rank);

const sh_hello *sh_peer_conn_peer(const sh_peer_conn *conn); /* the peer's hello */
const char *sh_peer_conn_name(const sh_peer_conn *conn);     /* "10.0.0.1:9000", for error texts */

/* Pack frames into this buffer, then flush: SH_OK if everything was sent, SH_AGAIN if some is still
 * waiting for the socket. */
sh_buf *sh_peer_conn_out(sh_peer_conn *conn);
SH_MUST_CHECK sh_status sh_peer_conn_flush(sh_peer_conn *conn, sh_err *err);

/* The next complete frame; its payload is borrowed until the next call. SH_AGAIN: none yet. */
SH_MUST_CHECK sh_status sh_peer_conn_recv(sh_peer_conn *conn, sh_frame_head *head,
                                          const uint8_t **payload, sh_err *err);

/* Descriptor and events for poll(). */
struct pollfd sh_peer_conn_poll(const sh_peer_conn *conn);

/* Ends our direction; recv still works. */
void sh_peer_conn_shut(sh_peer_conn *conn);

/* Turns the connection into a stream and frees the rest. Nothing may be in flight in either
 * direction. */
sh_stream sh_peer_conn_release(sh_peer_conn *conn);

#endif
