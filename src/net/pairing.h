/* pairing.h - one pair of ranks, from its offers to its channel; private to join.c and mesh.c.
 *
 * The pairing knows nothing about connections: join.c carries the offers, opens the sockets that
 * the chosen transport needs, and hands them over here.
 *
 * Threads: the one that joins. */
#ifndef SH_NET_PAIRING_H
#define SH_NET_PAIRING_H

#include "net/mesh.h"

typedef struct {
    const sh_mesh_opts *opts; /* borrowed */
    sh_pair pair;
    sh_offers mine;
    sh_offers theirs;
    bool offered;                   /* `mine` is complete */
    const sh_transport *chosen;     /* NULL: not yet */
    void *state[SH_TRANSPORTS_MAX]; /* of the offers, in the order of the table */
    int sockets;                    /* that the chosen transport needs */
    int sockets_up;                 /* bit mask of the open ones */
} sh_pairing;

/* pair: everything but the sockets. */
void sh_pairing_init(sh_pairing *pairing, const sh_mesh_opts *opts, const sh_pair *pair);

/* Takes back what was offered and closes what was opened, unless it belongs to the channel. */
void sh_pairing_reset(sh_pairing *pairing);

/* Whether this end goes first: offers before it is asked, and connects. */
bool sh_pairing_leads(const sh_pairing *pairing);

/* The end that leads: fills pairing->mine. */
void sh_pairing_offer(sh_pairing *pairing);

/* The peer's offers have arrived. Fills pairing->mine on the end that answers, and chooses. */
SH_MUST_CHECK sh_status sh_pairing_agree(sh_pairing *pairing, const sh_offers *theirs, sh_err *err);

/* Whether the pair is waiting for this data socket. */
bool sh_pairing_needs_socket(const sh_pairing *pairing, int socket);
void sh_pairing_add_socket(sh_pairing *pairing, int socket, sh_stream stream);

/* Advances towards the channel. SH_AGAIN: not yet. Not to be called again after SH_OK. */
SH_MUST_CHECK sh_status sh_pairing_connect(sh_pairing *pairing, sh_channel **out, sh_err *err);

#endif
