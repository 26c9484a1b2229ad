/* flow.h - drives an algorithm over the ports of a group; for the files of this folder.
 *
 * An algorithm says what the next message to or from a peer is, and is told when one is through. It
 * knows nothing of sockets and waits for nothing; the flow moves all messages at once, spins,
 * sleeps, keeps the deadline, and puts a head in front of the first message of each direction,
 * which it checks on arrival.
 *
 * Messages that were asked for ahead of time (sh_coll_expect) come in during every flow, before
 * anything else of their rank.
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
    SH_OP_ALLREDUCE, /* the codec in bits 8 and up */
    SH_OP_ALLGATHER,
    SH_OP_GATHER,
    SH_OP_BROADCAST,
    SH_OP_PLAN, /* a broadcast whose length only the root knows */
    SH_OP_SEND,
} sh_op_kind;

typedef enum { SH_DIR_OUT, SH_DIR_IN } sh_dir;

typedef enum {
    SH_NEXT_READY, /* *body is the next message */
    SH_NEXT_LATER, /* something else must be through first */
    SH_NEXT_END,   /* no more in this direction */
} sh_next;

typedef struct {
    sh_next (*next)(void *algo, int peer, sh_dir dir, struct iovec *body);
    void (*done)(void *algo, int peer, sh_dir dir); /* the last `next` is through; may be NULL */
    /* Whether this size may come from peer; NULL: it must be the flow's own size. */
    bool (*take_size)(void *algo, int peer, uint64_t size);
} sh_algo_ops;

typedef struct {
    uint32_t kind;
    uint64_t size;         /* what this rank says in its heads */
    const uint64_t *sizes; /* what each peer must say, by rank; NULL: the same */
    sh_deadline deadline;
} sh_flow_opts;

/* Runs the algorithm to its end on this rank. */
SH_MUST_CHECK sh_status sh_flow_run(sh_group *group, const sh_flow_opts *opts,
                                    const sh_algo_ops *ops, void *algo, sh_err *err);

/* Waits until `count` point-to-point messages of a rank of the group have come in. */
SH_MUST_CHECK sh_status sh_flow_await(sh_group *group, int peer, uint64_t count,
                                      sh_deadline deadline, sh_err *err);

/* The deadline of an operation that starts now. */
sh_deadline sh_flow_deadline(const sh_group *group);

/* SH_STAGING_LEN bytes for what is under way; NULL in a group of one. */
enum { SH_STAGING_LEN = 8 << 20 };
void *sh_flow_staging(sh_group *group);

#endif
