#include "http/listeners.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static int port_of(int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0) return 0;
    return ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                            : ((struct sockaddr_in *)&addr)->sin_port);
}

static void port_set(struct sockaddr *addr, int port)
{
    if (addr->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)addr)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)addr)->sin_port = htons((uint16_t)port);
}

static void add(sh_listeners *l, int fd)
{
    l->fds[l->count++] = fd;
    l->port = port_of(fd);
}

static bool prepare(int fd)
{
    return fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0;
}

/* With port 0 the first address gets a free port, and the others must use the same one. */
static bool listen_on(sh_listeners *l, const struct addrinfo *info)
{
    int on = 1, fd = socket(info->ai_family, SOCK_STREAM, 0);
    bool v6 = info->ai_family == AF_INET6;
    port_set(info->ai_addr, l->port);
    if (fd >= 0 && prepare(fd) && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        (!v6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) == 0) &&
        bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        add(l, fd);
        return true;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return false;
}

/* A name may resolve to several addresses, such as localhost to 127.0.0.1 and ::1. One that this
 * machine does not have is skipped as long as another one works. */
sh_status sh_listeners_open(const char *host, int port, sh_listeners *out, sh_err *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *infos = NULL;
    int failed = getaddrinfo(host, NULL, &hints, &infos);
    if (failed != 0)
        return sh_err_set(err, SH_ERR_INPUT, "cannot listen on '%s': %s", host,
                          gai_strerror(failed));
    int error = 0;
    *out = (sh_listeners){.port = port};
    for (struct addrinfo *info = infos; info != NULL; info = info->ai_next) {
        if (out->count == SH_LISTENERS_MAX || listen_on(out, info)) continue;
        error = errno;
        if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
    }
    freeaddrinfo(infos);
    bool taken = error != 0 && error != EADDRNOTAVAIL && error != EAFNOSUPPORT;
    if (out->count > 0 && !taken) return SH_OK;
    sh_listeners_close(out);
    if (error == EADDRINUSE)
        return sh_err_set(
            err, SH_ERR_SYSTEM,
            "port %d of %s is in use by another program: `shoal status` or `ss -ltnp` "
            "may show which; choose another with --port, or --port 0 for a free one",
            port, host);
    errno = error;
    return sh_err_sys(err, "cannot listen on %s port %d", host, port);
}

static bool is_listening(int fd)
{
    int listening = 0;
    socklen_t len = sizeof(listening);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &len) == 0 && listening != 0;
}

sh_status sh_listeners_adopt(const char *numbers, sh_listeners *out, sh_err *err)
{
    sh_str rest = sh_str_of(numbers), part;
    *out = (sh_listeners){0};
    while (sh_str_cut(&rest, ',', &part)) {
        int64_t fd;
        if (out->count == SH_LISTENERS_MAX || !sh_str_to_int(part, &fd) || fd < 0 ||
            fd > INT32_MAX || !is_listening((int)fd) || !prepare((int)fd))
            return sh_err_set(err, SH_ERR_INPUT, "'%s' are not the numbers of listening sockets",
                              numbers);
        add(out, (int)fd);
    }
    return SH_OK;
}

void sh_listeners_close(sh_listeners *l)
{
    for (int i = 0; i < l->count; i++) close(l->fds[i]);
    *l = (sh_listeners){0};
}
