/* rendezvous.h - how ranks that only know each other through MPI find rank 0's socket.
 *
 * Every rank tells rank 0 which addresses its machine has. Rank 0 takes one of its own that all
 * others can reach without a router, opens a port there, and tells everybody, together with a token
 * that nobody else knows: so links are encrypted without a word from the user.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_RENDEZVOUS_H
#define SH_CLUSTER_RENDEZVOUS_H

#include "net/cluster_token.h"
#include "net/mpi.h"

enum { SH_CARD_ADDRS_MAX = 24 };

/* An address as it travels: 4 or 16 bytes of it, and how many bits are the network's. */
typedef struct {
    uint8_t bytes[16];
    uint8_t len;
    uint8_t prefix;
} sh_card_addr;

typedef struct {
    uint32_t count;
    sh_card_addr addr[SH_CARD_ADDRS_MAX];
} sh_card;

typedef struct {
    char coordinator[SH_ADDR_TEXT_MAX];
    char token[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    int fd; /* rank 0: listens already, the caller's; -1 on others */
} sh_rendezvous;

/* token: NULL, or the one that the user gave. */
SH_MUST_CHECK sh_status sh_rendezvous_hold(sh_mpi *mpi, const char *token, int wait_ms,
                                           sh_rendezvous *out, sh_err *err);

/* Which address of cards[0] fits all of them; -1: loopback, since all are on one machine. Machines
 * may have the same address (that of a bridge for containers, say): such a one leads nowhere. */
int sh_rendezvous_pick(const sh_card *cards, int count);

#endif
