/* Families with DeepSeek's experts: deepseek_v2 and deepseek_v3 (and kimi_k2), which also have
 * latent attention, and glm4_moe, which has the same experts after ordinary attention. */
#include "model/family.h"

#include "model/rope.h"

#include <math.h>
#include <string.h>

static sh_status read_mla(const sh_config_reader *in, sh_config *config)
{
    sh_mla_config *mla = &config->mla;
    sh_status status;
    if ((status = sh_read_int(in, "q_lora_rank", 1, SH_CONFIG_WIDTH_MAX, &mla->q_rank)) != 0 ||
        (status = sh_read_int_must(in, "kv_lora_rank", 1, SH_CONFIG_WIDTH_MAX, &mla->kv_rank)) !=
            0 ||
        (status = sh_read_int_must(in, "qk_nope_head_dim", 1, SH_CONFIG_COUNT_MAX,
                                   &mla->nope_dim)) != 0 ||
        (status = sh_read_int_must(in, "qk_rope_head_dim", 2, SH_CONFIG_COUNT_MAX,
                                   &mla->rope_dim)) != 0 ||
        (status = sh_read_int_must(in, "v_head_dim", 1, SH_CONFIG_COUNT_MAX, &config->v_dim)) != 0)
        return status;
    /* Whatever the file says: MLA has a key for every head, even if all come from one latent. */
    config->head_dim = mla->nope_dim + mla->rope_dim;
    config->kv_heads = config->heads;
    for (int i = 0; i < config->layers; i++) config->layer[i].mixer = SH_MIXER_MLA;
    status = sh_read_rope(in, config);
    if (status != SH_OK) return status;

    /* These models scale the softmax by the square of yarn's mscale for all dimensions. */
    const sh_rope_config *rope = &config->rope[0];
    double scale = 1 / sqrt((double)config->head_dim);
    if (rope->kind != SH_ROPE_DEFAULT && rope->mscale_all_dim != 0) {
        double mscale = sh_rope_mscale(rope->factor, rope->mscale_all_dim);
        scale *= mscale * mscale;
    }
    config->attention_scale = (float)scale;
    return SH_OK;
}

static sh_status read_groups(const sh_config_reader *in, sh_moe_config *moe)
{
    sh_status status = sh_read_int(in, "n_group", 1, moe->experts, &moe->groups);
    if (status == SH_OK) status = sh_read_int(in, "topk_group", 1, moe->groups, &moe->topk_groups);
    if (status != SH_OK) return status;
    int left = moe->groups > 0 ? moe->experts / moe->groups : 0;
    if (moe->experts % moe->groups != 0 || left * moe->topk_groups < moe->topk)
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: %d experts in %d groups, of which %d can be chosen, do not provide "
                          "the %d that a token needs",
                          in->where, moe->experts, moe->groups, moe->topk_groups, moe->topk);
    return SH_OK;
}

/* Keys that all of these share; config->moe.experts stays 0 for a model without experts. */
static sh_status read_experts(const sh_config_reader *in, sh_config *config)
{
    int shared = 0, dense = 0, freq = 1;
    sh_moe_config *moe = &config->moe;
    sh_status status;
    if (sh_read_item(in, "n_routed_experts") == NULL) return SH_OK;
    moe->groups = 1;
    moe->topk_groups = 1;
    moe->scale = 1;
    if ((status = sh_read_int_must(in, "n_routed_experts", 1, SH_CONFIG_COUNT_MAX,
                                   &moe->experts)) != 0 ||
        (status = sh_read_int_must(in, "num_experts_per_tok", 1, moe->experts, &moe->topk)) != 0 ||
        (status = sh_read_int_must(in, "moe_intermediate_size", 1, SH_CONFIG_WIDTH_MAX,
                                   &moe->ffn)) != 0 ||
        (status = sh_read_int(in, "n_shared_experts", 0, SH_CONFIG_COUNT_MAX, &shared)) != 0 ||
        (status = sh_read_int(in, "first_k_dense_replace", 0, 1 << 20, &dense)) != 0 ||
        (status = sh_read_int(in, "moe_layer_freq", 1, 1 << 20, &freq)) != 0 ||
        (status = sh_read_bool(in, "norm_topk_prob", &moe->normalize)) != 0 ||
        (status = sh_read_float(in, "routed_scaling_factor", 1e-6, 1e6, &moe->scale)) != 0)
        return status;
    if ((int64_t)shared * moe->ffn > SH_CONFIG_WIDTH_MAX)
        return sh_err_set(in->err, SH_ERR_INPUT,
                          "%s: %d shared experts of width %d are not plausible", in->where, shared,
                          moe->ffn);
    /* The files store the shared experts as one wide feed-forward layer. */
    moe->shared_ffn = shared * moe->ffn;
    for (int i = dense; i < config->layers; i++) config->layer[i].moe = i % freq == 0;
    return SH_OK;
}

