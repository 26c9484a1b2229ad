/* draft_policy.h - how many tokens to draft, from what was measured.
 *
 * A draft costs time, right or wrong: the time to make it, and that of one more token in the step
 * that verifies it. It gives a token only if it and all drafts before it are right. So two things
 * are measured, how long steps of so many tokens take and how often drafts are right, and the
 * number of drafts is the one with the most expected tokens per second. That may be none.
 *
 * Threads: plain values; the scheduler's. */
#ifndef SH_ENGINE_DRAFT_POLICY_H
#define SH_ENGINE_DRAFT_POLICY_H

#include <stdbool.h>

/* Times of steps by their number of tokens: running averages. */
enum { SH_STEP_TIMES_MAX = 64 };
typedef struct {
    double s[SH_STEP_TIMES_MAX + 1]; /* 0: no such step yet */
    int count[SH_STEP_TIMES_MAX + 1];
} sh_step_times;

/* Longer steps are ignored: they are prompts, not drafts. */
void sh_step_times_add(sh_step_times *times, int tokens, double seconds);

/* Seconds of a step. For one that was hardly measured it is a guess from shorter ones, on the low
 * side so that it will be measured; 0 if there are none. */
double sh_step_times_of(const sh_step_times *times, int tokens);

/* Whether such a step was measured often enough to be believed. */
bool sh_step_times_known(const sh_step_times *times, int tokens);

/* The same, not on the low side: each token takes no longer than those of shorter steps did. */
double sh_step_times_at_most(const sh_step_times *times, int tokens);

/* Seconds that the last `more` tokens have added to a step of so many, as it was measured. If none
 * without them was, they have their part in what it took beyond the next shorter one. */
double sh_step_times_added(const sh_step_times *times, int tokens, int more);

/* How often a draft is right if those before it were. */
typedef struct {
    double tried, right; /* older ones count less */
} sh_draft_rate;

/* Of the drafts of one step `right` were right, then one was wrong or (!wrong) there were no more.
 * What comes after a wrong draft says nothing. `memory`: drafts that count. */
void sh_draft_rate_add(sh_draft_rate *rate, int right, bool wrong, double memory);

/* `expected` is what to believe while little was tried. */
double sh_draft_rate_of(const sh_draft_rate *rate, double expected);

/* A step as it is planned so far. */
typedef struct {
    const sh_step_times *times;
    int tokens;     /* that it runs, all sequences and their drafts together */
    int overlap;    /* steps that a pipeline runs at once: it takes so much less of its time */
    double answers; /* tokens that it is expected to give */
    double seconds; /* that it is expected to take, drafting included */
} sh_step_outlook;

/* Drafts for a sequence of the step. */
typedef struct {
    int most;       /* that could be made */
    double rate;    /* at which they are right */
    double draft_s; /* to make one */
    int redo;       /* tokens that the sequence must run again if one is wrong */
} sh_draft_offer;

typedef struct {
    int drafts;
    double answers;           /* tokens that they are expected to give */
    double seconds;           /* that they add to the step */
    double tokens_per_second; /* of the step with them */
} sh_draft_choice;

/* The number of drafts with the most tokens per second, none unless that is noticeably faster. */
sh_draft_choice sh_draft_choose(const sh_step_outlook *step, const sh_draft_offer *offer);

/* The same for sequences whose drafts are made together, the same number for each: the likeliest
 * offer is first, and its `draft_s` is for one draft of it, that of the next for one of both, and
 * so on. Some of the last ones may be left out. `room`: for drafts of all together. */
typedef struct {
    int rounds;    /* drafts for each of */
    int sequences; /* the first so many */
} sh_draft_round_choice;

sh_draft_round_choice sh_draft_choose_shared(const sh_step_outlook *step,
                                             const sh_draft_offer *offers, int count, int room);

/* What `drafts` of them would bring. */
sh_draft_choice sh_draft_weigh(const sh_step_outlook *step, const sh_draft_offer *offer,
                               int drafts);

/* Seconds that `drafts` of them cost at most if all are wrong. */
double sh_draft_risk_s(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts);

/* The step gets these drafts. */
void sh_step_outlook_add(sh_step_outlook *step, const sh_draft_choice *choice);

#endif
