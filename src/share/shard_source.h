/* shard_source.h - the model of rank 0, for a rank that has no copy of it.
 *
 * It looks like a model folder whose weights come from a source: those that are kept on this disk
 * from there, the others from rank 0, or from the hub as far as that has them.
 *
 * Threads: one owner; the window source may be used by many threads between connect and
 * disconnect. */
#ifndef SH_SHARE_SHARD_SOURCE_H
#define SH_SHARE_SHARD_SOURCE_H

#include "model/identity.h"
#include "model/window.h"
#include "share/hub_windows.h"

typedef struct sh_shard_source sh_shard_source;

/* `root` is the shard cache, which may take `limit` bytes; 0: nothing is kept. `hub` is borrowed;
 * NULL: rank 0 is asked for everything. */
sh_shard_source *sh_shard_source_create(const char *root, uint64_t limit, const sh_share_hub *hub);
void sh_shard_source_free(sh_shard_source *source);

/* Takes the model with this identity from a link to rank 0; `rank` is the number of this one.
 * *changed: it is another than before, or its files were written anew. */
SH_MUST_CHECK sh_status sh_shard_source_connect(sh_shard_source *source, const sh_share_link *link,
                                                const uint8_t id[SH_IDENTITY_LEN], int rank,
                                                bool *changed, sh_err *err);

/* Closes the connections; what is open from the folder stays. */
void sh_shard_source_disconnect(sh_shard_source *source);

/* The shard folder (shard_folder.h); more may be kept there. */
const char *sh_shard_source_folder(const sh_shard_source *source);

/* The folder of the model, and where its weights come from. */
const char *sh_shard_source_dir(const sh_shard_source *source);
const sh_window_source *sh_shard_source_windows(const sh_shard_source *source);

/* Bytes of weights that came since the source was connected. */
typedef struct {
    uint64_t link;
    uint64_t hub;
    uint64_t disk;
} sh_shard_origin;
sh_shard_origin sh_shard_source_origin(const sh_shard_source *source);

#endif
