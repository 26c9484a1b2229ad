/* shard_folder.h - what a rank without a copy of the model keeps of it on its own disk.
 *
 * There is a folder for each model and rank in the shard cache:
 *
 *   lock      held as long as a process uses the folder
 *   outline   what rank 0 said about the model, as it came
 *   model/    a model folder for all purposes but the weights: config.json, the index, and the
 *             files of weights with their headers and sizes, but without data
 *   journal   which windows of the files are here (shard_store.h)
 *   data      their bytes
 *   shares    how the model was shared out when they came (engine/shares.h)
 *
 * Threads: one owner. */
#ifndef SH_SHARE_SHARD_FOLDER_H
#define SH_SHARE_SHARD_FOLDER_H

#include "model/identity.h"
#include "share/share_client.h"

typedef struct {
    char *path;  /* owned, as the rest */
    char *model; /* path of the model folder */
    int lock;    /* descriptor */
    sh_buf packed;
    uint8_t digest[SH_DIGEST_LEN]; /* of `packed` */
    sh_arena arena;
    sh_share_outline outline;
} sh_shard_folder;

/* Takes the folder of a model and rank in the cache `root`; if there is none, or another process
 * has it, one of the model that no process uses, or else a new one. */
SH_MUST_CHECK sh_status sh_shard_folder_open(const char *root, const uint8_t id[SH_IDENTITY_LEN],
                                             int rank, sh_shard_folder *out, sh_err *err);
void sh_shard_folder_close(sh_shard_folder *folder);

/* Asks rank 0 for the outline and makes the model folder from it. */
SH_MUST_CHECK sh_status sh_shard_folder_update(sh_shard_folder *folder, sh_share_client *client,
                                               sh_err *err);

#endif
