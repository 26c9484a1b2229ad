/* blob.h - one file of the cache while it arrives.
 *
 * The bytes go to DIGEST.incomplete, strictly in order, and are hashed on the way. So an incomplete
 * file is always the beginning of the whole one, whatever ended the download, and the next one goes
 * on at its end, as the Hugging Face tools do. The file gets its final name only if its digest is
 * the expected one.
 *
 * Threads: one owner. */
#ifndef SH_STORE_BLOB_H
#define SH_STORE_BLOB_H

#include "store/cache.h"

#include <openssl/evp.h>

typedef struct {
    char *path, *part; /* of the whole and of the incomplete file */
    const char *digest;
    int64_t size, len; /* wanted, and written so far */
    int fd;
    EVP_MD_CTX *hash;
} sh_blob;

/* Whether a file of that size is there under its final name. */
bool sh_blob_is_there(const char *repo, const char *digest, int64_t size);

/* Bytes of an earlier, incomplete download. */
int64_t sh_blob_begun(const char *repo, const char *digest, int64_t size);

/* Opens the incomplete file and hashes what it has. `digest` is borrowed. `step` is called now and
 * then meanwhile, and ends it by returning false (SH_ERR_CANCELLED). */
SH_MUST_CHECK sh_status sh_blob_open(const char *repo, const char *digest, int64_t size,
                                     bool (*step)(void *ctx), void *ctx, sh_blob *out, sh_err *err);

/* Appends; never beyond the size. */
SH_MUST_CHECK sh_status sh_blob_add(sh_blob *blob, const void *data, size_t len, sh_err *err);

/* All bytes are there: checks the digest, and gives the file its name. SH_ERR_INPUT if the digest
 * differs; the blob is then empty again. */
SH_MUST_CHECK sh_status sh_blob_finish(sh_blob *blob, sh_err *err);

/* Keeps what has been written. */
void sh_blob_close(sh_blob *blob);

#endif
