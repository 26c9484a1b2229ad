/* The table of supported families. To add one, add a row, and a configure function where the family
 * has keys of its own; code that computes must not look at the name. */
#include "model/family.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const sh_tensor_names NAMES = {
    .mixer_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .attn_out = "self_attn.o_proj",
    .ffn = "mlp",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .last_norm = "norm.weight",
};

static const sh_tensor_names LFM2_NAMES = {
    .mixer_norm = "operator_norm.weight",
    .ffn_norm = "ffn_norm.weight",
    .q_norm = "self_attn.q_layernorm.weight",
    .k_norm = "self_attn.k_layernorm.weight",
    .attn_out = "self_attn.out_proj",
    .ffn = "feed_forward",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .last_norm = "embedding_norm.weight",
};

/* What nearly all families share. */
#define COMMON .names = &NAMES, .norm_eps = "rms_norm_eps"

static const sh_family FAMILIES[] = {
    {COMMON, .model_type = "llama", .configure = sh_family_llama},
    {COMMON, .model_type = "mistral", .configure = sh_family_mistral},
    {COMMON, .model_type = "ministral3", .configure = sh_family_ministral3},
    {COMMON, .model_type = "qwen2", .qkv_bias = true, .configure = sh_family_qwen},
    {COMMON, .model_type = "qwen3", .qk_norm = true, .configure = sh_family_qwen},
    {COMMON, .model_type = "qwen3_moe", .qk_norm = true, .moe_path = "mlp", .router = "gate",
     .configure = sh_family_qwen3_moe},
    {COMMON, .model_type = "mixtral", .moe_path = "block_sparse_moe", .router = "gate",
     .configure = sh_family_mixtral},
    {COMMON, .model_type = "deepseek_v2", .moe_path = "mlp", .router = "gate",
     .configure = sh_family_deepseek_v2},
    {COMMON, .model_type = "deepseek_v3", .moe_path = "mlp", .router = "gate",
     .configure = sh_family_deepseek_v3},
    {COMMON, .model_type = "kimi_k2", .moe_path = "mlp", .router = "gate",
     .configure = sh_family_deepseek_v3},
    {COMMON, .model_type = "glm4_moe", .moe_path = "mlp", .router = "gate",
     .configure = sh_family_glm4_moe},
    {COMMON, .model_type = "phi3", .configure = sh_family_phi3},
    {COMMON, .model_type = "gemma3_text", .qk_norm = true, .configure = sh_family_gemma3},
    {COMMON, .model_type = "gpt_oss", .qkv_bias = true, .moe_path = "mlp", .router = "router",
     .configure = sh_family_gpt_oss},
    {.names = &LFM2_NAMES,
     .norm_eps = "norm_eps",
     .model_type = "lfm2",
     .qk_norm = true,
     .configure = sh_family_lfm2},
};

static const char *const WRAPPERS[] = {"kimi_k25"};

const sh_family *sh_family_find(const char *model_type)
{
    for (size_t i = 0; i < SH_COUNT_OF(FAMILIES); i++)
        if (strcmp(model_type, FAMILIES[i].model_type) == 0) return &FAMILIES[i];
    return NULL;
}

const char *sh_family_list(char *text, size_t cap)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < SH_COUNT_OF(FAMILIES) && len < cap; i++)
        len += (size_t)snprintf(text + len, cap - len, "%s, ", FAMILIES[i].model_type);
    for (size_t i = 0; i < SH_COUNT_OF(WRAPPERS) && len < cap; i++)
        len += (size_t)snprintf(text + len, cap - len, "%s%s", i > 0 ? ", " : "", WRAPPERS[i]);
    return text;
}

bool sh_family_is_wrapper(const char *model_type)
{
    for (size_t i = 0; i < SH_COUNT_OF(WRAPPERS); i++)
        if (strcmp(model_type, WRAPPERS[i]) == 0) return true;
    return false;
}
