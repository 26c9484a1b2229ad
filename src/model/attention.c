/* The two kinds of attention, up to this rank's part of the output projection.
 *
 * Ordinary attention is q, k, v, RoPE, softmax, o. MLA runs in its absorbed form: keys and values
 * are never expanded. embed_q maps each head's query into the latent space, attention runs there
 * over the latents themselves (one KV "head" for all query heads), and unembed maps each head's
 * result back. That keeps the KV cache at kv_rank + rope_dim numbers a token. */
#include "model/model_internal.h"

static void apply_rope(const sh_pass *p, int index, sh_tensor x, int heads, int64_t head_stride)
{
    int which = sh_model_layer(p->m, index)->rope;
    if (p->m->config->rope_count == 0) return;
    p->ops->rope(p->dev, p->m->rope[which], p->m->buf.rope[which], x, p->tokens, heads,
                 head_stride);
}

/* Ministral: queries past the original context are scaled up, by one factor for each multiple of
 * it. */
static void scale_queries(const sh_pass *p, sh_tensor q, int64_t width)
{
    const sh_config *c = p->m->config;
    if (c->query_beta != 0)
        p->ops->scale_by_position(p->dev, p->batch, q, width, c->query_beta,
                                  c->rope[0].original_context);
}

static void attend(const sh_pass *p, int index, sh_tensor q, sh_tensor out)
{
    const sh_model *m = p->m;
    sh_attention attention = {.heads = (int)m->shard.heads.count,
                              .kv_of = m->kv_of,
                              .scale = m->config->attention_scale,
                              .window = sh_model_layer(p->m, index)->window,
                              .both = m->config->bidirectional,
                              .sinks = m->weights->layers[index].sinks};
    p->ops->attend(p->dev, p->batch, &attention, &m->state[index].kv, q, out);
}

/* y = O attn over the columns that this rank holds. These are widened to whole quantization groups
 * (sh_shard_out_cols), so some belong to heads of other ranks. Nobody writes to those columns of
 * attn: they keep the zeros of the fresh mapping, and contribute nothing to the sum. */
static void project_out(const sh_pass *p, const sh_layer *layer)
{
    sh_product out = {.w = &layer->o.w, .bias = layer->o.bias, .y = p->m->buf.y};
    p->ops->matmul(p->dev, &out, 1, p->m->buf.attn, p->tokens);
}

/* This rank's first head in a row of attn; not at the start when out_cols was widened. */
static sh_tensor attn_start(const sh_pass *p)
{
    const sh_model *m = p->m;
    return sh_tensor_from(m->buf.attn, m->shard.heads.first * m->config->v_dim - m->out_cols.first);
}

static void norm_heads(const sh_pass *p, sh_tensor x, const float *w, int heads)
{
    const sh_config *c = p->m->config;
    if (w != NULL) p->ops->rmsnorm(p->dev, x, x, w, p->tokens, heads, c->head_dim, c->norm_eps);
}

/* q and gates come from one projection, head by head. */
static void split_gates(const sh_pass *p, int heads)
{
    const sh_forward_buffers *b = &p->m->buf;
    int64_t dim = p->m->config->head_dim;
    p->ops->copy_heads(p->dev, b->q, dim, b->q_gates, 2 * dim, p->tokens, heads, dim);
    p->ops->copy_heads(p->dev, b->gates, dim, sh_tensor_from(b->q_gates, dim), 2 * dim, p->tokens,
                       heads, dim);
}

