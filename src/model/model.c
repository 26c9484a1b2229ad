/* Owns what a shard needs to run: weights, sequence state, and the buffers of a step.
 *
 * All memory is taken here, at load, because a step must not allocate: a rank that ran out of
 * memory in the middle of a step would take the whole group down. The buffers of a step are planned
 * by running take_all twice, first to count, then to place, so that the two can never disagree. The
 * device gets the same treatment: reserve_device states the largest step that will ever run, and
 * must cover every matmul of forward.c, attention.c, short_conv.c and delta_net.c.
 *
 * KV blocks come last and apart from the rest, since their number is a decision of the whole group:
 * all ranks have the same number of blocks, bounded by the rank with the least memory. */
#include "model/model.h"

#include "base/alloc.h"
#include "model/model_internal.h"
#include "model/rope.h"

#include <stdlib.h>

enum { ALIGN = 64 };

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Hands out the scratch; with base NULL it only counts. */
typedef struct {
    sh_device *dev;
    char *base;
    size_t used;
} scratch_plan;

static void *take(scratch_plan *s, size_t size)
{
    void *at = s->base == NULL ? NULL : s->base + s->used;
    s->used += (size + ALIGN - 1) / ALIGN * ALIGN;
    return size == 0 ? NULL : at;
}

static sh_tensor take_tensor(scratch_plan *s, int64_t rows, int64_t cols)
{
    sh_tensor t = {0};
    t.data = take(s, s->dev->ops->tensor_layout(s->dev, rows, cols, &t));
    return t;
}

static void *take_words(scratch_plan *s, int64_t rows, int64_t cols)
{
    return take(s, (size_t)(rows * cols) * sizeof(float));
}

static void take_delta(const sh_model *m, scratch_plan *s, sh_forward_buffers *b)
{
    sh_delta_net net = sh_shard_delta_net(m->config, &m->shard);
    int64_t tokens = m->opts.tokens_max, values = (int64_t)net.heads * net.values;
    b->qkvz = take_tensor(s, tokens, 2 * ((int64_t)net.heads * net.k_dim + values * net.v_dim));
    b->ba = take_tensor(s, tokens, 2 * values);
    b->delta = take_tensor(s, tokens, values * net.v_dim);
}

static void take_mixers(const sh_model *m, scratch_plan *s, sh_forward_buffers *b)
{
    const sh_config *c = m->config;
    const sh_mla_config *mla = &c->mla;
    int64_t tokens = m->opts.tokens_max, heads = m->shard.heads.count;
    int64_t latent = mla->kv_rank + mla->rope_dim;
    b->q = take_tensor(s, tokens, heads * c->head_dim);
    b->attn = take_tensor(s, tokens, m->out_cols.count);
    if (mla->kv_rank > 0) {
        b->k = take_tensor(s, tokens, latent);
        b->q_a = take_tensor(s, tokens, mla->q_rank);
        b->q_latent = take_tensor(s, tokens, heads * latent);
        b->o_latent = take_tensor(s, tokens, heads * mla->kv_rank);
    } else {
        b->k = take_tensor(s, tokens, m->shard.kv_heads.count * c->head_dim);
        b->v = take_tensor(s, tokens, m->shard.kv_heads.count * c->v_dim);
    }
    for (int i = 0; i < c->rope_count; i++) b->rope[i] = take_words(s, tokens, c->rope[i].dim);
    for (int i = 0; i < 3; i++) b->conv[i] = take_tensor(s, tokens, m->shard.conv.count);
    if (c->out_gate) {
        b->q_gates = take_tensor(s, tokens, 2 * heads * c->head_dim);
        b->gates = take_tensor(s, tokens, heads * c->head_dim);
    }
    if (m->shard.delta.count > 0) take_delta(m, s, b);
}

static void take_all(const sh_model *m, scratch_plan *s, sh_forward_buffers *b)
{
    const sh_config *c = m->config;
    int64_t tokens = m->opts.tokens_max, rows = m->opts.rows_max;
    int64_t ffn = max64(m->shard.ffn.count, m->shard.shared_ffn.count);
    b->x = take_tensor(s, tokens, c->hidden);
    b->y = take_tensor(s, tokens, c->hidden); /* next to x; see sh_model_sum_memory */
    b->xn = take_tensor(s, tokens, c->hidden);
    b->y2 = take_tensor(s, c->moe.shared_ffn > 0 ? tokens : 0, c->hidden);
    take_mixers(m, s, b);
    b->gate = take_tensor(s, tokens, ffn);
    b->up = take_tensor(s, c->ffn_gate ? tokens : 0, ffn);
    b->shared_gate = take_tensor(s, c->moe.shared_gate ? tokens : 0, 1);
    b->weights = take_words(s, tokens, c->moe.topk);
    b->experts = take_words(s, tokens, c->moe.topk);
    if (!sh_shard_predicts(&m->shard) || c->headless) return;
    b->rows = take_tensor(s, rows, c->hidden);
    b->logits = take_tensor(s, rows, m->shard.vocab.count);
}

