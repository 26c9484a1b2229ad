/* peers.h - the addresses that connect: how they are told apart, and how often they showed a wrong
 * key lately.
 *
 * A wrong key costs its sender time: each one from the same address waits longer for its answer.
 * Only so many addresses are remembered; the one that has been quiet longest is forgotten first.
 *
 * Threads: one owner. */
#ifndef SH_HTTP_PEERS_H
#define SH_HTTP_PEERS_H

#include <stdint.h>
#include <sys/socket.h>

/* The address without its port; of an IPv6 address the network alone, since a host has as many
 * addresses there as it likes. */
uint64_t sh_http_peer_of(const struct sockaddr *addr);

enum {
    SH_HTTP_PEERS_MAX = 256,
    SH_HTTP_FREE_FAILURES = 3, /* a typing error or an old key costs nothing */
    SH_HTTP_DELAY_MS = 250,    /* of the first that costs; each one doubles it */
    SH_HTTP_DELAY_MAX_MS = 5000,
    SH_HTTP_FORGIVE_MS = 60000,
};

typedef struct {
    uint64_t peer;
    int failures;
    int64_t last_ns; /* 0: the place is free */
} sh_http_peer_record;

typedef struct {
    sh_http_peer_record records[SH_HTTP_PEERS_MAX];
    int unlogged; /* failures since the last line of the log */
    int64_t logged_ns;
} sh_http_peers; /* zero is empty */

/* Counts a wrong key, writes a line now and then, and tells how long the answer is to wait. */
int64_t sh_http_peers_failed(sh_http_peers *peers, uint64_t peer, const char *address,
                             int64_t now_ns);

#endif
