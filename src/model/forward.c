/* One step through the layers of a shard.
 *
 * Tensor parallelism shows in two places only: every block leaves this rank's partial result in y,
 * and merge sums y over the ranks before it goes into the residual stream x. So x has the same bits
 * on all tensor ranks after every block, and a rank that owns nothing of a block must still call
 * reduce, with zeros, or the others would wait for it. */
#include "model/forward.h"

#include "model/model_internal.h"

sh_tensor sh_model_hidden(sh_model *m)
{
    return m->buf.x;
}

/* x and y; they are neighbours (model.c). */
void sh_model_sum_memory(sh_model *m, void **at, size_t *len)
{
    int64_t rows = m->opts.tokens_max, cols = m->config->hidden;
    sh_tensor ignored;
    sh_layout layout = sh_layout_of(SH_CODEC_F32, (size_t)rows, (size_t)cols);
    bool lends = m->dev->ops->exchange_at(m->dev, m->buf.x, &layout, 0) != NULL;
    size_t y_len = m->dev->ops->tensor_layout(m->dev, rows, cols, &ignored);
    *at = lends ? m->buf.x.data : NULL;
    *len = (size_t)((char *)m->buf.y.data - (char *)m->buf.x.data) + y_len;
}

sh_tensor sh_model_output(sh_model *m)
{
    return m->weights->norm.w == NULL ? m->buf.x : m->buf.xn;
}

static void norm_rows(const sh_pass *p, sh_tensor y, sh_tensor x, const sh_norm *norm, int rows)
{
    const sh_config *c = p->m->config;
    if (c->layer_norm)
        p->ops->layernorm(p->dev, y, x, norm->w, norm->bias, rows, c->hidden, c->norm_eps);
    else
        p->ops->rmsnorm(p->dev, y, x, norm->w, rows, 1, c->hidden, c->norm_eps);
}

/* What a block reads: the hidden states, normed where the model has a norm before the block. */
static sh_tensor block_input(const sh_pass *p, const sh_norm *norm)
{
    const sh_forward_buffers *b = &p->m->buf;
    if (norm->w == NULL) return b->x;
    norm_rows(p, b->xn, b->x, norm, p->tokens);
    return b->xn;
}

static sh_status reduce(const sh_pass *p, sh_tensor x, sh_err *err)
{
    if (p->m->shard.tensor_size == 1) return SH_OK;
    return p->peers->reduce(p->peers->ctx, x, p->tokens, p->m->config->hidden, err);
}

static void zero(const sh_pass *p, sh_tensor x)
{
    p->ops->zero(p->dev, x, p->tokens, p->m->config->hidden);
}

/* x += y, in the width of the residual stream. */
static void add(const sh_pass *p, sh_tensor x, sh_tensor y)
{
    p->ops->add(p->dev, x, y, p->tokens, p->m->config->hidden);
}

/* The feed-forward of a dense layer or of the shared experts, into y. */
static void run_ffn(const sh_pass *p, const sh_layer *layer, sh_tensor y)
{
    const sh_forward_buffers *b = &p->m->buf;
    bool gated = layer->up.w.data != NULL;
    sh_product both[2] = {{.w = &layer->gate.w, .bias = layer->gate.bias, .y = b->gate},
                          {.w = &layer->up.w, .bias = layer->up.bias, .y = b->up}};
    sh_product down = {.w = &layer->down.w, .bias = layer->down.bias, .y = y};
    p->ops->matmul(p->dev, both, gated ? 2 : 1, p->in, p->tokens);
    p->ops->act(p->dev, p->m->config->act, b->gate, b->gate, gated ? b->up : (sh_tensor){0},
                p->tokens, layer->gate.w.rows);
    p->ops->matmul(p->dev, &down, 1, b->gate, p->tokens);
}

static void run_experts(const sh_pass *p, const sh_layer *layer)
{
    const sh_forward_buffers *b = &p->m->buf;
    int64_t hidden = p->m->config->hidden;
    p->ops->route(p->dev, &layer->router, p->in, p->tokens, hidden, b->experts, b->weights);
    p->ops->experts(p->dev, &layer->experts, p->in, p->tokens, b->experts, b->weights,
                    layer->router.topk, b->y);
}

/* Scales the shared experts' part of each token by what the token makes of its gate. */
static void gate_shared(const sh_pass *p, const sh_layer *layer, sh_tensor y)
{
    sh_product gate = {.w = &layer->shared_gate, .y = p->m->buf.shared_gate};
    if (layer->shared_gate.data == NULL) return;
    p->ops->matmul(p->dev, &gate, 1, p->in, p->tokens);
    p->ops->gate_rows(p->dev, y, gate.y, p->tokens, p->m->config->hidden);
}

