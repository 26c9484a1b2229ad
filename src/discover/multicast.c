/* The IPv4 group is in the range for use within a site (RFC 2365), the IPv6 group is link-local;
 * both stop at the first router. A packet is sent once on each interface, by its index, so that it
 * does not depend on a route for multicast, and over IPv4 on loopback too: there may be no other
 * interface. */
#include "discover/multicast.h"

#include "base/log.h"
#include "base/str.h"
#include "net/interfaces.h"
#include "net/sock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

enum { V4, V6 };

static const int FAMILIES[] = {[V4] = AF_INET, [V6] = AF_INET6};
static const char *const GROUPS[] = {[V4] = "239.255.83.72", [V6] = "ff02::5368:6f61:6c"};

static sh_addr group_of(int which)
{
    sh_addr addr = {.len = 0};
    bool v6 = which == V6;
    addr.sa.any.sa_family = (sa_family_t)FAMILIES[which];
    addr.len = v6 ? sizeof(addr.sa.v6) : sizeof(addr.sa.v4);
    int ok = inet_pton(FAMILIES[which], GROUPS[which],
                       v6 ? (void *)&addr.sa.v6.sin6_addr : (void *)&addr.sa.v4.sin_addr);
    SH_ASSERT(ok == 1);
    sh_addr_set_port(&addr, SH_DISCOVER_PORT);
    return addr;
}

static int socket_make(int which)
{
    int on = 1, fd = sh_sock_make(FAMILIES[which], SOCK_DGRAM);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
#ifdef __APPLE__
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
#endif
    if (which == V6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    return fd;
}

static bool bind_any(int which, int fd)
{
    sh_addr any = group_of(which);
    sh_addr_set_any(&any);
    return bind(fd, &any.sa.any, any.len) == 0;
}

static sh_status open_sockets(sh_multicast *out, bool listens, sh_err *err)
{
    for (int which = V4; which <= V6; which++) {
        int fd = socket_make(which);
        if (fd >= 0 && listens && !bind_any(which, fd)) {
            sh_err_sys(err, "UDP port %d", SH_DISCOVER_PORT);
            SH_LOGW("discovery over %s: %s", which == V4 ? "IPv4" : "IPv6", err->text);
            sh_sock_close(fd);
            fd = -1;
        }
        out->fd[which] = fd;
    }
    if (out->fd[V4] >= 0 || out->fd[V6] >= 0) return SH_OK;
    return sh_err_sys(err, "no socket for discovery, UDP port %d", SH_DISCOVER_PORT);
}

sh_status sh_multicast_listen(sh_multicast *out, sh_err *err)
{
    return open_sockets(out, true, err);
}

sh_status sh_multicast_open(sh_multicast *out, sh_err *err)
{
    return open_sockets(out, false, err);
}

void sh_multicast_close(sh_multicast *m)
{
    sh_sock_close(m->fd[V4]);
    sh_sock_close(m->fd[V6]);
}

static bool group_join(int which, int fd, unsigned index)
{
    sh_addr group = group_of(which);
    struct ip_mreqn four = {.imr_multiaddr = group.sa.v4.sin_addr, .imr_ifindex = (int)index};
    struct ipv6_mreq six = {.ipv6mr_multiaddr = group.sa.v6.sin6_addr, .ipv6mr_interface = index};
    if (fd < 0) return false;
    int rc = which == V4 ? setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &four, sizeof(four))
                         : setsockopt(fd, IPPROTO_IPV6, IPV6_JOIN_GROUP, &six, sizeof(six));
    return rc == 0 || errno == EADDRINUSE; /* it was in the group already */
}

int sh_multicast_join(const sh_multicast *m)
{
    sh_interfaces all;
    sh_err err;
    int joined = 0;
    if (sh_interfaces_read(&all, &err) != SH_OK) return 0;
    group_join(V4, m->fd[V4], all.loopback);
    for (int i = 0; i < all.count; i++) {
        bool any = false;
        for (int which = V4; which <= V6; which++)
            any |= group_join(which, m->fd[which], all.index[i]);
        joined += any;
    }
    return joined;
}

/* `source` is the address to send from, of IPv4 alone; 0: that of the interface. */
static bool group_send(int which, int fd, unsigned index, in_addr_t source, sh_str packet)
{
    sh_addr group = group_of(which);
    struct ip_mreqn four = {.imr_ifindex = (int)index, .imr_address.s_addr = htonl(source)};
    if (fd < 0 ||
        (which == V4 && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &four, sizeof(four)) != 0))
        return false;
    if (which == V6) group.sa.v6.sin6_scope_id = index;
    return sendto(fd, packet.ptr, packet.len, 0, &group.sa.any, group.len) == (ssize_t)packet.len;
}

int sh_multicast_send(const sh_multicast *m, const void *data, size_t len)
{
    sh_interfaces all = {.count = 0};
    sh_str packet = {data, len};
    sh_err err;
    if (sh_interfaces_read(&all, &err) != SH_OK) SH_LOGD("discovery: %s", err.text);
    int sent = group_send(V4, m->fd[V4], all.loopback, INADDR_LOOPBACK, packet);
    for (int which = V4; which <= V6; which++)
        for (int i = 0; i < all.count; i++)
            sent += group_send(which, m->fd[which], all.index[i], INADDR_ANY, packet);
    return sent;
}

int sh_multicast_poll(const sh_multicast *m, struct pollfd out[2])
{
    int count = 0;
    for (int which = V4; which <= V6; which++)
        if (m->fd[which] >= 0) out[count++] = (struct pollfd){.fd = m->fd[which], .events = POLLIN};
    return count;
}

ssize_t sh_multicast_recv(const sh_multicast *m, void *data, size_t cap, sh_addr *from)
{
    for (int which = V4; which <= V6; which++) {
        if (m->fd[which] < 0) continue;
        memset(from, 0, sizeof(*from));
        from->len = sizeof(from->sa);
        ssize_t len = recvfrom(m->fd[which], data, cap, 0, &from->sa.any, &from->len);
        if (len >= 0) return len;
    }
    return -1;
}

bool sh_multicast_send_to(const sh_multicast *m, const void *data, size_t len, const sh_addr *to)
{
    int fd = m->fd[to->sa.any.sa_family == AF_INET6 ? V6 : V4];
    return fd >= 0 && sendto(fd, data, len, 0, &to->sa.any, to->len) == (ssize_t)len;
}
