/* Lists the matrices and vectors that a config implies. The names must be among those that
 * weights.c and source*.c look for: a synthetic model is written from this list, and has to load.
 */
#include "model/inventory.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const sh_config *c;
    sh_inventory *out;
    size_t cap;
    int layer;
} lister;

static sh_item *add(lister *l, sh_item_kind kind, int64_t rows, int64_t cols, const char *name)
{
    sh_buf path = {0};
    if (l->out->count == l->cap) {
        l->cap = l->cap * 2 + 64;
        l->out->items = sh_realloc_array(l->out->items, l->cap, sizeof(*l->out->items));
    }
    const sh_tensor_names *names = l->c->family->names;
    if (l->layer >= 0) sh_buf_addf(&path, "%s%s%d.", names->stem, names->layers, l->layer);
    sh_buf_add_text(&path, name);
    sh_item *item = &l->out->items[l->out->count++];
    *item = (sh_item){.path = sh_arena_str(&l->out->arena, sh_buf_str(&path)).ptr,
                      .kind = kind,
                      .layer = l->layer,
                      .rows = rows,
                      .cols = cols};
    sh_buf_reset(&path);
    return item;
}

static void add_vector(lister *l, int64_t count, const char *name)
{
    add(l, SH_ITEM_VECTOR, 1, count, name);
}

/* A norm on hidden states: its name ends in "weight". */
static void add_norm(lister *l, const char *name)
{
    char bias[128];
    add_vector(l, l->c->hidden, name);
    if (!l->c->norm_bias) return;
    snprintf(bias, sizeof(bias), "%.*sbias", (int)(strlen(name) - strlen("weight")), name);
    add_vector(l, l->c->hidden, bias);
}

static void list_attention_out(lister *l)
{
    const sh_config *c = l->c;
    add(l, SH_ITEM_ATTENTION, c->hidden, (int64_t)c->heads * c->v_dim, c->family->names->attn_out)
        ->bias = c->out_bias;
}

static void list_attention(lister *l)
{
    const sh_config *c = l->c;
    const sh_tensor_names *names = c->family->names;
    int64_t q = (int64_t)c->heads * c->head_dim;
    add(l, SH_ITEM_ATTENTION, c->out_gate ? 2 * q : q, c->hidden, names->q)->bias = c->qkv_bias;
    add(l, SH_ITEM_ATTENTION, (int64_t)c->kv_heads * c->head_dim, c->hidden, names->k)->bias =
        c->qkv_bias;
    add(l, SH_ITEM_ATTENTION, (int64_t)c->kv_heads * c->v_dim, c->hidden, names->v)->bias =
        c->qkv_bias;
    if (c->qk_norm) {
        add_vector(l, c->head_dim, names->q_norm);
        add_vector(l, c->head_dim, names->k_norm);
    }
    if (c->sinks) add_vector(l, c->heads, "self_attn.sinks");
    list_attention_out(l);
}

/* kv_b_proj in one piece, as Hugging Face has it; the loader splits it by heads. */
static void list_mla(lister *l)
{
    const sh_config *c = l->c;
    const sh_mla_config *mla = &c->mla;
    int64_t q = (int64_t)c->heads * c->head_dim;
    if (mla->q_rank > 0) {
        add(l, SH_ITEM_ATTENTION, mla->q_rank, c->hidden, "self_attn.q_a_proj");
        add_vector(l, mla->q_rank, "self_attn.q_a_layernorm.weight");
        add(l, SH_ITEM_ATTENTION, q, mla->q_rank, "self_attn.q_b_proj");
    } else {
        add(l, SH_ITEM_ATTENTION, q, c->hidden, "self_attn.q_proj");
    }
    add(l, SH_ITEM_ATTENTION, mla->kv_rank + mla->rope_dim, c->hidden,
        "self_attn.kv_a_proj_with_mqa");
    add_vector(l, mla->kv_rank, "self_attn.kv_a_layernorm.weight");
    add(l, SH_ITEM_ATTENTION, (int64_t)c->heads * (mla->nope_dim + c->v_dim), mla->kv_rank,
        "self_attn.kv_b_proj");
    list_attention_out(l);
}

/* The convolution itself is stored as a matrix of one column for each channel. */
static void list_short_conv(lister *l)
{
    const sh_conv_config *conv = &l->c->conv;
    add(l, SH_ITEM_CONV, 3 * (int64_t)conv->channels, l->c->hidden, "conv.in_proj")->bias =
        conv->bias;
    add(l, SH_ITEM_CONV, conv->taps, 1, "conv.conv")->stack = conv->channels;
    if (conv->bias) add_vector(l, conv->channels, "conv.conv.bias");
    add(l, SH_ITEM_CONV, l->c->hidden, conv->channels, "conv.out_proj")->bias = conv->bias;
}

static void list_delta_net(lister *l)
{
    const sh_delta_config *d = &l->c->delta;
    int64_t keys = (int64_t)d->k_heads * d->k_dim, values = (int64_t)d->v_heads * d->v_dim;
    add(l, SH_ITEM_DELTA, 2 * (keys + values), l->c->hidden, "linear_attn.in_proj_qkvz");
    add(l, SH_ITEM_DELTA, 2 * (int64_t)d->v_heads, l->c->hidden, "linear_attn.in_proj_ba");
    add(l, SH_ITEM_DELTA, d->taps, 1, "linear_attn.conv1d")->stack = 2 * keys + values;
    add_vector(l, d->v_heads, "linear_attn.A_log");
    add_vector(l, d->v_heads, "linear_attn.dt_bias");
    add_vector(l, d->v_dim, "linear_attn.norm.weight");
    add(l, SH_ITEM_DELTA, l->c->hidden, values, "linear_attn.out_proj");
}

