#include "model/config.h"
#include "model/family.h"
#include "model/rope.h"

#include "base/alloc.h"

#include "test.h"

#include <math.h>

/* The smallest config that every dense family accepts. */
#define NO_EPS                                                                                     \
    "\"hidden_size\":128,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":320,"    \
    "\"intermediate_size\":256,\"num_key_value_heads\":2,\"max_position_embeddings\":512"
#define SHAPE NO_EPS ",\"rms_norm_eps\":1e-5"
#define MLA ",\"kv_lora_rank\":64,\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32"
#define EXPERTS ",\"n_routed_experts\":8,\"num_experts_per_tok\":4,\"moe_intermediate_size\":64"
#define QWEN3_NEXT                                                                                 \
    "\"model_type\":\"qwen3_next\"," SHAPE ",\"num_experts\":4,\"num_experts_per_tok\":2,"         \
    "\"moe_intermediate_size\":64,\"shared_expert_intermediate_size\":64"
#define DELTA ",\"linear_num_key_heads\":2,\"linear_key_head_dim\":16,\"linear_value_head_dim\":32"
#define LFM2 "\"model_type\":\"lfm2\"," NO_EPS ",\"norm_eps\":1e-5"
#define LLAMA "\"model_type\":\"llama\"," SHAPE

static sh_status parse(const char *text, sh_config *config, sh_err *err)
{
    return sh_config_parse(sh_str_of(text), "config.json", config, err);
}

TEST(defaults_of_llama)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{" LLAMA "}", &c, &err), err);
    assert_int_equal(c.head_dim, 32);
    assert_int_equal(c.v_dim, 32);
    assert_int_equal(c.kv_heads, 2);
    assert_int_equal(c.tied, SH_TIED_UNSPECIFIED);
    assert_int_equal(c.rope_count, 1);
    assert_int_equal(c.rope[0].kind, SH_ROPE_DEFAULT);
    assert_int_equal(c.rope[0].dim, 32);
    assert_true(c.rope[0].theta == 10000);
    assert_int_equal(sh_config_kv_width(&c, 0), 2 * 64);
    for (int i = 0; i < 4; i++) assert_int_equal(c.layer[i].window, 0);
    sh_config_reset(&c);
}

/* The defaults of transformers for keys that the file does not have. */
TEST(families_have_their_own_rope_when_none_is_given)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{\"model_type\":\"mixtral\"," SHAPE ",\"num_local_experts\":4,"
                   "\"num_experts_per_tok\":2}",
                   &c, &err),
             err);
    assert_true(c.rope[0].theta == 1000000);
    sh_config_reset(&c);
    CHECK_OK(parse("{\"model_type\":\"glm4_moe\"," SHAPE EXPERTS ",\"n_group\":1,\"topk_group\":1,"
                   "\"routed_scaling_factor\":1}",
                   &c, &err),
             err);
    assert_int_equal(c.rope[0].dim, c.head_dim / 2);
    sh_config_reset(&c);
    CHECK_OK(
        parse("{\"model_type\":\"deepseek_v2\"," SHAPE MLA ",\"rope_interleave\":false}", &c, &err),
        err);
    assert_true(c.rope[0].interleaved);
    sh_config_reset(&c);
}

