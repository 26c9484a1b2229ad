/* Ops on numbers and rows against their formulas in double, at every level. Those that all ranks
 * must agree on have the same bits everywhere: levels are compared to each other and to a hash in
 * this file, which covers other architectures as well. */
#include "levels.h"

enum { COUNT = 40001 };

static const uint64_t RMSNORM_HASH = 0x1f6771384b2ed21fu;

static const sh_limits LIMITS = {
    .tokens = 512, .rows = 512, .cols = 64, .expert_rows = 64, .hidden = 64, .heads = 1};
static const int64_t DIMS[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 127, 128, 1000, 2880};

TEST(add_rounds_once_at_every_level)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    uint64_t rng = 1;
    float *x = random_floats(&rng, COUNT, 3.0f), *y = random_floats(&rng, COUNT, 3.0f);
    float *got = malloc(COUNT * sizeof(float));
    for (int l = 0; l < levels; l++)
        for (size_t count = 0; count <= COUNT; count += 1 + count * 2) {
            sh_device *dev = level_open(names[l], 2, &LIMITS);
            memcpy(got, x, COUNT * sizeof(float));
            dev->ops->add(dev, tensor_of(got, (int64_t)count), tensor_of(y, (int64_t)count), 1,
                          (int64_t)count);
            for (size_t i = 0; i < COUNT; i++) {
                float sum = x[i] + y[i];
                assert_true(got[i] == (i < count ? sum : x[i]));
            }
            dev->ops->close(dev);
        }
    free(x);
    free(y);
    free(got);
}

TEST(copy_rows_takes_rows_in_any_order)
{
    UNUSED_STATE;
    enum { ROWS = 300, DIM = 77 };
    uint64_t rng = 2;
    float *x = random_floats(&rng, ROWS * DIM, 1.0f), *y = malloc(ROWS * DIM * sizeof(float));
    int32_t rows[ROWS];
    for (int i = 0; i < ROWS; i++) rows[i] = (int32_t)(random_u32(&rng) % ROWS);
    sh_device *dev = level_open(NULL, 2, &LIMITS);
    sh_span span = {.count = ROWS};
    sh_batch batch = {
        .tokens = ROWS, .span_count = 1, .spans = &span, .rows = rows, .row_count = ROWS};
    dev->ops->copy_rows(dev, dev->ops->step_begin(dev, &batch), tensor_of(y, DIM),
                        tensor_of(x, DIM), DIM);
    for (int i = 0; i < ROWS; i++)
        assert_memory_equal(y + i * DIM, x + rows[i] * DIM, DIM * sizeof(float));
    dev->ops->close(dev);
    free(x);
    free(y);
}

TEST(queries_far_into_a_context_are_scaled_by_its_multiples)
{
    UNUSED_STATE;
    enum { TOKENS = 300, DIM = 65, EVERY = 100 };
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++) {
        uint64_t rng = 3;
        float *x = random_floats(&rng, TOKENS * DIM, 1.0f), *y = malloc(TOKENS * DIM * sizeof(*y));
        memcpy(y, x, TOKENS * DIM * sizeof(*y));
        sh_device *dev = level_open(names[l], 2, &LIMITS);
        sh_span span = {.count = TOKENS, .pos = 50};
        sh_batch batch = {.tokens = TOKENS, .span_count = 1, .spans = &span};
        dev->ops->scale_by_position(dev, dev->ops->step_begin(dev, &batch), tensor_of(y, DIM), DIM,
                                    0.1f, EVERY);
        for (int i = 0; i < TOKENS * DIM; i++) {
            int multiple = (i / DIM + 50) / EVERY;
            assert_true(y[i] == x[i] * (float)(1 + (double)0.1f * log(1.0 + multiple)));
        }
        dev->ops->close(dev);
        free(x);
        free(y);
    }
}

