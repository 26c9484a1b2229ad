/* The whole engine behind its socket, with the demo model. The expected answers were computed by
 * another implementation. */
#include "engine/engine_client.h"

#include "base/hash.h"
#include "base/json.h"
#include "engine/engine_socket.h"

#include "test.h"
#include "unit/fenced.h"

#include <math.h>
#include <poll.h>
#include <unistd.h>

enum { CASES_MAX = 64, TOKENS_MAX = 512 };

struct answer {
    bool done;
    int count;
    int32_t tokens[TOKENS_MAX];
    float logprobs[TOKENS_MAX];
    sh_event end;
};

struct golden {
    int prompt_count, output_count;
    int32_t prompt[TOKENS_MAX], output[TOKENS_MAX];
    double logprobs[TOKENS_MAX], margin;
};

struct world {
    char path[64];
    sh_engine_socket *engine_socket;
    sh_engine *engine;
    sh_engine_client *client;
    struct answer answers[CASES_MAX];
};

static sh_err err;
static struct golden golden[CASES_MAX];
static int golden_count;

static int numbers(const cJSON *list, int32_t *ints, double *doubles)
{
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        assert_true(count < TOKENS_MAX);
        if (ints != NULL) ints[count] = item->valueint;
        if (doubles != NULL) doubles[count] = item->valuedouble;
        count++;
    }
    return count;
}

static int golden_load(void **state)
{
    UNUSED_STATE;
    cJSON *json = NULL;
    CHECK_OK(sh_json_load("tests/data/demo-golden.json", 1 << 24, &json, &err), err);
    const cJSON *item;
    cJSON_ArrayForEach(item, json)
    {
        if (test_is_short() && golden_count == 4) break;
        struct golden *g = &golden[golden_count++];
        g->prompt_count = numbers(cJSON_GetObjectItem(item, "prompt_ids"), g->prompt, NULL);
        g->output_count = numbers(cJSON_GetObjectItem(item, "output_ids"), g->output, NULL);
        numbers(cJSON_GetObjectItem(item, "logprobs"), NULL, g->logprobs);
        g->margin = cJSON_GetObjectItem(item, "smallest_margin")->valuedouble;
    }
    cJSON_Delete(json);
    return 0;
}

static struct world *world_open_at(const char *dir, int drafts, int kv_tokens, const char *name)
{
    struct world *w = calloc(1, sizeof(*w));
    snprintf(w->path, sizeof(w->path), "/tmp/shoal-test-%d%s.sock", (int)getpid(), name);
    sh_engine_opts opts = {.model_group = {.model_dir = dir,
                                           .device = test_device(),
                                           .device_opts = {.threads = 2},
                                           .kv_format = SH_KV_F16,
                                           .slots = 8,
                                           .chunk = 128,
                                           .kv_tokens = kv_tokens},
                           .queue_max = 100,
                           .stall_s = 0.2,
                           .drafts = drafts,
                           .drafts_always = true};
    CHECK_OK(sh_engine_socket_open(w->path, &w->engine_socket, &err), err);
    CHECK_OK(sh_engine_open(&opts, &w->engine, &err), err);
    CHECK_OK(sh_engine_start(w->engine, sh_engine_socket_emit, w->engine_socket, &err), err);
    CHECK_OK(sh_engine_socket_start(w->engine_socket, w->engine, &err), err);
    CHECK_OK(sh_engine_client_open(w->path, sh_deadline_in_ms(60000), NULL, &w->client, &err), err);
    return w;
}

static struct world *world_open(const char *dir, int drafts, int kv_tokens)
{
    return world_open_at(dir, drafts, kv_tokens, "");
}

static void world_close(struct world *w)
{
    sh_engine_client_close(w->client);
    sh_engine_socket_drain(w->engine_socket);
    sh_engine_stop(w->engine, 1000);
    sh_engine_socket_close(w->engine_socket);
    sh_engine_close(w->engine);
    assert_int_not_equal(access(w->path, F_OK), 0);
    free(w);
}

