/* The log-probabilities of a prompt's tokens, compared with golden logits: on one rank, with the
 * vocabulary split over two, and in a pipeline; in several chunks, with a prompt that the prefix
 * cache has, and continued where an earlier engine stopped. */
#include "engine/engine.h"

#include "base/log.h"

#include "unit/engine/ranks.h"
#include "unit/model/rig.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOP = 3, SLOTS = 2, PROMPT_MAX = 512 };

/* Written by the engine's thread, read after `done`. */
static struct {
    int count;
    bool in_order; /* all of them came before the answer */
    int32_t ids[PROMPT_MAX];
    float logprobs[PROMPT_MAX];
    sh_token_logprob top[PROMPT_MAX][TOP];
    int answered, cached;
    atomic_bool done;
} got;

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_PROMPT_TOKEN && got.count < PROMPT_MAX) {
        got.in_order = got.in_order && got.answered == 0 && event->top_count == TOP;
        got.ids[got.count] = event->token;
        got.logprobs[got.count] = event->logprob;
        memcpy(got.top[got.count++], event->top, sizeof(got.top[0]));
    }
    if (event->kind == SH_EVENT_TOKEN) got.answered++;
    if (event->kind == SH_EVENT_ERROR) print_error("%s\n", event->error.text);
    if (event->kind == SH_EVENT_DONE) got.cached = event->cached_tokens;
    if (event->kind == SH_EVENT_DONE || event->kind == SH_EVENT_ERROR)
        atomic_store(&got.done, true);
}

static sh_engine_opts engine_opts(const char *dir, int stages)
{
    return (sh_engine_opts){
        .model_group = {.model_dir = dir,
                        .device = test_device(),
                        .device_opts = {.threads = 1, .activations = SH_ACTIVATIONS_F32},
                        .kv_format = SH_KV_F32,
                        .stages = stages,
                        .slots = SLOTS,
                        .chunk = 64,
                        .kv_tokens = 2048},
        .queue_max = 10,
        .drafts = SH_DRAFTS_MAX,
        .drafts_always = true,
        .stall_s = 10};
}

static pid_t worker_start(const sh_engine_opts *with, const char *where)
{
    sh_group_opts own = group_opts(1, 2, where, -1, NULL);
    return rank_start(&with->model_group, &own);
}

static void ask(sh_engine *engine, const golden *g, int score_from)
{
    sh_sequence_spec q = {.id = 1,
                          .prompt = g->ids,
                          .prompt_count = (size_t)g->len,
                          .score_from = score_from,
                          .max_tokens = 4,
                          .logprobs = TOP,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = 1; /* what the prompt's tokens report does not depend on it */
    q.sampling.repetition_penalty = 1.5;
    memset(&got, 0, sizeof(got));
    got.in_order = true;
    engine_ask(engine, &q);
    sh_deadline end = sh_deadline_in_ms(200000);
    while (!atomic_load(&got.done) && !sh_deadline_passed(end)) sh_sleep_ms(2);
    assert_true(atomic_load(&got.done));
}

static double golden_logprob(const golden *g, int position, int32_t id)
{
    const float *row = g->logits + (int64_t)(position - 1) * g->vocab;
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < g->vocab; i++) max = fmax(max, (double)row[i]);
    for (int i = 0; i < g->vocab; i++) sum += exp((double)row[i] - max);
    return (double)row[id] - max - log(sum);
}

static void check_scores(const golden *g, int from)
{
    double limit = 2e-4 * g->std, largest = 0;
    assert_int_equal(got.count, g->len - from);
    assert_true(got.in_order);
    for (int i = 0; i < got.count; i++) {
        int at = from + i;
        assert_int_equal(got.ids[i], g->ids[at]);
        double diff = fabs((double)got.logprobs[i] - golden_logprob(g, at, g->ids[at]));
        for (int k = 0; k < TOP; k++)
            diff = fmax(diff, fabs((double)got.top[i][k].logprob -
                                   golden_logprob(g, at, got.top[i][k].id)));
        assert_true(got.top[i][0].logprob >= got.logprobs[i]);
        largest = fmax(largest, diff);
    }
    if (!(largest <= limit)) fail_msg("a log-probability is off by %g, allowed %g", largest, limit);
}

static void check_engine(sh_engine *engine, const golden *g)
{
    ask(engine, g, 1);
    check_scores(g, 1);
    int answered = got.answered;
    ask(engine, g, 1); /* all of it is in the prefix cache now, and computed again */
    check_scores(g, 1);
    assert_int_equal(got.cached, 0);
    ask(engine, g, 100);
    check_scores(g, 100);
    assert_int_equal(got.cached, 99 / 32 * 32);
    ask(engine, g, g->len); /* everything was reported before */
    assert_int_equal(got.count, 0);
    ask(engine, g, 0);
    assert_int_equal(got.count, 0);
    assert_int_equal(got.answered, answered);
}

TEST(one_rank_reports_the_golden_logprobs)
{
    golden g = golden_load(*state);
    sh_engine_opts opts = engine_opts(g.dir, 1);
    sh_engine *engine = NULL;
    sh_err err;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    check_engine(engine, &g);
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    golden_free(&g);
}

static void two_ranks(const char *model, int stages)
{
    golden g = golden_load(model);
    sh_engine_opts opts = engine_opts(g.dir, stages);
    sh_engine *engine = NULL;
    sh_err err;
    char where[SH_ADDR_TEXT_MAX];
    int status = -1, fd = listen_somewhere(where);
    sh_group_opts own = group_opts(0, 2, where, fd, NULL);
    pid_t pid = worker_start(&opts, where);
    opts.group = &own;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    check_engine(engine, &g);
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
    golden_free(&g);
}

TEST(ranks_that_share_the_vocabulary_report_the_same)
{
    two_ranks(*state, 1);
}

TEST(a_pipeline_reports_the_same)
{
    two_ranks(*state, 2);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(one_rank_reports_the_golden_logprobs, "llama-long-4bit"),
        cmocka_unit_test_prestate(one_rank_reports_the_golden_logprobs, "lfm2-long-4bit"),
        cmocka_unit_test_prestate(ranks_that_share_the_vocabulary_report_the_same,
                                  "llama-long-4bit"),
        cmocka_unit_test_prestate(a_pipeline_reports_the_same, "llama-long-4bit"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
