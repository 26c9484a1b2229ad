/* One rank's share of a step. What a step leaves behind (summaries, hash, rows of logits) is kept
 * for `depth` steps, because in a pipeline rank 0 finishes a step only after it has begun others.
 *
 * The whole row of a draw is rarely needed, and copying it costs a pass over the vocabulary. With
 * one step in flight, logits that are in host memory are used in place; otherwise only those rows
 * are copied that rank 0 may still fetch, which can be seen from the summary. */
#include "engine/rank.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "engine/logits_scanner.h"

#include <stdlib.h>
#include <string.h>

struct result {
    uint64_t step;
    uint64_t hash;
    float *logits; /* [draws, own vocabulary], host memory: a copy, or the device's own */
    sh_logits_summary *summaries;
};

struct sh_rank {
    sh_model *model;
    const sh_peers *peers;
    sh_step_limits limits;
    sh_batch_state *state;
    sh_span *spans;
    int32_t *positions;
    int32_t *rows; /* indices of the step's tokens that are drawn from */
    sh_logits_scanner *scanner;
    sh_row_query *queries; /* [draws] */
    bool copies; /* results own a copy of the logits: the device's are reused by the next step, or
                    not in host memory */
    bool *stretched;
    float *hidden; /* one row, host memory */
    int32_t vocab_first, vocab_len;
    int depth;
    struct result *results; /* step s is in s % depth */
    double forward_s;
};

sh_rank *sh_rank_create(sh_model *model, const sh_peers *peers, const sh_step_limits *limits,
                        int depth)
{
    sh_rank *r = sh_alloc(sizeof(*r));
    const sh_shard *shard = sh_model_shard(model);
    r->model = model;
    r->peers = peers;
    r->limits = *limits;
    r->vocab_first = (int32_t)shard->vocab.first;
    r->vocab_len = sh_shard_predicts(shard) ? (int32_t)shard->vocab.count : 0;
    r->state = sh_batch_state_create(limits);
    r->spans = sh_alloc_array((size_t)limits->slots, sizeof(*r->spans));
    r->stretched = sh_alloc_array((size_t)limits->slots, sizeof(*r->stretched));
    r->positions = sh_alloc_array((size_t)limits->tokens, sizeof(*r->positions));
    r->rows = sh_alloc_array((size_t)limits->draws, sizeof(*r->rows));
    r->hidden = sh_alloc_array((size_t)sh_model_config(model)->hidden, sizeof(*r->hidden));
    r->queries = sh_alloc_array((size_t)limits->draws, sizeof(*r->queries));
    r->depth = depth;
    sh_device *dev = sh_model_device(model);
    r->scanner = sh_logits_scanner_create(dev, r->vocab_first, r->vocab_len, limits->draws);
    r->copies = depth > 1 || r->vocab_len == 0 ||
                dev->ops->peek(dev, sh_model_hidden(model)) == NULL;
    r->results = sh_alloc_array((size_t)depth, sizeof(*r->results));
    for (int i = 0; i < depth; i++) {
        if (r->copies)
            r->results[i].logits = sh_alloc_array((size_t)limits->draws * (size_t)r->vocab_len,
                                                  sizeof(float));
        r->results[i].summaries = sh_alloc_array((size_t)limits->draws, sizeof(sh_logits_summary));
    }
    return r;
}

void sh_rank_free(sh_rank *r)
{
    if (r == NULL) return;
    for (int i = 0; i < r->depth; i++) {
        if (r->copies) free(r->results[i].logits);
        free(r->results[i].summaries);
    }
    sh_batch_state_free(r->state);
    free(r->results);
    free(r->spans);
    free(r->stretched);
    free(r->positions);
    free(r->rows);
    sh_logits_scanner_free(r->scanner);
    free(r->queries);
    free(r->hidden);
    free(r);
}

sh_status sh_rank_apply(sh_rank *r, const sh_step_plan *plan, uint64_t *fingerprint, sh_err *err)
{
    sh_status status = sh_batch_state_apply(r->state, plan, r->spans, r->positions, err);
    if (status == SH_OK) *fingerprint = sh_batch_state_fingerprint(r->state);
    return status;
}

/* Draws are made from the last tokens of each sequence. */
static void rows_gather(sh_rank *r, const sh_step_plan *plan)
{
    int row = 0;
    for (int i = 0; i < plan->seq_count; i++) {
        const sh_step_seq *q = &plan->seqs[i];
        int end = r->spans[i].first + q->token_count;
        for (int d = 0; d < q->draw_count; d++) r->rows[row++] = end - q->draw_count + d;
        r->stretched[i] = q->long_rope;
    }
}

