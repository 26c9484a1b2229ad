/* Encoders: models that read a whole text at once and are made for embeddings. They have LayerNorm
 * and attention to both sides; the rest differs. */
#include "model/family.h"

#include <string.h>

static sh_status read_act(const sh_config_reader *in, const char *key, const char *name,
                          sh_act *out)
{
    static const struct {
        const char *name;
        sh_act act;
    } acts[] = {{"gelu", SH_ACT_GELU},
                {"gelu_new", SH_ACT_GELU_TANH},
                {"gelu_pytorch_tanh", SH_ACT_GELU_TANH},
                {"swiglu", SH_ACT_SILU},
                {"silu", SH_ACT_SILU}};
    sh_status status = sh_json_string(in->json, key, in->where, &name, in->err);
    for (size_t i = 0; i < SH_COUNT_OF(acts) && status == SH_OK; i++)
        if (strcmp(name, acts[i].name) == 0) {
            *out = acts[i].act;
            return SH_OK;
        }
    if (status != SH_OK) return status;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED, "%s: '%s' is '%s', which is not supported",
                      in->where, key, name);
}

/* A key whose only value that is supported is `only`. */
static sh_status read_flag(const sh_config_reader *in, const char *key, bool only)
{
    bool value = only;
    sh_status status = sh_read_bool(in, key, &value);
    if (status != SH_OK || value == only) return status;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED, "%s: '%s' is %s, only %s is supported",
                      in->where, key, value ? "true" : "false", only ? "true" : "false");
}

static sh_status read_types(const sh_config_reader *in, sh_config *config)
{
    config->types = 2;
    return sh_read_int(in, "type_vocab_size", 0, 2, &config->types);
}

/* BERT: norms after each sum, a table of positions, no gate, biases everywhere. */
sh_status sh_family_bert(const sh_config_reader *in, sh_config *config)
{
    sh_status status;
    config->layer_norm = config->norm_bias = config->post_norm = config->embed_norm = true;
    config->out_bias = config->ffn_bias = true;
    config->ffn_gate = false;
    config->positions = config->context;
    if ((status = read_act(in, "hidden_act", "gelu", &config->act)) != 0 ||
        (status = sh_read_only(in, "position_embedding_type", "absolute")) != 0 ||
        (status = read_flag(in, "is_decoder", false)) != 0)
        return status;
    return read_types(in, config);
}

/* RoBERTa counts positions from the one after the padding token's id. */
sh_status sh_family_roberta(const sh_config_reader *in, sh_config *config)
{
    int padding = 1;
    sh_status status = sh_family_bert(in, config);
    if (status == SH_OK) status = sh_read_int(in, "pad_token_id", 0, 1 << 20, &padding);
    if (status != SH_OK) return status;
    config->position_offset = padding + 1;
    config->context -= config->position_offset;
    if (config->context > 0) return SH_OK;
    return sh_err_set(in->err, SH_ERR_INPUT,
                      "%s: 'max_position_embeddings' %d leaves no position after 'pad_token_id' %d",
                      in->where, config->positions, padding);
}

/* Nomic's BERT: RoPE, a gate, and no biases. Its files have keys for variants that nobody has
 * trained; what they would change is refused. */
sh_status sh_family_nomic_bert(const sh_config_reader *in, sh_config *config)
{
    const char *act = sh_read_item(in, "activation_function") != NULL ? "activation_function"
                                                                      : "hidden_act";
    double fraction = 1;
    sh_rope_config *rope = &config->rope[0];
    sh_status status;
    config->layer_norm = config->norm_bias = config->post_norm = config->embed_norm = true;
    rope->theta = 1000;
    if ((status = read_act(in, act, "swiglu", &config->act)) != 0 ||
        (status = read_flag(in, "prenorm", false)) != 0 ||
        (status = read_flag(in, "use_rms_norm", false)) != 0 ||
        (status = read_flag(in, "qkv_proj_bias", false)) != 0 ||
        (status = read_flag(in, "mlp_fc1_bias", false)) != 0 ||
        (status = read_flag(in, "mlp_fc2_bias", false)) != 0 ||
        (status = read_flag(in, "causal", false)) != 0 ||
        (status = read_flag(in, "rotary_emb_interleaved", false)) != 0 ||
        (status = sh_read_double(in, "rotary_emb_fraction", 1, 1, &fraction)) != 0 ||
        (status = sh_read_double(in, "rotary_emb_base", 2, 1e12, &rope->theta)) != 0 ||
        (status = read_types(in, config)) != 0)
        return status;
    if (sh_read_item(in, "rotary_scaling_factor") == NULL) return SH_OK;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED, "%s: 'rotary_scaling_factor' must be null",
                      in->where);
}

/* Two sets of RoPE, for layers that see all tokens and for those with a window. */
static sh_status read_modernbert_rope(const sh_config_reader *in, sh_config *config)
{
    static const struct {
        const char *key, *type;
        double theta;
    } sets[] = {{"global_rope_theta", "full_attention", 160000},
                {"local_rope_theta", "sliding_attention", 10000}};
    const cJSON *params = sh_read_item(in, "rope_parameters");
    sh_status status = SH_OK;
    for (int i = 0; i < 2 && status == SH_OK; i++) {
        config->rope[i].theta = sets[i].theta;
        status = sh_read_double(in, sets[i].key, 2, 1e12, &config->rope[i].theta);
        if (status == SH_OK)
            status = sh_read_rope_params(in, cJSON_GetObjectItemCaseSensitive(params, sets[i].type),
                                         config, &config->arena, &config->rope[i]);
    }
    config->rope_count = 2;
    return status;
}

/* ModernBERT: norms before each block, but for the first; a gate; two of three layers see only the
 * tokens around their own. */
sh_status sh_family_modernbert(const sh_config_reader *in, sh_config *config)
{
    int every = 3, local = 128;
    sh_status status;
    config->layer_norm = config->embed_norm = true;
    config->first_norm = false;
    config->context = 8192;
    if ((status = read_act(in, "hidden_activation", "gelu", &config->act)) != 0 ||
        (status = sh_read_int(in, "max_position_embeddings", 1, 1 << 30, &config->context)) != 0 ||
        (status = sh_read_int(in, "global_attn_every_n_layers", 1, 1 << 20, &every)) != 0 ||
        (status = sh_read_int(in, "local_attention", 1, 1 << 30, &local)) != 0 ||
        (status = sh_read_bool(in, "norm_bias", &config->norm_bias)) != 0 ||
        (status = sh_read_bool(in, "attention_bias", &config->qkv_bias)) != 0 ||
        (status = sh_read_bool(in, "mlp_bias", &config->ffn_bias)) != 0)
        return status;
    config->out_bias = config->qkv_bias;
    const cJSON *types = sh_read_item(in, "layer_types");
    for (int i = 0; i < config->layers; i++) {
        const cJSON *type = cJSON_GetArrayItem(types, i);
        bool sliding = types == NULL ? i % every != 0
                                     : cJSON_IsString(type) &&
                                           strcmp(type->valuestring, "sliding_attention") == 0;
        /* A distance of half the window is still within it. */
        config->layer[i].window = sliding ? local / 2 + 1 : 0;
        config->layer[i].rope = sliding;
    }
    return read_modernbert_rope(in, config);
}
