/* Walks through the layers of a shard and declares every matrix and vector to the loader.
 *
 * This is the one place that knows the names of tensors and how each is cut for tensor parallelism.
 * Two rules: a matrix whose output is used locally (q, k, v, gate, up) is cut by rows, its bias
 * with it; a matrix whose output is summed over the ranks (o, down) is cut by columns, and only the
 * rank that has the first column adds the bias, or it would be added once per rank.
 *
 * Nothing is read while declaring. The addresses of matrices and vectors are kept by the loader
 * for as long as it has the weights, so weights->layers is allocated once, up front, and must not
 * move. What changes hands together is in one region: a layer, the experts' part of it apart
 * because of its size, the embedding, the head.
 *
 * At the end check_all_seen refuses the model if a layer has a tensor that nothing asked for. A
 * model with an extra norm or bias would otherwise load, run, and be subtly wrong. */
#include "model/weights.h"

#include "base/alloc.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_MAX_LEN = 256 };

/* Where the tensors of the language model are: the prefix of "layers", and the name of the head. */
static const struct {
    const char *stem;
    const char *head;
} ROOTS[] = {
    {"model.", "lm_head"},
    {"language_model.model.", "language_model.lm_head"},
    {"model.language_model.", "lm_head"},
    {"", "lm_head"}, /* embedding models, which are often saved without the head */
    {"bert.", ""},
    {"roberta.", ""},
};

typedef struct {
    sh_finder finder;
    sh_loader *loader;
    const sh_config *config;
    const sh_shard *shard;
    sh_weights *weights;
    const char *head;
    bool exact;
    char prefix[PATH_MAX_LEN]; /* of the current layer: "model.layers.3." */
} builder;

typedef struct {
    char text[2 * PATH_MAX_LEN];
} path_text;

static path_text path_of(const builder *b, const char *name)
{
    path_text path;
    snprintf(path.text, sizeof(path.text), "%s%s", b->prefix, name);
    return path;
}

/* A vector of the current layer, as a whole. */
static sh_status add_vector(const builder *b, const char *name, int64_t count, float plus,
                            const float **out)
{
    sh_vector_source source;
    path_text path = path_of(b, name);
    sh_status status = sh_source_vector(&b->finder, path.text, count, &source);
    source.plus = plus;
    if (status == SH_OK) sh_loader_vector(b->loader, out, &source);
    return status;
}

/* A norm on heads or latents: these have no bias in any family. */
static sh_status add_plain_norm(const builder *b, const char *name, int64_t count,
                                const float **out)
{
    const sh_config *c = b->config;
    bool added = c->mlx_plus_one && sh_tensors_list(b->finder.set)->mlx;
    return add_vector(b, name, count, c->norm_plus_one && !added ? 1 : 0, out);
}

/* A norm on hidden states; `name` ends in "weight". */
static sh_status add_norm(const builder *b, const char *name, sh_norm *out)
{
    char bias[PATH_MAX_LEN];
    sh_status status = add_plain_norm(b, name, b->config->hidden, &out->w);
    if (status != SH_OK || !b->config->norm_bias) return status;
    snprintf(bias, sizeof(bias), "%.*sbias", (int)(strlen(name) - strlen("weight")), name);
    return add_vector(b, bias, b->config->hidden, 0, &out->bias);
}

/* The given rows of a source's bias, for each of `stack` matrices. */
static void add_bias(const builder *b, const sh_source *source, int64_t stack, sh_range rows,
                     const float **out)
{
    if (source->bias == NULL) return;
    sh_vector_source bias = {.tensor = source->bias,
                             .rows = stack,
                             .row_len = source->file_rows,
                             .first = source->row_first + rows.first * source->row_step,
                             .step = source->row_step,
                             .count = rows.count};
    sh_loader_vector(b->loader, out, &bias);
}

static void add_matrix(const builder *b, const sh_source *source, sh_range rows, sh_range cols,
                       sh_matrix *m)
{
    *m = (sh_matrix){.quant = source->quant, .rows = rows.count, .cols = cols.count, .count = 1};
    sh_loader_place(b->loader, m);
    sh_loader_fill(b->loader, m, 0, source, rows.first, cols.first);
}

/* A matrix cut by rows; its bias is cut with it. */
static void add_rows(const builder *b, const sh_source *source, sh_range rows, sh_linear *out)
{
    if (rows.count == 0) return;
    add_matrix(b, source, rows, (sh_range){.count = source->cols}, &out->w);
    add_bias(b, source, 1, rows, &out->bias);
}

/* A matrix cut by columns. The products of the ranks are summed, so only the first one has the
 * bias.
 */
static void add_cols(const builder *b, const sh_source *source, sh_range cols, bool first,
                     sh_linear *out)
{
    sh_range rows = {.count = source->rows};
    if (cols.count == 0) return;
    add_matrix(b, source, rows, cols, &out->w);
    if (first) add_bias(b, source, 1, rows, &out->bias);
}

