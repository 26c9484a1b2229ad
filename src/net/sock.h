/* sock.h - non-blocking sockets.
 *
 * Differences between systems (flags, options, signals) are confined to this module. Descriptors
 * are plain ints, owned by the caller and closed with sh_sock_close.
 *
 * Threads: pure functions over descriptors. */
#ifndef SH_NET_SOCK_H
#define SH_NET_SOCK_H

#include "base/status.h"
#include "net/addr.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* there we rely on main and sh_tls_create, which ignore SIGPIPE */
#endif

/* A non-blocking, close-on-exec socket; -1 and errno on failure. */
int sh_sock_make(int domain, int type);

/* Accepts a connection on a Unix socket, with the same flags; -1 if none is waiting. */
int sh_sock_accept_local(int listen_fd);

/* Whether the peer of a Unix socket is a process of this user or of root. */
bool sh_sock_is_own(int fd);

/* A listening socket. The error names the address. */
SH_MUST_CHECK sh_status sh_sock_listen(const sh_addr *addr, int *fd, sh_err *err);

/* Gives an inherited descriptor the flags of those created here. */
SH_MUST_CHECK sh_status sh_sock_prepare(int fd, sh_err *err);

/* Accepts one connection; SH_AGAIN if none is waiting (or it is already gone again), SH_ERR_LIMIT
 * if the process is out of descriptors. */
SH_MUST_CHECK sh_status sh_sock_accept(int listen_fd, int *fd, sh_addr *from, sh_err *err);

/* Starts connecting; once the socket is writable, sh_sock_connected returns the result. */
SH_MUST_CHECK sh_status sh_sock_connect(const sh_addr *addr, int *fd, sh_err *err);
SH_MUST_CHECK sh_status sh_sock_connected(int fd, sh_err *err);

SH_MUST_CHECK sh_status sh_sock_local(int fd, sh_addr *out, sh_err *err);
SH_MUST_CHECK sh_status sh_sock_remote(int fd, sh_addr *out, sh_err *err);

/* The local address, with port 0, that packets to `to` would be sent from; sends nothing. */
SH_MUST_CHECK sh_status sh_sock_route(const sh_addr *to, sh_addr *out, sh_err *err);

/* A pipe with both ends non-blocking, for waking a thread that sleeps in poll(). */
SH_MUST_CHECK sh_status sh_sock_pipe(int fd[2], sh_err *err);

void sh_sock_close(int fd); /* takes -1 */

#endif
