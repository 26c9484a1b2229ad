#include "store/catalog.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "store/cache.h"
#include "store/tree.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- listing ---- */

/* Calls fn for each folder in `dir` that is not hidden. */
static void each_folder(const char *dir, void (*fn)(void *ctx, const char *path, const char *name),
                        void *ctx)
{
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct stat st;
        if (e->d_name[0] == '.') continue;
        char *path = sh_path_join(dir, e->d_name);
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) fn(ctx, path, e->d_name);
        free(path);
    }
    closedir(d);
}

/* The files of a snapshot are links, so their targets count. */
static sh_status size_add(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    struct stat target;
    (void)err;
    if (S_ISREG(st->st_mode))
        *(int64_t *)ctx += st->st_size;
    else if (S_ISLNK(st->st_mode) && stat(path, &target) == 0 && S_ISREG(target.st_mode))
        *(int64_t *)ctx += target.st_size;
    return SH_OK;
}

static int64_t size_of(const char *dir)
{
    int64_t bytes = 0;
    sh_err err;
    return sh_tree_walk(dir, size_add, &bytes, &err) == SH_OK ? bytes : 0;
}

static bool has_config(const char *dir)
{
    char *config = sh_path_join(dir, "config.json");
    bool has = sh_file_exists(config);
    free(config);
    return has;
}

/* Takes ownership of name and dir. */
static void entry_add(sh_catalog *c, char *name, char *dir, const char *bytes_in)
{
    c->entries = sh_realloc_array(c->entries, c->count + 1, sizeof(*c->entries));
    c->entries[c->count++] = (sh_catalog_entry){.name = name,
                                                .dir = dir,
                                                .bytes = size_of(bytes_in),
                                                .complete = dir != NULL &&
                                                            sh_cache_snapshot_is_complete(dir)};
}

typedef struct {
    sh_catalog *catalog;
    const char *id;
    const char *main; /* the snapshot that the bare name stands for, or NULL */
    size_t found;
} repo_view;

static void snapshot_add(void *ctx, const char *path, const char *commit)
{
    repo_view *view = ctx;
    if (!has_config(path)) return;
    bool is_main = view->main != NULL && strcmp(view->main, path) == 0;
    char *name = is_main ? sh_strdup(view->id) : sh_asprintf("%s@%s", view->id, commit);
    entry_add(view->catalog, name, sh_strdup(path), path);
    view->found++;
}

static void repo_add(void *ctx, const char *path, const char *folder)
{
    char *id = sh_cache_repo_id(folder);
    if (id == NULL) return;
    char *main = sh_cache_snapshot(path, "main"), *snapshots = sh_path_join(path, "snapshots");
    repo_view view = {.catalog = ctx, .id = id, .main = main};
    each_folder(snapshots, snapshot_add, &view);
    char *blobs = sh_path_join(path, "blobs");
    if (view.found == 0) entry_add(ctx, sh_strdup(id), NULL, blobs);
    free(blobs);
    free(snapshots);
    free(main);
    free(id);
}

static void folder_add_below(void *ctx, const char *path, const char *folder)
{
    (void)folder;
    if (has_config(path)) entry_add(ctx, sh_strdup(path), sh_strdup(path), path);
}

/* A folder of models: NAME, ORG/NAME, or as in a cache. */
static void folder_add(void *ctx, const char *path, const char *folder)
{
    if (has_config(path))
        folder_add_below(ctx, path, folder);
    else if (strncmp(folder, "models--", 8) == 0)
        repo_add(ctx, path, folder);
    else
        each_folder(path, folder_add_below, ctx);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sh_catalog_entry *)a)->name, ((const sh_catalog_entry *)b)->name);
}

void sh_catalog_init(const sh_store_places *places, sh_catalog *out)
{
    char *caches[SH_STORE_CACHES_MAX];
    *out = (sh_catalog){0};
    if (places->models != NULL) each_folder(places->models, folder_add, out);
    int count = sh_store_caches(places, caches);
    for (int i = 0; i < count; i++) {
        bool seen = false; /* HF_HOME may be where the cache is anyway */
        for (int k = 0; k < i; k++) seen = seen || strcmp(caches[k], caches[i]) == 0;
        if (!seen) each_folder(caches[i], repo_add, out);
    }
    for (int i = 0; i < count; i++) free(caches[i]);
    if (out->count > 0) qsort(out->entries, out->count, sizeof(*out->entries), by_name);
}