TEST(encoders_are_read_as_the_hub_has_them)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{\"model_type\":\"nomic_bert\",\"n_embd\":64,\"n_layer\":2,\"n_head\":4,"
                   "\"n_inner\":128,\"n_positions\":2048,\"vocab_size\":320,"
                   "\"layer_norm_epsilon\":1e-12,\"activation_function\":\"swiglu\","
                   "\"rotary_emb_base\":1000,\"rotary_emb_fraction\":1.0,\"prenorm\":false,"
                   "\"qkv_proj_bias\":false,\"type_vocab_size\":2}",
                   &c, &err),
             err);
    assert_true(c.bidirectional && c.headless && c.layer_norm && c.post_norm && c.ffn_gate);
    assert_int_equal(c.hidden, 64);
    assert_int_equal(c.ffn, 128);
    assert_int_equal(c.context, 2048);
    assert_int_equal(c.types, 2);
    assert_int_equal(c.act, SH_ACT_SILU);
    assert_true(c.rope_count == 1 && c.rope[0].theta == 1000);
    sh_config_reset(&c);
    CHECK_OK(parse("{\"model_type\":\"xlm-roberta\"," SHAPE ",\"layer_norm_eps\":1e-5,"
                   "\"type_vocab_size\":1}",
                   &c, &err),
             err);
    assert_int_equal(c.position_offset, 2);
    assert_int_equal(c.positions, 512);
    assert_int_equal(c.context, 510);
    assert_int_equal(c.rope_count, 0);
    sh_config_reset(&c);
    CHECK_OK(parse("{\"model_type\":\"modernbert\"," SHAPE ",\"norm_eps\":1e-5,"
                   "\"local_attention\":128,\"global_attn_every_n_layers\":3,"
                   "\"global_rope_theta\":160000.0,\"local_rope_theta\":10000.0}",
                   &c, &err),
             err);
    for (int i = 0; i < 4; i++) assert_int_equal(c.layer[i].window, i % 3 == 0 ? 0 : 65);
    assert_true(c.rope[0].theta == 160000 && c.rope[1].theta == 10000 && c.layer[1].rope == 1);
    sh_config_reset(&c);
}

/* Without a head, or with attention to both sides, a decoder makes embeddings. */
TEST(decoders_may_be_made_for_embeddings)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{" LLAMA ",\"architectures\":[\"LlamaModel\"]}", &c, &err), err);
    assert_true(c.headless && !c.bidirectional);
    sh_config_reset(&c);
    CHECK_OK(parse("{" LLAMA ",\"architectures\":[\"LlamaForCausalLM\"]}", &c, &err), err);
    assert_false(c.headless);
    sh_config_reset(&c);
    CHECK_OK(parse("{" LLAMA ",\"is_causal\":false}", &c, &err), err);
    assert_true(c.headless && c.bidirectional);
    sh_config_reset(&c);
    CHECK_OK(parse("{\"model_type\":\"gemma3_text\"," SHAPE
                   ",\"use_bidirectional_attention\":true,\"sliding_window\":512}",
                   &c, &err),
             err);
    assert_true(c.headless && c.bidirectional);
    assert_int_equal(c.layer[0].window, 257);
    sh_config_reset(&c);
}

