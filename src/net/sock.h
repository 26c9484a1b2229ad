/* sock.h - sockets that never block.
 *
 * What differs between systems (flags, options, signals) is known here alone. File descriptors are
 * plain ints, owned by the caller, closed by sh_sock_close.
 *
 * Threads: pure functions over descriptors. */
#ifndef SH_NET_SOCK_H
#define SH_NET_SOCK_H

#include "base/status.h"
#include "net/addr.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* such systems rely on main and sh_tls_create, which ignore SIGPIPE */
#endif

/* A socket that neither blocks nor survives exec; -1 and errno when there is none. */
int sh_sock_make(int domain, int type);

/* Takes a connection of a Unix socket in the same way; -1 when none waits. */
int sh_sock_accept_local(int listen_fd);

/* Whether the process at the other end of a Unix socket is this user's, or root's. */
bool sh_sock_is_own(int fd);

/* A listening socket. The error of a taken port names the address. */
SH_MUST_CHECK sh_status sh_sock_listen(const sh_addr *addr, int *fd, sh_err *err);

/* Makes a descriptor that was inherited like the ones that are made here. */
SH_MUST_CHECK sh_status sh_sock_prepare(int fd, sh_err *err);

/* Takes one connection; SH_AGAIN when none waits (or the one that did has gone already).
 * SH_ERR_LIMIT when the process is out of descriptors. */
SH_MUST_CHECK sh_status sh_sock_accept(int listen_fd, int *fd, sh_addr *from, sh_err *err);

/* Starts to connect; when the socket becomes writable sh_sock_connected tells how it ended. */
SH_MUST_CHECK sh_status sh_sock_connect(const sh_addr *addr, int *fd, sh_err *err);
SH_MUST_CHECK sh_status sh_sock_connected(int fd, sh_err *err);

SH_MUST_CHECK sh_status sh_sock_local(int fd, sh_addr *out, sh_err *err);
SH_MUST_CHECK sh_status sh_sock_remote(int fd, sh_addr *out, sh_err *err);

/* The address from which this machine reaches `to`, port 0; nothing is sent. */
SH_MUST_CHECK sh_status sh_sock_route(const sh_addr *to, sh_addr *out, sh_err *err);

/* A pipe with both ends non-blocking: what wakes a thread that sleeps in poll(). */
SH_MUST_CHECK sh_status sh_sock_pipe(int fd[2], sh_err *err);

void sh_sock_close(int fd); /* takes -1 */

#endif
