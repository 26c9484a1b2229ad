/* drafter.h - what drafts for a model: a small model, or the model's own multi-token-prediction
 * layer (`head`).
 *
 * It runs on rank 0 alone, on a device of its own, and has KV blocks and a prefix cache of its own.
 * For each slot of the scheduler it follows the sequence there: tokens that the model has accepted,
 * drafts that were wrong, a sequence that is paused, ends or starts elsewhere. What its KV cache
 * does not hold it computes when drafts are wanted, in chunks. A head cannot catch up on its own:
 * it reads the outputs of the model and must be shown those of every step.
 *
 * A draft is drawn as the model would draw it: with the same noise, penalties, bias and mask. So it
 * is right as often as the two models agree, whatever the temperature.
 *
 * Threads: one owner, the scheduler's thread. */
#ifndef SH_ENGINE_DRAFTER_H
#define SH_ENGINE_DRAFTER_H

#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "model/model.h"

typedef struct {
    const char *model_dir;
    bool head;          /* the multi-token-prediction layer of that model, not the model */
    const char *device; /* a kind of device; NULL: "cpu" */
    sh_device_opts device_opts;
    sh_kv_format kv_format;
    sh_load_opts load;
    int slots;
    int vocab; /* of the model that it drafts for: its own must be the same */
} sh_drafter_opts;

typedef struct sh_drafter sh_drafter;

/* Loads the weights. It can draft once it has KV blocks. */
SH_MUST_CHECK sh_status sh_drafter_open(const sh_drafter_opts *opts, sh_drafter **out, sh_err *err);
void sh_drafter_close(sh_drafter *d);

/* Reserves as many KV blocks as the model has, for its limits and its longest sequence. */
SH_MUST_CHECK sh_status sh_drafter_reserve(sh_drafter *d, const sh_step_limits *limits, int context,
                                           sh_err *err);
/* Frees them, and forgets all sequences. */
void sh_drafter_release(sh_drafter *d);

/* SH_DRAFT_HEAD or SH_DRAFT_MODEL. */
sh_draft_source sh_drafter_source(const sh_drafter *d);

size_t sh_drafter_block_bytes(const sh_drafter *d);
sh_model_memory sh_drafter_memory(const sh_drafter *d);

/* How many known tokens of a running sequence it has not computed, at least 1. -1: it cannot draft
 * for this sequence now, because its context or its KV blocks are too few, because it is computing
 * the same prefix for another, or because it has not seen the outputs that a head needs. */
int sh_drafter_lag(sh_drafter *d, const sh_sequence *seq);

/* Measured: seconds of a draft for each of so many sequences, and of a token that it catches up on.
 * 0: not yet. */
double sh_drafter_step_s(const sh_drafter *d, int sequences);
double sh_drafter_token_s(const sh_drafter *d);

/* Seconds that it has run so far. */
double sh_drafter_busy_s(const sh_drafter *d);

typedef struct {
    sh_sequence *seq; /* with no drafts yet */
    int drafts;       /* wanted, at least one */
    bool done;        /* used by the drafter */
} sh_draft_order;

/* Appends drafts to the sequences, up to the number that is wanted. Those with a lot to
 * catch up on run for about `catch_up_s`, all together, and get theirs once they are done. */
SH_MUST_CHECK sh_status sh_drafter_run(sh_drafter *d, sh_draft_order *orders, int count,
                                       double catch_up_s, sh_err *err);

/* What a step has computed of a sequence: its tokens, wrong drafts included, the position of the
 * first, and the model's output for each (f32 at any address). */
typedef struct {
    int pos;
    int count;
    const int32_t *tokens;
    const char *outputs; /* [count, hidden] */
} sh_seen;

/* Shows the outputs to a head, when the sequence has got the tokens that were drawn. Other drafters
 * have no use for them. */
SH_MUST_CHECK sh_status sh_drafter_see(sh_drafter *d, const sh_sequence *seq, const sh_seen *seen,
                                       sh_err *err);

/* The slot's sequence has left it. */
void sh_drafter_leave(sh_drafter *d, int slot);

#endif
