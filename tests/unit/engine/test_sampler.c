/* The whole row, sorted, is the reference: any split into parts must pick the same token. */
#include "engine/sampler.h"

#include "kernels/device.h"

#include "base/hash.h"

#include "test.h"

#include <math.h>
#include <string.h>

enum { VOCAB = 1000, PARTS_MAX = 5, ROWS_MAX = 5 };

static float row[VOCAB];
static sh_candidate scratch[2 * VOCAB];
static sh_device *device;
static uint64_t random_state = 7;

static double uniform(void)
{
    random_state = sh_mix64(random_state);
    return (double)(random_state >> 11) * 0x1p-53;
}

static void row_fill(double spread)
{
    for (int i = 0; i < VOCAB; i++) row[i] = (float)((uniform() - 0.5) * spread);
    for (int i = 0; i < 20; i++)
        row[(int)(uniform() * VOCAB)] = row[(int)(uniform() * VOCAB)]; /* ties */
}

/* Summarizes `count` rows [count, len] of a vocabulary part that starts at token `first`. */
static void scan_on(sh_device *dev, const sh_row_query *queries, int count, float *logits,
                    int first, int len, sh_logits_summary *out)
{
    static const int32_t rows[ROWS_MAX];
    sh_span span = {.count = 1};
    sh_batch batch = {
        .tokens = 1, .span_count = 1, .spans = &span, .rows = rows, .row_count = count};
    sh_tensor tensor = {.data = logits, .stride = len, .element_size = sizeof(float)};
    sh_err err;
    const sh_device_batch *b = dev->ops->step_begin(dev, &batch);
    dev->ops->scan(dev, b, tensor, first, len, queries, out);
    CHECK_OK(dev->ops->step_end(dev, b, &err), err);
}

static sh_device *scan_device(const char *level, int threads, int vocab)
{
    sh_device_opts opts = {.threads = threads, .level = level};
    sh_limits limits = {.tokens = 1, .rows = ROWS_MAX, .cols = 64, .vocab = vocab};
    sh_device *dev;
    sh_err err;
    CHECK_OK(sh_device_open(NULL, &opts, &dev, &err), err);
    CHECK_OK(dev->ops->reserve(dev, &limits, &err), err);
    return dev;
}

static void scan_row(const sh_draw *draw, const float *logits, int first, int len,
                     sh_logits_summary *out)
{
    float copy[VOCAB];
    sh_row_query query = {.draw = *draw};
    memcpy(copy, logits, (size_t)len * sizeof(float));
    scan_on(device, &query, 1, copy, first, len, out);
}

static sh_status pick_in_parts(const sh_draw *draw, int parts, sh_pick *out)
{
    static sh_logits_summary summaries[PARTS_MAX];
    int first = 0;
    for (int i = 0; i < parts; i++) {
        int len = i == parts - 1 ? VOCAB - first : (int)(uniform() * (VOCAB - first));
        scan_row(draw, row + first, first, len, &summaries[i]);
        first += len;
    }
    return sh_pick_join(draw, summaries, parts, out);
}

/* Adds empty parts, all zeros, as sent by a rank without a part of the vocabulary. */
static sh_status pick_beside_empty(const sh_draw *draw, sh_pick *out)
{
    static sh_logits_summary summaries[PARTS_MAX];
    memset(summaries, 0, sizeof(summaries));
    scan_row(draw, row, 0, VOCAB / 2, &summaries[1]);
    scan_row(draw, row + VOCAB / 2, VOCAB / 2, VOCAB - VOCAB / 2, &summaries[3]);
    return sh_pick_join(draw, summaries, PARTS_MAX, out);
}

static sh_draw random_draw(int i)
{
    static const double ps[] = {1, 0.9, 0.5, 0.05, 0}, mins[] = {0, 0.05, 0.3, 1},
                        heats[] = {0, 0.3, 1, 3};
    static const int ks[] = {0, 1, 5, 50, 300};
    return (sh_draw){.temperature = heats[i % 4],
                     .top_p = ps[(int)(uniform() * 5)],
                     .min_p = mins[(int)(uniform() * 4)],
                     .top_k = ks[(int)(uniform() * 5)],
                     .seed = (uint64_t)i,
                     .position = i * 3,
                     .logprobs = i % 7 - 1};
}

