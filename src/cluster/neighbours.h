/* neighbours.h - machines at the other end of a cable, found by trying.
 *
 * Only networks that can be a cable are scanned: those of at most SH_NEIGHBOURS_NET addresses, and
 * those of Thunderbolt interfaces. An address counts if something there accepts connections on the
 * port of ssh. Nothing is sent.
 *
 * Threads: pure functions, apart from their sockets. */
#ifndef SH_CLUSTER_NEIGHBOURS_H
#define SH_CLUSTER_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

enum { SH_NEIGHBOURS_MAX = 256, SH_NEIGHBOURS_NET = 16, SH_NEIGHBOURS_TEXT = 16 };

typedef struct {
    char address[SH_NEIGHBOURS_MAX][SH_NEIGHBOURS_TEXT]; /* IPv4 */
    int count;
} sh_neighbours;

/* Appends all other addresses of a network, if it can be a cable; `address` and `mask` in host byte
 * order. */
void sh_neighbours_candidates(uint32_t address, uint32_t mask, bool thunderbolt,
                              sh_neighbours *out);

/* Keeps those that accept a connection within wait_ms. */
void sh_neighbours_probe(sh_neighbours *list, int port, int wait_ms);

/* The neighbours of this machine on all of its cables. */
void sh_neighbours_find(sh_neighbours *out);

#endif
