/* gate.h - where a rank takes connections: the listening sockets and whoever has knocked.
 *
 * Anybody can knock. So the number of handshakes under way is bounded, for one machine and for all,
 * and each has a deadline. When the places are taken those who have said nothing leave first, then
 * those who have proved nothing: port scanners, random bytes, half-open connections and floods of
 * them do not keep a rank out. Who keeps failing to prove the token has to wait between tries.
 *
 * Threads: a gate has one owner. */
#ifndef SH_NET_GATE_H
#define SH_NET_GATE_H

#include "net/link.h"

typedef struct sh_gate sh_gate;

/* Listens on all the addresses (1..SH_LANES_MAX). tls is borrowed, NULL for none. */
SH_MUST_CHECK sh_status sh_gate_open(const sh_addr *addrs, int count, sh_tls *tls, int handshake_ms,
                                     sh_gate **out, sh_err *err);
/* The same over a socket that listens already and is taken over. */
SH_MUST_CHECK sh_status sh_gate_adopt(int fd, sh_tls *tls, int handshake_ms, sh_gate **out,
                                      sh_err *err);
void sh_gate_close(sh_gate *gate);

/* Where it really listens (ports that were 0 are known now). */
int sh_gate_addrs(const sh_gate *gate, const sh_addr **out);

/* One step of all handshakes. SH_OK: *out has said hello and is the caller's. SH_AGAIN: nobody yet.
 */
SH_MUST_CHECK sh_status sh_gate_step(sh_gate *gate, sh_link **out, sh_err *err);

/* Fills out, which has room for SH_GATE_POLL_MAX; returns how many. */
enum { SH_GATE_PENDING_MAX = 256, SH_GATE_POLL_MAX = SH_GATE_PENDING_MAX + SH_LANES_MAX };
int sh_gate_poll(const sh_gate *gate, struct pollfd *out);

/* How many knockers were sent away, and in `last` why the last one; for error texts. */
int sh_gate_refused(const sh_gate *gate, const char **last);

#endif
