/* shm.h - the data path between two ranks on one machine (sh_transport_shm): a shared memory
 * segment with a byte ring for each direction.
 *
 * The higher rank creates the segment under an unguessable name, accessible to its own user only,
 * and offers it; the peer attaches it and checks the key inside, which also proves that both see
 * the same memory (containers on one machine may not). It then removes the name at once.
 *
 * A rank that has spun long enough sets a flag in the segment before it sleeps, and the peer then
 * rings the doorbell: it sends a byte on the pair's socket. So one poll() covers all kinds of
 * channels, and the death of the peer is visible there too.
 *
 * Threads: sh_host_id may be called from any. */
#ifndef SH_NET_SHM_H
#define SH_NET_SHM_H

#include "net/peer_messages.h"

/* Identifies this machine until it reboots: ranks with equal ids may try shared memory. */
void sh_host_id(uint8_t out[SH_HOST_ID_LEN]);

#endif
