/* Every model of tests/data/models against logits that Hugging Face transformers computed in f32 on
 * the dequantized weights.
 *
 * Where two experts score almost the same, rounding may flip the choice between them. The result of
 * such a token says nothing about the arithmetic: these tokens are left out, and counted. */
#include "rig.h"

typedef struct {
    double rms, max; /* in standard deviations of the logits */
} noise;

static const double EXACT_MAX = 0.001;
static const noise ACTIVATIONS_MAX = {0.02, 0.10};
static const noise KV_MAX = {0.02, 0.10};
static const double FLIPS_MAX = 0.10; /* of all tokens */

/* Models where int8 KV has a larger effect: tokens that attend to one whose expert flipped
 * (mixtral), expert weights scaled by 16 (deepseek_v2). */
static const struct {
    const char *name;
    noise max;
} KV_WIDER[] = {{"mixtral-4bit", {0.03, 0.35}}, {"deepseek_v2-4bit", {0.02, 0.15}}};

/* The choices of the router, token by token, recorded by an op that wraps the device's. */
enum { CHOICES_MAX = 1 << 16 };
static int32_t choices[2][CHOICES_MAX];
static size_t choice_count[2];
static int recording;
static const sh_ops *real_ops;

static void route_and_record(sh_device *dev, const sh_router *router, sh_tensor x, int tokens,
                             int64_t cols, int32_t *ids, float *weights)
{
    real_ops->route(dev, router, x, tokens, cols, ids, weights);
    size_t count = (size_t)tokens * (size_t)router->topk;
    assert_true(choice_count[recording] + count <= CHOICES_MAX);
    /* As rows of numbers of the same size, since only ops may look at the device's memory. */
    sh_tensor raw = {.data = ids, .stride = (int64_t)count, .element_size = sizeof(*ids)};
    real_ops->read_rows(dev, raw, 0, 1, (int64_t)count,
                        (float *)(void *)(choices[recording] + choice_count[recording]));
    choice_count[recording] += count;
}

/* From now on the choices of the router go to list `record`. */
static float *run_all(const golden *g, bool exact, sh_kv_format kv, int record)
{
    sh_ops ops;
    rig r = rig_open_kv(g->dir, exact, kv, NULL, 2);
    size_t each = (size_t)(g->len * g->vocab);
    float *logits = sh_alloc_array((size_t)g->count * each, sizeof(*logits));
    real_ops = r.dev->ops;
    ops = *real_ops;
    ops.route = route_and_record;
    r.dev->ops = &ops;
    recording = record;
    choice_count[recording] = 0;
    assert_int_equal(r.config->vocab, g->vocab);
    for (int s = 0; s < g->count; s++)
        rig_run(&r, g->ids + s * g->len, 0, g->len, g->len, s, logits + (size_t)s * each);
    r.dev->ops = real_ops;
    rig_close(&r);
    return logits;
}

static void compare(const golden *g, const float *got, const bool *skip, double *rms, double *max)
{
    double squares = 0, count = 0;
    *max = 0;
    for (int t = 0; t < g->count * g->len; t++) {
        if (skip != NULL && skip[t]) continue;
        for (int i = 0; i < g->vocab; i++) {
            int64_t at = (int64_t)t * g->vocab + i;
            double diff = fabs((double)got[at] - (double)g->logits[at]);
            if (!(diff <= *max)) *max = diff;
            squares += diff * diff;
            count++;
        }
    }
    *rms = sqrt(squares / count) / g->std;
    *max /= g->std;
}

TEST(exact_logits_match)
{
    golden g = golden_load(*state);
    double rms, max;
    float *got = run_all(&g, true, SH_KV_F32, 0);
    compare(&g, got, NULL, &rms, &max);
    print_message("# %s: largest difference %.2g of a standard deviation\n", (char *)*state, max);
    if (!(max <= EXACT_MAX)) fail_msg("largest difference %g, allowed %g", max, EXACT_MAX);
    free(got);
    golden_free(&g);
}

/* Sequences ran one after the other, each through all layers, so the choices are in the order
 * [sequence][layer with experts][token][k]. The k experts of a token compare as a set. */
static int mark_flips(const golden *g, int topk, bool *skip)
{
    int flips = 0;
    size_t each = (size_t)(g->len * topk), steps = choice_count[0] / each;
    size_t layers = steps / (size_t)g->count;
    assert_int_equal(choice_count[0], choice_count[1]);
    for (size_t i = 0; i < choice_count[0]; i++) {
        size_t step = i / each, token = i % each / (size_t)topk,
               row = i / (size_t)topk * (size_t)topk;
        bool found = false;
        for (int k = 0; k < topk; k++)
            found = found || choices[1][row + (size_t)k] == choices[0][i];
        size_t at = step / layers * (size_t)g->len + token;
        if (!found && !skip[at]) flips++;
        skip[at] = skip[at] || !found;
    }
    return flips;
}

static void check_near(const char *name, bool exact, sh_kv_format kv, noise allowed)
{
    golden g = golden_load(name);
    double rms, max;
    bool *skip = sh_alloc_array((size_t)(g.count * g.len), sizeof(*skip));
    sh_config config;
    sh_err err = {0};
    float *want = run_all(&g, true, SH_KV_F32, 0), *got = run_all(&g, exact, kv, 1);
    CHECK_OK(sh_config_load(g.dir, &config, &err), err);
    int flips = config.moe.experts > 0 ? mark_flips(&g, config.moe.topk, skip) : 0;
    compare(&g, got, skip, &rms, &max);
    print_message("# %s: rms %.4f, largest %.4f, %d of %d tokens left out\n", name, rms, max, flips,
                  g.count * g.len);
    if (!(rms <= allowed.rms && max <= allowed.max)) fail_msg("rms %g, largest %g", rms, max);
    if (flips > FLIPS_MAX * g.count * g.len) fail_msg("%d tokens chose other experts", flips);
    sh_config_reset(&config);
    free(want);
    free(got);
    free(skip);
    golden_free(&g);
}

TEST(int8_logits_stay_near)
{
    check_near(*state, false, SH_KV_F16, ACTIVATIONS_MAX);
}

TEST(int8_kv_stays_near)
{
    noise allowed = KV_MAX;
    for (size_t i = 0; i < SH_COUNT_OF(KV_WIDER); i++)
        if (strcmp(*state, KV_WIDER[i].name) == 0) allowed = KV_WIDER[i].max;
    check_near(*state, true, SH_KV_INT8, allowed);
}

int main(void)
{
    int failed = rig_each_model("exact logits match", exact_logits_match);
    failed += rig_each_model("int8 logits stay near", int8_logits_stay_near);
    return failed + rig_each_model("int8 KV stays near", int8_kv_stays_near);
}
