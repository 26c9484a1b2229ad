#include "store/blob.h"

#include "base/alloc.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 4 << 20, WRITEBACK = 32 << 20 };

bool sh_blob_is_there(const char *repo, const char *digest, int64_t size)
{
    char *path = sh_cache_blob(repo, digest, "");
    struct stat st;
    bool there = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == size;
    free(path);
    return there;
}

int64_t sh_blob_begun(const char *repo, const char *digest, int64_t size)
{
    char *path = sh_cache_blob(repo, digest, ".incomplete");
    struct stat st;
    int64_t len = stat(path, &st) == 0 ? st.st_size : 0;
    free(path);
    return len > size ? 0 : len;
}

/* The digest of a file in git is that of a header and the contents. */
static void hash_start(sh_blob *blob)
{
    bool git = strlen(blob->digest) == SH_COMMIT_LEN;
    char head[40];
    int len = snprintf(head, sizeof(head), "blob %" PRId64, blob->size) + 1;
    bool ok = EVP_DigestInit_ex(blob->hash, git ? EVP_sha1() : EVP_sha256(), NULL) == 1 &&
              (!git || EVP_DigestUpdate(blob->hash, head, (size_t)len) == 1);
    SH_ASSERT(ok);
}

static sh_status restart(sh_blob *blob, sh_err *err)
{
    blob->len = 0;
    hash_start(blob);
    return ftruncate(blob->fd, 0) == 0 ? SH_OK : sh_err_sys(err, "%s", blob->part);
}

static sh_status hash_begun(sh_blob *blob, bool (*step)(void *ctx), void *ctx, sh_err *err)
{
    struct stat st;
    sh_status status = fstat(blob->fd, &st) == 0 ? SH_OK : sh_err_sys(err, "%s", blob->part);
    if (status == SH_OK && st.st_size > blob->size) return restart(blob, err);
    char *piece = sh_alloc(PIECE);
    while (status == SH_OK && blob->len < st.st_size) {
        int64_t left = st.st_size - blob->len;
        size_t len = left < PIECE ? (size_t)left : PIECE;
        status = sh_fd_read_at(blob->fd, blob->part, (uint64_t)blob->len, piece, len, err);
        if (status == SH_OK && EVP_DigestUpdate(blob->hash, piece, len) != 1)
            status = sh_err_set(err, SH_ERR_SYSTEM, "%s: cannot be hashed", blob->part);
        blob->len += (int64_t)len;
        if (status == SH_OK && !step(ctx)) status = sh_err_set(err, SH_ERR_CANCELLED, "stopped");
    }
    free(piece);
    return status;
}

sh_status sh_blob_open(const char *repo, const char *digest, int64_t size, bool (*step)(void *ctx),
                       void *ctx, sh_blob *out, sh_err *err)
{
    char *folder = sh_path_join(repo, "blobs");
    sh_blob blob = {.digest = digest, .size = size, .fd = -1};
    sh_status status = sh_cache_make_folder(folder, err);
    free(folder);
    if (status != SH_OK) return status;
    blob.path = sh_cache_blob(repo, digest, "");
    blob.part = sh_cache_blob(repo, digest, ".incomplete");
    blob.hash = EVP_MD_CTX_new();
    SH_ASSERT(blob.hash != NULL);
    blob.fd = open(blob.part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (blob.fd < 0) status = sh_err_sys(err, "%s", blob.part);
    hash_start(&blob);
    if (status == SH_OK) status = hash_begun(&blob, step, ctx, err);
    if (status != SH_OK) {
        sh_blob_close(&blob);
        return status;
    }
    *out = blob;
    return SH_OK;
}

/* Lets the disk work meanwhile, so that the sync at the end does not take long. */
static void writeback_start(const sh_blob *blob, size_t added)
{
#ifdef __linux__
    int64_t from = blob->len / WRITEBACK * WRITEBACK, to = blob->len + (int64_t)added;
    if (to - from >= WRITEBACK) sync_file_range(blob->fd, from, WRITEBACK, SYNC_FILE_RANGE_WRITE);
#else
    (void)blob;
    (void)added;
#endif
}

/* Written at its place and not appended, so that another process that writes the same file, where
 * locks do not work, does no harm. */
sh_status sh_blob_add(sh_blob *blob, const void *data, size_t len, sh_err *err)
{
    SH_ASSERT((int64_t)len <= blob->size - blob->len);
    if (EVP_DigestUpdate(blob->hash, data, len) != 1)
        return sh_err_set(err, SH_ERR_SYSTEM, "%s: cannot be hashed", blob->part);
    for (size_t done = 0; done < len;) {
        ssize_t put = pwrite(blob->fd, (const char *)data + done, len - done,
                             (off_t)(blob->len + (int64_t)done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return sh_err_sys(err, "%s", blob->part);
        done += (size_t)put;
    }
    writeback_start(blob, len);
    blob->len += (int64_t)len;
    return SH_OK;
}

static void hash_text(sh_blob *blob, char out[SH_BLOB_DIGEST_MAX])
{
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    bool ok = EVP_DigestFinal_ex(blob->hash, bytes, &len) == 1;
    SH_ASSERT(ok && len * 2 < SH_BLOB_DIGEST_MAX);
    for (unsigned i = 0; i < len; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Synced first: after a loss of power a file with its final name must have its bytes. */
sh_status sh_blob_finish(sh_blob *blob, sh_err *err)
{
    char digest[SH_BLOB_DIGEST_MAX];
    hash_text(blob, digest);
    if (strcmp(digest, blob->digest) != 0) {
        sh_status status = restart(blob, err);
        return status != SH_OK ? status
                               : sh_err_set(err, SH_ERR_INPUT, "has the digest %s, not %s", digest,
                                            blob->digest);
    }
    if (fsync(blob->fd) != 0) return sh_err_sys(err, "%s", blob->part);
    if (rename(blob->part, blob->path) == 0) return SH_OK;
    struct stat st; /* without working locks another process may have been faster */
    if (errno == ENOENT && stat(blob->path, &st) == 0 && st.st_size == blob->size) return SH_OK;
    return sh_err_sys(err, "%s", blob->path);
}

void sh_blob_close(sh_blob *blob)
{
    if (blob->fd >= 0) close(blob->fd);
    EVP_MD_CTX_free(blob->hash);
    free(blob->path);
    free(blob->part);
    *blob = (sh_blob){.fd = -1};
}
