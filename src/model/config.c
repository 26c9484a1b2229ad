/* Reads config.json into sh_config.
 *
 * The order matters. read_common fills in what all families share; the family's configure function
 * then overrides it. RoPE comes after that, since configure sets its defaults (a family may also
 * read it there: gemma has two sets, MLA needs it for the scale of the softmax). check runs at the
 * end, on the result, so that no family can get around it.
 *
 * config.json comes from the internet. Every number has bounds, chosen so that products of shapes
 * fit in int64_t and no later code needs overflow checks. A key that would change the result and
 * that we do not implement is an error, never ignored. */
#include "model/config.h"

#include "base/alloc.h"
#include "base/file.h"
#include "model/config_read.h"
#include "model/family.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONFIG_LEN_MAX = 16 << 20, LAYERS_MAX = 1024, HEAD_DIM_MAX = 4096, VOCAB_MAX = 1 << 24 };

sh_status sh_read_int(const sh_config_reader *in, const char *key, int min, int max, int *out)
{
    int64_t value = *out;
    sh_status status = sh_json_int(in->json, key, in->where, min, max, &value, in->err);
    if (status == SH_OK) *out = (int)value;
    return status;
}

sh_status sh_read_must(const sh_config_reader *in, const char *key)
{
    if (sh_read_item(in, key) != NULL) return SH_OK;
    return sh_err_set(in->err, SH_ERR_INPUT, "%s: '%s' is missing", in->where, key);
}

sh_status sh_read_int_must(const sh_config_reader *in, const char *key, int min, int max, int *out)
{
    sh_status status = sh_read_must(in, key);
    return status == SH_OK ? sh_read_int(in, key, min, max, out) : status;
}

sh_status sh_read_double(const sh_config_reader *in, const char *key, double min, double max,
                         double *out)
{
    return sh_json_double(in->json, key, in->where, min, max, out, in->err);
}

sh_status sh_read_float(const sh_config_reader *in, const char *key, double min, double max,
                        float *out)
{
    double value = (double)*out;
    sh_status status = sh_read_double(in, key, min, max, &value);
    if (status == SH_OK) *out = (float)value;
    return status;
}

sh_status sh_read_bool(const sh_config_reader *in, const char *key, bool *out)
{
    return sh_json_bool(in->json, key, in->where, out, in->err);
}

sh_status sh_read_only(const sh_config_reader *in, const char *key, const char *only)
{
    const char *value = only;
    sh_status status = sh_json_string(in->json, key, in->where, &value, in->err);
    if (status != SH_OK || strcmp(value, only) == 0) return status;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED, "%s: '%s' is '%s', only '%s' is supported",
                      in->where, key, value, only);
}

/* These files write "not set" as null as often as they leave the key out. */
const cJSON *sh_read_item(const sh_config_reader *in, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(in->json, key);
    return item == NULL || cJSON_IsNull(item) ? NULL : item;
}

/* What layers may have besides full attention: each family has one of these at most. */
static const char *other_type(const sh_config *config, sh_mixer *mixer)
{
    *mixer = config->conv.taps > 0       ? SH_MIXER_SHORT_CONV
             : config->delta.k_heads > 0 ? SH_MIXER_DELTA_NET
                                         : SH_MIXER_ATTENTION;
    return *mixer == SH_MIXER_SHORT_CONV  ? "conv"
           : *mixer == SH_MIXER_DELTA_NET ? "linear_attention"
                                          : "sliding_attention";
}

static sh_status read_layer_types(const sh_config_reader *in, const cJSON *types, int window,
                                  sh_config *config)
{
    int i = 0;
    const cJSON *item = NULL;
    sh_mixer mixer;
    const char *other = other_type(config, &mixer);
    bool slides = mixer == SH_MIXER_ATTENTION;
    if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != config->layers)
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: 'layer_types' must be an array of %d strings, one per layer",
                          in->where, config->layers);
    cJSON_ArrayForEach(item, types)
    {
        const char *text = cJSON_IsString(item) ? item->valuestring : sh_json_kind(item);
        bool differs = strcmp(text, other) == 0;
        if (!differs && strcmp(text, "full_attention") != 0)
            return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                              "%s: 'layer_types' has '%s', supported are full_attention and %s",
                              in->where, text, other);
        if (differs && slides && window == 0)
            return sh_err_set(in->err, SH_ERR_INPUT,
                              "%s: a layer has sliding attention, but 'sliding_window' is missing",
                              in->where);
        sh_layer_config *layer = &config->layer[i++];
        layer->window = differs && slides ? window : 0;
        if (differs) layer->mixer = mixer;
    }
    return SH_OK;
}

