/* interfaces.h - the network interfaces of this machine and the addresses by which others may reach
 * it.
 *
 * Loopback interfaces and those that are down are left out. So are link-local IPv6 addresses, which
 * mean nothing on another machine; what is sent over such an interface has one as its source.
 *
 * Threads: pure functions. */
#ifndef SH_NET_INTERFACES_H
#define SH_NET_INTERFACES_H

#include "base/status.h"
#include "net/addr.h"

enum { SH_INTERFACES_MAX = 32, SH_INTERFACE_ADDRS_MAX = 32 };

typedef struct {
    unsigned index[SH_INTERFACES_MAX]; /* of interfaces that multicast can be sent on, ascending */
    int count;
    unsigned loopback;                    /* index; 0: none */
    sh_addr addr[SH_INTERFACE_ADDRS_MAX]; /* of all interfaces, with port 0; IPv4 first */
    int addr_count;
    bool has_ipv6; /* an IPv6 address of any kind, loopback's included */
} sh_interfaces;

SH_MUST_CHECK sh_status sh_interfaces_read(sh_interfaces *out, sh_err *err);

bool sh_interfaces_have(const sh_interfaces *all, const sh_addr *addr); /* whatever its port */

#endif
