#include "store/pull.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "store/blob.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum {
    LISTING_MAX = 16 << 20,
    LISTING_TRIES = 3, /* few: this is where a missing network shows */
    PAUSE_FIRST_MS = 250,
    WAIT_MS = 100,
};
static const int64_t DISK_RESERVE = 256 << 20; /* left free for everything else */

static bool listing_add(sh_hub_request *r, sh_str bytes)
{
    sh_buf *body = r->ctx;
    if (body->len + bytes.len > LISTING_MAX) {
        r->status = sh_err_set(&r->err, SH_ERR_LIMIT,
                               "the hub's description of the model is larger than %d MiB",
                               LISTING_MAX >> 20);
        return false;
    }
    sh_buf_add_str(body, bytes);
    return true;
}

static bool cancelled(const sh_pull_opts *o)
{
    return *o->cancel != 0;
}

/* Waits in small steps, so that Ctrl-C is noticed. */
static void pause_ms(const sh_pull_opts *o, int64_t wait_ms)
{
    sh_deadline end = sh_deadline_in_ms(wait_ms);
    while (!sh_deadline_passed(end) && !cancelled(o)) sh_sleep_ms(WAIT_MS);
}

/* One attempt. */
static sh_status listing_get(sh_hub *hub, const sh_pull_opts *o, sh_buf *body, int64_t *wait_ms,
                             sh_err *err)
{
    sh_hub_request r = {.url = sh_hub_listing_url(hub), .data = listing_add, .ctx = body};
    sh_hub_start(hub, &r);
    while (sh_hub_wait(hub, WAIT_MS) == NULL && !cancelled(o)) {
    }
    sh_status status = cancelled(o) ? sh_err_set(&r.err, SH_ERR_CANCELLED, "stopped") : r.status;
    *wait_ms = r.wait_ms;
    *err = r.err;
    sh_hub_request_reset(hub, &r);
    return status;
}

static sh_status listing_fetch(sh_hub *hub, const sh_pull_opts *o, sh_listing *out, sh_err *err)
{
    sh_buf body = {0};
    int64_t wait_ms = -1;
    char *where = sh_hub_listing_url(hub);
    sh_status status = SH_AGAIN;
    for (int i = 0; i < LISTING_TRIES && status == SH_AGAIN; i++) {
        if (i > 0 && wait_ms > 0)
            SH_LOGI("%s: waiting %lld s", err->text, (long long)wait_ms / 1000);
        if (i > 0) pause_ms(o, wait_ms >= 0 ? wait_ms : PAUSE_FIRST_MS << (i - 1));
        sh_buf_clear(&body);
        status = listing_get(hub, o, &body, &wait_ms, err);
    }
    if (status == SH_AGAIN) status = err->status;
    if (status == SH_OK) status = sh_listing_parse(sh_buf_str(&body), where, out, err);
    sh_buf_reset(&body);
    free(where);
    return status;
}

/* Checked before the first byte: finding out at 90 % helps nobody. */
static sh_status disk_check(const sh_pull_opts *o, const char *repo, const sh_listing *listing,
                            sh_err *err)
{
    struct statvfs fs;
    int64_t need = 0;
    for (size_t i = 0; i < listing->count; i++) {
        const sh_hub_file *file = &listing->files[i];
        if (!sh_blob_is_there(repo, file->digest, file->size))
            need += file->size - sh_blob_begun(repo, file->digest, file->size);
    }
    if (need == 0 || statvfs(o->cache, &fs) != 0) return SH_OK;
    double left = (double)fs.f_bavail * (double)fs.f_frsize;
    if ((double)need + (double)DISK_RESERVE <= left) return SH_OK;
    return sh_err_set(err, SH_ERR_LIMIT,
                      "%.2f GB are missing, but %s has only %.2f GB free: make room, or set "
                      "--hf-hub-cache to a folder on another disk",
                      (double)need / 1e9, o->cache, left / 1e9);
}

/* The listing has config.json last, which makes the snapshot visible. */
static sh_status snapshot_make(const char *repo, const sh_repo_name *name,
                               const sh_listing *listing, char **dir, sh_err *err)
{
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < listing->count; i++)
        status = sh_cache_link(repo, listing->commit, listing->files[i].path,
                               listing->files[i].digest, err);
    if (status != SH_OK) return status;
    char *snapshot = sh_asprintf("%s/snapshots/%s", repo, listing->commit);
    if (!sh_cache_snapshot_is_complete(snapshot))
        status = sh_err_set(err, SH_ERR_UNSUPPORTED,
                            "%s: model.safetensors.index.json names files that the repository does "
                            "not have",
                            name->id);
    if (status == SH_OK) status = sh_cache_set_ref(repo, name->revision, listing->commit, err);
    if (status == SH_OK) *dir = sh_strdup(snapshot);
    free(snapshot);
    return status;
}

sh_status sh_pull(const sh_repo_name *name, const sh_pull_opts *o, char **dir, sh_err *err)
{
    sh_hub *hub = NULL;
    sh_listing listing = {0};
    char *repo = sh_cache_repo(o->cache, name->id);
    sh_hub_opts hub_opts = {
        .endpoint = o->endpoint, .token = o->token, .name = name, .timeout_ms = o->timeout_ms};
    sh_status status = sh_hub_open(&hub_opts, &hub, err);
    if (status == SH_OK) status = listing_fetch(hub, o, &listing, err);
    if (status == SH_OK) status = sh_cache_make_folder(o->cache, err);
    if (status == SH_OK) status = disk_check(o, repo, &listing, err);
    sh_fetch_opts fetch = {.hub = hub,
                           .cache = o->cache,
                           .repo = repo,
                           .name = name,
                           .listing = &listing,
                           .timeout_ms = o->timeout_ms,
                           .cancel = o->cancel,
                           .progress = o->progress,
                           .ctx = o->ctx};
    if (status == SH_OK) status = sh_fetch(&fetch, err);
    if (status == SH_OK) status = snapshot_make(repo, name, &listing, dir, err);
    sh_hub_close(hub);
    sh_listing_reset(&listing);
    free(repo);
    return status;
}
