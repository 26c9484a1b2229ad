/* rig.h - shared by the tests of the model: a model of tests/data/models with its golden logits,
 * and ways to run it. */
#ifndef SH_TESTS_MODEL_RIG_H
#define SH_TESTS_MODEL_RIG_H

#include "base/alloc.h"
#include "base/file.h"
#include "kernels/device.h"
#include "model/forward.h"
#include "model/tensors.h"

#include "test.h"
#include "unit/fenced.h"

#include <dirent.h>
#include <math.h>

enum { RIG_TOKENS = 256, RIG_BLOCKS = 64 };

typedef struct {
    char *dir;
    int count; /* sequences */
    int len;   /* tokens of each */
    int vocab;
    int32_t *ids;  /* [count, len] */
    float *logits; /* [count, len, vocab] */
    double std;    /* of all logits */
} golden;

typedef struct {
    sh_config *config; /* must not move: the model borrows it */
    sh_device *dev;
    sh_model *model;
} rig;

static inline const char *rig_models_dir(void)
{
    const char *dir = getenv("SHOAL_TEST_MODELS");
    return dir != NULL ? dir : "tests/data/models";
}

static inline void *golden_tensor(sh_tensors *set, const char *name,
                                  const sh_stored_tensor **tensor)
{
    sh_err err = {0};
    *tensor = sh_tensors_find(set, "%s", name);
    assert_non_null(*tensor);
    void *data = sh_alloc((*tensor)->size);
    CHECK_OK(sh_tensors_read(set, *tensor, 0, data, (*tensor)->size, &err), err);
    return data;
}

static inline golden golden_load(const char *name)
{
    sh_err err = {0};
    sh_tensors *set = NULL;
    const sh_stored_tensor *ids, *logits;
    golden g = {.dir = sh_path_join(rig_models_dir(), name)};
    char *path = sh_path_join(g.dir, "golden.safetensors");
    CHECK_OK(sh_tensors_open_file(path, &set, &err), err);
    g.ids = golden_tensor(set, "input_ids", &ids);
    g.logits = golden_tensor(set, "logits", &logits);
    g.count = (int)ids->shape[0];
    g.len = (int)ids->shape[1];
    g.vocab = (int)logits->shape[2];
    double sum = 0, squares = 0, total = (double)g.count * g.len * g.vocab;
    for (int64_t i = 0; i < (int64_t)g.count * g.len * g.vocab; i++) {
        sum += (double)g.logits[i];
        squares += (double)g.logits[i] * (double)g.logits[i];
    }
    g.std = sqrt(squares / total - sum / total * (sum / total));
    sh_tensors_close(set);
    free(path);
    return g;
}

static inline void golden_free(golden *g)
{
    free(g->dir);
    free(g->ids);
    free(g->logits);
}

static inline rig rig_open_kv(const char *dir, bool exact, sh_kv_format kv, const sh_shard *shard,
                              int threads)
{
    sh_err err = {0};
    rig r = {.config = sh_alloc(sizeof(*r.config))};
    sh_device_opts opts_dev = {.threads = threads,
                               .level = getenv("SHOAL_CPU"),
                               .activations = exact ? SH_ACTIVATIONS_F32 : SH_ACTIVATIONS_INT8};
    sh_model_opts opts = {.tokens_max = RIG_TOKENS,
                          .rows_max = RIG_TOKENS,
                          .kv_format = kv,
                          .load = {.threads = threads, .exact = exact}};
    CHECK_OK(sh_config_load(dir, r.config, &err), err);
    sh_shard whole = sh_shard_whole(r.config);
    CHECK_OK(sh_device_open(test_device(), &opts_dev, &r.dev, &err), err);
    CHECK_OK(
        sh_model_load(dir, r.config, shard == NULL ? &whole : shard, r.dev, &opts, &r.model, &err),
        err);
    CHECK_OK(sh_model_reserve_kv(r.model, RIG_BLOCKS, &err), err);
    return r;
}

/* Loads one rank's shard of the model, or all of it when shard is NULL. Exact means f32 for
 * activations and KV. */
static inline rig rig_open(const char *dir, bool exact, const sh_shard *shard, int threads)
{
    return rig_open_kv(dir, exact, exact ? SH_KV_F32 : SH_KV_F16, shard, threads);
}

static inline void rig_close(rig *r)
{
    sh_model_free(r->model);
    r->dev->ops->close(r->dev);
    sh_config_reset(r->config);
    free(r->config);
}

/* Whether a sequence of that length uses longrope's long factors. */
static inline bool rig_long_rope(const rig *r, int len)
{
    const sh_rope_config *rope = &r->config->rope[0];
    return rope->kind == SH_ROPE_LONGROPE && len > rope->original_context;
}

/* Runs tokens [pos, pos + count) of one sequence, whose KV blocks are shuffled by `seed`, and
 * returns the logits of each. */
static inline void rig_run(const rig *r, const int32_t *ids, int pos, int count, int len, int seed,
                           float *logits)
{
    sh_err err = {0};
    int32_t blocks[RIG_BLOCKS], rows[RIG_TOKENS];
    for (int i = 0; i < RIG_BLOCKS; i++) blocks[i] = (i * 13 + seed * 8) % RIG_BLOCKS;
    for (int i = 0; i < count; i++) rows[i] = i;
    sh_span span = {
        .count = count, .pos = pos, .long_rope = rig_long_rope(r, len), .blocks = blocks};
    sh_forward_input in = {.batch = {.tokens = count,
                                     .ids = ids + pos,
                                     .span_count = 1,
                                     .spans = &span,
                                     .rows = rows,
                                     .row_count = count}};
    sh_logits out;
    CHECK_OK(sh_model_step(r->model, &in, NULL, &out, &err), err);
    r->dev->ops->read_rows(r->dev, out.rows, 0, count, out.count, logits);
}

/* Names of the folders in tests/data/models, sorted; never freed. */
static inline char **rig_models(size_t *count)
{
    struct dirent **entries = NULL;
    int found = scandir(rig_models_dir(), &entries, NULL, alphasort);
    char **names = sh_alloc_array((size_t)(found > 0 ? found : 0) + 1, sizeof(*names));
    *count = 0;
    for (int i = 0; i < found; i++) {
        if (entries[i]->d_name[0] != '.' && strstr(entries[i]->d_name, ".md") == NULL)
            names[(*count)++] = sh_strdup(entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return names;
}

/* One test for each model, named after it; `claim` is the test, its state the name of the model. */
static inline int rig_each_model(const char *group, CMUnitTestFunction claim)
{
    size_t count = 0;
    char **names = rig_models(&count);
    struct CMUnitTest *tests = sh_alloc_array(count + 1, sizeof(*tests));
    for (size_t i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){sh_asprintf("%s: %s", group, names[i]), claim, NULL, NULL,
                                       names[i]};
    int failed = count == 0 ? 1 : _cmocka_run_group_tests(group, tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        free((char *)(uintptr_t)tests[i].name);
        free(names[i]);
    }
    free(names);
    free(tests);
    return failed;
}

#endif