static void events_take(struct world *w)
{
    sh_event e;
    while (sh_engine_client_next(w->client, &e) == SH_OK) {
        if (e.kind == SH_EVENT_STATS) continue;
        struct answer *a = &w->answers[e.id];
        assert_false(a->done);
        if (e.kind == SH_EVENT_PROGRESS) continue;
        if (e.kind == SH_EVENT_TOKEN) {
            a->tokens[a->count] = e.token;
            a->logprobs[a->count++] = e.logprob;
        } else {
            a->done = true;
            a->end = e;
        }
    }
}

static void await(struct world *w, int first, int count)
{
    sh_deadline end = sh_deadline_in_ms(200000);
    for (int i = first; i < first + count; i++)
        while (!w->answers[i].done) {
            assert_false(sh_deadline_passed(end));
            struct pollfd p = {.fd = sh_engine_client_fd(w->client), .events = POLLIN};
            poll(&p, 1, 100);
            sh_status status = sh_engine_client_progress(w->client, &err);
            events_take(w);
            if (status != SH_OK && !w->answers[i].done) fail_msg("%s", err.text);
        }
}

static const int32_t ends[] = {4087, 4085}; /* of the demo model */

static void ask(struct world *w, int id, const int32_t *prompt, int count, int max,
                double temperature)
{
    int vocab = sh_engine_client_info(w->client)->vocab;
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = prompt,
                          .prompt_count = (size_t)count,
                          .stop_ids = ends,
                          .stop_id_count = vocab > ends[0] ? 2 : 0,
                          .max_tokens = max,
                          .logprobs = 2,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = temperature;
    q.sampling.seed = (uint64_t)id % 7;
    CHECK_OK(sh_engine_client_submit(w->client, &q, &err), err);
}

static void check_golden(const struct answer *a, const struct golden *g)
{
    assert_int_equal(a->end.kind, SH_EVENT_DONE);
    if (g->margin <= 0.05) return;                   /* a near tie may fall either way */
    assert_int_equal(a->count, g->output_count - 1); /* the last is the end token */
    assert_int_equal(a->end.finish, SH_FINISH_STOP);
    for (int t = 0; t < a->count; t++) {
        assert_int_equal(a->tokens[t], g->output[t]);
        assert_true(fabs((double)a->logprobs[t] - g->logprobs[t]) < 0.02);
    }
}

static void check_all(int drafts, int kv_tokens)
{
    struct world *w = world_open("models/demo", drafts, kv_tokens);
    assert_int_equal(sh_engine_client_info(w->client)->vocab, 4096);
    for (int i = 0; i < golden_count; i++)
        ask(w, i, golden[i].prompt, golden[i].prompt_count, golden[i].output_count + 4, 0);
    await(w, 0, golden_count);
    for (int i = 0; i < golden_count; i++) check_golden(&w->answers[i], &golden[i]);
    world_close(w);
}

TEST(a_batch_of_requests_gives_the_golden_answers)
{
    UNUSED_STATE;
    check_all(0, 0);
}

TEST(so_it_does_with_drafts_and_with_few_kv_blocks)
{
    UNUSED_STATE;
    check_all(4, 0);
    check_all(4, 320);
}

TEST(a_seed_gives_the_same_answer_alone_and_in_a_batch)
{
    UNUSED_STATE;
    int crowd_size = test_is_short() ? 5 : 12;
    struct world *alone = world_open("models/demo", 0, 0);
    for (int i = 0; i < crowd_size; i++) {
        const struct golden *g = &golden[i % golden_count];
        ask(alone, i, g->prompt, g->prompt_count, 40, 1.3);
        await(alone, i, 1);
    }
    struct world *crowd = calloc(1, sizeof(*crowd));
    memcpy(crowd->answers, alone->answers, sizeof(crowd->answers));
    world_close(alone);
    struct world *w = world_open("models/demo", 4, 0);
    for (int i = 0; i < crowd_size; i++)
        ask(w, i, golden[i % golden_count].prompt, golden[i % golden_count].prompt_count, 40, 1.3);
    await(w, 0, crowd_size);
    for (int i = 0; i < crowd_size; i++) {
        assert_int_equal(w->answers[i].count, crowd->answers[i].count);
        assert_memory_equal(w->answers[i].tokens, crowd->answers[i].tokens,
                            (size_t)w->answers[i].count * sizeof(int32_t));
        assert_memory_equal(w->answers[i].logprobs, crowd->answers[i].logprobs,
                            (size_t)w->answers[i].count * sizeof(float));
    }
    free(crowd);
    world_close(w);
}

