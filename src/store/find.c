/* Looks a model up by name. The search order is that of sh_store_places; the first hit wins, and
 * every place that had no usable copy goes into the error text. */
#include "store/find.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "store/cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Looks for the name in one cache folder; notes in `looked` where it was not found. */
static char *look_in_cache(const char *cache, const sh_repo_name *name, sh_buf *looked)
{
    char *repo = sh_cache_repo(cache, name->id);
    char *found = sh_cache_snapshot(repo, name->revision);
    if (found == NULL)
        sh_buf_addf(looked, "%s%s%s", looked->len > 0 ? ", " : "", repo,
                    is_folder(repo) ? " (exists, but has no complete snapshot)" : "");
    free(repo);
    return found;
}

/* A folder of models may be laid out as ORG/NAME, as NAME, or like a cache. */
static char *look_in_folder(const char *folder, const sh_repo_name *name, sh_buf *looked)
{
    const char *slash = strrchr(name->id, '/');
    const char *const names[] = {name->id, slash == NULL ? name->id : slash + 1};
    for (size_t i = 0; i < SH_COUNT_OF(names); i++) {
        char *dir = sh_path_join(folder, names[i]);
        char *config = sh_path_join(dir, "config.json");
        bool there = sh_file_exists(config);
        free(config);
        if (there) return dir;
        free(dir);
    }
    return look_in_cache(folder, name, looked);
}

int sh_store_caches(const sh_store_places *places, char *out[SH_STORE_CACHES_MAX])
{
    int count = 0;
    if (places->hub_cache != NULL) out[count++] = sh_strdup(places->hub_cache);
    if (places->hf_home != NULL) out[count++] = sh_path_join(places->hf_home, "hub");
    if (places->user_cache != NULL)
        out[count++] = sh_path_join(places->user_cache, "huggingface/hub");
    if (places->home != NULL) out[count++] = sh_path_join(places->home, ".cache/huggingface/hub");
    return count;
}

/* A file that is here was meant, not a name: GGUF and the like. */
static void file_refuse(const char *name, sh_err *err)
{
    sh_err_set(err, SH_ERR_UNSUPPORTED,
               "%s is a file; a model is a folder with config.json, tokenizer.json and "
               "*.safetensors, or a YAML file that names one",
               name);
}

sh_status sh_store_find(const char *name, const sh_store_places *places, char **out, sh_err *err)
{
    sh_repo_name repo;
    char *found = NULL, *caches[SH_STORE_CACHES_MAX];
    sh_buf looked = {0};
    if (strncmp(name, "~/", 2) == 0 && places->home != NULL)
        found = sh_path_join(places->home, name + 2);
    else if (is_folder(name) || !sh_repo_name_parse(name, &repo))
        found = sh_strdup(name);
    if (found == NULL && places->models != NULL)
        found = look_in_folder(places->models, &repo, &looked);
    bool full = found == NULL && sh_repo_name_is_full(&repo);
    int count = sh_store_caches(places, caches);
    for (int i = 0; i < count; i++) {
        if (found == NULL) found = look_in_cache(caches[i], &repo, &looked);
        free(caches[i]);
    }
    if (found == NULL && is_file(name))
        file_refuse(name, err);
    else if (found == NULL)
        sh_err_set(err, SH_ERR_NOT_FOUND,
                   "model '%s' not found: no such folder, nor in the Hugging Face cache%s%s%s; "
                   "looked for %s",
                   name, full ? " (`shoal pull " : "", full ? name : "",
                   full ? "` downloads it)" : "",
                   looked.len > 0 ? looked.ptr : "nothing else, since HOME is not set");
    sh_buf_reset(&looked);
    if (found == NULL) return err->status;
    *out = found;
    return SH_OK;
}

/* Splits the path of a snapshot into the name of the model's folder, and what follows
 * "/snapshots/". The last "models--" counts: a cache may itself lie below a folder of such a name.
 */
static const char *snapshot_split(const char *dir, sh_str *folder)
{
    const char *repo = strstr(dir, "models--"), *last = NULL;
    for (; repo != NULL; repo = strstr(repo + 1, "models--")) last = repo;
    if (last == NULL || (last > dir && last[-1] != '/')) return NULL;
    const char *end = strstr(last, "/snapshots/");
    if (end == NULL) return NULL;
    *folder = (sh_str){last, (size_t)(end - last)};
    return end + strlen("/snapshots/");
}

char *sh_store_name(const char *dir)
{
    sh_str found;
    if (snapshot_split(dir, &found) == NULL) return NULL;
    char *folder = sh_str_dup(found), *name = sh_cache_repo_id(folder);
    free(folder);
    return name;
}

bool sh_store_origin(const char *dir, sh_repo_name *out)
{
    sh_str folder;
    const char *commit = snapshot_split(dir, &folder);
    char *id = commit == NULL ? NULL : sh_store_name(dir);
    if (id == NULL) return false;
    char *name = sh_asprintf("%s@%.*s", id, (int)strcspn(commit, "/"), commit);
    bool known = sh_repo_name_parse(name, out) && sh_is_hex(out->revision, SH_COMMIT_LEN);
    free(name);
    free(id);
    return known;
}
