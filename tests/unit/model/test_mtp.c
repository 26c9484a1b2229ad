/* Multi-token-prediction layers against logits that were computed from the same weights with the
 * decoder layers of Hugging Face transformers in f32, and the formula of DeepSeek's report around
 * them. mtp_ids are the tokens of the layer: those of the sequence but the first, then drafts, each
 * the best guess after the one before. The outputs that they go with are the model's, then the
 * layer's own. */
#include "rig.h"

static const double EXACT_MAX = 0.001; /* in standard deviations of the logits */

static const char *const MODELS[] = {"deepseek_v3-mtp-bf16", "glm4_moe-mtp-4bit",
                                     "qwen3_next-mtp-bf16"};

static rig mtp_open(const char *dir, bool exact)
{
    sh_err err = {0};
    rig r = {.config = sh_alloc(sizeof(*r.config))};
    sh_device_opts opts_dev = {.threads = 1,
                               .level = getenv("SHOAL_CPU"),
                               .activations = exact ? SH_ACTIVATIONS_F32 : SH_ACTIVATIONS_INT8};
    sh_model_opts opts = {.tokens_max = RIG_TOKENS,
                          .rows_max = RIG_TOKENS,
                          .kv_format = exact ? SH_KV_F32 : SH_KV_F16,
                          .load = {.threads = 1, .exact = exact}};
    CHECK_OK(sh_config_load(dir, r.config, &err), err);
    CHECK_OK(sh_config_take_mtp(r.config, &err), err);
    sh_shard whole = sh_shard_whole(r.config);
    CHECK_OK(sh_device_open(test_device(), &opts_dev, &r.dev, &err), err);
    CHECK_OK(sh_model_load(dir, r.config, &whole, r.dev, &opts, &r.model, &err), err);
    CHECK_OK(sh_model_reserve_kv(r.model, RIG_BLOCKS, &err), err);
    return r;
}

/* Runs tokens of a sequence, and gives the output of each and, where wanted, its logits. */
static void run(const rig *r, const int32_t *ids, int pos, int count, float *outputs, float *logits)
{
    sh_err err = {0};
    int32_t blocks[RIG_BLOCKS], rows[RIG_TOKENS];
    for (int i = 0; i < RIG_BLOCKS; i++) blocks[i] = (i * 13) % RIG_BLOCKS;
    for (int i = 0; i < count; i++) rows[i] = i;
    sh_span span = {.count = count, .pos = pos, .blocks = blocks};
    sh_forward_input in = {.batch = {.tokens = count,
                                     .ids = ids + pos,
                                     .span_count = 1,
                                     .spans = &span,
                                     .rows = rows,
                                     .row_count = logits == NULL ? 0 : count},
                           .pooled = true};
    sh_logits out;
    CHECK_OK(sh_model_step(r->model, &in, NULL, &out, &err), err);
    r->dev->ops->read_rows(r->dev, sh_model_output(r->model), 0, count, r->config->hidden, outputs);
    if (logits != NULL) r->dev->ops->read_rows(r->dev, out.rows, 0, count, out.count, logits);
}

static void mtp_run(const rig *r, const float *before, const int32_t *ids, int pos, int count,
                    float *outputs, float *logits)
{
    r->dev->ops->write_rows(r->dev, sh_model_hidden(r->model), count, r->config->hidden, before);
    run(r, ids, pos, count, outputs, logits);
}

