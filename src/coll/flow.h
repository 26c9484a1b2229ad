/* flow.h - runs an algorithm over the channels of a group; private to this folder.
 *
 * An algorithm is a callback that returns the next message to or from a peer, and another that is
 * called when a message is complete. It knows nothing about sockets and never waits; the flow moves
 * all messages concurrently, spins, sleeps, keeps the deadline, and adds a header to the first
 * message of each direction, which it checks on arrival.
 *
 * Messages posted ahead of time (sh_coll_expect) are received during every flow, before anything
 * else from their rank.
 *
 * Peers are ranks of the group.
 *
 * Threads: the owner of the group. */
#ifndef SH_COLL_FLOW_H
#define SH_COLL_FLOW_H

#include "base/clock.h"
#include "coll/group.h"

#include <sys/uio.h>

typedef enum {
    SH_OP_BARRIER = 1,
    SH_OP_ALLREDUCE, /* with the codec in bits 8 and up */
    SH_OP_ALLGATHER,
    SH_OP_GATHER,
    SH_OP_BROADCAST,
    SH_OP_PLAN, /* a broadcast whose length only the root knows */
    SH_OP_SEND,
} sh_op_kind;

typedef enum { SH_DIR_OUT, SH_DIR_IN } sh_dir;

typedef enum {
    SH_NEXT_READY, /* *body is the next message */
    SH_NEXT_LATER, /* another message must be complete first */
    SH_NEXT_END,   /* no more in this direction */
} sh_next;

typedef struct {
    sh_next (*next)(void *algo, int peer, sh_dir dir, struct iovec *body);
    void (*done)(void *algo, int peer, sh_dir dir); /* the last `next` is complete; may be NULL */
    /* The message from peer is complete and lies at `body`, until this rank receives the next one.
     * That is where `next` said, or the channel's own memory. NULL: always where `next` said. All
     * ranks of an operation must do the same. */
    void (*lent)(void *algo, int peer, const void *body);
    /* Whether this size is acceptable from peer; NULL: it must be the flow's own size. */
    bool (*take_size)(void *algo, int peer, uint64_t size);
} sh_algo_ops;

typedef struct {
    uint32_t kind;
    uint64_t size;         /* the size in this rank's headers */
    const uint64_t *sizes; /* the size that each peer must send, by rank; NULL: the same */
    sh_deadline deadline;
} sh_flow_opts;

/* Runs the algorithm to completion on this rank. */
SH_MUST_CHECK sh_status sh_flow_run(sh_group *group, const sh_flow_opts *opts,
                                    const sh_algo_ops *ops, void *algo, sh_err *err);

/* Waits until `count` point-to-point messages from a rank of the group have arrived. */
SH_MUST_CHECK sh_status sh_flow_await(sh_group *group, int peer, uint64_t count,
                                      sh_deadline deadline, sh_err *err);

/* The deadline of an operation that starts now. */
sh_deadline sh_flow_deadline(const sh_group *group);

/* SH_STAGING_LEN bytes of scratch memory for one operation; NULL in a group of one. */
void *sh_flow_staging(sh_group *group);

#endif
