/* Each owner has a list of its responses, newest first; a hash table finds them by owner and id.
 *
 * A conversation id needs no table of its own: the first entry in the owner's list that has it is
 * the newest of that conversation. */
#include "api/response_store.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, CHAIN_MAX = 10000 };

typedef struct entry entry;
typedef struct owner owner;

struct entry {
    owner *of;
    uint64_t serial; /* grows from entry to entry, over all owners */
    char *id, *previous, *conversation;
    char *texts[3]; /* by sh_stored_part */
    size_t lens[3];
    size_t bytes;
    entry *newer, *older;
    entry *next; /* in its bucket */
};

struct owner {
    uint64_t id;
    entry *newest, *oldest; /* never NULL while the lock is free */
    size_t count, bytes;
    owner *next;
};

struct sh_response_store {
    sh_response_limits limits;
    pthread_mutex_t lock;
    owner *owners;
    entry *buckets[BUCKETS];
    size_t bytes;
    uint64_t serial;
};

sh_response_store *sh_response_store_create(sh_response_limits limits)
{
    sh_response_store *store = sh_alloc(sizeof(*store));
    store->limits = limits;
    pthread_mutex_init(&store->lock, NULL);
    return store;
}

static entry **bucket_of(sh_response_store *store, uint64_t owner_id, const char *id)
{
    return &store->buckets[(sh_hash64(id, strlen(id)) ^ owner_id) % BUCKETS];
}

static entry *find(sh_response_store *store, uint64_t owner_id, const char *id)
{
    entry *e = *bucket_of(store, owner_id, id);
    while (e != NULL && (e->of->id != owner_id || strcmp(e->id, id) != 0)) e = e->next;
    return e;
}

static owner *owner_find(const sh_response_store *store, uint64_t id)
{
    owner *o = store->owners;
    while (o != NULL && o->id != id) o = o->next;
    return o;
}

static void entry_free(entry *e)
{
    free(e->id);
    free(e->previous);
    free(e->conversation);
    for (size_t i = 0; i < SH_COUNT_OF(e->texts); i++) free(e->texts[i]);
    free(e);
}

static void owner_free(sh_response_store *store, owner *o)
{
    owner **at = &store->owners;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
    free(o);
}

/* The last one frees the owner as well. */
static void entry_drop(sh_response_store *store, entry *e)
{
    owner *o = e->of;
    entry **at = bucket_of(store, o->id, e->id);
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    if (e->newer != NULL)
        e->newer->older = e->older;
    else
        o->newest = e->older;
    if (e->older != NULL)
        e->older->newer = e->newer;
    else
        o->oldest = e->newer;
    o->count--;
    o->bytes -= e->bytes;
    store->bytes -= e->bytes;
    entry_free(e);
    if (o->count == 0) owner_free(store, o);
}