static sh_status find(const builder *b, const char *name, int64_t rows, int64_t cols,
                      sh_source *out)
{
    path_text path = path_of(b, name);
    return sh_source_find(&b->finder, path.text, 0, rows, cols, out);
}

static bool exists(const builder *b, const char *name)
{
    path_text path = path_of(b, name);
    return sh_source_exists(&b->finder, path.text);
}

static sh_status need_bias(const builder *b, const char *name, const sh_source *source)
{
    if (source->bias != NULL) return SH_OK;
    return sh_err_set(b->finder.err, SH_ERR_NOT_FOUND, "%s: tensor '%s%s.bias' is missing",
                      sh_tensors_where(b->finder.set), b->prefix, name);
}

/* Several matrices that share an input, stored apart or fused into one module, one after the other.
 */
typedef struct {
    const char *name;
    int64_t rows;
    sh_source source;
} fused_part;

/* The fused module is tried first; a part of it borrows its bias too, at the same row offset. */
static sh_status find_fused(const builder *b, const char *fused, fused_part *parts, int count,
                            int64_t cols)
{
    sh_status status = SH_OK;
    sh_source whole;
    int64_t rows = 0;
    if (!exists(b, fused)) {
        for (int i = 0; i < count && status == SH_OK; i++)
            status = find(b, parts[i].name, parts[i].rows, cols, &parts[i].source);
        return status;
    }
    for (int i = 0; i < count; i++) rows += parts[i].rows;
    status = find(b, fused, rows, cols, &whole);
    if (status != SH_OK) return status;
    rows = 0;
    for (int i = 0; i < count; rows += parts[i++].rows)
        parts[i].source = sh_source_part(&whole, rows, parts[i].rows);
    return SH_OK;
}

static sh_range times(sh_range range, int64_t factor)
{
    return (sh_range){.first = range.first * factor, .count = range.count * factor};
}

static sh_status add_out(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    sh_source source;
    const char *name = c->family->names->attn_out;
    sh_status status = find(b, name, c->hidden, (int64_t)c->heads * c->v_dim, &source);
    if (status == SH_OK && c->out_bias) status = need_bias(b, name, &source);
    if (status == SH_OK)
        add_cols(b, &source, sh_shard_out_cols(c, b->shard), b->shard->heads.first == 0, &layer->o);
    return status;
}

/* One logit for each query head, cut like the heads. */
static sh_status add_sinks(const builder *b, sh_layer *layer)
{
    sh_vector_source source;
    path_text path = path_of(b, "self_attn.sinks");
    sh_status status = sh_source_vector(&b->finder, path.text, b->config->heads, &source);
    source.first = b->shard->heads.first;
    source.count = b->shard->heads.count;
    if (status == SH_OK) sh_loader_vector(b->loader, &layer->sinks, &source);
    return status;
}

static sh_status add_attention(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    const sh_tensor_names *names = c->family->names;
    int64_t q_dim = c->out_gate ? 2 * c->head_dim : c->head_dim;
    fused_part parts[3] = {{.name = names->q, .rows = c->heads * q_dim},
                           {.name = names->k, .rows = (int64_t)c->kv_heads * c->head_dim},
                           {.name = names->v, .rows = (int64_t)c->kv_heads * c->v_dim}};
    sh_status status = find_fused(b, names->qkv, parts, 3, c->hidden);
    for (int i = 0; i < 3 && status == SH_OK && c->qkv_bias; i++)
        status = need_bias(b, parts[i].name, &parts[i].source);
    if (status != SH_OK) return status;
    add_rows(b, &parts[0].source, times(b->shard->heads, q_dim), &layer->q);
    add_rows(b, &parts[1].source, times(b->shard->kv_heads, c->head_dim), &layer->k);
    add_rows(b, &parts[2].source, times(b->shard->kv_heads, c->v_dim), &layer->v);
    if (c->qk_norm) {
        status = add_plain_norm(b, names->q_norm, c->head_dim, &layer->q_norm);
        if (status == SH_OK) status = add_plain_norm(b, names->k_norm, c->head_dim, &layer->k_norm);
    }
    if (status == SH_OK && c->sinks) status = add_sinks(b, layer);
    return status == SH_OK ? add_out(b, layer) : status;
}

/* This rank's heads of a stack that the file has as one tensor. */
static sh_status add_head_stack(const builder *b, const char *name, int64_t rows, int64_t cols,
                                sh_matrix *m)
{
    sh_source stack;
    path_text path = path_of(b, name);
    sh_status status = sh_source_find(&b->finder, path.text, b->config->heads, rows, cols, &stack);
    if (status != SH_OK) return status;
    *m = (sh_matrix){
        .quant = stack.quant, .rows = rows, .cols = cols, .count = b->shard->heads.count};
    sh_loader_place(b->loader, m);
    for (int64_t h = 0; h < m->count; h++) {
        sh_source one = sh_source_at(&stack, b->shard->heads.first + h);
        sh_loader_fill(b->loader, m, h, &one, 0, 0);
    }
    return SH_OK;
}