TEST(rmsnorm_is_near_the_norm_in_double)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++) {
        sh_device *dev = level_open(names[l], 1, &LIMITS);
        for (size_t i = 0; i < SH_COUNT_OF(DIMS); i++) {
            int64_t dim = DIMS[i];
            uint64_t rng = i + 10;
            float *x = random_floats(&rng, (size_t)dim, 100.0f);
            float *w = random_floats(&rng, (size_t)dim, 2.0f);
            double *want = malloc((size_t)dim * sizeof(double)), sum = 0.0;
            for (int64_t d = 0; d < dim; d++) sum += (double)x[d] * (double)x[d];
            for (int64_t d = 0; d < dim; d++)
                want[d] = (double)x[d] * (double)w[d] / sqrt(sum / (double)dim + 1e-5);
            dev->ops->rmsnorm(dev, tensor_of(x, dim), tensor_of(x, dim), w, 1, 1, dim, 1e-5f);
            check_near(names[l], x, want, (size_t)dim, 4e-6); /* values reach 4 */
            free(x);
            free(w);
            free(want);
        }
        dev->ops->close(dev);
    }
}

TEST(rmsnorm_of_heads_inside_rows_touches_nothing_else)
{
    UNUSED_STATE;
    enum { TOKENS = 70, HEADS = 3, DIM = 80, STRIDE = 500 };
    uint64_t rng = 4;
    float *x = random_floats(&rng, TOKENS * STRIDE, 1.0f), *w = random_floats(&rng, DIM, 1.0f);
    float *y = malloc(TOKENS * STRIDE * sizeof(float)), one[DIM];
    memcpy(y, x, TOKENS * STRIDE * sizeof(float));
    sh_device *dev = level_open(NULL, 2, &LIMITS);
    dev->ops->rmsnorm(dev, tensor_of(y, STRIDE), tensor_of(x, STRIDE), w, TOKENS, HEADS, DIM,
                      1e-6f);
    for (int t = 0; t < TOKENS; t++) {
        for (int h = 0; h < HEADS; h++) {
            dev->ops->rmsnorm(dev, tensor_of(one, DIM), tensor_of(x + t * STRIDE + h * DIM, DIM), w,
                              1, 1, DIM, 1e-6f);
            check_same_bits("head", y + t * STRIDE + h * DIM, one, sizeof(one));
        }
        size_t rest = (STRIDE - HEADS * DIM) * sizeof(float);
        check_same_bits("rest", y + t * STRIDE + HEADS * DIM, x + t * STRIDE + HEADS * DIM, rest);
    }
    dev->ops->close(dev);
    free(x);
    free(w);
    free(y);
}

TEST(rmsnorm_has_the_same_bits_at_every_level)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++) {
        sh_device *dev = level_open(names[l], 1, &LIMITS);
        uint64_t hash = 0, rng = 99;
        for (size_t i = 0; i < SH_COUNT_OF(DIMS); i++) {
            float *x = random_floats(&rng, (size_t)DIMS[i], 10.0f);
            float *w = random_floats(&rng, (size_t)DIMS[i], 2.0f);
            dev->ops->rmsnorm(dev, tensor_of(x, DIMS[i]), tensor_of(x, DIMS[i]), w, 1, 1, DIMS[i],
                              1e-5f);
            hash = bits_hash(x, (size_t)DIMS[i] * sizeof(float), hash);
            free(x);
            free(w);
        }
        if (hash != RMSNORM_HASH) fail_msg("%s: hash %#llx", names[l], (unsigned long long)hash);
        dev->ops->close(dev);
    }
}

