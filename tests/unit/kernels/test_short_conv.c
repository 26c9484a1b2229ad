/* Gated short convolutions against the formula in double, between levels, and against themselves:
 * the bits of a token must not depend on its batch or on where its prompt was cut. The memory of
 * states starts as NaN, so a state that was never written must not be read. */
#include "levels.h"

enum { CHANNELS_MAX = 200, LEN = 100, BLOCKS = 2 * (LEN / SH_KV_BLOCK + 1), TAPS_MAX = 16 };

static const sh_limits LIMITS = {
    .tokens = 3 * LEN, .cols = 64, .expert_rows = 64, .hidden = 64, .heads = 1};
static const int CHANNELS[] = {1, 15, 16, 17, 64, 65, CHANNELS_MAX};
static const int TAPS[] = {2, 3, 4, TAPS_MAX};
static const uint64_t HASH = 0x374336e928906d71;

/* One sequence and its convolution. */
typedef struct {
    sh_device *dev;
    sh_short_conv conv;
    sh_state state;
    size_t state_size;
    float *w, *bias, *gate_in, *gate_out, *x; /* [LEN, channels] the last three */
    float *y;
    int32_t blocks[BLOCKS];
} world;

static void world_open(world *w, const char *level, int threads, int channels, int taps, bool bias)
{
    uint64_t rng = (uint64_t)(channels * 100 + taps);
    sh_err err;
    *w = (world){.dev = level_open(level, threads, &LIMITS)};
    w->w = random_floats(&rng, (size_t)(channels * taps), 1.0f);
    w->bias = random_floats(&rng, (size_t)channels, 1.0f);
    w->gate_in = random_floats(&rng, (size_t)(channels * LEN), 2.0f);
    w->gate_out = random_floats(&rng, (size_t)(channels * LEN), 2.0f);
    w->x = random_floats(&rng, (size_t)(channels * LEN), 2.0f);
    w->y = calloc((size_t)(channels * LEN), sizeof(float));
    w->conv = (sh_short_conv){
        .channels = channels, .taps = taps, .w = w->w, .bias = bias ? w->bias : NULL};
    for (int i = 0; i < BLOCKS; i++) w->blocks[i] = (i * 3 + 1) % BLOCKS;
    w->state.block_bytes = w->dev->ops->conv_state_bytes(w->dev, channels, taps);
    w->state_size = w->state.block_bytes * BLOCKS;
    CHECK_OK(w->dev->ops->map(w->dev, w->state_size, "states", &w->state.data, &err), err);
    memset(w->state.data, 0xff, w->state_size);
}

static void world_close(world *w)
{
    w->dev->ops->unmap(w->dev, w->state.data, w->state_size);
    w->dev->ops->close(w->dev);
    free(w->w);
    free(w->bias);
    free(w->gate_in);
    free(w->gate_out);
    free(w->x);
    free(w->y);
}

/* Runs the spans, whose tokens follow each other in the arrays from token `from` on. */
static void world_step(world *w, const sh_span *spans, int count, int from, int tokens)
{
    int64_t channels = w->conv.channels, at = from * channels;
    sh_batch batch = {.tokens = tokens, .span_count = count, .spans = spans};
    const sh_device_batch *b = w->dev->ops->step_begin(w->dev, &batch);
    w->dev->ops->short_conv(w->dev, b, &w->conv, &w->state, tensor_of(w->gate_in + at, channels),
                            tensor_of(w->gate_out + at, channels), tensor_of(w->x + at, channels),
                            tensor_of(w->y + at, channels));
}

/* Tokens [from, to) of the sequence. */
static void world_run(world *w, int from, int to)
{
    sh_span span = {.count = to - from, .pos = from, .blocks = w->blocks};
    world_step(w, &span, 1, from, to - from);
}

static double reference(const world *w, int t, int c)
{
    int channels = (int)w->conv.channels, taps = w->conv.taps;
    double sum = w->conv.bias == NULL ? 0 : (double)w->bias[c];
    for (int j = 0; j < taps; j++) {
        int at = t - taps + 1 + j;
        if (at >= 0)
            sum += (double)w->w[j * channels + c] * (double)w->gate_in[at * channels + c] *
                   (double)w->x[at * channels + c];
    }
    return sum * (double)w->gate_out[t * channels + c];
}

TEST(every_level_agrees_with_the_formula_in_double)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(CHANNELS) * SH_COUNT_OF(TAPS); i++) {
            world w;
            int channels = CHANNELS[i % SH_COUNT_OF(CHANNELS)];
            world_open(&w, names[l], 2, channels, TAPS[i / SH_COUNT_OF(CHANNELS)], i % 2 == 0);
            world_run(&w, 0, LEN);
            for (int t = 0; t < LEN; t++)
                for (int c = 0; c < channels; c++) {
                    double want = reference(&w, t, c);
                    check_near(names[l], &w.y[t * channels + c], &want, 1, 4e-5);
                }
            world_close(&w);
        }
}