TEST(every_cut_of_a_row_picks_the_token_of_the_whole_row)
{
    UNUSED_STATE;
    int settled = 0;
    for (int i = 0; i < 4000; i++) {
        row_fill(i % 3 == 0 ? 4 : 30);
        sh_draw draw = random_draw(i);
        sh_pick whole, parts;
        sh_pick_whole(&draw, row, VOCAB, scratch, &whole);
        if (pick_in_parts(&draw, 1 + i % PARTS_MAX, &parts) == SH_AGAIN) continue;
        settled++;
        assert_int_equal(parts.id, whole.id);
        if (draw.logprobs < 0) continue;
        assert_true(fabs((double)parts.logprob - (double)whole.logprob) < 1e-4);
        assert_int_equal(parts.top_count, whole.top_count);
        for (int t = 0; t < parts.top_count; t++)
            assert_int_equal(parts.top[t].id, whole.top[t].id);
    }
    assert_true(settled > 3000); /* only rarely is the whole row needed */
}

TEST(greedy_takes_the_largest_and_of_equals_the_first)
{
    UNUSED_STATE;
    row_fill(1);
    row[700] = row[300] = 9;
    sh_draw draw = {.temperature = 0, .top_p = 1, .logprobs = -1};
    sh_pick pick;
    for (int parts = 1; parts <= PARTS_MAX; parts++) {
        assert_int_equal(pick_in_parts(&draw, parts, &pick), SH_OK);
        assert_int_equal(pick.id, 300);
    }
}

/* Draws follow the softmax: with n draws the share of a token of probability p is p within 5
 * standard errors. */
TEST(draws_follow_the_probabilities)
{
    UNUSED_STATE;
    enum { DRAWS = 40000, FEW = 6 };
    static const float logits[FEW] = {0, 1, 2, 0.5f, -1, 1.5f};
    static const double heats[] = {0.5, 1, 2};
    for (size_t h = 0; h < 3; h++) {
        double p[FEW], total = 0;
        int seen[FEW] = {0};
        for (int i = 0; i < FEW; i++) total += p[i] = exp((double)logits[i] / heats[h]);
        for (int n = 0; n < DRAWS; n++) {
            sh_draw draw = {
                .temperature = heats[h], .top_p = 1, .seed = 5, .position = n, .logprobs = -1};
            sh_logits_summary scan;
            sh_pick pick;
            scan_row(&draw, logits, 0, FEW, &scan);
            assert_int_equal(sh_pick_join(&draw, &scan, 1, &pick), SH_OK);
            seen[pick.id]++;
        }
        for (int i = 0; i < FEW; i++) {
            double want = p[i] / total, sigma = sqrt(want * (1 - want) / DRAWS);
            assert_true(fabs(seen[i] / (double)DRAWS - want) < 5 * sigma);
        }
    }
}

TEST(each_filter_keeps_the_right_prefix)
{
    UNUSED_STATE;
    float logits[4] = {logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f)};
    static const struct {
        double top_p, min_p;
        int top_k, largest;
    } cases[] = {{0.5, 0, 0, 0},  {0.51, 0, 0, 1},   {0.8, 0, 0, 1},
                 {0.96, 0, 0, 3}, {1, 0.29, 0, 2},   {1, 0.31, 0, 1},
                 {1, 0, 2, 1},    {0.9, 0.01, 3, 2}, {0, 0, 0, 0}};
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        int largest = 0;
        for (int n = 0; n < 3000; n++) {
            sh_draw draw = {.temperature = 1.5,
                            .top_p = cases[c].top_p,
                            .min_p = cases[c].min_p,
                            .top_k = cases[c].top_k,
                            .position = n,
                            .logprobs = -1};
            sh_logits_summary scan;
            sh_pick pick;
            scan_row(&draw, logits, 0, 4, &scan);
            assert_int_equal(sh_pick_join(&draw, &scan, 1, &pick), SH_OK);
            if (pick.id > largest) largest = pick.id;
        }
        assert_int_equal(largest, cases[c].largest);
    }
}

