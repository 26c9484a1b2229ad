/* The time between two reports is a window. What a window adds is bounded, both in how much slower
 * than the others a rank may be and in how much longer than usual its steps may take, so that one
 * long pause of a rank does not look like a slow rank. */
#include "engine/balance.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

enum {
    STEPS_LEAST = 300, /* before shares are changed */
    STEPS_MOST = 3000, /* then all that was measured counts half */
};

static const double RATIO_MOST = 4;    /* of a rank's time over the mean, in one window */
static const double PAUSE_MOST = 2;    /* of a window's time per step over that of all before */
static const double OFF = 1.10;        /* measurements below are taken as noise */
static const double CHANGE_MOST = 1.5; /* factor of a share */

static double clamp(double x, double most)
{
    if (x > most) return most;
    return x < 1 / most ? 1 / most : x;
}

void sh_balance_reset(sh_balance *b, int count)
{
    free(b->sums);
    free(b->computed_s);
    *b = (sh_balance){.count = count};
    if (count == 0) return;
    b->sums = sh_alloc_array((size_t)count, sizeof(*b->sums));
    b->computed_s = sh_alloc_array((size_t)count, sizeof(*b->computed_s));
}

void sh_balance_restart(sh_balance *b)
{
    for (int i = 0; i < b->count; i++) b->computed_s[i] = 0;
    b->reported = 0;
}

static void halve(sh_balance *b)
{
    b->steps /= 2;
    b->mean_s /= 2;
    for (int i = 0; i < b->count; i++) b->sums[i] /= 2;
}

/* A window of `steps` steps in which the ranks have computed for computed_s [count]. */
static void add_window(sh_balance *b, double steps, const double *computed_s)
{
    double total = 0;
    for (int i = 0; i < b->count; i++) total += computed_s[i];
    if (!(total > 0)) return;
    double mean = total / b->count, usual = b->steps > 0 ? b->mean_s / b->steps * steps : mean;
    double weight = mean < PAUSE_MOST * usual ? mean : PAUSE_MOST * usual;
    for (int i = 0; i < b->count; i++)
        b->sums[i] += weight * clamp(computed_s[i] / mean, RATIO_MOST);
    b->mean_s += weight;
    b->steps += steps;
    while (b->steps > STEPS_MOST) halve(b);
}

/* Counters come from other processes: one that runs backwards makes a window that is left out. */
void sh_balance_add(sh_balance *b, const sh_rank_report *reports)
{
    double *computed = sh_alloc_array((size_t)b->count, sizeof(*computed));
    bool valid = reports[0].steps > b->reported;
    for (int i = 0; i < b->count; i++) {
        computed[i] = reports[i].compute_s - b->computed_s[i];
        b->computed_s[i] = reports[i].compute_s;
        valid = valid && computed[i] >= 0;
    }
    if (valid) add_window(b, (double)(reports[0].steps - b->reported), computed);
    b->reported = reports[0].steps;
    free(computed);
}

bool sh_balance_slowest(const sh_balance *b, int *rank, double *ratio)
{
    if (b->steps <= 0) return false;
    *rank = 0;
    for (int i = 1; i < b->count; i++)
        if (b->sums[i] > b->sums[*rank]) *rank = i;
    *ratio = b->sums[*rank] / b->mean_s;
    return true;
}

bool sh_balance_is_off(const sh_balance *b)
{
    int rank;
    double ratio;
    return b->steps >= STEPS_LEAST && sh_balance_slowest(b, &rank, &ratio) && ratio > OFF;
}

/* The time of a rank is in proportion to its share: of the layers of its stage, and of what each of
 * them has that is split. */
void sh_balance_shares(const sh_balance *b, const double *shares, double *out)
{
    for (int i = 0; i < b->count; i++)
        out[i] = shares[i] * clamp(b->mean_s / b->sums[i], CHANGE_MOST);
}
