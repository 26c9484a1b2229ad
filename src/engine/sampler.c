/* Drawing by the Gumbel-max trick: the token with the largest logit / temperature + noise is a
 * sample of the softmax at that temperature. Each token's noise is a hash of (seed, position, id),
 * so every rank can find the winner of its own part, and rank 0 only compares winners: no random
 * state to keep in step, and no sum over the vocabulary on the way.
 *
 * Filters (top_k, top_p, min_p) keep a prefix of the sorted tokens, which the parts' best
 * candidates nearly always cover. When they do not, the answer is SH_AGAIN, never a guess: the pick
 * must not depend on how the row was split. */
#include "engine/sampler.h"

#include "base/alloc.h"
#include "kernels/rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

sh_draw sh_draw_of(const sh_sequence_spec *q, int64_t position)
{
    static const double GREEDY = 1e-5; /* below it the noise decides nothing, and may overflow */
    const sh_sampling *s = &q->sampling;
    return (sh_draw){.temperature = s->temperature < GREEDY ? 0 : s->temperature,
                     .top_k = s->top_k,
                     .top_p = s->top_p,
                     .min_p = s->min_p,
                     .seed = s->seed,
                     .position = position,
                     .logprobs = q->logprobs};
}

sh_draw sh_draw_given(const sh_sequence_spec *q, int64_t position, int32_t token)
{
    return (sh_draw){
        .top_p = 1, .position = position, .logprobs = q->logprobs, .given = true, .token = token};
}

void sh_marks_init(sh_marks *m, int vocab)
{
    *m = (sh_marks){.vocab = vocab};
    m->seen = sh_alloc_array((size_t)vocab, sizeof(*m->seen));
    m->at = sh_alloc_array((size_t)vocab, sizeof(*m->at));
}

void sh_marks_reset(sh_marks *m)
{
    free(m->seen);
    free(m->at);
    *m = (sh_marks){0};
}

static void marks_clear(sh_marks *m)
{
    if (++m->now != 0) return;
    memset(m->seen, 0, (size_t)m->vocab * sizeof(*m->seen)); /* once in 2^32 lists */
    m->now = 1;
}

/* The entry of a token in the list, added if it has none. */
static sh_adjust *adjust_of(sh_marks *m, sh_adjust *list, int *count, int32_t id)
{
    SH_ASSERT(id >= 0 && id < m->vocab);
    if (m->seen[id] != m->now) {
        m->seen[id] = m->now;
        m->at[id] = *count;
        list[(*count)++] = (sh_adjust){.id = id, .factor = 1};
    }
    return &list[m->at[id]];
}

static bool counts_answer(const sh_sampling *s)
{
    return s->presence_penalty != 0 || s->frequency_penalty != 0;
}

int sh_adjust_max(const sh_sampling *s, int count, int answer_first)
{
    int most = s->logit_bias_count;
    if (s->repetition_penalty != 1)
        most += count < s->repetition_window ? count : s->repetition_window;
    if (counts_answer(s)) most += count - answer_first;
    return most;
}

int sh_adjust_list(const sh_sampling *s, const int32_t *history, int count, int answer_first,
                   sh_marks *m, sh_adjust *out)
{
    int used = 0;
    marks_clear(m);
    for (int i = 0; i < s->logit_bias_count; i++)
        adjust_of(m, out, &used, s->logit_bias_ids[i])->bias = s->logit_bias[i];
    int first = count > s->repetition_window ? count - s->repetition_window : 0;
    for (int i = first; s->repetition_penalty != 1 && i < count; i++)
        adjust_of(m, out, &used, history[i])->factor = (float)s->repetition_penalty;
    if (!counts_answer(s)) return used;
    for (int i = answer_first; i < count; i++)
        adjust_of(m, out, &used, history[i])->minus +=
            1; /* the count, turned into a penalty below */
    for (int i = 0; i < used; i++)
        if (out[i].minus > 0)
            out[i].minus = (float)(s->presence_penalty +
                                   s->frequency_penalty * (double)out[i].minus);
    return used;
}