static void list_ffn(lister *l, sh_item_kind kind, int64_t stack, int64_t width, bool bias,
                     const char *path)
{
    const sh_tensor_names *names = l->c->family->names;
    const char *const parts[3] = {names->gate, names->up, names->down};
    for (int i = 0; i < 3; i++) {
        char name[128];
        bool down = i == 2;
        if (i == 1 && !l->c->ffn_gate) continue;
        snprintf(name, sizeof(name), "%s%s%s", path == NULL ? "" : path, path == NULL ? "" : ".",
                 parts[i]);
        sh_item *item = add(l, kind, down ? l->c->hidden : width, down ? width : l->c->hidden,
                            name);
        item->stack = stack;
        item->bias = bias;
    }
}

/* Experts as stacks, under the names that MLX's conversions of each family use. */
static void list_moe(lister *l)
{
    const sh_config *c = l->c;
    const sh_family *family = c->family;
    char name[128];
    snprintf(name, sizeof(name), "%s.%s", family->moe_path, family->router);
    add(l, SH_ITEM_ROUTER, c->moe.experts, c->hidden, name)->bias = c->moe.all_biases;
    if (c->moe.pick_bias) {
        snprintf(name, sizeof(name), "%s.%s.e_score_correction_bias", family->moe_path,
                 family->router);
        add_vector(l, c->moe.experts, name);
    }
    snprintf(name, sizeof(name), "%s.%s", family->moe_path,
             c->moe.all_biases ? "experts" : "switch_mlp");
    list_ffn(l, SH_ITEM_EXPERT, c->moe.experts, c->moe.ffn, c->moe.all_biases, name);
    if (c->moe.shared_ffn == 0) return;
    snprintf(name, sizeof(name), "%s.%s", family->moe_path, family->shared);
    list_ffn(l, SH_ITEM_FFN, 0, c->moe.shared_ffn, false, name);
    snprintf(name, sizeof(name), "%s.%s_gate", family->moe_path, family->shared);
    if (c->moe.shared_gate) add(l, SH_ITEM_ROUTER, 1, c->hidden, name);
}

static void (*const LIST_MIXER[SH_MIXERS])(lister *l) = {
    [SH_MIXER_ATTENTION] = list_attention,
    [SH_MIXER_MLA] = list_mla,
    [SH_MIXER_SHORT_CONV] = list_short_conv,
    [SH_MIXER_DELTA_NET] = list_delta_net,
};

static void list_layer(lister *l)
{
    const sh_config *c = l->c;
    const sh_tensor_names *names = c->family->names;
    if (l->layer > 0 || c->first_norm) add_norm(l, names->mixer_norm);
    LIST_MIXER[c->layer[l->layer].mixer](l);
    add_norm(l, names->ffn_norm);
    if (c->sandwich) {
        add_norm(l, "pre_feedforward_layernorm.weight");
        add_norm(l, "post_feedforward_layernorm.weight");
    }
    if (c->layer[l->layer].moe)
        list_moe(l);
    else
        list_ffn(l, SH_ITEM_FFN, 0, c->ffn, c->ffn_bias, names->ffn);
}

static void list_embed(lister *l)
{
    const sh_config *c = l->c;
    const sh_tensor_names *names = c->family->names;
    char name[128];
    snprintf(name, sizeof(name), "%s%s", names->stem, names->embed);
    add(l, SH_ITEM_EMBED, c->vocab, c->hidden, name);
    if (c->positions > 0) add(l, SH_ITEM_TABLE, c->positions, c->hidden, names->positions);
    if (c->types > 0) add(l, SH_ITEM_TABLE, c->types, c->hidden, names->types);
    if (c->embed_norm) add_norm(l, names->embed_norm);
}

void sh_inventory_init(const sh_config *config, sh_inventory *out)
{
    *out = (sh_inventory){0};
    lister l = {.c = config, .out = out, .layer = -1};
    list_embed(&l);
    for (l.layer = 0; l.layer < config->layers; l.layer++) list_layer(&l);
    l.layer = -1;
    const sh_tensor_names *names = config->family->names;
    char name[128];
    if (names->last_norm != NULL) {
        snprintf(name, sizeof(name), "%s%s", names->stem, names->last_norm);
        add_norm(&l, name);
    }
    /* Without the files there is no other way to tell: unspecified counts as tied. */
    if (config->tied == SH_TIED_NO && !config->headless)
        add(&l, SH_ITEM_HEAD, config->vocab, config->hidden, "lm_head");
}

void sh_inventory_reset(sh_inventory *inventory)
{
    free(inventory->items);
    sh_arena_reset(&inventory->arena);
    *inventory = (sh_inventory){0};
}

int64_t sh_item_numbers(const sh_item *item)
{
    int64_t one = item->rows * item->cols + (item->bias ? item->rows : 0);
    return item->stack > 0 ? one * item->stack : one;
}

int64_t sh_item_active(const sh_config *config, const sh_item *item)
{
    int64_t all = sh_item_numbers(item);
    if (item->kind == SH_ITEM_EXPERT) return all / config->moe.experts * config->moe.topk;
    /* A lookup reads one row; a tied embedding is read whole as the head. */
    if (item->kind == SH_ITEM_TABLE) return item->cols;
    if (item->kind == SH_ITEM_EMBED && config->tied == SH_TIED_NO) return item->cols;
    return all;
}