/* kv_b_proj has for each head nope_dim rows for keys, which we need transposed, and v_dim rows for
 * values. The groups of a quantized matrix do not survive transposing, so the key part is kept in
 * f16, or in f32 when exactness was asked for. */
static sh_status split_kv_b(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    int64_t nope = c->mla.nope_dim, each = nope + c->v_dim, rank = c->mla.kv_rank;
    sh_source source;
    sh_status status = find(b, "self_attn.kv_b_proj", c->heads * each, rank, &source);
    if (status != SH_OK) return status;
    int64_t first = b->shard->heads.first, count = b->shard->heads.count;
    sh_source transposed = sh_source_transpose(&source);
    sh_quant plain = source.quant;
    if (plain.group != 0)
        plain = (sh_quant){.format = b->exact ? SH_FORMAT_F32 : SH_FORMAT_F16, .global_scale = 1};
    layer->embed_q = (sh_matrix){.quant = plain, .rows = rank, .cols = nope, .count = count};
    layer->unembed = (sh_matrix){
        .quant = source.quant, .rows = c->v_dim, .cols = rank, .count = count};
    sh_loader_place(b->loader, &layer->embed_q);
    sh_loader_place(b->loader, &layer->unembed);
    for (int64_t h = 0; h < count; h++) {
        sh_loader_fill(b->loader, &layer->embed_q, h, &transposed, 0, (first + h) * each);
        sh_loader_fill(b->loader, &layer->unembed, h, &source, (first + h) * each + nope, 0);
    }
    return SH_OK;
}

static sh_status add_kv_b(const builder *b, sh_layer *layer)
{
    const sh_mla_config *mla = &b->config->mla;
    if (!exists(b, "self_attn.embed_q")) return split_kv_b(b, layer);
    sh_status status = add_head_stack(b, "self_attn.embed_q", mla->kv_rank, mla->nope_dim,
                                      &layer->embed_q);
    if (status == SH_OK)
        status = add_head_stack(b, "self_attn.unembed_out", b->config->v_dim, mla->kv_rank,
                                &layer->unembed);
    return status;
}

/* The low-rank projection q_a feeds all heads, so every rank has all of it; only q_b is cut. The
 * same holds for kv_a below. */
static sh_status add_queries(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    sh_range rows = times(b->shard->heads, c->head_dim);
    int64_t all = (int64_t)c->heads * c->head_dim, rank = c->mla.q_rank;
    sh_source source;
    sh_status status;
    if (rank == 0) {
        status = find(b, "self_attn.q_proj", all, c->hidden, &source);
        if (status == SH_OK) add_rows(b, &source, rows, &layer->q);
        return status;
    }
    status = find(b, "self_attn.q_a_proj", rank, c->hidden, &source);
    if (status == SH_OK) add_rows(b, &source, (sh_range){.count = rank}, &layer->q_a);
    if (status == SH_OK)
        status = add_plain_norm(b, "self_attn.q_a_layernorm.weight", rank, &layer->q_a_norm);
    if (status == SH_OK) status = find(b, "self_attn.q_b_proj", all, rank, &source);
    if (status == SH_OK) add_rows(b, &source, rows, &layer->q);
    return status;
}

static sh_status add_mla(const builder *b, sh_layer *layer)
{
    const sh_mla_config *mla = &b->config->mla;
    int64_t latent = mla->kv_rank + mla->rope_dim;
    sh_source source;
    sh_status status = add_queries(b, layer);
    if (status == SH_OK)
        status = find(b, "self_attn.kv_a_proj_with_mqa", latent, b->config->hidden, &source);
    if (status == SH_OK) add_rows(b, &source, (sh_range){.count = latent}, &layer->kv_a);
    if (status == SH_OK)
        status = add_plain_norm(b, "self_attn.kv_a_layernorm.weight", mla->kv_rank,
                                &layer->kv_a_norm);
    if (status == SH_OK) status = add_kv_b(b, layer);
    return status == SH_OK ? add_out(b, layer) : status;
}

/* This rank's channels of the convolution itself. */
static sh_status add_conv(const builder *b, sh_layer *layer)
{
    const sh_conv_config *conv = &b->config->conv;
    sh_range own = b->shard->conv;
    sh_vector_source w, bias;
    path_text path = path_of(b, "conv.conv"), bias_path = path_of(b, "conv.conv.bias");
    sh_status status = sh_source_conv(&b->finder, path.text, conv->channels, conv->taps, &w);
    if (status != SH_OK) return status;
    w.first = own.first * w.step;
    w.count = own.count;
    layer->conv = (sh_short_conv){.channels = own.count, .taps = conv->taps};
    sh_loader_vector(b->loader, &layer->conv.w, &w);
    if (!conv->bias) return SH_OK;
    status = sh_source_vector(&b->finder, bias_path.text, conv->channels, &bias);
    bias.first = own.first;
    bias.count = own.count;
    if (status == SH_OK) sh_loader_vector(b->loader, &layer->conv.bias, &bias);
    return status;
}