TEST(bad_configs_are_refused_in_one_line)
{
    UNUSED_STATE;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[]", "must be a JSON object"},
        {"{}", "model_type"},
        {"{\"model_type\":\"gpt2\"}", "supported are llama, mistral, ministral3, qwen2"},
        {"{\"model_type\":7}", "'model_type'"},
        {"{" LLAMA ",\"head_dim\":NaN}", "config.json"},
        {"{\"model_type\":\"llama\"," NO_EPS "}", "'rms_norm_eps' is missing"},
        {"{\"model_type\":\"llama\"," NO_EPS ",\"rms_norm_eps\":1e999}", "config.json"},
        {"{\"model_type\":\"llama\"," NO_EPS ",\"rms_norm_eps\":-1}", "'rms_norm_eps'"},
        {"{" LLAMA ",\"head_dim\":33}", "must be even"},
        {"{" LLAMA ",\"head_dim\":1.5}", "'head_dim'"},
        {"{" LLAMA ",\"hidden_act\":\"relu\"}", "'hidden_act' is 'relu'"},
        {"{" LLAMA ",\"rope_theta\":\"x\"}", "'rope_theta'"},
        {"{" LLAMA ",\"rope_theta\":0}", "'rope_theta'"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", "RoPE type 'dynamic'"},
        {"{" LLAMA ",\"rope_scaling\":3}", "RoPE parameters must be an object"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":-2}}", "'factor'"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"llama3\",\"low_freq_factor\":4,"
         "\"high_freq_factor\":1,\"factor\":8}}",
         "must be under"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\"}}", "'short_factor' must be"},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1]}}",
         "'short_factor' must be an array of 16 numbers"},
        {"{" LLAMA ",\"layer_types\":[\"full_attention\"]}", "'layer_types' must be an array of 4"},
        {"{" LLAMA ",\"layer_types\":[\"full_attention\",\"a\",\"b\",\"c\"]}", "has 'a'"},
        {"{" LLAMA ",\"quantization\":{\"bits\":7}}", "7 bits in groups of 64"},
        {"{" LLAMA ",\"quantization\":{\"group_size\":48}}", "4 bits in groups of 48"},
        {"{" LLAMA ",\"quantization\":{\"mode\":\"q4_k\"}}", "mode 'q4_k'"},
        {"{" LLAMA ",\"quantization\":{\"mode\":\"mxfp4\",\"bits\":8}}", "mxfp4 with 8 bits"},
        {"{" LLAMA ",\"quantization_config\":{\"quant_method\":\"gptq\"}}", "'gptq'"},
        {"{\"model_type\":\"llama\",\"hidden_size\":1e300}", "'hidden_size'"},
        {"{\"model_type\":\"llama\",\"hidden_size\":128}", "'num_hidden_layers'"},
        {"{\"model_type\":\"qwen3_moe\"," SHAPE "}", "num_local_experts"},
        {"{\"model_type\":\"qwen3_moe\"," SHAPE ",\"num_experts\":4,\"num_experts_per_tok\":5,"
         "\"moe_intermediate_size\":64}",
         "'num_experts_per_tok'"},
        {"{\"model_type\":\"deepseek_v3\"," SHAPE "}", "'kv_lora_rank'"},
        {"{\"model_type\":\"deepseek_v3\"," SHAPE MLA EXPERTS
         ",\"n_group\":4,\"topk_group\":1,\"routed_scaling_factor\":1}",
         "8 experts in 4 groups"},
        {"{\"model_type\":\"deepseek_v3\"," SHAPE MLA EXPERTS ",\"n_group\":1,\"topk_group\":1}",
         "'routed_scaling_factor' is missing"},
        {"{\"model_type\":\"glm4_moe\"," SHAPE EXPERTS ",\"routed_scaling_factor\":1}",
         "'n_group' is missing"},
        {"{\"model_type\":\"deepseek_v2\"," SHAPE MLA EXPERTS ",\"norm_topk_prob\":true}",
         "'norm_topk_prob' must be false"},
        {"{\"model_type\":\"ministral3\"," SHAPE "}", "'rope_parameters' is missing"},
        {"{\"model_type\":\"bert\"," SHAPE ",\"layer_norm_eps\":1e-5,"
         "\"position_embedding_type\":\"relative_key\"}",
         "'position_embedding_type' is 'relative_key'"},
        {"{\"model_type\":\"bert\"," SHAPE ",\"layer_norm_eps\":1e-5,\"hidden_act\":\"relu6\"}",
         "'hidden_act' is 'relu6'"},
        {"{\"model_type\":\"bert\"," SHAPE ",\"layer_norm_eps\":1e-5,\"is_decoder\":true}",
         "'is_decoder' is true"},
        {"{\"model_type\":\"roberta\"," SHAPE ",\"layer_norm_eps\":1e-5,"
         "\"pad_token_id\":600}",
         "leaves no position"},
        {"{\"model_type\":\"nomic_bert\"," SHAPE ",\"layer_norm_eps\":1e-5,\"prenorm\":true}",
         "'prenorm' is true"},
        {"{" LFM2 ",\"is_causal\":false,"
         "\"layer_types\":[\"conv\",\"conv\",\"full_attention\",\"conv\"]}",
         "attention to later tokens"},
        {"{\"model_type\":\"kimi_k25\"}", "needs an object 'text_config'"},
        {"{\"model_type\":\"gemma3_text\"," SHAPE ",\"final_logit_softcapping\":30}",
         "'final_logit_softcapping' must be null"},
        {"{\"model_type\":\"gpt_oss\"," SHAPE ",\"num_local_experts\":4,"
         "\"num_experts_per_tok\":2,\"swiglu_limit\":9}",
         "'swiglu_limit' is 9"},
        {"{\"model_type\":\"gpt_oss\"," SHAPE ",\"num_local_experts\":4,"
         "\"num_experts_per_tok\":2}",
         "'rope_parameters' is missing"},
        {"{\"model_type\":\"lfm2\"," SHAPE "}", "'norm_eps' is missing"},
        {"{" LFM2 ",\"conv_L_cache\":17}", "'conv_L_cache'"},
        {"{" LFM2 ",\"conv_L_cache\":1}", "'conv_L_cache'"},
        {"{" LFM2 ",\"conv_bias\":3}", "'conv_bias'"},
        {"{" LFM2 ",\"conv_dim\":64}", "'conv_dim'"},
        {"{" LFM2 ",\"full_attn_idxs\":3}", "'full_attn_idxs' must be an array"},
        {"{" LFM2 ",\"full_attn_idxs\":[0,-1]}", "'full_attn_idxs' must hold layer numbers"},
        {"{" LFM2 ",\"layer_types\":[\"conv\",\"conv\",\"conv\",\"sliding_attention\"]}",
         "has 'sliding_attention', supported are full_attention and conv"},
        {"{" LLAMA ",\"layer_types\":[\"conv\",\"conv\",\"conv\",\"conv\"]}",
         "has 'conv', supported are full_attention and sliding_attention"},
        {"{" QWEN3_NEXT "}", "'linear_num_key_heads' is missing"},
        {"{" QWEN3_NEXT DELTA ",\"linear_num_value_heads\":3}",
         "3 value heads of 32 for 2 key heads"},
        {"{" QWEN3_NEXT DELTA ",\"linear_num_value_heads\":32}", "supported are 1 to 8"},
        {"{" QWEN3_NEXT ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":2,"
         "\"linear_key_head_dim\":24,\"linear_value_head_dim\":32}",
         "multiples of 16"},
        {"{" QWEN3_NEXT DELTA ",\"linear_num_value_heads\":4,\"linear_conv_kernel_dim\":1}",
         "'linear_conv_kernel_dim'"},
        {"{" QWEN3_NEXT DELTA ",\"linear_num_value_heads\":4,"
         "\"layer_types\":[\"conv\",\"conv\",\"conv\",\"conv\"]}",
         "has 'conv', supported are full_attention and linear_attention"},
        {"{" LFM2 ",\"block_multiple_of\":1048576,\"block_ff_dim\":1048576,"
         "\"block_ffn_dim_multiplier\":8}",
         "the feed-forward would be 6291456 wide"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_config c;
        CHECK_FAILS(parse(cases[i].text, &c, &err), err, cases[i].part);
    }
}

