/* The router against a simple one in double, and against itself: every level and every batch must
 * choose the same experts, with weights of the same bits, on every architecture. */
#include "levels.h"

enum { EXPERTS_MAX = 256, DIM_MAX = 1027, TOKENS = 40, TOPK_MAX = 8 };

static const uint64_t ROUTE_HASH = 0x05a97c1006337e48u;

static const sh_limits LIMITS = {.tokens = TOKENS,
                                 .cols = 64,
                                 .expert_rows = 64,
                                 .hidden = 64,
                                 .experts = EXPERTS_MAX,
                                 .topk = TOPK_MAX};

typedef struct {
    sh_router r;
    int dim;
    bool logit_bias, pick_bias;
} router;

static const router ROUTERS[] = {
    {{SH_ROUTE_SOFTMAX, 128, 8, 1, 1, false, true, 1.0f, NULL, NULL, NULL}, 256, false, false},
    {{SH_ROUTE_SOFTMAX, 61, 6, 1, 1, false, false, 1.0f, NULL, NULL, NULL}, 101, false, false},
    {{SH_ROUTE_SOFTMAX, 160, 6, 8, 3, false, false, 16.0f, NULL, NULL, NULL}, 64, false, false},
    {{SH_ROUTE_TOPK_SOFTMAX, 32, 4, 1, 1, false, false, 1.0f, NULL, NULL, NULL}, 90, true, false},
    {{SH_ROUTE_TOPK_SOFTMAX, 8, 2, 1, 1, false, false, 1.0f, NULL, NULL, NULL}, 48, false, false},
    {{SH_ROUTE_SIGMOID, 256, 8, 8, 4, true, true, 2.5f, NULL, NULL, NULL}, DIM_MAX, false, true},
    {{SH_ROUTE_SIGMOID, 17, 8, 1, 1, true, true, 1.0f, NULL, NULL, NULL}, 16, false, true},
    {{SH_ROUTE_SIGMOID, 1, 1, 1, 1, false, false, 1.0f, NULL, NULL, NULL}, 5, false, false},
};

typedef struct {
    router way;
    float *x, *gate, *logit_bias, *pick_bias;
    int32_t ids[TOKENS * TOPK_MAX];
    float weights[TOKENS * TOPK_MAX];
} data;

static void data_make(data *d, size_t i)
{
    uint64_t rng = i + 1;
    *d = (data){.way = ROUTERS[i]};
    d->x = random_floats(&rng, TOKENS * (size_t)d->way.dim, 1.0f);
    d->gate = random_floats(&rng, (size_t)d->way.r.experts * d->way.dim, 0.5f);
    d->logit_bias = random_floats(&rng, (size_t)d->way.r.experts, 1.0f);
    d->pick_bias = random_floats(&rng, (size_t)d->way.r.experts, 0.2f);
    d->way.r.gate = d->gate;
    if (d->way.logit_bias) d->way.r.logit_bias = d->logit_bias;
    if (d->way.pick_bias) d->way.r.pick_bias = d->pick_bias;
}

static void data_free(data *d)
{
    free(d->x);
    free(d->gate);
    free(d->logit_bias);
    free(d->pick_bias);
}

static void data_route(data *d, const char *level, int threads)
{
    sh_device *dev = level_open(level, threads, &LIMITS);
    dev->ops->route(dev, &d->way.r, tensor_of(d->x, d->way.dim), TOKENS, d->way.dim, d->ids,
                    d->weights);
    dev->ops->close(dev);
}

/* Index of the largest value that is not taken; the lowest index on a tie. */
static int best_of(const double *values, const bool *taken, int first, int end)
{
    int best = -1;
    for (int i = first; i < end; i++)
        if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
    return best;
}

typedef struct {
    double score[EXPERTS_MAX];  /* the weights come from these */
    double choice[EXPERTS_MAX]; /* the choice comes from these */
    int ids[TOPK_MAX];
    double weights[TOPK_MAX];
    double margin; /* by which the nearest other choice lost */
} truth;

