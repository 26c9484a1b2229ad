/* A lock tells a folder in use from one that may be deleted. It is a file in the folder itself, so
 * it is only good if the folder is still there after it was taken: another process may have been
 * deleting it at the same time. Deleting begins with another name, so that nobody finds half a
 * folder.
 *
 * The time of the lock file is when its folder was last opened. */
#include "share/shard_cache.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "store/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    LOCK_TRIES = 8,
    STEP = 64 << 20,    /* bytes that are granted at once: each time all folders are looked at */
    FREE_PART = 20,     /* one part in this many of the disk stays free */
    FOLDERS_MAX = 1024, /* that are looked at */
};

sh_status sh_shard_cache_root(char **out, sh_err *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL && cache[0] == '/')
        *out = sh_asprintf("%s/shoal/shards", cache);
    else if (home != NULL && home[0] == '/')
        *out = sh_asprintf("%s/.cache/shoal/shards", home);
    else
        return sh_err_set(err, SH_ERR_INPUT,
                          "no place for the share of the model: set HOME or XDG_CACHE_HOME");
    return SH_OK;
}

/* Whether the path still leads to the file that was opened. */
static bool is_current(int fd, const char *path)
{
    struct stat opened, named;
    return fstat(fd, &opened) == 0 && stat(path, &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

static sh_status lock_once(const char *path, const char *file, int *lock, sh_err *err)
{
    sh_status status = sh_dir_make_private(path, err);
    if (status != SH_OK) return status;
    int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return errno == ENOENT ? SH_OK : sh_err_sys(err, "%s", file);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return SH_AGAIN;
    }
    if (is_current(fd, file))
        *lock = fd;
    else
        close(fd);
    return SH_OK;
}

sh_status sh_shard_cache_lock(const char *path, int *lock, sh_err *err)
{
    char *file = sh_path_join(path, "lock");
    sh_status status = SH_OK;
    *lock = -1;
    for (int i = 0; i < LOCK_TRIES && status == SH_OK && *lock < 0; i++)
        status = lock_once(path, file, lock, err);
    free(file);
    return status == SH_OK && *lock < 0 ? SH_AGAIN : status;
}

sh_status sh_shard_cache_delete(const char *path, sh_err *err)
{
    char *gone = sh_asprintf("%s.gone", path);
    sh_status status = sh_tree_remove(gone, err); /* of a process that did not get to it */
    if (status == SH_OK && rename(path, gone) != 0) status = sh_err_sys(err, "%s", path);
    if (status == SH_OK) status = sh_tree_remove(gone, err);
    free(gone);
    return status;
}

typedef struct {
    char *path;
    uint64_t bytes;
    int64_t used_ns; /* when it was last opened; 0: it has no lock */
} folder;

/* Bytes that the files take on the disk: holes are free. */
static sh_status bytes_add(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    (void)path, (void)err;
    *(uint64_t *)ctx += (uint64_t)st->st_blocks * 512;
    return SH_OK;
}

/* Names of folders that were made here: nothing else in the cache is touched. */
static bool is_ours(sh_str name)
{
    size_t hex = 0;
    while (hex < name.len && strchr("0123456789abcdef", name.ptr[hex]) != NULL) hex++;
    return hex == 32 && hex < name.len && name.ptr[hex] == '-';
}

static folder folder_look(const char *root, const char *name)
{
    folder f = {.path = sh_path_join(root, name)};
    char *lock = sh_path_join(f.path, "lock");
    struct stat st;
    sh_err err;
    if (sh_tree_walk(f.path, bytes_add, &f.bytes, &err) != SH_OK) SH_LOGW("%s", err.text);
    if (stat(lock, &st) == 0) f.used_ns = sh_stat_written_ns(&st);
    free(lock);
    return f;
}

static int by_age(const void *a, const void *b)
{
    int64_t x = ((const folder *)a)->used_ns, y = ((const folder *)b)->used_ns;
    return (x > y) - (x < y);
}

/* All folders but the own one, oldest first. */
static int folders_list(const sh_shard_cache *cache, folder *out)
{
    int count = 0;
    DIR *d = opendir(cache->root);
    if (d == NULL) return 0;
    for (struct dirent *e; (e = readdir(d)) != NULL && count < FOLDERS_MAX;) {
        if (!is_ours(sh_str_of(e->d_name))) continue;
        out[count] = folder_look(cache->root, e->d_name);
        if (strcmp(out[count].path, cache->own) == 0)
            free(out[count].path);
        else
            count++;
    }
    closedir(d);
    qsort(out, (size_t)count, sizeof(*out), by_age);
    return count;
}

/* Whether the disk has `more` bytes besides those that stay free. */
static bool disk_has(const char *root, uint64_t more)
{
    struct statvfs st;
    if (statvfs(root, &st) != 0) return true;
    return st.f_bavail > st.f_blocks / FREE_PART &&
           (st.f_bavail - st.f_blocks / FREE_PART) * st.f_frsize >= more;
}

/* Deletes a folder unless a process is using it. */
static bool folder_delete(const folder *f)
{
    sh_err err;
    int lock = -1;
    if (sh_shard_cache_lock(f->path, &lock, &err) != SH_OK) return false;
    sh_status status = sh_shard_cache_delete(f->path, &err);
    close(lock);
    if (status == SH_OK)
        SH_LOGI("shard cache: %.1f MB of a model that was not used lately were deleted",
                (double)f->bytes * 1e-6);
    else
        SH_LOGW("shard cache: %s", err.text);
    return status == SH_OK;
}

/* Makes room for `size` bytes of the own folder; *total is what the others have then. */
static bool make_room(const sh_shard_cache *cache, uint64_t size, uint64_t *total)
{
    folder *others = sh_alloc_array(FOLDERS_MAX, sizeof(*others));
    int count = folders_list(cache, others), next = 0;
    uint64_t more = cache->granted == 0 ? 0 : size - cache->granted; /* at first: what is there */
    bool room = false;
    *total = 0;
    for (int i = 0; i < count; i++) *total += others[i].bytes;
    for (;; next++) {
        room = *total + size <= cache->limit && disk_has(cache->root, more);
        if (room || next == count) break;
        if (folder_delete(&others[next])) *total -= others[next].bytes;
    }
    for (int i = 0; i < count; i++) free(others[i].path);
    free(others);
    return room;
}

void sh_shard_cache_trim(const sh_shard_cache *cache)
{
    uint64_t others;
    if (!make_room(cache, 0, &others))
        SH_LOGW("shard cache: %.1f MB are in use by other processes, or the disk is nearly full",
                (double)others * 1e-6);
}

bool sh_shard_cache_grant(void *ctx, uint64_t size)
{
    sh_shard_cache *cache = ctx;
    uint64_t others;
    if (size <= cache->granted) return true;
    if (size > cache->limit || !make_room(cache, size, &others)) return false;
    uint64_t most = cache->limit - others;
    cache->granted = most - size < STEP ? most : size + STEP;
    return true;
}