static sh_status plan_scratch(sh_model *m, sh_err *err)
{
    scratch_plan count = {.dev = m->dev};
    take_all(m, &count, &m->buf);
    m->scratch_size = count.used;
    sh_status status = m->dev->ops->map(m->dev, m->scratch_size, "step buffers", &m->scratch, err);
    if (status != SH_OK) return status;
    scratch_plan real = {.dev = m->dev, .base = m->scratch};
    take_all(m, &real, &m->buf);
    return SH_OK;
}

/* The largest step, so that the device can plan its own scratch. cols is the widest input of any
 * matmul; one that is missing here would overrun the device's scratch. */
static sh_status reserve_device(const sh_model *m, sh_err *err)
{
    const sh_config *c = m->config;
    const sh_shard *s = &m->shard;
    int64_t cols = max64(c->hidden, m->out_cols.count);
    cols = max64(cols, max64(s->ffn.count, s->shared_ffn.count));
    cols = max64(cols, max64(s->expert_ffn.count, c->mla.q_rank));
    cols = max64(cols, max64(c->mla.kv_rank, c->mla.nope_dim));
    cols = max64(cols, s->conv.count);
    if (s->delta.count > 0)
        cols = max64(cols, s->delta.count * (c->delta.v_heads / c->delta.k_heads) * c->delta.v_dim);
    sh_limits limits = {.tokens = m->opts.tokens_max,
                        .rows = m->opts.rows_max,
                        .cols = cols,
                        .vocab = sh_shard_predicts(s) && !c->headless ? s->vocab.count : 0,
                        .expert_rows = s->expert_ffn.count,
                        .hidden = c->hidden,
                        .experts = c->moe.experts,
                        .topk = c->moe.topk,
                        .heads = (int)s->heads.count};
    for (int i = 0; i < s->layer_count; i++) {
        const sh_kv_shape *kv = &m->state[i].kv.shape;
        limits.head_dim = (int)max64(limits.head_dim, max64(kv->k_dim, kv->v_dim));
    }
    return m->dev->ops->reserve(m->dev, &limits, err);
}

static void init_kv(const sh_model *m, sh_layer_state *state)
{
    const sh_config *c = m->config;
    state->kv.shape = (sh_kv_shape){.format = m->opts.kv_format,
                                    .heads = (int)m->shard.kv_heads.count,
                                    .k_dim = c->head_dim,
                                    .v_dim = c->v_dim};
    state->block_bytes = m->dev->ops->kv_block_bytes(m->dev, &state->kv.shape);
}

static void init_latent(const sh_model *m, sh_layer_state *state)
{
    const sh_mla_config *mla = &m->config->mla;
    state->kv.shape = (sh_kv_shape){.format = m->opts.kv_format,
                                    .heads = (int)m->shard.kv_heads.count,
                                    .k_dim = mla->kv_rank + mla->rope_dim,
                                    .v_dim = mla->kv_rank,
                                    .v_in_k = true};
    state->block_bytes = m->dev->ops->kv_block_bytes(m->dev, &state->kv.shape);
}

static void init_conv_state(const sh_model *m, sh_layer_state *state)
{
    state->block_bytes = m->dev->ops->conv_state_bytes(m->dev, m->shard.conv.count,
                                                       m->config->conv.taps);
    state->fixed.block_bytes = state->block_bytes;
}

static void init_delta_state(const sh_model *m, sh_layer_state *state)
{
    sh_delta_net net = sh_shard_delta_net(m->config, &m->shard);
    state->block_bytes = m->dev->ops->delta_state_bytes(m->dev, &net);
    state->fixed.block_bytes = state->block_bytes;
}