TEST(after_a_client_disconnects_another_is_served_at_once)
{
    UNUSED_STATE;
    struct world *w = world_open("models/demo", 0, 0);
    for (int i = 0; i < 8; i++) ask(w, i, golden[0].prompt, golden[0].prompt_count, 1000, 1);
    sh_engine_client_close(w->client);
    CHECK_OK(sh_engine_client_open(w->path, sh_deadline_in_ms(60000), NULL, &w->client, &err), err);
    ask(w, 20, golden[0].prompt, golden[0].prompt_count, 60, 0);
    await(w, 20, 1);
    check_golden(&w->answers[20], &golden[0]);
    world_close(w);
}

TEST(a_prompt_of_unknown_ids_is_refused)
{
    UNUSED_STATE;
    struct world *w = world_open("models/demo", 0, 0);
    ask(w, 0, (int32_t[]){1, 4096}, 2, 10, 0);
    await(w, 0, 1);
    assert_int_equal(w->answers[0].end.kind, SH_EVENT_ERROR);
    assert_non_null(strstr(w->answers[0].end.error.text, "4096; valid ids are 0 to 4095"));
    world_close(w);
}

TEST(a_refused_request_does_not_end_other_answers)
{
    UNUSED_STATE;
    const struct golden *g = &golden[0];
    struct world *w = world_open("models/demo", 0, 0);
    ask(w, 0, g->prompt, g->prompt_count, 60, 0);
    sh_sequence_spec q = {.prompt = g->prompt,
                          .prompt_count = (size_t)g->prompt_count,
                          .max_tokens = 4,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    sh_sequence_spec bad[6] = {q, q, q, q, q, q};
    static const char *const names[6] = {"repetition_penalty", "temperature",
                                         "max_tokens",         "min_tokens",
                                         "logit_bias",         "the prompt is empty"};
    bad[0].sampling.repetition_penalty = 0.0001;
    bad[1].sampling.temperature = (double)NAN;
    bad[2].max_tokens = 0;
    bad[3].min_tokens = -1;
    bad[4].sampling.logit_bias_count = 1;
    bad[4].sampling.logit_bias_ids = (const int32_t[]){3};
    bad[4].sampling.logit_bias = (const float[]){-INFINITY};
    bad[5].prompt_count = 0;
    for (int i = 0; i < 6; i++) {
        bad[i].id = (uint64_t)i + 1;
        CHECK_OK(sh_engine_client_submit(w->client, &bad[i], &err), err);
    }
    await(w, 0, 7);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(w->answers[i + 1].end.kind, SH_EVENT_ERROR);
        assert_int_equal(w->answers[i + 1].end.error.status, SH_ERR_INPUT);
        assert_non_null(strstr(w->answers[i + 1].end.error.text, names[i]));
    }
    check_golden(&w->answers[0], g);
    world_close(w);
}

/* The model's RoPE has two sets of factors. Whatever requests came before, of whatever lengths, a
 * request gets the same answer as from a fresh engine. */