/* in_proj has three matrices one after the other: the two gates and the input. Each is cut at the
 * same channels. */
static sh_status add_short_conv(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    int64_t channels = c->conv.channels;
    sh_source in, out;
    sh_status status = find(b, "conv.in_proj", 3 * channels, c->hidden, &in);
    if (status == SH_OK) status = find(b, "conv.out_proj", c->hidden, channels, &out);
    if (status == SH_OK && c->conv.bias) status = need_bias(b, "conv.in_proj", &in);
    if (status == SH_OK && c->conv.bias) status = need_bias(b, "conv.out_proj", &out);
    if (status != SH_OK) return status;
    for (int i = 0; i < 3; i++) {
        sh_source part = sh_source_part(&in, i * channels, channels);
        add_rows(b, &part, b->shard->conv, &layer->conv_in[i]);
    }
    add_cols(b, &out, b->shard->conv, b->shard->conv.first == 0, &layer->o);
    return add_conv(b, layer);
}

/* A part of the convolution before a gated delta net: this rank's channels, which are `from` on
 * among those that the files have. */
static sh_status add_delta_conv(const builder *b, int64_t from, sh_range own, const float **out)
{
    const sh_delta_config *d = &b->config->delta;
    int64_t all = 2 * (int64_t)d->k_heads * d->k_dim + (int64_t)d->v_heads * d->v_dim;
    sh_vector_source w;
    path_text path = path_of(b, "linear_attn.conv1d");
    sh_status status = sh_source_conv(&b->finder, path.text, all, d->taps, &w);
    w.first = (from + own.first) * w.step;
    w.count = own.count;
    if (status == SH_OK) sh_loader_vector(b->loader, out, &w);
    return status;
}

/* This rank's part of a vector with a number for each value head. */
static sh_status add_delta_vector(const builder *b, const char *name, sh_range own,
                                  const float **out)
{
    sh_vector_source source;
    path_text path = path_of(b, name);
    sh_status status = sh_source_vector(&b->finder, path.text, b->config->delta.v_heads, &source);
    source.first = own.first;
    source.count = own.count;
    if (status == SH_OK) sh_loader_vector(b->loader, out, &source);
    return status;
}

static sh_status add_delta_vectors(const builder *b, sh_delta_net *net)
{
    const sh_delta_config *d = &b->config->delta;
    sh_range keys = times(b->shard->delta, d->k_dim);
    sh_range heads = times(b->shard->delta, d->v_heads / d->k_heads);
    int64_t all = (int64_t)d->k_heads * d->k_dim;
    sh_status status;
    if ((status = add_delta_conv(b, 0, keys, &net->conv_q)) != 0 ||
        (status = add_delta_conv(b, all, keys, &net->conv_k)) != 0 ||
        (status = add_delta_conv(b, 2 * all, times(heads, d->v_dim), &net->conv_v)) != 0 ||
        (status = add_delta_vector(b, "linear_attn.A_log", heads, &net->a_log)) != 0 ||
        (status = add_delta_vector(b, "linear_attn.dt_bias", heads, &net->dt_bias)) != 0)
        return status;
    return add_vector(b, "linear_attn.norm.weight", d->v_dim, 0, &net->norm);
}

/* The files have the rows of the projections key head by key head. */
static sh_status add_delta_net(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    const sh_delta_config *d = &c->delta;
    int64_t values = d->v_heads / d->k_heads, each = 2 * (d->k_dim + values * d->v_dim);
    sh_range own = b->shard->delta;
    sh_source qkvz, ba, out;
    sh_status status;
    if ((status = find(b, "linear_attn.in_proj_qkvz", d->k_heads * each, c->hidden, &qkvz)) != 0 ||
        (status = find(b, "linear_attn.in_proj_ba", 2 * (int64_t)d->v_heads, c->hidden, &ba)) !=
            0 ||
        (status = find(b, "linear_attn.out_proj", c->hidden, (int64_t)d->v_heads * d->v_dim,
                       &out)) != 0)
        return status;
    add_rows(b, &qkvz, times(own, each), &layer->delta_qkvz);
    add_rows(b, &ba, times(own, 2 * values), &layer->delta_ba);
    add_cols(b, &out, times(own, values * d->v_dim), own.first == 0, &layer->o);
    layer->delta = sh_shard_delta_net(c, b->shard);
    return add_delta_vectors(b, &layer->delta);
}

/* How the weights of each mixer are declared, and the module that they are in; NULL: the family's
 * attention. */