/* Layer numbers past the end are ignored, as the reference implementations do. */
sh_status sh_read_layer_list(const sh_config_reader *in, const char *key, int layers, bool *out)
{
    const cJSON *list = sh_read_item(in, key), *item = NULL;
    if (list != NULL && !cJSON_IsArray(list))
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: '%s' must be an array, not %s", in->where,
                          key, sh_json_kind(list));
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
            item->valuedouble != floor(item->valuedouble))
            return sh_err_set(in->err, SH_ERR_INPUT, "%s: '%s' must hold layer numbers", in->where,
                              key);
        if (item->valuedouble < layers) out[(int)item->valuedouble] = true;
    }
    return SH_OK;
}

sh_status sh_read_layer_windows(const sh_config_reader *in, int window, int every,
                                sh_config *config)
{
    /* An absent key means the family's default window, an explicit null means no window. */
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(in->json, "sliding_window"))) window = 0;
    sh_status status = sh_read_int(in, "sliding_window", 1, 1 << 30, &window);
    if (status != SH_OK) return status;
    const cJSON *types = sh_read_item(in, "layer_types");
    if (types != NULL) return read_layer_types(in, types, window, config);
    for (int i = 0; i < config->layers; i++)
        if (every == 0 || (i + 1) % every != 0) config->layer[i].window = window;
    return SH_OK;
}

/* Some files have GPT-2's names for these keys. */
static const char *key_of(const sh_config_reader *in, const char *key)
{
    static const struct {
        const char *key, *old;
    } names[] = {
        {"hidden_size", "n_embd"},
        {"num_hidden_layers", "n_layer"},
        {"num_attention_heads", "n_head"},
        {"intermediate_size", "n_inner"},
        {"max_position_embeddings", "n_positions"},
        {"layer_norm_eps", "layer_norm_epsilon"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(names); i++)
        if (strcmp(key, names[i].key) == 0 && sh_read_item(in, key) == NULL &&
            sh_read_item(in, names[i].old) != NULL)
            return names[i].old;
    return key;
}

static sh_status read_shape(const sh_config_reader *in, sh_config *c)
{
    const char *hidden = key_of(in, "hidden_size"), *layers = key_of(in, "num_hidden_layers");
    const char *heads = key_of(in, "num_attention_heads"), *ffn = key_of(in, "intermediate_size");
    const char *context = key_of(in, "max_position_embeddings");
    const char *eps = key_of(in, c->family->norm_eps);
    sh_status status;
    if ((status = sh_read_int_must(in, hidden, 2, SH_CONFIG_WIDTH_MAX, &c->hidden)) != 0 ||
        (status = sh_read_int_must(in, layers, 1, LAYERS_MAX, &c->layers)) != 0 ||
        (status = sh_read_int_must(in, "vocab_size", 1, VOCAB_MAX, &c->vocab)) != 0 ||
        (status = sh_read_int_must(in, heads, 1, SH_CONFIG_COUNT_MAX, &c->heads)) != 0)
        return status;
    /* Defaults for keys that the file may leave out. */
    c->kv_heads = c->heads;
    c->head_dim = c->hidden / c->heads;
    c->context = 4096;
    if ((status = sh_read_int(in, "num_key_value_heads", 1, SH_CONFIG_COUNT_MAX, &c->kv_heads)) !=
            0 ||
        (status = sh_read_int(in, "head_dim", 2, HEAD_DIM_MAX, &c->head_dim)) != 0 ||
        (status = sh_read_int(in, ffn, 1, SH_CONFIG_WIDTH_MAX, &c->ffn)) != 0 ||
        (status = sh_read_int(in, context, 1, 1 << 30, &c->context)) != 0 ||
        (status = sh_read_must(in, eps)) != 0 ||
        (status = sh_read_float(in, eps, 0, 1, &c->norm_eps)) != 0)
        return status;
    if (c->heads % c->kv_heads != 0)
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: 'num_attention_heads' %d is not a multiple of "
                          "'num_key_value_heads' %d",
                          in->where, c->heads, c->kv_heads);
    return SH_OK;
}

/* Embedding models that were made from a decoder: some let a token attend to later ones, and most
 * come without the head. */
static sh_status read_embedder(const sh_config_reader *in, sh_config *c)
{
    bool causal = true;
    const cJSON *name = cJSON_GetArrayItem(sh_read_item(in, "architectures"), 0);
    sh_status status = sh_read_bool(in, "is_causal", &causal);
    c->bidirectional = !causal;
    c->headless = !causal || (cJSON_IsString(name) &&
                              sh_str_ends(sh_str_of(name->valuestring), SH_STR("Model")));
    return status;
}

