/* One step through the layers of a shard.
 *
 * Tensor parallelism shows in two places only: every block leaves this rank's partial result in y,
 * and merge sums y over the ranks before it goes into the residual stream x. So x has the same bits
 * on all tensor ranks after every block, and a rank that owns nothing of a block must still call
 * reduce, with zeros, or the others would wait for it. */
#include "model/forward.h"

#include "model/model_internal.h"

#include <math.h>

float *sh_model_hidden(sh_model *m)
{
    return m->buf.x;
}

static void norm_rows(const sh_pass *p, float *y, const float *x, const float *w, int rows)
{
    int64_t hidden = p->m->config->hidden;
    p->ops->rmsnorm(p->dev, y, x, w, rows, 1, hidden, hidden, p->m->config->norm_eps);
}

static sh_status reduce(const sh_pass *p, float *x, sh_err *err)
{
    size_t count = (size_t)p->tokens * (size_t)p->m->config->hidden;
    if (p->m->shard.tensor_size == 1) return SH_OK;
    return p->peers->reduce(p->peers->ctx, x, count, err);
}

/* y = W x for one matrix, with y as wide as the matrix has rows. */
static void product(const sh_pass *p, const sh_linear *l, const float *x, int64_t x_stride,
                    float *y)
{
    sh_product one = {.w = &l->w, .bias = l->bias, .y = y, .y_stride = l->w.rows};
    p->ops->matmul(p->dev, &one, 1, x, x_stride, p->tokens);
}

/* The gated feed-forward of a dense layer or of the shared experts, into y. */
static void run_ffn(const sh_pass *p, const sh_layer *layer, float *y)
{
    const sh_forward_buffers *b = &p->m->buf;
    int64_t width = layer->gate.w.rows, hidden = p->m->config->hidden;
    sh_product both[2] = {
        {.w = &layer->gate.w, .bias = layer->gate.bias, .y = b->gate, .y_stride = width},
        {.w = &layer->up.w, .bias = layer->up.bias, .y = b->up, .y_stride = width}};
    p->ops->matmul(p->dev, both, 2, b->xn, hidden, p->tokens);
    p->ops->act(p->dev, p->m->config->act, b->gate, b->gate, b->up, p->tokens, width, width);
    product(p, &layer->down, b->gate, width, y);
}

static void run_experts(const sh_pass *p, const sh_layer *layer)
{
    const sh_forward_buffers *b = &p->m->buf;
    int64_t hidden = p->m->config->hidden;
    p->ops->route(p->dev, &layer->router, b->xn, p->tokens, hidden, b->experts, b->weights);
    p->ops->experts(p->dev, &layer->experts, b->xn, p->tokens, b->experts, b->weights,
                    layer->router.topk, b->y);
}

/* This rank's part of the feed-forward, into y. A rank may own nothing of it, and then adds zeros.
 */
static void run_mlp(const sh_pass *p, const sh_layer *layer)
{
    const sh_forward_buffers *b = &p->m->buf;
    size_t count = (size_t)p->tokens * (size_t)p->m->config->hidden;
    bool experts = layer->experts.down.data != NULL, ffn = layer->down.w.data != NULL;
    if (experts) run_experts(p, layer);
    if (ffn) run_ffn(p, layer, experts ? b->y2 : b->y);
    if (experts && ffn) p->ops->add(p->dev, b->y, b->y2, count);
    if (!experts && !ffn) p->ops->zero(p->dev, b->y, count);
}

/* Sums y over the ranks and adds it to the residual stream, normed first where the family does that
 * (gemma). The norm must see the full sum, so it cannot move ahead of reduce. */
static sh_status merge(const sh_pass *p, const float *post_norm, sh_err *err)
{
    const sh_forward_buffers *b = &p->m->buf;
    sh_status status = reduce(p, b->y, err);
    if (status != SH_OK) return status;
    if (post_norm != NULL) norm_rows(p, b->y, b->y, post_norm, p->tokens);
    p->ops->add(p->dev, b->x, b->y, (size_t)p->tokens * (size_t)p->m->config->hidden);
    return SH_OK;
}

static sh_status run_layer(const sh_pass *p, int index, sh_err *err)
{
    const sh_layer *layer = &p->m->weights->layers[index];
    const sh_forward_buffers *b = &p->m->buf;
    norm_rows(p, b->xn, b->x, layer->attn_norm, p->tokens);
    if (p->m->shard.heads.count == 0)
        p->ops->zero(p->dev, b->y, (size_t)p->tokens * (size_t)p->m->config->hidden);
    else if (p->m->config->mla.kv_rank > 0)
        sh_pass_mla(p, index);
    else
        sh_pass_attention(p, index);
    sh_status status = merge(p, layer->attn_post_norm, err);
    if (status != SH_OK) return status;
    norm_rows(p, b->xn, b->x, layer->ffn_norm, p->tokens);
    run_mlp(p, layer);
    return merge(p, layer->ffn_post_norm, err);
}

