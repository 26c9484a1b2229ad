/* Three passes over a row, each of which does as little as the draw allows:
 *
 * 1. piece_tops: apply penalties and bias, and find the maximum of each block.
 * 2. piece_rest: the sum of exponentials (for logprobs and top_p), or the winner under Gumbel noise
 *    (for a draw without filters). Greedy draws need neither and stop after the first pass.
 * 3. row_end: put the pieces together, and collect the best candidates for top_k, top_p, min_p or
 *    logprobs. The block maxima give a bar that all of the `want` best must reach, so most blocks
 *    are never visited again.
 *
 * Results must be the same bits for any number of threads and any mix of rows. So sums are taken
 * per block, by the kernels, and added in block order by one thread; a comparison of equal scores
 * always prefers the lower id; and the noise of a token is a function of seed, position and id,
 * never of the order in which tokens are visited. The winner that a thread carries from piece to
 * piece (`held`) only lets it skip blocks that cannot win: it changes the time, not the result.
 *
 * With at least one row per thread a row stays on one thread, whose cache still holds it for the
 * second pass; the rows left over are cut into pieces for all threads. */
#include "base/alloc.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 256 * SH_ROW_BLOCK }; /* numbers that are worth the handover to another thread */

struct winner {
    sh_candidate token;
    double score;
};

/* Memory for the largest scan, made by reserve, and what one run is about. */
struct sh_cpu_scan {
    sh_cpu *cpu;
    const sh_row_kernels *kernels;
    float *tops;        /* [rows, blocks] the largest of each block */
    double *sums;       /* [rows, blocks] of exponentials; whole blocks only */
    struct winner *won; /* [rows, pieces] the highest score with noise */
    struct held {
        size_t row;
        struct winner won;
    } * held; /* [threads] the best so far in the row that a thread is working on */

    /* Valid during one run. */
    int32_t first, len;
    int blocks, pieces; /* of a row */
    const sh_row_query *queries;
    float *logits;
    int64_t stride;
    sh_logits_summary *out;
    size_t row_first; /* the first of the rows being cut into pieces */
};

static int blocks_of(int64_t len)
{
    return (int)((len + SH_ROW_BLOCK - 1) / SH_ROW_BLOCK);
}

static int pieces_of(int64_t len)
{
    return (int)((len + PIECE - 1) / PIECE);
}

sh_cpu_scan *sh_cpu_scan_create(sh_cpu *cpu, const sh_limits *limits)
{
    sh_cpu_scan *s = sh_alloc(sizeof(*s));
    size_t rows = (size_t)limits->rows, blocks = (size_t)blocks_of(limits->vocab);
    s->cpu = cpu;
    s->kernels = &cpu->level->vector->rows;
    s->tops = sh_alloc_array(rows * blocks, sizeof(*s->tops));
    s->sums = sh_alloc_array(rows * blocks, sizeof(*s->sums));
    s->won = sh_alloc_array(rows * (size_t)pieces_of(limits->vocab), sizeof(*s->won));
    s->held = sh_alloc_array((size_t)sh_pool_threads(cpu->pool), sizeof(*s->held));
    return s;
}

void sh_cpu_scan_free(sh_cpu_scan *s)
{
    if (s == NULL) return;
    free(s->tops);
    free(s->sums);
    free(s->won);
    free(s->held);
    free(s);
}

/* A piece of a row: where it starts, how long it is. */
struct piece {
    size_t row;
    int32_t at, len;
    float *logits;
    float *tops;
    double *sums;
    struct winner *won;
};

static struct piece piece_of(const sh_cpu_scan *s, size_t i)
{
    size_t row = s->row_first + i / (size_t)s->pieces;
    int32_t at = (int32_t)(i % (size_t)s->pieces) * PIECE;
    size_t block = row * (size_t)s->blocks + (size_t)(at / SH_ROW_BLOCK);
    return (struct piece){.row = row,
                          .at = at,
                          .len = s->len - at < PIECE ? s->len - at : PIECE,
                          .logits = s->logits + (int64_t)row * s->stride + at,
                          .tops = s->tops + block,
                          .sums = s->sums + block,
                          .won = s->won + row * (size_t)s->pieces + (size_t)(at / PIECE)};
}

/* First pass: the adjusted logits, and the largest of each block. */
static void piece_tops(void *arg, size_t i, int thread)
{
    const sh_cpu_scan *s = arg;
    struct piece p = piece_of(s, i);
    const sh_row_query *query = &s->queries[p.row];
    (void)thread;
    sh_row_query_apply(query, p.logits, s->first + p.at, p.len);
    s->kernels->tops(p.tops, p.logits, p.len);
}

/* The largest logit of a row; of equal ones the lowest id. */
static sh_candidate row_best(const sh_cpu_scan *s, size_t row)
{
    const float *logits = s->logits + (int64_t)row * s->stride,
                *tops = s->tops + row * (size_t)s->blocks;
    int32_t block = 0;
    for (int32_t b = 1; b < s->blocks; b++)
        if (tops[b] > tops[block]) block = b;
    int32_t i = block * SH_ROW_BLOCK;
    if (s->len == 0 || !(tops[block] > -INFINITY)) return (sh_candidate){s->first, -INFINITY};
    while (logits[i] != tops[block]) i++;
    return (sh_candidate){s->first + i, logits[i]};
}

