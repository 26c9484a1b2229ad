/* peers.h - client addresses: how they are identified, and how often they presented a wrong key.
 *
 * Each wrong key from the same address makes its answer wait longer. The number of addresses
 * remembered is limited; the one that has been quiet for longest is dropped first.
 *
 * Threads: one owner. */
#ifndef SH_HTTP_PEERS_H
#define SH_HTTP_PEERS_H

#include <stdint.h>
#include <sys/socket.h>

/* Identifies the address without its port; for IPv6 only the /64 network, since a host can use any
 * address in it. */
uint64_t sh_http_peer_of(const struct sockaddr *addr);

enum {
    SH_HTTP_PEERS_MAX = 256,
    SH_HTTP_FREE_FAILURES = 3, /* a typo or an old key is not delayed */
    SH_HTTP_DELAY_MS = 250,    /* the first delay; doubles with each failure */
    SH_HTTP_DELAY_MAX_MS = 5000,
    SH_HTTP_FORGIVE_MS = 60000,
};

typedef struct {
    uint64_t peer;
    int failures;
    int64_t last_ns; /* 0: the entry is free */
} sh_http_peer_record;

typedef struct {
    sh_http_peer_record records[SH_HTTP_PEERS_MAX];
    int unlogged; /* failures since the last log line */
    int64_t logged_ns;
} sh_http_peers; /* zero is empty */

/* Counts a wrong key, logs it (rate-limited), and returns how long to delay the answer in ms. */
int64_t sh_http_peers_failed(sh_http_peers *peers, uint64_t peer, const char *address,
                             int64_t now_ns);

#endif
