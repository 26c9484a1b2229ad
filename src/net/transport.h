/* transport.h - what carries the data between two ranks, and how a pair settles on it.
 *
 * A transport is an entry of a table: what it is like, and how it connects two ranks. While a group
 * forms, each pair goes through the same steps (net/pairing.h):
 *
 *   1. The higher rank makes an offer for each transport: what the peer needs to know to connect,
 * or why this one cannot be used.
 *   2. The lower rank answers in the same form. It has seen the first offers, so its answer can
 *      already depend on them: attach the memory, or say that it is not visible from here.
 *   3. Both ends run sh_transport_choose on the two lists and get the same result.
 *   4. The higher rank opens the data sockets that the chosen transport asks for. Then both ends
 * call its connect until the channel exists.
 *
 * Offers travel on the control connection, whose two ends have proved the token: what they say (a
 * segment's name, later the address of a queue pair) never reaches a stranger.
 *
 * A new transport is a file that defines an sh_transport and a line in transport.c.
 *
 * Threads: tables are constant and the choice is a pure function; a pair belongs to the thread that
 * joins. */
#ifndef SH_NET_TRANSPORT_H
#define SH_NET_TRANSPORT_H

#include "net/channel.h"
#include "net/peer_messages.h"

/* Two ranks as one of them sees the pair. */
typedef struct {
    int rank; /* this one */
    int peer;
    bool same_host;
    uint64_t epoch;
    int lanes;
    bool plain_data;
    void *library; /* what the transport that was asked for runs on, such as an sh_mpi; or NULL */
    sh_stream socket[SH_SOCKETS_MAX]; /* the data sockets, open by the time of connect */
} sh_pair;

typedef struct {
    const char *name;    /* in offers and in --transport */
    const char *title;   /* in messages: "shared memory" */
    const char *backend; /* the --backend that asks for it; NULL: it belongs to the ring */
    bool clear_text;     /* sends data unencrypted over a network: used only if asked for */
    bool one_life;       /* cannot connect the ranks again after one was lost */

    /* Whether this pair is meant to use it, if it was asked for. NULL: every pair is. */
    bool (*covers)(const sh_pair *pair);

    /* Fills mine->body with what the peer needs to know; theirs: the offer to answer, NULL on the
     * end that goes first. *state is what was made for it so far, if anything; it belongs to the
     * transport until connect or withdraw. SH_ERR_UNSUPPORTED: these two ranks cannot use it, which
     * is normal. Any other error: it should have worked, and the user is warned. */
    sh_status (*offer)(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine, void **state,
                       sh_err *err);

    /* How many data sockets it needs, at most 2 * lanes. NULL: none. */
    int (*sockets)(const sh_pair *pair);

    /* Called once all sockets are open, and again after SH_AGAIN; must not block. With SH_OK the
     * channel takes over the sockets and the state. */
    sh_status (*connect)(const sh_pair *pair, void *state, const sh_offer *theirs, sh_channel **out,
                         sh_err *err);

    /* Frees a state that did not become a channel. NULL: offer makes none. */
    void (*withdraw)(void *state);
} sh_transport;

/* The transports of this program, best first; ends with NULL. At most SH_TRANSPORTS_MAX. */
extern const sh_transport *const sh_transports[];

extern const sh_transport sh_transport_shm;
extern const sh_transport sh_transport_tcp;
extern const sh_transport sh_transport_mpi;
extern const sh_transport sh_transport_rdma;

/* The transport of that name, or the one that belongs to a --backend; NULL for none. */
const sh_transport *sh_transport_find(const sh_transport *const *table, const char *name);
const sh_transport *sh_transport_find_backend(const sh_transport *const *table,
                                              const char *backend);

/* The offer for a transport in a list; NULL if it has none. */
const sh_offer *sh_offers_find(const sh_offers *offers, const sh_transport *transport);

/* The transport of a pair, from the offers of its two ranks in either order: the one that a rank
 * asks for, or else the first in the table that both can use. The error names both ranks and what
 * is missing, with the same text on both. */
SH_MUST_CHECK sh_status sh_transport_choose(const sh_transport *const *table, const sh_offers *a,
                                            const sh_offers *b, const sh_transport **out,
                                            sh_err *err);

#endif
