/* Windows are cut into parts that one request may have, and the parts of a window that are not on
 * this disk are asked for together: a window costs one round trip. */
#include "share/shard_source.h"

#include "base/alloc.h"
#include "base/log.h"
#include "share/shard_cache.h"
#include "share/shard_folder.h"
#include "share/shard_store.h"

#include <stdlib.h>
#include <string.h>

struct sh_shard_source {
    char *root;
    sh_shard_cache cache;
    sh_shard_folder folder; /* path NULL: none yet */
    uint8_t id[SH_IDENTITY_LEN];
    int rank;
    const sh_share_hub *hub_opts; /* NULL: the hub is not asked */
    sh_share_client *client;      /* NULL: not connected */
    sh_hub_windows *hub;          /* NULL: not connected, or rank 0 is asked for everything */
    sh_shard_store *store;        /* NULL: not connected, or nothing is kept */
    sh_window_source windows;
    sh_shard_origin origin; /* as it was when the connections were closed */
};

static sh_status get(sh_shard_source *source, sh_share_part *parts, int count, sh_err *err)
{
    if (count == 0) return SH_OK;
    if (source->hub != NULL && sh_hub_windows_read(source->hub, parts, count)) return SH_OK;
    return sh_share_client_read(source->client, parts, count, err);
}

/* Gets parts that are not on this disk, or not for certain, and keeps what comes. */
static sh_status fetch(sh_shard_source *source, sh_share_part *parts, int count, sh_err *err)
{
    sh_status status = get(source, parts, count, err);
    for (int i = 0; status == SH_OK && source->store != NULL && i < count; i++) {
        const sh_share_request *request = &parts[i].request;
        if (parts[i].same)
            sh_shard_store_confirm(source->store, request->file, &request->window);
        else
            sh_shard_store_add(source->store, request->file, &request->window, parts[i].data,
                               parts[i].digest);
    }
    return status;
}

/* Whether the part is here; if it may be, the request says which bytes are. */
static bool is_stored(sh_shard_source *source, sh_share_part *part)
{
    sh_share_request *request = &part->request;
    if (source->store == NULL) return false;
    sh_stored stored = sh_shard_store_read(source->store, request->file, &request->window,
                                           part->data, request->digest);
    request->known = stored == SH_STORED_OLD;
    return stored == SH_STORED_NOW;
}

static sh_status read_window(void *ctx, const char *file, const sh_window *window, void *data,
                             sh_err *err)
{
    sh_shard_source *source = ctx;
    int index = sh_share_outline_find(&source->folder.outline, file), count = 0;
    sh_window whole = sh_window_merged(*window), part;
    sh_share_part parts[SH_SHARE_PARTS_MAX];
    sh_status status = SH_OK;
    SH_ASSERT(index >= 0 && source->client != NULL);
    for (uint64_t done = 0, at = 0; status == SH_OK; at = done) {
        bool more = sh_window_next(&whole, SH_SHARE_WINDOW_MAX, &done, &part);
        if (more) {
            parts[count] = (sh_share_part){
                .request = {.kind = SH_SHARE_WINDOW, .file = (uint32_t)index, .window = part},
                .data = (char *)data + at};
            count += !is_stored(source, &parts[count]);
        }
        if (more && count < SH_SHARE_PARTS_MAX) continue;
        status = fetch(source, parts, count, err);
        count = 0;
        if (!more) break;
    }
    return status;
}

sh_shard_source *sh_shard_source_create(const char *root, uint64_t limit, const sh_share_hub *hub)
{
    sh_shard_source *source = sh_alloc(sizeof(*source));
    source->root = sh_strdup(root);
    source->cache = (sh_shard_cache){.root = source->root, .limit = limit};
    source->hub_opts = hub;
    source->windows = (sh_window_source){source, read_window};
    return source;
}

/* Where nothing is kept, the outline goes as well. */
static void folder_leave(sh_shard_source *source)
{
    sh_err err;
    if (source->cache.limit == 0 && source->folder.path != NULL &&
        sh_shard_cache_delete(source->folder.path, &err) != SH_OK)
        SH_LOGW("shard cache: %s", err.text);
    sh_shard_folder_close(&source->folder);
}

