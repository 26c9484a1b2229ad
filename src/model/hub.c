/* Looks a model up by name. The search order is that of sh_hub_paths; the first hit wins, and
 * every place that had no usable copy goes into the error text. Names and revisions become parts of
 * paths, so both are restricted to characters that cannot leave the folder. */
#include "model/hub.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { REVISION_MAX = 128 };

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A folder counts as a model, and a snapshot as complete, when it has a config.json. */
static bool has_config(const char *dir)
{
    char *path = sh_path_join(dir, "config.json");
    bool has = sh_file_exists(path);
    free(path);
    return has;
}

/* ORG/NAME or NAME, of the characters that such names may have. Anything else is taken as a path.
 */
static bool is_name(const char *text)
{
    int slashes = 0;
    for (const char *p = text; *p != '\0'; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '-' || *p == '_' || *p == '.';
        if (*p == '/' && p > text && p[1] != '\0')
            slashes++;
        else if (!plain)
            return false;
    }
    return text[0] != '\0' && text[0] != '.' && slashes <= 1 && strstr(text, "..") == NULL;
}

/* The revision in refs/main, or "" when there is none or it could leave the folder. */
static void revision_read(const char *repo, char out[REVISION_MAX])
{
    char *path = sh_path_join(repo, "refs/main");
    sh_buf text = {0};
    sh_err err;
    out[0] = '\0';
    if (sh_file_read(path, REVISION_MAX, &text, &err) == SH_OK) {
        sh_str rev = sh_str_trim(sh_buf_str(&text));
        bool plain = rev.len > 0 && rev.len < REVISION_MAX && rev.ptr[0] != '.';
        for (size_t i = 0; i < rev.len; i++) plain = plain && rev.ptr[i] != '/';
        if (plain) memcpy(out, rev.ptr, rev.len);
        if (plain) out[rev.len] = '\0';
    }
    sh_buf_reset(&text);
    free(path);
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
        bool newer = stat(path, &st) == 0 && S_ISDIR(st.st_mode) && has_config(path) &&
                     (best == NULL || st.st_mtime > best_time);
        if (newer) best_time = st.st_mtime;
        free(newer ? best : path);
        if (newer) best = path;
    }
    closedir(d);
    return best;
}

static char *snapshot_find(const char *repo)
{
    char revision[REVISION_MAX];
    char *snapshots = sh_path_join(repo, "snapshots");
    revision_read(repo, revision);
    char *dir = revision[0] != '\0' ? sh_path_join(snapshots, revision)
                                    : newest_snapshot(snapshots);
    if (dir != NULL && !has_config(dir)) {
        free(dir);
        dir = NULL;
    }
    free(snapshots);
    return dir;
}

/* Looks for the name in one cache folder; notes in `looked` where it was not found. */
static char *look_in_cache(const char *cache, const char *name, sh_buf *looked)
{
    sh_buf repo = {0};
    sh_buf_addf(&repo, "%s/models--", cache);
    for (const char *p = name; *p != '\0'; p++)
        sh_buf_add_text(&repo, *p == '/' ? "--" : (char[]){*p, '\0'});
    char *found = snapshot_find(repo.ptr);
    bool incomplete = found == NULL && is_folder(repo.ptr);
    if (found == NULL)
        sh_buf_addf(looked, "%s%s%s", looked->len > 0 ? ", " : "", repo.ptr,
                    incomplete ? " (exists, but has no complete snapshot)" : "");
    sh_buf_reset(&repo);
    return found;
}

/* A folder of models may be laid out as ORG/NAME, as NAME, or like a cache. */
static char *look_in_folder(const char *folder, const char *name, sh_buf *looked)
{
    const char *slash = strrchr(name, '/');
    const char *const names[] = {name, slash == NULL ? name : slash + 1};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        char *dir = sh_path_join(folder, names[i]);
        if (has_config(dir)) return dir;
        free(dir);
    }
    return look_in_cache(folder, name, looked);
}

static char *look_below(const char *dir, const char *below, const char *name, sh_buf *looked)
{
    char *cache = sh_path_join(dir, below);
    char *found = look_in_cache(cache, name, looked);
    free(cache);
    return found;
}

sh_status sh_hub_find(const char *name, const sh_hub_paths *places, char **out, sh_err *err)
{
    char *found = NULL;
    sh_buf looked = {0};
    if (strncmp(name, "~/", 2) == 0 && places->home != NULL)
        found = sh_path_join(places->home, name + 2);
    else if (is_folder(name) || !is_name(name))
        found = sh_strdup(name);
    if (found == NULL && places->models != NULL)
        found = look_in_folder(places->models, name, &looked);
    if (found == NULL && places->hub_cache != NULL)
        found = look_in_cache(places->hub_cache, name, &looked);
    if (found == NULL && places->hf_home != NULL)
        found = look_below(places->hf_home, "hub", name, &looked);
    if (found == NULL && places->home != NULL)
        found = look_below(places->home, ".cache/huggingface/hub", name, &looked);
    if (found == NULL)
        sh_err_set(err, SH_ERR_NOT_FOUND,
                   "model '%s' is neither a folder nor in a cache; looked for %s", name,
                   looked.len > 0 ? looked.ptr : "nothing else, since HOME is not set");
    sh_buf_reset(&looked);
    if (found == NULL) return err->status;
    *out = found;
    return SH_OK;
}

/* The last "models--" counts: a cache may itself lie below a folder of such a name. */
char *sh_hub_name(const char *dir)
{
    const char *repo = strstr(dir, "models--"), *last = NULL;
    for (; repo != NULL; repo = strstr(repo + 1, "models--")) last = repo;
    if (last == NULL || (last > dir && last[-1] != '/')) return NULL;
    const char *end = strstr(last, "/snapshots/");
    if (end == NULL) return NULL;
    sh_str name = {last + 8, (size_t)(end - last - 8)};
    size_t split = sh_str_find(name, SH_STR("--"), 0);
    if (split == name.len) return sh_str_dup(name);
    return sh_asprintf("%.*s/%.*s", (int)split, name.ptr, (int)(name.len - split - 2),
                       name.ptr + split + 2);
}