static const struct {
    sh_status (*add)(const builder *b, sh_layer *layer);
    const char *module;
} MIXERS[SH_MIXERS] = {
    [SH_MIXER_ATTENTION] = {add_attention, NULL},
    [SH_MIXER_MLA] = {add_mla, NULL},
    [SH_MIXER_SHORT_CONV] = {add_short_conv, "conv."},
    [SH_MIXER_DELTA_NET] = {add_delta_net, "linear_attn."},
};

/* gate, up and down under `path`: a dense layer, or the shared experts. */
static sh_status add_ffn(const builder *b, const char *path, int64_t width, sh_range own,
                         sh_layer *layer)
{
    enum { GATE, UP, BOTH, DOWN, NAMES };
    char names[NAMES][PATH_MAX_LEN];
    const sh_config *c = b->config;
    const sh_tensor_names *end = c->family->names;
    const char *const ends[NAMES] = {end->gate, end->up, end->gate_up, end->down};
    for (int i = 0; i < NAMES; i++)
        snprintf(names[i], sizeof(names[i]), "%s%s%s", path == NULL ? "" : path,
                 path == NULL ? "" : ".", ends[i] == NULL ? "" : ends[i]);
    fused_part parts[2] = {{.name = names[GATE], .rows = width},
                           {.name = names[UP], .rows = width}};
    sh_source down;
    sh_status status = c->ffn_gate ? find_fused(b, names[BOTH], parts, 2, c->hidden)
                                   : find(b, names[GATE], width, c->hidden, &parts[0].source);
    if (status == SH_OK) status = find(b, names[DOWN], c->hidden, width, &down);
    if (status == SH_OK && c->ffn_bias) status = need_bias(b, names[GATE], &parts[0].source);
    if (status == SH_OK && c->ffn_bias) status = need_bias(b, names[DOWN], &down);
    if (status != SH_OK) return status;
    add_rows(b, &parts[0].source, own, &layer->gate);
    if (c->ffn_gate) add_rows(b, &parts[1].source, own, &layer->up);
    add_cols(b, &down, own, own.first == 0, &layer->down);
    return SH_OK;
}

/* One part of every expert: rows of gate and up, columns of down. A rank has a slice of all experts
 * rather than some whole ones, so that the load is balanced whatever the router chooses. */
static sh_status add_expert_part(const builder *b, const char *path, sh_expert_part part,
                                 sh_matrix *m, const float **bias)
{
    const sh_moe_config *moe = &b->config->moe;
    sh_range own = b->shard->expert_ffn;
    bool down = part == SH_EXPERT_DOWN;
    sh_source *sources = sh_alloc_array((size_t)moe->experts, sizeof(*sources));
    sh_status status = sh_source_experts(&b->finder, path, part, sources);
    if (status == SH_OK && moe->all_biases && sources[0].bias == NULL)
        status = sh_err_set(b->finder.err, SH_ERR_NOT_FOUND,
                            "%s: the experts under '%s' have no bias",
                            sh_tensors_where(b->finder.set), path);
    if (status == SH_OK && own.count > 0) {
        sh_range rows = own;
        if (down) rows = (sh_range){.count = b->config->hidden};
        *m = (sh_matrix){.quant = sources[0].quant,
                         .rows = rows.count,
                         .cols = down ? own.count : b->config->hidden,
                         .count = moe->experts};
        sh_loader_region(b->loader);
        sh_loader_place(b->loader, m);
        for (int e = 0; e < moe->experts; e++)
            sh_loader_fill(b->loader, m, e, &sources[e], rows.first, down ? own.first : 0);
        if (!down || own.first == 0) add_bias(b, &sources[0], moe->experts, rows, bias);
    }
    free(sources);
    return status;
}

/* Every rank has the whole router, in f32: all must make the same choices. */
static sh_status add_router(const builder *b, const char *path, sh_router *router)
{
    const sh_moe_config *moe = &b->config->moe;
    char name[PATH_MAX_LEN];
    sh_source gate;
    *router = (sh_router){.kind = moe->route,
                          .experts = moe->experts,
                          .topk = moe->topk,
                          .groups = moe->groups,
                          .topk_groups = moe->topk_groups,
                          .group_top2 = moe->group_top2,
                          .normalize = moe->normalize,
                          .scale = moe->scale};
    snprintf(name, sizeof(name), "%s.%s", path, b->config->family->router);
    sh_status status = find(b, name, moe->experts, b->config->hidden, &gate);
    if (status == SH_OK && moe->all_biases) status = need_bias(b, name, &gate);
    if (status != SH_OK) return status;
    sh_loader_floats(b->loader, &router->gate, &gate);
    add_bias(b, &gate, 1, (sh_range){.count = moe->experts}, &router->logit_bias);
    if (!moe->pick_bias) return SH_OK;
    snprintf(name, sizeof(name), "%s.%s.e_score_correction_bias", path, b->config->family->router);
    return add_vector(b, name, moe->experts, 0, &router->pick_bias);
}

