/* scan.h - what a device is asked about a row of logits, and what it answers.
 *
 * Rows are as long as the vocabulary, or as a rank's part of it, and never leave the device: the
 * scan op applies the changes that a request asks for, and reduces each row to a summary from which
 * the sampler (engine/sampler.h) picks a token. A summary does not depend on how the vocabulary is
 * split, on the instruction set or on the other rows.
 *
 * The noise of a draw is a function of seed, position and token, so every part of a row, on
 * whatever device, draws the same noise for the same token.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_KERNELS_SCAN_H
#define SH_KERNELS_SCAN_H

#include "base/hash.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int32_t id;
    float logit;
} sh_candidate;

/* A change to one token's logit: l += bias; l = l > 0 ? l / factor : l * factor; l -= minus. */
typedef struct {
    int32_t id;
    float bias;
    float factor;
    float minus;
} sh_adjust;

/* How to draw from a row. */
typedef struct {
    double temperature;
    int top_k;
    double top_p;
    double min_p;
    uint64_t seed;
    int64_t position; /* of the drawn token in its sequence */
    int logprobs;     /* -1: none; else the number of alternatives to report */
    bool given;       /* nothing is drawn: the choice is `token`, to learn its probability. The
                         temperature is 0 then. */
    int32_t token;
} sh_draw;

enum { SH_SUMMARY_TOP = 256 };

/* What rank 0 needs of one part of a row. A part may be empty (total 0); its other numbers then do
 * not count. */
typedef struct {
    int64_t total; /* tokens of the part */
    float max;
    double sum;       /* of exp(logit - max); 0 when the draw does not need it */
    sh_candidate won; /* the part's choice without filters: greedy, or with the draw's noise */
    double won_score; /* INFINITY for a given token, -INFINITY in the parts that do not have it */
    int top_count;    /* best first; as many as the draw may need, at most SH_SUMMARY_TOP */
    sh_candidate top[SH_SUMMARY_TOP];
} sh_logits_summary;

/* What to compute for one row. What it points to is in host memory and stays there until the end
 * of the step. */
typedef struct {
    sh_draw draw;
    const sh_adjust *adjusts; /* [adjust_count] each token at most once */
    int adjust_count;
    const uint64_t
        *allowed; /* bit id % 64 of word id / 64: the token may be drawn; NULL: all may */
} sh_row_query;

/* Better: higher logit, then lower id. NaN never wins. */
static inline bool sh_candidate_better(sh_candidate a, sh_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Applies the changes of a query to tokens [first, first + len), whose logits these are; a token
 * that is not allowed gets -INFINITY. */
void sh_row_query_apply(const sh_row_query *query, float *logits, int32_t first, int32_t len);

/* Makes the draw's given token the choice of the part [first, first + len), if it is in it. */
void sh_summary_give(const sh_draw *draw, const float *logits, int32_t first, int32_t len,
                     sh_logits_summary *out);

/* How many candidates of a part the draw may need. */
int sh_draw_top(const sh_draw *draw);

/* Whether any of top_k, top_p and min_p is in use. */
static inline bool sh_draw_filters(const sh_draw *d)
{
    return d->top_k > 0 || d->top_p < 1 || d->min_p > 0;
}

/* Gumbel noise: the bits of a token come from the key of its draw, the noise from the bits. */
static inline uint64_t sh_noise_key(uint64_t seed, int64_t position)
{
    return sh_mix64(sh_mix64(seed) ^ (uint64_t)position);
}

static inline uint64_t sh_noise_bits(uint64_t key, int32_t id)
{
    return sh_mix64(key ^ (uint32_t)id);
}

double sh_noise_of(uint64_t bits);

/* A cheap upper bound of sh_noise_of: the noise is at most (leading zeros + 1) ln 2. */
static inline double sh_noise_most(uint64_t bits)
{
    return bits == 0 ? 64 : (__builtin_clzll(bits) + 1.5) * 0.69314718055994531;
}

#endif
