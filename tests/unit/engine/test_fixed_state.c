/* A model with fixed-size state in some layers, in the whole engine: drafts that are undone,
 * pauses, cached prefixes and other requests change no answer, on any split of the model. */
#include "engine/engine.h"

#include "base/log.h"

#include "unit/engine/ranks.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASKS = 10, ANSWER = 60, PROMPT_MAX = 160, RANKS_MAX = 3, CHUNK = 48 };

static const struct model {
    const char *dir;
    int vocab;
    const char *draft_model;
} MODELS[] = {
    {"tests/data/models/lfm2-long-4bit", 300, NULL},
    {"tests/data/models/qwen3_next-mtp-bf16", 120, SH_DRAFT_MODEL_MTP},
};

static const struct model *model;

struct answer {
    int count;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
};

/* How the requests run. */
struct way {
    const char *name;
    int tensor, stages;
    int drafts;
    int kv_tokens; /* 0: enough */
    bool alone;    /* one at a time, each with an empty cache */
};

static struct {
    struct answer answers[ASKS];
    atomic_int ended, failed;
    atomic_bool told;
    long paused, cached, tried, kept, redone;
} got;

static long count_of(const char *json, const char *name)
{
    const char *at = strstr(json, name);
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* Runs on the engine's thread. */
static void sink(void *ctx, uint64_t owner, const sh_event *e)
{
    (void)ctx;
    (void)owner;
    if (e->kind == SH_EVENT_TOKEN) {
        struct answer *a = &got.answers[e->id];
        a->tokens[a->count] = e->token;
        a->logprobs[a->count++] = e->logprob;
    } else if (e->kind == SH_EVENT_STATS) {
        got.paused += count_of(e->stats.ptr, "\"paused\":");
        got.cached += count_of(e->stats.ptr, "\"cached_tokens\":");
        got.tried += count_of(e->stats.ptr, "\"drafts_tried\":");
        got.kept += count_of(e->stats.ptr, "\"drafts_kept\":");
        got.redone += count_of(e->stats.ptr, "\"redone_tokens\":");
        atomic_store(&got.told, true);
    } else if (e->kind != SH_EVENT_PROGRESS) {
        atomic_fetch_add(e->kind == SH_EVENT_ERROR ? &got.failed : &got.ended, 1);
    }
}

static sh_engine_opts engine_opts(const struct way *way)
{
    return (sh_engine_opts){.model_group = {.model_dir = model->dir,
                                            .device = test_device(),
                                            .device_opts = {.threads = 1,
                                                            .level = getenv("SHOAL_CPU"),
                                                            .activations = SH_ACTIVATIONS_F32},
                                            .kv_format = SH_KV_F32,
                                            .tensor = way->tensor,
                                            .stages = way->stages,
                                            .slots = 4,
                                            .chunk = CHUNK,
                                            .kv_tokens = way->kv_tokens,
                                            .load = {.exact = true}},
                            .queue_max = 100,
                            .stall_s = 0.2,
                            .drafts = way->drafts,
                            .drafts_always = true,
                            .draft_model = model->draft_model};
}

static pid_t worker_start(const struct way *way, int rank, const char *where)
{
    sh_engine_opts opts = engine_opts(way);
    sh_group_opts own = group_opts(rank, way->tensor * way->stages, where, -1, NULL);
    own.silence_ms = 20000;
    return rank_start(&opts.model_group, &own);
}

/* Text that repeats, so that there is something to draft; some begin alike, and the lengths lie
 * around the borders of blocks. */
static void ask(sh_engine *engine, int id)
{
    static const int lengths[] = {31, 32, 33, 63, 64, 65, 95, 100, 128, 129};
    int32_t prompt[PROMPT_MAX];
    int count = lengths[id % 10];
    for (int i = 0; i < count; i++)
        prompt[i] = 3 + (i % 13 * 17 + (i < 40 ? 0 : id)) % model->vocab;
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = prompt,
                          .prompt_count = (size_t)count,
                          .max_tokens = ANSWER,
                          .logprobs = 0,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = id % 3 == 2 ? 0.7 : 0;
    q.sampling.seed = (uint64_t)id;
    engine_ask(engine, &q);
}

static void await(atomic_int *count, int wanted)
{
    sh_deadline end = sh_deadline_in_ms(200000);
    while (atomic_load(count) + atomic_load(&got.failed) < wanted && !sh_deadline_passed(end))
        sh_sleep_ms(1);
    assert_int_equal(atomic_load(&got.failed), 0);
    assert_int_equal(atomic_load(count), wanted);
}

static void stats_take(sh_engine *engine)
{
    sh_deadline end = sh_deadline_in_ms(100000);
    atomic_store(&got.told, false);
    sh_engine_ask_stats(engine, 1);
    while (!atomic_load(&got.told) && !sh_deadline_passed(end)) sh_sleep_ms(1);
    assert_true(atomic_load(&got.told));
}

/* One engine and its group, for requests [first, end). */
static void run_some(const struct way *way, int first, int end)
{
    sh_err err;
    sh_engine *engine = NULL;
    sh_engine_opts opts = engine_opts(way);
    char where[SH_ADDR_TEXT_MAX];
    int size = way->tensor * way->stages, fd = listen_somewhere(where);
    pid_t pids[RANKS_MAX];
    for (int r = 1; r < size; r++) pids[r] = worker_start(way, r, where);
    sh_group_opts own = group_opts(0, size, where, fd, NULL);
    own.silence_ms = 20000;
    if (size > 1) opts.group = &own;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    for (int i = first; i < end; i++) ask(engine, i);
    await(&got.ended, end);
    stats_take(engine);
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    for (int r = 1; r < size; r++) {
        int status = -1;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    close(fd);
}

static void run_way(const struct way *way, struct answer *answers)
{
    memset(&got, 0, sizeof(got));
    if (way->alone)
        for (int i = 0; i < ASKS; i++) run_some(way, i, i + 1);
    else
        run_some(way, 0, ASKS);
    memcpy(answers, got.answers, sizeof(got.answers));
    print_message("# %s: %ld paused, %ld tokens cached, %ld of %ld drafts kept, %ld redone\n",
                  way->name, got.paused, got.cached, got.kept, got.tried, got.redone);
}

static void check_same(const char *name, const struct answer *a, const struct answer *b, bool bits)
{
    for (int i = 0; i < ASKS; i++) {
        assert_int_equal(a[i].count, ANSWER);
        assert_int_equal(b[i].count, ANSWER);
        for (int t = 0; t < ANSWER; t++)
            if (a[i].tokens[t] != b[i].tokens[t])
                fail_msg("%s: request %d, token %d is %d, not %d", name, i, t, b[i].tokens[t],
                         a[i].tokens[t]);
        if (bits) assert_memory_equal(a[i].logprobs, b[i].logprobs, sizeof(a[i].logprobs));
    }
}

/* Only text that repeats itself is easy to draft: a random layer is hardly ever right. */
static void check_drafted(void)
{
    assert_true(got.tried > 0 && got.redone > 0);
    if (model->draft_model == NULL) assert_true(got.kept > 0);
}

static struct answer plain[ASKS], others[ASKS];

TEST(drafts_pauses_and_cached_prefixes_change_no_bit)
{
    model = *state;
    static const struct way alone = {"alone", 1, 1, 0, 0, true};
    static const struct way drafted = {"drafts alone", 1, 1, 4, 0, true};
    static const struct way together = {"together", 1, 1, 0, 0, false};
    static const struct way tight = {"drafts together, few blocks", 1, 1, 8, 192, false};
    run_way(&alone, plain);
    run_way(&drafted, others);
    check_same(drafted.name, plain, others, true);
    check_drafted();
    run_way(&together, others);
    check_same(together.name, plain, others, true);
    assert_true(got.cached > 0);
    /* Which requests meet is chance: as often as it takes for one to be paused. */
    long paused = 0;
    for (int i = 0; i < 8 && paused == 0; i++) {
        run_way(&tight, others);
        check_same(tight.name, plain, others, true);
        check_drafted();
        assert_true(got.cached > 0);
        paused = got.paused;
    }
    assert_true(paused > 0);
}

/* Sums of other splits have other last bits, but drafts change none within a split. */
TEST(drafts_change_no_bit_on_any_split)
{
    model = *state;
    static const int splits[][2] = {{2, 1}, {3, 1}, {1, 2}};
    struct answer own[ASKS];
    for (size_t i = 0; i < SH_COUNT_OF(splits); i++) {
        struct way without = {"split", splits[i][0], splits[i][1], 0, 0, false};
        struct way with = {"split with drafts", splits[i][0], splits[i][1], 4, 320, false};
        run_way(&without, own);
        check_same(without.name, plain, own, false);
        run_way(&with, others);
        check_same(with.name, own, others, true);
        check_drafted();
    }
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    int failed = 0;
    /* Sanitizers are slow: they see one model, and `make nightly` all. */
    size_t count = SLOW && getenv("SHOAL_TEST_FULL") == NULL ? 1 : SH_COUNT_OF(MODELS);
    for (size_t i = 0; i < count; i++) {
        void *one = (void *)(uintptr_t)&MODELS[i];
        const struct CMUnitTest tests[] = {
            cmocka_unit_test_prestate(drafts_pauses_and_cached_prefixes_change_no_bit, one),
            cmocka_unit_test_prestate(drafts_change_no_bit_on_any_split, one),
        };
        failed += cmocka_run_group_tests_name(MODELS[i].dir, tests, NULL, NULL);
    }
    return failed;
}
