/* The download proper.
 *
 * Every file is cut into chunks, which a few connections fetch in order. A file is written strictly
 * from its beginning (blob.h), so a chunk that arrives before those in front of it waits in memory:
 * there are more slots than connections, so that a slow chunk does not stop the others at once. The
 * chunk at the front is written as it arrives.
 *
 *   blob.len                            item.given
 *   |---- slot A ----|---- slot B ----|            the next chunk starts at `given`
 *   ^ front: written as it arrives    B's bytes wait until A is complete
 *
 * A file may be at another host, whose address holds a signature and expires. So each file is
 * located once, and again when that host refuses.
 *
 * Failures: a request that fails is repeated from the byte where it stopped (sh_hub_retry), unless
 * nothing has arrived on any connection for a long time. A file whose digest is wrong is fetched
 * once more from the beginning: its first part may have been written by another program. */
#include "store/fetch.h"

#include "base/alloc.h"
#include "store/blob.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SLOTS = 16,
    CONNECTIONS = 8,
    CHUNK = 8 << 20,
    WAIT_MS = 100,
    LOCK_RETRY_MS = 200,
    LOCATE_MAX = 5, /* times in a row that a file's address may be refused */
};

typedef struct fetch fetch;
typedef struct item item;

typedef enum { SLOT_FREE, SLOT_RUNNING, SLOT_PAUSED, SLOT_COMPLETE } slot_state;

/* A request, and what has arrived of its range but cannot be written yet. */
typedef struct {
    sh_hub_request request;
    fetch *fetch;
    item *item;
    slot_state state;
    int64_t at, end;   /* the next byte to arrive, and the end of the chunk */
    int64_t skip;      /* bytes to drop from the start of this reply */
    bool begun;        /* the reply's headers were checked */
    sh_buf bytes;      /* those before `at` */
    int failures;      /* since the last byte */
    sh_deadline until; /* of the pause */
} slot;

typedef enum { ITEM_TODO, ITEM_ELSEWHERE, ITEM_OPEN, ITEM_DONE } item_state;

/* A file. */
struct item {
    const sh_hub_file *file;
    item_state state;
    sh_blob blob;
    int lock;
    slot locator;      /* its request finds out where the file is */
    char *url;         /* where it is; NULL: not known yet */
    int located;       /* times since the last byte */
    bool whole;        /* the server knows no ranges: fetched in one piece */
    bool was_bad;      /* its digest was wrong once */
    int64_t given;     /* the end of the chunks that were given to slots */
    int64_t elsewhere; /* bytes that another process had at the last look */
    sh_deadline look;  /* when to try its lock again */
};

struct fetch {
    const sh_fetch_opts *opts;
    item *items;
    size_t count;
    int open; /* files in the state ITEM_OPEN */
    slot slots[SLOTS];
    sh_fetch_progress progress;
    sh_deadline patience; /* when to give up, unless something arrives */
    sh_err *err;
};

static void alive(fetch *f)
{
    f->patience = sh_deadline_in_ms(f->opts->timeout_ms * SH_HUB_PATIENCE);
}

/* ---- slots ---- */

static void slot_free(slot *s)
{
    sh_hub_request_reset(s->fetch->opts->hub, &s->request);
    sh_buf_reset(&s->bytes);
    s->state = SLOT_FREE;
    s->item = NULL;
}

/* The URL is taken anew: the file may have been located again in the meantime. */
static void slot_start(slot *s, const char *url)
{
    char *copy = sh_strdup(url);
    sh_hub_request_reset(s->fetch->opts->hub, &s->request);
    s->request.url = copy;
    s->request.first = s->at;
    s->request.end = s->end;
    s->request.ctx = s;
    s->skip = 0;
    s->begun = false;
    s->state = SLOT_RUNNING;
    sh_hub_start(s->fetch->opts->hub, &s->request);
}

/* Writes what has become contiguous, of whichever slots. */
static sh_status item_flush(fetch *f, item *it, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; status == SH_OK && i < SLOTS; i++) {
        slot *s = &f->slots[i];
        if (s->item != it || s->bytes.len == 0 || s->at - (int64_t)s->bytes.len != it->blob.len)
            continue;
        status = sh_blob_add(&it->blob, s->bytes.ptr, s->bytes.len, err);
        sh_buf_clear(&s->bytes);
        if (s->state == SLOT_COMPLETE) slot_free(s);
        i = -1; /* another slot may now be at the front */
    }
    return status;
}

static bool refuse(sh_hub_request *r, sh_status status, const char *why)
{
    sh_err_set(&r->err, SH_ERR_PEER, "%s", why);
    r->status = status;
    return false;
}

