/* scan.h - the passes over rows of logits, and the order of candidates; for the sampler's files.
 *
 * A row has as many numbers as the vocabulary, and every sequence of a batch has one in every step:
 * these loops are written so that compilers make vector code of them. Nothing is allocated.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_ENGINE_SCAN_H
#define SH_ENGINE_SCAN_H

#include "engine/sampler.h"

/* Better: higher logit, then lower id. NaN never wins. */
static inline bool sh_candidate_better(sh_candidate a, sh_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Some of top_k, top_p and min_p is asked for. */
static inline bool sh_draw_filters(const sh_draw *d)
{
    return d->top_k > 0 || d->top_p < 1 || d->min_p > 0;
}

/* Best first. */
void sh_candidates_sort(sh_candidate *list, int64_t count);

/* Of exp(logit - max). */
double sh_scan_sum(const float *logits, int32_t len, float max);

#endif
