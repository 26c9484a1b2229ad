/* multicast.h - sockets for packets of discovery, over IPv4 and IPv6, on all interfaces.
 *
 * Interfaces are read anew each time, since they come and go. One that refuses is passed over: the
 * packet goes out on the others.
 *
 * Threads: one owner. */
#ifndef SH_DISCOVER_MULTICAST_H
#define SH_DISCOVER_MULTICAST_H

#include "base/status.h"
#include "net/addr.h"

#include <poll.h>

enum { SH_DISCOVER_PORT = 32322 }; /* UDP */

typedef struct {
    int fd[2]; /* IPv4, IPv6; -1 where there is none */
} sh_multicast;

/* For those who listen: bound to the port, which several processes of a machine may share. */
SH_MUST_CHECK sh_status sh_multicast_listen(sh_multicast *out, sh_err *err);

/* For those who search: any port. */
SH_MUST_CHECK sh_status sh_multicast_open(sh_multicast *out, sh_err *err);
void sh_multicast_close(sh_multicast *m);

/* Listens on all interfaces that there are now; returns how many. */
int sh_multicast_join(const sh_multicast *m);

/* Sends to the groups on all interfaces, and to this machine. Returns how many packets went out. */
int sh_multicast_send(const sh_multicast *m, const void *data, size_t len);

/* Fills out, which has space for two; returns the count. */
int sh_multicast_poll(const sh_multicast *m, struct pollfd out[2]);

/* One packet from any socket; -1 if there is none. A longer one than cap is cut. */
ssize_t sh_multicast_recv(const sh_multicast *m, void *data, size_t cap, sh_addr *from);

/* A packet to one address. */
bool sh_multicast_send_to(const sh_multicast *m, const void *data, size_t len, const sh_addr *to);

#endif