TEST(heads_must_divide)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_FAILS(parse("{\"model_type\":\"llama\",\"hidden_size\":96,\"num_hidden_layers\":1,"
                      "\"num_attention_heads\":3,\"num_key_value_heads\":2,\"vocab_size\":9,"
                      "\"intermediate_size\":64,\"rms_norm_eps\":1e-5}",
                      &c, &err),
                err, "not a multiple");
}

static void same_rope(const char *old_text, const char *new_text)
{
    sh_err err = {0};
    sh_config a, b;
    sh_rope ra, rb;
    float fa[16], fb[16];
    CHECK_OK(parse(old_text, &a, &err), err);
    CHECK_OK(parse(new_text, &b, &err), err);
    assert_int_equal(a.rope_count, b.rope_count);
    for (int i = 0; i < a.rope_count; i++) {
        sh_rope_init(&a.rope[i], true, fa, &ra);
        sh_rope_init(&b.rope[i], true, fb, &rb);
        assert_memory_equal(fa, fb, sizeof(fa));
        assert_true(ra.scale == rb.scale);
        assert_int_equal(ra.interleaved, rb.interleaved);
    }
    for (int i = 0; i < a.layers; i++) assert_int_equal(a.layer[i].window, b.layer[i].window);
    sh_config_reset(&a);
    sh_config_reset(&b);
}

TEST(old_and_new_spelling_say_the_same)
{
    UNUSED_STATE;
    same_rope("{" LLAMA
              ",\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
              "\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":64}}",
              "{" LLAMA ",\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"llama3\","
              "\"factor\":8,\"original_max_position_embeddings\":64}}");
    same_rope("{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
              "\"original_max_position_embeddings\":128}}",
              "{" LLAMA ",\"rope_parameters\":{\"rope_theta\":10000,\"rope_type\":\"yarn\","
              "\"original_max_position_embeddings\":128}}");
    same_rope("{\"model_type\":\"gemma3_text\"," SHAPE ",\"rope_theta\":1e6,\"sliding_window\":8,"
              "\"rope_local_base_freq\":10000,\"rope_scaling\":{\"rope_type\":\"linear\","
              "\"factor\":8},\"sliding_window_pattern\":3}",
              "{\"model_type\":\"gemma3_text\"," SHAPE ",\"sliding_window\":8,\"layer_types\":"
              "[\"sliding_attention\",\"sliding_attention\",\"full_attention\","
              "\"sliding_attention\"],\"rope_parameters\":{\"full_attention\":"
              "{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":1e6},\"sliding_attention\":"
              "{\"rope_type\":\"default\",\"rope_theta\":10000}}}");
}

