/* Gated delta nets against the formula in double, and against themselves: the bits of a token must
 * not depend on its batch or on where its prompt was cut. The memory of states starts as NaN, so a
 * state that was never written must not be read. */
#include "levels.h"

enum { LEN = 70, BLOCKS = 2 * (LEN / SH_KV_BLOCK + 1) };

static const sh_limits LIMITS = {
    .tokens = 3 * LEN, .cols = 64, .expert_rows = 64, .hidden = 64, .heads = 1};

static const sh_delta_net NETS[] = {
    {.heads = 1, .values = 1, .k_dim = 16, .v_dim = 16, .taps = 2, .eps = 1e-6f},
    {.heads = 3, .values = 2, .k_dim = 32, .v_dim = 16, .taps = 4, .eps = 1e-6f},
    {.heads = 2, .values = 4, .k_dim = 16, .v_dim = 80, .taps = 3, .eps = 1e-5f},
};

/* One sequence and its net. */
typedef struct {
    sh_device *dev;
    sh_delta_net net;
    sh_state state;
    size_t state_size;
    int in, ba, out; /* numbers of a row */
    float *weights[6], *qkvz, *bas, *y;
    int32_t blocks[BLOCKS];
} world;

static void world_open(world *w, const char *level, int threads, const sh_delta_net *net)
{
    uint64_t rng = (uint64_t)net->k_dim;
    int keys = net->heads * net->k_dim, values = net->heads * net->values;
    const int counts[6] = {net->taps * keys, net->taps * keys, net->taps * values * net->v_dim,
                           values,           values,           net->v_dim};
    sh_err err;
    *w = (world){.dev = level_open(level, threads, &LIMITS), .net = *net};
    w->in = 2 * (keys + values * net->v_dim);
    w->ba = 2 * values;
    w->out = values * net->v_dim;
    for (int i = 0; i < 6; i++) w->weights[i] = random_floats(&rng, (size_t)counts[i], 1.0f);
    w->net.conv_q = w->weights[0];
    w->net.conv_k = w->weights[1];
    w->net.conv_v = w->weights[2];
    w->net.a_log = w->weights[3];
    w->net.dt_bias = w->weights[4];
    w->net.norm = w->weights[5];
    w->qkvz = random_floats(&rng, (size_t)(LEN * w->in), 2.0f);
    w->bas = random_floats(&rng, (size_t)(LEN * w->ba), 2.0f);
    w->y = calloc((size_t)(LEN * w->out), sizeof(float));
    for (int i = 0; i < BLOCKS; i++) w->blocks[i] = (i * 5 + 1) % BLOCKS;
    w->state.block_bytes = w->dev->ops->delta_state_bytes(w->dev, net);
    w->state_size = w->state.block_bytes * BLOCKS;
    CHECK_OK(w->dev->ops->map(w->dev, w->state_size, "states", &w->state.data, &err), err);
    memset(w->state.data, 0xff, w->state_size);
}

static void world_close(world *w)
{
    w->dev->ops->unmap(w->dev, w->state.data, w->state_size);
    w->dev->ops->close(w->dev);
    for (int i = 0; i < 6; i++) free(w->weights[i]);
    free(w->qkvz);
    free(w->bas);
    free(w->y);
}

/* Runs the spans, whose tokens follow each other in the arrays from token `from` on. */
static void world_step(world *w, const sh_span *spans, int count, int from, int tokens)
{
    sh_batch batch = {.tokens = tokens, .span_count = count, .spans = spans};
    const sh_device_batch *b = w->dev->ops->step_begin(w->dev, &batch);
    w->dev->ops->delta_net(w->dev, b, &w->net, &w->state, tensor_of(w->qkvz + from * w->in, w->in),
                           tensor_of(w->bas + from * w->ba, w->ba),
                           tensor_of(w->y + from * w->out, w->out));
}

/* Tokens [from, to) of the sequence. */
static void world_run(world *w, int from, int to)
{
    sh_span span = {.count = to - from, .pos = from, .blocks = w->blocks};
    world_step(w, &span, 1, from, to - from);
}

/* Channel c of a head's q, k and v after convolution and silu. `w` and `at`: its part of the
 * weights, and its channel there, among `all`. */
static double mixed(const world *w, int t, int head, int c, const float *weights, int at, int all)
{
    int each = w->in / w->net.heads, taps = w->net.taps;
    double sum = 0;
    for (int j = 0; j < taps; j++) {
        int row = t - taps + 1 + j;
        if (row >= 0)
            sum += (double)weights[j * all + at] * (double)w->qkvz[row * w->in + head * each + c];
    }
    return sum / (1 + exp(-sum));
}

static void unit_length(double *x, int count, double length)
{
    double square = 1e-6;
    for (int i = 0; i < count; i++) square += x[i] * x[i];
    for (int i = 0; i < count; i++) x[i] *= length / sqrt(square);
}

