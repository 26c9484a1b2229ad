/* meet.h - the work of joining, between mesh.c and the links; nobody else includes it.
 *
 * A meeting holds what is only needed until the group stands. Each step_* function does what can be
 * done now; mesh.c calls them in a loop and sleeps between.
 *
 * Threads: one owner. */
#ifndef SH_NET_MEET_H
#define SH_NET_MEET_H

#include "net/dial.h"
#include "net/mesh.h"
#include "net/shm.h"

typedef struct {
    sh_dial dial;
    int peer;
} sh_meet_call;

typedef struct {
    sh_stream socket[SH_SOCKETS_MAX];
    int sockets_up; /* as bits */
    sh_shm *shm;    /* offered to or by the peer */
    bool shm_agreed;
    bool ready; /* rank 0: the peer said that its links stand */
} sh_meet_pair;

typedef struct {
    const sh_mesh_opts *opts;
    sh_mesh *mesh;
    sh_hello hello;
    sh_deadline deadline;
    sh_table table;
    bool table_known;
    bool ready_sent;
    bool go;
    sh_meet_call *calls; /* owned */
    int call_count;
    sh_meet_pair pair[SH_RANKS_MAX];
    int at_fault; /* the rank that an error is about, -1 for none */
} sh_meeting;

/* Takes whoever has said hello at the gate. */
SH_MUST_CHECK sh_status sh_meet_step_gate(sh_meeting *meet, sh_err *err);

/* Goes on with what this rank dials; plans the calls first. */
SH_MUST_CHECK sh_status sh_meet_step_calls(sh_meeting *meet, sh_err *err);
void sh_meet_call_coordinator(sh_meeting *meet);

/* Reads and answers what comes on the control links. */
SH_MUST_CHECK sh_status sh_meet_step_controls(sh_meeting *meet, sh_err *err);

/* Sends what is due by now: the table, ready, go. */
SH_MUST_CHECK sh_status sh_meet_advance(sh_meeting *meet, sh_err *err);

/* Tells everybody who has come that it is over. */
void sh_meet_tell_all(sh_meeting *meet, const sh_err *err);

#endif