/* Reference values from the functions of transformers (modeling_rope_utils, f32). */
TEST(frequencies_are_those_of_transformers)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        float first, middle, last, scale;
    } cases[] = {
        {"{" LLAMA ",\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"llama3\",\"factor\":8,"
         "\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":64}}",
         1.0F, 0.00017677668F, 5.6770881e-07F, 1.0F},
        {"{" LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4,"
         "\"original_max_position_embeddings\":64}}",
         1.0F, 0.0025F, 4.4456985e-05F, 1.1386294F},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_config c;
        sh_rope rope;
        float freq[16];
        CHECK_OK(parse(cases[i].text, &c, &err), err);
        sh_rope_init(&c.rope[0], false, freq, &rope);
        assert_float_equal(freq[0], cases[i].first, 1e-6F);
        assert_float_equal(freq[8] / cases[i].middle, 1, 1e-5F);
        assert_float_equal(freq[15] / cases[i].last, 1, 1e-5F);
        assert_float_equal(rope.scale, cases[i].scale, 1e-5F);
        sh_config_reset(&c);
    }
}

TEST(windows_follow_each_family)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        int window[4];
    } cases[] = {
        {"{" LLAMA ",\"sliding_window\":8}", {0, 0, 0, 0}},
        {"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":8}", {8, 8, 8, 8}},
        {"{\"model_type\":\"mistral\"," SHAPE ",\"sliding_window\":null}", {0, 0, 0, 0}},
        {"{\"model_type\":\"qwen2\"," SHAPE ",\"sliding_window\":8}", {0, 0, 0, 0}},
        {"{\"model_type\":\"qwen2\"," SHAPE
         ",\"sliding_window\":8,\"use_sliding_window\":true,\"max_window_layers\":3}",
         {0, 0, 0, 8}},
        {"{\"model_type\":\"gpt_oss\"," SHAPE
         ",\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":16,"
         "\"rope_parameters\":{}}",
         {16, 0, 16, 0}},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_config c;
        CHECK_OK(parse(cases[i].text, &c, &err), err);
        for (int l = 0; l < 4; l++) assert_int_equal(c.layer[l].window, cases[i].window[l]);
        sh_config_reset(&c);
    }
}

TEST(convolutions_take_the_place_of_attention_where_the_file_says)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        bool conv[4];
    } cases[] = {
        {"{" LFM2 "}", {false, false, false, false}},
        {"{" LFM2 ",\"full_attn_idxs\":[1,3,9]}", {true, false, true, false}},
        {"{" LFM2 ",\"full_attn_idxs\":[]}", {true, true, true, true}},
        {"{" LFM2 ",\"layer_types\":[\"conv\",\"conv\",\"full_attention\",\"conv\"]}",
         {true, true, false, true}},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_config c;
        bool any = false;
        CHECK_OK(parse(cases[i].text, &c, &err), err);
        for (int l = 0; l < 4; l++) {
            bool conv = cases[i].conv[l];
            any = any || conv;
            assert_int_equal(c.layer[l].mixer, conv ? SH_MIXER_SHORT_CONV : SH_MIXER_ATTENTION);
            assert_int_equal(sh_config_kv_width(&c, l), conv ? 0 : 2 * 64);
            assert_int_equal(sh_config_state_width(&c, l), conv ? 128 * 2 : 0);
        }
        assert_int_equal(sh_config_has_fixed_state(&c), any);
        sh_config_reset(&c);
    }
}

/* As transformers computes it, and as its older files and MLX's say it. */
TEST(the_feed_forward_of_lfm2_is_derived_from_a_nominal_width)
{
    UNUSED_STATE;
    static const struct {
        const char *text;
        int ffn;
    } cases[] = {
        {"{" LFM2 "}", 256}, /* 2/3 of 256 is 170, up to a multiple of 256 */
        {"{" LFM2 ",\"block_auto_adjust_ff_dim\":false,\"block_ff_dim\":300}", 300},
        {"{" LFM2 ",\"block_ff_dim\":12288}", 8192},
        {"{" LFM2 ",\"block_ff_dim\":1000,\"block_multiple_of\":10,"
         "\"block_ffn_dim_multiplier\":1.3}",
         870},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        sh_config c;
        CHECK_OK(parse(cases[i].text, &c, &err), err);
        assert_int_equal(c.ffn, cases[i].ffn);
        assert_int_equal(c.tied, SH_TIED_YES);
        assert_true(c.rope[0].theta == 1000000);
        sh_config_reset(&c);
    }
}

