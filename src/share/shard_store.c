/* One data file, to which windows are appended as they come, and a journal that says where each is.
 *
 * That is denser than files like those of the model with holes: a slice of columns is thousands of
 * short rows there, and one read here.
 *
 * A window is on the disk once its line is in the journal. Nothing is synced: after a power loss
 * the journal may name bytes that never got there, which their digest tells.
 *
 * A window that is not here as such may be a part of others that are. They are found in a list,
 * sorted by file and offset, of what was here when the store was opened.
 *
 * If the space was not enough, and some windows were of no use to this process, because the model
 * was split differently when they came, the store starts over with the next process. */
#include "share/shard_store.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOURNAL_MAX = 1 << 30, TABLE_FIRST = 1024 };

typedef struct {
    sh_shard_record record;
    bool used; /* by this process */
} entry;

struct sh_shard_store {
    char *data_path, *journal_path;
    int data, journal; /* descriptors */
    uint64_t stamp;
    sh_shard_room room;
    sh_shard_record *sorted; /* does not change while the store is open */
    size_t sorted_count;
    uint64_t span_max;    /* bytes from the first to the last of a window in it */
    pthread_mutex_t lock; /* guards what follows, up to `given` */
    entry *table;         /* open addressing; free where rows is 0 */
    size_t cap, count;
    uint64_t end;       /* of the data file */
    uint64_t journaled; /* bytes of the journal */
    bool full;          /* no more is kept */
    bool damaged;       /* a warning was given */
    atomic_uint_least64_t given;
};

/* The place of a window in the table, or where it would be. */
static entry *find(const sh_shard_store *store, uint32_t file, const sh_window *w)
{
    uint64_t key[5] = {file, w->offset, w->stride, w->len, w->rows};
    size_t at = (size_t)sh_hash64(key, sizeof(key)) & (store->cap - 1);
    for (;; at = (at + 1) & (store->cap - 1)) {
        const sh_shard_record *r = &store->table[at].record;
        if (r->window.rows == 0 || (r->file == file && memcmp(&r->window, w, sizeof(*w)) == 0))
            return &store->table[at];
    }
}

static void grow(sh_shard_store *store)
{
    entry *old = store->table;
    size_t cap = store->cap;
    store->cap = cap == 0 ? TABLE_FIRST : 2 * cap;
    store->table = sh_alloc_array(store->cap, sizeof(*store->table));
    for (size_t i = 0; i < cap; i++)
        if (old[i].record.window.rows > 0)
            *find(store, old[i].record.file, &old[i].record.window) = old[i];
    free(old);
}

static void put(sh_shard_store *store, const sh_shard_record *record, bool used)
{
    if (2 * store->count >= store->cap) grow(store);
    entry *e = find(store, record->file, &record->window);
    if (e->record.window.rows == 0) store->count++;
    *e = (entry){*record, used};
}

/* A last line that is not whole is cut off, or the next one would be added to it. */
static sh_status journal_load(sh_shard_store *store, sh_err *err)
{
    sh_buf text = {0};
    sh_shard_record record;
    int bad = 0;
    sh_status status = sh_file_read(store->journal_path, JOURNAL_MAX, &text, err);
    sh_str rest = sh_buf_str(&text);
    for (sh_status got = SH_OK; status == SH_OK && got != SH_AGAIN;) {
        got = sh_shard_record_read(&rest, store->end, &record);
        if (got == SH_OK) put(store, &record, false);
        bad += got == SH_ERR_INPUT;
    }
    if (bad > 0) SH_LOGW("%s: %d damaged lines are ignored", store->journal_path, bad);
    store->journaled = text.len - rest.len;
    if (status == SH_OK && rest.len > 0 && ftruncate(store->journal, (off_t)store->journaled) != 0)
        status = sh_err_sys(err, "%s", store->journal_path);
    sh_buf_reset(&text);
    return status;
}

static int by_place(const void *a, const void *b)
{
    const sh_shard_record *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->window.offset > y->window.offset) - (x->window.offset < y->window.offset);
}

static uint64_t span_of(const sh_window *w)
{
    return (w->rows - 1) * w->stride + w->len;
}

/* Windows of files that were written since are left out: nobody would say whether a part of one is
 * still the same. */
static void sort(sh_shard_store *store)
{
    store->sorted = sh_alloc_array(store->count, sizeof(*store->sorted));
    for (size_t i = 0; i < store->cap; i++) {
        const sh_shard_record *r = &store->table[i].record;
        if (r->window.rows == 0 || r->stamp != store->stamp) continue;
        store->sorted[store->sorted_count++] = *r;
        if (span_of(&r->window) > store->span_max) store->span_max = span_of(&r->window);
    }
    qsort(store->sorted, store->sorted_count, sizeof(*store->sorted), by_place);
}