/* Whether the reply is the range that was asked for. A server that sends the whole file instead is
 * used with a single request for each file. */
static bool reply_check(slot *s)
{
    const sh_hub_reply *reply = &s->request.reply;
    item *it = s->item;
    s->begun = true;
    if (reply->code == 206) {
        if (reply->range_first == s->at && reply->range_total == it->file->size) return true;
        return refuse(&s->request, SH_AGAIN, "the server sent another range than was asked for");
    }
    if (s->end != it->file->size || (s->at > 0 && !it->whole)) {
        it->whole = true;
        return refuse(&s->request, SH_AGAIN, "the server sent the whole file instead of a range");
    }
    s->skip = s->at;
    return true;
}

static bool on_data(sh_hub_request *r, sh_str bytes)
{
    slot *s = r->ctx;
    fetch *f = s->fetch;
    if (!s->begun && !reply_check(s)) return false;
    size_t drop = s->skip < (int64_t)bytes.len ? (size_t)s->skip : bytes.len;
    s->skip -= (int64_t)drop;
    bytes = sh_str_sub(bytes, drop, bytes.len - drop);
    if ((int64_t)bytes.len > s->end - s->at)
        return refuse(r, SH_AGAIN, "the server sent more than was asked for");
    sh_buf_add(&s->bytes, bytes.ptr, bytes.len);
    s->at += (int64_t)bytes.len;
    s->failures = s->item->located = 0;
    f->progress.received += (int64_t)bytes.len;
    alive(f);
    r->status = item_flush(f, s->item, &r->err);
    return r->status == SH_OK;
}

/* ---- files ---- */

static void item_close(item *it)
{
    sh_blob_close(&it->blob);
    if (it->lock >= 0) close(it->lock);
    it->lock = -1;
    if (it->locator.fetch != NULL) slot_free(&it->locator);
    free(it->url);
    it->url = NULL;
}

static int64_t here(const item *it)
{
    switch (it->state) {
    case ITEM_DONE: return it->file->size;
    case ITEM_OPEN: return it->blob.len;
    default: return it->elsewhere;
    }
}

static void report(fetch *f)
{
    f->progress.done = 0;
    for (size_t i = 0; i < f->count; i++) f->progress.done += here(&f->items[i]);
    f->opts->progress(f->opts->ctx, &f->progress);
}

static bool on_hashed(void *ctx)
{
    fetch *f = ctx;
    alive(f);
    report(f);
    return *f->opts->cancel == 0;
}

/* Takes the lock of a file and opens it, unless it is here already or somebody else is at it. */
static sh_status item_begin(fetch *f, item *it)
{
    const sh_fetch_opts *o = f->opts;
    sh_status status = sh_cache_lock(o->cache, o->name->id, it->file->digest, &it->lock, f->err);
    if (status == SH_AGAIN) {
        int64_t begun = sh_blob_begun(o->repo, it->file->digest, it->file->size);
        if (begun != it->elsewhere) alive(f);
        it->state = ITEM_ELSEWHERE;
        it->elsewhere = begun;
        it->look = sh_deadline_in_ms(LOCK_RETRY_MS);
        return SH_OK;
    }
    if (status != SH_OK) return status;
    it->elsewhere = 0;
    if (sh_blob_is_there(o->repo, it->file->digest, it->file->size)) {
        it->state = ITEM_DONE;
        item_close(it);
        return SH_OK;
    }
    f->progress.checking = sh_blob_begun(o->repo, it->file->digest, it->file->size) > 0
                               ? it->file->path
                               : NULL;
    status = sh_blob_open(o->repo, it->file->digest, it->file->size, on_hashed, f, &it->blob,
                          f->err);
    f->progress.checking = NULL;
    if (status != SH_OK) return status;
    it->state = ITEM_OPEN;
    f->open++;
    it->given = it->blob.len;
    return SH_OK;
}

static void item_locate(fetch *f, item *it)
{
    slot *s = &it->locator;
    if (s->state != SLOT_FREE) return;
    s->fetch = f;
    s->item = it;
    s->request.locate = true;
    s->request.data = NULL;
    s->failures = 0;
    s->at = s->end = 0;
    char *url = sh_hub_file_url(f->opts->hub, f->opts->listing->commit, it->file->path);
    slot_start(s, url);
    free(url);
}

/* All chunks are to be given out again, from what has been written on. */
static void item_take_back(fetch *f, item *it)
{
    for (int i = 0; i < SLOTS; i++)
        if (f->slots[i].item == it) slot_free(&f->slots[i]);
    it->given = it->blob.len;
}