/* Sigmoid scores with a correction bias for the choice; a group scores by its best two experts. */
static sh_status read_sigmoid_experts(const sh_config_reader *in, sh_config *config)
{
    config->moe.normalize = true;
    sh_status status = read_experts(in, config);
    if (status == SH_OK)
        status = sh_read_int(in, "num_nextn_predict_layers", 0, SH_CONFIG_COUNT_MAX,
                             &config->mtp_layers);
    if (status != SH_OK || config->moe.experts == 0) return status;
    config->moe.route = SH_ROUTE_SIGMOID;
    config->moe.pick_bias = true;
    config->moe.group_top2 = true;
    if ((status = sh_read_only(in, "scoring_func", "sigmoid")) != 0 ||
        (status = sh_read_only(in, "topk_method", "noaux_tc")) != 0 ||
        (status = sh_read_must(in, "routed_scaling_factor")) != 0 ||
        (status = sh_read_must(in, "n_group")) != 0 ||
        (status = sh_read_must(in, "topk_group")) != 0)
        return status;
    return read_groups(in, &config->moe);
}

sh_status sh_family_deepseek_v2(const sh_config_reader *in, sh_config *config)
{
    const char *method = "greedy";
    config->rope[0].interleaved = true;
    sh_status status = read_mla(in, config);
    if (status == SH_OK) status = read_experts(in, config);
    if (status != SH_OK || config->moe.experts == 0) return status;
    /* DeepSeek's own code would then leave the scale out, other implementations do not normalize:
     * refuse instead of choosing between them. */
    if (config->moe.normalize)
        return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                          "%s: 'norm_topk_prob' must be false for deepseek_v2", in->where);
    config->moe.route = SH_ROUTE_SOFTMAX;
    if ((status = sh_read_only(in, "scoring_func", "softmax")) != 0 ||
        (status = sh_json_string(in->json, "topk_method", in->where, &method, in->err)) != 0)
        return status;
    if (strcmp(method, "group_limited_greedy") == 0) return read_groups(in, &config->moe);
    if (strcmp(method, "greedy") == 0) return SH_OK;
    return sh_err_set(in->err, SH_ERR_UNSUPPORTED,
                      "%s: 'topk_method' is '%s', supported are greedy and group_limited_greedy",
                      in->where, method);
}

sh_status sh_family_deepseek_v3(const sh_config_reader *in, sh_config *config)
{
    config->rope[0].interleaved = true;
    sh_status status = sh_read_bool(in, "rope_interleave", &config->rope[0].interleaved);
    if (status == SH_OK) status = read_mla(in, config);
    return status == SH_OK ? read_sigmoid_experts(in, config) : status;
}

sh_status sh_family_glm4_moe(const sh_config_reader *in, sh_config *config)
{
    config->rope[0].dim = config->head_dim / 2;
    sh_status status = sh_read_bool(in, "attention_bias", &config->qkv_bias);
    if (status == SH_OK) status = sh_read_bool(in, "use_qk_norm", &config->qk_norm);
    return status == SH_OK ? read_sigmoid_experts(in, config) : status;
}
