/* scheduler.h - decides which tokens of which requests run in the next step.
 *
 * Requests wait, run, may be paused (their KV is released and computed again later) and end. A step
 * has one token (and drafts) of every decoding sequence and is filled up with prompt tokens of
 * others, in chunks bounded by how long a running stream may stall. Of the waiting requests, the
 * one whose client has the fewest running requests is next, then the oldest.
 *
 * Plans may overlap (a pipeline has one in each stage): a sequence is in at most one of them, and
 * plans are committed in the order in which they were made.
 *
 * Threads: one owner, which is also where events come out. */
#ifndef SH_ENGINE_SCHEDULER_H
#define SH_ENGINE_SCHEDULER_H

#include "engine/drafter.h"
#include "engine/pooled.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

typedef struct {
    sh_step_limits limits;
    sh_constraints *constraints; /* for requests with a grammar; borrowed */
    int context;                 /* tokens of the longest sequence */
    int queue_max;               /* requests that may wait */
    int64_t timeout_ms;          /* of a request without its own; 0: no limit */
    double stall_s;              /* target for the length of a step while streams are running */
    int stages_in_flight;        /* plans in flight at once; each gets its share of the sequences */
    int drafts;                  /* tokens to draft ahead, at most; 0: none */
    bool drafts_always;  /* whether that pays or not: for tests, which must not depend on time */
    sh_drafter *drafter; /* a draft model; NULL: none; borrowed */
    bool fixed_state;    /* the model has layers with a fixed-size state: wrong drafts are undone
                            by computing again from the last block border */
    sh_pool_kind pool;   /* how pooled requests are pooled; SH_POOL_NONE: they are refused */
    bool whole;          /* tokens see what follows them: a sequence runs in one step or waits */
    bool headless;       /* the model has no logits: only pooled requests are possible */
    int rope_original;   /* longer sequences use the long RoPE factors; 0: the model has one set */
} sh_sched_opts;

/* Events of one request come in order; the last is DONE or ERROR. */
typedef void (*sh_emit_fn)(void *ctx, uint64_t owner, const sh_event *event);

typedef struct {
    int waiting, running;
    uint64_t requests, refused, finished, failed, cancelled, paused;
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t drafts_tried[SH_DRAFT_SOURCES], drafts_kept[SH_DRAFT_SOURCES];
    uint64_t redone_tokens; /* run once more after wrong drafts; see fixed_state */
    uint64_t constrained;   /* requests that were bound to a grammar */
    uint64_t masks_used;    /* draws with a mask */
    uint64_t masks_sent;    /* masks that the ranks did not have */
    uint64_t masks_made;    /* of these, made while the forward pass ran */
    uint64_t forced_tokens; /* of answers, which a grammar left no choice about: not drawn, or
                               drafted and right */
    double mask_s;          /* time spent on grammars and waiting for masks */
    double draft_s;         /* time that the draft model took */
} sh_sched_stats;

typedef struct sh_sched sh_sched;

/* `blocks` is borrowed. */
sh_sched *sh_sched_create(const sh_sched_opts *opts, sh_blocks *blocks, sh_emit_fn emit, void *ctx);
void sh_sched_free(sh_sched *sched);

/* Queues the request, or refuses it at once with an ERROR that names the limit. */
void sh_sched_submit(sh_sched *sched, uint64_t owner, const sh_sequence_spec *spec);

/* Ends a request with DONE (cancel); an unknown id is ignored. */
void sh_sched_cancel(sh_sched *sched, uint64_t owner, uint64_t id);

/* The owner is gone: cancels its requests. */
void sh_sched_forget(sh_sched *sched, uint64_t owner);

/* Fails all requests with this error, including those in flight, whose plans are void. */
void sh_sched_fail_all(sh_sched *sched, const sh_err *why);

/* Fills the plan, except for number and fingerprint. False when there is nothing to run now. */
bool sh_sched_plan(sh_sched *sched, sh_step_plan *step);

/* The vectors that a plan completed, in its order, for the sequences that the next commit ends;
 * borrowed until then. */
void sh_sched_vectors(sh_sched *sched, const float *vectors, int width);

/* Likewise the model's outputs [tokens, hidden] of a plan that asked for them, f32 at any address.
 */
void sh_sched_outputs(sh_sched *sched, const void *outputs, int hidden);

/* Takes the results of a plan: a pick for each of its draws, and how long the step took.
 * `alone_s`: how long it takes when no other is in the pipeline, whose stages it would have to wait
 * for. */
void sh_sched_commit(sh_sched *sched, const sh_step_plan *step, const sh_pick *picks, double step_s,
                     double alone_s);

/* Whether any request is waiting or running. */
bool sh_sched_busy(const sh_sched *sched);

/* Continues the counters of an earlier scheduler, and takes over what it knew of drafts. */
void sh_sched_carry(sh_sched *sched, const sh_sched *before);
const sh_sched_stats *sh_sched_stats_of(sh_sched *sched);

#endif
