/* scheduler_internal.h - what scheduler.c and scheduler_plan.c share; private to them. */
#ifndef SH_ENGINE_SCHEDULER_INTERNAL_H
#define SH_ENGINE_SCHEDULER_INTERNAL_H

#include "engine/scheduler.h"

enum { SH_SCHED_CHUNK_MIN = SH_KV_BLOCK, SH_SCHED_CLIENT_BUCKETS = 256 };

typedef struct {
    sh_sequence *first, *last;
} sh_sched_list;

struct sh_sched {
    sh_sched_opts opts;
    sh_blocks *blocks;
    sh_emit_fn emit;
    void *ctx;
    sh_sched_list waiting; /* by arrival */
    sh_sched_list running; /* by arrival too: the last is the youngest */
    sh_sched_client *clients[SH_SCHED_CLIENT_BUCKETS]; /* with open requests, by id */
    sh_sequence **slots;                               /* the sequence in each slot, or NULL */
    int32_t *leaves;                                   /* slots emptied since the last plan */
    int leave_count;
    uint64_t order;
    double token_s; /* running average of the time a prompt token takes; 0: not measured yet */
    sh_marks marks;
    sh_sched_stats stats;
};

/* Fails the sequences whose deadline has passed, except those in flight. */
void sh_sched_expire(sh_sched *sched);

/* Whether a sequence of `count` tokens needs the long factors of a RoPE that has two sets. */
bool sh_sched_outgrown(const sh_sched *sched, int count);

/* Moves a waiting sequence, which has its blocks already, into a slot. */
void sh_sched_admit(sh_sched *sched, sh_sequence *seq, int slot);

/* Releases the KV of a running sequence and puts it back in the queue, to be computed again. */
void sh_sched_pause(sh_sched *sched, sh_sequence *seq);

/* Ends a sequence with DONE and frees it. */
void sh_sched_done(sh_sched *sched, sh_sequence *seq, sh_finish finish);

#endif
