/* rendezvous.h - how ranks that only know each other through MPI find rank 0's socket.
 *
 * Every rank sends rank 0 the addresses of its machine. Rank 0 picks one of its own addresses that
 * all others can reach without a router, opens a port there, and sends address and port to all
 * ranks, together with a fresh cluster token: links are encrypted without any setting by the user.
 *
 * Threads: one owner. */
#ifndef SH_CLUSTER_RENDEZVOUS_H
#define SH_CLUSTER_RENDEZVOUS_H

#include "net/addr.h"
#include "net/cluster_token.h"
#include "net/mpi.h"

enum { SH_CARD_ADDRS_MAX = 24 };

/* An address as sent over MPI: 4 or 16 bytes, and the prefix length of its network. */
typedef struct {
    uint8_t bytes[16];
    uint8_t len;
    uint8_t prefix;
} sh_card_addr;

/* The addresses of one machine. */
typedef struct {
    uint32_t count;
    sh_card_addr addr[SH_CARD_ADDRS_MAX];
} sh_card;

typedef struct {
    char coordinator[SH_ADDR_TEXT_MAX];
    char token[SH_CLUSTER_TOKEN_LEN_MAX + 1];
    int fd; /* rank 0: the listening socket, owned by the caller; -1 on other ranks */
} sh_rendezvous;

/* Collective over all ranks of `mpi`. token: the user's, or NULL to generate one. */
SH_MUST_CHECK sh_status sh_rendezvous_run(sh_mpi *mpi, const char *token, int wait_ms,
                                          sh_rendezvous *out, sh_err *err);

/* The index of the address of cards[0] that most other machines can reach; -1: loopback, because
 * all ranks are on one machine. Machines may have an address in common (that of a container bridge,
 * for instance); such an address leads each of them to itself. */
int sh_rendezvous_pick(const sh_card *cards, int count);

#endif
