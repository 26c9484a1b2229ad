/* sequence.h - one request on its way: its tokens, its KV blocks, its times.
 *
 * A sequence knows `count` tokens (the prompt, then the answer so far); the KV of the first
 * `computed` of them is there. Prefill, decoding and coming back from a pause are one thing: run
 * what is known and not computed, and when the last known token is run, draw the next. While it
 * waits it holds its prompt alone; the memory for a whole answer is made when it first starts.
 *
 * Threads: belongs to the scheduler. */
#ifndef SH_ENGINE_SEQUENCE_H
#define SH_ENGINE_SEQUENCE_H

#include "base/clock.h"
#include "engine/blocks.h"
#include "engine/engine_client.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_DRAFTS_MAX = 8 };

/* Who asks; requests of one client share its turn. */
typedef struct sh_sched_client sh_sched_client;
struct sh_sched_client {
    sh_sched_client *next; /* in the same bucket of the scheduler's table */
    uint64_t id;
    int open;    /* requests that wait or run */
    int running; /* of these */
};

typedef struct sh_sequence sh_sequence;
struct sh_sequence {
    sh_sequence *prev, *next; /* in the scheduler's list of waiting or of running ones */
    uint64_t owner;           /* which connection asked */
    uint64_t order;           /* of arrival */
    sh_sched_client *client;  /* the scheduler's */
    sh_sequence_spec spec;
    int32_t *tokens; /* [count_max + SH_DRAFTS_MAX] once it started; drafts follow the first `count`
                        while they are tried */
    int count, prompt_count, count_max;
    int computed;
    int draft_count;
    int slot; /* -1: waiting */
    bool in_flight;
    bool cancelled;
    bool has_room;  /* tokens and blocks are as long as the answer may need */
    bool long_rope; /* it has outgrown the context that the short factors of its RoPE are for */

    int32_t *blocks;
    int block_count;
    int blocks_told;  /* the ranks know these */
    int blocks_keyed; /* full blocks whose identity is part of `key` */
    int blocks_ready;
    sh_key128 key;

    int cached_tokens; /* of the prompt, at its first start; -1 before */
    int64_t submitted_ns, started_ns, first_token_ns;
    sh_deadline deadline;

    int draft_tried, draft_kept, draft_rest; /* lately; and steps to sit out */
};

/* Copies the spec. The answer is cut so that prompt and answer fit into `context` tokens. */
sh_sequence *sh_sequence_create(const sh_sequence_spec *spec, int context);
void sh_sequence_free(sh_sequence *seq);

static inline int sh_sequence_answered(const sh_sequence *seq)
{
    return seq->count - seq->prompt_count;
}

/* Finds what the prefix cache has, takes blocks for all known tokens and one more, and promises
 * those that will be full. False, with nothing taken, when there is not enough room or, with *wait,
 * when the next block of the prefix is being computed by another. */
bool sh_sequence_start(sh_sequence *seq, sh_blocks *blocks, int reserve, bool *wait);

/* Blocks for `count` tokens in all; false when there is no room. */
bool sh_sequence_grow(sh_sequence *seq, sh_blocks *blocks, int count);

/* The first `computed` tokens have their KV: full blocks become part of the prefix cache. */
void sh_sequence_computed(sh_sequence *seq, sh_blocks *blocks, int computed);

/* Lets all blocks go; the sequence can be started again. */
void sh_sequence_stop(sh_sequence *seq, sh_blocks *blocks);

/* Looks for what followed the last time that the last two tokens came, and writes at most `max`
 * tokens of it behind the known ones. Returns how many. */
int sh_sequence_draft(sh_sequence *seq, int max);

/* What came of the drafts; a sequence whose drafts fail too often sits out for a while. */
void sh_sequence_draft_result(sh_sequence *seq, int tried, int kept);

#endif