/* This rank's part of the feed-forward, into y. A rank may own nothing of it, and then adds zeros.
 */
static void run_mlp(const sh_pass *p, const sh_layer *layer)
{
    const sh_forward_buffers *b = &p->m->buf;
    bool experts = layer->experts.down.data != NULL, ffn = layer->down.w.data != NULL;
    if (experts) run_experts(p, layer);
    if (ffn) run_ffn(p, layer, experts ? b->y2 : b->y);
    if (ffn) gate_shared(p, layer, experts ? b->y2 : b->y);
    if (experts && ffn) add(p, b->y, b->y2);
    if (!experts && !ffn) zero(p, b->y);
}

/* Sums y over the ranks and adds it to the residual stream, normed first where the family does that
 * (gemma). The norm must see the full sum, so it cannot move ahead of reduce. Some families norm
 * the residual stream itself after that (BERT). */
static sh_status merge(const sh_pass *p, const sh_norm *post_norm, const sh_norm *sum_norm,
                       sh_err *err)
{
    const sh_forward_buffers *b = &p->m->buf;
    sh_status status = reduce(p, b->y, err);
    if (status != SH_OK) return status;
    if (post_norm->w != NULL) norm_rows(p, b->y, b->y, post_norm, p->tokens);
    add(p, b->x, b->y);
    if (sum_norm->w != NULL) norm_rows(p, b->x, b->x, sum_norm, p->tokens);
    return SH_OK;
}

static void (*const RUN_MIXER[SH_MIXERS])(const sh_pass *p, int index) = {
    [SH_MIXER_ATTENTION] = sh_pass_attention,
    [SH_MIXER_MLA] = sh_pass_mla,
    [SH_MIXER_SHORT_CONV] = sh_pass_short_conv,
    [SH_MIXER_DELTA_NET] = sh_pass_delta_net,
};

static sh_status run_layer(sh_pass *p, int index, sh_err *err)
{
    const sh_layer *layer = &p->m->weights->layers[index];
    const sh_forward_buffers *b = &p->m->buf;
    sh_mixer mixer = sh_model_layer(p->m, index)->mixer;
    p->in = block_input(p, &layer->mixer_norm);
    if (sh_shard_mixer(&p->m->shard, mixer).count == 0)
        zero(p, b->y);
    else
        RUN_MIXER[mixer](p, index);
    sh_status status = merge(p, &layer->mixer_post_norm, &layer->mixer_sum_norm, err);
    if (status != SH_OK) return status;
    p->in = block_input(p, &layer->ffn_norm);
    run_mlp(p, layer);
    return merge(p, &layer->ffn_post_norm, &layer->ffn_sum_norm, err);
}

/* A multi-token-prediction layer starts from a token and from the model's output for the one before
 * it, which is in x. */
static void run_join(const sh_pass *p)
{
    const sh_model *m = p->m;
    const sh_forward_buffers *b = &m->buf;
    const sh_mtp_join *join = &m->weights->join;
    sh_product hidden = {.w = &join->from_hidden, .y = b->x},
               token = {.w = &join->from_embed, .y = b->y};
    norm_rows(p, b->xn, b->x, &join->hidden_norm, p->tokens);
    p->ops->matmul(p->dev, &hidden, 1, b->xn, p->tokens);
    p->ops->embed(p->dev, p->batch, &m->weights->embed, 0, m->config->embed_scale, b->xn);
    norm_rows(p, b->xn, b->xn, &join->embed_norm, p->tokens);
    p->ops->matmul(p->dev, &token, 1, b->xn, p->tokens);
    add(p, b->x, b->y);
}

/* The vocabulary is cut by rows. Each rank embeds the tokens whose rows it has and leaves zeros for
 * the others, so that the sum has every token once. */
static sh_status run_embed(const sh_pass *p, sh_err *err)
{
    const sh_model *m = p->m;
    if (!sh_shard_embeds(&m->shard)) return SH_OK;
    if (m->shard.vocab.count == 0)
        zero(p, m->buf.x);
    else
        p->ops->embed(p->dev, p->batch, &m->weights->embed, m->shard.vocab.first,
                      m->config->embed_scale, m->buf.x);
    sh_status status = reduce(p, m->buf.x, err);
    if (status != SH_OK) return status;
    const sh_weights *w = m->weights;
    if (w->positions != NULL || w->types != NULL)
        p->ops->add_positions(p->dev, p->batch, m->buf.x, m->config->hidden, w->positions,
                              m->config->position_offset, w->types, m->config->types);
    if (w->embed_norm.w != NULL) norm_rows(p, m->buf.x, m->buf.x, &w->embed_norm, p->tokens);
    return SH_OK;
}

