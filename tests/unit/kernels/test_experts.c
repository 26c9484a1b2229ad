#include "unit/kernels/matrix_data.h"

enum { EXPERTS = 11, TOPK = 3, ROWS = 96, COLS = 160, HIDDEN = 72, TOKENS_MAX = 40 };

struct rig {
    sh_device *dev;
    raw_matrix gate[EXPERTS], up[EXPERTS], down[EXPERTS];
    float *biases[3];
    sh_experts ex;
};

static struct rig rig_open(const char *level, int threads, sh_activations mode, sh_quant quant,
                           sh_act act)
{
    struct rig rig = {.dev = mode_open(level, threads, mode)};
    uint64_t seed = 7;
    for (int e = 0; e < EXPERTS; e++) {
        rig.gate[e] = raw_random(&seed, quant, ROWS, COLS);
        rig.up[e] = raw_random(&seed, quant, ROWS, COLS);
        rig.down[e] = raw_random(&seed, quant, HIDDEN, ROWS);
    }
    rig.biases[0] = random_floats(&seed, EXPERTS * ROWS, 1);
    rig.biases[1] = random_floats(&seed, EXPERTS * ROWS, 1);
    rig.biases[2] = random_floats(&seed, EXPERTS * HIDDEN, 1);
    rig.ex = (sh_experts){
        .gate = raw_pack(rig.dev, rig.gate, EXPERTS),
        .up = raw_pack(rig.dev, rig.up, EXPERTS),
        .down = raw_pack(rig.dev, rig.down, EXPERTS),
        .act = act,
    };
    return rig;
}

static void rig_add_biases(struct rig *rig)
{
    rig->ex.gate_bias = rig->biases[0];
    rig->ex.up_bias = rig->biases[1];
    rig->ex.down_bias = rig->biases[2];
}

static void rig_close(struct rig *rig)
{
    for (int e = 0; e < EXPERTS; e++) {
        raw_free(&rig->gate[e]);
        raw_free(&rig->up[e]);
        raw_free(&rig->down[e]);
    }
    for (int i = 0; i < 3; i++) free(rig->biases[i]);
    matrix_free(rig->dev, &rig->ex.gate);
    matrix_free(rig->dev, &rig->ex.up);
    matrix_free(rig->dev, &rig->ex.down);
    rig->dev->ops->close(rig->dev);
}

/* Different experts for each token; some are never chosen. */
static void choose(uint64_t *seed, int tokens, int32_t *ids, float *weights)
{
    for (int t = 0; t < tokens; t++)
        for (int k = 0; k < TOPK; k++) {
            ids[t * TOPK + k] = (int32_t)((random_u32(seed) % 3 + (uint32_t)(3 * k)) % EXPERTS);
            weights[t * TOPK + k] = random_float(seed);
        }
}

static double act_double(sh_act act, double gate, double up)
{
    if (act == SH_ACT_SILU) return gate / (1 + exp(-gate)) * up;
    if (act == SH_ACT_GELU_TANH)
        return 0.5 * gate *
               (1 + tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) * up;
    gate = fmin(gate, 7);
    up = fmax(fmin(up, 7), -7);
    return gate / (1 + exp(-1.702 * gate)) * (up + 1);
}

static double bias_at(const float *bias, int expert, int64_t rows, int64_t row)
{
    return bias == NULL ? 0 : bias[expert * rows + row];
}

/* One token's output in double; returns the largest term that was summed, for the bound. */
static double truth(const struct rig *rig, const float *x, const int32_t *ids, const float *weights,
                    double y[HIDDEN])
{
    double largest = 0;
    memset(y, 0, sizeof(double) * HIDDEN);
    for (int k = 0; k < TOPK; k++) {
        int e = ids[k];
        double mid[ROWS];
        for (int r = 0; r < ROWS; r++) {
            double g = bias_at(rig->ex.gate_bias, e, ROWS, r);
            double u = bias_at(rig->ex.up_bias, e, ROWS, r);
            for (int c = 0; c < COLS; c++) {
                g += raw_weight(&rig->gate[e], r, c) * x[c];
                u += raw_weight(&rig->up[e], r, c) * x[c];
            }
            mid[r] = act_double(rig->ex.act, g, u);
        }
        for (int h = 0; h < HIDDEN; h++) {
            double sum = bias_at(rig->ex.down_bias, e, HIDDEN, h);
            for (int r = 0; r < ROWS; r++) {
                double term = raw_weight(&rig->down[e], h, r) * mid[r];
                sum += term;
                largest = fmax(largest, fabs(term * weights[k]));
            }
            y[h] += sum * weights[k];
        }
    }
    return largest;
}