static sh_status item_finish(fetch *f, item *it)
{
    sh_status status = sh_blob_finish(&it->blob, f->err);
    if (status == SH_ERR_INPUT && !it->was_bad) {
        it->was_bad = true;
        item_take_back(f, it);
        return SH_OK;
    }
    if (status == SH_ERR_INPUT) return sh_err_prefix(f->err, "%s, fetched twice", it->file->path);
    if (status != SH_OK) return status;
    it->state = ITEM_DONE;
    f->open--;
    item_close(it);
    return SH_OK;
}

/* ---- giving out work ---- */

static slot *slot_find(fetch *f)
{
    slot *free_one = NULL;
    int running = 0;
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &f->slots[i];
        running += s->state == SLOT_RUNNING || s->state == SLOT_PAUSED;
        if (s->state == SLOT_FREE && free_one == NULL) free_one = s;
    }
    return running < CONNECTIONS ? free_one : NULL;
}

static void chunk_start(fetch *f, item *it, slot *s)
{
    int64_t left = it->file->size - it->given;
    s->fetch = f;
    s->item = it;
    s->request.data = on_data;
    s->failures = 0;
    s->at = it->given;
    s->end = it->given + (it->whole || left < CHUNK ? left : CHUNK);
    it->given = s->end;
    slot_start(s, it->url);
}

static sh_status item_advance(fetch *f, item *it)
{
    sh_status status = SH_OK;
    bool due = it->state == ITEM_TODO ||
               (it->state == ITEM_ELSEWHERE && sh_deadline_passed(it->look));
    if (due && f->open < CONNECTIONS) status = item_begin(f, it);
    if (status != SH_OK || it->state != ITEM_OPEN) return status;
    if (it->blob.len == it->file->size) return item_finish(f, it);
    if (it->url == NULL && it->given < it->file->size) item_locate(f, it);
    for (slot *s; it->url != NULL && it->given < it->file->size && (s = slot_find(f)) != NULL;)
        chunk_start(f, it, s);
    return SH_OK;
}

/* A slot whose pause is over goes on; one that needs the file's address waits for that. */
static void slot_advance(slot *s)
{
    if (s->state != SLOT_PAUSED || !sh_deadline_passed(s->until)) return;
    bool locator = s == &s->item->locator;
    if (!locator && s->item->url == NULL) {
        item_locate(s->fetch, s->item);
        return;
    }
    char *again = locator ? sh_hub_file_url(s->fetch->opts->hub, s->fetch->opts->listing->commit,
                                            s->item->file->path)
                          : sh_strdup(s->item->url);
    slot_start(s, again);
    free(again);
}

/* ---- results of requests ---- */

/* The commit and the digest must be those of the listing, or this is another file by now. */
static sh_status located(fetch *f, item *it, const sh_hub_request *r)
{
    const sh_hub_reply *reply = &r->reply;
    const char *commit = f->opts->listing->commit;
    size_t len = strlen(reply->etag);
    if (reply->commit[0] != '\0' && strcmp(reply->commit, commit) != 0)
        return sh_err_set(f->err, SH_ERR_INPUT, "%s: the hub answers with commit %s, not %s",
                          it->file->path, reply->commit, commit);
    if ((sh_is_hex(reply->etag, len) && len == strlen(it->file->digest)) &&
        strcmp(reply->etag, it->file->digest) != 0)
        return sh_err_set(f->err, SH_ERR_INPUT,
                          "%s: the hub answers with the digest %s, but lists %s", it->file->path,
                          reply->etag, it->file->digest);
    it->url = sh_strdup(r->url);
    slot_free(&it->locator);
    return SH_OK;
}

/* Repeats a request later, or gives up. */
static sh_status slot_retry(fetch *f, slot *s)
{
    const sh_hub_request *r = &s->request;
    if (!sh_hub_retry(r, &s->failures, &f->patience, &s->until))
        return sh_err_set(f->err, SH_ERR_PEER, "%s: given up after %d tries: %s",
                          s->item->file->path, s->failures, r->err.text);
    s->state = SLOT_PAUSED;
    return SH_OK;
}

/* The other host does not know the address any more. */
static sh_status slot_expired(fetch *f, slot *s)
{
    item *it = s->item;
    if (it->located > LOCATE_MAX)
        return sh_err_set(f->err, SH_ERR_AUTH, "%s: %s", it->file->path, s->request.err.text);
    if (it->url != NULL) it->located++;
    free(it->url);
    it->url = NULL;
    s->state = SLOT_PAUSED;
    s->until = sh_deadline_in_ms(0);
    return SH_OK;
}