TEST(penalties_and_bias_act_in_their_order)
{
    UNUSED_STATE;
    static const int32_t bias_ids[] = {3, 1}, history[] = {1, 2, 2, 5, 2};
    static const float bias[] = {4, -1};
    sh_sampling s = sh_sampling_default();
    s.logit_bias_count = 2;
    s.logit_bias_ids = bias_ids;
    s.logit_bias = bias;
    s.repetition_penalty = 2;
    s.repetition_window = 2;
    s.presence_penalty = 0.5;
    s.frequency_penalty = 0.25;
    sh_adjust list[16];
    sh_marks marks;
    sh_marks_init(&marks, 6);
    assert_int_equal(sh_adjust_list(&s, history, 3, 1, &marks, list),
                     3); /* leaves nothing behind */
    int count = sh_adjust_list(&s, history, 5, 1, &marks, list);
    assert_true(count <= sh_adjust_max(&s, 5, 1));
    sh_marks_reset(&marks);
    float logits[6] = {1, 1, 1, 1, 1, -1};
    sh_row_query_apply(&(sh_row_query){.adjusts = list, .adjust_count = count}, logits, 0, 6);
    assert_true(logits[0] == 1);
    assert_true(logits[1] == 0);                       /* bias only: outside window and answer */
    assert_true(logits[2] == 1 / 2.0f - 0.5f - 0.75f); /* repeated, present, three times */
    assert_true(logits[3] == 5);
    assert_true(logits[5] == -2 - 0.75f); /* negative logits are multiplied */
    float part[2] = {1, 1};
    sh_row_query_apply(&(sh_row_query){.adjusts = list, .adjust_count = count}, part, 3,
                       2); /* the part with tokens 3 and 4 */
    assert_true(part[0] == 5 && part[1] == 1);
}

enum { LONG = 40000, ROWS = ROWS_MAX };

/* The summaries of five long rows, each with another kind of draw, some with logit changes. */
static void scan_long(const char *level, int threads, int first, int count, sh_logits_summary *out)
{
    static float logits[ROWS * LONG];
    static const sh_adjust changes[] = {{.id = 17, .bias = 9, .factor = 1},
                                        {.id = 39999, .bias = -INFINITY, .factor = 1}};
    sh_row_query asks[ROWS] = {
        {.draw = {.temperature = 0, .top_p = 1, .logprobs = -1}},
        {.draw = {.temperature = 1, .top_p = 1, .seed = 3, .logprobs = 5}},
        {.draw = {.temperature = 0.7, .top_p = 0.9, .top_k = 40, .logprobs = -1}},
        {.draw = {.temperature = 1, .top_p = 0.9, .logprobs = 20}, changes, 2},
        {.draw = {.temperature = 2, .top_p = 1, .seed = 9, .logprobs = -1}, changes, 2},
    };
    sh_device *dev = scan_device(level, threads, LONG);
    random_state = 11;
    for (int i = 0; i < ROWS * LONG; i++) logits[i] = (float)((uniform() - 0.5) * 8);
    memset(out, 0, (size_t)count * sizeof(*out));
    scan_on(dev, asks + first, count, logits + first * LONG, 0, LONG, out);
    dev->ops->close(dev);
}

TEST(a_summary_has_the_same_bits_alone_in_a_batch_and_on_any_threads)
{
    UNUSED_STATE;
    static sh_logits_summary whole[ROWS], again[ROWS];
    scan_long("auto", 3, 0, ROWS, whole);
    scan_long("generic", 1, 0, ROWS, again);
    assert_memory_equal(whole, again, sizeof(whole));
    for (int i = 0; i < ROWS; i++) {
        scan_long("auto", 2, i, 1, again);
        assert_memory_equal(&whole[i], again, sizeof(whole[i]));
    }
}

TEST(a_sorted_row_has_the_best_first_and_of_equals_the_first)
{
    UNUSED_STATE;
    row_fill(6);
    row[5] = -INFINITY, row[6] = INFINITY, row[7] = 0.0f, row[8] = -0.0f, row[9] = 0.0f;
    sh_row_sort(row, VOCAB, scratch);
    for (int i = 0; i < VOCAB; i++) {
        assert_true(scratch[i].logit == row[scratch[i].id]);
        if (i > 0) assert_true(sh_candidate_better(scratch[i - 1], scratch[i]));
    }
}

