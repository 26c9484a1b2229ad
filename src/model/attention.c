/* The two kinds of attention, up to this rank's part of the output projection.
 *
 * Ordinary attention is q, k, v, RoPE, softmax, o. MLA runs in its absorbed form: keys and values
 * are never expanded. embed_q maps each head's query into the latent space, attention runs there
 * over the latents themselves (one KV "head" for all query heads), and unembed maps each head's
 * result back. That keeps the KV cache at kv_rank + rope_dim numbers a token. */
#include "model/model_internal.h"

#include <math.h>

static const sh_layer_config *layer_config(const sh_pass *p, int index)
{
    return &p->m->config->layer[p->m->shard.layer_first + index];
}

static void apply_rope(const sh_pass *p, int index, float *x, int64_t stride, int heads,
                       int64_t head_stride)
{
    int which = layer_config(p, index)->rope;
    p->ops->rope(p->dev, &p->m->rope[which][0], p->m->buf.rope[which], x, p->tokens, stride, heads,
                 head_stride);
}

/* Ministral: queries past the original context are scaled up, by one factor for each multiple of
 * it. Tokens of a batch with the same factor share a call. */
static void grow_queries(const sh_pass *p, float *q, int64_t stride)
{
    const sh_config *c = p->m->config;
    int every = c->rope[0].original_context;
    const int32_t *pos = p->m->positions;
    if (c->query_beta == 0) return;
    for (int t = 0; t < p->tokens;) {
        int from = t, bucket = pos[t] / every;
        while (t < p->tokens && pos[t] / every == bucket) t++;
        double factor = 1 + (double)c->query_beta * log(1.0 + bucket);
        p->ops->scale(p->dev, q + from * stride, (float)factor,
                      (size_t)(t - from) * (size_t)stride);
    }
}

void sh_pass_attend(const sh_pass *p, int index, const float *q, int64_t q_stride, float *out,
                    int64_t out_stride)
{
    const sh_model *m = p->m;
    sh_attention attention = {.heads = (int)m->shard.heads.count,
                              .kv_of = m->kv_of,
                              .scale = m->config->attention_scale,
                              .window = layer_config(p, index)->window,
                              .sinks = m->weights->layers[index].sinks};
    p->ops->attend(p->dev, &attention, &m->kv[index], &p->step->batch, q, q_stride, out,
                   out_stride);
}

/* y = O attn over the columns that this rank holds. These are widened to whole quantization groups
 * (sh_shard_out_cols), so some belong to heads of other ranks. Nobody writes to those columns of
 * attn: they keep the zeros of the fresh mapping, and contribute nothing to the sum. */
static void project_out(const sh_pass *p, const sh_layer *layer)
{
    sh_product out = {.w = &layer->o.w,
                      .bias = layer->o.bias,
                      .y = p->m->buf.y,
                      .y_stride = p->m->config->hidden};
    p->ops->matmul(p->dev, &out, 1, p->m->buf.attn, p->m->out_cols.count, p->tokens);
}

/* This rank's first head in a row of attn; not at the start when out_cols was widened. */
static float *attn_start(const sh_pass *p)
{
    const sh_model *m = p->m;
    return m->buf.attn + (m->shard.heads.first * m->config->v_dim - m->out_cols.first);
}

static void norm_heads(const sh_pass *p, float *x, const float *w, int heads)
{
    const sh_config *c = p->m->config;
    if (w == NULL) return;
    p->ops->rmsnorm(p->dev, x, x, w, (int64_t)p->tokens * heads, heads,
                    (int64_t)heads * c->head_dim, c->head_dim, c->norm_eps);
}

void sh_pass_attention(const sh_pass *p, int index)
{
    const sh_model *m = p->m;
    const sh_config *c = m->config;
    const sh_layer *layer = &m->weights->layers[index];
    const sh_forward_buffers *b = &m->buf;
    int heads = (int)m->shard.heads.count, kv_heads = (int)m->shard.kv_heads.count;
    int64_t q_width = layer->q.w.rows, k_width = layer->k.w.rows, v_width = layer->v.w.rows;
    sh_product qkv[3] = {{.w = &layer->q.w, .bias = layer->q.bias, .y = b->q, .y_stride = q_width},
                         {.w = &layer->k.w, .bias = layer->k.bias, .y = b->k, .y_stride = k_width},
                         {.w = &layer->v.w, .bias = layer->v.bias, .y = b->v, .y_stride = v_width}};
    p->ops->matmul(p->dev, qkv, 3, b->xn, c->hidden, p->tokens);
    norm_heads(p, b->q, layer->q_norm, heads);
    norm_heads(p, b->k, layer->k_norm, kv_heads);
    apply_rope(p, index, b->q, q_width, heads, c->head_dim);
    apply_rope(p, index, b->k, k_width, kv_heads, c->head_dim);
    grow_queries(p, b->q, q_width);
    p->ops->kv_write(p->dev, &m->kv[index], &p->step->batch, b->k, k_width, b->v, v_width);
    sh_pass_attend(p, index, b->q, q_width, attn_start(p), m->out_cols.count);
    project_out(p, layer);
}