static void (*const INIT_STATE[SH_MIXERS])(const sh_model *m, sh_layer_state *state) = {
    [SH_MIXER_ATTENTION] = init_kv,
    [SH_MIXER_MLA] = init_latent,
    [SH_MIXER_SHORT_CONV] = init_conv_state,
    [SH_MIXER_DELTA_NET] = init_delta_state,
};

static void init_shapes(sh_model *m)
{
    const sh_config *c = m->config;
    bool mla = c->mla.kv_rank > 0;
    m->out_cols = sh_shard_out_cols(c, &m->shard);
    for (int i = 0; i < m->shard.layer_count; i++) {
        sh_mixer mixer = sh_model_layer(m, i)->mixer;
        if (sh_shard_mixer(&m->shard, mixer).count > 0) INIT_STATE[mixer](m, &m->state[i]);
    }
    int64_t group = mla ? c->heads : c->heads / c->kv_heads;
    /* Numbered from this rank's first KV head; with MLA all heads read the one latent. */
    m->kv_of = sh_alloc_array((size_t)m->shard.heads.count + 1, sizeof(*m->kv_of));
    for (int64_t h = 0; h < m->shard.heads.count; h++)
        m->kv_of[h] = (int32_t)((m->shard.heads.first + h) / group - m->shard.kv_heads.first);
}

/* Both variants of every RoPE up front: which one a sequence uses depends on its planned length. */
static void init_rope(sh_model *m)
{
    const sh_config *c = m->config;
    size_t total = 0;
    for (int i = 0; i < c->rope_count; i++) total += (size_t)c->rope[i].dim;
    m->inv_freq = sh_alloc_array(total, sizeof(*m->inv_freq));
    float *at = m->inv_freq;
    for (int i = 0; i < c->rope_count; i++) {
        for (int stretched = 0; stretched < 2; stretched++, at += c->rope[i].dim / 2)
            sh_rope_init(&c->rope[i], stretched == 1, at, &m->rope[i][stretched]);
    }
}

static void unmap(const sh_model *m, void *ptr, size_t size)
{
    if (ptr != NULL) m->dev->ops->unmap(m->dev, ptr, size);
}

void sh_model_free(sh_model *m)
{
    if (m == NULL) return;
    unmap(m, m->scratch, m->scratch_size);
    unmap(m, m->state_memory, m->state_size);
    sh_weights_free(m->weights);
    sh_tensors_close(m->set);
    free(m->state);
    free(m->kv_of);
    free(m->inv_freq);
    free(m);
}

/* Takes ownership of the set. What `before` has of the weights is taken from it. */
static sh_status build(sh_tensors *set, const sh_config *config, const sh_shard *shard,
                       sh_device *dev, const sh_model_opts *opts, sh_weights *before,
                       sh_model **out, sh_err *err)
{
    sh_model *m = sh_alloc(sizeof(*m));
    SH_ASSERT(opts->tokens_max > 0 && opts->rows_max > 0);
    m->config = config;
    m->shard = *shard;
    m->dev = dev;
    m->opts = *opts;
    m->set = set;
    m->state = sh_alloc_array((size_t)shard->layer_count, sizeof(*m->state));
    init_shapes(m);
    init_rope(m);
    sh_status status = sh_weights_load(set, config, shard, dev, &opts->load, before, &m->weights,
                                       err);
    if (status == SH_OK) status = reserve_device(m, err);
    if (status == SH_OK) status = plan_scratch(m, err);
    if (status == SH_OK)
        *out = m;
    else
        sh_model_free(m);
    return status;
}

sh_status sh_model_load(const char *dir, const sh_config *config, const sh_shard *shard,
                        sh_device *dev, const sh_model_opts *opts, sh_model **out, sh_err *err)
{
    sh_tensors *set = NULL;
    sh_status status = sh_tensors_open_from(dir, opts->load.source, &set, err);
    return status == SH_OK ? build(set, config, shard, dev, opts, NULL, out, err) : status;
}

/* All but the weights goes first: it makes room for what old and new weights take together. */
sh_status sh_model_reshard(sh_model **model, const sh_shard *shard, sh_err *err)
{
    sh_model *old = *model;
    sh_weights *weights = old->weights;
    sh_tensors *set = old->set;
    sh_device *dev = old->dev;
    const sh_config *config = old->config;
    sh_model_opts opts = old->opts;
    old->weights = NULL;
    old->set = NULL;
    sh_model_free(old);
    *model = NULL;
    sh_status status = build(set, config, shard, dev, &opts, weights, model, err);
    sh_weights_free(weights);
    return status;
}

