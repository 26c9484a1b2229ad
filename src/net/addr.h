/* addr.h - network addresses: "10.0.0.1:9000", "[fe80::1%eth0]:9000", "name:9000".
 *
 * This is the only place that splits host and port; an sh_addr is a value that system calls take.
 *
 * Threads: pure functions; resolving a name may block on the system's resolver. */
#ifndef SH_NET_ADDR_H
#define SH_NET_ADDR_H

#include "base/status.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

typedef struct {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } sa;
    socklen_t len;
} sh_addr;

enum {
    SH_ADDR_HOST_MAX = 256, /* a host name or numeric address, with the terminating zero */
    SH_ADDR_TEXT_MAX = 80,  /* "[v6%scope]:port", with the terminating zero */
};

/* Splits "host:port". The host of "[::1]:9000" is "::1"; an IPv6 address without brackets is an
 * error, since its last part could be the port. Port 0 ("any") is allowed. */
SH_MUST_CHECK sh_status sh_addr_split(const char *text, char host[SH_ADDR_HOST_MAX], uint16_t *port,
                                      sh_err *err);

/* All addresses of "host:port", at most cap, in the order of the resolver. */
SH_MUST_CHECK sh_status sh_addr_resolve(const char *text, int cap, sh_addr *out, int *count,
                                        sh_err *err);

/* The same for "host:port,host:port,...": those that can be resolved, in order. */
SH_MUST_CHECK sh_status sh_addr_resolve_list(const char *text, int cap, sh_addr *out, int *count,
                                             sh_err *err);

/* The same for a numeric host, without using the resolver. */
SH_MUST_CHECK sh_status sh_addr_parse(const char *text, sh_addr *out, sh_err *err);

void sh_addr_format(const sh_addr *addr, char out[SH_ADDR_TEXT_MAX]);

uint16_t sh_addr_port(const sh_addr *addr);
void sh_addr_set_port(sh_addr *addr, uint16_t port);
bool sh_addr_is_loopback(const sh_addr *addr);

/* Whether two connections seem to come from one machine: ports are ignored, and so is the lower
 * half of an IPv6 address, since a machine can use any of its /64. */
bool sh_addr_same_host(const sh_addr *a, const sh_addr *b);
void sh_addr_set_any(sh_addr *addr);      /* the wildcard address; keeps the port */
bool sh_addr_is_any(const sh_addr *addr); /* 0.0.0.0 or :: */

#endif