/* The vocabulary is cut by rows. Each rank embeds the tokens whose rows it has and leaves zeros for
 * the others, so that the sum has every token once. */
static sh_status run_embed(const sh_pass *p, sh_err *err)
{
    const sh_model *m = p->m;
    if (!sh_shard_embeds(&m->shard)) return SH_OK;
    if (m->shard.vocab.count == 0)
        p->ops->zero(p->dev, m->buf.x, (size_t)p->tokens * (size_t)m->config->hidden);
    else
        p->ops->embed(p->dev, &m->weights->embed, m->shard.vocab.first, p->step->ids, p->tokens,
                      m->config->embed_scale, m->buf.x);
    return reduce(p, m->buf.x, err);
}

/* Logits for the requested tokens and this rank's slice of the vocabulary. They are not gathered:
 * the engine summarizes each slice where it is. */
static void run_head(const sh_pass *p, sh_logits *out)
{
    const sh_model *m = p->m;
    const sh_weights *w = m->weights;
    const sh_matrix *head = w->head.data != NULL ? &w->head : &w->embed;
    int rows = p->step->row_count;
    *out = (sh_logits){.first = m->shard.vocab.first, .count = m->shard.vocab.count};
    if (!sh_shard_predicts(&m->shard) || rows == 0) return;
    p->ops->copy_rows(p->dev, m->buf.rows, m->buf.x, p->step->rows, rows, m->config->hidden);
    norm_rows(p, m->buf.rows, m->buf.rows, w->norm, rows);
    if (head->data != NULL) {
        sh_product one = {.w = head, .y = m->buf.logits, .y_stride = head->rows};
        p->ops->matmul(p->dev, &one, 1, m->buf.rows, m->config->hidden, rows);
    }
    out->data = m->buf.logits;
}

/* Neighbouring spans that use the same frequencies share a call. A token's row of the table depends
 * on its position and these frequencies only, so the grouping cannot change a result. */
static void fill_rope(const sh_pass *p, int which)
{
    const sh_model *m = p->m;
    const sh_batch *batch = &p->step->batch;
    const bool *stretched = p->step->stretched;
    int64_t dim = m->config->rope[which].dim;
    for (int s = 0; s < batch->span_count;) {
        int from = s;
        bool far = stretched != NULL && stretched[s];
        while (s < batch->span_count && (stretched != NULL && stretched[s]) == far) s++;
        int first = batch->spans[from].first;
        int end = batch->spans[s - 1].first + batch->spans[s - 1].count;
        p->ops->rope_table(p->dev, &m->rope[which][far], m->positions + first, end - first,
                           m->buf.rope[which] + first * dim);
    }
}

/* Spans must cover the batch in order and without gaps; the ops index tokens on that assumption. */
static void fill_positions(const sh_pass *p)
{
    const sh_batch *batch = &p->step->batch;
    int next = 0;
    for (int s = 0; s < batch->span_count; s++) {
        const sh_span *span = &batch->spans[s];
        SH_ASSERT(span->first == next && span->count > 0 && span->pos >= 0);
        next += span->count;
        SH_ASSERT(next <= batch->tokens);
        for (int i = 0; i < span->count; i++) p->m->positions[span->first + i] = span->pos + i;
    }
    SH_ASSERT(next == batch->tokens);
}

sh_status sh_model_step(sh_model *m, const sh_forward_input *step, const sh_peers *peers,
                        sh_logits *out, sh_err *err)
{
    sh_pass pass = {.m = m,
                    .ops = m->dev->ops,
                    .dev = m->dev,
                    .step = step,
                    .peers = peers,
                    .tokens = step->batch.tokens};
    SH_ASSERT(pass.tokens > 0 && pass.tokens <= m->opts.tokens_max);
    SH_ASSERT(step->row_count <= m->opts.rows_max);
    SH_ASSERT(m->shard.tensor_size == 1 || peers != NULL);
    fill_positions(&pass);
    for (int i = 0; i < m->config->rope_count; i++) fill_rope(&pass, i);
    sh_status status = run_embed(&pass, err);
    for (int i = 0; i < m->shard.layer_count && status == SH_OK; i++)
        status = run_layer(&pass, i, err);
    if (status == SH_OK) run_head(&pass, out);
    return status;
}
