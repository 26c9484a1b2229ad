/* sequence.h - one request in the engine: its tokens, its KV blocks, its times.
 *
 * A sequence knows `count` tokens (the prompt, then the answer so far); the first `computed` of
 * them have their KV. Prefill, decoding and resuming after a pause are the same operation: run the
 * tokens that are known but not computed, and after the last known token draw the next one. So
 * is going on with an answer that another engine began. A waiting sequence holds its prompt only;
 * memory for the whole answer is allocated when it first starts.
 *
 * Threads: belongs to the scheduler. */
#ifndef SH_ENGINE_SEQUENCE_H
#define SH_ENGINE_SEQUENCE_H

#include "base/clock.h"
#include "engine/blocks.h"
#include "engine/constraint.h"
#include "engine/draft_policy.h"
#include "engine/engine_client.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_DRAFTS_MAX = 8 };

/* Where drafts come from. Each source is judged by its own success. */
typedef enum {
    SH_DRAFT_FORCED,   /* the text that a grammar leaves no choice about */
    SH_DRAFT_REPEATED, /* what followed the last two tokens before */
    SH_DRAFT_MODEL,    /* what a draft model draws */
    SH_DRAFT_HEAD,     /* what the model's multi-token-prediction layer draws */
    SH_DRAFT_SOURCES
} sh_draft_source;

/* The originator of requests, for fairness: the requests of one client share its turn. */
typedef struct sh_sched_client sh_sched_client;
struct sh_sched_client {
    sh_sched_client *next; /* in the same bucket of the scheduler's table */
    uint64_t id;
    int open;    /* requests waiting or running */
    int running; /* those running */
};

typedef struct sh_sequence sh_sequence;
struct sh_sequence {
    sh_sequence *prev, *next; /* in the scheduler's waiting or running list */
    uint64_t owner;           /* the connection it came from */
    uint64_t order;           /* of arrival */
    sh_sched_client *client;  /* owned by the scheduler */
    sh_sequence_spec spec;
    int32_t *tokens; /* [count_max + SH_DRAFTS_MAX] after the first start; drafts being tried follow
                        the first `count` */
    int count, prompt_count, count_max;
    int computed;
    int scored; /* the probabilities of the prompt's tokens before this one have been reported, or
                   are not asked for */
    bool reasoning; /* the answer is in the middle of it */
    int reasoned;   /* tokens of it, if they are limited */
    int draft_count;
    sh_draft_source draft_source;
    int catch_up; /* tokens before the last known one that run together with it: those that a
                     grammar left no choice about, and those that run once more because wrong drafts
                     went into a fixed-size state after them */
    int slot;     /* -1: waiting */
    bool in_flight;
    bool cancelled;
    bool reserved;  /* `tokens` and `blocks` are large enough for the longest answer */
    bool unshared;  /* its blocks are no good for others, nor theirs for it */
    bool long_rope; /* it is longer than the context that the short RoPE factors were made for */

    int32_t *blocks;
    int block_count;
    int blocks_sent;  /* blocks that earlier plans already named to the ranks */
    int blocks_keyed; /* full blocks whose identity is part of `key` */
    int blocks_ready;
    sh_key128 key;
    int32_t copied; /* the block after the reused ones begins as a copy of this one; -1: it does not
                     */
    int kept;       /* tokens that the blocks have on all ranks, once the sequence stops */

    int cached_tokens; /* of the prompt, at the first start; -1 before that */
    int64_t submitted_ns, started_ns, first_token_ns;
    sh_deadline deadline;

    sh_draft_rate draft_rates[SH_DRAFT_SOURCES];
    bool followed; /* the draft model has caught up with it, or nearly */
    bool probed;   /* the draft model catches up with it for the sake of a single draft */

    sh_constraint *constraint; /* of a request with a grammar, once it is bound to it */
    sh_err *mask_error; /* a mask of the step in flight could not be made; NULL: all could; owned */
    int mask_error_at;  /* the draw that it is of: its pick, and what follows, is void */
    sh_match_state states[1 + SH_DRAFTS_MAX]; /* after the known tokens, then after each draft */
    int masks[1 + SH_DRAFTS_MAX];             /* to draw with after them: numbers in the plan */
};

/* Copies the spec. It is bound to its grammar, if it has one, by the scheduler. max_tokens is
 * lowered so that prompt and answer fit into `context` tokens. */
sh_sequence *sh_sequence_create(const sh_sequence_spec *spec, int context);
void sh_sequence_free(sh_sequence *seq);

static inline int sh_sequence_answered(const sh_sequence *seq)
{
    return seq->count - seq->prompt_count;
}

/* Whether it has a grammar that it is not bound to yet: it must wait. */
static inline bool sh_sequence_unbound(const sh_sequence *seq)
{
    return seq->spec.grammar.len > 0 && seq->constraint == NULL;
}

/* How many of the next `count` tokens to compute have a row of logits that a token of the prompt
 * is scored with. */
int sh_sequence_scores(const sh_sequence *seq, int count);

/* Tokens that need KV blocks before the next step: the known ones, and the one that it draws. */
static inline int sh_sequence_room(const sh_sequence *seq)
{
    return seq->count + (seq->spec.pooled ? 0 : 1);
}

/* Follows the answer, which has got this token, through its reasoning. */
void sh_sequence_reason(sh_sequence *seq, int32_t token);

/* Whether the reasoning must end now. */
static inline bool sh_sequence_reasoned(const sh_sequence *seq)
{
    return seq->reasoning && seq->spec.reasoning_max > 0 &&
           seq->reasoned >= seq->spec.reasoning_max;
}

/* Ends the reasoning of a sequence that was not started yet, in the answer so far. */
void sh_sequence_end_reasoning(sh_sequence *seq);

/* Whether the token ends the answer. */
bool sh_sequence_stops(const sh_sequence *seq, int32_t token);

/* Reuses what the prefix cache has, takes blocks for sh_sequence_room() tokens, and promises
 * those that will be full. `reserve` blocks must stay available. False, with nothing taken, when
 * there are not enough blocks or (*wait is set) when another sequence is computing the next block
 * of the prefix. */
bool sh_sequence_start(sh_sequence *seq, sh_blocks *blocks, int reserve, bool *wait);

/* Takes blocks until there are enough for `count` tokens in all; false when they run out. Blocks
 * taken up to then stay with the sequence. */
bool sh_sequence_grow(sh_sequence *seq, sh_blocks *blocks, int count);

/* The KV of the first `computed` tokens has been computed: full blocks enter the prefix cache. */
void sh_sequence_computed(sh_sequence *seq, sh_blocks *blocks, int computed);

/* Releases all blocks; the sequence can be started again. */
void sh_sequence_stop(sh_sequence *seq, sh_blocks *blocks);

#endif
