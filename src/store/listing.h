/* listing.h - which files of a model to download, from the hub's description of it.
 *
 * The hub answers /api/models/ORG/NAME/revision/REVISION?blobs=true with the commit and all files
 * of the repository. Only what this program reads is kept: configuration, tokenizer, chat
 * templates, and one set of safetensors. Other formats of the same weights are left out, and so are
 * names that could leave the folder.
 *
 * Threads: pure functions. */
#ifndef SH_STORE_LISTING_H
#define SH_STORE_LISTING_H

#include "base/str.h"
#include "store/cache.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *path;                      /* in the repository; safe (store/repo_name.h) */
    int64_t size;                    /* in bytes */
    char digest[SH_BLOB_DIGEST_MAX]; /* 64 digits: SHA-256; 40: the SHA-1 of a git blob */
} sh_hub_file;

typedef struct {
    char commit[SH_COMMIT_LEN + 1];
    sh_hub_file *files; /* owned; config.json is the last one */
    size_t count;
    int64_t bytes; /* of all of them */
} sh_listing;

/* `where` names the source in errors. A model without config.json or safetensors is an error. */
SH_MUST_CHECK sh_status sh_listing_parse(sh_str json, const char *where, sh_listing *out,
                                         sh_err *err);
void sh_listing_reset(sh_listing *listing);

#endif