static void check_truth(const char *level, sh_quant quant, sh_act act, bool biases)
{
    struct rig rig = rig_open(level, 2, SH_ACTIVATIONS_F32, quant, act);
    uint64_t seed = 8;
    float *x = random_floats(&seed, 5 * COLS, 0.3f), weights[5 * TOPK], y[5 * HIDDEN];
    int32_t ids[5 * TOPK];
    if (biases) rig_add_biases(&rig);
    choose(&seed, 5, ids, weights);
    rig.dev->ops->experts(rig.dev, &rig.ex, tensor_of(x, COLS), 5, ids, weights, TOPK,
                          tensor_of(y, HIDDEN));
    for (int t = 0; t < 5; t++) {
        double want[HIDDEN];
        double largest = truth(&rig, x + t * COLS, ids + t * TOPK, weights + t * TOPK, want);
        check_near(level, y + t * HIDDEN, want, HIDDEN, largest * 1e-4 + 1e-5);
    }
    free(x);
    rig_close(&rig);
}

TEST(experts_match_double_for_every_activation)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    sh_quant q4 = {SH_FORMAT_AFFINE, 4, 32, SH_DTYPE_BF16, 1}, bf16 = {.format = SH_FORMAT_BF16};
    sh_quant fp4 = {SH_FORMAT_MXFP4, 4, 32, SH_DTYPE_F32, 1};
    for (int l = 0, count = product_levels_list(names); l < count; l++) {
        check_truth(names[l], q4, SH_ACT_SILU, false);
        check_truth(names[l], bf16, SH_ACT_GELU_TANH, true);
        check_truth(names[l], fp4, SH_ACT_SWIGLU_OAI, true);
    }
}

/* In a batch of any size, on any number of threads, with int8 and with f32 activations. */
static void check_batches(const char *level, sh_activations mode, sh_quant quant)
{
    struct rig rig = rig_open(level, 1, mode, quant, SH_ACT_SILU);
    struct rig wide = rig_open(level, 3, mode, quant, SH_ACT_SILU);
    uint64_t seed = 9;
    float *x = random_floats(&seed, TOKENS_MAX * COLS, 1), weights[TOKENS_MAX * TOPK];
    float alone[TOKENS_MAX * HIDDEN], y[TOKENS_MAX * HIDDEN];
    int32_t ids[TOKENS_MAX * TOPK];
    rig_add_biases(&rig);
    rig_add_biases(&wide);
    choose(&seed, TOKENS_MAX, ids, weights);
    for (int t = 0; t < TOKENS_MAX; t++)
        rig.dev->ops->experts(rig.dev, &rig.ex, tensor_of(x + t * COLS, COLS), 1, ids + t * TOPK,
                              weights + t * TOPK, TOPK, tensor_of(alone + t * HIDDEN, HIDDEN));
    for (int tokens = 2; tokens <= TOKENS_MAX; tokens += SLOW ? 9 : 3) {
        struct rig *with = tokens % 2 == 0 ? &rig : &wide;
        with->dev->ops->experts(with->dev, &with->ex, tensor_of(x, COLS), tokens, ids, weights,
                                TOPK, tensor_of(y, HIDDEN));
        check_same_bits(level, alone, y, sizeof(float) * (size_t)(tokens * HIDDEN));
    }
    free(x);
    rig_close(&rig);
    rig_close(&wide);
}

TEST(a_token_has_the_same_bits_in_any_batch_on_any_threads)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    sh_quant quants[] = {{SH_FORMAT_AFFINE, 4, 32, SH_DTYPE_BF16, 1},
                         {.format = SH_FORMAT_BF16},
                         {SH_FORMAT_MXFP4, 4, 32, SH_DTYPE_F32, 1},
                         {SH_FORMAT_NVFP4, 4, 16, SH_DTYPE_F32, 1}};
    for (int l = 0, count = product_levels_list(names); l < count; l++)
        for (size_t i = 0; i < SH_COUNT_OF(quants); i++) {
            check_batches(names[l], SH_ACTIVATIONS_INT8, quants[i]);
            check_batches(names[l], SH_ACTIVATIONS_F32, quants[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_match_double_for_every_activation),
        cmocka_unit_test(a_token_has_the_same_bits_in_any_batch_on_any_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