/* Of one sequence: the largest difference from the golden logits. */
static double compare(const rig *model, const rig *mtp, const golden *g, const int32_t *ids,
                      const int32_t *mtp_ids, int mtp_len, const float *want)
{
    int known = g->len - 1, split = known / 3;
    size_t hidden = (size_t)model->config->hidden, vocab = (size_t)g->vocab;
    float *outputs = sh_alloc_array((size_t)(g->len + mtp_len) * hidden, sizeof(*outputs));
    float *got = sh_alloc_array((size_t)mtp_len * vocab, sizeof(*got));
    float *own = sh_alloc_array((size_t)g->len * hidden, sizeof(*own));
    double max = 0;
    run(model, ids, 0, g->len, outputs, NULL);
    mtp_run(mtp, outputs, mtp_ids, 0, split, own, got);
    mtp_run(mtp, outputs + (size_t)split * hidden, mtp_ids, split, known - split, own,
            got + (size_t)split * vocab);
    memcpy(own, own + (size_t)(known - split - 1) * hidden, hidden * sizeof(*own));
    for (int i = known; i < mtp_len; i++)
        mtp_run(mtp, own, mtp_ids, i, 1, own, got + (size_t)i * vocab);
    for (size_t i = 0; i < (size_t)mtp_len * vocab; i++)
        max = fmax(max, fabs((double)got[i] - (double)want[i]));
    free(outputs);
    free(got);
    free(own);
    return max / g->std;
}

static double compare_all(const char *name, bool exact)
{
    sh_err err = {0};
    sh_tensors *set = NULL;
    const sh_stored_tensor *ids, *logits;
    golden g = golden_load(name);
    char *path = sh_path_join(g.dir, "golden.safetensors");
    CHECK_OK(sh_tensors_open_file(path, &set, &err), err);
    int32_t *mtp_ids = golden_tensor(set, "mtp_ids", &ids);
    float *want = golden_tensor(set, "mtp_logits", &logits);
    int len = (int)ids->shape[1];
    rig model = rig_open(g.dir, exact, NULL, 1), mtp = mtp_open(g.dir, exact);
    double max = 0;
    for (int s = 0; s < g.count; s++)
        max = fmax(max, compare(&model, &mtp, &g, g.ids + s * g.len, mtp_ids + s * len, len,
                                want + (size_t)s * (size_t)len * (size_t)g.vocab));
    print_message("# %s%s: largest difference %.2g of a standard deviation\n", name,
                  exact ? "" : ", int8", max);
    rig_close(&mtp);
    rig_close(&model);
    sh_tensors_close(set);
    free(mtp_ids);
    free(want);
    free(path);
    golden_free(&g);
    return max;
}

TEST(logits_of_drafts_match)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(MODELS); i++) {
        assert_true(compare_all(MODELS[i], true) <= EXACT_MAX);
        assert_true(compare_all(MODELS[i], false) <= 0.5); /* a router may choose otherwise */
    }
}

static void check_refused(const char *model, const char *word, bool by_config)
{
    sh_err err = {0};
    sh_config config;
    sh_device *dev = NULL;
    sh_model *loaded = NULL;
    sh_device_opts opts_dev = {.threads = 1};
    sh_model_opts opts = {.tokens_max = 8, .rows_max = 8, .load = {.threads = 1}};
    char *path = sh_path_join(rig_models_dir(), model);
    CHECK_OK(sh_config_load(path, &config, &err), err);
    sh_status status = sh_config_take_mtp(&config, &err);
    assert_int_equal(status != SH_OK, by_config);
    if (!by_config) {
        sh_shard whole = sh_shard_whole(&config);
        CHECK_OK(sh_device_open(test_device(), &opts_dev, &dev, &err), err);
        assert_int_not_equal(sh_model_load(path, &config, &whole, dev, &opts, &loaded, &err), 0);
        dev->ops->close(dev);
    }
    if (strstr(err.text, word) == NULL) fail_msg("%s: no '%s' in: %s", model, word, err.text);
    sh_config_reset(&config);
    free(path);
}

TEST(a_model_without_such_a_layer_says_what_is_missing)
{
    UNUSED_STATE;
    check_refused("llama-4bit", "family llama", true);
    check_refused("deepseek_v3-4bit", "model.layers.2.eh_proj.weight", false);
    check_refused("glm4_moe-4bit", "model.layers.2.eh_proj.weight", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_of_drafts_match),
        cmocka_unit_test(a_model_without_such_a_layer_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