void sh_shard_source_free(sh_shard_source *source)
{
    if (source == NULL) return;
    sh_shard_source_disconnect(source);
    folder_leave(source);
    free(source->root);
    free(source);
}

void sh_shard_source_disconnect(sh_shard_source *source)
{
    source->origin = sh_shard_source_origin(source);
    sh_hub_windows_free(source->hub);
    sh_share_client_free(source->client);
    sh_shard_store_close(source->store);
    source->hub = NULL;
    source->client = NULL;
    source->store = NULL;
}

/* The folder has config.json and all headers, so it must have the identity that rank 0 claims. */
static sh_status check_identity(const sh_shard_source *source, sh_err *err)
{
    sh_identity found;
    sh_status status = sh_identity_read(source->folder.model, &found, err);
    if (status != SH_OK || memcmp(found.id, source->id, SH_IDENTITY_LEN) == 0) return status;
    return sh_err_set(err, SH_ERR_GROUP,
                      "%s is not the model that rank 0 announced: its files have changed since it "
                      "was started, or this folder has files of another",
                      source->folder.model);
}

/* A disk that cannot be used is no reason not to work. */
static void store_open(sh_shard_source *source)
{
    sh_shard_room room = {&source->cache, sh_shard_cache_grant};
    sh_err err;
    source->cache.own = source->folder.path;
    source->cache.granted = 0;
    sh_shard_cache_trim(&source->cache);
    if (source->cache.limit > 0 && sh_shard_store_open(source->folder.path, source->folder.digest,
                                                       &room, &source->store, &err) != SH_OK)
        SH_LOGW("shard cache: %s; nothing is kept", err.text);
}

static sh_status update(sh_shard_source *source, bool *changed, sh_err *err)
{
    uint8_t before[SH_DIGEST_LEN];
    memcpy(before, source->folder.digest, SH_DIGEST_LEN);
    sh_status status = sh_shard_folder_update(&source->folder, source->client, err);
    if (status == SH_OK) status = check_identity(source, err);
    if (memcmp(before, source->folder.digest, SH_DIGEST_LEN) != 0) *changed = true;
    return status;
}

sh_status sh_shard_source_connect(sh_shard_source *source, const sh_share_link *link,
                                  const uint8_t id[SH_IDENTITY_LEN], int rank, bool *changed,
                                  sh_err *err)
{
    sh_status status = SH_OK;
    bool same = source->folder.path != NULL && source->rank == rank &&
                memcmp(source->id, id, SH_IDENTITY_LEN) == 0;
    *changed = !same;
    sh_shard_source_disconnect(source);
    source->origin = (sh_shard_origin){0};
    source->client = sh_share_client_create(link);
    if (!same) {
        folder_leave(source);
        memcpy(source->id, id, SH_IDENTITY_LEN);
        source->rank = rank;
        status = sh_shard_folder_open(source->root, id, rank, &source->folder, err);
    }
    if (status == SH_OK) status = update(source, changed, err);
    if (status == SH_OK) store_open(source);
    if (status == SH_OK && source->hub_opts != NULL)
        source->hub = sh_hub_windows_create(source->hub_opts, &source->folder.outline,
                                            link->stop_fd);
    if (status != SH_OK) sh_shard_source_disconnect(source);
    if (status != SH_OK && *changed) folder_leave(source);
    return status;
}

const char *sh_shard_source_folder(const sh_shard_source *source)
{
    return source->folder.path;
}

const char *sh_shard_source_dir(const sh_shard_source *source)
{
    return source->folder.model;
}

const sh_window_source *sh_shard_source_windows(const sh_shard_source *source)
{
    return &source->windows;
}

sh_shard_origin sh_shard_source_origin(const sh_shard_source *source)
{
    sh_shard_origin origin = source->origin;
    if (source->client != NULL) origin.link = sh_share_client_received(source->client);
    if (source->hub != NULL) origin.hub = sh_hub_windows_received(source->hub);
    if (source->store != NULL) origin.disk = sh_shard_store_given(source->store);
    return origin;
}
