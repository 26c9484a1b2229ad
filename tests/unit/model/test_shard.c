/* Whatever the model and the group, every layer, head, column and row has exactly one owner. */
#include "model/shard.h"

#include "base/alloc.h"

#include "test.h"

enum { ROUNDS = 3000 };

static uint32_t seed = 12345;

static int random_int(int min, int max)
{
    seed = seed * 1664525U + 1013904223U;
    return min + (int)((seed >> 8) % (unsigned)(max - min + 1));
}

static sh_config random_config(sh_quant_override *override)
{
    static const int groups[] = {32, 64, 128};
    static const int layers[] = {27, 47, 61, 1, 5, 36, 94};
    int kv = random_int(1, 16), group = random_int(1, 8);
    sh_config c = {.layers = layers[random_int(0, 6)],
                   .hidden = 64 * random_int(1, 64),
                   .vocab = random_int(1, 300000),
                   .heads = kv * group,
                   .kv_heads = kv,
                   .head_dim = 16 * random_int(1, 16),
                   .ffn = 32 * random_int(1, 400)};
    c.v_dim = c.head_dim;
    if (random_int(0, 2) == 0) {
        c.mla = (sh_mla_config){.kv_rank = 512, .nope_dim = 128, .rope_dim = 64};
        c.kv_heads = c.heads;
        c.v_dim = 32 * random_int(1, 4);
    }
    if (random_int(0, 1) == 0) {
        c.moe = (sh_moe_config){.experts = 8, .topk = 2, .ffn = 32 * random_int(1, 90)};
        c.moe.shared_ffn = c.moe.ffn * random_int(0, 2);
    }
    if (random_int(0, 2) == 0) c.conv = (sh_conv_config){.channels = c.hidden, .taps = 3};
    if (random_int(0, 1) == 0) {
        *override = (sh_quant_override){"a", true, {.group = groups[random_int(0, 2)]}};
        c.quant = (sh_quant_config){.on = true,
                                    .base = {.group = groups[random_int(0, 2)]},
                                    .overrides = override,
                                    .override_count = 1};
    }
    return c;
}

/* The ranges of a stage's ranks are adjacent and end at `total`; borders are whole units. */
static void check_cover(const sh_shard *shards, int count, size_t offset, int64_t total,
                        int64_t unit)
{
    int64_t next = 0;
    for (int i = 0; i < count; i++) {
        const sh_range *range = (const sh_range *)(const void *)((const char *)&shards[i] + offset);
        assert_int_equal(range->first, next);
        assert_true(range->count >= 0);
        next += range->count;
        assert_true(next % unit == 0 || next == total);
    }
    assert_int_equal(next, total);
}

static void check_heads(const sh_config *c, const sh_shard *shards, int width)
{
    int group = c->heads / c->kv_heads;
    check_cover(shards, width, offsetof(sh_shard, heads), c->heads,
                width > c->kv_heads ? 1 : group);
    for (int i = 0; i < width; i++) {
        const sh_shard *s = &shards[i];
        sh_range cols = sh_shard_out_cols(c, s);
        if (s->heads.count == 0) {
            assert_int_equal(s->kv_heads.count, 0);
            assert_int_equal(cols.count, 0);
            continue;
        }
        assert_true(cols.first <= s->heads.first * c->v_dim);
        assert_true(cols.first + cols.count >= (s->heads.first + s->heads.count) * c->v_dim);
        assert_true(cols.first + cols.count <= (int64_t)c->heads * c->v_dim);
        if (c->mla.kv_rank > 0) {
            assert_int_equal(s->kv_heads.count, 1);
            continue;
        }
        for (int64_t h = s->heads.first; h < s->heads.first + s->heads.count; h++) {
            assert_true(h / group >= s->kv_heads.first);
            assert_true(h / group < s->kv_heads.first + s->kv_heads.count);
        }
    }
}

static void check_plan(const sh_config *c, const sh_plan_opts *opts, const sh_shard *shards)
{
    int next = 0, width = opts->tensor_size;
    int64_t unit = sh_shard_unit(c);
    for (int s = 0; s < opts->stages; s++) {
        const sh_shard *stage = &shards[s * width];
        assert_int_equal(stage->layer_first, next);
        next += stage->layer_count;
        for (int t = 0; t < width; t++) {
            assert_int_equal(stage[t].rank, s * width + t);
            assert_int_equal(stage[t].layer_first, stage->layer_first);
            assert_int_equal(stage[t].layer_count, stage->layer_count);
            assert_int_equal(sh_shard_embeds(&stage[t]), s == 0);
            assert_int_equal(sh_shard_predicts(&stage[t]), s == opts->stages - 1);
        }
        check_heads(c, stage, width);
        check_cover(stage, width, offsetof(sh_shard, conv), c->conv.channels, unit);
        check_cover(stage, width, offsetof(sh_shard, ffn), c->ffn, unit);
        check_cover(stage, width, offsetof(sh_shard, expert_ffn), c->moe.ffn, unit);
        check_cover(stage, width, offsetof(sh_shard, shared_ffn), c->moe.shared_ffn, unit);
        check_cover(stage, width, offsetof(sh_shard, vocab), c->vocab, 1);
    }
    assert_int_equal(next, c->layers);
}