void sh_catalog_reset(sh_catalog *catalog)
{
    for (size_t i = 0; i < catalog->count; i++) {
        free(catalog->entries[i].name);
        free(catalog->entries[i].dir);
    }
    free(catalog->entries);
    *catalog = (sh_catalog){0};
}

const char *sh_catalog_similar(const sh_catalog *catalog, const char *name)
{
    const char *near = NULL;
    size_t best = 3;
    for (size_t i = 0; i < catalog->count; i++) {
        size_t distance = sh_str_distance(sh_str_of(name), sh_str_of(catalog->entries[i].name));
        if (distance > 0 && distance < best) {
            best = distance;
            near = catalog->entries[i].name;
        }
    }
    return near;
}

/* ---- removing ---- */

/* A set of names, small enough for a list. */
typedef struct {
    char **names;
    size_t count;
} name_set;

static void set_add(name_set *set, const char *name)
{
    set->names = sh_realloc_array(set->names, set->count + 1, sizeof(*set->names));
    set->names[set->count++] = sh_strdup(name);
}

static bool set_has(const name_set *set, const char *name)
{
    for (size_t i = 0; i < set->count; i++)
        if (strcmp(set->names[i], name) == 0) return true;
    return false;
}

static void set_reset(name_set *set)
{
    for (size_t i = 0; i < set->count; i++) free(set->names[i]);
    free(set->names);
    *set = (name_set){0};
}

/* The last part of a path. */
static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static sh_status link_add(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    (void)err;
    if (!S_ISLNK(st->st_mode)) return SH_OK;
    char *target = realpath(path, NULL);
    if (target != NULL) set_add(ctx, base_of(target));
    free(target);
    return SH_OK;
}

typedef struct {
    const char *commit;
    name_set used;
    size_t others;
    sh_status status;
    sh_err *err;
} snapshot_view;

static void snapshot_scan(void *ctx, const char *path, const char *commit)
{
    snapshot_view *view = ctx;
    if (strcmp(commit, view->commit) == 0) return;
    view->others++;
    if (view->status == SH_OK) view->status = sh_tree_walk(path, link_add, &view->used, view->err);
}

/* The blobs that the other snapshots use; *others is how many of those there are. */
static sh_status blobs_used(const char *repo, const char *commit, name_set *used, size_t *others,
                            sh_err *err)
{
    char *snapshots = sh_path_join(repo, "snapshots");
    snapshot_view view = {.commit = commit, .err = err};
    each_folder(snapshots, snapshot_scan, &view);
    free(snapshots);
    *used = view.used;
    *others = view.others;
    return view.status;
}

typedef struct {
    const name_set *used;
    bool remove;
    int64_t bytes;
} blob_view;

static sh_status blob_drop(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    blob_view *view = ctx;
    if (S_ISDIR(st->st_mode) || set_has(view->used, base_of(path))) return SH_OK;
    view->bytes += st->st_size;
    return view->remove ? sh_tree_remove(path, err) : SH_OK;
}