/* Every rank that has a part of the shared experts scales it, so each has the whole gate. */
static sh_status add_shared_gate(const builder *b, const char *shared, sh_layer *layer)
{
    char name[PATH_MAX_LEN + 8];
    sh_range rows = {.count = 1}, cols = {.count = b->config->hidden};
    sh_source gate;
    snprintf(name, sizeof(name), "%s_gate", shared);
    sh_status status = find(b, name, 1, b->config->hidden, &gate);
    if (status == SH_OK && b->shard->shared_ffn.count > 0)
        add_matrix(b, &gate, rows, cols, &layer->shared_gate);
    return status;
}

static sh_status add_moe(const builder *b, sh_layer *layer)
{
    const sh_config *c = b->config;
    const char *moe = c->family->moe_path;
    char shared[PATH_MAX_LEN];
    path_text path = path_of(b, moe);
    sh_experts *ex = &layer->experts;
    sh_status status = add_router(b, moe, &layer->router);
    ex->act = c->act;
    if (status == SH_OK)
        status = add_expert_part(b, path.text, SH_EXPERT_GATE, &ex->gate, &ex->gate_bias);
    if (status == SH_OK)
        status = add_expert_part(b, path.text, SH_EXPERT_UP, &ex->up, &ex->up_bias);
    if (status == SH_OK)
        status = add_expert_part(b, path.text, SH_EXPERT_DOWN, &ex->down, &ex->down_bias);
    if (status != SH_OK || c->moe.shared_ffn == 0) return status;
    snprintf(shared, sizeof(shared), "%s.%s", moe, c->family->shared);
    status = add_ffn(b, shared, c->moe.shared_ffn, b->shard->shared_ffn, layer);
    return status == SH_OK && c->moe.shared_gate ? add_shared_gate(b, shared, layer) : status;
}

/* A trap in the names: post_attention_layernorm is the norm before the feed-forward, except in
 * families with four norms, where it is what the name says. */
static sh_status add_norms(const builder *b, int index, sh_layer *layer)
{
    const sh_config *c = b->config;
    const sh_tensor_names *names = c->family->names;
    bool four = c->sandwich, after = c->post_norm;
    sh_norm *second = four    ? &layer->mixer_post_norm
                      : after ? &layer->ffn_sum_norm
                              : &layer->ffn_norm;
    sh_status status = SH_OK;
    if (index > 0 || c->first_norm)
        status = add_norm(b, names->mixer_norm,
                          after ? &layer->mixer_sum_norm : &layer->mixer_norm);
    if (status == SH_OK) status = add_norm(b, names->ffn_norm, second);
    if (status == SH_OK && four)
        status = add_norm(b, "pre_feedforward_layernorm.weight", &layer->ffn_norm);
    if (status == SH_OK && four)
        status = add_norm(b, "post_feedforward_layernorm.weight", &layer->ffn_post_norm);
    return status;
}

static void enter_layer(builder *b, int index)
{
    const sh_mtp_names *mtp = b->config->mtp ? b->config->family->mtp : NULL;
    if (mtp != NULL && mtp->module != NULL)
        snprintf(b->prefix, sizeof(b->prefix), "%slayers.%d.", mtp->module, index);
    else
        snprintf(b->prefix, sizeof(b->prefix), "%s%s%d.", b->finder.stem,
                 b->config->family->names->layers, b->config->layer_base + index);
}

static sh_status add_layer(builder *b, int index, sh_layer *layer)
{
    const sh_config *c = b->config;
    enter_layer(b, index);
    sh_loader_region(b->loader);
    sh_status status = add_norms(b, index, layer);
    sh_mixer mixer = c->layer[index].mixer;
    if (status == SH_OK && sh_shard_mixer(b->shard, mixer).count > 0)
        status = MIXERS[mixer].add(b, layer);
    if (status != SH_OK) return status;
    return c->layer[index].moe ? add_moe(b, layer)
                               : add_ffn(b, c->family->names->ffn, c->ffn, b->shard->ffn, layer);
}

/* A table of vectors that are added to the embedding: whole on every rank that embeds. */
static sh_status add_table(const builder *b, const char *name, int64_t rows, const float **out)
{
    sh_source source;
    if (rows == 0) return SH_OK;
    sh_status status = find(b, name, rows, b->config->hidden, &source);
    if (status == SH_OK) sh_loader_floats(b->loader, out, &source);
    return status;
}

static sh_status add_embed_parts(const builder *b)
{
    const sh_config *c = b->config;
    const sh_tensor_names *names = c->family->names;
    sh_weights *w = b->weights;
    sh_status status = add_table(b, names->positions, c->positions, &w->positions);
    if (status == SH_OK) status = add_table(b, names->types, c->types, &w->types);
    if (status == SH_OK && c->embed_norm) status = add_norm(b, names->embed_norm, &w->embed_norm);
    return status;
}

