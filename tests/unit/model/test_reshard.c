/* A model that is turned into another shard has the same bytes in memory as one that was loaded as
 * that shard, whatever both have in common; and it reads only what it lacks. */
#include "model/synth.h"

#include "rig.h"
#include "scratch.h"

#include <fcntl.h>
#include <unistd.h>

enum { RANKS_MAX = 6, TURNS = 12 };

/* ---- plans ---- */

static uint64_t noise = 88172645463325252u;

static int dice(int sides)
{
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    return (int)(noise % (uint64_t)sides);
}

static sh_shard shard_of(const sh_config *config, int width, int stages, const double *weights,
                         int rank)
{
    sh_err err = {0};
    sh_shard shards[RANKS_MAX];
    CHECK_OK(sh_shard_plan(config, &(sh_plan_opts){width, stages, weights, 0}, shards, &err), err);
    return shards[rank];
}

/* Any rank of any plan; some ranks have nothing at all of the layers. */
static sh_shard random_shard(const sh_config *config)
{
    double weights[RANKS_MAX];
    int stages = 1 + dice(config->layers < 3 ? config->layers : 3);
    int width = 1 + dice(RANKS_MAX / stages);
    for (int i = 0; i < width * stages; i++) weights[i] = i % width == 0 ? 1 + dice(4) : dice(4);
    return shard_of(config, width, stages, weights, dice(width * stages));
}

/* ---- memory ---- */

static bool same_bytes(const void *a, const void *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

/* Opens the fence of a device that has one. */
static void memory_open(sh_device *dev)
{
    if (strcmp(dev->ops->name, "fenced") == 0) fenced_enter(dev);
}

static void memory_close(sh_device *dev)
{
    if (strcmp(dev->ops->name, "fenced") == 0) fenced_leave(fenced_of(dev));
}

static void check_same(const rig *a, const rig *b, const char *how)
{
    memory_open(a->dev);
    memory_open(b->dev);
    size_t size, size_b;
    const void *x, *y;
    for (int i = 0; (x = sh_model_weights(a->model, i, &size)) != NULL; i++) {
        y = sh_model_weights(b->model, i, &size_b);
        if (y == NULL || size != size_b || !same_bytes(x, y, size))
            fail_msg("%s: block %d differs", how, i);
    }
    memory_close(b->dev);
    memory_close(a->dev);
}

static void reshard(rig *r, const sh_shard *shard)
{
    sh_err err = {0};
    CHECK_OK(sh_model_reshard(&r->model, shard, &err), err);
    assert_memory_equal(sh_model_shard(r->model), shard, sizeof(*shard));
}

static uint64_t read_bytes(const rig *r)
{
    return sh_model_loaded_of(r->model).read;
}

/* ---- claims ---- */

static bool within(sh_range a, sh_range b)
{
    return a.count == 0 || (a.first >= b.first && a.first + a.count <= b.first + b.count);
}

/* Whether shard b has everything that a has. */
static bool contained(const sh_shard *a, const sh_shard *b)
{
    sh_range layers = {a->layer_first, a->layer_count}, others = {b->layer_first, b->layer_count};
    return within(layers, others) && within(a->heads, b->heads) && within(a->conv, b->conv) &&
           within(a->delta, b->delta) && within(a->ffn, b->ffn) &&
           within(a->expert_ffn, b->expert_ffn) && within(a->shared_ffn, b->shared_ffn) &&
           within(a->vocab, b->vocab) && (sh_shard_embeds(b) || !sh_shard_embeds(a)) &&
           (sh_shard_predicts(b) || !sh_shard_predicts(a));
}

static void check_turns(const golden *g, bool exact)
{
    rig r = rig_open(g->dir, exact, NULL, 2);
    for (int i = 0; i < TURNS; i++) {
        char how[64];
        sh_shard shard = random_shard(r.config), before = *sh_model_shard(r.model);
        reshard(&r, &shard);
        rig fresh = rig_open(g->dir, exact, &shard, 2);
        sh_model_loaded loaded = sh_model_loaded_of(fresh.model);
        snprintf(how, sizeof(how), "turn %d, rank %d of %d x %d", i, shard.rank, shard.tensor_size,
                 shard.stages);
        assert_int_equal(loaded.read, loaded.total);
        assert_int_equal(sh_model_loaded_of(r.model).total, loaded.total);
        assert_true(read_bytes(&r) <= loaded.total);
        if (contained(&shard, &before) && read_bytes(&r) != 0)
            fail_msg("%s: read %llu bytes of a part of what was here", how,
                     (unsigned long long)read_bytes(&r));
        check_same(&r, &fresh, how);
        rig_close(&fresh);
    }
    rig_close(&r);
}

TEST(turns_into_any_shard)
{
    golden g = golden_load(*state);
    check_turns(&g, false);
    check_turns(&g, true);
    golden_free(&g);
}

/* A model of 12 layers, in the scratch folder. */
static void synth_write(void)
{
    sh_err err = {0};
    sh_synth_opts opts = {.bits = 4, .group = 64};
    const sh_str config = SH_STR(
        "{\"model_type\":\"llama\",\"hidden_size\":256,\"num_hidden_layers\":12,"
        "\"intermediate_size\":1024,\"num_attention_heads\":8,\"num_key_value_heads\":4,"
        "\"rms_norm_eps\":1e-5,\"vocab_size\":512,\"max_position_embeddings\":512,"
        "\"tie_word_embeddings\":true}");
    CHECK_OK(sh_synth_write(config, "config", dir, &opts, &err), err);
}

static void reads_part(rig *r, const sh_shard *shard, double least, double most)
{
    reshard(r, shard);
    double part = (double)read_bytes(r) / (double)sh_model_loaded_of(r->model).total;
    if (part < least || part > most)
        fail_msg("read %.3f of the shard, not %.2f to %.2f", part, least, most);
}

/* Shares of 1:1 become 3:1 and back: a third of the larger shard is new, and nothing of the smaller
 * one. The other rank of 3:1 has nothing in common with the first but what all ranks have. */
TEST(reads_only_what_it_lacks)
{
    UNUSED_STATE;
    synth_write();
    rig r = rig_open(dir, false, NULL, 2);
    sh_shard half = shard_of(r.config, 2, 1, (const double[]){1, 1}, 0);
    sh_shard more = shard_of(r.config, 2, 1, (const double[]){3, 1}, 0);
    sh_shard last = shard_of(r.config, 2, 1, (const double[]){3, 1}, 1);
    sh_shard early = shard_of(r.config, 1, 2, (const double[]){1, 1}, 0);
    sh_shard later = shard_of(r.config, 1, 2, (const double[]){1, 2}, 1);
    reads_part(&r, &half, 0, 0);
    reads_part(&r, &more, 0.32, 0.35);
    reads_part(&r, &half, 0, 0);
    reads_part(&r, &last, 0.9, 1);
    reads_part(&r, &early, 0.7, 0.8); /* it has a quarter of these layers */
    reads_part(&r, &later, 0.7, 0.8); /* and now two of these eight layers, and the embedding */
    reads_part(&r, &later, 0, 0);
    rig_close(&r);
}

/* Counts the memory that is mapped, by a table of ops in the place of the device's. */
static const sh_ops *real_ops;
static size_t mapped, mapped_most;

static sh_status counted_map(sh_device *dev, size_t size, const char *what, void **out, sh_err *err)
{
    mapped += size;
    if (mapped > mapped_most) mapped_most = mapped;
    return real_ops->map(dev, size, what, out, err);
}

static void counted_unmap(sh_device *dev, void *ptr, size_t size)
{
    if (ptr != NULL) mapped -= size;
    real_ops->unmap(dev, ptr, size);
}

/* Every layer is cut anew: the ranks exchange their larger parts. */
TEST(old_and_new_weights_are_not_in_memory_together)
{
    UNUSED_STATE;
    synth_write();
    rig r = rig_open(dir, false, NULL, 2);
    sh_shard a = shard_of(r.config, 2, 1, (const double[]){5, 3}, 0);
    sh_shard b = shard_of(r.config, 2, 1, (const double[]){3, 5}, 1);
    sh_ops ops = *r.dev->ops;
    real_ops = r.dev->ops;
    ops.map = counted_map;
    ops.unmap = counted_unmap;
    reshard(&r, &a);
    r.dev->ops = &ops;
    sh_model_memory before = sh_model_memory_used(r.model);
    mapped = before.weights + before.scratch;
    mapped_most = 0;
    reshard(&r, &b);
    r.dev->ops = real_ops;
    sh_model_memory after = sh_model_memory_used(r.model);
    size_t larger = before.weights > after.weights ? before.weights : after.weights;
    assert_int_equal(mapped, after.weights + after.scratch);
    if (mapped_most > larger + larger / 4 + after.scratch)
        fail_msg("%zu bytes at once for shards of up to %zu", mapped_most, larger);
    assert_true(read_bytes(&r) < sh_model_loaded_of(r.model).total * 2 / 3);
    rig_close(&r);
}

static void copy_file(const char *from, const char *to)
{
    sh_err err = {0};
    sh_buf data = {0};
    CHECK_OK(sh_file_read(from, 64 << 20, &data, &err), err);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data.ptr, data.len), data.len);
    close(fd);
    sh_buf_reset(&data);
}

