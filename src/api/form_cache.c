/* The entries are few, so they are searched one by one. */
#include "api/form_cache.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct {
    sh_key128 key;
    uint64_t used; /* 0: free */
    sh_buf grammar;
} entry;

struct sh_form_cache {
    pthread_mutex_t lock;
    sh_key128 secret;
    entry entries[SH_FORM_CACHE_ENTRIES];
    uint64_t now; /* counts uses */
    size_t bytes;
};

sh_status sh_form_cache_create(sh_form_cache **out, sh_err *err)
{
    sh_key128 secret;
    sh_status status = sh_random_bytes(&secret, sizeof(secret), err);
    if (status != SH_OK) return status;
    sh_form_cache *cache = sh_alloc(sizeof(*cache));
    cache->secret = secret;
    pthread_mutex_init(&cache->lock, NULL);
    *out = cache;
    return SH_OK;
}

void sh_form_cache_free(sh_form_cache *cache)
{
    if (cache == NULL) return;
    for (int i = 0; i < SH_FORM_CACHE_ENTRIES; i++) sh_buf_reset(&cache->entries[i].grammar);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

sh_key128 sh_form_cache_key(const sh_form_cache *cache, sh_str source)
{
    return sh_hash128(cache->secret, source.ptr, source.len);
}

static entry *find(sh_form_cache *cache, sh_key128 key)
{
    for (int i = 0; i < SH_FORM_CACHE_ENTRIES; i++) {
        entry *e = &cache->entries[i];
        if (e->used != 0 && sh_key128_eq(e->key, key)) return e;
    }
    return NULL;
}

/* The least recently used entry; free ones come first. */
static entry *oldest(sh_form_cache *cache)
{
    entry *found = &cache->entries[0];
    for (int i = 1; i < SH_FORM_CACHE_ENTRIES; i++)
        if (cache->entries[i].used < found->used) found = &cache->entries[i];
    return found;
}

/* The least recently used entry that holds a grammar. */
static entry *oldest_full(sh_form_cache *cache)
{
    entry *found = NULL;
    for (int i = 0; i < SH_FORM_CACHE_ENTRIES; i++) {
        entry *e = &cache->entries[i];
        if (e->used != 0 && (found == NULL || e->used < found->used)) found = e;
    }
    return found;
}

static void drop(sh_form_cache *cache, entry *e)
{
    cache->bytes -= e->grammar.len;
    sh_buf_reset(&e->grammar);
    e->used = 0;
}

bool sh_form_cache_get(sh_form_cache *cache, sh_key128 key, sh_buf *out)
{
    pthread_mutex_lock(&cache->lock);
    entry *e = find(cache, key);
    if (e != NULL) {
        e->used = ++cache->now;
        sh_buf_add_str(out, sh_buf_str(&e->grammar));
    }
    pthread_mutex_unlock(&cache->lock);
    return e != NULL;
}

void sh_form_cache_put(sh_form_cache *cache, sh_key128 key, sh_str grammar)
{
    if (grammar.len > SH_FORM_CACHE_BYTES) return;
    pthread_mutex_lock(&cache->lock);
    if (find(cache, key) == NULL) {
        while (cache->bytes + grammar.len > SH_FORM_CACHE_BYTES) drop(cache, oldest_full(cache));
        entry *e = oldest(cache);
        drop(cache, e);
        e->key = key;
        e->used = ++cache->now;
        sh_buf_add_str(&e->grammar, grammar);
        cache->bytes += grammar.len;
    }
    pthread_mutex_unlock(&cache->lock);
}