/* Counts the bytes of blobs that are not used, and removes them if asked to. */
static sh_status blobs_sweep(const char *repo, const name_set *used, bool and_remove,
                             int64_t *bytes, sh_err *err)
{
    char *blobs = sh_path_join(repo, "blobs");
    blob_view view = {.used = used, .remove = and_remove};
    sh_status status = sh_tree_walk(blobs, blob_drop, &view, err);
    free(blobs);
    *bytes = view.bytes;
    return status;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The cache that has the model, or NULL; owned by the caller. */
static char *cache_of(const sh_store_places *places, const char *id)
{
    char *caches[SH_STORE_CACHES_MAX + 1], *found = NULL;
    int count = sh_store_caches(places, caches);
    if (places->models != NULL) caches[count++] = sh_strdup(places->models);
    for (int i = 0; i < count; i++) {
        char *repo = sh_cache_repo(caches[i], id);
        if (found == NULL && is_folder(repo)) found = sh_strdup(caches[i]);
        free(repo);
        free(caches[i]);
    }
    return found;
}

/* With a revision: that snapshot, unless it is the only one. */
static sh_status commit_pick(sh_removal *r, const sh_repo_name *name, sh_err *err)
{
    char commit[SH_REVISION_MAX];
    name_set used = {0};
    size_t others = 0;
    if (!sh_cache_commit(r->repo, name->revision, commit))
        return sh_err_set(err, SH_ERR_NOT_FOUND, "%s has no revision '%s'", r->repo,
                          name->revision);
    sh_status status = blobs_used(r->repo, commit, &used, &others, err);
    if (status == SH_OK && others > 0) {
        r->commit = sh_strdup(commit);
        status = blobs_sweep(r->repo, &used, false, &r->bytes, err);
    }
    set_reset(&used);
    return status;
}

sh_status sh_removal_plan(const char *text, const sh_store_places *places, sh_removal *out,
                          sh_err *err)
{
    sh_repo_name name;
    sh_removal r = {0};
    if (!sh_repo_name_parse(text, &name))
        return sh_err_set(err, SH_ERR_INPUT,
                          "'%s' is not the name of a model in a cache; `shoal models` lists them",
                          text);
    r.cache = cache_of(places, name.id);
    if (r.cache == NULL)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "no cache has the model %s; `shoal models` lists what is here", name.id);
    r.repo = sh_cache_repo(r.cache, name.id);
    r.id = sh_strdup(name.id);
    sh_status status = strchr(text, '@') == NULL ? SH_OK : commit_pick(&r, &name, err);
    if (status == SH_OK && r.commit == NULL) {
        char *blobs = sh_path_join(r.repo, "blobs");
        r.bytes = size_of(blobs);
        free(blobs);
    }
    if (status != SH_OK) {
        sh_removal_reset(&r);
        return status;
    }
    *out = r;
    return SH_OK;
}

/* A download holds the lock of the blob that it writes. */
static sh_status idle_check(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    const sh_removal *r = ctx;
    int fd = -1;
    if (S_ISDIR(st->st_mode)) return SH_OK;
    sh_str name = sh_str_of(base_of(path));
    if (!sh_str_ends(name, SH_STR(".lock"))) return SH_OK;
    char *digest = sh_str_dup(sh_str_sub(name, 0, name.len - 5));
    sh_status status = sh_cache_lock(r->cache, r->id, digest, &fd, err);
    free(digest);
    if (status == SH_AGAIN)
        return sh_err_set(err, SH_ERR_CONFLICT, "%s is being downloaded; stop that first", r->id);
    if (fd >= 0) close(fd);
    return status;
}

static sh_status ref_drop(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    const sh_removal *r = ctx;
    sh_buf text = {0};
    if (S_ISDIR(st->st_mode)) return SH_OK;
    bool same = sh_file_read(path, SH_REVISION_MAX, &text, err) == SH_OK &&
                sh_str_is(sh_str_trim(sh_buf_str(&text)), r->commit);
    sh_buf_reset(&text);
    return same ? sh_tree_remove(path, err) : SH_OK;
}

/* Refs first, then the snapshot, then its blobs: whatever stops it, nothing that is left refers to
 * something that is gone. */
static sh_status snapshot_remove(const sh_removal *r, sh_err *err)
{
    char *refs = sh_path_join(r->repo, "refs");
    char *snapshot = sh_asprintf("%s/snapshots/%s", r->repo, r->commit);
    name_set used = {0};
    size_t others;
    int64_t bytes;
    sh_status status = blobs_used(r->repo, r->commit, &used, &others, err);
    if (status == SH_OK) status = sh_tree_walk(refs, ref_drop, (void *)r, err);
    if (status == SH_OK) status = sh_tree_remove(snapshot, err);
    if (status == SH_OK) status = blobs_sweep(r->repo, &used, true, &bytes, err);
    set_reset(&used);
    free(snapshot);
    free(refs);
    return status;
}

sh_status sh_removal_run(const sh_removal *r, sh_err *err)
{
    char *top = sh_path_join(r->cache, ".locks"), *locks = sh_cache_repo(top, r->id);
    sh_status status = sh_tree_walk(locks, idle_check, (void *)r, err);
    if (status == SH_OK && r->commit != NULL) {
        status = snapshot_remove(r, err);
    } else if (status == SH_OK) {
        status = sh_tree_remove(r->repo, err);
        if (status == SH_OK) status = sh_tree_remove(locks, err);
    }
    free(locks);
    free(top);
    return status;
}

void sh_removal_reset(sh_removal *removal)
{
    free(removal->cache);
    free(removal->repo);
    free(removal->id);
    free(removal->commit);
    *removal = (sh_removal){0};
}