/* Whether rank 0 may fetch the whole row of a draw with this summary. */
static bool row_wanted(const sh_rank *r, const sh_step_draw *step, const sh_logits_summary *summary)
{
    const sh_draw *d = &step->draw;
    int most = sh_draw_top(d) < r->vocab_len ? sh_draw_top(d) : r->vocab_len;
    bool settled = d->temperature <= 0 || !sh_draw_filters(d) ||
                   (d->top_k > 0 && d->top_k <= SH_SUMMARY_TOP);
    return step->whole || !settled || summary->top_count < most;
}

/* Keeps a copy of the rows that rank 0 may fetch: the device reuses its logits in the next step. */
static void rows_keep(const sh_rank *r, const sh_step_plan *plan, const float *rows,
                      struct result *result)
{
    size_t len = (size_t)r->vocab_len;
    for (size_t i = 0; i < (size_t)plan->draw_count; i++)
        if (row_wanted(r, &plan->draws[i], &result->summaries[i]))
            memcpy(result->logits + i * len, rows + i * len, len * sizeof(float));
}

static void rows_summarise(sh_rank *r, const sh_step_plan *plan, const sh_logits *logits,
                           struct result *result)
{
    sh_device *dev = sh_model_device(r->model);
    size_t bytes = (size_t)plan->draw_count * (size_t)r->vocab_len * sizeof(float);
    float *rows = dev->ops->peek(dev, logits->data);
    if (rows == NULL) dev->ops->download(dev, result->logits, logits->data, bytes);
    const sh_adjust *adjusts = plan->adjusts;
    for (int i = 0; i < plan->draw_count; adjusts += plan->draws[i++].adjust_count)
        r->queries[i] = (sh_row_query){plan->draws[i].draw, adjusts, plan->draws[i].adjust_count};
    sh_logits_scanner_run(r->scanner, r->queries, plan->draw_count,
                          rows == NULL ? result->logits : rows, result->summaries);
    if (!r->copies)
        result->logits = rows;
    else if (rows != NULL)
        rows_keep(r, plan, rows, result);
}

/* Covers the rows that are drawn from; in a step without draws, the row of the last token. */
static uint64_t hidden_hash(sh_rank *r, const sh_step_plan *plan)
{
    sh_device *dev = sh_model_device(r->model);
    size_t width = (size_t)sh_model_config(r->model)->hidden;
    const float *hidden = sh_model_hidden(r->model);
    int count = plan->draw_count > 0 ? plan->draw_count : 1;
    sh_key128 key = {plan->step, 0};
    for (int i = 0; i < count; i++) {
        size_t row = (size_t)(plan->draw_count > 0 ? r->rows[i] : plan->token_count - 1);
        dev->ops->download(dev, r->hidden, hidden + row * width, width * sizeof(float));
        key = sh_hash128(key, r->hidden, width * sizeof(float));
    }
    return key.lo;
}

sh_status sh_rank_run(sh_rank *r, const sh_step_plan *plan, sh_err *err)
{
    rows_gather(r, plan);
    sh_forward_input step = {
        .batch = {.tokens = plan->token_count, .span_count = plan->seq_count, .spans = r->spans},
        .ids = plan->tokens,
        .stretched = r->stretched,
        .rows = r->rows,
        .row_count = plan->draw_count,
    };
    sh_logits logits;
    struct result *result = &r->results[plan->step % (uint64_t)r->depth];
    int64_t start = sh_clock_ns();
    sh_status status = sh_model_step(r->model, &step, r->peers, &logits, err);
    r->forward_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK) return status;
    /* A single rank has nothing to compare its hidden states with. Ranks without a part of the
     * vocabulary, such as those of earlier stages, stop here. */
    result->step = plan->step;
    if (r->peers != NULL) result->hash = hidden_hash(r, plan);
    if (r->vocab_len == 0 || plan->draw_count == 0) return SH_OK;
    rows_summarise(r, plan, &logits, result);
    return SH_OK;
}

static const struct result *result_of(const sh_rank *r, uint64_t step)
{
    const struct result *result = &r->results[step % (uint64_t)r->depth];
    return result->step == step ? result : NULL;
}

const sh_logits_summary *sh_rank_summaries(const sh_rank *r, uint64_t step)
{
    const struct result *result = result_of(r, step);
    return result == NULL ? NULL : result->summaries;
}

const float *sh_rank_row(const sh_rank *r, uint64_t step, int draw)
{
    const struct result *result = result_of(r, step);
    return result == NULL ? NULL : result->logits + (size_t)draw * (size_t)r->vocab_len;
}

uint64_t sh_rank_hash(const sh_rank *r, uint64_t step)
{
    const struct result *result = result_of(r, step);
    return result == NULL ? 0 : result->hash;
}

double sh_rank_forward_s(const sh_rank *r)
{
    return r->forward_s;
}