/* Queries of all heads, through the low-rank vector where the model has one. */
static void mla_queries(const sh_pass *p, const sh_layer *layer)
{
    const sh_model *m = p->m;
    const sh_forward_buffers *b = &m->buf;
    int64_t rank = m->config->mla.q_rank;
    const float *x = b->xn;
    sh_product q = {
        .w = &layer->q.w, .bias = layer->q.bias, .y = b->q, .y_stride = layer->q.w.rows};
    if (rank > 0) {
        sh_product q_a = {
            .w = &layer->q_a.w, .bias = layer->q_a.bias, .y = b->q_a, .y_stride = rank};
        p->ops->matmul(p->dev, &q_a, 1, b->xn, m->config->hidden, p->tokens);
        p->ops->rmsnorm(p->dev, b->q_a, b->q_a, layer->q_a_norm, p->tokens, 1, rank, rank,
                        m->config->norm_eps);
        x = b->q_a;
    }
    p->ops->matmul(p->dev, &q, 1, x, rank > 0 ? rank : m->config->hidden, p->tokens);
}

/* The latent of each token, normed, followed by the rotated part of the key, which all heads share.
 * Together they are the key of every head; the latent alone is the value. */
static void mla_latent(const sh_pass *p, int index, const sh_layer *layer)
{
    const sh_model *m = p->m;
    const sh_mla_config *mla = &m->config->mla;
    int64_t rank = mla->kv_rank, width = rank + mla->rope_dim;
    float *latent = m->buf.k;
    sh_product kv_a = {
        .w = &layer->kv_a.w, .bias = layer->kv_a.bias, .y = latent, .y_stride = width};
    p->ops->matmul(p->dev, &kv_a, 1, m->buf.xn, m->config->hidden, p->tokens);
    p->ops->rmsnorm(p->dev, latent, latent, layer->kv_a_norm, p->tokens, 1, width, rank,
                    m->config->norm_eps);
    apply_rope(p, index, latent + rank, width, 1, mla->rope_dim);
    p->ops->kv_write(p->dev, &m->kv[index], &p->step->batch, latent, width, NULL, 0);
}

void sh_pass_mla(const sh_pass *p, int index)
{
    const sh_model *m = p->m;
    const sh_mla_config *mla = &m->config->mla;
    const sh_layer *layer = &m->weights->layers[index];
    const sh_forward_buffers *b = &m->buf;
    int heads = (int)m->shard.heads.count;
    int64_t dim = m->config->head_dim, rank = mla->kv_rank, width = rank + mla->rope_dim;
    int64_t q_stride = heads * dim, latent_stride = heads * width;

    mla_queries(p, layer);
    mla_latent(p, index, layer);
    /* A head of q is [nope, rope]. The nope part goes through embed_q into the latent space, the
     * rope part is copied after it and rotated, which lines the query up with the stored key. */
    p->ops->matmul_heads(p->dev, &layer->embed_q, b->q, q_stride, dim, b->q_latent, latent_stride,
                         width, p->tokens);
    p->ops->copy_heads(p->dev, b->q_latent + rank, latent_stride, width, b->q + mla->nope_dim,
                       q_stride, dim, p->tokens, heads, mla->rope_dim);
    apply_rope(p, index, b->q_latent + rank, latent_stride, heads, width);
    sh_pass_attend(p, index, b->q_latent, latent_stride, b->o_latent, heads * rank);
    p->ops->matmul_heads(p->dev, &layer->unembed, b->o_latent, heads * rank, rank, attn_start(p),
                         m->out_cols.count, m->config->v_dim, p->tokens);
    project_out(p, layer);
}
