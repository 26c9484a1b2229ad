/* How weights reach a rank that has no copy of the model, and how all ranks tell rank 0 how far
 * they are with loading.
 *
 * Rank 0 always offers them: it cannot know who needs them, and it costs nothing until somebody
 * asks. A rank without a copy learns at each join which model rank 0 has, as that may be another
 * one than before. Everything after that is as with a folder of its own: the config, the shard plan
 * and the loader do not know where the bytes come from. */
#include "engine/model_group_internal.h"

#include "base/file.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    CONNECT_MS = 60000, /* rank 0 is there: this is for one that is slow */
    SHARES_MAX = 1 << 20,
};

static sh_status link_open(void *ctx, int index, sh_stream *out, sh_err *err)
{
    return sh_group_connect(ctx, index, sh_deadline_in_ms(CONNECT_MS), out, err);
}

sh_status sh_model_group_receive(sh_model_group *mg, sh_group *group, sh_err *err)
{
    sh_status status = mg->server != NULL ? SH_OK
                                          : sh_share_server_create(mg->model_dir, &mg->server, err);
    if (status == SH_OK) sh_group_set_visitor(group, sh_share_server_take, mg->server);
    return status;
}

static sh_status offer(sh_model_group *mg, sh_err *err)
{
    sh_status status = sh_model_group_receive(mg, mg->group, err);
    if (mg->opts.load_board != NULL) {
        sh_load_board_clear(mg->opts.load_board);
        sh_group_on_load(mg->group, sh_load_board_set, mg->opts.load_board);
    }
    return status;
}

/* What was loaded from other files, and how they were shared, is of no use. */
static void forget(sh_model_group *mg)
{
    sh_model_free(mg->model);
    mg->model = NULL;
    mg->kv_epoch = mg->refused = 0;
    sh_shares_reset(&mg->shares);
}

/* Beside the share: with another decision the next process would need other bytes. */
static char *shares_path(const sh_model_group *mg)
{
    return sh_path_join(sh_shard_source_folder(mg->source), "shares");
}

void sh_model_group_keep_shares(const sh_model_group *mg, bool keep)
{
    sh_buf bytes = {0};
    sh_err err;
    if (mg->source == NULL) return;
    char *path = shares_path(mg);
    sh_shares_pack(&mg->shares, &bytes);
    if (!keep)
        unlink(path);
    else if (sh_file_write_private(path, bytes.ptr, bytes.len, &err) != SH_OK)
        SH_LOGW("shard cache: %s", err.text);
    sh_buf_reset(&bytes);
    free(path);
}

static void shares_load(sh_model_group *mg)
{
    char *path = shares_path(mg);
    sh_buf bytes = {0};
    sh_err err;
    bool exists = sh_file_exists(path);
    sh_status status = exists ? sh_file_read(path, SHARES_MAX, &bytes, &err) : SH_OK;
    if (exists && status == SH_OK) {
        status = sh_shares_unpack(sh_buf_str(&bytes), &mg->shares, &err);
        mg->shares_read = status == SH_OK;
    }
    if (status != SH_OK) SH_LOGW("%s: %s", path, err.text);
    sh_buf_reset(&bytes);
    free(path);
}

sh_status sh_model_group_obtain(sh_model_group *mg, const sh_share_link *link,
                                const uint8_t id[SH_IDENTITY_LEN], int number, sh_err *err)
{
    bool changed = false;
    if (mg->source == NULL)
        mg->source = sh_shard_source_create(mg->opts.shard_cache, mg->opts.shard_cache_limit,
                                            mg->opts.hub);
    sh_status status = sh_shard_source_connect(mg->source, link, id, number, &changed, err);
    if (status != SH_OK || !changed) return status;
    forget(mg);
    shares_load(mg);
    return sh_model_group_describe(mg, sh_shard_source_dir(mg->source), err);
}

static sh_status obtain(sh_model_group *mg, sh_err *err)
{
    sh_share_link link = {mg->group, link_open, sh_group_fd(mg->group)};
    return sh_model_group_obtain(mg, &link, sh_group_model(mg->group),
                                 sh_model_group_number(mg, mg->rank), err);
}

sh_status sh_model_group_share_begin(sh_model_group *mg, sh_err *err)
{
    sh_status status = SH_OK;
    if (mg->rank == 0)
        status = offer(mg, err);
    else if (mg->opts.model_dir == NULL)
        status = obtain(mg, err);
    if (status != SH_OK) sh_group_fail(mg->group, err->text);
    return status;
}

void sh_model_group_share_end(sh_model_group *mg)
{
    if (mg->source == NULL) return;
    sh_shard_origin origin = sh_shard_source_origin(mg->source);
    sh_shard_source_disconnect(mg->source);
    if (origin.link + origin.hub + origin.disk > 0)
        SH_LOGI("the share of the model: %.1f MB came from rank 0, %.1f MB from this disk, %.1f MB "
                "from the hub",
                (double)origin.link * 1e-6, (double)origin.disk * 1e-6, (double)origin.hub * 1e-6);
}

/* With a total of 0 all ranks are done: what others said last may still be on its way. */
void sh_model_group_loaded(void *ctx, uint64_t done, uint64_t total)
{
    sh_model_group *mg = ctx;
    const sh_load_opts *load = &mg->opts.load;
    sh_load_state state = {.done = done, .total = total};
    if (mg->source != NULL) {
        sh_shard_origin origin = sh_shard_source_origin(mg->source);
        state.link = origin.link + origin.hub;
    }
    if (load->progress != NULL && total > 0) load->progress(load->progress_ctx, done, total);
    if (mg->group != NULL) sh_group_set_load(mg->group, &state);
    if (mg->opts.load_board == NULL) return;
    if (total > 0) {
        sh_load_board_set(mg->opts.load_board, sh_model_group_number(mg, mg->rank), &state);
        return;
    }
    if (mg->group != NULL) sh_group_on_load(mg->group, NULL, NULL);
    sh_load_board_clear(mg->opts.load_board);
}
