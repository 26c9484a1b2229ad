/* host.h - a rank 0 with a model, at the other end of a socket, and a rank without one.
 *
 * Threads: one. */
#ifndef SH_TESTS_SHARE_HOST_H
#define SH_TESTS_SHARE_HOST_H

#include "share/shard_source.h"
#include "share/share_server.h"

#include "model/identity.h"

#include "unit/model/rig.h"

#include "scratch.h" /* last: its `dir` would shadow */

#include <sys/socket.h>

enum { THREADS = 3 };
static const uint64_t LIMIT = 1 << 30;

/* ---- a rank 0 and a link to it ---- */

typedef struct {
    sh_share_server *server;
    char *model; /* folder of rank 0 */
    uint8_t id[SH_IDENTITY_LEN];
    const sh_share_hub *hub; /* that the other rank asks first; NULL: none */
} host;

static inline host host_open(const char *model)
{
    host h = {.model = sh_strdup(model)};
    sh_identity identity;
    sh_err err;
    CHECK_OK(sh_identity_read(model, &identity, &err), err);
    memcpy(h.id, identity.id, sizeof(h.id));
    CHECK_OK(sh_share_server_create(model, &h.server, &err), err);
    return h;
}

static inline void host_close(host *h)
{
    sh_share_server_free(h->server);
    free(h->model);
}

static inline sh_status link_open(void *ctx, int index, sh_stream *out, sh_err *err)
{
    host *h = ctx;
    sh_stream theirs;
    int fd[2];
    (void)index;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) != 0)
        return sh_err_sys(err, "socketpair");
    sh_stream_init(out, fd[0]);
    sh_stream_init(&theirs, fd[1]);
    sh_share_server_take(h->server, 1, theirs);
    return SH_OK;
}

static inline sh_share_link link_to(host *h)
{
    return (sh_share_link){h, link_open, -1};
}

static inline char *cache_root(void)
{
    return sh_path_join(dir, "cache");
}

static inline sh_shard_source *source_open(host *h, uint64_t limit)
{
    char *root = cache_root();
    sh_shard_source *source = sh_shard_source_create(root, limit, h->hub);
    sh_share_link link = link_to(h);
    bool changed = false;
    sh_err err;
    CHECK_OK(sh_shard_source_connect(source, &link, h->id, 1, &changed, &err), err);
    assert_true(changed);
    free(root);
    return source;
}

/* ---- models ---- */

static uint64_t noise = 88172645463325252u;

static inline int dice(int sides)
{
    noise ^= noise << 13;
    noise ^= noise >> 7;
    noise ^= noise << 17;
    return (int)(noise % (uint64_t)sides);
}

static inline sh_shard random_shard(const sh_config *config)
{
    enum { RANKS = 4 };
    double weights[RANKS];
    sh_shard shards[RANKS];
    sh_err err = {0};
    int stages = 1 + dice(config->layers < 2 ? config->layers : 2), width = RANKS / stages;
    for (int i = 0; i < RANKS; i++) weights[i] = 1 + dice(4);
    CHECK_OK(sh_shard_plan(config, &(sh_plan_opts){width, stages, weights, 0}, shards, &err), err);
    return shards[dice(RANKS)];
}

static inline sh_status model_load(rig *r, const char *model, const sh_shard *shard,
                                   const sh_window_source *source, sh_err *err)
{
    sh_device_opts dev = {.threads = 1};
    sh_model_opts opts = {.tokens_max = 8,
                          .rows_max = 8,
                          .kv_format = SH_KV_F16,
                          .load = {.threads = THREADS, .source = source}};
    *r = (rig){.config = sh_alloc(sizeof(*r->config))};
    sh_status status = sh_config_load(model, r->config, err);
    sh_shard whole = status == SH_OK ? sh_shard_whole(r->config) : (sh_shard){0};
    if (status == SH_OK) status = sh_device_open(test_device(), &dev, &r->dev, err);
    if (status == SH_OK)
        status = sh_model_load(model, r->config, shard == NULL ? &whole : shard, r->dev, &opts,
                               &r->model, err);
    return status;
}

static inline void check_same(const rig *a, const rig *b)
{
    size_t size_a, size_b;
    const void *x, *y;
    if (strcmp(a->dev->ops->name, "fenced") == 0) fenced_enter(a->dev), fenced_enter(b->dev);
    for (int i = 0; (x = sh_model_weights(a->model, i, &size_a)) != NULL; i++) {
        y = sh_model_weights(b->model, i, &size_b);
        if (y == NULL || size_a != size_b || memcmp(x, y, size_a) != 0)
            fail_msg("block %d differs", i);
    }
    if (strcmp(a->dev->ops->name, "fenced") == 0)
        fenced_leave(fenced_of(b->dev)), fenced_leave(fenced_of(a->dev));
}

/* Loads a shard through the source and compares it with one from the files. */
static inline sh_shard_origin load_and_compare(host *h, uint64_t limit, const sh_shard *shard)
{
    rig from_files, from_link;
    sh_err err = {0};
    sh_shard_source *source = source_open(h, limit);
    CHECK_OK(model_load(&from_files, h->model, shard, NULL, &err), err);
    CHECK_OK(model_load(&from_link, sh_shard_source_dir(source), shard,
                        sh_shard_source_windows(source), &err),
             err);
    check_same(&from_files, &from_link);
    sh_shard_origin origin = sh_shard_source_origin(source);
    rig_close(&from_link);
    rig_close(&from_files);
    sh_shard_source_free(source);
    return origin;
}

static inline void empty_cache(void)
{
    char *root = cache_root(), *command = sh_asprintf("rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
    free(command);
    free(root);
}

static inline char *model_path(const char *name)
{
    return sh_path_join(rig_models_dir(), name);
}

#endif
