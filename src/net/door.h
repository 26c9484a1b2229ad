/* door.h - where a rank takes connections: the listening sockets and whoever has knocked.
 *
 * Anybody can knock. So the number of handshakes under way is bounded, each has a deadline, and
 * when all places are taken the oldest knocker leaves: port scanners, random bytes, half-open
 * connections and peers of a byte a second cost a place for a while and nothing else.
 *
 * Threads: a door has one owner. */
#ifndef SH_NET_DOOR_H
#define SH_NET_DOOR_H

#include "net/link.h"

typedef struct sh_door sh_door;

/* Listens on all the addresses (1..SH_LANES_MAX). tls is borrowed, NULL for none. */
SH_MUST_CHECK sh_status sh_door_open(const sh_addr *addrs, int count, sh_tls *tls, int handshake_ms,
                                     sh_door **out, sh_err *err);
/* The same over a socket that listens already and is taken over. */
SH_MUST_CHECK sh_status sh_door_adopt(int fd, sh_tls *tls, int handshake_ms, sh_door **out,
                                      sh_err *err);
void sh_door_close(sh_door *door);

/* Where it really listens (ports that were 0 are known now). */
int sh_door_addrs(const sh_door *door, const sh_addr **out);

/* One step of all handshakes. SH_OK: *out has said hello and is the caller's. SH_AGAIN: nobody yet.
 */
SH_MUST_CHECK sh_status sh_door_step(sh_door *door, sh_link **out, sh_err *err);

/* Fills out, which has room for SH_DOOR_POLL_MAX; returns how many. */
enum { SH_DOOR_PENDING_MAX = 64, SH_DOOR_POLL_MAX = SH_DOOR_PENDING_MAX + SH_LANES_MAX };
int sh_door_poll(const sh_door *door, struct pollfd *out);

/* How many knockers were sent away, and in `last` why the last one; for error texts. */
int sh_door_refused(const sh_door *door, const char **last);

#endif