TEST(layernorm_is_near_the_norm_in_double_with_the_same_bits_at_every_level)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (size_t i = 0; i < SH_COUNT_OF(DIMS); i++) {
        int64_t dim = DIMS[i];
        uint64_t rng = 8 + i;
        float *x = random_floats(&rng, (size_t)dim, 3.0f), *w = random_floats(&rng, (size_t)dim, 2);
        float *bias = random_floats(&rng, (size_t)dim, 1.0f), *first = NULL;
        double mean = 0, variance = 0;
        for (int64_t d = 0; d < dim; d++) mean += (double)(x[d] += 1.0f) / (double)dim;
        for (int64_t d = 0; d < dim; d++) variance += pow((double)x[d] - mean, 2) / (double)dim;
        for (int l = 0; l < levels; l++) {
            sh_device *dev = level_open(names[l], 2, &LIMITS);
            float *y = malloc((size_t)dim * sizeof(*y));
            memcpy(y, x, (size_t)dim * sizeof(*y));
            dev->ops->layernorm(dev, tensor_of(y, dim), tensor_of(y, dim), w, bias, 1, dim, 1e-5f);
            for (int64_t d = 0; d < dim; d++) {
                double want = ((double)x[d] - mean) / sqrt(variance + 1e-5) * (double)w[d] +
                              (double)bias[d];
                check_near(names[l], &y[d], &want, 1, 2e-5);
            }
            if (first != NULL) check_same_bits(names[l], first, y, (size_t)dim * sizeof(*y));
            free(first);
            first = y;
            dev->ops->close(dev);
        }
        free(first);
        free(x);
        free(w);
        free(bias);
    }
}

TEST(positions_and_types_are_added_by_place)
{
    UNUSED_STATE;
    enum { DIM = 19, TOKENS = 7, OFFSET = 2 };
    uint64_t rng = 9;
    float *positions = random_floats(&rng, 16 * DIM, 1.0f),
          *types = random_floats(&rng, 2 * DIM, 1);
    float *x = random_floats(&rng, TOKENS * DIM, 1.0f), y[TOKENS * DIM];
    sh_span spans[] = {{.count = 4, .second = 3}, {.first = 4, .count = 3}};
    sh_batch batch = {.tokens = TOKENS, .span_count = 2, .spans = spans};
    sh_device *dev = level_open(NULL, 2, &LIMITS);
    memcpy(y, x, sizeof(y));
    dev->ops->add_positions(dev, dev->ops->step_begin(dev, &batch), tensor_of(y, DIM), DIM,
                            positions, OFFSET, types, 2);
    for (int t = 0; t < TOKENS; t++)
        for (int d = 0; d < DIM; d++) {
            int pos = t < 4 ? t : t - 4;
            float sum = x[t * DIM + d] + positions[(pos + OFFSET) * DIM + d];
            assert_true(y[t * DIM + d] == sum + types[(t == 3 ? DIM : 0) + d]);
        }
    dev->ops->close(dev);
    free(positions);
    free(types);
    free(x);
}

static double act_reference(sh_act act, double gate, double up)
{
    switch (act) {
    case SH_ACT_SILU: return gate / (1.0 + exp(-gate)) * up;
    case SH_ACT_GELU: return 0.5 * gate * (1.0 + erf(gate / sqrt(2.0))) * up;
    case SH_ACT_GELU_TANH:
        return 0.5 * gate *
               (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (gate + 0.044715 * pow(gate, 3)))) * up;
    case SH_ACT_SIGMOID: return up / (1.0 + exp(-gate));
    default:
        gate = fmin(gate, 7.0);
        up = fmax(-7.0, fmin(up, 7.0));
        return gate / (1.0 + exp(-1.702 * gate)) * (up + 1.0);
    }
}

/* Relative to 1 where the true value is small: far out, gelu is a difference of nearly equal
 * numbers. */
