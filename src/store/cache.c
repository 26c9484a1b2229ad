/* Paths and small files of the cache. Everything that others can see appears at once and complete:
 * links and refs are made under another name and renamed. */
#include "store/cache.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INDEX_LEN_MAX = 256 << 20 };

static const char PREFIX[] = "models--";

char *sh_cache_repo(const char *cache, const char *id)
{
    sh_buf path = {0};
    sh_buf_addf(&path, "%s/%s", cache, PREFIX);
    for (const char *p = id; *p != '\0'; p++)
        sh_buf_add_text(&path, *p == '/' ? "--" : (char[]){*p, '\0'});
    return sh_buf_take(&path);
}

char *sh_cache_repo_id(const char *folder)
{
    if (strncmp(folder, PREFIX, strlen(PREFIX)) != 0) return NULL;
    sh_str name = sh_str_of(folder + strlen(PREFIX));
    size_t split = sh_str_find(name, SH_STR("--"), 0);
    if (split == name.len) return sh_str_dup(name);
    return sh_asprintf("%.*s/%s", (int)split, name.ptr, name.ptr + split + 2);
}

char *sh_cache_blob(const char *repo, const char *digest, const char *end)
{
    return sh_asprintf("%s/blobs/%s%s", repo, digest, end);
}

static bool has_file(const char *dir, const char *name)
{
    char *path = sh_path_join(dir, name);
    bool has = sh_file_exists(path);
    free(path);
    return has;
}

/* A ref may have been written by anybody; what it holds becomes part of a path. */
bool sh_cache_commit(const char *repo, const char *revision, char out[SH_REVISION_MAX])
{
    char *path = sh_asprintf("%s/refs/%s", repo, revision);
    char *direct = sh_asprintf("%s/snapshots/%s", repo, revision);
    sh_buf text = {0};
    sh_err err;
    out[0] = '\0';
    if (sh_file_read(path, SH_REVISION_MAX, &text, &err) == SH_OK) {
        sh_str commit = sh_str_trim(sh_buf_str(&text));
        if (commit.len < SH_REVISION_MAX)
            snprintf(out, SH_REVISION_MAX, "%.*s", (int)commit.len, commit.ptr);
    } else if (sh_file_exists(direct)) {
        snprintf(out, SH_REVISION_MAX, "%s", revision);
    }
    sh_buf_reset(&text);
    free(path);
    free(direct);
    return sh_revision_is_safe(out) && strchr(out, '/') == NULL;
}

/* Without refs/main: the snapshot that was modified last. */
static char *newest_snapshot(const char *dir)
{
    DIR *d = opendir(dir);
    char *best = NULL;
    time_t best_time = 0;
    if (d == NULL) return NULL;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        char *path = sh_path_join(dir, e->d_name);
        bool newer = stat(path, &st) == 0 && S_ISDIR(st.st_mode) && has_file(path, "config.json") &&
                     (best == NULL || st.st_mtime > best_time);
        if (newer) best_time = st.st_mtime;
        free(newer ? best : path);
        if (newer) best = path;
    }
    closedir(d);
    return best;
}

/* A ref to a commit that is not here does not fall back to another one: that would be a different
 * model from the one that was asked for. */
char *sh_cache_snapshot(const char *repo, const char *revision)
{
    char commit[SH_REVISION_MAX];
    char *snapshots = sh_path_join(repo, "snapshots");
    char *dir = NULL;
    if (sh_cache_commit(repo, revision, commit))
        dir = sh_path_join(snapshots, commit);
    else if (strcmp(revision, "main") == 0 && !has_file(repo, "refs/main"))
        dir = newest_snapshot(snapshots);
    if (dir != NULL && !has_file(dir, "config.json")) {
        free(dir);
        dir = NULL;
    }
    free(snapshots);
    return dir;
}

static bool has_weights(const char *dir)
{
    DIR *d = opendir(dir);
    bool found = false;
    if (d == NULL) return false;
    for (struct dirent *e; !found && (e = readdir(d)) != NULL;)
        found = sh_str_ends(sh_str_of(e->d_name), SH_STR(".safetensors")) &&
                has_file(dir, e->d_name);
    closedir(d);
    return found;
}