/* All tokens of one value head, out [LEN, v_dim]. */
static void reference(const world *w, int head, int value, double *out)
{
    const sh_delta_net *n = &w->net;
    int k_dim = n->k_dim, v_dim = n->v_dim, own = head * n->values + value;
    double s[32][80] = {{0}}, q[32], k[32], news[80];
    for (int t = 0; t < LEN; t++, out += v_dim) {
        double square = 0, b = (double)w->bas[t * w->ba + head * 2 * n->values + value];
        double a = (double)w->bas[t * w->ba + head * 2 * n->values + n->values + value];
        double decay = exp(-exp((double)n->a_log[own]) * log1p(exp(a + (double)n->dt_bias[own])));
        for (int i = 0; i < k_dim; i++) {
            int at = head * k_dim + i, all = n->heads * k_dim;
            q[i] = mixed(w, t, head, i, n->conv_q, at, all);
            k[i] = mixed(w, t, head, k_dim + i, n->conv_k, at, all);
        }
        unit_length(q, k_dim, 1 / sqrt((double)k_dim));
        unit_length(k, k_dim, 1);
        for (int c = 0; c < v_dim; c++) {
            double known = 0;
            int at = own * v_dim + c, all = n->heads * n->values * v_dim;
            for (int i = 0; i < k_dim; i++) known += k[i] * decay * s[i][c];
            news[c] = mixed(w, t, head, 2 * k_dim + value * v_dim + c, n->conv_v, at, all) - known;
            news[c] /= 1 + exp(-b);
            out[c] = 0;
            for (int i = 0; i < k_dim; i++) {
                s[i][c] = decay * s[i][c] + k[i] * news[c];
                out[c] += q[i] * s[i][c];
            }
            square += out[c] * out[c] / v_dim;
        }
        for (int c = 0; c < v_dim; c++) {
            int each = w->in / n->heads, z = 2 * k_dim + (n->values + value) * v_dim + c;
            double gate = (double)w->qkvz[t * w->in + head * each + z];
            out[c] *= (double)n->norm[c] / sqrt(square + (double)n->eps) * gate / (1 + exp(-gate));
        }
    }
}

TEST(every_level_agrees_with_the_formula_in_double)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(NETS); i++) {
            const sh_delta_net *n = &NETS[i];
            double *want = malloc((size_t)(LEN * n->v_dim) * sizeof(*want));
            world w;
            world_open(&w, names[l], 2, n);
            world_run(&w, 0, LEN);
            for (int h = 0; h < n->heads * n->values; h++) {
                reference(&w, h / n->values, h % n->values, want);
                for (int t = 0; t < LEN; t++)
                    check_near(names[l], w.y + t * w.out + h * n->v_dim, want + t * n->v_dim,
                               (size_t)n->v_dim, 2e-4);
            }
            world_close(&w);
            free(want);
        }
}

/* The states after the tokens are the same as well, and so are the snapshots in full blocks. */
TEST(a_prompt_has_the_same_bits_wherever_it_is_cut)
{
    UNUSED_STATE;
    world whole, cut;
    world_open(&whole, NULL, 2, &NETS[1]);
    world_open(&cut, NULL, 2, &NETS[1]);
    world_run(&whole, 0, LEN);
    for (int at = 1; at < LEN; at++) {
        memset(cut.state.data, 0xff, cut.state_size);
        world_run(&cut, 0, at);
        for (int one = at; one < at + 3 && one < LEN; one++) world_run(&cut, one, one + 1);
        if (at + 3 < LEN) world_run(&cut, at + 3, LEN);
        check_same_bits("cut", cut.y, whole.y, (size_t)(whole.out * LEN) * sizeof(float));
        check_same_bits("state", cut.state.data, whole.state.data, whole.state_size);
    }
    /* Whoever drops tokens after a full block continues from its snapshot. */
    world_run(&cut, SH_KV_BLOCK, LEN);
    check_same_bits("after a border", cut.y, whole.y, (size_t)(whole.out * LEN) * sizeof(float));
    world_close(&whole);
    world_close(&cut);
}

TEST(a_batch_has_the_bits_of_its_sequences_alone)
{
    UNUSED_STATE;
    world alone, batch;
    world_open(&alone, NULL, 1, &NETS[2]);
    world_open(&batch, NULL, 3, &NETS[2]);
    sh_span spans[3] = {{.count = 7, .blocks = alone.blocks},
                        {.first = 7, .count = 1, .blocks = alone.blocks + 2},
                        {.first = 8, .count = LEN - 8, .blocks = alone.blocks + 4}};
    for (int s = 0; s < 3; s++) {
        sh_span one = spans[s];
        one.first = 0;
        world_step(&alone, &one, 1, spans[s].first, one.count);
    }
    world_step(&batch, spans, 3, 0, LEN);
    check_same_bits("batch", batch.y, alone.y, (size_t)(alone.out * LEN) * sizeof(float));
    check_same_bits("states", batch.state.data, alone.state.data, alone.state_size);
    world_close(&alone);
    world_close(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_agrees_with_the_formula_in_double),
        cmocka_unit_test(a_prompt_has_the_same_bits_wherever_it_is_cut),
        cmocka_unit_test(a_batch_has_the_bits_of_its_sequences_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