TEST(all_levels_have_the_same_bits)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++) {
        uint64_t hash = 0;
        for (size_t i = 0; i < SH_COUNT_OF(CHANNELS) * SH_COUNT_OF(TAPS); i++) {
            world w;
            int channels = CHANNELS[i % SH_COUNT_OF(CHANNELS)];
            world_open(&w, names[l], 1, channels, TAPS[i / SH_COUNT_OF(CHANNELS)], i % 2 == 0);
            world_run(&w, 0, LEN);
            hash = bits_hash(w.y, (size_t)(channels * LEN) * sizeof(float), hash);
            world_close(&w);
        }
        if (hash != HASH) fail_msg("%s: hash %#llx", names[l], (unsigned long long)hash);
    }
}

/* The states after the tokens are the same as well, and so are the snapshots in full blocks. */
TEST(a_prompt_has_the_same_bits_wherever_it_is_cut)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(TAPS); i++) {
        world whole, cut;
        world_open(&whole, NULL, 2, CHANNELS_MAX, TAPS[i], true);
        world_open(&cut, NULL, 2, CHANNELS_MAX, TAPS[i], true);
        world_run(&whole, 0, LEN);
        for (int at = 1; at < LEN; at++) {
            memset(cut.state.data, 0xff, cut.state_size);
            world_run(&cut, 0, at);
            for (int one = at; one < at + 3 && one < LEN; one++) world_run(&cut, one, one + 1);
            if (at + 3 < LEN) world_run(&cut, at + 3, LEN);
            check_same_bits("cut", cut.y, whole.y, CHANNELS_MAX * LEN * sizeof(float));
            check_same_bits("state", cut.state.data, whole.state.data, whole.state_size);
        }
        world_close(&whole);
        world_close(&cut);
    }
}

/* Whoever finds a full block in the cache, or drops tokens after it, continues from its snapshot.
 */
TEST(a_full_block_is_a_snapshot_to_continue_from)
{
    UNUSED_STATE;
    world w;
    world_open(&w, NULL, 1, CHANNELS_MAX, 4, false);
    world_run(&w, 0, LEN);
    float *want = malloc(CHANNELS_MAX * LEN * sizeof(float));
    memcpy(want, w.y, CHANNELS_MAX * LEN * sizeof(float));
    for (int border = SH_KV_BLOCK; border < LEN; border += SH_KV_BLOCK) {
        memset(w.y, 0, (size_t)(CHANNELS_MAX * LEN) * sizeof(float));
        world_run(&w, border, LEN);
        check_same_bits("after a border", w.y + border * CHANNELS_MAX, want + border * CHANNELS_MAX,
                        (size_t)(LEN - border) * CHANNELS_MAX * sizeof(float));
    }
    free(want);
    world_close(&w);
}

/* Three sequences in one step, the result in the place of a gate, with threads. */
TEST(a_batch_has_the_bits_of_its_sequences_alone)
{
    UNUSED_STATE;
    world alone, batch;
    world_open(&alone, NULL, 1, CHANNELS_MAX, 3, true);
    world_open(&batch, NULL, 3, CHANNELS_MAX, 3, true);
    sh_span spans[3] = {{.count = 7, .blocks = alone.blocks},
                        {.first = 7, .count = 1, .blocks = alone.blocks + 2},
                        {.first = 8, .count = LEN - 8, .blocks = alone.blocks + 4}};
    for (int s = 0; s < 3; s++) {
        sh_span one = spans[s];
        one.first = 0;
        world_step(&alone, &one, 1, spans[s].first, one.count);
    }
    memcpy(batch.y, batch.gate_in, CHANNELS_MAX * LEN * sizeof(float));
    float *gate = batch.gate_in;
    batch.gate_in = batch.y;
    world_step(&batch, spans, 3, 0, LEN);
    batch.gate_in = gate;
    check_same_bits("batch", batch.y, alone.y, CHANNELS_MAX * LEN * sizeof(float));
    check_same_bits("states", batch.state.data, alone.state.data, alone.state_size);
    world_close(&alone);
    world_close(&batch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_agrees_with_the_formula_in_double),
        cmocka_unit_test(all_levels_have_the_same_bits),
        cmocka_unit_test(a_prompt_has_the_same_bits_wherever_it_is_cut),
        cmocka_unit_test(a_full_block_is_a_snapshot_to_continue_from),
        cmocka_unit_test(a_batch_has_the_bits_of_its_sequences_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
