/* The outline is compared with rank 0's at every start, by its digest, and the model folder with
 * the outline: a file there that is missing, cut off or changed is written anew. */
#include "share/shard_folder.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "model/tensors.h"
#include "share/shard_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TWINS_MAX = 16, /* processes of one model and rank number on one machine */
    NAME_LEN = 32,  /* of a model, in the name of its folders */
};

/* Whether this is the name of a shard folder of the model whose name starts like this. */
static bool is_of_model(const char *entry, const char *model)
{
    int rank, twin, end = 0;
    return strncmp(entry, model, NAME_LEN) == 0 &&
           sscanf(entry + NAME_LEN, "-%d.%d%n", &rank, &twin, &end) == 2 &&
           entry[NAME_LEN + end] == '\0';
}

/* A machine may come back with another number, as when its server was started anew: then it takes
 * over what it had under the old one, if no process uses that. */
static void adopt(const char *root, const char *model, const char *path)
{
    bool done = false;
    DIR *d = opendir(root);
    if (d == NULL) return;
    for (struct dirent *entry; !done && (entry = readdir(d)) != NULL;) {
        sh_err ignored;
        int lock = -1;
        if (!is_of_model(entry->d_name, model)) continue;
        char *other = sh_path_join(root, entry->d_name);
        done = sh_shard_cache_lock(other, &lock, &ignored) == SH_OK && rename(other, path) == 0;
        if (lock >= 0) close(lock);
        free(other);
    }
    closedir(d);
}

sh_status sh_shard_folder_open(const char *root, const uint8_t id[SH_IDENTITY_LEN], int rank,
                               sh_shard_folder *out, sh_err *err)
{
    char name[2 * SH_IDENTITY_LEN + 1];
    sh_status status = sh_dir_make_private(root, err);
    if (status == SH_OK) status = sh_dir_check_own(root, err);
    if (status != SH_OK) return sh_err_prefix(err, "shard cache");
    for (int i = 0; i < SH_IDENTITY_LEN; i++) snprintf(name + 2 * i, 3, "%02x", id[i]);
    for (int twin = 0; twin < TWINS_MAX; twin++) {
        char *path = sh_asprintf("%s/%.32s-%d.%d", root, name, rank, twin);
        int lock = -1;
        if (!sh_file_exists(path)) adopt(root, name, path);
        status = sh_shard_cache_lock(path, &lock, err);
        if (status == SH_OK) {
            if (futimens(lock, NULL) != 0) SH_LOGW("%s: its time cannot be set", path);
            *out = (sh_shard_folder){
                .path = path, .model = sh_path_join(path, "model"), .lock = lock};
            return SH_OK;
        }
        free(path);
        if (status != SH_AGAIN) return sh_err_prefix(err, "shard cache");
    }
    return sh_err_set(err, SH_ERR_LIMIT, "shard cache %s: %d other processes use this model", root,
                      TWINS_MAX);
}

void sh_shard_folder_close(sh_shard_folder *folder)
{
    if (folder->path == NULL) return;
    close(folder->lock);
    free(folder->path);
    free(folder->model);
    sh_buf_reset(&folder->packed);
    sh_arena_reset(&folder->arena);
    *folder = (sh_shard_folder){0};
}

/* Whether the file has this size and begins like this. */
static bool file_is(const char *path, const sh_share_file *file)
{
    struct stat st;
    sh_err ignored;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return false;
    char *start = malloc(file->start.len + 1);
    bool same = start != NULL && fstat(fd, &st) == 0 && (uint64_t)st.st_size == file->size &&
                sh_fd_read_at(fd, path, 0, start, file->start.len, &ignored) == SH_OK &&
                memcmp(start, file->start.ptr, file->start.len) == 0;
    free(start);
    close(fd);
    return same;
}

/* A file of its full size with only its start: the rest is a hole and takes no space. */
static sh_status file_make(const char *dir, const sh_share_file *file, sh_err *err)
{
    char *path = sh_path_join(dir, file->name);
    sh_status status = SH_OK;
    if (!file_is(path, file)) {
        sh_draft draft;
        status = sh_draft_open(path, ".part", 0600, &draft, err);
        if (status == SH_OK) {
            status = sh_draft_add(&draft, file->start.ptr, file->start.len, err);
            if (status == SH_OK && ftruncate(draft.fd, (off_t)file->size) != 0)
                status = sh_err_sys(err, "%s", path);
            if (status == SH_OK)
                status = sh_draft_commit(&draft, err);
            else
                sh_draft_drop(&draft);
        }
    }
    free(path);
    return status;
}

/* The marker comes first: from then on nobody takes this for a model that is complete. */
static sh_status model_make(const sh_shard_folder *folder, sh_err *err)
{
    static const char text[] = "This is the outline of a model, without its weights.\n";
    char *marker = sh_path_join(folder->model, SH_TENSORS_OUTLINE);
    sh_status status = sh_dir_make_private(folder->model, err);
    if (status == SH_OK && !sh_file_exists(marker))
        status = sh_file_write_private(marker, text, sizeof(text) - 1, err);
    for (int i = 0; status == SH_OK && i < folder->outline.count; i++)
        status = file_make(folder->model, &folder->outline.files[i], err);
    free(marker);
    return status;
}

/* Takes the bytes of an outline, which has been checked against its digest. */
static sh_status outline_set(sh_shard_folder *folder, sh_buf *packed, sh_err *err)
{
    sh_share_outline outline;
    sh_arena arena = {0};
    sh_status status = sh_share_outline_unpack(sh_buf_str(packed), &arena, &outline, err);
    if (status != SH_OK) {
        sh_arena_reset(&arena);
        return status;
    }
    sh_arena_reset(&folder->arena);
    sh_buf_reset(&folder->packed);
    folder->arena = arena;
    folder->outline = outline;
    folder->packed = *packed;
    *packed = (sh_buf){0};
    sh_digest(folder->packed.ptr, folder->packed.len, folder->digest);
    return SH_OK;
}

sh_status sh_shard_folder_update(sh_shard_folder *folder, sh_share_client *client, sh_err *err)
{
    char *path = sh_path_join(folder->path, "outline");
    sh_buf kept = {0}, fresh = {0};
    uint8_t digest[SH_DIGEST_LEN];
    bool same = false;
    sh_err ignored;
    if (sh_file_exists(path) && sh_file_read(path, SH_SHARE_OUTLINE_MAX, &kept, &ignored) != SH_OK)
        SH_LOGW("shard cache: %s", ignored.text);
    if (kept.len > 0) sh_digest(kept.ptr, kept.len, digest);
    sh_status status = sh_share_client_outline(client, kept.len > 0 ? digest : NULL, &fresh, &same,
                                               err);
    if (status == SH_OK) status = outline_set(folder, same ? &kept : &fresh, err);
    if (status == SH_OK) status = model_make(folder, err);
    if (status == SH_OK && !same)
        status = sh_file_write_private(path, folder->packed.ptr, folder->packed.len, err);
    sh_buf_reset(&kept);
    sh_buf_reset(&fresh);
    free(path);
    return status;
}
