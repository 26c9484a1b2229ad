/* join.h - the work of joining, between mesh.c and the links; nobody else includes it.
 *
 * A meeting holds what is only needed until the group stands. Each step_* function does what can be
 * done now; mesh.c calls them in a loop and sleeps between.
 *
 * Threads: one owner. */
#ifndef SH_NET_JOIN_H
#define SH_NET_JOIN_H

#include "net/connector.h"
#include "net/mesh.h"
#include "net/shm.h"

typedef struct {
    sh_connector connector;
    int peer;
} sh_join_attempt;

typedef struct {
    sh_stream socket[SH_SOCKETS_MAX];
    int sockets_up; /* as bits */
    sh_shm *shm;    /* offered to or by the peer */
    bool shm_agreed;
    bool ready; /* rank 0: the peer said that its links stand */
} sh_join_pair;

typedef struct {
    const sh_mesh_opts *opts;
    sh_mesh *mesh;
    sh_hello hello;
    sh_deadline deadline;
    sh_rank_table table;
    bool table_known;
    bool ready_sent;
    bool go;
    sh_join_attempt *calls; /* owned */
    int call_count;
    sh_join_pair pair[SH_RANKS_MAX];
    int at_fault; /* the rank that an error is about, -1 for none */
} sh_join;

/* Takes whoever has said hello at the acceptor. */
SH_MUST_CHECK sh_status sh_join_step_gate(sh_join *join, sh_err *err);

/* Goes on with what this rank dials; plans the calls first. */
SH_MUST_CHECK sh_status sh_join_step_calls(sh_join *join, sh_err *err);
void sh_join_call_coordinator(sh_join *join);

/* Reads and answers what comes on the control links. */
SH_MUST_CHECK sh_status sh_join_step_controls(sh_join *join, sh_err *err);

/* Sends what is due by now: the table, ready, go. */
SH_MUST_CHECK sh_status sh_join_advance(sh_join *join, sh_err *err);

/* Tells everybody who has come that it is over. */
void sh_join_tell_all(sh_join *join, const sh_err *err);

#endif
