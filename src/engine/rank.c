/* One rank's share of a step. What a step leaves behind (summaries, hash, rows of logits) is kept
 * for `depth` steps, because in a pipeline rank 0 finishes a step only after it has begun others.
 *
 * The whole row of a draw is rarely needed, and reading it costs a pass over the vocabulary. With
 * one step in flight the row stays on the device until it is asked for; otherwise the next step
 * would overwrite it, and those rows are copied that rank 0 may still fetch, which can be seen from
 * the summary. */
#include "engine/rank.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/pooled.h"

#include <stdlib.h>
#include <string.h>

struct result {
    uint64_t step;
    uint64_t hash;
    float *rows; /* [draws, own vocabulary] copies; NULL with one step in flight */
    sh_logits_summary *summaries;
    float *vectors; /* [slots, hidden] that were completed; NULL on ranks that make none */
    float *outputs; /* [tokens, hidden] on the same rank; NULL: plans cannot ask for them */
};

struct sh_rank {
    sh_model *model;
    const sh_peers *peers;
    sh_step_limits limits;
    sh_batch_state *state;
    sh_span *spans;
    int32_t *rows;         /* indices of the step's tokens that are drawn from */
    sh_row_query *queries; /* [draws] */
    sh_logits logits;      /* of the last step, on the device */
    sh_pooled *pools;      /* NULL: another rank makes the vectors */
    int32_t vocab_len;
    int depth;
    struct result *results; /* step s is in s % depth */
    double forward_s;
};

sh_rank *sh_rank_create(sh_model *model, const sh_peers *peers, const sh_step_limits *limits,
                        int depth)
{
    sh_rank *r = sh_alloc(sizeof(*r));
    const sh_shard *shard = sh_model_shard(model);
    size_t draws = (size_t)limits->draws;
    r->model = model;
    r->peers = peers;
    r->limits = *limits;
    bool last = sh_shard_predicts(shard);
    int hidden = sh_model_config(model)->hidden;
    r->vocab_len = last && !sh_model_config(model)->headless ? (int32_t)shard->vocab.count : 0;
    if (last && shard->tensor_rank == 0) r->pools = sh_pooled_create(limits->slots, hidden);
    r->state = sh_batch_state_create(limits);
    r->spans = sh_alloc_array((size_t)limits->slots, sizeof(*r->spans));
    r->rows = sh_alloc_array(draws, sizeof(*r->rows));
    r->queries = sh_alloc_array(draws, sizeof(*r->queries));
    r->depth = depth;
    r->results = sh_alloc_array((size_t)depth, sizeof(*r->results));
    for (int i = 0; i < depth; i++) {
        r->results[i].summaries = sh_alloc_array(draws, sizeof(sh_logits_summary));
        if (r->pools != NULL)
            r->results[i].vectors = sh_alloc_array((size_t)limits->slots * (size_t)hidden,
                                                   sizeof(float));
        if (r->pools != NULL && limits->outputs)
            r->results[i].outputs = sh_alloc_array((size_t)limits->tokens * (size_t)hidden,
                                                   sizeof(float));
        if (depth > 1)
            r->results[i].rows = sh_alloc_array(draws * (size_t)r->vocab_len, sizeof(float));
    }
    return r;
}

void sh_rank_free(sh_rank *r)
{
    if (r == NULL) return;
    for (int i = 0; i < r->depth; i++) {
        free(r->results[i].rows);
        free(r->results[i].summaries);
        free(r->results[i].vectors);
        free(r->results[i].outputs);
    }
    sh_batch_state_free(r->state);
    sh_pooled_free(r->pools);
    free(r->results);
    free(r->spans);
    free(r->rows);
    free(r->queries);
    free(r);
}

sh_status sh_rank_apply(sh_rank *r, const sh_step_plan *plan, uint64_t *fingerprint, sh_err *err)
{
    sh_status status = sh_batch_state_apply(r->state, plan, r->spans, err);
    if (status == SH_OK) *fingerprint = sh_batch_state_fingerprint(r->state);
    return status;
}

/* In the order of the plan, and before anything is computed: a block that one sequence copies may
 * have been evicted for another that comes after it. */
static void blocks_copy(sh_rank *r, const sh_step_plan *plan)
{
    for (int i = 0; i < plan->seq_count; i++) {
        const sh_step_seq *q = &plan->seqs[i];
        if (!q->copies) continue;
        sh_model_copy_block(r->model, r->spans[i].blocks[q->pos / SH_KV_BLOCK], q->copied);
    }
}