void sh_response_store_free(sh_response_store *store)
{
    if (store == NULL) return;
    while (store->owners != NULL) entry_drop(store, store->owners->oldest);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

static entry *entry_make(const sh_stored_response *from)
{
    const sh_str parts[] = {[SH_STORED_RESPONSE] = from->response,
                            [SH_STORED_INPUT] = from->input,
                            [SH_STORED_OUTPUT] = from->output};
    entry *e = sh_alloc(sizeof(*e));
    e->id = sh_strdup(from->id);
    if (from->previous != NULL) e->previous = sh_strdup(from->previous);
    if (from->conversation != NULL) e->conversation = sh_strdup(from->conversation);
    e->bytes = sizeof(*e);
    for (size_t i = 0; i < SH_COUNT_OF(parts); i++) {
        e->texts[i] = sh_str_dup(parts[i]);
        e->lens[i] = parts[i].len;
        e->bytes += parts[i].len;
    }
    return e;
}

static void entry_add(sh_response_store *store, uint64_t owner_id, entry *e)
{
    owner *o = owner_find(store, owner_id);
    if (o == NULL) {
        o = sh_alloc(sizeof(*o));
        *o = (owner){.id = owner_id, .next = store->owners};
        store->owners = o;
    }
    entry **bucket = bucket_of(store, owner_id, e->id);
    e->of = o;
    e->serial = store->serial++;
    e->next = *bucket;
    *bucket = e;
    e->older = o->newest;
    if (e->older != NULL)
        e->older->newer = e;
    else
        o->oldest = e;
    o->newest = e;
    o->count++;
    o->bytes += e->bytes;
    store->bytes += e->bytes;
}

static entry *oldest_of_all(const sh_response_store *store)
{
    entry *oldest = store->owners->oldest;
    for (const owner *o = store->owners; o != NULL; o = o->next)
        if (o->oldest->serial < oldest->serial) oldest = o->oldest;
    return oldest;
}

/* One response may exceed the owner's bound by itself; then none is left. */
static void trim(sh_response_store *store, uint64_t owner_id)
{
    const owner *o;
    while ((o = owner_find(store, owner_id)) != NULL &&
           (o->count > store->limits.count || o->bytes > store->limits.bytes))
        entry_drop(store, o->oldest);
    while (store->bytes > store->limits.bytes_max) entry_drop(store, oldest_of_all(store));
}

void sh_response_store_put(sh_response_store *store, uint64_t owner_id,
                           const sh_stored_response *response)
{
    entry *e = entry_make(response);
    pthread_mutex_lock(&store->lock);
    entry *same = find(store, owner_id, e->id);
    if (same != NULL) entry_drop(store, same);
    entry_add(store, owner_id, e);
    trim(store, owner_id);
    pthread_mutex_unlock(&store->lock);
}

bool sh_response_store_get(sh_response_store *store, uint64_t owner_id, const char *id,
                           sh_stored_part part, sh_buf *out)
{
    pthread_mutex_lock(&store->lock);
    const entry *e = find(store, owner_id, id);
    if (e != NULL) sh_buf_add(out, e->texts[part], e->lens[part]);
    pthread_mutex_unlock(&store->lock);
    return e != NULL;
}

bool sh_response_store_delete(sh_response_store *store, uint64_t owner_id, const char *id)
{
    pthread_mutex_lock(&store->lock);
    entry *e = find(store, owner_id, id);
    if (e != NULL) entry_drop(store, e);
    pthread_mutex_unlock(&store->lock);
    return e != NULL;
}

/* The items of a list without its brackets. */
static void items_add(const entry *e, sh_stored_part part, sh_buf *out)
{
    if (e->lens[part] <= 2) return;
    if (out->len > 1) sh_buf_add_char(out, ',');
    sh_buf_add(out, e->texts[part] + 1, e->lens[part] - 2);
}

/* A chain cannot be a circle, since a response continues one that was there before it; but a
 * response that was replaced may continue itself. */
static bool history_add(sh_response_store *store, uint64_t owner_id, const char *id, sh_buf *out)
{
    const entry **chain = NULL;
    size_t count = 0;
    const char *at = id;
    while (at != NULL && count < CHAIN_MAX) {
        const entry *e = find(store, owner_id, at);
        if (e == NULL) break;
        if (count % 64 == 0) chain = sh_realloc_array(chain, count + 64, sizeof(entry *));
        chain[count++] = e;
        at = e->previous;
    }
    if (at != NULL) sh_buf_add_text(out, at);
    if (at == NULL) sh_buf_add_char(out, '[');
    while (at == NULL && count > 0) {
        count--;
        items_add(chain[count], SH_STORED_INPUT, out);
        items_add(chain[count], SH_STORED_OUTPUT, out);
    }
    if (at == NULL) sh_buf_add_char(out, ']');
    free(chain);
    return at == NULL;
}

bool sh_response_store_history(sh_response_store *store, uint64_t owner_id, const char *id,
                               sh_buf *out)
{
    pthread_mutex_lock(&store->lock);
    bool found = history_add(store, owner_id, id, out);
    pthread_mutex_unlock(&store->lock);
    return found;
}

bool sh_response_store_latest(sh_response_store *store, uint64_t owner_id, const char *conversation,
                              sh_buf *out)
{
    pthread_mutex_lock(&store->lock);
    const owner *o = owner_find(store, owner_id);
    const entry *e = o == NULL ? NULL : o->newest;
    while (e != NULL && (e->conversation == NULL || strcmp(e->conversation, conversation) != 0))
        e = e->older;
    if (e != NULL) sh_buf_add_text(out, e->id);
    pthread_mutex_unlock(&store->lock);
    return e != NULL;
}