/* If config.json does not say, the presence of a head in the files decides. */
static bool heads_tied(const builder *b)
{
    return b->config->tied == SH_TIED_YES ||
           (b->config->tied == SH_TIED_UNSPECIFIED && !sh_source_exists(&b->finder, b->head));
}

/* Embedding and head, cut by rows of the vocabulary. When they are tied and this rank needs both,
 * it has one matrix. */
static sh_status add_ends(builder *b)
{
    const sh_config *c = b->config;
    sh_weights *w = b->weights;
    bool embeds = sh_shard_embeds(b->shard), predicts = sh_shard_predicts(b->shard);
    bool tied = heads_tied(b);
    sh_source source;
    sh_status status = SH_OK;
    snprintf(b->prefix, sizeof(b->prefix), "%s", b->finder.stem);
    if (embeds || (predicts && tied)) {
        sh_loader_region(b->loader);
        status = find(b, c->family->names->embed, c->vocab, c->hidden, &source);
        if (status == SH_OK && b->shard->vocab.count > 0)
            add_matrix(b, &source, b->shard->vocab, (sh_range){.count = c->hidden}, &w->embed);
    }
    if (status == SH_OK && embeds) status = add_embed_parts(b);
    if (status != SH_OK || !predicts || c->family->names->last_norm == NULL) return status;
    sh_loader_region(b->loader);
    status = add_norm(b, c->family->names->last_norm, &w->norm);
    if (status == SH_OK && !tied && !c->headless) {
        status = sh_source_find(&b->finder, b->head, 0, c->vocab, c->hidden, &source);
        if (status == SH_OK && b->shard->vocab.count > 0)
            add_matrix(b, &source, b->shard->vocab, (sh_range){.count = c->hidden}, &w->head);
    }
    return status;
}

/* A projection of both inputs, one after the other, becomes two. */
static sh_status add_join(const builder *b)
{
    const sh_mtp_names *names = b->config->family->mtp;
    sh_mtp_join *join = &b->weights->join;
    int64_t hidden = b->config->hidden;
    sh_range rows = {.count = hidden};
    sh_source both;
    sh_status status = find(b, names->join, hidden, 2 * hidden, &both);
    if (status == SH_OK && both.quant.group > 0 && hidden % both.quant.group != 0)
        status = sh_err_set(b->finder.err, SH_ERR_UNSUPPORTED,
                            "%s: '%s%s' is quantized in groups of %d, which do not end where its "
                            "second input begins, at column %d",
                            sh_tensors_where(b->finder.set), b->prefix, names->join,
                            both.quant.group, (int)hidden);
    if (status != SH_OK) return status;
    add_matrix(b, &both, rows, (sh_range){.count = hidden}, &join->from_embed);
    add_matrix(b, &both, rows, (sh_range){.first = hidden, .count = hidden}, &join->from_hidden);
    status = add_norm(b, names->embed_norm, &join->embed_norm);
    return status == SH_OK ? add_norm(b, names->hidden_norm, &join->hidden_norm) : status;
}

/* A matrix [vocab, hidden] that the layer may have its own copy of. */
static sh_status add_vocab(const builder *b, const char *own, const char *of_model, sh_matrix *m)
{
    const sh_config *c = b->config;
    sh_source source;
    sh_range rows = {.count = c->vocab}, cols = {.count = c->hidden};
    path_text path = path_of(b, own);
    sh_status status = sh_source_find(&b->finder, exists(b, own) ? path.text : of_model, 0,
                                      c->vocab, c->hidden, &source);
    sh_loader_region(b->loader);
    if (status == SH_OK) add_matrix(b, &source, rows, cols, m);
    return status;
}

/* The ends of a multi-token-prediction layer. It is always whole. */
static sh_status add_mtp_ends(builder *b)
{
    const sh_config *c = b->config;
    const sh_mtp_names *names = c->family->mtp;
    char embed[PATH_MAX_LEN];
    snprintf(embed, sizeof(embed), "%s%s", b->finder.stem, c->family->names->embed);
    enter_layer(b, 0);
    if (names->module != NULL) snprintf(b->prefix, sizeof(b->prefix), "%s", names->module);
    if (!exists(b, names->join))
        return sh_err_set(b->finder.err, SH_ERR_NOT_FOUND,
                          "%s: the files do not have the multi-token-prediction layer that "
                          "config.json describes: tensor '%s%s.weight' is missing (many "
                          "conversions leave it out)",
                          sh_tensors_where(b->finder.set), b->prefix, names->join);
    sh_status status = add_vocab(b, names->embed, embed, &b->weights->embed);
    if (status == SH_OK && (exists(b, names->head) || !heads_tied(b)))
        status = add_vocab(b, names->head, b->head, &b->weights->head);
    sh_loader_region(b->loader);
    if (status == SH_OK) status = add_join(b);
    return status == SH_OK ? add_norm(b, names->last_norm, &b->weights->norm) : status;
}

