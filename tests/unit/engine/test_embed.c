/* Embeddings of tiny random models against those of sentence-transformers (tests/data/encoders), on
 * one rank, on two that share every layer, and on two stages. Vectors must have the same bits alone
 * and in a batch. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include "unit/engine/ranks.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXTS_MAX = 16, IDS_MAX = 512, WIDTH_MAX = 512, SEP = 3 };

static const double COSINE_MIN = 0.9999;

typedef struct {
    int32_t ids[IDS_MAX];
    int count, second;
    double want[WIDTH_MAX];
    int width;
} text;

typedef struct {
    char *dir;
    text texts[TEXTS_MAX];
    int count;
    bool scores;
} golden;

/* What has arrived, by the id of the request. */
static float vectors[TEXTS_MAX][WIDTH_MAX];
static int widths[TEXTS_MAX];
static sh_event ends[TEXTS_MAX];
static atomic_int ended;

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx, (void)owner;
    if (event->kind != SH_EVENT_DONE && event->kind != SH_EVENT_ERROR) return;
    ends[event->id] = *event;
    widths[event->id] = event->vector_len;
    assert_true(event->vector_len <= WIDTH_MAX);
    if (event->vector_len > 0)
        memcpy(vectors[event->id], event->vector, (size_t)event->vector_len * sizeof(float));
    atomic_fetch_add(&ended, 1);
}

static golden golden_load(const char *name)
{
    sh_err err;
    golden g = {.dir = sh_path_join("tests/data/encoders", name)};
    char *path = sh_path_join(g.dir, "golden.json");
    cJSON *json = NULL;
    CHECK_OK(sh_json_load(path, 1 << 22, &json, &err), err);
    const cJSON *ids = cJSON_GetObjectItem(json, "ids");
    const cJSON *rows = cJSON_GetObjectItem(json, "embeddings");
    const cJSON *scores = cJSON_GetObjectItem(json, "scores");
    g.scores = scores != NULL;
    g.count = cJSON_GetArraySize(ids);
    assert_true(g.count > 0 && g.count <= TEXTS_MAX);
    for (int i = 0; i < g.count; i++) {
        text *t = &g.texts[i];
        const cJSON *item, *row = cJSON_GetArrayItem(rows, i);
        cJSON_ArrayForEach(item, cJSON_GetArrayItem(ids, i))
        {
            assert_true(t->count < IDS_MAX);
            t->ids[t->count++] = item->valueint;
            if (g.scores && t->second == 0 && item->valueint == SEP) t->second = t->count;
        }
        cJSON_ArrayForEach(item, row) t->want[t->width++] = item->valuedouble;
        if (g.scores) t->want[t->width++] = cJSON_GetArrayItem(scores, i)->valuedouble;
    }
    cJSON_Delete(json);
    free(path);
    return g;
}

static sh_engine_opts engine_opts(const char *dir, int stages, sh_pool_kind pool)
{
    return (sh_engine_opts){
        .model_group = {.model_dir = dir,
                        .device = test_device(),
                        .device_opts = {.threads = 1, .activations = SH_ACTIVATIONS_F32},
                        .kv_format = SH_KV_F32,
                        .load = {.exact = true},
                        .stages = stages,
                        .slots = 4,
                        .chunk = 64},
        .queue_max = 100,
        .stall_s = 10,
        .pool = pool};
}

static pid_t worker_start(const char *dir, const char *where, int stages)
{
    sh_engine_opts opts = engine_opts(dir, stages, SH_POOL_NONE);
    sh_group_opts own = group_opts(1, 2, where, -1, NULL);
    return rank_start(&opts.model_group, &own);
}

typedef struct {
    sh_group_opts own;
    sh_engine *engine;
    pid_t pid; /* 0: one rank */
} world;

static world world_open(const char *dir, int ranks, int stages, sh_pool_kind pool)
{
    sh_err err;
    world w = {0};
    char where[SH_ADDR_TEXT_MAX];
    sh_engine_opts opts = engine_opts(dir, stages, pool);
    if (ranks > 1) {
        w.own = group_opts(0, 2, where, listen_somewhere(where), NULL);
        w.pid = worker_start(dir, where, stages);
        opts.group = &w.own;
    }
    CHECK_OK(sh_engine_open(&opts, &w.engine, &err), err);
    CHECK_OK(sh_engine_start(w.engine, sink, NULL, &err), err);
    return w;
}

