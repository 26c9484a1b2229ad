/* The delay slows down guessing without locking anybody out: a valid key is never delayed, whatever
 * others behind the same address do. */
#include "http/peers.h"

#include "base/hash.h"
#include "base/log.h"

#include <netinet/in.h>
#include <string.h>

static const int64_t LOG_NS = 10 * INT64_C(1000000000);

uint64_t sh_http_peer_of(const struct sockaddr *addr)
{
    uint64_t network = 0;
    uint32_t host;
    if (addr->sa_family == AF_INET) {
        host = ((const struct sockaddr_in *)addr)->sin_addr.s_addr;
        return sh_mix64(host);
    }
    if (addr->sa_family != AF_INET6) return 0;
    const struct in6_addr *number = &((const struct sockaddr_in6 *)addr)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(number)) {
        memcpy(&host, number->s6_addr + 12, sizeof(host));
        return sh_mix64(host);
    }
    memcpy(&network, number->s6_addr, sizeof(network));
    return sh_mix64(~network); /* inverted, so that it differs from IPv4 addresses */
}

/* The record of the address; if there is none, replaces the one that has been quiet for longest. */
static sh_http_peer_record *record_of(sh_http_peers *peers, uint64_t peer)
{
    sh_http_peer_record *oldest = &peers->records[0];
    for (int i = 0; i < SH_HTTP_PEERS_MAX; i++) {
        sh_http_peer_record *record = &peers->records[i];
        if (record->last_ns != 0 && record->peer == peer) return record;
        if (record->last_ns < oldest->last_ns) oldest = record;
    }
    *oldest = (sh_http_peer_record){.peer = peer};
    return oldest;
}

static void failure_log(sh_http_peers *peers, const char *address, int64_t now_ns)
{
    peers->unlogged++;
    if (peers->logged_ns != 0 && now_ns - peers->logged_ns < LOG_NS) return;
    SH_LOGW("http: %d request%s with a wrong API key, the last from %s", peers->unlogged,
            peers->unlogged == 1 ? "" : "s", address);
    peers->unlogged = 0;
    peers->logged_ns = now_ns;
}

/* The delay doubles with every failure up to the maximum; a minute without one resets it. */
int64_t sh_http_peers_failed(sh_http_peers *peers, uint64_t peer, const char *address,
                             int64_t now_ns)
{
    sh_http_peer_record *record = record_of(peers, peer);
    int64_t wait_ms = SH_HTTP_DELAY_MS;
    if (now_ns - record->last_ns > SH_HTTP_FORGIVE_MS * INT64_C(1000000)) record->failures = 0;
    record->last_ns = now_ns;
    record->failures++;
    failure_log(peers, address, now_ns);
    if (record->failures <= SH_HTTP_FREE_FAILURES) return 0;
    for (int i = SH_HTTP_FREE_FAILURES + 1; i < record->failures; i++) {
        wait_ms *= 2;
        if (wait_ms >= SH_HTTP_DELAY_MAX_MS) return SH_HTTP_DELAY_MAX_MS;
    }
    return wait_ms;
}
