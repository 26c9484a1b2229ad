/* join.h - the steps of joining a group; private to mesh.c and join.c.
 *
 * An sh_join holds what is only needed until the group has formed. Each step function does what can
 * be done now; mesh.c calls them in a loop and sleeps in between.
 *
 * Threads: one owner. */
#ifndef SH_NET_JOIN_H
#define SH_NET_JOIN_H

#include "net/connector.h"
#include "net/pairing.h"

typedef struct {
    sh_connector connector;
    int peer;
} sh_join_attempt;

typedef struct {
    const sh_mesh_opts *opts;
    sh_mesh *mesh;
    sh_hello hello;
    sh_deadline deadline;
    sh_deadline without_at; /* rank 0: when to form without those who have not come */
    sh_rank_table table;
    bool table_known;
    bool ready_sent;
    bool go;
    sh_join_attempt *attempts; /* owned */
    int attempt_count;
    sh_pairing pairing[SH_RANKS_MAX];
    bool
        ready[SH_RANKS_MAX]; /* rank 0: which peers have reported that their connections are open */
    int at_fault;            /* the rank that caused an error, -1 for none */
} sh_join;

/* Admits or refuses the connections that have completed their handshake. */
SH_MUST_CHECK sh_status sh_join_step_acceptor(sh_join *join, sh_err *err);

/* Starts the first outgoing connection, that to rank 0. The others follow from the table. */
void sh_join_connect_coordinator(sh_join *join);

/* Advances the outgoing connections. */
SH_MUST_CHECK sh_status sh_join_step_attempts(sh_join *join, sh_err *err);

/* Handles the frames that arrive on the control connections. */
SH_MUST_CHECK sh_status sh_join_step_controls(sh_join *join, sh_err *err);

/* Does what is due: sends the table, offers, ready and go, and makes the channels. */
SH_MUST_CHECK sh_status sh_join_advance(sh_join *join, sh_err *err);

/* The addresses at which a rank of the table can be reached from here. */
void sh_join_addresses(const sh_join *join, int rank, sh_addr_list *out);

/* Notifies all ranks that have joined so far that the group failed to form. */
void sh_join_abort_all(sh_join *join, const sh_err *err);

#endif