static void world_close(world *w)
{
    int status = 0;
    sh_engine_stop(w->engine, 100);
    sh_engine_close(w->engine);
    if (w->pid == 0) return;
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_int_equal(status, 0);
    close(w->own.mesh.listen_fd);
}

static void ask(world *w, int id, const text *t, bool pooled)
{
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = t->ids,
                          .prompt_count = (size_t)t->count,
                          .max_tokens = 1,
                          .logprobs = -1,
                          .pooled = pooled,
                          .second = t->second,
                          .sampling = sh_sampling_default()};
    engine_ask(w->engine, &q);
}

static void await(int count)
{
    sh_deadline end = sh_deadline_in_ms(200000);
    while (atomic_load(&ended) < count) {
        assert_false(sh_deadline_passed(end));
        sh_sleep_ms(1);
    }
}

static void run(world *w, const golden *g, int first, int count)
{
    atomic_store(&ended, 0);
    for (int i = first; i < first + count; i++) ask(w, i, &g->texts[i], true);
    await(count);
}

static double cosine(const float *a, const double *b, int width)
{
    double dot = 0, aa = 0, bb = 0;
    for (int i = 0; i < width; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * (double)a[i];
        bb += b[i] * b[i];
    }
    return dot / sqrt(aa * bb);
}

/* Directions must agree, and lengths. */
static void check(const golden *g)
{
    double worst = 1, off = 0;
    for (int i = 0; i < g->count; i++) {
        const text *t = &g->texts[i];
        if (ends[i].kind != SH_EVENT_DONE) fail_msg("text %d: %s", i, ends[i].error.text);
        assert_int_equal(ends[i].prompt_tokens, t->count);
        assert_int_equal(widths[i], t->width);
        worst = fmin(worst, cosine(vectors[i], t->want, t->width));
        for (int k = 0; k < t->width; k++)
            off = fmax(off, fabs((double)vectors[i][k] - t->want[k]));
    }
    print_message("# %s: cosine %.8f, largest difference %.1e\n", g->dir, worst, off);
    if (!(worst >= COSINE_MIN && off <= 1e-3)) fail_msg("cosine %.6f, off by %g", worst, off);
}

static void check_grid(const char *name, int ranks, int stages)
{
    golden g = golden_load(name);
    world w = world_open(g.dir, ranks, stages, SH_POOL_NONE);
    float before[TEXTS_MAX][WIDTH_MAX];
    assert_int_equal(sh_engine_info_of(w.engine).vector_len, g.texts[0].width);
    assert_int_equal(sh_engine_info_of(w.engine).scores, g.scores);
    run(&w, &g, 0, g.count);
    check(&g);
    memcpy(before, vectors, sizeof(before));
    for (int i = 0; i < g.count; i++) run(&w, &g, i, 1);
    for (int i = 0; i < g.count; i++)
        assert_memory_equal(before[i], vectors[i], (size_t)widths[i] * sizeof(float));
    world_close(&w);
    free(g.dir);
}

TEST(one_rank_agrees_with_sentence_transformers)
{
    check_grid(*state, 1, 1);
}

TEST(ranks_that_share_layers_agree)
{
    check_grid(*state, 2, 1);
}

TEST(a_pipeline_agrees)
{
    check_grid(*state, 2, 2);
}

/* A causal model, whose prompts may be cut, with a pooling that was chosen by the option. */
TEST(a_prompt_that_is_cut_gives_the_vector_of_a_whole_one)
{
    UNUSED_STATE;
    static const sh_pool_kind kinds[] = {SH_POOL_LAST, SH_POOL_MEAN,     SH_POOL_FIRST,
                                         SH_POOL_MAX,  SH_POOL_WEIGHTED, SH_POOL_SQRT};
    golden g = golden_load("qwen3-last");
    int longest = g.count - 1;
    assert_true(g.texts[longest].count > 2 * 64);
    for (size_t k = 0; k < SH_COUNT_OF(kinds); k++) {
        float whole[WIDTH_MAX];
        for (int chunk = 512; chunk >= 64; chunk -= 448) {
            sh_err err;
            sh_engine_opts opts = engine_opts(g.dir, 1, kinds[k]);
            world w = {0};
            opts.model_group.chunk = chunk;
            CHECK_OK(sh_engine_open(&opts, &w.engine, &err), err);
            CHECK_OK(sh_engine_start(w.engine, sink, NULL, &err), err);
            run(&w, &g, 0, g.count);
            if (chunk == 512) memcpy(whole, vectors[longest], sizeof(whole));
            assert_memory_equal(whole, vectors[longest], (size_t)widths[longest] * sizeof(float));
            world_close(&w);
        }
    }
    free(g.dir);
}

