/* scheduler_internal.h - what the files of the scheduler share; private to them. */
#ifndef SH_ENGINE_SCHEDULER_INTERNAL_H
#define SH_ENGINE_SCHEDULER_INTERNAL_H

#include "engine/mask_maker.h"
#include "engine/scheduler.h"
#include "engine/step_fill.h"

enum {
    SH_SCHED_CHUNK_MIN = SH_KV_BLOCK,
    SH_SCHED_CLIENT_BUCKETS = 256,
    SH_SCHED_USUAL_ANSWER = 64, /* tokens, as long as none was seen */
};

typedef struct {
    sh_sequence *first, *last;
} sh_sched_list;

/* Tokens of a plan in flight, with and without drafts. */
typedef struct {
    int tokens, plain;
} sh_sched_flight;

/* What was measured of drafts, and scratch to make them. */
typedef struct {
    sh_step_times times;                   /* of steps that verify drafts, or could */
    sh_draft_rate rates[SH_DRAFT_SOURCES]; /* of all sequences */
    double credit_s;                       /* that drafts may lose */
    double probes_s[SH_DRAFT_SOURCES];     /* of it, for drafts that are only tried out */
    int ended;                             /* answers that count for it */
    double usual_answer;                   /* tokens: running average */
    sh_draft_order *orders;                /* [slots] of the draft model */
    int order_count;
    sh_draft_offer *offers;  /* [slots] scratch */
    unsigned turn;           /* of the sequence that is asked first */
    sh_sched_flight *flying; /* [stages_in_flight] plans in flight: a ring */
    unsigned planned, committed;
    double drafter_s; /* that the drafter had run when it was asked last */

    /* Of the step being planned. */
    int decoding;    /* sequences of it */
    int following;   /* sequences that the draft model has caught up with */
    int rounds;      /* that it makes for those of them ... */
    double rate_min; /* ... with at least this rate */
    double step_s;   /* that it takes without drafts */
    double risked_s; /* that drafts take, or have the step take */

    /* Of the step being committed. */
    int answering; /* sequences that drew a token */
    int kept;      /* drafts */
    int redone;    /* tokens that must run again */
} sh_sched_drafting;

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
    const float *vectors; /* of sequences that the commit under way ends */
    int vector_width;
    const char *outputs;  /* of the tokens of that commit, in order; NULL: none */
    size_t output_bytes;  /* of one */
    sh_sequence **chosen; /* [slots] that decode in the step being planned */
    sh_sched_drafting drafting;
    sh_marks marks;
    sh_mask_table *masks;
    sh_mask_maker *maker;
    sh_step_plan *making; /* whose masks are being made; NULL: none */
    bool unbound;         /* some that wait may not be bound to their grammars yet */
    sh_sched_stats stats;
};

/* Fails the sequences whose deadline has passed, except those in flight. */
void sh_sched_expire(sh_sched *sched);

/* Whether a sequence of `count` tokens needs the long factors of a RoPE that has two sets. */
bool sh_sched_outgrown(const sh_sched *sched, int count);

/* Moves a waiting sequence, which has its blocks already, into a slot. */
void sh_sched_admit(sh_sched *sched, sh_sequence *seq, int slot);

/* Appends drafts to some of the sequences that the next step decodes, which are not in flight.
 * `tokens`: what they run without drafts. */
void sh_sched_draft(sh_sched *sched, sh_sequence **seqs, int count, int tokens);

/* A step has computed tokens of a sequence, which goes on. */
void sh_sched_draft_see(sh_sched *sched, const sh_sequence *seq, const sh_seen *seen);

/* The step being committed has verified the drafts of a sequence, if it had any. The first `kept`
 * were right; `redo` tokens must run again because of the others. */
void sh_sched_draft_result(sh_sched *sched, sh_sequence *seq, int kept, int redo);

/* A plan is complete. */
void sh_sched_draft_planned(sh_sched *sched, const sh_step_plan *step);

/* The oldest plan was committed. It had so many tokens and took so long; see sh_sched_commit(). */
void sh_sched_draft_measure(sh_sched *sched, int tokens, double alone_s);

/* Takes over what another scheduler has learned, but not the times: its group was another. */
void sh_sched_draft_carry(sh_sched *sched, const sh_sched *before);

/* A sequence has ended. */
void sh_sched_draft_ended(sh_sched *sched, const sh_sequence *seq);

/* Releases the KV of a running sequence and puts it back in the queue, to be computed again. */
void sh_sched_pause(sh_sched *sched, sh_sequence *seq);

/* Ends a sequence with DONE, or with an error that is its own, and frees it. */
void sh_sched_done(sh_sched *sched, sh_sequence *seq, sh_finish finish);
void sh_sched_fail(sh_sched *sched, sh_sequence *seq, const sh_err *err);

/* Binds the sequences that wait for it to their grammars, if the vocabulary is there. */
void sh_sched_bind_waiting(sh_sched *sched);

/* ---- grammars; an error of these is the sequence's own ---- */

/* Binds a sequence to its grammar and matches the answer so far. SH_AGAIN: the vocabulary is still
 * being loaded. */
SH_MUST_CHECK sh_status sh_sched_bind(sh_sched *sched, sh_sequence *seq, sh_err *err);

/* The answer goes on with a token. */
SH_MUST_CHECK sh_status sh_sched_match(sh_sched *sched, sh_sequence *seq, int32_t token,
                                       sh_err *err);

/* The only token that may come next; -1 if there is a choice. */
SH_MUST_CHECK sh_status sh_sched_only_token(sh_sched *sched, sh_sequence *seq, int32_t *out,
                                            sh_err *err);

/* Puts the masks of the next draws into the plan, which must then have these draws. Those that are
 * not at hand are ordered. Drafts that have none are given up. */
SH_MUST_CHECK sh_status sh_sched_mask(sh_sched *sched, sh_step_plan *step, sh_sequence *seq,
                                      sh_err *err);

/* Starts making the masks that were ordered for the plan, which is complete. */
void sh_sched_make_masks(sh_sched *sched, sh_step_plan *step);

/* Waits for masks that are being made. Whatever uses constraints needs this first, unless
 * sh_step_masks_await has done it. */
void sh_sched_join_masks(sh_sched *sched);

#endif