static sh_status find_root(builder *b)
{
    const sh_tensor_names *names = b->config->family->names;
    for (size_t i = 0; i < SH_COUNT_OF(ROOTS); i++) {
        if (sh_tensors_find(b->finder.set, "%s%s.weight", ROOTS[i].stem, names->embed) == NULL)
            continue;
        b->finder.stem = ROOTS[i].stem;
        b->head = ROOTS[i].head;
        return SH_OK;
    }
    return sh_err_set(b->finder.err, SH_ERR_NOT_FOUND, "%s: tensor '%s%s.weight' is missing",
                      sh_tensors_where(b->finder.set), names->stem, names->embed);
}

/* Tables that are derived from config.json, but that some files include. */
static bool is_constant(const char *name)
{
    return strstr(name, ".rotary_emb.") != NULL;
}

/* Whether a tensor belongs to a part of a layer that this rank has looked at. A rank without a part
 * of the layer's mixer never asks for it, so the mixer's tensors say nothing. */
static bool is_ours(const builder *b, const char *name)
{
    sh_str rest = sh_str_of(name), stem = sh_str_of(b->finder.stem), number;
    int64_t index;
    const sh_mtp_names *mtp = b->config->mtp ? b->config->family->mtp : NULL;
    if (mtp != NULL && mtp->module != NULL) return sh_str_starts(rest, sh_str_of(mtp->module));
    if (!sh_str_starts(rest, stem)) return false;
    rest = sh_str_sub(rest, stem.len, rest.len);
    const sh_tensor_names *names = b->config->family->names;
    if (!sh_str_starts(rest, sh_str_of(names->layers))) return false;
    rest = sh_str_sub(rest, strlen(names->layers), rest.len);
    if (!sh_str_cut(&rest, '.', &number) || !sh_str_to_int(number, &index)) return false;
    index -= b->config->layer_base;
    if (index < b->shard->layer_first || index >= b->shard->layer_first + b->shard->layer_count)
        return false;
    sh_mixer mixer = b->config->layer[index].mixer;
    const char *module = MIXERS[mixer].module != NULL ? MIXERS[mixer].module : names->attention;
    return sh_shard_mixer(b->shard, mixer).count > 0 || !sh_str_starts(rest, sh_str_of(module));
}

/* A tensor that nothing reads means that the model computes something that we do not. */
static sh_status check_all_seen(const builder *b)
{
    const sh_tensor_list *list = sh_tensors_list(b->finder.set);
    for (size_t i = 0; i < list->count; i++) {
        const sh_stored_tensor *t = &list->tensors[i];
        if (b->finder.seen[i] || !is_ours(b, t->name) || is_constant(t->name)) continue;
        return sh_err_set(b->finder.err, SH_ERR_UNSUPPORTED,
                          "%s: tensor '%s' is not part of the %s model that config.json describes",
                          sh_tensors_path(b->finder.set, t), t->name,
                          b->config->family->model_type);
    }
    return SH_OK;
}

static sh_status add_all(builder *b)
{
    sh_status status = find_root(b);
    if (status == SH_OK) status = b->config->mtp ? add_mtp_ends(b) : add_ends(b);
    for (int i = 0; i < b->shard->layer_count && status == SH_OK; i++)
        status = add_layer(b, b->shard->layer_first + i, &b->weights->layers[i]);
    return status == SH_OK ? check_all_seen(b) : status;
}

sh_status sh_weights_load(const sh_tensors *set, const sh_config *config, const sh_shard *shard,
                          sh_device *dev, const sh_load_opts *opts, sh_weights *before,
                          sh_weights **out, sh_err *err)
{
    sh_weights *weights = sh_alloc(sizeof(*weights));
    weights->loader = sh_loader_create(set, dev);
    weights->layers = sh_alloc_array((size_t)shard->layer_count, sizeof(*weights->layers));
    builder b = {.finder = {.set = set, .config = config, .err = err},
                 .loader = weights->loader,
                 .config = config,
                 .shard = shard,
                 .weights = weights,
                 .exact = opts->exact};
    b.finder.seen = sh_alloc_array(sh_tensors_list(set)->count + 1, sizeof(*b.finder.seen));
    sh_status status = add_all(&b);
    free(b.finder.seen);
    if (status == SH_OK)
        status = sh_loader_run(weights->loader, opts, before == NULL ? NULL : before->loader, err);
    if (status == SH_OK)
        *out = weights;
    else
        sh_weights_free(weights);
    return status;
}

void sh_weights_free(sh_weights *weights)
{
    if (weights == NULL) return;
    sh_loader_free(weights->loader);
    free(weights->layers);
    free(weights);
}

size_t sh_weights_size(const sh_weights *weights)
{
    size_t total = 0, size;
    for (int i = 0; i < sh_loader_regions(weights->loader); i++) {
        sh_loader_memory(weights->loader, i, &size);
        total += size;
    }
    return total;
}