static sh_status slot_ended(fetch *f, slot *s)
{
    sh_hub_request *r = &s->request;
    item *it = s->item;
    if (r->locate && r->status == SH_OK) return located(f, it, r);
    if (!r->locate && s->at == s->end && r->status != SH_ERR_SYSTEM) {
        s->state = SLOT_COMPLETE;
        if (s->bytes.len == 0) slot_free(s);
        return SH_OK;
    }
    if (it->whole && s->end != it->file->size && !r->locate) {
        item_take_back(f, it);
        return SH_OK;
    }
    if (r->status == SH_OK) refuse(r, SH_AGAIN, "the server ended its reply early");
    if (r->status == SH_AGAIN) return slot_retry(f, s);
    if (r->denied) return slot_expired(f, s);
    *f->err = r->err;
    return r->status == SH_ERR_SYSTEM ? r->status : sh_err_prefix(f->err, "%s", it->file->path);
}

/* ---- the whole ---- */

static const char *waiting_for(const fetch *f)
{
    bool paused = false, running = false, elsewhere = false, left = false;
    for (int i = 0; i < SLOTS; i++) {
        running = running || f->slots[i].state == SLOT_RUNNING;
        paused = paused || f->slots[i].state == SLOT_PAUSED;
    }
    for (size_t i = 0; i < f->count; i++) {
        const item *it = &f->items[i];
        running = running || it->locator.state == SLOT_RUNNING;
        paused = paused || it->locator.state == SLOT_PAUSED;
        elsewhere = elsewhere || it->state == ITEM_ELSEWHERE;
        left = left || it->state == ITEM_TODO;
    }
    if (running || left) return NULL;
    return paused      ? "the connection failed or the hub is busy; trying again"
           : elsewhere ? "another process is downloading the rest"
                       : NULL;
}

static sh_status step(fetch *f)
{
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < f->count; i++) {
        status = item_advance(f, &f->items[i]);
        if (f->items[i].locator.state == SLOT_PAUSED) slot_advance(&f->items[i].locator);
    }
    for (int i = 0; status == SH_OK && i < SLOTS; i++) slot_advance(&f->slots[i]);
    if (status != SH_OK) return status;
    sh_hub_request *r = sh_hub_wait(f->opts->hub, WAIT_MS);
    if (r != NULL) status = slot_ended(f, r->ctx);
    f->progress.waiting = waiting_for(f);
    if (status == SH_OK) report(f);
    return status;
}

static bool all_done(const fetch *f)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].state != ITEM_DONE) return false;
    return true;
}

/* Only waits for other processes end here; those for the network end in slot_retry, with the
 * reason.
 */
static sh_status elsewhere_check(fetch *f)
{
    if (!sh_deadline_passed(f->patience)) return SH_OK;
    for (size_t i = 0; i < f->count; i++)
        if (f->items[i].state == ITEM_ELSEWHERE)
            return sh_err_set(f->err, SH_ERR_TIMEOUT,
                              "another process is downloading %s to %s, but it makes no progress",
                              f->items[i].file->path, f->opts->repo);
    return SH_OK;
}

sh_status sh_fetch(const sh_fetch_opts *opts, sh_err *err)
{
    fetch *f = sh_alloc(sizeof(*f));
    sh_status status = SH_OK;
    f->opts = opts;
    f->err = err;
    f->count = opts->listing->count;
    f->items = sh_alloc_array(f->count, sizeof(*f->items));
    f->progress.total = opts->listing->bytes;
    for (size_t i = 0; i < f->count; i++) {
        const sh_hub_file *file = &opts->listing->files[i];
        bool there = sh_blob_is_there(opts->repo, file->digest, file->size);
        f->items[i] = (item){.file = file,
                             .lock = -1,
                             .blob = {.fd = -1},
                             .state = there ? ITEM_DONE : ITEM_TODO,
                             .look = 0};
    }
    for (int i = 0; i < SLOTS; i++) f->slots[i].fetch = f;
    alive(f);
    while (status == SH_OK && !all_done(f)) {
        status = *opts->cancel != 0 ? sh_err_set(err, SH_ERR_CANCELLED, "stopped") : step(f);
        if (status == SH_OK) status = elsewhere_check(f);
    }
    for (int i = 0; i < SLOTS; i++) slot_free(&f->slots[i]);
    for (size_t i = 0; i < f->count; i++) item_close(&f->items[i]);
    free(f->items);
    free(f);
    return status;
}
