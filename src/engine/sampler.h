/* sampler.h - from a row of logits to a token, even when the row is split over ranks.
 *
 * Each rank adjusts its part of the row (penalties, bias) and reduces it to a small
 * sh_logits_summary; rank 0 joins the summaries in rank order and picks. The pick depends on the
 * logits, the request and the position only: the noise of a draw is a function of (seed, position,
 * token), so the same token comes out for any split, in any batch and in any order.
 *
 * Order of the chain: bias, repetition, presence and frequency; then top_p, min_p and top_k on the
 * probabilities at temperature 1; then the draw at the temperature. Each filter keeps a prefix of
 * the tokens sorted by logit (ties: the lower id first), so together they keep the shortest prefix.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_ENGINE_SAMPLER_H
#define SH_ENGINE_SAMPLER_H

#include "base/hash.h"
#include "engine/engine_client.h"
#include "kernels/rows.h"

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
} sh_draw;

enum { SH_SUMMARY_TOP = 256 };

/* What rank 0 needs of one part of a row. A part may be empty (total 0); its other numbers then do
 * not count. */
typedef struct {
    int64_t total; /* tokens of the part */
    float max;
    double sum;       /* of exp(logit - max); 0 when the draw does not need it */
    sh_candidate won; /* the part's choice without filters: greedy, or with the draw's noise */
    double won_score;
    int top_count; /* best first; as many as the draw may need, at most SH_SUMMARY_TOP */
    sh_candidate top[SH_SUMMARY_TOP];
} sh_logits_summary;

typedef struct {
    int32_t id;
    float logprob; /* at temperature 1, after bias and penalties */
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];
} sh_pick;

/* The draw that a request asks for at a position. */
sh_draw sh_draw_of(const sh_sequence_spec *spec, int64_t position);

/* Scratch to find a token in the list being built, without clearing it for each list: an entry
 * counts only if it was made for list number `now`. One per scheduler. */
typedef struct {
    int vocab;
    uint32_t now;
    uint32_t *seen; /* [vocab] number of the last list that has the token */
    int32_t *at;    /* [vocab] its index there */
} sh_marks;

void sh_marks_init(sh_marks *marks, int vocab);
void sh_marks_reset(sh_marks *marks);

/* Fills `out` with the logit changes from a request's penalties and bias, each token once, given
 * `history` (prompt, then answer; the answer starts at answer_first). The repetition penalty covers
 * the last tokens of prompt and answer, presence and frequency the answer only. Returns how many,
 * at most sh_adjust_max. */
int sh_adjust_list(const sh_sampling *sampling, const int32_t *history, int count, int answer_first,
                   sh_marks *marks, sh_adjust *out);

/* The largest length of such a list. */
int sh_adjust_max(const sh_sampling *sampling, int count, int answer_first);

/* Applies changes to the part of a row whose first token is `first`; tokens of other parts are
 * skipped. */
void sh_adjust_apply(const sh_adjust *list, int count, float *logits, int32_t first, int32_t len);

/* How many candidates of a part the draw may need. */
int sh_draw_top(const sh_draw *draw);

/* Joins the summaries of all parts, in order, and picks. SH_AGAIN when the candidates do not reach
 * far enough to settle top_p or min_p: then sh_pick_whole must decide from the whole row. */
SH_MUST_CHECK sh_status sh_pick_join(const sh_draw *draw, const sh_logits_summary *summaries,
                                     int count, sh_pick *out);

/* The same choice from a whole row; scratch [2 * len]. */
void sh_pick_whole(const sh_draw *draw, const sh_row_kernels *kernels, const float *logits,
                   int32_t len, sh_candidate *scratch, sh_pick *out);

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
