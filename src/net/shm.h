/* shm.h - the data path between two ranks on one machine: a shared memory segment with a byte ring
 * for each direction.
 *
 * The connecting rank creates the segment under an unguessable name, accessible to its own user
 * only, and offers it in its hello; the peer attaches it and checks the key inside, which also
 * proves that both see the same memory (containers on one machine may not). The name is removed as
 * soon as both have attached.
 *
 * A rank that has spun long enough sets a flag in the segment before it sleeps, and the peer then
 * rings the doorbell: it sends a byte on the pair's socket. So one poll() covers all kinds of
 * channels, and the death of the peer is visible there too.
 *
 * Threads: a segment and its channel have one owner in each of the two ranks. */
#ifndef SH_NET_SHM_H
#define SH_NET_SHM_H

#include "net/channel.h"

typedef struct sh_shm sh_shm;

/* Creates a segment; its name and key go into the hello. */
SH_MUST_CHECK sh_status sh_shm_create(sh_shm **out, char name[SH_SHM_NAME_MAX],
                                      uint8_t key[SH_SHM_KEY_LEN], sh_err *err);

/* Attaches the segment that a peer offered. Fails if it is not visible from here. */
SH_MUST_CHECK sh_status sh_shm_attach(const char *name, const uint8_t key[SH_SHM_KEY_LEN],
                                      sh_shm **out, sh_err *err);

/* Removes the name: both have attached it, or never will. */
void sh_shm_unlink(sh_shm *shm);

/* Unmaps the segment, and unlinks it if we created it and have not yet. */
void sh_shm_close(sh_shm *shm);

/* Takes ownership of the segment and of the doorbell socket, which drops TLS. */
sh_channel *sh_shm_channel_create(sh_shm *shm, sh_stream bell);

/* Identifies this machine until it reboots: ranks with equal ids may try shared memory. */
void sh_host_id(uint8_t out[SH_HOST_ID_LEN]);

#endif