static void truth_score(truth *t, const data *d, int token)
{
    const sh_router *r = &d->way.r;
    double sum = 0.0;
    for (int e = 0; e < r->experts; e++) {
        double logit = d->way.logit_bias ? (double)d->logit_bias[e] : 0.0;
        for (int i = 0; i < d->way.dim; i++)
            logit += (double)d->x[token * d->way.dim + i] * (double)d->gate[e * d->way.dim + i];
        if (r->kind == SH_ROUTE_SIGMOID)
            t->score[e] = 1.0 / (1.0 + exp(-logit));
        else
            t->score[e] = r->kind == SH_ROUTE_SOFTMAX ? exp(logit) : logit;
        sum += t->score[e];
    }
    for (int e = 0; e < r->experts; e++) {
        if (r->kind == SH_ROUTE_SOFTMAX) t->score[e] /= sum;
        t->choice[e] = t->score[e] + (d->way.pick_bias ? (double)d->pick_bias[e] : 0.0);
    }
}

/* Excludes the experts of all but the best groups. */
static void truth_groups(truth *t, const sh_router *r, bool *barred)
{
    double group[EXPERTS_MAX];
    bool taken[EXPERTS_MAX] = {false}, none[EXPERTS_MAX] = {false};
    int size = r->experts / r->groups;
    for (int g = 0; g < r->groups; g++) {
        int first = best_of(t->choice, none, g * size, (g + 1) * size);
        group[g] = t->choice[first];
        none[first] = true;
        int second = best_of(t->choice, none, g * size, (g + 1) * size);
        if (r->group_top2 && second >= 0) group[g] += t->choice[second];
        none[first] = false;
    }
    int last = 0;
    for (int k = 0; k < r->topk_groups; k++)
        taken[last = best_of(group, taken, 0, r->groups)] = true;
    int next = best_of(group, taken, 0, r->groups);
    if (next >= 0) t->margin = fmin(t->margin, group[last] - group[next]);
    for (int e = 0; e < r->experts; e++) barred[e] = !taken[e / size];
}

static void truth_make(truth *t, const data *d, int token)
{
    const sh_router *r = &d->way.r;
    bool taken[EXPERTS_MAX] = {false};
    double sum = 0.0;
    t->margin = 1.0;
    truth_score(t, d, token);
    if (r->groups > 1) truth_groups(t, r, taken);
    for (int k = 0; k < r->topk; k++) {
        int e = best_of(t->choice, taken, 0, r->experts);
        if (k > 0) t->margin = fmin(t->margin, t->choice[t->ids[k - 1]] - t->choice[e]);
        taken[t->ids[k] = e] = true;
        t->weights[k] = r->kind == SH_ROUTE_TOPK_SOFTMAX ? exp(t->score[e]) : t->score[e];
        sum += t->weights[k];
    }
    int next = best_of(t->choice, taken, 0, r->experts);
    if (next >= 0) t->margin = fmin(t->margin, t->choice[t->ids[r->topk - 1]] - t->choice[next]);
    for (int k = 0; k < r->topk; k++) {
        if (r->normalize || r->kind == SH_ROUTE_TOPK_SOFTMAX) t->weights[k] /= sum;
        t->weights[k] *= (double)r->scale;
    }
}

TEST(experts_and_weights_are_those_of_a_plain_router_in_double)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), close = 0;
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(ROUTERS); i++) {
            data d;
            data_make(&d, i);
            data_route(&d, names[l], 2);
            for (int token = 0; token < TOKENS; token++) {
                truth t;
                truth_make(&t, &d, token);
                if (t.margin < 1e-6) { /* too close for f32 to decide */
                    close++;
                    continue;
                }
                int topk = d.way.r.topk;
                for (int k = 0; k < topk; k++) {
                    assert_int_equal(d.ids[token * topk + k], t.ids[k]);
                    check_near(names[l], &d.weights[token * topk + k], &t.weights[k], 1,
                               3e-6 * (double)d.way.r.scale);
                }
            }
            data_free(&d);
        }
    assert_true(close < levels * 4);
}

