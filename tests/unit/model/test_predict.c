#include "model/predict.h"

#include "test.h"

#include <math.h>

static sh_err err;

static void config_open(sh_config *config)
{
    CHECK_OK(sh_config_load("models/demo", config, &err), err);
}

TEST(shares_follow_speed_until_memory_ends)
{
    UNUSED_STATE;
    double shares[3];
    sh_rank_resources resources[3] = {{100, 2}, {100, 1}, {100, 1}};
    CHECK_OK(sh_shares_by_resources(resources, 3, 80, shares, &err), err);
    assert_true(fabs(shares[0] - 0.5) < 1e-9 && fabs(shares[1] - 0.25) < 1e-9);
    resources[0].memory = 20; /* a quarter of the model */
    CHECK_OK(sh_shares_by_resources(resources, 3, 80, shares, &err), err);
    assert_true(fabs(shares[0] - 0.25) < 1e-9 && fabs(shares[1] - 0.375) < 1e-9);
    resources[1].memory = resources[2].memory = 10;
    CHECK_FAILS(sh_shares_by_resources(resources, 3, 80, shares, &err), err,
                "3 ranks together have room for");
    CHECK_FAILS(sh_shares_by_resources(&(sh_rank_resources){1, 1}, 1, 1e9, shares, &err), err,
                "; 1 rank has room for");
}

TEST(parts_of_a_model_add_up_to_the_whole)
{
    UNUSED_STATE;
    sh_config config;
    config_open(&config);
    sh_rank_cost whole, part;
    sh_shard all = sh_shard_whole(&config), shards[4];
    sh_predict_rank(&config, &all, &whole);
    assert_true(fabs(whole.weight_bytes / 8884048 - 1) < 0.02); /* the size of its file */
    for (int tensor = 1; tensor <= 4; tensor *= 2) {
        double weights = 0, kv = 0;
        sh_plan_opts opts = {.tensor_size = tensor, .stages = 4 / tensor};
        CHECK_OK(sh_shard_plan(&config, &opts, shards, &err), err);
        for (int i = 0; i < 4; i++) {
            sh_predict_rank(&config, &shards[i], &part);
            weights += part.weight_bytes;
            kv += part.kv_token_bytes;
        }
        double twice = tensor == 4
                           ? 0
                           : 4096.0 * 384 *
                                 0.5625; /* a tied embedding is at both ends of a pipeline */
        assert_true(fabs(weights / (whole.weight_bytes + twice) - 1) < 0.01);
        assert_true(fabs(kv / whole.kv_token_bytes - 1) < 1e-9);
    }
    sh_config_reset(&config);
}

/* One layer of three has KV; the state of the others is there once for each block. */
TEST(layers_with_a_fixed_state_count_with_their_own_bytes)
{
    UNUSED_STATE;
    enum { FILE_BYTES = 447000, TOKEN_BYTES = 2 * 2 * (32 + 32) + 2 * 4 * 3 * 192 / SH_KV_BLOCK };
    static const int forms[][2] = {{2, 1}, {1, 3}};
    sh_config config;
    sh_rank_cost whole, part;
    CHECK_OK(sh_config_load("tests/data/models/lfm2-long-4bit", &config, &err), err);
    sh_shard all = sh_shard_whole(&config), shards[3];
    sh_predict_rank(&config, &all, &whole);
    assert_true(fabs(whole.weight_bytes / FILE_BYTES - 1) < 0.02);
    assert_true(fabs(whole.kv_token_bytes - TOKEN_BYTES) < 1e-9);
    for (size_t f = 0; f < SH_COUNT_OF(forms); f++) {
        double weights = 0, kv = 0;
        sh_plan_opts opts = {.tensor_size = forms[f][0], .stages = forms[f][1]};
        CHECK_OK(sh_shard_plan(&config, &opts, shards, &err), err);
        for (int i = 0; i < opts.tensor_size * opts.stages; i++) {
            sh_predict_rank(&config, &shards[i], &part);
            weights += part.weight_bytes;
            kv += part.kv_token_bytes;
        }
        double twice = opts.stages > 1 ? 320.0 * 192 * 0.5625 : 0; /* the tied embedding */
        assert_true(fabs(weights / (whole.weight_bytes + twice) - 1) < 0.02);
        assert_true(fabs(kv / whole.kv_token_bytes - 1) < 1e-9);
    }
    sh_config_reset(&config);
}

TEST(a_head_counts_for_fewer_layers_than_its_bytes_say)
{
    UNUSED_STATE;
    sh_config config;
    config_open(&config);
    sh_rank_cost whole;
    sh_shard all = sh_shard_whole(&config);
    sh_predict_rank(&config, &all, &whole);
    double head = 4096.0 * 384 * 0.5625, layer = (whole.weight_bytes - head) / config.layers;
    double layers = sh_predict_head_layers(&config);
    assert_true(layers < 0.9 * head / layer);
    assert_true(layers > 0.3 * head / layer);
    sh_config_reset(&config);
}

TEST(a_slow_link_makes_one_rank_the_better_choice)
{
    UNUSED_STATE;
    sh_config config;
    config_open(&config);
    sh_shard shards[2], all = sh_shard_whole(&config);
    sh_plan_opts opts = {.tensor_size = 2, .stages = 1};
    CHECK_OK(sh_shard_plan(&config, &opts, shards, &err), err);
    sh_predict_machine quick = {
        .read_bytes_per_s = 1e9, .latency_s = 1e-6, .link_bytes_per_s = 1e10, .wire_bytes = 4};
    sh_predict_machine slow = quick;
    slow.latency_s = 1e-3;
    double alone = sh_predict(&config, &all, NULL, &quick).token_s;
    assert_true(sh_predict(&config, shards, NULL, &quick).token_s < 0.6 * alone);
    assert_true(sh_predict(&config, shards, NULL, &slow).token_s > alone);
    sh_config_reset(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_follow_speed_until_memory_ends),
        cmocka_unit_test(parts_of_a_model_add_up_to_the_whole),
        cmocka_unit_test(layers_with_a_fixed_state_count_with_their_own_bytes),
        cmocka_unit_test(a_head_counts_for_fewer_layers_than_its_bytes_say),
        cmocka_unit_test(a_slow_link_makes_one_rank_the_better_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
