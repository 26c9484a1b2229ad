/* shard_store.h - windows of a model on this disk, in a shard folder.
 *
 * Bytes are given out only if they still have the digest that they came with. What cannot be read
 * or written is not an error: it comes from rank 0 then, and a warning says why.
 *
 * Threads: one owner; reading and adding is for any number of threads. */
#ifndef SH_SHARE_SHARD_STORE_H
#define SH_SHARE_SHARD_STORE_H

#include "share/overlap.h"
#include "share/shard_journal.h"

typedef struct sh_shard_store sh_shard_store;

/* Whether the data file may grow to `size` bytes; called from one thread at a time. */
typedef struct {
    void *ctx;
    bool (*grant)(void *ctx, uint64_t size);
} sh_shard_room;

/* Opens what is in the folder `dir`, which the caller has locked. `stamp` is the digest of the
 * outline that rank 0 has now. */
SH_MUST_CHECK sh_status sh_shard_store_open(const char *dir, const uint8_t stamp[SH_DIGEST_LEN],
                                            const sh_shard_room *room, sh_shard_store **out,
                                            sh_err *err);
void sh_shard_store_close(sh_shard_store *store);

typedef enum {
    SH_STORED_NOT, /* it is not here */
    SH_STORED_OLD, /* it is, but from files that were written since: ask whether it is the same */
    SH_STORED_NOW,
} sh_stored;

/* Reads a window; digest is set unless it is not here. */
sh_stored sh_shard_store_read(sh_shard_store *store, uint32_t file, const sh_window *window,
                              void *data, uint8_t digest[SH_DIGEST_LEN]);

/* Reads a part of a window that is here within another one, as after another split: the largest
 * such rectangle that lies within `within`. `data` is for the whole window. False: there is none;
 * only what was in the store when it was opened is looked at. */
bool sh_shard_store_read_part(sh_shard_store *store, uint32_t file, const sh_window *window,
                              const sh_window_rect *within, void *data, sh_window_rect *out);

/* Keeps a window that came from rank 0, if there is space. */
void sh_shard_store_add(sh_shard_store *store, uint32_t file, const sh_window *window,
                        const void *data, const uint8_t digest[SH_DIGEST_LEN]);

/* Notes that a window that was read as OLD is what rank 0 has now. */
void sh_shard_store_confirm(sh_shard_store *store, uint32_t file, const sh_window *window);

/* Bytes that were read from here so far. */
uint64_t sh_shard_store_given(const sh_shard_store *store);

#endif
