/* The inventory of a config names exactly the tensors that real conversions have. */
#include "model/inventory.h"

#include "rig.h"

/* Every item is in the file with that shape; returns how many tensors of the file they account for.
 */
static size_t check_items(const sh_tensors *set, const sh_inventory *inv)
{
    size_t seen = 0;
    for (size_t i = 0; i < inv->count; i++) {
        const sh_item *item = &inv->items[i];
        bool vector = item->kind == SH_ITEM_VECTOR;
        const sh_stored_tensor *t = sh_tensors_find(set, vector ? "%s" : "%s.weight", item->path);
        if (t == NULL) fail_msg("'%s' is not in %s", item->path, sh_tensors_where(set));
        assert_int_equal(t->dims, vector ? 1 : item->stack > 0 ? 3 : 2);
        if (!vector) assert_int_equal(t->shape[t->dims - 2], item->rows);
        if (item->stack > 0) assert_int_equal(t->shape[0], item->stack);
        assert_int_equal(!vector && sh_tensors_find(set, "%s.bias", item->path) != NULL,
                         item->bias);
        seen++;
        seen += item->bias;
        seen += !vector && sh_tensors_find(set, "%s.scales", item->path) != NULL;
        seen += !vector && sh_tensors_find(set, "%s.biases", item->path) != NULL;
    }
    return seen;
}

/* One model; `others` tensors of the file belong to something else. */
static void check_model(const char *dir, size_t others)
{
    sh_err err = {0};
    sh_config config;
    sh_tensors *set = NULL;
    sh_inventory inv;
    CHECK_OK(sh_config_load(dir, &config, &err), err);
    CHECK_OK(sh_tensors_open(dir, &set, &err), err);
    sh_inventory_init(&config, &inv);
    if (check_items(set, &inv) + others != sh_tensors_list(set)->count)
        fail_msg("%s: the file has other tensors too", dir);
    sh_inventory_reset(&inv);
    sh_tensors_close(set);
    sh_config_reset(&config);
}

/* BERT's own pooling, which sentence-transformers replaces, has a weight and a bias. */
TEST(names_all_tensors_of_an_encoder)
{
    UNUSED_STATE;
    check_model("tests/data/encoders/bert-mean", 2);
    check_model("tests/data/encoders/xlm-roberta-cls", 2);
}

TEST(names_all_tensors_of_a_conversion)
{
    UNUSED_STATE;
    static const char *const models[] = {
        "llama-4bit",
        "gpt_oss-long-mxfp4",
        "mixtral-4bit",
        "qwen3_moe-long-4bit",
        "deepseek_v2_lite-long-4bit",
        "deepseek_v2-4bit",
        "glm4_moe-4bit",
        "gemma3_text-long-4bit",
        "qwen2-window",
        "qwen3-mixed",
        "kimi_k2-4bit",
        "lfm2-long-4bit",
        "qwen3_next-long-4bit",
    };
    for (size_t i = 0; i < SH_COUNT_OF(models); i++) {
        char *dir = sh_path_join("tests/data/models", models[i]);
        check_model(dir, 0);
        free(dir);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_all_tensors_of_a_conversion),
                                       cmocka_unit_test(names_all_tensors_of_an_encoder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