TEST(every_fourth_layer_of_qwen3_next_has_attention)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{" QWEN3_NEXT DELTA ",\"linear_num_value_heads\":4}", &c, &err), err);
    for (int i = 0; i < c.layers; i++)
        assert_int_equal(c.layer[i].mixer,
                         (i + 1) % 4 == 0 ? SH_MIXER_ATTENTION : SH_MIXER_DELTA_NET);
    assert_true(sh_config_has_fixed_state(&c));
    assert_int_equal(sh_config_state_width(&c, 0), (2 * 2 * 16 + 4 * 32) * 3 + 4 * 16 * 32);
    assert_int_equal(sh_config_kv_width(&c, 0), 0);
    assert_int_equal(c.rope[0].dim, c.head_dim / 4);
    CHECK_OK(sh_config_take_mtp(&c, &err), err);
    assert_int_equal(c.layer[0].mixer, SH_MIXER_ATTENTION);
    assert_false(sh_config_has_fixed_state(&c));
    sh_config_reset(&c);
}

TEST(quantization_has_exceptions_by_module)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_config c;
    CHECK_OK(parse("{" LLAMA ",\"quantization\":{\"group_size\":64,\"bits\":4,"
                   "\"lm_head\":false,\"a.b\":true,\"a.c\":{\"group_size\":32,\"bits\":6},"
                   "\"a.d\":{\"mode\":\"mxfp4\",\"group_size\":32,\"bits\":4}}}",
                   &c, &err),
             err);
    assert_null(sh_config_quant(&c, "lm_head"));
    assert_int_equal(sh_config_quant(&c, "a.b")->bits, 4);
    assert_int_equal(sh_config_quant(&c, "a.c")->bits, 6);
    assert_int_equal(sh_config_quant(&c, "a.c")->group, 32);
    assert_int_equal(sh_config_quant(&c, "a.d")->format, SH_FORMAT_MXFP4);
    assert_int_equal(sh_config_quant(&c, "anything")->group, 64);
    sh_config_reset(&c);
    CHECK_OK(parse("{" LLAMA "}", &c, &err), err);
    assert_null(sh_config_quant(&c, "anything"));
    sh_config_reset(&c);
}

TEST(every_known_model_type_is_found)
{
    UNUSED_STATE;
    static const char *const types[] = {
        "llama",       "mistral",     "ministral3",  "qwen2",      "qwen3",    "qwen3_moe",
        "mixtral",     "deepseek_v2", "deepseek_v3", "kimi_k2",    "glm4_moe", "phi3",
        "gemma3_text", "gpt_oss",     "lfm2",        "qwen3_next",
    };
    for (size_t i = 0; i < SH_COUNT_OF(types); i++) assert_non_null(sh_family_find(types[i]));
    assert_null(sh_family_find("gpt2"));
    assert_true(sh_family_is_wrapper("kimi_k25"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_of_llama),
        cmocka_unit_test(families_have_their_own_rope_when_none_is_given),
        cmocka_unit_test(encoders_are_read_as_the_hub_has_them),
        cmocka_unit_test(decoders_may_be_made_for_embeddings),
        cmocka_unit_test(bad_configs_are_refused_in_one_line),
        cmocka_unit_test(heads_must_divide),
        cmocka_unit_test(old_and_new_spelling_say_the_same),
        cmocka_unit_test(frequencies_are_those_of_transformers),
        cmocka_unit_test(windows_follow_each_family),
        cmocka_unit_test(convolutions_take_the_place_of_attention_where_the_file_says),
        cmocka_unit_test(the_feed_forward_of_lfm2_is_derived_from_a_nominal_width),
        cmocka_unit_test(every_fourth_layer_of_qwen3_next_has_attention),
        cmocka_unit_test(quantization_has_exceptions_by_module),
        cmocka_unit_test(every_known_model_type_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
