/* RoPE against complex numbers in double. */
#include "levels.h"

#include <complex.h>

static const sh_limits LIMITS = {
    .tokens = 64, .cols = 64, .expert_rows = 64, .hidden = 64, .heads = 1};

enum { TOKENS = 9, HEADS = 3, HEAD_DIM = 160 };

static const int32_t POSITIONS[TOKENS] = {0, 1, 2, 31, 32, 4095, 131071, 1000003, 7};

static void frequencies(float *inv_freq, int half)
{
    for (int i = 0; i < half; i++) inv_freq[i] = (float)pow(10000.0, -(double)i / half);
}

/* Each pair of x as a complex number, rotated by its angle. */
static void check_turned(const char *what, const sh_rope *rope, const float *before,
                         const float *after)
{
    int half = rope->rotary_dim / 2;
    for (int t = 0; t < TOKENS; t++)
        for (int h = 0; h < HEADS; h++) {
            const float *x = before + (t * HEADS + h) * HEAD_DIM;
            const float *y = after + (t * HEADS + h) * HEAD_DIM;
            for (int i = 0; i < half; i++) {
                int a = rope->interleaved ? 2 * i : i, b = rope->interleaved ? 2 * i + 1 : i + half;
                double angle = (double)POSITIONS[t] * (double)rope->inv_freq[i];
                double complex z = ((double)x[a] + (double)x[b] * I) * cexp(angle * I);
                double want[] = {creal(z) * (double)rope->scale, cimag(z) * (double)rope->scale};
                check_near(what, &y[a], &want[0], 1, 5e-7);
                check_near(what, &y[b], &want[1], 1, 5e-7);
            }
            check_same_bits("rest", x + 2 * half, y + 2 * half,
                            (size_t)(HEAD_DIM - 2 * half) * sizeof(float));
        }
}

/* The table of tokens at these positions, each a sequence of its own. */
static void table_fill(sh_device *dev, const sh_rope *rope, const int32_t *positions, int tokens,
                       float *table)
{
    sh_span *spans = calloc((size_t)tokens, sizeof(*spans));
    sh_rope both[2] = {*rope, *rope};
    for (int i = 0; i < tokens; i++)
        spans[i] = (sh_span){.first = i, .count = 1, .pos = positions[i]};
    sh_batch batch = {.tokens = tokens, .span_count = tokens, .spans = spans};
    dev->ops->rope_table(dev, dev->ops->step_begin(dev, &batch), both, table);
    free(spans);
}

TEST(heads_turn_as_complex_numbers_do)
{
    UNUSED_STATE;
    static const int dims[] = {2, 8, 32, 34, 62, 64, 66, 128, 160};
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(dims) * 2; i++) {
            float inv_freq[HEAD_DIM / 2], table[TOKENS * HEAD_DIM];
            sh_rope rope = {dims[i / 2], i % 2 == 1, i % 4 < 2 ? 1.0f : 1.25f, inv_freq};
            frequencies(inv_freq, rope.rotary_dim / 2);
            uint64_t rng = i + 1;
            float *x = random_floats(&rng, TOKENS * HEADS * HEAD_DIM, 1.0f);
            float *y = malloc(TOKENS * HEADS * HEAD_DIM * sizeof(float));
            memcpy(y, x, TOKENS * HEADS * HEAD_DIM * sizeof(float));
            sh_device *dev = level_open(names[l], 2, &LIMITS);
            table_fill(dev, &rope, POSITIONS, TOKENS, table);
            dev->ops->rope(dev, &rope, table, tensor_of(y, HEADS * HEAD_DIM), TOKENS, HEADS,
                           HEAD_DIM);
            check_turned(names[l], &rope, x, y);
            dev->ops->close(dev);
            free(x);
            free(y);
        }
}

TEST(a_batch_large_enough_for_threads_has_the_bits_of_its_tokens_alone)
{
    UNUSED_STATE;
    enum { MANY = 64, ROTARY = 64 };
    float inv_freq[ROTARY / 2], table[MANY * ROTARY], one[ROTARY];
    int32_t positions[MANY];
    sh_rope rope = {ROTARY, false, 1.0f, inv_freq};
    frequencies(inv_freq, ROTARY / 2);
    uint64_t rng = 8;
    float *x = random_floats(&rng, MANY * HEADS * HEAD_DIM, 1.0f);
    float *y = malloc(MANY * HEADS * HEAD_DIM * sizeof(float));
    memcpy(y, x, MANY * HEADS * HEAD_DIM * sizeof(float));
    for (int t = 0; t < MANY; t++) positions[t] = 3 * t;
    sh_device *dev = level_open(NULL, 2, &LIMITS);
    table_fill(dev, &rope, positions, MANY, table);
    dev->ops->rope(dev, &rope, table, tensor_of(y, HEADS * HEAD_DIM), MANY, HEADS, HEAD_DIM);
    for (int t = 0; t < MANY; t++) {
        float *row = x + t * HEADS * HEAD_DIM;
        table_fill(dev, &rope, &positions[t], 1, one);
        check_same_bits("table", one, table + t * ROTARY, sizeof(one));
        dev->ops->rope(dev, &rope, one, tensor_of(row, HEADS * HEAD_DIM), 1, HEADS, HEAD_DIM);
        check_same_bits("heads", row, y + t * HEADS * HEAD_DIM, HEADS * HEAD_DIM * sizeof(float));
    }
    dev->ops->close(dev);
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_turn_as_complex_numbers_do),
        cmocka_unit_test(a_batch_large_enough_for_threads_has_the_bits_of_its_tokens_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
