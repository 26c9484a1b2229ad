/* engine.h - the narrow interface to everything that computes answers.
 *
 * An engine is rank 0 of its model group: it has a loaded shard, the book of KV blocks, the
 * scheduler, and a thread that runs one step after the other. Requests of token ids go in, events
 * come out through a sink, on the engine's thread. The engine knows nothing about text, except
 * where a request brings a grammar (engine/constraint.h).
 *
 * When a rank is lost, all open requests end with an error that says so, and the engine re-forms
 * the group as soon as the rank is back, or without it; the client can then submit them again. The
 * same happens when ranks come in or leave. Over MPI it cannot:
 * it then calls `lost_for_good`, and sh_engine_check returns the reason.
 *
 * `owner` is the connection that a request came from; a request is identified by owner and id.
 *
 * Threads: submit, cancel, forget, dismiss and ask_stats from any; open, start, stop and close by
 * one owner.
 */
#ifndef SH_ENGINE_ENGINE_H
#define SH_ENGINE_ENGINE_H

#include "engine/engine_messages.h"
#include "engine/members.h"
#include "engine/model_group.h"
#include "engine/scheduler.h"

/* In the place of a draft model's folder: the model's own multi-token-prediction layer drafts. A
 * folder of that name is "./mtp". */
#define SH_DRAFT_MODEL_MTP "mtp"

typedef struct {
    sh_model_group_opts model_group;
    const sh_group_opts *group; /* NULL: this process alone; borrowed until close */
    bool elastic;               /* ranks may come and go: see members.h */
    bool resumed;               /* another process was rank 0 of this group before */
    int64_t degrade_ms, rejoin_ms;
    bool gathers;      /* the first group is made of whoever comes: see roster.h */
    int min_ranks;     /* then: form when so many are there; 0: not by number */
    int64_t gather_ms; /* or after this time; -1: not by time */
    void (*formed)(void *ctx, int world_size); /* on the engine's thread, or in sh_engine_open; or
                                                  NULL */
    void *formed_ctx;
    int queue_max;
    int64_t timeout_ms;
    double stall_s;
    int drafts;              /* tokens to draft ahead, at most; 0: none */
    bool drafts_always;      /* see sh_sched_opts */
    const char *draft_model; /* folder of a draft model, or SH_DRAFT_MODEL_MTP; NULL: none */
    sh_pool_kind pool;       /* replaces what the model's files say; SH_POOL_NONE: they decide */
    sh_vocabulary_source vocabulary; /* of requests with a grammar */
    /* Called on the engine's thread when the group is lost and cannot be re-formed; may be NULL. */
    void (*lost_for_good)(void *ctx);
    void *lost_ctx;
} sh_engine_opts;

/* Rows of logits that a step with this many sequences may need. */
int sh_engine_draws(int slots);

typedef struct sh_engine sh_engine;

/* Forms the group, loads the model and allocates all memory that steps need. */
SH_MUST_CHECK sh_status sh_engine_open(const sh_engine_opts *opts, sh_engine **out, sh_err *err);
void sh_engine_close(sh_engine *engine);

/* Starts the thread; events go to the sink. */
SH_MUST_CHECK sh_status sh_engine_start(sh_engine *engine, sh_emit_fn sink, void *ctx, sh_err *err);

/* Refuses new requests, lets running ones finish for at most grace_ms, ends the rest with an error,
 * and joins the thread. The other ranks are stopped too, unless grace_ms is SH_ENGINE_LEAVE: then
 * nothing is waited for, and they find another rank 0 in the place of this one. */
#define SH_ENGINE_LEAVE (-1)
void sh_engine_stop(sh_engine *engine, int64_t grace_ms);

/* SH_ERR_GROUP, with the reason, when the group was lost and cannot be re-formed. */
SH_MUST_CHECK sh_status sh_engine_check(const sh_engine *engine, sh_err *err);

sh_engine_info sh_engine_info_of(const sh_engine *engine);

/* Takes ownership of the request. SH_AGAIN, and the caller keeps it, when the command queue is
 * full. */
SH_MUST_CHECK sh_status sh_engine_submit(sh_engine *engine, uint64_t owner,
                                         sh_submit_message *submit);
void sh_engine_cancel(sh_engine *engine, uint64_t owner, uint64_t id);
void sh_engine_detach(sh_engine *engine, uint64_t owner, uint64_t id); /* see kept_answers.h */
void sh_engine_forget(sh_engine *engine, uint64_t owner);
void sh_engine_dismiss(sh_engine *engine, uint64_t ranks); /* see engine_client.h */
/* Answered by a STATS event; while the group is re-forming, at once and on the caller's thread. */
void sh_engine_ask_stats(sh_engine *engine, uint64_t owner);

#endif
