/* Windows are cut into parts that one request may have, and the parts of a window are asked for
 * together: a window costs one round trip. */
#include "share/shard_source.h"

#include "base/alloc.h"
#include "share/shard_folder.h"

#include <stdlib.h>
#include <string.h>

struct sh_shard_source {
    char *root;
    sh_shard_folder folder; /* path NULL: none yet */
    uint8_t id[SH_IDENTITY_LEN];
    int rank;
    sh_share_client *client; /* NULL: not connected */
    sh_window_source windows;
    uint64_t received; /* over earlier connections */
};

static sh_status read_parts(sh_shard_source *source, sh_share_part *parts, int count, sh_err *err)
{
    return sh_share_client_read(source->client, parts, count, err);
}

static sh_status read_window(void *ctx, const char *file, const sh_window *window, void *data,
                             sh_err *err)
{
    sh_shard_source *source = ctx;
    int index = sh_share_outline_find(&source->folder.outline, file), count = 0;
    sh_window whole = sh_window_merged(*window);
    sh_share_part parts[SH_SHARE_PARTS_MAX];
    uint64_t done = 0, at = 0;
    sh_status status = SH_OK;
    SH_ASSERT(index >= 0 && source->client != NULL);
    for (bool more = true; more && status == SH_OK;) {
        parts[count] = (sh_share_part){.data = (char *)data + at};
        sh_share_request *request = &parts[count].request;
        request->kind = SH_SHARE_WINDOW;
        request->file = (uint32_t)index;
        more = sh_window_next(&whole, SH_SHARE_WINDOW_MAX, &done, &request->window);
        at = done;
        if (more) count++;
        if (count == 0 || (more && count < SH_SHARE_PARTS_MAX)) continue;
        status = read_parts(source, parts, count, err);
        count = 0;
    }
    return status;
}

sh_shard_source *sh_shard_source_create(const char *root)
{
    sh_shard_source *source = sh_alloc(sizeof(*source));
    source->root = sh_strdup(root);
    source->windows = (sh_window_source){source, read_window};
    return source;
}

void sh_shard_source_free(sh_shard_source *source)
{
    if (source == NULL) return;
    sh_shard_source_disconnect(source);
    sh_shard_folder_close(&source->folder);
    free(source->root);
    free(source);
}

void sh_shard_source_disconnect(sh_shard_source *source)
{
    if (source->client != NULL) source->received += sh_share_client_received(source->client);
    sh_share_client_free(source->client);
    source->client = NULL;
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
    source->client = sh_share_client_create(link);
    if (!same) {
        sh_shard_folder_close(&source->folder);
        memcpy(source->id, id, SH_IDENTITY_LEN);
        source->rank = rank;
        status = sh_shard_folder_open(source->root, id, rank, &source->folder, err);
    }
    if (status == SH_OK) status = update(source, changed, err);
    if (status != SH_OK) {
        sh_shard_source_disconnect(source);
        sh_shard_folder_close(&source->folder);
    }
    return status;
}

const char *sh_shard_source_dir(const sh_shard_source *source)
{
    return source->folder.model;
}

const sh_window_source *sh_shard_source_windows(const sh_shard_source *source)
{
    return &source->windows;
}

uint64_t sh_shard_source_received(const sh_shard_source *source)
{
    return source->received +
           (source->client == NULL ? 0 : sh_share_client_received(source->client));
}