TEST(every_unit_is_owned_once_in_any_plan)
{
    UNUSED_STATE;
    sh_shard shards[64];
    double weights[64];
    for (int round = 0; round < ROUNDS; round++) {
        sh_err err = {0};
        sh_quant_override override;
        sh_config c = random_config(&override);
        int stages = random_int(1, c.layers < 6 ? c.layers : 6);
        sh_plan_opts opts = {.tensor_size = random_int(1, 9), .stages = stages, .weights = weights};
        for (int i = 0; i < 64; i++) weights[i] = random_int(0, 3) == 0 ? 0 : random_int(1, 1000);
        for (int s = 0; s < stages; s++) weights[s * opts.tensor_size] += 0.5;
        if (random_int(0, 3) == 0) opts.weights = NULL;
        CHECK_OK(sh_shard_plan(&c, &opts, shards, &err), err);
        check_plan(&c, &opts, shards);
    }
}

TEST(layers_of_real_models_are_owned_once_on_two_to_five_ranks)
{
    UNUSED_STATE;
    static const int layers[] = {27, 47, 61};
    for (size_t i = 0; i < SH_COUNT_OF(layers); i++)
        for (int ranks = 2; ranks <= 5; ranks++) {
            sh_err err = {0};
            sh_shard shards[5];
            sh_config c = {.layers = layers[i], .heads = 8, .kv_heads = 8, .vocab = 9};
            CHECK_OK(sh_shard_plan(&c, &(sh_plan_opts){1, ranks, NULL, 0}, shards, &err), err);
            check_plan(&c, &(sh_plan_opts){1, ranks, NULL, 0}, shards);
            for (int r = 0; r < ranks; r++) {
                assert_true(shards[r].layer_count >= layers[i] / ranks);
                assert_true(shards[r].layer_count <= layers[i] / ranks + 1);
            }
        }
}

TEST(shares_follow_the_weights)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_shard shards[2];
    sh_config c = {.layers = 40,
                   .heads = 32,
                   .kv_heads = 8,
                   .head_dim = 128,
                   .v_dim = 128,
                   .ffn = 8192,
                   .vocab = 128000};
    const double weights[] = {3, 1};
    CHECK_OK(sh_shard_plan(&c, &(sh_plan_opts){2, 1, weights, 0}, shards, &err), err);
    assert_int_equal(shards[0].heads.count, 24);
    assert_int_equal(shards[1].kv_heads.count, 2);
    assert_int_equal(shards[0].ffn.count, 6144);
    assert_int_equal(shards[0].vocab.count, 96000);
    CHECK_OK(sh_shard_plan(&c, &(sh_plan_opts){1, 2, weights, 0}, shards, &err), err);
    assert_int_equal(shards[0].layer_count, 30);
}

TEST(the_last_stage_has_fewer_layers_for_its_head)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_shard shards[3];
    sh_config c = {.layers = 16, .heads = 8, .kv_heads = 8, .vocab = 9};
    CHECK_OK(sh_shard_plan(&c, &(sh_plan_opts){1, 2, NULL, 4.3}, shards, &err), err);
    assert_int_equal(shards[0].layer_count, 10);
    CHECK_OK(sh_shard_plan(&c, &(sh_plan_opts){1, 3, NULL, 50}, shards, &err), err);
    assert_int_equal(shards[2].layer_count, 1);
    check_plan(&c, &(sh_plan_opts){1, 3, NULL, 50}, shards);
}

TEST(the_whole_model_is_one_shard)
{
    UNUSED_STATE;
    sh_config c = {.layers = 3, .heads = 6, .kv_heads = 2, .ffn = 96, .vocab = 77};
    sh_shard whole = sh_shard_whole(&c);
    check_plan(&c, &(sh_plan_opts){1, 1, NULL, 0}, &whole);
}

TEST(impossible_plans_are_refused)
{
    UNUSED_STATE;
    sh_err err = {0};
    sh_shard shards[8];
    sh_config c = {.layers = 2, .heads = 4, .kv_heads = 4, .vocab = 9};
    const double zero[] = {1, 0}, negative[] = {1, -1}, nan_weight[] = {1, 0.0 / 0.0};
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){1, 3, NULL, 0}, shards, &err), err,
                "3 pipeline stages for a model of 2 layers");
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){0, 1, NULL, 0}, shards, &err), err,
                "0 x 1 ranks");
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){2000, 2000, NULL, 0}, shards, &err), err,
                "ranks");
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){1, 2, zero, 0}, shards, &err), err, "stage 1");
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){2, 1, negative, 0}, shards, &err), err, "rank 1");
    CHECK_FAILS(sh_shard_plan(&c, &(sh_plan_opts){2, 1, nan_weight, 0}, shards, &err), err,
                "rank 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_is_owned_once_in_any_plan),
        cmocka_unit_test(layers_of_real_models_are_owned_once_on_two_to_five_ranks),
        cmocka_unit_test(shares_follow_the_weights),
        cmocka_unit_test(the_last_stage_has_fewer_layers_for_its_head),
        cmocka_unit_test(the_whole_model_is_one_shard),
        cmocka_unit_test(impossible_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
