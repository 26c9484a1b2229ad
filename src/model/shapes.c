/* The config.json of a few well-known models, reduced to the keys that sh_config reads. */
#include "model/shapes.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

#define QWEN3(hidden, layers, heads, ffn, tied)                                                    \
    "{\"model_type\":\"qwen3\",\"hidden_size\":" #hidden ",\"num_hidden_layers\":" #layers         \
    ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":8,\"head_dim\":128,"              \
    "\"intermediate_size\":" #ffn ",\"vocab_size\":151936,\"rms_norm_eps\":1e-6,"                  \
    "\"rope_theta\":1000000,\"max_position_embeddings\":40960,\"tie_word_embeddings\":" #tied "}"

#define LLAMA3(hidden, layers, heads, dim, ffn, factor, tied)                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":" #hidden ",\"num_hidden_layers\":" #layers         \
    ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":8,\"head_dim\":" #dim             \
    ",\"intermediate_size\":" #ffn ",\"vocab_size\":128256,\"rms_norm_eps\":1e-5,"                 \
    "\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":" #factor         \
    ",\"low_freq_factor\":1,\"high_freq_factor\":4,\"original_max_position_embeddings\":8192},"    \
    "\"max_position_embeddings\":131072,\"tie_word_embeddings\":" #tied "}"

static const struct {
    const char *name;
    const char *config;
} SHAPES[] = {
    {"qwen3-0.6b", QWEN3(1024, 28, 16, 3072, true)},
    {"llama-3.2-1b", LLAMA3(2048, 16, 32, 64, 8192, 32, true)},
    {"lfm2-1.2b",
     "{\"model_type\":\"lfm2\",\"hidden_size\":2048,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":65536,"
     "\"norm_eps\":1e-5,\"max_position_embeddings\":128000,\"rope_theta\":1000000,"
     "\"block_ff_dim\":12288,\"block_auto_adjust_ff_dim\":true,\"block_multiple_of\":256,"
     "\"block_ffn_dim_multiplier\":1,\"conv_L_cache\":3,\"conv_bias\":false,"
     "\"full_attn_idxs\":[2,5,8,10,12,14],\"tie_embedding\":true}"},
    {"qwen3-4b", QWEN3(2560, 36, 32, 9728, true)},
    {"llama-3.1-8b", LLAMA3(4096, 32, 32, 128, 14336, 8, false)},
    {"qwen3-14b", QWEN3(5120, 40, 40, 17408, false)},
    {"deepseek-v2-lite",
     "{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"num_hidden_layers\":27,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"intermediate_size\":10944,"
     "\"vocab_size\":102400,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":163840,"
     "\"tie_word_embeddings\":false,\"q_lora_rank\":null,\"kv_lora_rank\":512,"
     "\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,"
     "\"n_routed_experts\":64,\"n_shared_experts\":2,\"num_experts_per_tok\":6,"
     "\"moe_intermediate_size\":1408,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"
     "\"n_group\":1,\"topk_group\":1,\"topk_method\":\"greedy\",\"scoring_func\":\"softmax\","
     "\"routed_scaling_factor\":1,\"norm_topk_prob\":false,\"rope_theta\":10000,"
     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"beta_fast\":32,\"beta_slow\":1,"
     "\"mscale\":0.707,\"mscale_all_dim\":0.707,\"original_max_position_embeddings\":4096}}"},
    {"qwen3-30b-a3b",
     "{\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,\"num_hidden_layers\":48,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,"
     "\"intermediate_size\":6144,\"vocab_size\":151936,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":1000000,\"max_position_embeddings\":40960,\"tie_word_embeddings\":false,"
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,"
     "\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"norm_topk_prob\":true}"},
    {"gpt-oss-20b",
     "{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,"
     "\"intermediate_size\":2880,\"vocab_size\":201088,\"rms_norm_eps\":1e-5,"
     "\"max_position_embeddings\":131072,\"tie_word_embeddings\":false,\"sliding_window\":128,"
     "\"num_local_experts\":32,\"num_experts_per_tok\":4,\"rope_theta\":150000,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,"
     "\"truncate\":false,\"original_max_position_embeddings\":4096}}"},
};

const char *sh_shape_find(const char *name)
{
    for (size_t i = 0; i < SH_COUNT_OF(SHAPES); i++)
        if (strcmp(name, SHAPES[i].name) == 0) return SHAPES[i].config;
    return NULL;
}

const char *sh_shape_list(char *text, size_t cap)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < SH_COUNT_OF(SHAPES) && len < cap; i++)
        len += (size_t)snprintf(text + len, cap - len, "%s%s", i > 0 ? ", " : "", SHAPES[i].name);
    return text;
}
