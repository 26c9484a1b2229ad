/* node_id.h - the identity of a rank that joins by a token, kept in the state folder.
 *
 * By it rank 0 knows a machine again, whatever its address. Each process of a machine that joins
 * has a file of its own: the first one that no other process uses.
 *
 * Threads: pure functions over the file system. */
#ifndef SH_CLUSTER_NODE_ID_H
#define SH_CLUSTER_NODE_ID_H

#include "base/status.h"
#include "net/peer_messages.h"

/* Claims a file in the state folder, which is made if need be. It is claimed until *lock is closed;
 * *file is owned by the caller. */
SH_MUST_CHECK sh_status sh_node_id_claim(const char *state_dir, char **file, int *lock,
                                         sh_err *err);

/* The id in a claimed file. A missing or damaged one is replaced; that is logged. */
SH_MUST_CHECK sh_status sh_node_id_read(const char *file, uint8_t out[SH_NODE_ID_LEN], sh_err *err);

/* A new id in the place of the old one. */
SH_MUST_CHECK sh_status sh_node_id_renew(const char *file, uint8_t out[SH_NODE_ID_LEN],
                                         sh_err *err);

enum { SH_NODE_ID_TEXT_LEN = 2 * SH_NODE_ID_LEN };
void sh_node_id_format(const uint8_t id[SH_NODE_ID_LEN], char out[SH_NODE_ID_TEXT_LEN + 1]);

#endif