/* How many of the sorted candidates the filters keep; 0 when the list is too short to tell.
 * `whole`: the list has all tokens. `log_total` is the logarithm of the whole sum at temperature 1.
 *
 * A filter settles the question if its prefix ends inside the list: top_k by its count, top_p when
 * the mass is reached, min_p when a candidate falls below the bar. One is enough, since the
 * shortest prefix wins. */
static int64_t keep_count(const sh_draw *d, const sh_candidate *top, int64_t count, bool whole,
                          double log_total)
{
    int64_t keep = d->top_k > 0 && d->top_k < count ? d->top_k : count;
    bool settled = whole || (d->top_k > 0 && d->top_k <= count);
    if (d->top_p < 1) {
        double mass = 0;
        int64_t n = 0;
        while (n < count && mass < d->top_p) mass += exp((double)top[n++].logit - log_total);
        if (n == 0) n = 1; /* top_p 0 keeps the best */
        if (mass >= d->top_p) settled = true;
        if (n < keep) keep = n;
    }
    if (d->min_p > 0) {
        double bar = (double)top[0].logit + log(d->min_p);
        int64_t n = 1;
        while (n < count && (double)top[n].logit >= bar) n++;
        if (n < count) settled = true;
        if (n < keep) keep = n;
    }
    return settled ? keep : 0;
}

/* The candidate with the largest logit / temperature + noise; of equal scores the lower id. The
 * cheap bound on the noise skips the two logarithms for nearly all candidates. */
static int32_t draw_among(const sh_draw *d, const sh_candidate *top, int64_t count, float *logit)
{
    int64_t best = 0;
    double best_score = -INFINITY;
    uint64_t key = sh_noise_key(d->seed, d->position);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = sh_noise_bits(key, top[i].id);
        double s = (double)top[i].logit / d->temperature;
        if (s + sh_noise_most(bits) < best_score) continue;
        s += sh_noise_of(bits);
        if (s > best_score || (s == best_score && top[i].id < top[best].id))
            best_score = s, best = i;
    }
    *logit = top[best].logit;
    return top[best].id;
}

/* Tokens that cannot be drawn are no alternatives. */
static void report(const sh_draw *d, float logit, const sh_candidate *top, int64_t count,
                   double log_total, sh_pick *out)
{
    out->logprob = d->logprobs >= 0 ? (float)((double)logit - log_total) : 0;
    out->top_count = 0;
    for (int64_t i = 0; i < count && i < d->logprobs && top[i].logit > -INFINITY; i++)
        out->top[out->top_count++] = (sh_token_logprob){top[i].id,
                                                        (float)((double)top[i].logit - log_total)};
}

/* Merges the sorted candidates of the parts, at most SH_SUMMARY_TOP. Stops where a part has run out
 * of candidates but not of tokens: from there on, a token it did not send could be better. */
static int64_t top_merge(const sh_logits_summary *summaries, int count, sh_candidate *out)
{
    int at[256] = {0};
    SH_ASSERT(count <= (int)SH_COUNT_OF(at));
    for (int64_t n = 0;; n++) {
        int from = -1;
        for (int i = 0; i < count; i++) {
            if (at[i] == summaries[i].top_count) {
                if (summaries[i].top_count < summaries[i].total && summaries[i].top_count > 0)
                    return n;
                continue;
            }
            if (from < 0 ||
                sh_candidate_better(summaries[i].top[at[i]], summaries[from].top[at[from]]))
                from = i;
        }
        if (from < 0 || n == SH_SUMMARY_TOP) return n;
        out[n] = summaries[from].top[at[from]++];
    }
}