void sh_pass_attention(const sh_pass *p, int index)
{
    const sh_model *m = p->m;
    const sh_config *c = m->config;
    const sh_layer *layer = &m->weights->layers[index];
    const sh_forward_buffers *b = &m->buf;
    int heads = (int)m->shard.heads.count, kv_heads = (int)m->shard.kv_heads.count;
    sh_tensor out = attn_start(p), q = c->out_gate ? b->q_gates : b->q;
    sh_product qkv[3] = {{.w = &layer->q.w, .bias = layer->q.bias, .y = q},
                         {.w = &layer->k.w, .bias = layer->k.bias, .y = b->k},
                         {.w = &layer->v.w, .bias = layer->v.bias, .y = b->v}};
    p->ops->matmul(p->dev, qkv, 3, p->in, p->tokens);
    if (c->out_gate) split_gates(p, heads);
    norm_heads(p, b->q, layer->q_norm, heads);
    norm_heads(p, b->k, layer->k_norm, kv_heads);
    apply_rope(p, index, b->q, heads, c->head_dim);
    apply_rope(p, index, b->k, kv_heads, c->head_dim);
    scale_queries(p, b->q, (int64_t)heads * c->head_dim);
    p->ops->kv_write(p->dev, p->batch, &m->state[index].kv, b->k, b->v);
    attend(p, index, b->q, out);
    if (c->out_gate)
        p->ops->act(p->dev, SH_ACT_SIGMOID, out, b->gates, out, p->tokens,
                    (int64_t)heads * c->v_dim);
    project_out(p, layer);
}

/* Queries of all heads, through the low-rank vector where the model has one. */
static void mla_queries(const sh_pass *p, const sh_layer *layer)
{
    const sh_model *m = p->m;
    const sh_forward_buffers *b = &m->buf;
    int64_t rank = m->config->mla.q_rank;
    sh_product q = {.w = &layer->q.w, .bias = layer->q.bias, .y = b->q};
    sh_product q_a = {.w = &layer->q_a.w, .bias = layer->q_a.bias, .y = b->q_a};
    if (rank > 0) {
        p->ops->matmul(p->dev, &q_a, 1, p->in, p->tokens);
        p->ops->rmsnorm(p->dev, b->q_a, b->q_a, layer->q_a_norm, p->tokens, 1, rank,
                        m->config->norm_eps);
    }
    p->ops->matmul(p->dev, &q, 1, rank > 0 ? b->q_a : p->in, p->tokens);
}

/* The latent of each token, normed, followed by the rotated part of the key, which all heads share.
 * Together they are the key of every head; the latent alone is the value. */
static void mla_latent(const sh_pass *p, int index, const sh_layer *layer)
{
    const sh_model *m = p->m;
    const sh_mla_config *mla = &m->config->mla;
    sh_tensor latent = m->buf.k;
    sh_product kv_a = {.w = &layer->kv_a.w, .bias = layer->kv_a.bias, .y = latent};
    p->ops->matmul(p->dev, &kv_a, 1, p->in, p->tokens);
    p->ops->rmsnorm(p->dev, latent, latent, layer->kv_a_norm, p->tokens, 1, mla->kv_rank,
                    m->config->norm_eps);
    apply_rope(p, index, sh_tensor_from(latent, mla->kv_rank), 1, mla->rope_dim);
    p->ops->kv_write(p->dev, p->batch, &m->state[index].kv, latent, (sh_tensor){0});
}

void sh_pass_mla(const sh_pass *p, int index)
{
    const sh_model *m = p->m;
    const sh_mla_config *mla = &m->config->mla;
    const sh_layer *layer = &m->weights->layers[index];
    const sh_forward_buffers *b = &m->buf;
    int heads = (int)m->shard.heads.count;
    int64_t dim = m->config->head_dim, rank = mla->kv_rank, width = rank + mla->rope_dim;
    sh_tensor q_rope = sh_tensor_from(b->q_latent, rank);

    mla_queries(p, layer);
    mla_latent(p, index, layer);
    /* A head of q is [nope, rope]. The nope part goes through embed_q into the latent space, the
     * rope part is copied after it and rotated, which lines the query up with the stored key. */
    p->ops->matmul_heads(p->dev, &layer->embed_q, b->q, dim, b->q_latent, width, p->tokens);
    p->ops->copy_heads(p->dev, q_rope, width, sh_tensor_from(b->q, mla->nope_dim), dim, p->tokens,
                       heads, mla->rope_dim);
    apply_rope(p, index, q_rope, heads, width);
    attend(p, index, b->q_latent, b->o_latent);
    p->ops->matmul_heads(p->dev, &layer->unembed, b->o_latent, rank, attn_start(p),
                         m->config->v_dim, p->tokens);
    project_out(p, layer);
}