TEST(answers_of_a_longrope_model_do_not_depend_on_what_the_cache_holds)
{
    UNUSED_STATE;
    enum { ROUNDS = SLOW ? 6 : 30, ORIGINAL = 64 };
    static const char dir[] = "tests/data/models/phi3-longrope-long-4bit";
    static const int answers_max[] = {1, 3, 40, 20, 90, 2};
    struct world *shared = world_open(dir, 4, 0);
    uint64_t random = 5;
    for (int i = 0; i < ROUNDS; i++) {
        int32_t prompt[3 * ORIGINAL];
        random = sh_mix64(random);
        int count = 30 + (int)(random % (2 * ORIGINAL)), most = answers_max[random % 6 * 7 % 6];
        for (int t = 0; t < count; t++) prompt[t] = (t * 7 + 3) % 50 + (t >= 40 ? i % 3 : 0);
        struct world *fresh = world_open_at(dir, 0, 0, "fresh");
        ask(shared, i, prompt, count, most, 0.8);
        await(shared, i, 1);
        ask(fresh, i, prompt, count, most, 0.8);
        await(fresh, i, 1);
        assert_int_equal(shared->answers[i].end.kind, SH_EVENT_DONE);
        assert_int_equal(shared->answers[i].count, fresh->answers[i].count);
        assert_memory_equal(shared->answers[i].tokens, fresh->answers[i].tokens,
                            (size_t)fresh->answers[i].count * sizeof(int32_t));
        world_close(fresh);
    }
    world_close(shared);
}

/* A sequence that outgrows the short factors continues as if its prompt had been that long. */
TEST(an_answer_that_outgrows_the_short_factors_goes_on_with_the_long_ones)
{
    UNUSED_STATE;
    enum { ORIGINAL = 64, PROMPT = 50, ANSWER = 40 };
    static const char dir[] = "tests/data/models/phi3-longrope-long-4bit";
    struct world *w = world_open(dir, 4, 0);
    int32_t tokens[PROMPT + ANSWER];
    for (int t = 0; t < PROMPT; t++) tokens[t] = (t * 11 + 5) % 60;
    ask(w, 0, tokens, PROMPT, ANSWER, 0);
    await(w, 0, 1);
    assert_true(w->answers[0].count > ORIGINAL - PROMPT + 8);
    memcpy(tokens + PROMPT, w->answers[0].tokens, (size_t)w->answers[0].count * sizeof(int32_t));
    for (int i = 1; i < w->answers[0].count; i += SLOW ? 6 : 1) {
        struct world *one = world_open_at(dir, 0, 0, "fresh");
        ask(one, 0, tokens, PROMPT + i, 1, 0);
        await(one, 0, 1);
        assert_int_equal(one->answers[0].tokens[0], w->answers[0].tokens[i]);
        world_close(one);
    }
    world_close(w);
}

TEST(stopping_lets_running_answers_finish)
{
    UNUSED_STATE;
    struct world *w = world_open("models/demo", 0, 0);
    ask(w, 0, golden[0].prompt, golden[0].prompt_count, 60, 0);
    sh_engine_client_ask_stats(w->client);
    while (w->answers[0].count == 0) {
        CHECK_OK(sh_engine_client_progress(w->client, &err), err);
        events_take(w);
    }
    sh_engine_socket_drain(w->engine_socket);
    sh_engine_stop(w->engine, 10000);
    await(w, 0, 1);
    check_golden(&w->answers[0], &golden[0]);
    world_close(w);
}

TEST(a_second_engine_does_not_take_a_live_socket)
{
    UNUSED_STATE;
    struct world *w = world_open("models/demo", 0, 0);
    sh_engine_socket *second;
    CHECK_FAILS(sh_engine_socket_open(w->path, &second, &err), err, "another engine is listening");
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_of_requests_gives_the_golden_answers),
        cmocka_unit_test(so_it_does_with_drafts_and_with_few_kv_blocks),
        cmocka_unit_test(a_seed_gives_the_same_answer_alone_and_in_a_batch),
        cmocka_unit_test(after_a_client_disconnects_another_is_served_at_once),
        cmocka_unit_test(a_prompt_of_unknown_ids_is_refused),
        cmocka_unit_test(a_refused_request_does_not_end_other_answers),
        cmocka_unit_test(answers_of_a_longrope_model_do_not_depend_on_what_the_cache_holds),
        cmocka_unit_test(an_answer_that_outgrows_the_short_factors_goes_on_with_the_long_ones),
        cmocka_unit_test(stopping_lets_running_answers_finish),
        cmocka_unit_test(a_second_engine_does_not_take_a_live_socket),
    };
    return cmocka_run_group_tests(tests, golden_load, NULL);
}
