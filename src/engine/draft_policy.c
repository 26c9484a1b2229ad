/* The times of steps are kept in a table and not as a line: kernels work on tiles of several rows,
 * so one more token may cost nothing or as much as the first.
 *
 * Guesses for what was not measured are optimistic. A guess that is too low is tried and corrected;
 * one that is too high would stand for good. */
#include "engine/draft_policy.h"

#include <math.h>

enum { SURE = 3 };                 /* measurements of which the average is believed */
static const double FOLLOW = 0.05; /* how much of a change counts for steps of other lengths */
static const double MORE_PER_TOKEN = 0.03;  /* guess: what a token adds to the time of a step */
static const double LEAST_PER_TOKEN = 0.01; /* what it adds at least */
static const double WORTHWHILE = 1.02;      /* a gain within the noise of measuring is none */
static const double EXPECTED_WEIGHT = 4;    /* of what to believe, in drafts */

/* A step that was interrupted says little about the next. Any other change (a longer context, other
 * work on the machine) mostly holds for all steps, also for those that are not run at the moment:
 * they follow, slowly. */
void sh_step_times_add(sh_step_times *t, int tokens, double seconds)
{
    if (tokens < 1 || tokens > SH_STEP_TIMES_MAX || seconds <= 0) return;
    if (t->count[tokens] < SURE) t->count[tokens]++;
    if (t->s[tokens] == 0) t->s[tokens] = seconds;
    double change = seconds / t->s[tokens] - 1;
    bool interrupted = change > 0.5;
    t->s[tokens] *= 1 + (interrupted ? 0.05 : 0.2) * change;
    for (int n = 1; n <= SH_STEP_TIMES_MAX && !interrupted; n++)
        if (n != tokens) t->s[n] *= 1 + FOLLOW * change;
}

double sh_step_times_of(const sh_step_times *t, int tokens)
{
    double own = tokens <= SH_STEP_TIMES_MAX ? t->s[tokens] : 0;
    if (own > 0 && t->count[tokens] == SURE) return own;
    int below = tokens <= SH_STEP_TIMES_MAX ? tokens - 1 : SH_STEP_TIMES_MAX;
    while (below > 0 && t->s[below] == 0) below--;
    double guess = t->s[below] * (1 + MORE_PER_TOKEN * (tokens - below));
    return own > 0 && (guess == 0 || own < guess) ? own : guess;
}

void sh_draft_rate_add(sh_draft_rate *r, int right, bool wrong, double memory)
{
    double keep = pow(1 - 1 / memory, right + wrong);
    r->tried = r->tried * keep + right + wrong;
    r->right = r->right * keep + right;
}

double sh_draft_rate_of(const sh_draft_rate *r, double expected)
{
    return (r->right + EXPECTED_WEIGHT * expected) / (r->tried + EXPECTED_WEIGHT);
}

/* What more tokens add to a step. Never nothing: measurements vary, and a draft that is always
 * wrong must not look free. */
static double more_s(const sh_step_outlook *step, int more)
{
    double plain = sh_step_times_of(step->times, step->tokens);
    double added = sh_step_times_of(step->times, step->tokens + more) - plain;
    double least = LEAST_PER_TOKEN * more * plain;
    return added > least ? added : least;
}

sh_draft_choice sh_draft_weigh(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts)
{
    double all_right = 1;
    sh_draft_choice c = {.drafts = drafts};
    for (int i = 0; i < drafts; i++) c.answers += offer->sequences * (all_right *= offer->rate);
    c.seconds = more_s(step, offer->sequences * drafts) + drafts * offer->draft_s +
                (1 - all_right) * more_s(step, offer->sequences * offer->redo);
    double seconds = step->seconds + c.seconds;
    c.tokens_per_second = seconds > 0 ? (step->answers + c.answers) / seconds : INFINITY;
    return c;
}

sh_draft_choice sh_draft_choose(const sh_step_outlook *step, const sh_draft_offer *offer)
{
    sh_draft_choice none = sh_draft_weigh(step, offer, 0), best = none;
    for (int drafts = 1; drafts <= offer->most; drafts++) {
        sh_draft_choice c = sh_draft_weigh(step, offer, drafts);
        bool faster = c.tokens_per_second > best.tokens_per_second;
        bool unknown = isinf(c.tokens_per_second) != 0; /* nothing was measured: try */
        if (unknown || (faster && c.tokens_per_second >= WORTHWHILE * none.tokens_per_second))
            best = c;
    }
    return best;
}

void sh_step_outlook_add(sh_step_outlook *step, const sh_draft_choice *choice)
{
    step->tokens += choice->drafts;
    step->answers += choice->answers;
    step->seconds += choice->seconds;
}
