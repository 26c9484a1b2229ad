#include "net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

static bool is_usable(const struct ifaddrs *ifa)
{
    return ifa->ifa_addr != NULL && (ifa->ifa_flags & IFF_UP) != 0 &&
           (ifa->ifa_flags & IFF_LOOPBACK) == 0;
}

static void index_add(sh_interfaces *out, const struct ifaddrs *ifa)
{
    unsigned index = if_nametoindex(ifa->ifa_name);
    if ((ifa->ifa_flags & IFF_MULTICAST) == 0 || index == 0) return;
    for (int i = 0; i < out->count; i++)
        if (out->index[i] == index) return;
    if (out->count < SH_INTERFACES_MAX) out->index[out->count++] = index;
}

static void addr_add(sh_interfaces *out, const struct sockaddr *from, int family)
{
    sh_addr addr = {.len = family == AF_INET ? sizeof(addr.sa.v4) : sizeof(addr.sa.v6)};
    if (from->sa_family != family || out->addr_count == SH_INTERFACE_ADDRS_MAX) return;
    memcpy(&addr.sa, from, addr.len);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr.sa.v6.sin6_addr)) return;
    sh_addr_set_port(&addr, 0);
    out->addr[out->addr_count++] = addr;
}

static int compare(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

sh_status sh_interfaces_read(sh_interfaces *out, sh_err *err)
{
    static const int families[] = {AF_INET, AF_INET6};
    struct ifaddrs *list = NULL;
    memset(out, 0, sizeof(*out));
    if (getifaddrs(&list) != 0) return sh_err_sys(err, "addresses of this machine");
    for (const struct ifaddrs *ifa = list; ifa != NULL; ifa = ifa->ifa_next) {
        if (ifa->ifa_addr != NULL && ifa->ifa_addr->sa_family == AF_INET6) out->has_ipv6 = true;
        if (is_usable(ifa)) index_add(out, ifa);
        if ((ifa->ifa_flags & IFF_LOOPBACK) != 0) out->loopback = if_nametoindex(ifa->ifa_name);
    }
    for (size_t f = 0; f < SH_COUNT_OF(families); f++)
        for (const struct ifaddrs *ifa = list; ifa != NULL; ifa = ifa->ifa_next)
            if (is_usable(ifa)) addr_add(out, ifa->ifa_addr, families[f]);
    freeifaddrs(list);
    qsort(out->index, (size_t)out->count, sizeof(out->index[0]), compare);
    return SH_OK;
}

bool sh_interfaces_have(const sh_interfaces *all, const sh_addr *addr)
{
    sh_addr bare = *addr;
    sh_addr_set_port(&bare, 0);
    for (int i = 0; i < all->addr_count; i++)
        if (all->addr[i].len == bare.len && memcmp(&all->addr[i].sa, &bare.sa, bare.len) == 0)
            return true;
    return false;
}
