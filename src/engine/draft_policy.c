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
 * they follow, slowly. The first few measurements only vary. */
void sh_step_times_add(sh_step_times *t, int tokens, double seconds)
{
    if (tokens < 1 || tokens > SH_STEP_TIMES_MAX || seconds <= 0) return;
    int *count = &t->count[tokens];
    if (*count == 0) t->s[tokens] = seconds;
    double change = seconds / t->s[tokens] - 1;
    bool sure = *count == SURE, interrupted = change > 0.5;
    if (!sure) ++*count;
    t->s[tokens] *= 1 + (interrupted ? 0.05 : sure ? 0.2 : 1.0 / *count) * change;
    for (int n = 1; n <= SH_STEP_TIMES_MAX && sure && !interrupted; n++)
        if (n != tokens) t->s[n] *= 1 + FOLLOW * change;
}

bool sh_step_times_known(const sh_step_times *t, int tokens)
{
    return tokens > SH_STEP_TIMES_MAX || t->count[tokens] == SURE;
}

double sh_step_times_of(const sh_step_times *t, int tokens)
{
    double own = tokens <= SH_STEP_TIMES_MAX ? t->s[tokens] : 0;
    if (own > 0 && sh_step_times_known(t, tokens)) return own;
    int below = tokens <= SH_STEP_TIMES_MAX ? tokens - 1 : SH_STEP_TIMES_MAX;
    while (below > 0 && t->s[below] == 0) below--;
    double guess = t->s[below] * (1 + MORE_PER_TOKEN * (tokens - below));
    return own > 0 && (guess == 0 || own < guess) ? own : guess;
}

/* The nearest measured lengths, up to `tokens` and from there on; 0: none. */
static int measured_below(const sh_step_times *t, int tokens)
{
    int n = tokens < SH_STEP_TIMES_MAX ? tokens : SH_STEP_TIMES_MAX;
    while (n > 0 && t->s[n] == 0) n--;
    return n;
}

static int measured_above(const sh_step_times *t, int tokens)
{
    for (int n = tokens; n <= SH_STEP_TIMES_MAX; n++)
        if (t->s[n] > 0) return n;
    return 0;
}

double sh_step_times_at_most(const sh_step_times *t, int tokens)
{
    int below = measured_below(t, tokens), above = measured_above(t, tokens);
    if (below == tokens || below == 0) return t->s[below];
    double each = above > 0 ? (t->s[above] - t->s[below]) / (above - below) : t->s[below] / below;
    return t->s[below] + (each > 0 ? each : 0) * (tokens - below);
}

double sh_step_times_added(const sh_step_times *t, int tokens, int more)
{
    double own = tokens <= SH_STEP_TIMES_MAX ? t->s[tokens] : 0;
    if (own == 0) own = sh_step_times_of(t, tokens);
    int below = measured_below(t, tokens - more);
    double added = (own - t->s[below]) * more / (tokens - below);
    return more > 0 && added > 0 ? added : 0;
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
    return (added > least ? added : least) / step->overlap;
}

/* Adds the drafts of one sequence to what is weighed: the tokens that they give, and the time that
 * wrong ones cost. Returns how many there are. */
static int offer_add(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts,
                     sh_draft_choice *sum)
{
    double all_right = 1;
    if (drafts > offer->most) drafts = offer->most;
    for (int i = 0; i < drafts; i++) sum->answers += all_right *= offer->rate;
    sum->seconds += (1 - all_right) * more_s(step, offer->redo);
    return drafts;
}

static double tokens_per_second(const sh_step_outlook *step, double answers, double seconds)
{
    seconds += step->seconds;
    return seconds > 0 ? (step->answers + answers) / seconds : INFINITY;
}

sh_draft_choice sh_draft_weigh(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts)
{
    sh_draft_choice c = {0};
    c.drafts = offer_add(step, offer, drafts, &c);
    c.seconds += more_s(step, c.drafts) + c.drafts * offer->draft_s;
    c.tokens_per_second = tokens_per_second(step, c.answers, c.seconds);
    return c;
}

/* In a pipeline, other steps may have to wait for this one. */
static double more_at_most_s(const sh_step_outlook *step, int more)
{
    double plain = sh_step_times_at_most(step->times, step->tokens);
    double added = sh_step_times_at_most(step->times, step->tokens + more) - plain;
    return fmax(added, MORE_PER_TOKEN * more * plain);
}

double sh_draft_risk_s(const sh_step_outlook *step, const sh_draft_offer *offer, int drafts)
{
    return more_at_most_s(step, drafts) + drafts * offer->draft_s +
           (drafts > 0 ? more_at_most_s(step, offer->redo) : 0);
}

/* Whether drafts are noticeably faster than none, and the best so far. */
static bool better(double rate, double best, double none)
{
    bool unknown = isinf(rate) != 0; /* nothing was measured: try */
    return unknown || (rate > best && rate >= WORTHWHILE * none);
}

sh_draft_choice sh_draft_choose(const sh_step_outlook *step, const sh_draft_offer *offer)
{
    sh_draft_choice none = sh_draft_weigh(step, offer, 0), best = none;
    for (int drafts = 1; drafts <= offer->most; drafts++) {
        sh_draft_choice c = sh_draft_weigh(step, offer, drafts);
        if (better(c.tokens_per_second, best.tokens_per_second, none.tokens_per_second)) best = c;
    }
    return best;
}

static int most_of(const sh_draft_offer *offers, int count)
{
    int most = 0;
    for (int i = 0; i < count; i++)
        if (offers[i].most > most) most = offers[i].most;
    return most;
}

sh_draft_round_choice sh_draft_choose_shared(const sh_step_outlook *step,
                                             const sh_draft_offer *offers, int count, int room)
{
    sh_draft_round_choice best = {0};
    double none = tokens_per_second(step, 0, 0), best_rate = none;
    for (int drafts = 1; drafts <= most_of(offers, count); drafts++) {
        sh_draft_choice sum = {0};
        for (int i = 0; i < count && sum.drafts < room; i++) {
            int left = room - sum.drafts;
            sum.drafts += offer_add(step, &offers[i], drafts < left ? drafts : left, &sum);
            double seconds = sum.seconds + more_s(step, sum.drafts) + drafts * offers[i].draft_s;
            double rate = tokens_per_second(step, sum.answers, seconds);
            if (!better(rate, best_rate, none)) continue;
            best = (sh_draft_round_choice){.rounds = drafts, .sequences = i + 1};
            best_rate = rate;
        }
    }
    return best;
}

void sh_step_outlook_add(sh_step_outlook *step, const sh_draft_choice *choice)
{
    step->tokens += choice->drafts;
    step->answers += choice->answers;
    step->seconds += choice->seconds;
}
