/* acceptor.h - where a rank takes connections: the listening sockets and whoever has knocked.
 *
 * Anybody can knock. So the number of handshakes under way is bounded, for one machine and for all,
 * and each has a deadline. When the places are taken those who have said nothing leave first, then
 * those who have proved nothing: port scanners, random bytes, half-open connections and floods of
 * them do not keep a rank out. Who keeps failing to prove the token has to wait between tries.
 *
 * Threads: a acceptor has one owner. */
#ifndef SH_NET_ACCEPTOR_H
#define SH_NET_ACCEPTOR_H

#include "net/peer_conn.h"

typedef struct sh_acceptor sh_acceptor;

/* Listens on all the addresses (1..SH_LANES_MAX). tls is borrowed, NULL for none. */
SH_MUST_CHECK sh_status sh_acceptor_open(const sh_addr *addrs, int count, sh_tls *tls,
                                         int handshake_ms, sh_acceptor **out, sh_err *err);
/* The same over a socket that listens already and is taken over. */
SH_MUST_CHECK sh_status sh_acceptor_adopt(int fd, sh_tls *tls, int handshake_ms, sh_acceptor **out,
                                          sh_err *err);
void sh_acceptor_close(sh_acceptor *acceptor);

/* Where it really listens (ports that were 0 are known now). */
int sh_acceptor_addrs(const sh_acceptor *acceptor, const sh_addr **out);

/* One step of all handshakes. SH_OK: *out has said hello and is the caller's. SH_AGAIN: nobody yet.
 */
SH_MUST_CHECK sh_status sh_acceptor_step(sh_acceptor *acceptor, sh_peer_conn **out, sh_err *err);

/* Fills out, which has room for SH_ACCEPTOR_POLL_MAX; returns how many. */
enum {
    SH_ACCEPTOR_PENDING_MAX = 256,
    SH_ACCEPTOR_POLL_MAX = SH_ACCEPTOR_PENDING_MAX + SH_LANES_MAX
};
int sh_acceptor_poll(const sh_acceptor *acceptor, struct pollfd *out);

/* How many knockers were sent away, and in `last` why the last one; for error texts. */
int sh_acceptor_refused(const sh_acceptor *acceptor, const char **last);

#endif
