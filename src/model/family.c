/* The table of supported families. To add one, add a row, and a configure function where the family
 * has keys of its own; code that computes must not look at the name. */
#include "model/family.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

static const sh_tensor_names NAMES = {
    .stem = "model.",
    .embed = "embed_tokens",
    .layers = "layers.",
    .attention = "self_attn.",
    .qkv = "self_attn.qkv_proj",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .mixer_norm = "input_layernorm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .attn_out = "self_attn.o_proj",
    .ffn = "mlp",
    .gate_up = "gate_up_proj",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .last_norm = "norm.weight",
};

static const sh_tensor_names LFM2_NAMES = {
    .stem = "model.",
    .embed = "embed_tokens",
    .layers = "layers.",
    .attention = "self_attn.",
    .qkv = "self_attn.qkv_proj",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .mixer_norm = "operator_norm.weight",
    .ffn_norm = "ffn_norm.weight",
    .q_norm = "self_attn.q_layernorm.weight",
    .k_norm = "self_attn.k_layernorm.weight",
    .attn_out = "self_attn.out_proj",
    .ffn = "feed_forward",
    .gate_up = "gate_up_proj",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .last_norm = "embedding_norm.weight",
};

/* bert, roberta and its descendants. */
static const sh_tensor_names BERT_NAMES = {
    .stem = "",
    .embed = "embeddings.word_embeddings",
    .embed_norm = "embeddings.LayerNorm.weight",
    .positions = "embeddings.position_embeddings",
    .types = "embeddings.token_type_embeddings",
    .layers = "encoder.layer.",
    .attention = "attention.",
    .qkv = "attention.self.qkv",
    .q = "attention.self.query",
    .k = "attention.self.key",
    .v = "attention.self.value",
    .mixer_norm = "attention.output.LayerNorm.weight",
    .ffn_norm = "output.LayerNorm.weight",
    .attn_out = "attention.output.dense",
    .gate = "intermediate.dense",
    .down = "output.dense",
};

static const sh_tensor_names NOMIC_NAMES = {
    .stem = "",
    .embed = "embeddings.word_embeddings",
    .embed_norm = "emb_ln.weight",
    .types = "embeddings.token_type_embeddings",
    .layers = "encoder.layers.",
    .attention = "attn.",
    .qkv = "attn.Wqkv",
    .q = "attn.q_proj",
    .k = "attn.k_proj",
    .v = "attn.v_proj",
    .mixer_norm = "norm1.weight",
    .ffn_norm = "norm2.weight",
    .attn_out = "attn.out_proj",
    .ffn = "mlp",
    .gate_up = "fc1",
    .gate = "fc12",
    .up = "fc11",
    .down = "fc2",
};

static const sh_tensor_names MODERNBERT_NAMES = {
    .stem = "",
    .embed = "embeddings.tok_embeddings",
    .embed_norm = "embeddings.norm.weight",
    .layers = "layers.",
    .attention = "attn.",
    .qkv = "attn.Wqkv",
    .q = "attn.q_proj",
    .k = "attn.k_proj",
    .v = "attn.v_proj",
    .mixer_norm = "attn_norm.weight",
    .ffn_norm = "mlp_norm.weight",
    .attn_out = "attn.Wo",
    .ffn = "mlp",
    .gate_up = "Wi",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "Wo",
    .last_norm = "final_norm.weight",
};

static const sh_mtp_names MTP_NAMES = {
    .embed_norm = "enorm.weight",
    .hidden_norm = "hnorm.weight",
    .join = "eh_proj",
    .last_norm = "shared_head.norm.weight",
    .embed = "embed_tokens",
    .head = "shared_head.head",
};

static const sh_mtp_names QWEN_MTP_NAMES = {
    .module = "mtp.",
    .embed_norm = "pre_fc_norm_embedding.weight",
    .hidden_norm = "pre_fc_norm_hidden.weight",
    .join = "fc",
    .last_norm = "norm.weight",
    .embed = "embed_tokens",
    .head = "lm_head",
};

/* What nearly all families share. */
#define COMMON .names = &NAMES, .norm_eps = "rms_norm_eps"
#define DEEPSEEK COMMON, .moe_path = "mlp", .router = "gate", .shared = "shared_experts"
#define BERT .names = &BERT_NAMES, .norm_eps = "layer_norm_eps", .encoder = true, .qkv_bias = true

static const sh_family FAMILIES[] = {
    {COMMON, .model_type = "llama", .configure = sh_family_llama},
    {COMMON, .model_type = "mistral", .configure = sh_family_mistral},
    {COMMON, .model_type = "ministral3", .configure = sh_family_ministral3},
    {COMMON, .model_type = "qwen2", .qkv_bias = true, .configure = sh_family_qwen},
    {COMMON, .model_type = "qwen3", .qk_norm = true, .configure = sh_family_qwen},
    {COMMON, .model_type = "qwen3_moe", .qk_norm = true, .moe_path = "mlp", .router = "gate",
     .configure = sh_family_qwen3_moe},
    {COMMON, .model_type = "qwen3_next", .qk_norm = true, .moe_path = "mlp", .router = "gate",
     .shared = "shared_expert", .mtp = &QWEN_MTP_NAMES, .configure = sh_family_qwen3_next},
    {COMMON, .model_type = "mixtral", .moe_path = "block_sparse_moe", .router = "gate",
     .configure = sh_family_mixtral},
    {DEEPSEEK, .model_type = "deepseek_v2", .configure = sh_family_deepseek_v2},
    {DEEPSEEK, .model_type = "deepseek_v3", .mtp = &MTP_NAMES, .configure = sh_family_deepseek_v3},
    {DEEPSEEK, .model_type = "kimi_k2", .mtp = &MTP_NAMES, .configure = sh_family_deepseek_v3},
    {DEEPSEEK, .model_type = "glm4_moe", .mtp = &MTP_NAMES, .configure = sh_family_glm4_moe},
    {COMMON, .model_type = "phi3", .configure = sh_family_phi3},
    {COMMON, .model_type = "gemma3_text", .qk_norm = true, .configure = sh_family_gemma3},
    {COMMON, .model_type = "gpt_oss", .qkv_bias = true, .moe_path = "mlp", .router = "router",
     .configure = sh_family_gpt_oss},
    {.names = &LFM2_NAMES,
     .norm_eps = "norm_eps",
     .model_type = "lfm2",
     .qk_norm = true,
     .configure = sh_family_lfm2},
    {BERT, .model_type = "bert", .configure = sh_family_bert},
    {BERT, .model_type = "roberta", .configure = sh_family_roberta},
    {BERT, .model_type = "xlm-roberta", .configure = sh_family_roberta},
    {BERT, .model_type = "camembert", .configure = sh_family_roberta},
    {.names = &NOMIC_NAMES,
     .norm_eps = "layer_norm_eps",
     .encoder = true,
     .model_type = "nomic_bert",
     .configure = sh_family_nomic_bert},
    {.names = &MODERNBERT_NAMES,
     .norm_eps = "norm_eps",
     .encoder = true,
     .model_type = "modernbert",
     .configure = sh_family_modernbert},
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