TEST(a_part_without_tokens_never_wins)
{
    UNUSED_STATE;
    for (int i = 0; i < 400; i++) {
        row_fill(4);
        for (int t = 0; t < VOCAB; t++) row[t] -= 50; /* an empty part's zeros would win */
        sh_draw draw = random_draw(i);
        sh_pick whole, joined;
        sh_pick_whole(&draw, row, VOCAB, scratch, &whole);
        if (pick_beside_empty(&draw, &joined) == SH_OK) assert_int_equal(joined.id, whole.id);
    }
}

/* Every other token or so, one, a few neighbours, nearly all. */
static void mask_fill(uint64_t allowed[VOCAB / 64 + 1], int i)
{
    int first = (int)(uniform() * (VOCAB - 8));
    for (size_t w = 0; w < VOCAB / 64 + 1; w++)
        allowed[w] = i % 4 == 0 ? sh_mix64(w + (uint64_t)i) : i % 4 == 3 ? UINT64_MAX : 0;
    for (int id = first; id < first + (i % 4 == 1 ? 1 : 8); id++) {
        uint64_t bit = (uint64_t)1 << id % 64;
        if (i % 4 == 3)
            allowed[id / 64] &= ~bit;
        else
            allowed[id / 64] |= bit;
    }
}

/* Tokens that a grammar forbids; the mask covers the whole vocabulary, whatever the part. */
TEST(only_allowed_tokens_are_drawn)
{
    UNUSED_STATE;
    uint64_t allowed[VOCAB / 64 + 1];
    for (int i = 0; i < 400; i++) {
        float copy[VOCAB];
        sh_draw draw = random_draw(i);
        sh_row_query query = {.draw = draw, .allowed = allowed};
        sh_logits_summary summaries[2];
        sh_pick whole, joined;
        int cut = 1 + i % (VOCAB - 1);
        row_fill(6);
        mask_fill(allowed, i);
        for (int id = 0; id < VOCAB; id++) /* the best of all is forbidden */
            if ((allowed[id / 64] >> id % 64 & 1) == 0) row[id] += 100;
        memcpy(copy, row, sizeof(copy));
        memset(summaries, 0, sizeof(summaries));
        scan_on(device, &query, 1, copy, 0, cut, &summaries[0]);
        scan_on(device, &query, 1, copy + cut, cut, VOCAB - cut, &summaries[1]);
        for (int id = 0; id < VOCAB; id++)
            if ((allowed[id / 64] >> id % 64 & 1) == 0) row[id] = -INFINITY;
        sh_pick_whole(&draw, row, VOCAB, scratch, &whole);
        assert_true((allowed[whole.id / 64] >> whole.id % 64 & 1) != 0);
        if (sh_pick_join(&draw, summaries, 2, &joined) != SH_OK) continue;
        assert_int_equal(joined.id, whole.id);
        assert_true(fabs((double)joined.logprob - (double)whole.logprob) < 1e-4);
        if (i % 4 == 1) assert_true(joined.logprob == 0); /* there was no choice */
        assert_int_equal(joined.top_count, whole.top_count);
        for (int t = 0; t < joined.top_count; t++)
            assert_true(joined.top[t].id == whole.top[t].id && isfinite(joined.top[t].logprob));
    }
}

int main(void)
{
    device = scan_device(NULL, 2, VOCAB);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_without_tokens_never_wins),
        cmocka_unit_test(only_allowed_tokens_are_drawn),
        cmocka_unit_test(every_cut_of_a_row_picks_the_token_of_the_whole_row),
        cmocka_unit_test(a_summary_has_the_same_bits_alone_in_a_batch_and_on_any_threads),
        cmocka_unit_test(a_sorted_row_has_the_best_first_and_of_equals_the_first),
        cmocka_unit_test(greedy_takes_the_largest_and_of_equals_the_first),
        cmocka_unit_test(draws_follow_the_probabilities),
        cmocka_unit_test(each_filter_keeps_the_right_prefix),
        cmocka_unit_test(penalties_and_bias_act_in_their_order),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device->ops->close(device);
    return failed;
}