/* Requests for text and for vectors share steps. */
TEST(text_and_vectors_come_from_one_model)
{
    UNUSED_STATE;
    text t = {.count = 40};
    world w = world_open("models/demo", 1, 1, SH_POOL_NONE);
    assert_false(sh_engine_info_of(w.engine).headless);
    world_close(&w);
    w = world_open("models/demo", 1, 1, SH_POOL_MEAN);
    for (int i = 0; i < t.count; i++) t.ids[i] = (i * 37 + 5) % 4000;
    atomic_store(&ended, 0);
    for (int i = 0; i < 8; i++) ask(&w, i, &t, i % 2 == 0);
    await(8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(ends[i].kind, SH_EVENT_DONE);
        assert_int_equal(ends[i].completion_tokens, i % 2);
        assert_int_equal(widths[i] > 0, i % 2 == 0);
        assert_memory_equal(vectors[i], vectors[i % 2], (size_t)widths[i] * sizeof(float));
    }
    world_close(&w);
}

TEST(what_a_model_cannot_do_is_refused)
{
    UNUSED_STATE;
    text t = {.ids = {2, 5, 3}, .count = 3};
    world encoder = world_open("tests/data/encoders/bert-mean", 1, 1, SH_POOL_NONE);
    atomic_store(&ended, 0);
    ask(&encoder, 0, &t, false);
    t.count = 200; /* the context holds 128 */
    ask(&encoder, 1, &t, true);
    await(2);
    assert_int_equal(ends[0].error.status, SH_ERR_INPUT);
    assert_string_equal(ends[0].error.text, "this model makes embeddings; it cannot write text");
    assert_int_equal(ends[1].error.status, SH_ERR_LIMIT);
    assert_string_equal(ends[1].error.text, "the text has 200 tokens; at most 128 are possible");
    t.count = 128;
    atomic_store(&ended, 0);
    ask(&encoder, 0, &t, true);
    await(1);
    assert_int_equal(ends[0].kind, SH_EVENT_DONE);
    world_close(&encoder);
    world demo = world_open("models/demo", 1, 1, SH_POOL_NONE);
    assert_int_equal(sh_engine_info_of(demo.engine).vector_len, 0);
    atomic_store(&ended, 0);
    ask(&demo, 0, &t, true);
    await(1);
    assert_string_equal(ends[0].error.text, "this model has no pooling; --pooling chooses one");
    world_close(&demo);
}

/* One test for each model; names are never freed. */
static int each_model(const char *group, CMUnitTestFunction claim)
{
    static struct CMUnitTest all[3][32];
    static int groups;
    struct CMUnitTest *tests = all[groups++];
    struct dirent **entries = NULL;
    size_t count = 0;
    int found = scandir("tests/data/encoders", &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        char *path = sh_asprintf("tests/data/encoders/%s/golden.json", entries[i]->d_name);
        char *name = sh_strdup(entries[i]->d_name);
        if (sh_file_exists(path))
            tests[count++] = (struct CMUnitTest){sh_asprintf("%s: %s", group, name), claim, NULL,
                                                 NULL, name};
        else
            free(name);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return _cmocka_run_group_tests(group, tests, count, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_prompt_that_is_cut_gives_the_vector_of_a_whole_one),
        cmocka_unit_test(text_and_vectors_come_from_one_model),
        cmocka_unit_test(what_a_model_cannot_do_is_refused),
    };
    int failed = each_model("one rank", one_rank_agrees_with_sentence_transformers);
    failed += each_model("shared layers", ranks_that_share_layers_agree);
    failed += each_model("pipeline", a_pipeline_agrees);
    return failed + cmocka_run_group_tests(others, NULL, NULL);
}