/* A file that has become shorter fails the change in the middle, with an error that names it. The
 * model is gone, and can be loaded when the file is whole again. */
TEST(a_failure_in_the_middle_is_clear)
{
    UNUSED_STATE;
    static const char *const files[] = {"config.json", "model.safetensors"};
    char *from = sh_path_join(rig_models_dir(), "llama-4bit"), *paths[2], *sources[2];
    for (int i = 0; i < 2; i++) {
        sources[i] = sh_path_join(from, files[i]);
        paths[i] = sh_path_join(dir, files[i]);
        copy_file(sources[i], paths[i]);
    }
    rig r = rig_open(dir, false, NULL, 2);
    sh_shard half = shard_of(r.config, 2, 1, NULL, 0), whole = sh_shard_whole(r.config);
    sh_err err = {0};
    reshard(&r, &half);
    assert_int_equal(truncate(paths[1], 65536), 0);
    assert_int_not_equal(sh_model_reshard(&r.model, &whole, &err), SH_OK);
    assert_null(r.model);
    assert_non_null(strstr(err.text, "model.safetensors"));
    copy_file(sources[1], paths[1]);
    sh_model_opts opts = {.tokens_max = 8, .rows_max = 8};
    CHECK_OK(sh_model_load(dir, r.config, &whole, r.dev, &opts, &r.model, &err), err);
    rig_close(&r);
    for (int i = 0; i < 2; i++) {
        free(sources[i]);
        free(paths[i]);
    }
    free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_only_what_it_lacks),
        cmocka_unit_test(old_and_new_weights_are_not_in_memory_together),
        cmocka_unit_test(a_failure_in_the_middle_is_clear),
    };
    int failed = cmocka_run_group_tests(tests, make_dir, remove_dir);
    return failed + rig_each_model("turns into any shard", turns_into_any_shard);
}