/* Logits for the requested tokens and this rank's slice of the vocabulary. They are not gathered:
 * each rank summarizes its slice where it is. */
static sh_status run_head(const sh_pass *p, const sh_forward_input *in, sh_logits *out, sh_err *err)
{
    const sh_model *m = p->m;
    const sh_weights *w = m->weights;
    const sh_matrix *head = w->head.data != NULL ? &w->head : &w->embed;
    int rows = in->batch.row_count;
    *out = (sh_logits){.first = m->shard.vocab.first, .count = m->shard.vocab.count};
    if (!sh_shard_predicts(&m->shard)) return SH_OK;
    if (in->pooled && w->norm.w != NULL) norm_rows(p, m->buf.xn, m->buf.x, &w->norm, p->tokens);
    if (rows == 0 || m->config->headless) return SH_OK;
    p->ops->copy_rows(p->dev, p->batch, m->buf.rows, m->buf.x, m->config->hidden);
    norm_rows(p, m->buf.rows, m->buf.rows, &w->norm, rows);
    if (head->data != NULL) {
        sh_product one = {.w = head, .y = m->buf.logits};
        p->ops->matmul(p->dev, &one, 1, m->buf.rows, rows);
    }
    out->rows = m->buf.logits;
    if (in->queries == NULL) return SH_OK;
    sh_status status = SH_OK;
    if (in->complete_queries != NULL) status = in->complete_queries(in->complete_ctx, err);
    if (status == SH_OK)
        p->ops->scan(p->dev, p->batch, m->buf.logits, (int32_t)out->first, (int32_t)out->count,
                     in->queries, in->summaries);
    return status;
}

/* Everything between step_begin and step_end. */
static sh_status run_all(sh_pass *p, const sh_forward_input *in, sh_logits *out, sh_err *err)
{
    const sh_model *m = p->m;
    for (int i = 0; i < m->config->rope_count; i++)
        p->ops->rope_table(p->dev, p->batch, m->rope[i], m->buf.rope[i]);
    sh_status status = SH_OK;
    if (m->config->mtp)
        run_join(p);
    else
        status = run_embed(p, err);
    for (int i = 0; i < m->shard.layer_count && status == SH_OK; i++) status = run_layer(p, i, err);
    if (status != SH_OK) return status;
    if (in->hash != NULL)
        p->ops->hash_rows(p->dev, p->batch, m->buf.x, m->config->hidden, in->hash_seed, in->hash);
    return run_head(p, in, out, err);
}

/* Where tokens see what follows them, a step has whole sequences; and a table of positions ends. */
static sh_status check_spans(const sh_model *m, const sh_batch *batch, sh_err *err)
{
    for (int i = 0; m->config->bidirectional && i < batch->span_count; i++) {
        const sh_span *span = &batch->spans[i];
        if (span->pos != 0 || span->count > m->config->context)
            return sh_err_set(
                err, SH_ERR_INPUT,
                "%d tokens from position %d on are not a whole sequence of at most %d", span->count,
                span->pos, m->config->context);
    }
    return SH_OK;
}

sh_status sh_model_step(sh_model *m, const sh_forward_input *in, const sh_peers *peers,
                        sh_logits *out, sh_err *err)
{
    SH_ASSERT(in->batch.tokens > 0 && in->batch.tokens <= m->opts.tokens_max);
    SH_ASSERT(in->batch.row_count <= m->opts.rows_max);
    SH_ASSERT(m->shard.tensor_size == 1 || peers != NULL);
    sh_err ignored;
    sh_status status = check_spans(m, &in->batch, err);
    if (status != SH_OK) return status;
    sh_pass pass = {.m = m,
                    .ops = m->dev->ops,
                    .dev = m->dev,
                    .batch = m->dev->ops->step_begin(m->dev, &in->batch),
                    .peers = peers,
                    .tokens = in->batch.tokens};
    status = run_all(&pass, in, out, err);
    /* A device must come to rest after a failure too. The first error is the one to report. */
    sh_status ended = pass.ops->step_end(m->dev, pass.batch, status == SH_OK ? err : &ignored);
    return status == SH_OK ? ended : status;
}