/* The largest logit / temperature + noise among `won` and the tokens of a piece. The noise is at
 * most (leading zeros + 1) ln 2, so to beat `won` a token needs a certain number of leading zero
 * bits (`mask`); one kernel call rejects nearly all blocks by these bits alone, without computing a
 * logarithm. */
static struct winner piece_winner(const sh_cpu_scan *s, const struct piece *p, struct winner won)
{
    static const double ln2 = 0.69314718055994531;
    const sh_draw *d = &s->queries[p->row].draw;
    double scale = 1 / d->temperature;
    uint64_t key = sh_noise_key(d->seed, d->position);
    for (int32_t at = 0; at < p->len; at += SH_ROW_BLOCK) {
        double lack = (won.score - (double)p->tops[at / SH_ROW_BLOCK] * scale) / ln2 - 1;
        if (!(lack < 64)) continue;
        int32_t first = s->first + p->at + at;
        uint64_t mask = lack < 1 ? 0 : ~(UINT64_MAX >> (int)lack);
        if (!s->kernels->noise_lacks(key, (uint32_t)first, mask)) continue;
        for (int32_t i = at; i < p->len && i < at + SH_ROW_BLOCK; i++) {
            int32_t id = s->first + p->at + i;
            uint64_t bits = sh_noise_bits(key, id);
            if ((bits & mask) != 0) continue;
            double score = (double)p->logits[i] * scale + sh_noise_of(bits);
            if (score > won.score || (score == won.score && id < won.token.id))
                won = (struct winner){{id, p->logits[i]}, score};
        }
    }
    return won;
}

static bool sum_needed(const sh_draw *d)
{
    return d->logprobs >= 0 || (d->temperature > 0 && d->top_p < 1);
}

static bool noise_decides(const sh_draw *d)
{
    return d->temperature > 0 && !sh_draw_filters(d);
}

static struct winner winner_of(const sh_draw *d, sh_candidate token)
{
    uint64_t bits = sh_noise_bits(sh_noise_key(d->seed, d->position), token.id);
    return (struct winner){token, (double)token.logit * (1 / d->temperature) + sh_noise_of(bits)};
}

/* Second pass, for draws that need more than the largest logit, which is in out[row].won. */
static void piece_rest(void *arg, size_t i, int thread)
{
    sh_cpu_scan *s = arg;
    struct piece p = piece_of(s, i);
    const sh_draw *d = &s->queries[p.row].draw;
    sh_candidate best = s->out[p.row].won;
    if (sum_needed(d)) s->kernels->exps(p.sums, p.logits, p.len / SH_ROW_BLOCK, best.logit);
    if (!noise_decides(d)) return;
    /* The higher the score to beat, the fewer tokens are visited. */
    struct held *held = &s->held[thread];
    if (held->row != p.row) *held = (struct held){p.row, winner_of(d, best)};
    *p.won = held->won = piece_winner(s, &p, held->won);
}

/* Adds the block sums in order, then the tail that is not a whole block one by one. */
static double row_sum(const sh_cpu_scan *s, size_t row, float max)
{
    const float *logits = s->logits + (int64_t)row * s->stride;
    const double *sums = s->sums + row * (size_t)s->blocks;
    double sum = 0;
    for (int32_t b = 0; b < s->len / SH_ROW_BLOCK; b++) sum += sums[b];
    for (int32_t i = s->len - s->len % SH_ROW_BLOCK; i < s->len; i++)
        sum += (double)expf(logits[i] - max);
    return sum;
}

static struct winner row_winner(const sh_cpu_scan *s, size_t row)
{
    const struct winner *of = s->won + row * (size_t)s->pieces;
    struct winner won = of[0];
    for (int i = 1; i < s->pieces; i++)
        if (of[i].score > won.score || (of[i].score == won.score && of[i].token.id < won.token.id))
            won = of[i];
    return won;
}