sh_status sh_pick_join(const sh_draw *d, const sh_logits_summary *summaries, int count,
                       sh_pick *out)
{
    float max = -INFINITY;
    int won = -1;
    int64_t total = 0;
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (summaries[i].total == 0) continue;
        if (summaries[i].max > max) max = summaries[i].max;
        /* Parts are in order of ids, so of equal scores the lower id wins here, too. */
        if (won < 0 || summaries[i].won_score > summaries[won].won_score) won = i;
        total += summaries[i].total;
    }
    SH_ASSERT(won >= 0);
    /* Each part's sum is relative to its own maximum; bring them to the common one. */
    for (int i = 0; i < count; i++)
        if (summaries[i].total > 0)
            sum += summaries[i].sum * exp((double)summaries[i].max - (double)max);
    double log_total = sum > 0 ? (double)max + log(sum) : 0;

    sh_candidate top[SH_SUMMARY_TOP];
    int64_t top_count = top_merge(summaries, count, top);
    float logit = summaries[won].won.logit;
    int32_t id = summaries[won].won.id;
    if (d->temperature > 0 && sh_draw_filters(d)) {
        int64_t keep = top_count == 0
                           ? 0
                           : keep_count(d, top, top_count, top_count == total, log_total);
        if (keep == 0) return SH_AGAIN;
        id = draw_among(d, top, keep, &logit);
    }
    if (d->logprobs > top_count && top_count < total) return SH_AGAIN;
    out->id = id;
    report(d, logit, top, top_count, log_total, out);
    return SH_OK;
}

/* An integer that rises as logits fall. NaN comes last, and both zeros have the same key (adding
 * 0.0 turns -0 into +0). */
static uint32_t sort_key(float logit)
{
    uint32_t bits;
    logit += 0.0f;
    if (isnan(logit)) return UINT32_MAX;
    memcpy(&bits, &logit, sizeof(bits));
    return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

/* Radix sort, least significant digit first. Each pass is stable, so equal logits stay in the order
 * of their ids. Three passes move the data between the two halves of the list and leave it in the
 * first. */
void sh_row_sort(const float *logits, int32_t len, sh_candidate *list)
{
    enum { DIGIT = 11, VALUES = 1 << DIGIT, DIGITS = 3 };
    int32_t starts[DIGITS][VALUES] = {{0}};
    sh_candidate *from = list + len, *to = list;
    for (int32_t i = 0; i < len; i++) {
        from[i] = (sh_candidate){i, logits[i]};
        uint32_t key = sort_key(logits[i]);
        for (int d = 0; d < DIGITS; d++) starts[d][key >> (DIGIT * d) & (VALUES - 1)]++;
    }
    for (int d = 0; d < DIGITS; d++) {
        int32_t *start = starts[d];
        for (int32_t v = 0, sum = 0; v < VALUES; v++) {
            int32_t count = start[v];
            start[v] = sum;
            sum += count;
        }
        for (int32_t i = 0; i < len; i++)
            to[start[sort_key(from[i].logit) >> (DIGIT * d) & (VALUES - 1)]++] = from[i];
        sh_candidate *other = from;
        from = to;
        to = other;
    }
}

/* The sum of e^(logit - max), added up in the same order as in logits_scanner.c. */
static double exp_sum(const float *logits, int32_t len, float max)
{
    const sh_row_kernels *kernels = sh_row_kernels_best();
    double sum = 0, sums[64];
    int32_t at = 0;
    while (len - at >= SH_ROW_BLOCK) {
        int blocks = (len - at) / SH_ROW_BLOCK;
        if (blocks > (int)SH_COUNT_OF(sums)) blocks = (int)SH_COUNT_OF(sums);
        kernels->exps(sums, logits + at, blocks, max);
        for (int b = 0; b < blocks; b++) sum += sums[b];
        at += blocks * SH_ROW_BLOCK;
    }
    for (; at < len; at++) sum += (double)expf(logits[at] - max);
    return sum;
}

void sh_pick_whole(const sh_draw *d, const float *logits, int32_t len, sh_candidate *scratch,
                   sh_pick *out)
{
    sh_row_sort(logits, len, scratch);
    double log_total = (double)scratch[0].logit + log(exp_sum(logits, len, scratch[0].logit));
    float logit = scratch[0].logit;
    int32_t id = scratch[0].id;
    if (d->temperature > 0)
        id = draw_among(d, scratch, keep_count(d, scratch, len, true, log_total), &logit);
    if (d->given) id = d->token, logit = logits[d->token];
    out->id = id;
    report(d, logit, scratch, len, log_total, out);
}