static sh_status files_open(sh_shard_store *store, sh_err *err)
{
    struct stat st;
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    store->data = open(store->data_path, flags, 0600);
    if (store->data < 0 || fstat(store->data, &st) != 0)
        return sh_err_sys(err, "%s", store->data_path);
    store->journal = open(store->journal_path, flags | O_APPEND, 0600);
    if (store->journal < 0) return sh_err_sys(err, "%s", store->journal_path);
    store->end = (uint64_t)st.st_size;
    return SH_OK;
}

/* Empties both files. The journal first: it must not name bytes that are gone. */
static sh_status start_over(sh_shard_store *store, sh_err *err)
{
    if (ftruncate(store->journal, 0) != 0) return sh_err_sys(err, "%s", store->journal_path);
    if (ftruncate(store->data, 0) != 0) return sh_err_sys(err, "%s", store->data_path);
    return SH_OK;
}

sh_status sh_shard_store_open(const char *dir, const uint8_t stamp[SH_DIGEST_LEN],
                              const sh_shard_room *room, sh_shard_store **out, sh_err *err)
{
    sh_shard_store *store = sh_alloc(sizeof(*store));
    store->data_path = sh_path_join(dir, "data");
    store->journal_path = sh_path_join(dir, "journal");
    store->data = store->journal = -1;
    store->room = *room;
    for (size_t i = 0; i < sizeof(store->stamp); i++) store->stamp = store->stamp << 8 | stamp[i];
    pthread_mutex_init(&store->lock, NULL);
    grow(store);
    sh_status status = files_open(store, err);
    if (status == SH_OK && store->end > 0 && !room->grant(room->ctx, store->end)) {
        SH_LOGW("%s has more than the shard cache may have, and is emptied", store->data_path);
        status = start_over(store, err);
        store->end = 0;
    }
    if (status == SH_OK) status = journal_load(store, err);
    if (status == SH_OK) sort(store);
    if (status != SH_OK) {
        store->full = false;
        sh_shard_store_close(store);
        return status;
    }
    *out = store;
    return SH_OK;
}

static bool has_unused(const sh_shard_store *store)
{
    for (size_t i = 0; i < store->cap; i++)
        if (store->table[i].record.window.rows > 0 && !store->table[i].used) return true;
    return false;
}

void sh_shard_store_close(sh_shard_store *store)
{
    sh_err err;
    if (store == NULL) return;
    if (store->full && has_unused(store) && start_over(store, &err) != SH_OK)
        SH_LOGW("shard cache: %s", err.text);
    if (store->data >= 0) close(store->data);
    if (store->journal >= 0) close(store->journal);
    pthread_mutex_destroy(&store->lock);
    free(store->table);
    free(store->sorted);
    free(store->data_path);
    free(store->journal_path);
    free(store);
}

static void warn_once(sh_shard_store *store, const char *text)
{
    pthread_mutex_lock(&store->lock);
    bool first = !store->damaged;
    store->damaged = true;
    pthread_mutex_unlock(&store->lock);
    if (first) SH_LOGW("shard cache: %s; what is missing comes from rank 0 again", text);
}

/* A copy of what is known of a window. */
static bool lookup(sh_shard_store *store, uint32_t file, const sh_window *w, sh_shard_record *out)
{
    pthread_mutex_lock(&store->lock);
    entry *e = find(store, file, w);
    bool found = e->record.window.rows > 0;
    if (found) {
        e->used = true;
        *out = e->record;
    }
    pthread_mutex_unlock(&store->lock);
    return found;
}

/* Reads the bytes of a record; false: they are not there, or not what they were. */
static bool record_get(sh_shard_store *store, const sh_shard_record *record, void *data)
{
    uint8_t digest[SH_DIGEST_LEN];
    size_t len = (size_t)sh_window_bytes(&record->window);
    sh_err err;
    if (sh_fd_read_at(store->data, store->data_path, record->at, data, len, &err) != SH_OK) {
        warn_once(store, err.text);
        return false;
    }
    sh_digest(data, len, digest);
    if (memcmp(digest, record->digest, SH_DIGEST_LEN) == 0) return true;
    warn_once(store, "bytes on this disk have changed");
    return false;
}

sh_stored sh_shard_store_read(sh_shard_store *store, uint32_t file, const sh_window *window,
                              void *data, uint8_t digest[SH_DIGEST_LEN])
{
    sh_shard_record record;
    if (!lookup(store, file, window, &record) || !record_get(store, &record, data))
        return SH_STORED_NOT;
    memcpy(digest, record.digest, SH_DIGEST_LEN);
    if (record.stamp != store->stamp) return SH_STORED_OLD;
    atomic_fetch_add_explicit(&store->given, sh_window_bytes(window), memory_order_relaxed);
    return SH_STORED_NOW;
}

