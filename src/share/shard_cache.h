/* shard_cache.h - all shard folders of a machine's user, and the space that they may take together.
 *
 * The folders that were not used for the longest time go first; those that a process is using stay.
 * Whatever the limit is, a part of the disk stays free.
 *
 * Threads: one owner; sh_shard_cache_grant from one thread at a time. */
#ifndef SH_SHARE_SHARD_CACHE_H
#define SH_SHARE_SHARD_CACHE_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char *root;
    const char *own;  /* path of the folder in it that is in use here; not counted or deleted */
    uint64_t limit;   /* bytes */
    uint64_t granted; /* to the data of that folder so far */
} sh_shard_cache;

/* Where the cache is: a folder of the user's cache folder. Owned by the caller. */
SH_MUST_CHECK sh_status sh_shard_cache_root(char **out, sh_err *err);

/* Deletes others until they are within the limit, which may be lower than it was. */
void sh_shard_cache_trim(const sh_shard_cache *cache);

/* Whether the data of the own folder may grow to `size` bytes; deletes others to make room. `ctx`
 * is an sh_shard_cache. */
bool sh_shard_cache_grant(void *ctx, uint64_t size);

/* SH_AGAIN: another process uses the folder. Otherwise this one has it until it closes *lock; a
 * folder that does not exist is created. */
SH_MUST_CHECK sh_status sh_shard_cache_lock(const char *path, int *lock, sh_err *err);

/* Deletes a folder whose lock is held. */
SH_MUST_CHECK sh_status sh_shard_cache_delete(const char *path, sh_err *err);

#endif