sh_model_loaded sh_model_loaded_of(const sh_model *m)
{
    return (sh_model_loaded){.total = sh_loader_total(m->weights->loader),
                             .read = sh_loader_read(m->weights->loader)};
}

size_t sh_model_kv_block_bytes(const sh_model *m)
{
    size_t bytes = 0;
    for (int i = 0; i < m->shard.layer_count; i++) bytes += m->state[i].block_bytes;
    return bytes;
}

/* The old blocks are unmapped first: both together might not fit. */
sh_status sh_model_reserve_kv(sh_model *m, int blocks, sh_err *err)
{
    size_t size = sh_model_kv_block_bytes(m) * (size_t)blocks;
    void *memory = NULL;
    unmap(m, m->state_memory, m->state_size);
    m->state_memory = NULL;
    m->state_size = 0;
    for (int i = 0; i < m->shard.layer_count; i++)
        m->state[i].kv.data = m->state[i].fixed.data = NULL;
    if (size == 0) return SH_OK;
    if (m->dev->ops->map(m->dev, size, "KV blocks", &memory, err) != SH_OK) return err->status;
    m->state_memory = memory;
    m->state_size = size;
    char *at = memory;
    for (int i = 0; i < m->shard.layer_count; i++) {
        sh_layer_state *state = &m->state[i];
        state->kv.data = state->fixed.data = at;
        at += state->block_bytes * (size_t)blocks;
    }
    return SH_OK;
}

void sh_model_copy_block(sh_model *m, int32_t to, int32_t from)
{
    if (to == from) return;
    for (int i = 0; i < m->shard.layer_count; i++) {
        size_t size = m->state[i].block_bytes;
        char *data = m->state[i].kv.data;
        if (size > 0)
            m->dev->ops->copy(m->dev, data + (size_t)to * size, data + (size_t)from * size, size);
    }
}

sh_model_memory sh_model_memory_used(const sh_model *m)
{
    return (sh_model_memory){
        .weights = sh_weights_size(m->weights), .kv = m->state_size, .scratch = m->scratch_size};
}

/* One token uses `share` of the matrices of a stack. Bytes are those of the device's layout: its
 * padding is read as well. */
static void cost_add(sh_model_cost *cost, const sh_matrix *m, double share)
{
    if (m->data == NULL) return;
    cost->bytes += share * (double)m->stride * (double)m->count;
    cost->operations += 2 * share * (double)m->rows * (double)m->cols * (double)m->count;
}

sh_model_cost sh_model_cost_of(const sh_model *m)
{
    sh_model_cost cost = {0};
    const sh_weights *w = m->weights;
    double chosen = m->config->moe.experts > 0
                        ? (double)m->config->moe.topk / m->config->moe.experts
                        : 0;
    for (int i = 0; i < m->shard.layer_count; i++) {
        const sh_layer *l = &w->layers[i];
        const sh_matrix *all[] = {
            &l->q.w,          &l->k.w,          &l->v.w,          &l->o.w,
            &l->q_a.w,        &l->kv_a.w,       &l->embed_q,      &l->unembed,
            &l->gate.w,       &l->up.w,         &l->down.w,       &l->conv_in[0].w,
            &l->conv_in[1].w, &l->conv_in[2].w, &l->delta_qkvz.w, &l->delta_ba.w};
        const sh_matrix *experts[] = {&l->experts.gate, &l->experts.up, &l->experts.down};
        for (size_t k = 0; k < SH_COUNT_OF(all); k++) cost_add(&cost, all[k], 1);
        for (size_t k = 0; k < SH_COUNT_OF(experts); k++) cost_add(&cost, experts[k], chosen);
    }
    sh_model_cost head = {0};
    if (sh_shard_predicts(&m->shard) && !m->config->headless)
        cost_add(&head, w->head.data != NULL ? &w->head : &w->embed, 1);
    cost.head_bytes = head.bytes;
    cost.head_operations = head.operations;
    return cost;
}

const void *sh_model_weights(const sh_model *m, int block, size_t *size)
{
    const sh_loader *loader = m->weights->loader;
    return block < sh_loader_regions(loader) ? sh_loader_memory(loader, block, size) : NULL;
}

const sh_shard *sh_model_shard(const sh_model *m)
{
    return &m->shard;
}

const sh_config *sh_model_config(const sh_model *m)
{
    return m->config;
}

sh_device *sh_model_device(const sh_model *m)
{
    return m->dev;
}
