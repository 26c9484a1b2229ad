/* System calls on sockets with the flags that we always want: non-blocking and close-on-exec, so
 * that no programs started by a rank inherit its connections. The flags are set by fcntl instead of
 * SOCK_NONBLOCK and accept4, which macOS lacks. */
#include "net/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

/* How many connections may wait while a rank is busy. In a flood the queue is always full, and a
 * longer one only makes a rank wait longer for its turn (measured: with 256 a rank joins in 0.4 s,
 * with 4096 in 2 s). A connection that finds the queue full is retried by connector.c. */
enum { BACKLOG = 256 };

static bool set_flags(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
           fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

int sh_sock_make(int domain, int type)
{
    int fd = socket(domain, type, 0);
    if (fd < 0 || set_flags(fd)) return fd;
    sh_sock_close(fd);
    return -1;
}

int sh_sock_accept_local(int listen_fd)
{
    int fd = accept(listen_fd, NULL, NULL);
    if (fd < 0 || set_flags(fd)) return fd;
    sh_sock_close(fd);
    return -1;
}

bool sh_sock_is_own(int fd)
{
#ifdef SO_PEERCRED
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0) return false;
    uid_t uid = peer.uid;
#else
    uid_t uid;
    gid_t gid;
    if (getpeereid(fd, &uid, &gid) != 0) return false;
#endif
    return uid == geteuid() || uid == 0;
}

/* TCP_NODELAY: small messages must leave at once. Keep-alive only lets the kernel clean up after a
 * peer whose machine vanished; failures are detected faster by the heartbeats of coll/watch.c. */
static bool set_options(int fd)
{
    int on = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
           setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on)) == 0;
}

sh_status sh_sock_listen(const sh_addr *addr, int *fd, sh_err *err)
{
    char text[SH_ADDR_TEXT_MAX];
    int on = 1;
    int made = sh_sock_make(addr->sa.any.sa_family, SOCK_STREAM);
    bool v6 = addr->sa.any.sa_family == AF_INET6;

    if (made < 0 || setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        (v6 && setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0) ||
        bind(made, &addr->sa.any, addr->len) < 0 || listen(made, BACKLOG) < 0) {
        sh_addr_format(addr, text);
        sh_err_sys(err, "cannot listen on %s", text);
        sh_sock_close(made);
        return err->status;
    }
    *fd = made;
    return SH_OK;
}

sh_status sh_sock_prepare(int fd, sh_err *err)
{
    return set_flags(fd) ? SH_OK : sh_err_sys(err, "descriptor %d", fd);
}

/* Errors of one incoming connection, which accept() reports although the listening socket is fine.
 */
static bool accept_may_go_on(int error)
{
    switch (error) {
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH: return true;
    default: return false;
    }
}

sh_status sh_sock_accept(int listen_fd, int *fd, sh_addr *from, sh_err *err)
{
    sh_addr peer = {.len = sizeof(peer.sa)};
    int made = accept(listen_fd, &peer.sa.any, &peer.len);
    if (made < 0 && accept_may_go_on(errno)) return SH_AGAIN;
    if (made < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        sh_err_sys(err, "accept");
        return err->status = SH_ERR_LIMIT;
    }
    if (made < 0) return sh_err_sys(err, "accept");
    if (!set_flags(made) || !set_options(made)) {
        sh_sock_close(made); /* the peer is gone already, so options can no longer be set */
        return SH_AGAIN;
    }
    *fd = made;
    *from = peer;
    return SH_OK;
}

sh_status sh_sock_connect(const sh_addr *addr, int *fd, sh_err *err)
{
    int made = sh_sock_make(addr->sa.any.sa_family, SOCK_STREAM);
    if (made < 0 || !set_options(made) ||
        (connect(made, &addr->sa.any, addr->len) < 0 && errno != EINPROGRESS && errno != EINTR)) {
        sh_err_sys(err, "connect");
        sh_sock_close(made);
        return err->status;
    }
    *fd = made;
    return SH_OK;
}

/* Connecting repeatedly to a free local port may be assigned that very port as its source and
 * connect to itself (TCP simultaneous open). Treat that as refused. */
static bool is_self_connection(int fd)
{
    sh_addr local = {.len = sizeof(local.sa)};
    sh_addr remote = {.len = sizeof(remote.sa)};
    return getsockname(fd, &local.sa.any, &local.len) == 0 &&
           getpeername(fd, &remote.sa.any, &remote.len) == 0 && local.len == remote.len &&
           memcmp(&local.sa, &remote.sa, local.len) == 0;
}

sh_status sh_sock_connected(int fd, sh_err *err)
{
    int error = 0;
    socklen_t len = sizeof(error);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0) return sh_err_sys(err, "connect");
    errno = error != 0 ? error : is_self_connection(fd) ? ECONNREFUSED : 0;
    return errno == 0 ? SH_OK : sh_err_sys(err, "connect");
}

sh_status sh_sock_local(int fd, sh_addr *out, sh_err *err)
{
    sh_addr found = {.len = sizeof(found.sa)};
    if (getsockname(fd, &found.sa.any, &found.len) < 0) return sh_err_sys(err, "getsockname");
    *out = found;
    return SH_OK;
}

sh_status sh_sock_remote(int fd, sh_addr *out, sh_err *err)
{
    sh_addr found = {.len = sizeof(found.sa)};
    if (getpeername(fd, &found.sa.any, &found.len) < 0) return sh_err_sys(err, "getpeername");
    *out = found;
    return SH_OK;
}

sh_status sh_sock_route(const sh_addr *to, sh_addr *out, sh_err *err)
{
    /* Connecting a datagram socket sends nothing, it only consults the routing table. */
    int fd = sh_sock_make(to->sa.any.sa_family, SOCK_DGRAM);
    sh_status status = SH_OK;
    if (fd < 0 || connect(fd, &to->sa.any, to->len) < 0) {
        char text[SH_ADDR_TEXT_MAX];
        sh_addr_format(to, text);
        status = sh_err_sys(err, "no route to %s", text);
    } else {
        status = sh_sock_local(fd, out, err);
    }
    sh_sock_close(fd);
    if (status == SH_OK) sh_addr_set_port(out, 0);
    return status;
}

sh_status sh_sock_pipe(int fd[2], sh_err *err)
{
    int made[2];
    if (pipe(made) < 0) return sh_err_sys(err, "pipe");
    if (!set_flags(made[0]) || !set_flags(made[1])) {
        sh_err_sys(err, "pipe");
        close(made[0]);
        close(made[1]);
        return err->status;
    }
    fd[0] = made[0];
    fd[1] = made[1];
    return SH_OK;
}

void sh_sock_close(int fd)
{
    if (fd >= 0) close(fd);
}
