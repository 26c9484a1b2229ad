/* Families with experts and ordinary attention. */
#include "model/family.h"

#include <math.h>
#include <string.h>

enum { GPT_OSS_WINDOW = 128 };

/* The number of experts, how many of them a token uses, and their width, under the names that the
 * family uses. */
static sh_status read_experts(const sh_config_reader *in, const char *count_key,
                              const char *width_key, sh_moe_config *moe)
{
    sh_status status;
    const char *key = sh_read_item(in, count_key) != NULL ? count_key : "num_local_experts";
    if ((status = sh_read_int_must(in, key, 1, SH_CONFIG_COUNT_MAX, &moe->experts)) != 0 ||
        (status = sh_read_int_must(in, "num_experts_per_tok", 1, moe->experts, &moe->topk)) != 0 ||
        (status = sh_read_int_must(in, width_key, 1, SH_CONFIG_WIDTH_MAX, &moe->ffn)) != 0)
        return status;
    moe->groups = 1;
    moe->topk_groups = 1;
    moe->scale = 1;
    return SH_OK;
}

/* In these families intermediate_size is the width of an expert, and there is no dense layer. */
static void experts_everywhere(sh_config *config)
{
    for (int i = 0; i < config->layers; i++) config->layer[i].moe = true;
    config->ffn = 0;
}

static sh_status mark_dense_layers(const sh_config_reader *in, sh_config *config)
{
    bool *dense = sh_arena_array(&config->arena, (size_t)config->layers, sizeof(*dense));
    sh_status status = sh_read_layer_list(in, "mlp_only_layers", config->layers, dense);
    for (int i = 0; i < config->layers && status == SH_OK; i++)
        if (dense[i]) config->layer[i].moe = false;
    return status;
}

sh_status sh_family_qwen3_moe(const sh_config_reader *in, sh_config *config)
{
    int step = 1;
    sh_moe_config *moe = &config->moe;
    sh_status status;
    if ((status = sh_family_qwen(in, config)) != 0 ||
        (status = read_experts(in, "num_experts", "moe_intermediate_size", moe)) != 0 ||
        (status = sh_read_int(in, "decoder_sparse_step", 1, 1 << 20, &step)) != 0 ||
        (status = sh_read_bool(in, "norm_topk_prob", &moe->normalize)) != 0)
        return status;
    moe->route = SH_ROUTE_SOFTMAX;
    for (int i = 0; i < config->layers; i++) config->layer[i].moe = (i + 1) % step == 0;
    return mark_dense_layers(in, config);
}

/* Without layer_types, every full_attention_interval-th layer has attention. */
static sh_status read_linear_layers(const sh_config_reader *in, sh_config *config)
{
    int every = 4;
    sh_status status = sh_read_int(in, "full_attention_interval", 1, 1 << 20, &every);
    if (status == SH_OK && sh_read_item(in, "layer_types") != NULL)
        return sh_read_layer_windows(in, 0, 0, config);
    for (int i = 0; i < config->layers && status == SH_OK; i++)
        if ((i + 1) % every != 0) config->layer[i].mixer = SH_MIXER_DELTA_NET;
    return status;
}

static sh_status read_delta(const sh_config_reader *in, sh_config *config)
{
    sh_delta_config *d = &config->delta;
    sh_status status;
    d->taps = 4;
    if ((status = sh_read_int_must(in, "linear_num_key_heads", 1, SH_CONFIG_COUNT_MAX,
                                   &d->k_heads)) != 0 ||
        (status = sh_read_int_must(in, "linear_num_value_heads", 1, SH_CONFIG_COUNT_MAX,
                                   &d->v_heads)) != 0 ||
        (status = sh_read_int_must(in, "linear_key_head_dim", 16, SH_DELTA_DIM_MAX, &d->k_dim)) !=
            0 ||
        (status = sh_read_int_must(in, "linear_value_head_dim", 16, SH_DELTA_DIM_MAX, &d->v_dim)) !=
            0 ||
        (status = sh_read_int(in, "linear_conv_kernel_dim", 2, SH_CONV_TAPS_MAX, &d->taps)) != 0)
        return status;
    if (d->v_heads % d->k_heads != 0 || d->v_heads / d->k_heads > SH_DELTA_VALUES_MAX ||
        d->k_dim % 16 != 0 || d->v_dim % 16 != 0)
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: %d value heads of %d for %d key heads of %d in linear attention; "
                          "supported are 1 to %d for each key head, of multiples of 16",
                          in->where, d->v_heads, d->v_dim, d->k_heads, d->k_dim,
                          SH_DELTA_VALUES_MAX);
    return read_linear_layers(in, config);
}

/* config.json does not say that there is a multi-token-prediction layer: the files may have one. */
sh_status sh_family_qwen3_next(const sh_config_reader *in, sh_config *config)
{
    config->norm_plus_one = config->mlx_plus_one = true;
    config->out_gate = true;
    config->rope[0].dim = config->head_dim / 4;
    config->mtp_layers = 1;
    config->moe.shared_gate = true;
    config->moe.normalize = true;
    sh_status status = sh_family_qwen3_moe(in, config);
    if (status == SH_OK)
        status = sh_read_int(in, "shared_expert_intermediate_size", 1, SH_CONFIG_WIDTH_MAX,
                             &config->moe.shared_ffn);
    return status == SH_OK ? read_delta(in, config) : status;
}

sh_status sh_family_mixtral(const sh_config_reader *in, sh_config *config)
{
    sh_status status = read_experts(in, "num_local_experts", "intermediate_size", &config->moe);
    config->moe.route = SH_ROUTE_TOPK_SOFTMAX;
    config->rope[0].theta = 1000000;
    experts_everywhere(config);
    return status == SH_OK ? sh_read_layer_windows(in, 0, 0, config) : status;
}

/* The constants of gpt_oss's activation are built into the op, so no other values work. */
static sh_status check_swiglu(const sh_config_reader *in)
{
    double limit = 7, alpha = 1.702;
    sh_status status = sh_read_double(in, "swiglu_limit", 0, 1e6, &limit);
    if (status == SH_OK) status = sh_read_double(in, "swiglu_alpha", 0, 1e6, &alpha);
    if (status != SH_OK || (limit == 7 && fabs(alpha - 1.702) < 1e-9)) return status;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                      "%s: 'swiglu_limit' is %g and 'swiglu_alpha' %g, only 7 and 1.702 are "
                      "supported",
                      in->where, limit, alpha);
}

sh_status sh_family_gpt_oss(const sh_config_reader *in, sh_config *config)
{
    sh_status status = read_experts(in, "num_local_experts", "intermediate_size", &config->moe);
    if (status == SH_OK) status = check_swiglu(in);
    /* Without either key the reference implementation falls back to a yarn of its own. */
    if (status == SH_OK && sh_read_item(in, "rope_scaling") == NULL)
        status = sh_read_must(in, "rope_parameters");
    if (status != SH_OK) return status;
    config->moe.route = SH_ROUTE_TOPK_SOFTMAX;
    config->moe.all_biases = true;
    config->act = SH_ACT_SWIGLU_OAI;
    config->sinks = true;
    config->out_bias = true;
    config->rope[0].theta = 150000;
    experts_everywhere(config);
    /* Layers alternate, the first one has the window. */
    return sh_read_layer_windows(in, GPT_OSS_WINDOW, 2, config);
}
