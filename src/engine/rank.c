#include "engine/rank.h"

#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

struct sh_rank {
    sh_model *model;
    const sh_peers *peers;
    sh_step_room room;
    sh_batch_state *state;
    sh_span *spans;
    int32_t *positions;
    int32_t *rows; /* tokens of the step that are drawn from */
    bool *stretched;
    float *logits; /* [draws, own vocabulary], host memory */
    int32_t vocab_first, vocab_len;
    sh_scan *scans;
};

sh_rank *sh_rank_create(sh_model *model, const sh_peers *peers, const sh_step_room *room)
{
    sh_rank *r = sh_alloc(sizeof(*r));
    const sh_shard *shard = sh_model_shard(model);
    r->model = model;
    r->peers = peers;
    r->room = *room;
    r->vocab_first = (int32_t)shard->vocab.first;
    r->vocab_len = sh_shard_predicts(shard) ? (int32_t)shard->vocab.count : 0;
    r->state = sh_batch_state_create(room);
    r->spans = sh_alloc_array((size_t)room->slots, sizeof(*r->spans));
    r->stretched = sh_alloc_array((size_t)room->slots, sizeof(*r->stretched));
    r->positions = sh_alloc_array((size_t)room->tokens, sizeof(*r->positions));
    r->rows = sh_alloc_array((size_t)room->draws, sizeof(*r->rows));
    r->logits = sh_alloc_array((size_t)room->draws * (size_t)r->vocab_len, sizeof(*r->logits));
    r->scans = sh_alloc_array((size_t)room->draws, sizeof(*r->scans));
    return r;
}

void sh_rank_free(sh_rank *r)
{
    if (r == NULL) return;
    sh_batch_state_free(r->state);
    free(r->spans);
    free(r->stretched);
    free(r->positions);
    free(r->rows);
    free(r->logits);
    free(r->scans);
    free(r);
}

sh_status sh_rank_apply(sh_rank *r, const sh_step_plan *plan, uint64_t *fingerprint, sh_err *err)
{
    sh_status status = sh_batch_state_apply(r->state, plan, r->spans, r->positions, err);
    if (status == SH_OK) *fingerprint = sh_batch_state_fingerprint(r->state);
    return status;
}

/* The last tokens of each sequence are those that are drawn from. */
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

static void rows_scan(sh_rank *r, const sh_step_plan *plan)
{
    const sh_adjust *adjust = plan->adjusts;
    for (int i = 0; i < plan->draw_count; i++) {
        const sh_step_draw *d = &plan->draws[i];
        float *row = r->logits + (size_t)i * (size_t)r->vocab_len;
        sh_adjust_apply(adjust, d->adjust_count, row, r->vocab_first, r->vocab_len);
        sh_scan_row(&d->draw, row, r->vocab_first, r->vocab_len, &r->scans[i]);
        adjust += d->adjust_count;
    }
}

sh_status sh_rank_run(sh_rank *r, const sh_step_plan *plan, sh_err *err)
{
    rows_gather(r, plan);
    sh_step step = {
        .batch = {.tokens = plan->token_count, .span_count = plan->seq_count, .spans = r->spans},
        .ids = plan->tokens,
        .stretched = r->stretched,
        .rows = r->rows,
        .row_count = plan->draw_count,
    };
    sh_logits logits;
    sh_status status = sh_model_step(r->model, &step, r->peers, &logits, err);
    if (status != SH_OK || r->vocab_len == 0 || plan->draw_count == 0) return status;
    sh_device *dev = sh_model_device(r->model);
    dev->ops->download(dev, r->logits, logits.data,
                       (size_t)plan->draw_count * (size_t)r->vocab_len * sizeof(*r->logits));
    rows_scan(r, plan);
    return SH_OK;
}

const sh_scan *sh_rank_scans(const sh_rank *r)
{
    return r->scans;
}

const float *sh_rank_row(const sh_rank *r, int draw, int32_t *first, int32_t *len)
{
    *first = r->vocab_first;
    *len = r->vocab_len;
    return r->logits + (size_t)draw * (size_t)r->vocab_len;
}
