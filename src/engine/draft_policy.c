/* The times of steps are kept in a table and not as a line: kernels work on tiles of several rows,
 * so one more token may cost nothing or as much as the first.
 *
 * Guesses for what was not measured are optimistic. A guess that is too low is tried and corrected;
 * one that is too high would stand for good. */
#include "engine/draft_policy.h"

#include <math.h>

static const double MORE_PER_TOKEN = 0.03; /* guess: what a token adds to the time of a step */
static const double WORTHWHILE = 1.02;     /* a gain within the noise of measuring is none */
static const double EXPECTED_WEIGHT = 4;   /* of what to believe, in drafts */

/* A step that was interrupted says little about the next. */
void sh_step_times_add(sh_step_times *t, int tokens, double seconds)
{
    if (tokens < 1 || tokens > SH_STEP_TIMES_MAX || seconds <= 0) return;
    double *s = &t->s[tokens];
    if (*s == 0)
        *s = seconds;
    else
        *s += (seconds > 1.5 * *s ? 0.05 : 0.2) * (seconds - *s);
}

/* The nearest measured step in a direction; 0: none. */
static int measured_from(const sh_step_times *t, int tokens, int direction)
{
    for (int n = tokens; n >= 1 && n <= SH_STEP_TIMES_MAX; n += direction)
        if (t->s[n] > 0) return n;
    return 0;
}

double sh_step_times_of(const sh_step_times *t, int tokens)
{
    int within = tokens < SH_STEP_TIMES_MAX ? tokens : SH_STEP_TIMES_MAX;
    int below = measured_from(t, within, -1), above = measured_from(t, within, 1);
    if (below == 0) return above == 0 ? 0 : t->s[above];
    if (above == 0 || tokens > above) return t->s[below] * (1 + MORE_PER_TOKEN * (tokens - below));
    if (above == below) return t->s[below];
    double part = (double)(tokens - below) / (above - below);
    return t->s[below] + part * (t->s[above] - t->s[below]);
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

sh_draft_choice sh_draft_weigh(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts)
{
    double plain = sh_step_times_of(step->times, step->tokens), all_right = 1;
    sh_draft_choice c = {.drafts = drafts};
    for (int i = 0; i < drafts; i++) c.answers += all_right *= offer->rate;
    c.seconds = sh_step_times_of(step->times, step->tokens + drafts) - plain +
                drafts * offer->draft_s;
    if (drafts > 0)
        c.seconds += (1 - all_right) *
                     (sh_step_times_of(step->times, step->tokens + offer->redo) - plain);
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
