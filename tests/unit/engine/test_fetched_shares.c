/* Ranks without a copy of the model get their shares from rank 0 while the group forms, over
 * connections of the real group with its token; and another model when rank 0 has another. */
#include "engine/model_group_internal.h"

#include "base/alloc.h"

#include "unit/fenced.h"
#include "unit/ranks.h"

#include "scratch.h"

enum { RANKS = 3 };

/* The ranks as they outlive groups. */
typedef struct {
    const char *model; /* folder of rank 0 */
    const char *device;
    sh_model_group *mg[RANKS];
    uint64_t read[RANKS]; /* bytes that each rank loaded for the last group */
    sh_shard_origin origin[RANKS];
    bool same[RANKS]; /* its weights are those of the files */
} world;

static sh_model_group_opts model_opts(const world *w, int rank)
{
    return (sh_model_group_opts){.model_dir = rank == 0 ? w->model : NULL,
                                 .shard_cache = dir,
                                 .shard_cache_limit = 1 << 30,
                                 .device = w->device,
                                 .device_opts = {.threads = 1},
                                 .kv_format = SH_KV_F16,
                                 .wire = SH_CODEC_F32,
                                 .slots = 2,
                                 .chunk = 16,
                                 .draws = 4,
                                 .kv_tokens = 128,
                                 .load = {.threads = 1}};
}

static bool same_weights(sh_model_group *mg, const char *model)
{
    sh_model_opts opts = {
        .tokens_max = 16, .rows_max = 4, .kv_format = SH_KV_F16, .load = {.threads = 1}};
    sh_model *fresh = NULL;
    sh_err err;
    if (sh_model_load(model, &mg->config, sh_model_shard(mg->model), mg->dev, &opts, &fresh,
                      &err) != SH_OK)
        return false;
    bool has_fence = strcmp(mg->dev->ops->name, "fenced") == 0, same = true;
    size_t len, other_len;
    const void *x;
    if (has_fence) fenced_enter(mg->dev);
    for (int i = 0; (x = sh_model_weights(fresh, i, &len)) != NULL; i++) {
        const void *y = sh_model_weights(mg->model, i, &other_len);
        same = same && y != NULL && len == other_len && memcmp(x, y, len) == 0;
    }
    if (has_fence) fenced_leave(fenced_of(mg->dev));
    sh_model_free(fresh);
    return same;
}

/* One group: join, compare, and end in good order. */
static void member(ranks_one *one)
{
    world *w = one->arg;
    sh_group_opts opts;
    sh_group *group = NULL;
    sh_model_group **mg = &w->mg[one->rank];
    sh_model_group_opts model = model_opts(w, one->rank);
    sh_group_opts_init(&opts);
    opts.mesh = ranks_opts(one);
    opts.mesh.token = RANKS_TOKEN;
    one->status = *mg == NULL ? sh_model_group_open(&model, mg, &one->err) : SH_OK;
    if (one->status != SH_OK) return;
    memcpy(opts.mesh.model, (*mg)->identity.id, SH_MODEL_ID_LEN);
    if (one->rank > 0) sh_model_id_set_any(opts.mesh.model);
    one->status = sh_group_open(&opts, &group, &one->err);
    if (one->status == SH_OK) one->status = sh_model_group_join(*mg, group, &one->err);
    if (one->status == SH_OK) {
        w->same[one->rank] = same_weights(*mg, w->model);
        w->read[one->rank] = sh_model_loaded_of((*mg)->model).read;
        if (one->rank > 0) w->origin[one->rank] = sh_shard_source_origin((*mg)->source);
        one->status = one->rank == 0 ? sh_model_group_stop(*mg, &one->err)
                                     : sh_model_group_work(*mg, &one->err);
    }
    sh_group_close(group);
}

static void form(world *w, const char *model)
{
    ranks_one out[RANKS];
    char path[128];
    snprintf(path, sizeof(path), "tests/data/models/%s", model);
    w->model = path;
    ranks_run(RANKS, RANKS, member, w, out);
    for (int i = 0; i < RANKS; i++) {
        CHECK_OK(out[i].status, out[i].err);
        assert_true(w->same[i]);
    }
}

static void rank_lost(world *w, int rank)
{
    sh_model_group_close(w->mg[rank]);
    w->mg[rank] = NULL;
}

TEST(ranks_without_a_model_work_with_that_of_rank_0)
{
    UNUSED_STATE;
    world w = {.device = test_device()};
    form(&w, "llama-4bit");
    for (int i = 1; i < RANKS; i++) {
        assert_true(w.origin[i].link > 0);
        assert_int_equal(w.origin[i].disk, 0);
        assert_true(w.origin[i].link <= w.read[i]);
    }

    form(&w, "llama-4bit"); /* weights in memory stay there */
    for (int i = 1; i < RANKS; i++) assert_int_equal(w.origin[i].link + w.origin[i].disk, 0);

    rank_lost(&w, 0);
    rank_lost(&w, 1);
    form(&w, "llama-4bit"); /* rank 1 starts again, and has its share on the disk */
    assert_int_equal(w.origin[1].link, 0);
    assert_true(w.origin[1].disk > 0);

    rank_lost(&w, 0);
    form(&w, "qwen3_moe-bf16"); /* rank 0 comes back with another model */
    for (int i = 1; i < RANKS; i++) assert_true(w.origin[i].link > 0);
    for (int i = 0; i < RANKS; i++) rank_lost(&w, i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_without_a_model_work_with_that_of_rank_0),
    };
    return cmocka_run_group_tests_name("fetched shares", tests, make_dir, remove_dir);
}
