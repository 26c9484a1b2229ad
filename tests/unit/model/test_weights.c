/* Files that do not match config.json: each error names the file, the tensor, what was found and
 * what was expected. */
#include "base/json.h"
#include "rig.h"
#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

/* Copies the config.json of a model with some values changed: "key": value, ... */
static void change_config(const char *model, const char *changes)
{
    sh_err err = {0};
    cJSON *json = NULL, *change = NULL;
    char *from = sh_asprintf("%s/%s/config.json", rig_models_dir(), model);
    char *to = sh_path_join(dir, "config.json"), *braces = sh_asprintf("{%s}", changes);
    CHECK_OK(sh_json_load(from, 1 << 20, &json, &err), err);
    CHECK_OK(sh_json_parse(sh_str_of(braces), "changes", &change, &err), err);
    for (cJSON *item = change->child; item != NULL; item = change->child) {
        cJSON_DetachItemViaPointer(change, item);
        cJSON_DeleteItemFromObject(json, item->string);
        cJSON_AddItemToObject(json, item->string, item);
    }
    char *text = cJSON_Print(json);
    CHECK_OK(sh_file_write(to, text, strlen(text), &err), err);
    cJSON_free(text);
    cJSON_Delete(json);
    cJSON_Delete(change);
    free(from);
    free(to);
    free(braces);
}

static void link_weights(const char *model)
{
    char cwd[512];
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    char *from = rig_models_dir()[0] == '/'
                     ? sh_asprintf("%s/%s/model.safetensors", rig_models_dir(), model)
                     : sh_asprintf("%s/%s/%s/model.safetensors", cwd, rig_models_dir(), model);
    char *to = sh_path_join(dir, "model.safetensors");
    unlink(to);
    assert_int_equal(symlink(from, to), 0);
    free(from);
    free(to);
}

static sh_status load(sh_err *err)
{
    sh_config config;
    sh_device *dev = NULL;
    sh_model *model = NULL;
    sh_device_opts device_opts = {.threads = 1};
    sh_model_opts opts = {.tokens_max = 8, .rows_max = 8, .load = {.threads = 2}};
    sh_status status = sh_config_load(dir, &config, err);
    if (status != SH_OK) return status;
    status = sh_device_open(test_device(), &device_opts, &dev, err);
    sh_shard whole = sh_shard_whole(&config);
    if (status == SH_OK) status = sh_model_load(dir, &config, &whole, dev, &opts, &model, err);
    sh_model_free(model);
    if (dev != NULL) dev->ops->close(dev);
    sh_config_reset(&config);
    return status;
}

TEST(wrong_weights_are_refused_in_one_line)
{
    UNUSED_STATE;
    static const struct {
        const char *model, *changes, *part;
    } cases[] = {
        {"llama-4bit", "\"num_hidden_layers\":3",
         "tensor 'model.layers.2.input_layernorm.weight' is missing"},
        {"llama-4bit", "\"hidden_size\":256",
         "'model.embed_tokens.weight' is U32 [320, 16], expected U32 [320, 32]"},
        {"llama-4bit", "\"vocab_size\":321",
         "'model.embed_tokens.weight' is U32 [320, 16], expected U32 [321, 16]"},
        {"llama-4bit", "\"quantization\":{\"bits\":8,\"group_size\":64}",
         "'model.embed_tokens.weight' is U32 [320, 16], expected U32 [320, 32]"},
        {"llama-4bit", "\"quantization\":{\"bits\":4,\"group_size\":32}",
         "'model.embed_tokens.scales' is BF16 [320, 2], expected F32, F16 or BF16 [320, 4]"},
        {"llama-4bit", "\"quantization\":{\"bits\":4,\"group_size\":64,\"lm_head\":false}",
         "'lm_head' has scales, but config.json says that it is not quantized"},
        {"llama-4bit", "\"quantization\":{\"mode\":\"mxfp4\"}", "expected U8 [320, 4]"},
        {"llama-4bit", "\"attention_bias\":true",
         "tensor 'model.layers.0.self_attn.q_proj.bias' is missing"},
        {"llama-4bit", "\"intermediate_size\":200", "'model.layers.0.mlp.gate_proj.weight'"},
        {"llama-4bit", "\"model_type\":\"qwen3\"", "self_attn.q_norm.weight' is missing"},
        {"llama-f32-bias", "\"hidden_size\":192,\"num_attention_heads\":6", "expected F32"},
        {"mixtral-bf16", "\"num_local_experts\":5",
         "'model.layers.0.block_sparse_moe.gate.weight' is BF16 [4, 128]"},
        {"gpt_oss-hub-mxfp4", "\"intermediate_size\":96",
         "gate_up_proj_blocks' is U8 [4, 128, 4, 16], expected U8 [4, 192, 4, 16]"},
        {"gpt_oss-bf16", "\"intermediate_size\":96", "expected F32, F16 or BF16 [3, 128, 192]"},
        {"deepseek_v3-4bit", "\"kv_lora_rank\":128", "kv_a_proj_with_mqa.weight"},
        {"phi3-longrope-long-4bit", "\"num_key_value_heads\":4", "self_attn.qkv_proj.weight"},
        {"deepseek_v3-4bit", "\"n_shared_experts\":0",
         "mlp.shared_experts.down_proj.biases' is not part of the deepseek_v3 model"},
        {"qwen3-mixed", "\"model_type\":\"llama\"",
         "self_attn.k_norm.weight' is not part of the llama model"},
        {"lfm2-bf16", "\"conv_L_cache\":4",
         "conv.conv.weight' is BF16 [96, 1, 3], expected F32, F16 or BF16 [96, 1, 4]"},
        {"lfm2-long-4bit", "\"conv_L_cache\":3",
         "conv.conv.weight' is BF16 [192, 4, 1], expected F32, F16 or BF16 [192, 3, 1]"},
        {"lfm2-bf16", "\"conv_bias\":false", "conv.conv.bias' is not part of the lfm2 model"},
        {"lfm2-long-4bit", "\"conv_bias\":true", "conv.in_proj.bias' is missing"},
        {"lfm2-long-4bit", "\"full_attn_idxs\":[1]", "conv.in_proj.weight' is missing"},
        {"lfm2-long-4bit", "\"full_attn_idxs\":[0,1]", "self_attn.q_proj.weight' is missing"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_err err = {0};
        change_config(cases[i].model, cases[i].changes);
        link_weights(cases[i].model);
        CHECK_FAILS(load(&err), err, cases[i].part);
    }
}

TEST(a_tied_head_needs_no_tensor)
{
    UNUSED_STATE;
    sh_err err = {0};
    change_config("llama-4bit", "\"tie_word_embeddings\":true");
    link_weights("llama-4bit");
    CHECK_OK(load(&err), err);
    change_config("llama-4bit", "\"tie_word_embeddings\":null");
    CHECK_OK(load(&err), err);
    change_config("gemma3_text-old", "\"tie_word_embeddings\":false");
    link_weights("gemma3_text-old");
    CHECK_FAILS(load(&err), err, "'lm_head.weight' is missing");
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(wrong_weights_are_refused_in_one_line),
        IN_DIR(a_tied_head_needs_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