TEST(every_level_and_architecture_has_the_same_bits)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++) {
        uint64_t hash = 0;
        for (size_t i = 0; i < SH_COUNT_OF(ROUTERS); i++) {
            data d;
            data_make(&d, i);
            data_route(&d, names[l], 1);
            hash = bits_hash(d.ids, sizeof(d.ids), hash);
            hash = bits_hash(d.weights, sizeof(d.weights), hash);
            data_free(&d);
        }
        if (hash != ROUTE_HASH) fail_msg("%s: hash %#llx", names[l], (unsigned long long)hash);
    }
}

TEST(a_token_has_the_same_bits_alone_and_in_a_batch)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(ROUTERS); i++) {
            data d;
            data_make(&d, i);
            data_route(&d, names[l], 2);
            sh_device *dev = level_open(names[l], 1, &LIMITS);
            int topk = d.way.r.topk;
            for (int token = 0; token < TOKENS; token++) {
                int32_t ids[TOPK_MAX];
                float weights[TOPK_MAX];
                dev->ops->route(dev, &d.way.r, tensor_of(d.x + token * d.way.dim, d.way.dim), 1,
                                d.way.dim, ids, weights);
                check_same_bits("ids", ids, d.ids + token * topk, topk * sizeof(int32_t));
                check_same_bits("weights", weights, d.weights + token * topk, topk * sizeof(float));
            }
            dev->ops->close(dev);
            data_free(&d);
        }
}

TEST(ties_go_to_the_lower_index)
{
    UNUSED_STATE;
    enum { EXPERTS = 24, DIM = 20 };
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    float x[DIM], gate[EXPERTS * DIM], weights[8];
    int32_t ids[8];
    for (int i = 0; i < DIM; i++) x[i] = 1.0f;
    for (int e = 0; e < EXPERTS; e++) /* experts 3, 11 and 19 are best, the others equal */
        for (int i = 0; i < DIM; i++) gate[e * DIM + i] = e % 8 == 3 ? 0.2f : 0.1f;
    for (int l = 0; l < levels; l++)
        for (int groups = 1; groups <= 3; groups += 2) {
            sh_device *dev = level_open(names[l], 1, &LIMITS);
            sh_router r = {.kind = SH_ROUTE_SOFTMAX, .experts = EXPERTS, .topk = 8, .gate = gate};
            r.groups = groups;
            r.topk_groups = 2;
            r.scale = 1.0f;
            dev->ops->route(dev, &r, tensor_of(x, DIM), 1, DIM, ids, weights);
            static const int32_t plain[] = {3, 11, 19, 0, 1, 2, 4, 5};
            static const int32_t grouped[] = {3, 11, 0, 1, 2, 4, 5, 6};
            assert_memory_equal(ids, groups == 1 ? plain : grouped, sizeof(ids));
            dev->ops->close(dev);
        }
}

TEST(ids_are_valid_and_distinct_even_when_every_score_is_nan)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(ROUTERS); i++) {
            data d;
            data_make(&d, i);
            for (int j = 0; j < TOKENS * d.way.dim; j++) d.x[j] = NAN;
            data_route(&d, names[l], 1);
            for (int j = 0; j < TOKENS * d.way.r.topk; j++) {
                assert_in_range(d.ids[j], 0, d.way.r.experts - 1);
                for (int k = j / d.way.r.topk * d.way.r.topk; k < j; k++)
                    assert_true(d.ids[k] != d.ids[j]);
            }
            data_free(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_and_weights_are_those_of_a_plain_router_in_double),
        cmocka_unit_test(every_level_and_architecture_has_the_same_bits),
        cmocka_unit_test(a_token_has_the_same_bits_alone_and_in_a_batch),
        cmocka_unit_test(ties_go_to_the_lower_index),
        cmocka_unit_test(ids_are_valid_and_distinct_even_when_every_score_is_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
