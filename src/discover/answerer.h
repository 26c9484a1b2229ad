/* answerer.h - a thread that answers those who search for this rank.
 *
 * It answers only queries that prove the token, to where they came from. What costs more than a
 * comparison is limited, for each machine and for all together.
 *
 * Threads: started and stopped by one owner; sh_answerer_set from any. */
#ifndef SH_DISCOVER_ANSWERER_H
#define SH_DISCOVER_ANSWERER_H

#include "base/status.h"
#include "net/peer_messages.h"

typedef struct sh_answerer sh_answerer;

typedef struct {
    const char *token;
    const char *model; /* as users know it; cut if it is long. NULL: unknown */
    uint16_t port;     /* where this rank accepts others */
} sh_answerer_opts;

/* Until sh_answerer_set it answers nobody. */
SH_MUST_CHECK sh_status sh_answerer_start(const sh_answerer_opts *opts, sh_answerer **out,
                                          sh_err *err);
void sh_answerer_stop(sh_answerer *answerer); /* takes NULL */

/* The number of this rank and the size of its group: SH_RANK_ANY and 0 while it has none. Rank 0
 * answers those who search for a server. */
void sh_answerer_set(sh_answerer *answerer, const uint8_t node[SH_NODE_ID_LEN], int rank,
                     int world);

#endif
