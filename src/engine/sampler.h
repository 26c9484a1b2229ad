/* sampler.h - from a row of logits to a token, even when the row is split over ranks.
 *
 * Each rank adjusts its part of the row (penalties, bias, mask) and reduces it to a small
 * sh_logits_summary; rank 0 joins the summaries in rank order and picks. The pick depends on the
 * logits, the request and the position only: the noise of a draw is a function of (seed, position,
 * token), so the same token comes out for any split, in any batch and in any order.
 *
 * Order of the chain: bias, repetition, presence and frequency, mask; then top_p, min_p and top_k
 * on the probabilities at temperature 1; then the draw at the temperature. Each filter keeps a
 * prefix of the tokens sorted by logit (ties: the lower id first), so together they keep the
 * shortest prefix.
 *
 * Threads: pure functions over the caller's memory. */
#ifndef SH_ENGINE_SAMPLER_H
#define SH_ENGINE_SAMPLER_H

#include "engine/engine_client.h"
#include "kernels/scan.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int32_t id;
    float logprob; /* at temperature 1, after bias, penalties and mask */
    int top_count;
    sh_token_logprob top[SH_TOP_LOGPROBS_MAX];
} sh_pick;

/* The draw that a request asks for at a position. */
sh_draw sh_draw_of(const sh_sequence_spec *spec, int64_t position);

/* A draw that reports the probability of the token that is at the position. */
sh_draw sh_draw_given(const sh_sequence_spec *spec, int64_t position, int32_t token);

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

/* Joins the summaries of all parts, in order, and picks. SH_AGAIN when the candidates do not reach
 * far enough to settle top_p or min_p: then sh_pick_whole must decide from the whole row. */
SH_MUST_CHECK sh_status sh_pick_join(const sh_draw *draw, const sh_logits_summary *summaries,
                                     int count, sh_pick *out);

/* The same choice from a whole row; scratch [2 * len]. */
void sh_pick_whole(const sh_draw *draw, const float *logits, int32_t len, sh_candidate *scratch,
                   sh_pick *out);

/* Sorts all tokens of a whole row, best first, into the first half of list [2 * len]; the second
 * half is scratch. */
void sh_row_sort(const float *logits, int32_t len, sh_candidate *list);

#endif