/* The first of the sorted records that could reach this byte of the file. */
static size_t sorted_first(const sh_shard_store *store, uint32_t file, uint64_t at)
{
    sh_shard_record key = {.file = file};
    size_t low = 0, high = store->sorted_count;
    key.window.offset = at > store->span_max ? at - store->span_max : 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_place(&store->sorted[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The record that has most of a window; NULL: none has any of it. */
static const sh_shard_record *most_of(const sh_shard_store *store, uint32_t file,
                                      const sh_window *want, sh_window_rect *out)
{
    const sh_shard_record *best = NULL;
    uint64_t end = want->offset + span_of(want);
    for (size_t i = sorted_first(store, file, want->offset); i < store->sorted_count; i++) {
        const sh_shard_record *r = &store->sorted[i];
        sh_window_rect rect;
        if (r->file != file || r->window.offset >= end) break;
        if (!sh_window_overlap(want, &r->window, &rect)) continue;
        if (best != NULL && rect.rows * rect.cols <= out->rows * out->cols) continue;
        best = r;
        *out = rect;
    }
    return best;
}

bool sh_shard_store_read_part(sh_shard_store *store, uint32_t file, const sh_window *window,
                              const sh_window_rect *within, void *data, sh_window_rect *out)
{
    sh_window want = sh_window_rect_cut(window, within);
    sh_window_rect rect;
    sh_shard_record used;
    const sh_shard_record *record = most_of(store, file, &want, &rect);
    if (record == NULL || !lookup(store, file, &record->window, &used)) return false;
    void *bytes = sh_alloc((size_t)sh_window_bytes(&record->window));
    bool good = record_get(store, record, bytes);
    *out = (sh_window_rect){within->row + rect.row, rect.rows, within->col + rect.col, rect.cols};
    if (good)
        sh_window_rect_copy(window, out, &record->window, bytes,
                            (char *)data + out->row * window->len + out->col, (size_t)window->len);
    free(bytes);
    if (good) atomic_fetch_add_explicit(&store->given, rect.rows * rect.cols, memory_order_relaxed);
    return good;
}

/* Adds the line; the lock is held, so that lines do not mix. */
static sh_status journal_add(sh_shard_store *store, const sh_shard_record *record, sh_err *err)
{
    sh_buf line = {0};
    sh_shard_record_write(record, &line);
    ssize_t put_len = write(store->journal, line.ptr, line.len);
    sh_status status = SH_OK;
    if (put_len != (ssize_t)line.len) {
        status = sh_err_sys(err, "%s", store->journal_path);
        if (put_len > 0 && ftruncate(store->journal, (off_t)store->journaled) != 0)
            SH_LOGW("%s has half a line", store->journal_path); /* the next process ignores it */
    } else {
        store->journaled += line.len;
        put(store, record, true);
    }
    sh_buf_reset(&line);
    return status;
}

static void stop_keeping(sh_shard_store *store, const char *why)
{
    if (!store->full) SH_LOGW("shard cache: %s; what comes from now on is not kept", why);
    store->full = true;
}

/* Space for `len` bytes in the data file; false: there is none. */
static bool reserve(sh_shard_store *store, size_t len, uint64_t *at)
{
    pthread_mutex_lock(&store->lock);
    if (!store->full && !store->room.grant(store->room.ctx, store->end + len))
        stop_keeping(store, "it is full");
    bool granted = !store->full;
    *at = store->end;
    if (granted) store->end += len;
    pthread_mutex_unlock(&store->lock);
    return granted;
}

void sh_shard_store_add(sh_shard_store *store, uint32_t file, const sh_window *window,
                        const void *data, const uint8_t digest[SH_DIGEST_LEN])
{
    size_t len = (size_t)sh_window_bytes(window);
    sh_shard_record record = {.file = file, .window = *window, .stamp = store->stamp};
    sh_err err;
    if (!reserve(store, len, &record.at)) return;
    memcpy(record.digest, digest, SH_DIGEST_LEN);
    sh_status status = sh_fd_write_at(store->data, store->data_path, record.at, data, len, &err);
    pthread_mutex_lock(&store->lock);
    if (status == SH_OK) status = journal_add(store, &record, &err);
    if (status != SH_OK) stop_keeping(store, err.text);
    pthread_mutex_unlock(&store->lock);
}

void sh_shard_store_confirm(sh_shard_store *store, uint32_t file, const sh_window *window)
{
    sh_err err;
    pthread_mutex_lock(&store->lock);
    sh_shard_record record = find(store, file, window)->record;
    record.stamp = store->stamp;
    if (journal_add(store, &record, &err) != SH_OK) stop_keeping(store, err.text);
    pthread_mutex_unlock(&store->lock);
    atomic_fetch_add_explicit(&store->given, sh_window_bytes(window), memory_order_relaxed);
}

uint64_t sh_shard_store_given(const sh_shard_store *store)
{
    return atomic_load_explicit(&store->given, memory_order_relaxed);
}
