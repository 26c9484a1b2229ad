/* shm.h - the data path between two ranks of one machine: a segment of shared memory with a ring of
 * bytes for each direction.
 *
 * The rank that dials makes the segment under a name that nobody can guess, readable by its user
 * alone, and offers it in its hello; the other attaches it and checks the key inside, which also
 * proves that both see the same memory (containers on one machine may not). The name is gone as
 * soon as both are in.
 *
 * A rank that has spun long enough says in the segment that it sleeps, and the other then rings: a
 * byte on the pair's socket. So one poll() waits for all kinds of ports, and the end of a peer
 * shows there too.
 *
 * Threads: a segment and its port have one owner in each of the two ranks. */
#ifndef SH_NET_SHM_H
#define SH_NET_SHM_H

#include "net/channel.h"

typedef struct sh_shm sh_shm;

/* Makes a segment; its name and key go into the hello. */
SH_MUST_CHECK sh_status sh_shm_create(sh_shm **out, char name[SH_SHM_NAME_MAX],
                                      uint8_t key[SH_SHM_KEY_LEN], sh_err *err);

/* Attaches the segment that a peer offered. Fails when it is not to be seen from here. */
SH_MUST_CHECK sh_status sh_shm_attach(const char *name, const uint8_t key[SH_SHM_KEY_LEN],
                                      sh_shm **out, sh_err *err);

/* Takes the name away: both are in, or will never be. */
void sh_shm_unlink(sh_shm *shm);

/* Unmaps; unlinks what was created and not yet unlinked. */
void sh_shm_close(sh_shm *shm);

/* Takes over the segment and the socket that rings, which is in clear from here on. */
sh_channel *sh_shm_channel_create(sh_shm *shm, sh_stream bell);

/* Names this machine until it is started anew: ranks with equal ids may try shared memory. */
void sh_host_id(uint8_t out[SH_HOST_ID_LEN]);

#endif
