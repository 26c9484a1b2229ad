/* scheduler.h - which tokens of which requests run in the next step.
 *
 * Requests wait, run, may be paused (their KV let go, to be computed again later) and end; nothing
 * is lost on the way. A step holds one token (and drafts) of every sequence that is decoding, and
 * fills up with prompt tokens of others, in chunks that are bounded by how long a running stream
 * may be held up. Who comes next among the waiting is who has the fewest running requests, then who
 * came first.
 *
 * Plans may overlap (a pipeline has one in each stage): a sequence is in at most one of them, and a
 * plan is committed in the order in which it was made.
 *
 * Threads: one owner, which is also where events come out. */
#ifndef SH_ENGINE_SCHEDULER_H
#define SH_ENGINE_SCHEDULER_H

#include "engine/sequence.h"
#include "engine/step_plan.h"

typedef struct {
    sh_step_limits limits;
    int vocab;
    int context;          /* tokens of the longest sequence */
    int queue_max;        /* requests that may wait */
    int64_t timeout_ms;   /* of a request that names none; 0: none */
    double stall_s;       /* how long a step may take while streams are running */
    int stages_in_flight; /* plans that run at once: each takes its part of the sequences */
    int drafts;           /* tokens to guess ahead; 0: none */
    int rope_original;    /* longer sequences use the long RoPE factors; 0: the model has one set */
} sh_sched_opts;

/* Events of one request come in order; the last is DONE or ERROR. */
typedef void (*sh_emit_fn)(void *ctx, uint64_t owner, const sh_event *event);

typedef struct {
    int waiting, running;
    uint64_t requests, refused, finished, failed, cancelled, paused;
    uint64_t prompt_tokens, cached_tokens, answer_tokens, drafts_tried, drafts_kept;
} sh_sched_stats;

typedef struct sh_sched sh_sched;

/* `blocks` is borrowed. */
sh_sched *sh_sched_create(const sh_sched_opts *opts, sh_blocks *blocks, sh_emit_fn emit, void *ctx);
void sh_sched_free(sh_sched *sched);

/* Takes the request in, or ends it at once with an ERROR that has the numbers. */
void sh_sched_submit(sh_sched *sched, uint64_t owner, const sh_sequence_spec *spec);

/* Ends a request with DONE (cancel); an unknown id is nothing. */
void sh_sched_cancel(sh_sched *sched, uint64_t owner, uint64_t id);

/* The owner went away: its requests end without a word. */
void sh_sched_forget(sh_sched *sched, uint64_t owner);

/* Ends everything with this error: a rank was lost. What is in flight is given up. */
void sh_sched_fail_all(sh_sched *sched, const sh_err *why);

/* Fills the plan (but for number and fingerprint). False when there is nothing to run now. */
bool sh_sched_plan(sh_sched *sched, sh_step_plan *step);

/* What a plan brought: a pick for each of its draws, and how long it took. */
void sh_sched_commit(sh_sched *sched, const sh_step_plan *step, const sh_pick *picks,
                     double step_s);

/* Something waits or runs. */
bool sh_sched_busy(const sh_sched *sched);

/* Counts on from what an earlier scheduler had counted. */
void sh_sched_carry(sh_sched *sched, const sh_sched_stats *so_far);
const sh_sched_stats *sh_sched_stats_of(sh_sched *sched);

#endif
