/* acceptor.h - the listening sockets of a rank and the handshakes in progress on them.
 *
 * Anybody can connect. So the number of handshakes in progress is bounded, per machine and in
 * total, and each has a deadline. When all slots are taken, connections that have sent nothing are
 * dropped first, then those that have proved nothing: port scanners, garbage, half-open connections
 * and floods of them do not keep a rank out. A machine that keeps failing to prove the token has to
 * wait between attempts.
 *
 * Threads: an acceptor has one owner. */
#ifndef SH_NET_ACCEPTOR_H
#define SH_NET_ACCEPTOR_H

#include "net/peer_conn.h"

typedef struct sh_acceptor sh_acceptor;

/* Listens on all of the addresses (1..SH_LANES_MAX). tls is borrowed, NULL for none. */
SH_MUST_CHECK sh_status sh_acceptor_open(const sh_addr *addrs, int count, sh_tls *tls,
                                         int handshake_ms, sh_acceptor **out, sh_err *err);
/* The same on a socket that is already listening; takes ownership of it. */
SH_MUST_CHECK sh_status sh_acceptor_adopt(int fd, sh_tls *tls, int handshake_ms, sh_acceptor **out,
                                          sh_err *err);
void sh_acceptor_close(sh_acceptor *acceptor);

/* The addresses it listens on, with the actual port where 0 was given. */
int sh_acceptor_addrs(const sh_acceptor *acceptor, const sh_addr **out);

/* Advances all handshakes. SH_OK: *out has sent its hello and is now owned by the caller. SH_AGAIN:
 * none is complete yet. */
SH_MUST_CHECK sh_status sh_acceptor_step(sh_acceptor *acceptor, sh_peer_conn **out, sh_err *err);

/* Fills out, which has space for SH_ACCEPTOR_POLL_MAX entries; returns their number. */
enum {
    SH_ACCEPTOR_PENDING_MAX = 256,
    SH_ACCEPTOR_POLL_MAX = SH_ACCEPTOR_PENDING_MAX + SH_LANES_MAX
};
int sh_acceptor_poll(const sh_acceptor *acceptor, struct pollfd *out);

/* Counts a connection that the caller refuses, and logs it; of a flood only the first few. */
void sh_acceptor_note_refusal(sh_acceptor *acceptor, const sh_peer_conn *conn, const char *why);

/* How many connections were refused, and in `last` why the last one was; for error texts. */
int sh_acceptor_refused(const sh_acceptor *acceptor, const char **last);

#endif
