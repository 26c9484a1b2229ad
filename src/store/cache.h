/* cache.h - the folders in which the Hugging Face tools keep models, laid out as they do it, so
 * that a model that one program has downloaded is there for all:
 *
 *   CACHE/models--ORG--NAME/blobs/DIGEST             the files, by their SHA-256 or git SHA-1
 *   CACHE/models--ORG--NAME/blobs/DIGEST.incomplete  the beginning of one
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE    a link to ../../blobs/DIGEST
 *   CACHE/models--ORG--NAME/refs/REVISION            the commit of a branch or tag
 *   CACHE/.locks/models--ORG--NAME/DIGEST.lock       held (flock) while that blob is written
 *
 * Strings that are returned belong to the caller.
 *
 * Threads: functions over the file system; other processes may change it at any time. */
#ifndef SH_STORE_CACHE_H
#define SH_STORE_CACHE_H

#include "base/status.h"
#include "store/repo_name.h"

#include <stdbool.h>
#include <stdint.h>

enum { SH_BLOB_DIGEST_MAX = SH_SHA256_LEN + 1 }; /* of hex digits, with the zero byte */

/* CACHE/models--ORG--NAME */
char *sh_cache_repo(const char *cache, const char *id);

/* The reverse: "ORG/NAME" of the name of such a folder; NULL for any other. */
char *sh_cache_repo_id(const char *folder);

/* REPO/blobs/DIGEST followed by `end`: "" or ".incomplete". */
char *sh_cache_blob(const char *repo, const char *digest, const char *end);

/* REPO/snapshots/COMMIT of a revision that has a config.json, or NULL. For "main" without
 * refs/main: the one that was modified last. */
char *sh_cache_snapshot(const char *repo, const char *revision);

/* Whether the weights are all there: every file that the index names, or any without an index. */
bool sh_cache_snapshot_is_complete(const char *snapshot);

/* Makes a folder and those above it. */
SH_MUST_CHECK sh_status sh_cache_make_folder(const char *path, sh_err *err);

/* SH_AGAIN if another process is writing that blob. Otherwise *fd holds the lock; close it to
 * release. Nobody else holds it on a system without locks. */
SH_MUST_CHECK sh_status sh_cache_lock(const char *cache, const char *id, const char *digest,
                                      int *fd, sh_err *err);

/* Puts a file into a snapshot, as a link to its blob. */
SH_MUST_CHECK sh_status sh_cache_link(const char *repo, const char *commit, const char *file,
                                      const char *digest, sh_err *err);

/* Notes the commit of a revision, unless the revision is that commit. */
SH_MUST_CHECK sh_status sh_cache_set_ref(const char *repo, const char *revision, const char *commit,
                                         sh_err *err);

/* The digest of a file in a snapshot, by the name of the blob that it is a link to; false if it is
 * not such a link. */
bool sh_cache_digest(const char *path, char out[SH_BLOB_DIGEST_MAX]);

/* The commit in refs/REVISION, or the revision itself if it is one; false if there is neither. */
bool sh_cache_commit(const char *repo, const char *revision, char out[SH_REVISION_MAX]);

#endif
