/* Parsing, formatting and comparing addresses, on top of getaddrinfo and getnameinfo: they handle
 * the scope of link-local IPv6 addresses ("%eth0"), which inet_pton does not. */
#include "net/addr.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Splits at the last colon; false if there is none or if it is ambiguous. */
static bool cut_host(const char *text, sh_str *host, sh_str *port)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL) return false;
    *host = (sh_str){text, (size_t)(colon - text)};
    *port = sh_str_of(colon + 1);
    if (host->len >= 2 && text[0] == '[' && host->ptr[host->len - 1] == ']') {
        *host = sh_str_sub(*host, 1, host->len - 2);
        return true;
    }
    return memchr(host->ptr, ':', host->len) == NULL;
}

sh_status sh_addr_split(const char *text, char host[SH_ADDR_HOST_MAX], uint16_t *port, sh_err *err)
{
    sh_str name;
    sh_str digits;
    int64_t number;
    if (!cut_host(text, &name, &digits) || name.len == 0 || name.len >= SH_ADDR_HOST_MAX)
        return sh_err_set(err, SH_ERR_INPUT,
                          "address '%.100s': must be host:port, 1.2.3.4:port or [IPv6]:port", text);
    if (!sh_str_to_int(digits, &number) || number < 0 || number > UINT16_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "address '%.100s': the port must be 0 to 65535", text);
    memcpy(host, name.ptr, name.len);
    host[name.len] = '\0';
    *port = (uint16_t)number;
    return SH_OK;
}

/* AI_NUMERICSERV: the port is already a number, and /etc/services must not be consulted. */
static sh_status look_up(const char *text, int flags, struct addrinfo **out, sh_err *err)
{
    char host[SH_ADDR_HOST_MAX];
    uint16_t port;
    sh_status status = sh_addr_split(text, host, &port, err);
    if (status != SH_OK) return status;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    int rc = getaddrinfo(host, service, &hints, out);
    if (rc != 0)
        return sh_err_set(err, rc == EAI_NONAME ? SH_ERR_NOT_FOUND : SH_ERR_SYSTEM,
                          "address '%.100s': %s", text, gai_strerror(rc));
    return SH_OK;
}

sh_status sh_addr_resolve(const char *text, int cap, sh_addr *out, int *count, sh_err *err)
{
    struct addrinfo *list;
    sh_status status = look_up(text, 0, &list, err);
    if (status != SH_OK) return status;
    int found = 0;
    for (const struct addrinfo *a = list; a != NULL && found < cap; a = a->ai_next) {
        if (a->ai_addrlen > sizeof(out[found].sa)) continue;
        memset(&out[found], 0, sizeof(out[found]));
        memcpy(&out[found].sa, a->ai_addr, a->ai_addrlen);
        out[found++].len = a->ai_addrlen;
    }
    freeaddrinfo(list);
    if (found == 0)
        return sh_err_set(err, SH_ERR_NOT_FOUND, "address '%.100s': no IPv4 or IPv6 address", text);
    *count = found;
    return SH_OK;
}

sh_status sh_addr_resolve_list(const char *text, int cap, sh_addr *out, int *count, sh_err *err)
{
    sh_str rest = sh_str_of(text), part;
    sh_status status = SH_OK;
    *count = 0;
    while (*count < cap && sh_str_cut(&rest, ',', &part)) {
        int found = 0;
        char *one = sh_str_dup(part);
        sh_status tried = sh_addr_resolve(one, cap - *count, out + *count, &found, err);
        if (tried != SH_OK) status = tried;
        *count += found;
        free(one);
    }
    return *count > 0 ? SH_OK : status;
}

sh_status sh_addr_parse(const char *text, sh_addr *out, sh_err *err)
{
    struct addrinfo *list;
    sh_status status = look_up(text, AI_NUMERICHOST, &list, err);
    if (status != SH_OK) return status;
    memset(out, 0, sizeof(*out));
    memcpy(&out->sa, list->ai_addr, list->ai_addrlen);
    out->len = list->ai_addrlen;
    freeaddrinfo(list);
    return SH_OK;
}

void sh_addr_format(const sh_addr *addr, char out[SH_ADDR_TEXT_MAX])
{
    char host[64] = "?";
    /* Fails only for an address family that we never create. */
    if (getnameinfo(&addr->sa.any, addr->len, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(host, sizeof(host), "?");
    bool v6 = addr->sa.any.sa_family == AF_INET6;
    snprintf(out, SH_ADDR_TEXT_MAX, v6 ? "[%s]:%u" : "%s:%u", host, sh_addr_port(addr));
}

uint16_t sh_addr_port(const sh_addr *addr)
{
    bool v6 = addr->sa.any.sa_family == AF_INET6;
    return ntohs(v6 ? addr->sa.v6.sin6_port : addr->sa.v4.sin_port);
}

void sh_addr_set_port(sh_addr *addr, uint16_t port)
{
    if (addr->sa.any.sa_family == AF_INET6)
        addr->sa.v6.sin6_port = htons(port);
    else
        addr->sa.v4.sin_port = htons(port);
}

void sh_addr_set_any(sh_addr *addr)
{
    if (addr->sa.any.sa_family == AF_INET6)
        addr->sa.v6.sin6_addr = in6addr_any;
    else
        addr->sa.v4.sin_addr.s_addr = htonl(INADDR_ANY);
}

/* The IPv4 number inside an IPv4 or an IPv4-mapped IPv6 address, in host order. */
static bool get_v4(const sh_addr *addr, uint32_t *out)
{
    uint32_t net;
    if (addr->sa.any.sa_family == AF_INET)
        net = addr->sa.v4.sin_addr.s_addr;
    else if (IN6_IS_ADDR_V4MAPPED(&addr->sa.v6.sin6_addr))
        memcpy(&net, &addr->sa.v6.sin6_addr.s6_addr[12], sizeof(net));
    else
        return false;
    *out = ntohl(net);
    return true;
}

bool sh_addr_is_loopback(const sh_addr *addr)
{
    uint32_t v4;
    if (get_v4(addr, &v4)) return v4 >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&addr->sa.v6.sin6_addr);
}

bool sh_addr_is_any(const sh_addr *addr)
{
    uint32_t v4;
    if (get_v4(addr, &v4)) return v4 == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&addr->sa.v6.sin6_addr);
}

bool sh_addr_same_host(const sh_addr *a, const sh_addr *b)
{
    enum { NETWORK_LEN = 8, WHOLE_LEN = 16 };
    if (a->sa.any.sa_family != b->sa.any.sa_family) return false;
    if (a->sa.any.sa_family == AF_INET) return a->sa.v4.sin_addr.s_addr == b->sa.v4.sin_addr.s_addr;
    /* Hosts choose the lower half freely, so only the /64 identifies them. Link-local addresses are
     * the exception: all hosts on a cable share that prefix. */
    bool near = IN6_IS_ADDR_LINKLOCAL(&a->sa.v6.sin6_addr);
    return memcmp(&a->sa.v6.sin6_addr, &b->sa.v6.sin6_addr, near ? WHOLE_LEN : NETWORK_LEN) == 0;
}
