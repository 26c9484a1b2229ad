/* sampler.h - from a row of logits to a token, wherever the row lies.
 *
 * A row may be cut over ranks. Each rank adjusts its part (penalties, bias) and summaries it into a
 * small sh_logits_summary; rank 0 joins the summaries in rank order and picks. The pick depends on
 * the logits, the request and the position alone: the noise of a draw is a function of (seed,
 * position, token), so the same token comes out under any cut, in any batch and any order.
 *
 * Order of the chain: bias, repetition, presence and frequency; then top_p, min_p and top_k on the
 * probabilities at temperature 1; then the draw at the temperature. Each filter keeps a head of the
 * tokens sorted by logit (ties: the lower id first), so together they keep the shortest of the
 * heads.
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

/* One token's change before the choice: l += bias; l = l > 0 ? l / factor : l * factor; l -= minus.
 */
typedef struct {
    int32_t id;
    float bias;
    float factor;
    float minus;
} sh_adjust;

/* What is asked of a row. */
typedef struct {
    double temperature;
    int top_k;
    double top_p;
    double min_p;
    uint64_t seed;
    int64_t position; /* of the token that is drawn, in its sequence */
    int logprobs;     /* -1, or how many alternatives are reported */
} sh_draw;

enum { SH_SUMMARY_TOP = 256 };

/* What one part of a row says. A part may be empty (total 0): it then says nothing, and its other
 * numbers do not count. */
typedef struct {
    int64_t total; /* tokens of the part */
    float max;
    double sum; /* of exp(logit - max); 0 when the draw does not need it */
    sh_candidate
        won; /* greedy's choice, or the one that the noise favours, among all tokens of the part */
    double won_score;
    int top_count; /* best first; as many as the draw may need, at most SH_SUMMARY_TOP */
    sh_candidate top[SH_SUMMARY_TOP];
} sh_logits_summary;

typedef struct {
    int32_t id;
    float logprob; /* at temperature 1, behind bias and penalties */
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];
} sh_pick;

/* The draw that a request asks for at a position. */
sh_draw sh_draw_of(const sh_sequence_spec *spec, int64_t position);

/* Where each token stands in a list that is being made: one for a scheduler, made once. */
typedef struct {
    int vocab;
    uint32_t now;
    uint32_t *seen; /* [vocab] the list in which a token was last put */
    int32_t *at;    /* [vocab] its place there */
} sh_marks;

void sh_marks_init(sh_marks *marks, int vocab);
void sh_marks_reset(sh_marks *marks);

/* Fills `out` with the changes that a request's penalties and bias ask for, each token once, behind
 * `history` (prompt, then answer; the answer starts at answer_first). The repetition penalty looks
 * at the last tokens of all, presence and frequency at the answer. Returns how many, at most
 * sh_adjust_max. */
int sh_adjust_list(const sh_sampling *sampling, const int32_t *history, int count, int answer_first,
                   sh_marks *marks, sh_adjust *out);

/* Room that such a list may take. */
int sh_adjust_max(const sh_sampling *sampling, int count, int answer_first);

/* Applies changes to the part of a row whose first token is `first`; others' tokens are passed
 * over. */
void sh_adjust_apply(const sh_adjust *list, int count, float *logits, int32_t first, int32_t len);

/* How many candidates of a part the draw may need. */
int sh_draw_top(const sh_draw *draw);

/* Joins the summaries of all parts, in order. SH_OK, or SH_AGAIN when the candidates can not settle
 * top_p or min_p: then the whole row decides, by sh_pick_whole. */
SH_MUST_CHECK sh_status sh_pick_join(const sh_draw *draw, const sh_logits_summary *summaries,
                                     int count, sh_pick *out);

/* The same choice from a whole row; `scratch` holds twice `len` candidates. */
void sh_pick_whole(const sh_draw *draw, const sh_row_kernels *kernels, const float *logits,
                   int32_t len, sh_candidate *scratch, sh_pick *out);

/* Some of top_k, top_p and min_p is asked for. */
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

/* Never less than sh_noise_of, and cheap: the noise is at most (leading zeros + 1) ln 2. */
static inline double sh_noise_most(uint64_t bits)
{
    return bits == 0 ? 64 : (__builtin_clzll(bits) + 1.5) * 0.69314718055994531;
}

#endif