/* Draws are made from the last tokens of each sequence. */
static void rows_gather(sh_rank *r, const sh_step_plan *plan)
{
    int row = 0;
    for (int i = 0; i < plan->seq_count; i++) {
        const sh_step_seq *q = &plan->seqs[i];
        int end = r->spans[i].first + q->token_count;
        for (int d = 0; d < q->draw_count; d++) r->rows[row++] = end - q->draw_count + d;
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

static void row_read(const sh_rank *r, int row, float *out)
{
    sh_device *dev = sh_model_device(r->model);
    dev->ops->read_rows(dev, r->logits.rows, row, 1, r->vocab_len, out);
}

/* Copies the rows that rank 0 may fetch: the device reuses its logits in the next step. */
static void rows_keep(const sh_rank *r, const sh_step_plan *plan, struct result *result)
{
    for (int i = 0; i < plan->draw_count; i++)
        if (row_wanted(r, &plan->draws[i], &result->summaries[i]))
            row_read(r, i, result->rows + (size_t)i * (size_t)r->vocab_len);
}

static void queries_fill(sh_rank *r, const sh_step_plan *plan)
{
    const sh_adjust *adjusts = plan->adjusts;
    for (int i = 0; i < plan->draw_count; adjusts += plan->draws[i++].adjust_count)
        r->queries[i] = (sh_row_query){.draw = plan->draws[i].draw,
                                       .adjusts = adjusts,
                                       .adjust_count = plan->draws[i].adjust_count,
                                       .allowed = sh_batch_state_mask(r->state, &plan->draws[i])};
}

/* Adds the step's hidden states to the vectors of their sequences. */
static void vectors_make(sh_rank *r, const sh_step_plan *plan, struct result *result)
{
    int hidden = sh_model_config(r->model)->hidden;
    float *to = result->vectors;
    for (int i = 0; i < plan->seq_count; i++) {
        const sh_step_seq *q = &plan->seqs[i];
        if (q->pool == SH_POOL_NONE) continue;
        sh_pooled_add(r->pools, sh_model_device(r->model), sh_model_output(r->model), q->pool,
                      q->slot, r->spans[i].first, q->token_count, q->pos);
        if (!q->pool_ends) continue;
        sh_pooled_take(r->pools, q->pool, q->slot, q->pos + q->token_count, to);
        to += hidden;
    }
}

static void outputs_keep(const sh_rank *r, const sh_step_plan *plan, struct result *result)
{
    sh_device *dev = sh_model_device(r->model);
    dev->ops->read_rows(dev, sh_model_output(r->model), 0, plan->token_count,
                        sh_model_config(r->model)->hidden, result->outputs);
}

/* The masks that a forward pass will need. */
struct coming_masks {
    sh_rank *rank;
    sh_step_plan *plan;
    const sh_mask_feed *feed;
};

static sh_status masks_take(void *ctx, sh_err *err)
{
    struct coming_masks *c = ctx;
    int64_t start = sh_clock_ns();
    sh_status status = c->feed == NULL ? SH_OK : c->feed->get(c->feed->ctx, c->plan, err);
    if (status == SH_OK) sh_batch_state_take_masks(c->rank->state, c->plan);
    c->rank->forward_s -= (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

sh_status sh_rank_run(sh_rank *r, sh_step_plan *plan, const sh_mask_feed *feed, sh_err *err)
{
    struct coming_masks masks = {r, plan, feed};
    struct result *result = &r->results[plan->step % (uint64_t)r->depth];
    bool summarizes = r->vocab_len > 0 && plan->draw_count > 0;
    rows_gather(r, plan);
    queries_fill(r, plan);
    sh_forward_input in = {
        .batch = {.tokens = plan->token_count,
                  .ids = plan->tokens,
                  .span_count = plan->seq_count,
                  .spans = r->spans,
                  .rows = r->rows,
                  .row_count = plan->draw_count},
        .queries = summarizes ? r->queries : NULL,
        .summaries = result->summaries,
        .complete_queries = plan->mask_count > 0 ? masks_take : NULL,
        .complete_ctx = &masks,
        .pooled = r->pools != NULL && (plan->outputs || sh_step_plan_pooled(plan)),
        .hash_seed = plan->step,
        .hash = r->peers != NULL ? &result->hash : NULL,
    };
    int64_t start = sh_clock_ns();
    blocks_copy(r, plan);
    sh_status status = sh_model_step(r->model, &in, r->peers, &r->logits, err);
    r->forward_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK) return status;
    result->step = plan->step;
    if (summarizes && r->depth > 1) rows_keep(r, plan, result);
    if (in.pooled) vectors_make(r, plan, result);
    if (in.pooled && plan->outputs) outputs_keep(r, plan, result);
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

const float *sh_rank_vectors(const sh_rank *r, uint64_t step)
{
    const struct result *result = result_of(r, step);
    return result == NULL ? NULL : result->vectors;
}

const float *sh_rank_outputs(const sh_rank *r, uint64_t step)
{
    const struct result *result = result_of(r, step);
    return result == NULL ? NULL : result->outputs;
}

bool sh_rank_read_row(const sh_rank *r, uint64_t step, int draw, float *out)
{
    const struct result *result = result_of(r, step);
    size_t len = (size_t)r->vocab_len;
    if (result == NULL || len == 0) return result != NULL;
    if (result->rows == NULL)
        row_read(r, draw, out);
    else
        memcpy(out, result->rows + (size_t)draw * len, len * sizeof(float));
    return true;
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
