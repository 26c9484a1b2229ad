/* drafter_internal.h - what the files of a drafter share; private to them.
 *
 * Threads: the drafter's owner. */
#ifndef SH_ENGINE_DRAFTER_INTERNAL_H
#define SH_ENGINE_DRAFTER_INTERNAL_H

#include "engine/draft_policy.h"
#include "engine/drafter.h"
#include "engine/rank.h"
#include "engine/step_fill.h"

enum { SH_DRAFTER_NEAR = 32 }; /* a sequence that lacks no more than this catches up at once */

typedef struct {
    sh_sequence *seq; /* NULL: none */
    int known; /* of its tokens, when it was last brought up to date; what follows are drafts */

    /* Of a head; see drafter_head.c. */
    int first; /* the model's output that its first token goes with is that for this position */
    int sure;  /* tokens that were computed from outputs of the model; what follows are drafts */
    int held;  /* outputs that wait: those that the tokens from `sure` on go with */
} sh_shadow;

struct sh_drafter {
    sh_drafter_opts opts;
    sh_config config;
    sh_device *dev;
    sh_model *model;
    int tokens_max;
    int context;
    int rope_original; /* see sh_sched_opts */
    bool fixed_state;

    /* From here on of one reservation. */
    sh_rank *rank;
    sh_step_plan *plan;
    sh_blocks *blocks;
    sh_mask_table *masks;
    sh_marks marks;
    sh_shadow *shadows;       /* [slots] */
    sh_draft_order **drawing; /* [slots] those of the round's draws, in order */
    float *row;               /* [vocab] */
    sh_candidate *sorted;     /* [2, vocab] */
    float *held;   /* head: [slots, SH_DRAFTER_NEAR + 1, hidden]; the first of a slot is its
                      own for the last draft, then those that wait */
    float *inputs; /* head: [tokens, hidden] of the round */

    sh_step_times times;
    double token_s;
    double busy_s;
};

/* Runs the plan; for a head, with `inputs`. */
SH_MUST_CHECK sh_status sh_drafter_round(sh_drafter *d, sh_err *err);

/* ---- a head ---- */

/* See sh_drafter_lag. */
int sh_drafter_head_lag(sh_drafter *d, const sh_sequence *seq);

/* Gathers what the tokens of the plan go with into `inputs`. */
void sh_drafter_head_gather(sh_drafter *d);

/* The plan has run. */
void sh_drafter_head_ran(sh_drafter *d);

#endif