/* What depends on the shape is derived here (v_dim, the scale of attention); families that differ
 * overwrite it. */
static sh_status read_common(const sh_config_reader *in, sh_config *c)
{
    c->embed_scale = 1;
    c->act = SH_ACT_SILU;
    sh_status status = read_shape(in, c);
    if (status != SH_OK) return status;
    c->v_dim = c->head_dim;
    c->attention_scale = (float)(1 / sqrt((double)c->head_dim));
    c->qkv_bias = c->family->qkv_bias;
    c->qk_norm = c->family->qk_norm;
    c->layer = sh_arena_array(&c->arena, (size_t)c->layers, sizeof(*c->layer));

    bool tied = false;
    c->tied = SH_TIED_UNSPECIFIED;
    if (sh_read_item(in, "tie_word_embeddings") != NULL) {
        if ((status = sh_read_bool(in, "tie_word_embeddings", &tied)) != SH_OK) return status;
        c->tied = tied ? SH_TIED_YES : SH_TIED_NO;
    }
    c->ffn_gate = c->first_norm = true;
    c->bidirectional = c->headless = c->family->encoder;
    if (c->family->encoder) return SH_OK;
    if ((status = sh_read_only(in, "hidden_act", "silu")) != SH_OK) return status;
    return read_embedder(in, c);
}

/* Invariants that later code relies on, whichever family filled the struct in. */
static sh_status check(const sh_config_reader *in, const sh_config *c)
{
    bool dense = false;
    for (int i = 0; i < c->layers; i++) dense = dense || !c->layer[i].moe;
    if (dense && c->ffn == 0)
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: 'intermediate_size' is missing", in->where);
    if ((int64_t)c->heads * c->head_dim > SH_CONFIG_WIDTH_MAX * 4)
        return sh_err_set(in->err, SH_ERR_INPUT, "%s: %d heads of dimension %d are not plausible",
                          in->where, c->heads, c->head_dim);
    if (c->bidirectional && (c->mla.kv_rank > 0 || sh_config_has_fixed_state(c)))
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: attention to later tokens is not supported in this family",
                          in->where);
    for (int i = 0; i < c->rope_count; i++)
        if (c->rope[i].dim > c->head_dim)
            return sh_err_set(in->err, SH_ERR_INPUT,
                              "%s: RoPE rotates %d dimensions of a head that has %d", in->where,
                              c->rope[i].dim, c->head_dim);
    return SH_OK;
}

static sh_status find_family(const sh_config_reader *in, sh_config *config)
{
    char list[SH_ERR_TEXT_MAX];
    const char *type = NULL;
    sh_status status = sh_json_string_required(in->json, "model_type", in->where, &type, in->err);
    if (status != SH_OK) return status;
    config->family = sh_family_find(type);
    if (config->family == NULL)
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: 'model_type' is '%s', which is not supported; supported are %s",
                          in->where, type, sh_family_list(list, sizeof(list)));
    return SH_OK;
}

static sh_status read_model(const sh_config_reader *in, sh_config *config)
{
    sh_status status = find_family(in, config);
    if (status == SH_OK) status = read_common(in, config);
    if (status == SH_OK && config->family->configure != NULL)
        status = config->family->configure(in, config);
    if (status == SH_OK && config->rope_count == 0 && config->positions == 0)
        status = sh_read_rope(in, config);
    if (config->headless) config->tied = SH_TIED_NO;
    if (status == SH_OK) status = check(in, config);
    return status;
}

/* A multi-modal config keeps the keys of the language model one level down, in text_config, but the
 * quantization may be at either level. */
static sh_status read_config(const sh_config_reader *top, sh_config *config)
{
    const char *type = "";
    sh_config_reader text = *top;
    sh_status status = sh_json_string(top->json, "model_type", top->where, &type, top->err);
    if (status != SH_OK) return status;
    if (sh_family_is_wrapper(type)) {
        text.json = sh_read_item(top, "text_config");
        if (!cJSON_IsObject(text.json))
            return sh_err_set(top->err, SH_ERR_INPUT,
                              "%s: model_type '%s' needs an object 'text_config'", top->where,
                              type);
    }
    status = read_model(&text, config);
    if (status == SH_OK) status = sh_read_quant(&text, config);
    if (status == SH_OK && text.json != top->json && !config->quant.on)
        status = sh_read_quant(top, config);
    return status;
}

