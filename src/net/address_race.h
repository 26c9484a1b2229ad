/* address_race.h - which of the addresses of one machine is the nearest.
 *
 * Connects to all of them at once and orders them by the round trip that the kernel measured.
 * Nothing is sent: to the other side the losers, and the first connection of the winner, are ports
 * that were tried.
 *
 * Threads: one owner; nothing blocks. */
#ifndef SH_NET_ADDRESS_RACE_H
#define SH_NET_ADDRESS_RACE_H

#include "base/clock.h"
#include "net/addr.h"
#include "net/peer_messages.h"

typedef struct {
    sh_addr addr[SH_LANES_MAX];
    int fd[SH_LANES_MAX];        /* -1: none, or no longer */
    double rtt_us[SH_LANES_MAX]; /* INFINITY until it is connected */
    int count;
    sh_deadline start, end;
} sh_address_race;

void sh_address_race_start(sh_address_race *race, const sh_addr *addrs, int count);
void sh_address_race_reset(sh_address_race *race);

/* SH_OK: it is over, and race->addr is in order, the nearest first and the unreachable last.
 * SH_AGAIN: not yet. */
SH_MUST_CHECK sh_status sh_address_race_step(sh_address_race *race);

#endif