bool sh_cache_snapshot_is_complete(const char *snapshot)
{
    char *path = sh_path_join(snapshot, "model.safetensors.index.json");
    cJSON *index = NULL;
    sh_err err;
    bool complete = has_file(snapshot, "config.json");
    if (complete && !sh_file_exists(path)) {
        complete = has_weights(snapshot);
    } else if (complete && sh_json_load(path, INDEX_LEN_MAX, &index, &err) == SH_OK) {
        const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map"), *item;
        const char *last = "";
        complete = cJSON_IsObject(map);
        cJSON_ArrayForEach(item, map)
        {
            const char *name = cJSON_IsString(item) ? item->valuestring : "";
            if (!complete || strcmp(name, last) == 0) continue; /* most are the same as before */
            complete = sh_file_name_is_safe(name) && has_file(snapshot, name);
            last = name;
        }
    }
    cJSON_Delete(index);
    free(path);
    return complete;
}

sh_status sh_cache_make_folder(const char *path, sh_err *err)
{
    char *copy = sh_strdup(path);
    sh_status status = SH_OK;
    for (char *slash = copy; status == SH_OK && slash != NULL;) {
        slash = strchr(slash + 1, '/');
        if (slash != NULL) *slash = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) status = sh_err_sys(err, "%s", copy);
        if (slash != NULL) *slash = '/';
    }
    free(copy);
    return status;
}

/* Some network file systems know no locks. Two processes may then write the same blob, which costs
 * bandwidth but no correctness: both write the same bytes to the same places (blob.c). */
sh_status sh_cache_lock(const char *cache, const char *id, const char *digest, int *fd, sh_err *err)
{
    char *locks = sh_path_join(cache, ".locks");
    char *dir = sh_cache_repo(locks, id), *path = sh_asprintf("%s/%s.lock", dir, digest);
    sh_status status = sh_cache_make_folder(dir, err);
    if (status == SH_OK) {
        *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (*fd < 0) status = sh_err_sys(err, "%s", path);
    }
    if (status == SH_OK && flock(*fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(*fd);
        *fd = -1;
        status = SH_AGAIN;
    }
    free(locks);
    free(dir);
    free(path);
    return status;
}

/* Links are relative, so that a cache can be moved. */
sh_status sh_cache_link(const char *repo, const char *commit, const char *file, const char *digest,
                        sh_err *err)
{
    char *path = sh_asprintf("%s/snapshots/%s/%s", repo, commit, file);
    char *fresh = sh_asprintf("%s.%d", path, (int)getpid());
    char *slash = strrchr(path, '/'), old[PATH_MAX];
    sh_buf target = {0};
    for (const char *p = file; p != NULL; p = strchr(p + 1, '/')) sh_buf_add_text(&target, "../");
    sh_buf_addf(&target, "../blobs/%s", digest);
    *slash = '\0';
    sh_status status = sh_cache_make_folder(path, err);
    *slash = '/';
    ssize_t len = readlink(path, old, sizeof(old));
    bool there = len == (ssize_t)target.len && memcmp(old, target.ptr, target.len) == 0;
    if (status == SH_OK && !there &&
        (symlink(target.ptr, fresh) != 0 || rename(fresh, path) != 0)) {
        status = sh_err_sys(err, "%s", path);
        unlink(fresh);
    }
    sh_buf_reset(&target);
    free(path);
    free(fresh);
    return status;
}

bool sh_cache_digest(const char *path, char out[SH_BLOB_DIGEST_MAX])
{
    char target[PATH_MAX];
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    target[len < 0 ? 0 : len] = '\0';
    const char *slash = strrchr(target, '/');
    if (slash == NULL || !sh_is_blob_digest(slash + 1)) return false;
    strcpy(out, slash + 1);
    return true;
}

sh_status sh_cache_set_ref(const char *repo, const char *revision, const char *commit, sh_err *err)
{
    if (strcmp(revision, commit) == 0) return SH_OK;
    char *path = sh_asprintf("%s/refs/%s", repo, revision), *slash = strrchr(path, '/');
    *slash = '\0';
    sh_status status = sh_cache_make_folder(path, err);
    *slash = '/';
    if (status == SH_OK) status = sh_file_write(path, commit, strlen(commit), err);
    free(path);
    return status;
}