/* A heap whose root is the worst of the candidates kept; a better one replaces it. */
static void heap_down(sh_candidate *heap, int64_t count, int64_t at)
{
    sh_candidate moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && sh_candidate_better(heap[child], heap[child + 1])) child++;
        if (!sh_candidate_better(moved, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void heap_make(sh_candidate *heap, int64_t count)
{
    for (int64_t i = count / 2; i-- > 0;) heap_down(heap, count, i);
}

/* Keeps the `want` best candidates. They must be offered by ascending id: of equal logits the first
 * stays, which is the lower id. The list becomes a heap when it is full. */
static void heap_offer(sh_candidate *heap, int *count, int want, sh_candidate c)
{
    if (*count < want) {
        heap[(*count)++] = c;
        if (*count == want) heap_make(heap, want);
    } else if (c.logit > heap[0].logit) {
        heap[0] = c;
        heap_down(heap, want, 0);
    }
}

/* Best first. */
static void heap_sort(sh_candidate *heap, int64_t count)
{
    heap_make(heap, count);
    while (count-- > 1) { /* move the worst to the end */
        sh_candidate worst = heap[0];
        heap[0] = heap[count];
        heap[count] = worst;
        heap_down(heap, count, 0);
    }
}

/* A lower bound for the `want` best of a row: the want-th largest block maximum, since that many
 * blocks have a number at least as large. `heap` is scratch for `want` candidates. */
static float tops_bar(const float *tops, int blocks, int want, sh_candidate *heap)
{
    int count = 0;
    if (blocks < want) return -INFINITY;
    for (int b = 0; b < blocks; b++) heap_offer(heap, &count, want, (sh_candidate){b, tops[b]});
    return heap[0].logit;
}

/* The `want` best, sorted. */
static int row_top(const sh_cpu_scan *s, size_t row, int want, sh_candidate *out)
{
    const float *logits = s->logits + (int64_t)row * s->stride,
                *tops = s->tops + row * (size_t)s->blocks;
    float bar = tops_bar(tops, s->blocks, want, out);
    int count = 0;
    for (int32_t b = 0; b < s->blocks; b++) {
        if (!(tops[b] >= bar)) continue;
        int32_t i = b * SH_ROW_BLOCK, end = s->len - i < SH_ROW_BLOCK ? s->len : i + SH_ROW_BLOCK;
        for (; i < end; i++)
            if (logits[i] >= bar)
                heap_offer(out, &count, want, (sh_candidate){s->first + i, logits[i]});
    }
    heap_sort(out, count);
    return count;
}

/* Third pass: the summary of a row. */
static void row_end(void *arg, size_t row, int thread)
{
    const sh_cpu_scan *s = arg;
    const sh_draw *d = &s->queries[row].draw;
    sh_logits_summary *out = &s->out[row];
    (void)thread;
    /* Of a part whose tokens are all forbidden, no number can be compared with the maximum. */
    bool any = out->max > -INFINITY;
    out->sum = any && sum_needed(d) ? row_sum(s, row, out->max) : 0;
    int want = sh_draw_top(d);
    out->top_count = want > 0 ? row_top(s, row, want < s->len ? want : s->len, out->top) : 0;
    if (d->given) sh_summary_give(d, s->logits + (int64_t)row * s->stride, s->first, s->len, out);
    if (!noise_decides(d) || s->len == 0) return;
    struct winner won = row_winner(s, row);
    out->won = won.token;
    out->won_score = won.score;
}

static void row_begin(const sh_cpu_scan *s, size_t row)
{
    sh_candidate best = row_best(s, row);
    sh_logits_summary *out = &s->out[row];
    out->total = s->len;
    out->max = best.logit;
    out->won = best;
    out->won_score = best.logit;
}

static bool rest_needed(const sh_cpu_scan *s, size_t row)
{
    return sum_needed(&s->queries[row].draw) || noise_decides(&s->queries[row].draw);
}

/* All passes over a row on one thread, which still has it in its cache for the second. */
static void row_whole(void *arg, size_t row, int thread)
{
    const sh_cpu_scan *s = arg;
    size_t first = row * (size_t)s->pieces, end = first + (size_t)s->pieces;
    for (size_t i = first; i < end; i++) piece_tops(arg, i, thread);
    row_begin(s, row);
    for (size_t i = first; i < end && rest_needed(s, row); i++) piece_rest(arg, i, thread);
    row_end(arg, row, thread);
}

/* A few rows, each shared by all threads. */
static void rows_in_pieces(sh_cpu_scan *s, size_t first, size_t count)
{
    bool more = false;
    s->row_first = first;
    sh_cpu_each(s->cpu, count * (size_t)s->pieces, false, piece_tops, s);
    for (size_t i = first; i < first + count; i++) {
        row_begin(s, i);
        more = more || rest_needed(s, i);
    }
    if (more) sh_cpu_each(s->cpu, count * (size_t)s->pieces, false, piece_rest, s);
    for (size_t i = first; i < first + count; i++) row_end(s, i, 0);
}

void sh_cpu_scan_rows(sh_device *dev, const sh_device_batch *b, sh_tensor logits, int32_t first,
                      int32_t len, const sh_row_query *queries, sh_logits_summary *out)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_cpu_scan *s = cpu->scan;
    size_t rows = (size_t)b->in.row_count, threads = (size_t)sh_pool_threads(cpu->pool);
    size_t whole = rows / threads * threads;
    SH_ASSERT(b->in.row_count <= cpu->limits.rows && len <= cpu->limits.vocab);
    s->first = first;
    s->len = len;
    s->blocks = blocks_of(len);
    s->pieces = pieces_of(len);
    s->queries = queries;
    s->logits = logits.data;
    s->stride = logits.stride;
    s->out = out;
    for (size_t i = 0; i < threads; i++) s->held[i].row = SIZE_MAX;
    s->row_first = 0;
    if (whole > 0) sh_cpu_each(cpu, whole, false, row_whole, s);
    if (whole < rows) rows_in_pieces(s, whole, rows - whole);
}
