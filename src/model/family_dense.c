/* Families without experts. Each differs from llama in a few keys. */
#include "model/family.h"

#include <math.h>
#include <string.h>

enum { MISTRAL_WINDOW = 4096, GEMMA_WINDOW = 4096, GEMMA_EVERY = 6 };

static sh_status read_attention_bias(const sh_config_reader *in, bool *bias)
{
    return sh_read_bool(in, "attention_bias", bias);
}

sh_status sh_family_llama(const sh_config_reader *in, sh_config *config)
{
    sh_status status = read_attention_bias(in, &config->qkv_bias);
    config->out_bias = config->qkv_bias;
    /* Without layer_types, llama ignores sliding_window. */
    if (status != SH_OK || sh_read_item(in, "layer_types") == NULL) return status;
    return sh_read_layer_windows(in, 0, 0, config);
}

sh_status sh_family_mistral(const sh_config_reader *in, sh_config *config)
{
    return sh_read_layer_windows(in, MISTRAL_WINDOW, 0, config);
}

sh_status sh_family_ministral3(const sh_config_reader *in, sh_config *config)
{
    sh_status status = sh_read_layer_windows(in, 0, 0, config);
    if (status == SH_OK) status = sh_read_must(in, "rope_parameters");
    sh_config_reader rope = {
        .json = sh_read_item(in, "rope_parameters"), .where = in->where, .err = in->err};
    if (status != SH_OK || !cJSON_IsObject(rope.json)) return status;
    return sh_read_float(&rope, "llama_4_scaling_beta", 0, 100, &config->query_beta);
}

/* qwen2 and qwen3 apply the window only with use_sliding_window, from layer max_window_layers on.
 * qwen2 has its biases whatever attention_bias says. */
sh_status sh_family_qwen(const sh_config_reader *in, sh_config *config)
{
    bool use = false;
    int first = 28;
    sh_status status = sh_read_bool(in, "use_sliding_window", &use);
    if (status == SH_OK && strcmp(config->family->model_type, "qwen2") != 0)
        status = read_attention_bias(in, &config->qkv_bias);
    if (status == SH_OK) status = sh_read_int(in, "max_window_layers", 0, 1 << 30, &first);
    if (status != SH_OK || !use) return status;
    status = sh_read_layer_windows(in, MISTRAL_WINDOW, 0, config);
    if (sh_read_item(in, "layer_types") != NULL) return status;
    for (int i = 0; i < config->layers && i < first; i++) config->layer[i].window = 0;
    return status;
}

sh_status sh_family_phi3(const sh_config_reader *in, sh_config *config)
{
    return sh_read_layer_windows(in, 0, 0, config);
}

/* One RoPE for layers with full attention, another for those with a window. */
static sh_status read_gemma_rope(const sh_config_reader *in, sh_config *config)
{
    sh_rope_config *full = &config->rope[0], *sliding = &config->rope[1];
    const cJSON *params = sh_read_item(in, "rope_parameters");
    const cJSON *of_full = cJSON_GetObjectItemCaseSensitive(params, "full_attention");
    const cJSON *of_sliding = cJSON_GetObjectItemCaseSensitive(params, "sliding_attention");
    full->theta = 1000000;
    sliding->theta = 10000;
    sh_status status = sh_read_double(in, "rope_theta", 2, 1e12, &full->theta);
    if (status == SH_OK)
        status = sh_read_double(in, "rope_local_base_freq", 2, 1e12, &sliding->theta);
    if (status != SH_OK) return status;
    if (of_full == NULL && of_sliding == NULL)
        of_full = params != NULL ? params : sh_read_item(in, "rope_scaling");
    status = sh_read_rope_params(in, of_full, config, &config->arena, full);
    if (status == SH_OK)
        status = sh_read_rope_params(in, of_sliding, config, &config->arena, sliding);
    config->rope_count = 2;
    for (int i = 0; i < config->layers; i++) config->layer[i].rope = config->layer[i].window > 0;
    return status;
}

/* The embedding models of this family let a token attend to later ones; their window is as wide as
 * that of the others, but has the token in its middle. */
static sh_status read_bidirectional(const sh_config_reader *in, sh_config *config)
{
    bool both = config->bidirectional;
    sh_status status = sh_read_bool(in, "use_bidirectional_attention", &both);
    if (status != SH_OK || !both) return status;
    config->bidirectional = config->headless = true;
    for (int i = 0; i < config->layers; i++)
        if (config->layer[i].window > 0) config->layer[i].window = config->layer[i].window / 2 + 1;
    return SH_OK;
}

/* Soft-capped logits (gemma 2) would need an op of their own; gemma 3 sets the caps to null.
 * Without the cap the answers would be wrong, so a model that has one is refused. */
static sh_status refuse_softcap(const sh_config_reader *in, const char *key)
{
    if (sh_read_item(in, key) == NULL) return SH_OK;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED, "%s: '%s' must be null", in->where, key);
}

/* Gemma differs most: norms with 1 + w before and after each block, a scaled embedding, gelu, and
 * every sixth layer with full attention. */
sh_status sh_family_gemma3(const sh_config_reader *in, sh_config *config)
{
    int every = GEMMA_EVERY;
    double scalar = 256;
    sh_status status;
    config->sandwich = true;
    config->norm_plus_one = true;
    config->act = SH_ACT_GELU_TANH;
    config->embed_scale = (float)sqrt((double)config->hidden);
    if (config->tied == SH_TIED_UNSPECIFIED) config->tied = SH_TIED_YES;
    if ((status = sh_read_only(in, "hidden_activation", "gelu_pytorch_tanh")) != 0 ||
        (status = refuse_softcap(in, "attn_logit_softcapping")) != 0 ||
        (status = refuse_softcap(in, "final_logit_softcapping")) != 0 ||
        (status = sh_read_int(in, "sliding_window_pattern", 1, 1 << 20, &every)) != 0 ||
        (status = sh_read_double(in, "query_pre_attn_scalar", 1e-3, 1e6, &scalar)) != 0 ||
        (status = sh_read_layer_windows(in, GEMMA_WINDOW, every, config)) != 0 ||
        (status = read_bidirectional(in, config)) != 0)
        return status;
    config->attention_scale = (float)(1 / sqrt(scalar));
    return read_gemma_rope(in, config);
}
