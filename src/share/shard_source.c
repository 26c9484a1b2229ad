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

/* Parts of a window to ask rank 0 for, and where each goes: a part of its columns comes apart from
 * the window's bytes and is copied between them. */
typedef struct {
    sh_share_part parts[SH_SHARE_PARTS_MAX];
    char *to[SH_SHARE_PARTS_MAX];     /* of the first byte; NULL: the part came in its place */
    size_t pitch[SH_SHARE_PARTS_MAX]; /* from row to row there */
    int count;
} request_batch;

static sh_status get(sh_shard_source *source, sh_share_part *parts, int count, sh_err *err)
{
    if (count == 0) return SH_OK;
    if (source->hub != NULL && sh_hub_windows_read(source->hub, parts, count)) return SH_OK;
    return sh_share_client_read(source->client, parts, count, err);
}

/* Gets parts that are not on this disk, or not for certain, and keeps what comes. */
static sh_status fetch(sh_shard_source *source, request_batch *batch, sh_err *err)
{
    sh_status status = get(source, batch->parts, batch->count, err);
    for (int i = 0; i < batch->count; i++) {
        const sh_share_part *part = &batch->parts[i];
        const sh_share_request *request = &part->request;
        const sh_window *w = &request->window;
        if (status == SH_OK && source->store != NULL && part->same)
            sh_shard_store_confirm(source->store, request->file, w);
        else if (status == SH_OK && source->store != NULL)
            sh_shard_store_add(source->store, request->file, w, part->data, part->digest);
        if (batch->to[i] == NULL) continue;
        for (uint64_t row = 0; status == SH_OK && row < w->rows; row++)
            memcpy(batch->to[i] + row * batch->pitch[i], (char *)part->data + row * w->len, w->len);
        free(part->data);
    }
    batch->count = 0;
    return status;
}

/* Adds a rectangle of a window whose bytes are at `data`. */
static sh_status request(sh_shard_source *source, request_batch *batch, const sh_share_part *whole,
                         const sh_window_rect *rect, sh_err *err)
{
    const sh_window *w = &whole->request.window;
    char *to = (char *)whole->data + rect->row * w->len + rect->col;
    bool in_place = rect->cols == w->len || rect->rows == 1;
    int i = batch->count++;
    batch->parts[i] = *whole;
    batch->parts[i].request.window = sh_window_rect_cut(w, rect);
    batch->parts[i].data = in_place ? to : sh_alloc((size_t)(rect->rows * rect->cols));
    batch->to[i] = in_place ? NULL : to;
    batch->pitch[i] = (size_t)w->len;
    return batch->count < SH_SHARE_PARTS_MAX ? SH_OK : fetch(source, batch, err);
}

/* Whether the part is here; if it may be, the request says which bytes are. */
static bool is_stored(sh_shard_source *source, sh_share_part *part)
{
    sh_share_request *asked = &part->request;
    if (source->store == NULL) return false;
    sh_stored stored = sh_shard_store_read(source->store, asked->file, &asked->window, part->data,
                                           asked->digest);
    asked->known = stored == SH_STORED_OLD;
    return stored == SH_STORED_NOW;
}

/* Takes what is on this disk of a part that is not there as such, and asks for the rest. A part
 * that is here in many pieces is not worth the trouble: beyond some, what is left is asked for. */
static sh_status assemble(sh_shard_source *source, request_batch *batch, const sh_share_part *part,
                          sh_err *err)
{
    enum { PIECES_MAX = 32 };
    const sh_share_request *asked = &part->request;
    sh_window_rect left[PIECES_MAX] = {sh_window_rect_all(&asked->window)}, found;
    sh_status status = SH_OK;
    for (int count = 1; count > 0 && status == SH_OK;) {
        sh_window_rect piece = left[--count];
        bool here = source->store != NULL && !asked->known &&
                    count + SH_WINDOW_REST_MAX <= PIECES_MAX &&
                    sh_shard_store_read_part(source->store, asked->file, &asked->window, &piece,
                                             part->data, &found);
        if (here)
            count += sh_window_rect_rest(&piece, &found, left + count);
        else
            status = request(source, batch, part, &piece, err);
    }
    return status;
}

static sh_status read_window(void *ctx, const char *file, const sh_window *window, void *data,
                             sh_err *err)
{
    sh_shard_source *source = ctx;
    int index = sh_share_outline_find(&source->folder.outline, file);
    sh_window whole = sh_window_merged(*window), cut;
    request_batch batch = {.count = 0};
    sh_status status = SH_OK;
    SH_ASSERT(index >= 0 && source->client != NULL);
    for (uint64_t done = 0, at = 0; status == SH_OK; at = done) {
        if (!sh_window_next(&whole, SH_SHARE_WINDOW_MAX, &done, &cut)) break;
        sh_share_part part = {
            .request = {.kind = SH_SHARE_WINDOW, .file = (uint32_t)index, .window = cut},
            .data = (char *)data + at};
        if (!is_stored(source, &part)) status = assemble(source, &batch, &part, err);
    }
    return status == SH_OK ? fetch(source, &batch, err) : status;
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