TEST(activations_are_near_their_formulas_in_double)
{
    UNUSED_STATE;
    enum { TOKENS = 3, DIM = 1003, STRIDE = 1100 };
    static const float edges[] = {0.0f,   -0.0f,  1e-30f,  -1e-30f, 7.0f,     -7.0f, 88.0f,
                                  -88.0f, 104.0f, -104.0f, 3000.0f, -3000.0f, 1e8f,  -1e8f};
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (int act = SH_ACT_SILU; act <= SH_ACT_SWIGLU_OAI; act++) {
            sh_device *dev = level_open(names[l], 2, &LIMITS);
            uint64_t rng = 6;
            float *gate = random_floats(&rng, TOKENS * STRIDE, 12.0f);
            float *up = random_floats(&rng, TOKENS * STRIDE, 9.0f);
            float *y = random_floats(&rng, TOKENS * STRIDE, 1.0f);
            memcpy(gate, edges, sizeof(edges));
            float before = y[DIM];
            dev->ops->act(dev, (sh_act)act, tensor_of(y, STRIDE), tensor_of(gate, STRIDE),
                          tensor_of(up, STRIDE), TOKENS, DIM);
            assert_true(y[DIM] == before);
            for (int t = 0; t < TOKENS; t++)
                for (int d = 0; d < DIM; d++) {
                    int i = t * STRIDE + d;
                    double want = act_reference((sh_act)act, (double)gate[i], (double)up[i]);
                    double bound = 2e-6 * fmax(1.0, fabs(want));
                    check_near(names[l], &y[i], &want, 1, bound);
                }
            float *copy = malloc(TOKENS * STRIDE * sizeof(float));
            memcpy(copy, gate, TOKENS * STRIDE * sizeof(float));
            dev->ops->act(dev, (sh_act)act, tensor_of(copy, STRIDE), tensor_of(copy, STRIDE),
                          tensor_of(up, STRIDE), TOKENS, DIM);
            check_same_bits("in place", copy, y, DIM * sizeof(float));
            dev->ops->act(dev, (sh_act)act, tensor_of(y, STRIDE), tensor_of(gate, STRIDE),
                          (sh_tensor){0}, TOKENS, DIM);
            for (int d = 0; d < DIM; d++) {
                double want = act_reference((sh_act)act, (double)gate[d], 1.0);
                check_near("without a gate", &y[d], &want, 1, 2e-6 * fmax(1.0, fabs(want)));
            }
            dev->ops->close(dev);
            free(gate);
            free(up);
            free(y);
            free(copy);
        }
}

TEST(a_gate_scales_its_row)
{
    UNUSED_STATE;
    enum { TOKENS = 5, DIM = 33, STRIDE = 40 };
    uint64_t rng = 9;
    sh_device *dev = level_open(NULL, 2, &LIMITS);
    float *x = random_floats(&rng, TOKENS * STRIDE, 3.0f),
          *y = malloc(TOKENS * STRIDE * sizeof(*y));
    float gates[TOKENS] = {0.0f, 2.5f, -2.5f, 200.0f, -200.0f};
    memcpy(y, x, TOKENS * STRIDE * sizeof(*y));
    dev->ops->gate_rows(dev, tensor_of(y, STRIDE), tensor_of(gates, 1), TOKENS, DIM);
    for (int i = 0; i < TOKENS * STRIDE; i++) {
        double open = i % STRIDE < DIM ? 1 / (1 + exp(-(double)gates[i / STRIDE])) : 1;
        double want = (double)x[i] * open;
        check_near("gate", &y[i], &want, 1, 1e-6);
    }
    dev->ops->close(dev);
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_rounds_once_at_every_level),
        cmocka_unit_test(queries_far_into_a_context_are_scaled_by_its_multiples),
        cmocka_unit_test(copy_rows_takes_rows_in_any_order),
        cmocka_unit_test(rmsnorm_is_near_the_norm_in_double),
        cmocka_unit_test(rmsnorm_of_heads_inside_rows_touches_nothing_else),
        cmocka_unit_test(rmsnorm_has_the_same_bits_at_every_level),
        cmocka_unit_test(layernorm_is_near_the_norm_in_double_with_the_same_bits_at_every_level),
        cmocka_unit_test(positions_and_types_are_added_by_place),
        cmocka_unit_test(a_gate_scales_its_row),
        cmocka_unit_test(activations_are_near_their_formulas_in_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