sh_status sh_config_parse(sh_str text, const char *where, sh_config *out, sh_err *err)
{
    cJSON *json = NULL;
    sh_config config = {.hash = sh_hash64(text.ptr, text.len)};
    sh_status status = sh_json_parse(text, where, &json, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsObject(json))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: must be a JSON object, not %s", where,
                            sh_json_kind(json));
    if (status == SH_OK)
        status = read_config(&(sh_config_reader){.json = json, .where = where, .err = err},
                             &config);
    cJSON_Delete(json);
    if (status == SH_OK)
        *out = config;
    else
        sh_config_reset(&config);
    return status;
}

/* sentence-transformers may allow fewer tokens than the model has positions. */
static sh_status read_longest(const char *dir, sh_config *config, sh_err *err)
{
    cJSON *json = NULL;
    char *path = sh_path_join(dir, "sentence_bert_config.json");
    int64_t longest = config->context;
    sh_status status = SH_OK;
    if (config->headless && sh_file_exists(path)) {
        status = sh_json_load(path, CONFIG_LEN_MAX, &json, err);
        if (status == SH_OK)
            status = sh_json_int(json, "max_seq_length", path, 1, 1 << 30, &longest, err);
        if (status == SH_OK && longest < config->context) config->context = (int)longest;
    }
    cJSON_Delete(json);
    free(path);
    return status;
}

sh_status sh_config_check_folder(const char *dir, sh_err *err)
{
    char *path = sh_path_join(dir, "config.json");
    sh_status status = SH_OK;
    if (access(path, R_OK) != 0 && errno != ENOENT && errno != ENOTDIR)
        status = sh_err_sys(err, "%s", path);
    else if (!sh_file_exists(dir))
        status = sh_err_set(err, SH_ERR_NOT_FOUND, "%s: there is no such folder", dir);
    else if (!sh_file_exists(path))
        status = sh_err_set(err, SH_ERR_NOT_FOUND,
                            "%s is not a model: a model is a folder with config.json, "
                            "tokenizer.json and *.safetensors",
                            dir);
    free(path);
    return status;
}

sh_status sh_config_load(const char *dir, sh_config *out, sh_err *err)
{
    sh_buf text = {0};
    sh_config config = {0};
    char *path = sh_path_join(dir, "config.json");
    sh_status status = sh_config_check_folder(dir, err);
    if (status == SH_OK) status = sh_file_read(path, CONFIG_LEN_MAX, &text, err);
    if (status == SH_OK) status = sh_config_parse(sh_buf_str(&text), path, &config, err);
    if (status == SH_OK) status = read_longest(dir, &config, err);
    sh_buf_reset(&text);
    free(path);
    if (status == SH_OK)
        *out = config;
    else
        sh_config_reset(&config);
    return status;
}

void sh_config_reset(sh_config *config)
{
    sh_arena_reset(&config->arena);
    *config = (sh_config){0};
}

/* The layer is like the model's last, but it always has attention. */
sh_status sh_config_take_mtp(sh_config *c, sh_err *err)
{
    if (c->family->mtp == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "models of the family %s have no multi-token-prediction layer",
                          c->family->model_type);
    if (c->mtp_layers == 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "config.json says that this model has no multi-token-prediction layer "
                          "('num_nextn_predict_layers' is 0 or missing)");
    c->layer[0] = c->layer[c->layers - 1];
    if (c->layer[0].mixer == SH_MIXER_DELTA_NET) c->layer[0].mixer = SH_MIXER_ATTENTION;
    c->layer_base = c->layers;
    c->layers = 1;
    c->mtp = true;
    return SH_OK;
}

int64_t sh_config_kv_width(const sh_config *config, int layer)
{
    switch (config->layer[layer].mixer) {
    case SH_MIXER_ATTENTION: return (int64_t)config->kv_heads * (config->head_dim + config->v_dim);
    case SH_MIXER_MLA: return config->mla.kv_rank + config->mla.rope_dim;
    default: return 0;
    }
}

int64_t sh_config_state_width(const sh_config *config, int layer)
{
    const sh_delta_config *d = &config->delta;
    int64_t inputs = 2 * (int64_t)d->k_heads * d->k_dim + (int64_t)d->v_heads * d->v_dim;
    switch (config->layer[layer].mixer) {
    case SH_MIXER_SHORT_CONV: return (int64_t)config->conv.channels * (config->conv.taps - 1);
    case SH_MIXER_DELTA_NET:
        return inputs * (d->taps - 1) + (int64_t)d->v_heads * d->k_dim * d->v_dim;
    default: return 0;
    }
}

bool sh_config_has_fixed_state(const sh_config *config)
{
    for (int i = 0; i < config->layers; i++)
        if (sh_config_state_width(config, i) > 0) return true;
    return false;
}
