/* The demo model answers like Hugging Face transformers in f32: the same tokens, wherever the first
 * and the second choice are far enough apart, with the same log-probabilities. */
#include "base/json.h"
#include "rig.h"

enum { ANSWER_MAX = 128, FILE_MAX = 1 << 20 };
static const double MARGIN_MIN = 0.05, LOGPROB_DIFF_MAX = 0.02;

static int read_ids(const cJSON *item, const char *key, int32_t *ids)
{
    const cJSON *list = cJSON_GetObjectItem(item, key), *id = NULL;
    int count = 0;
    cJSON_ArrayForEach(id, list) ids[count++] = id->valueint;
    return count;
}

static int best(const float *logits, int vocab)
{
    int top = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > logits[top]) top = i;
    return top;
}

static double logprob(const float *logits, int vocab, int id)
{
    double max = (double)logits[best(logits, vocab)], sum = 0;
    for (int i = 0; i < vocab; i++) sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

static double check_answer(const rig *r, const cJSON *item, float *logits)
{
    int32_t ids[RIG_TOKENS + ANSWER_MAX];
    int vocab = r->config->vocab, prompt = read_ids(item, "prompt_ids", ids);
    int count = read_ids(item, "output_ids", ids + prompt);
    const cJSON *logprobs = cJSON_GetObjectItem(item, "logprobs");
    bool sure = cJSON_GetObjectItem(item, "smallest_margin")->valuedouble > MARGIN_MIN;
    double worst = 0;
    rig_run(r, ids, 0, prompt, prompt + count, 0, logits);
    const float *last = logits + (prompt - 1) * vocab;
    for (int i = 0; i < count; i++) {
        if (sure) assert_int_equal(best(last, vocab), ids[prompt + i]);
        double want = cJSON_GetArrayItem(logprobs, i)->valuedouble;
        double diff = fabs(logprob(last, vocab, ids[prompt + i]) - want);
        if (!(diff <= worst)) worst = diff;
        rig_run(r, ids, prompt + i, 1, prompt + count, 0, logits);
        last = logits;
    }
    return worst;
}

static void check_answers(bool exact)
{
    sh_err err = {0};
    cJSON *json = NULL;
    const cJSON *item = NULL;
    int answers = 0;
    double worst = 0;
    CHECK_OK(sh_json_load("tests/data/demo-golden.json", FILE_MAX, &json, &err), err);
    rig r = rig_open("models/demo", exact, NULL, 2);
    float *logits = sh_alloc_array((size_t)RIG_TOKENS * (size_t)r.config->vocab, sizeof(float));
    int every = test_is_short() ? 8 : 1, at = 0;
    cJSON_ArrayForEach(item, json)
    {
        if (at++ % every != 0) continue;
        double diff = check_answer(&r, item, logits);
        if (!(diff <= worst)) worst = diff;
        answers++;
    }
    print_message("# %d answers, largest difference of a log-probability %.4f\n", answers, worst);
    assert_true(answers > 0);
    if (!(worst <= LOGPROB_DIFF_MAX)) fail_msg("a log-probability is off by %g", worst);
    free(logits);
    rig_close(&r);
    cJSON_Delete(json);
}

TEST(answers_are_the_golden_ones_with_int8_activations)
{
    UNUSED_STATE;
    check_answers(false);
}

TEST(answers_are_the_golden_ones_with_f32_activations)
{
    UNUSED_STATE;
    check_answers(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_the_golden_ones_with_int8_activations),
        cmocka_unit_test(answers_are_the_golden_ones_with_f32_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
