#include "store/listing.h"

#include "base/alloc.h"
#include "base/json.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES_MAX = 1 << 20, FILES_MAX = 4096 };
static const int64_t SIZE_MAX_BYTES = INT64_C(1) << 45;

/* What the readers of a model open (model/tensors.c, text/). */
static const char *const NEEDED[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tiktoken.model",
    "qwen.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "chat_templates/*.jinja",
    /* How embeddings are made (model/pooling.c, text/embed_text.c). */
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "[0-9]_*/config.json",
    "[0-9]_Dense/model.safetensors",
    "model.safetensors.index.json",
};

static bool matches(const char *const *patterns, size_t count, const char *path)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(patterns[i], path, FNM_PATHNAME) == 0) return true;
    return false;
}

/* The files that loaders take by default, next to which others are variants or copies. */
static bool is_main_weights(const char *path)
{
    static const char *const names[] = {"model.safetensors", "model-*-of-*.safetensors"};
    return matches(names, SH_COUNT_OF(names), path);
}

static bool is_weights(const char *path)
{
    return fnmatch("*.safetensors", path, FNM_PATHNAME) == 0 &&
           fnmatch("consolidated*", path, FNM_PATHNAME) != 0;
}

/* For a file in git LFS the digest is that of its contents; `blobId` is then the pointer's. */
static sh_status file_read(const cJSON *item, const char *where, sh_hub_file *out, sh_err *err)
{
    const cJSON *lfs = cJSON_GetObjectItemCaseSensitive(item, "lfs");
    bool large = cJSON_IsObject(lfs);
    const char *digest = NULL;
    sh_status status = sh_json_string_required(large ? lfs : item, large ? "sha256" : "blobId",
                                               where, &digest, err);
    if (status == SH_OK)
        status = sh_json_int_required(large ? lfs : item, "size", where, 0, SIZE_MAX_BYTES,
                                      &out->size, err);
    if (status != SH_OK) return status;
    size_t len = large ? SH_BLOB_DIGEST_MAX - 1 : SH_COMMIT_LEN;
    if (!sh_is_hex(digest, len))
        return sh_err_set(err, SH_ERR_INPUT, "%s: '%s' is not a digest of %zu hex digits", where,
                          digest, len);
    strcpy(out->digest, digest);
    return SH_OK;
}

/* One entry of `siblings`. Names that are not needed, and those that are not safe, are skipped
 * without looking at the rest of the entry. */
static sh_status sibling_read(sh_listing *l, const cJSON *item, bool main_weights,
                              const char *where, sh_err *err)
{
    const char *path = NULL;
    sh_hub_file file = {0};
    sh_status status = sh_json_string_required(item, "rfilename", where, &path, err);
    if (status != SH_OK) return status;
    bool needed = matches(NEEDED, SH_COUNT_OF(NEEDED), path) ||
                  (main_weights ? is_main_weights(path) : is_weights(path));
    if (!needed || !sh_file_name_is_safe(path)) return SH_OK;
    if (l->count == FILES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d files of a model", where, FILES_MAX);
    char *place = sh_asprintf("%s: %s", where, path);
    status = file_read(item, place, &file, err);
    free(place);
    if (status != SH_OK) return status;
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return sh_err_set(err, SH_ERR_INPUT, "%s: lists %s twice", where, path);
    file.path = sh_strdup(path);
    l->files[l->count++] = file;
    l->bytes += file.size;
    return SH_OK;
}

/* config.json goes last: a snapshot that has one counts as there. */
static sh_status files_check(sh_listing *l, const char *where, sh_err *err)
{
    bool config = false, weights = false;
    for (size_t i = 0; i < l->count; i++) {
        weights = weights || is_weights(l->files[i].path);
        if (strcmp(l->files[i].path, "config.json") != 0 || config) continue;
        sh_hub_file last = l->files[l->count - 1];
        l->files[l->count - 1] = l->files[i];
        l->files[i] = last;
        config = true;
        weights = weights || is_weights(last.path);
    }
    if (config && weights) return SH_OK;
    return sh_err_set(err, SH_ERR_UNSUPPORTED,
                      "%s: the repository has no %s, so this program cannot "
                      "load it",
                      where, config ? "*.safetensors" : "config.json");
}

static sh_status siblings_read(sh_listing *l, const cJSON *top, const char *where, sh_err *err)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(top, "siblings"), *item;
    bool main_weights = false;
    if (!cJSON_IsArray(list))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'siblings' must be a list of files, not %s",
                          where, sh_json_kind(list));
    cJSON_ArrayForEach(item, list)
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "rfilename");
        main_weights = main_weights || (cJSON_IsString(name) && is_main_weights(name->valuestring));
    }
    l->files = sh_alloc_array(FILES_MAX, sizeof(*l->files));
    sh_status status = SH_OK;
    cJSON_ArrayForEach(item, list)
    {
        if (status == SH_OK) status = sibling_read(l, item, main_weights, where, err);
    }
    return status == SH_OK ? files_check(l, where, err) : status;
}

sh_status sh_listing_parse(sh_str json, const char *where, sh_listing *out, sh_err *err)
{
    sh_listing l = {0};
    cJSON *top = NULL;
    const char *commit = NULL;
    if (sh_json_value_count(json) > VALUES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: the description has more than %d values", where,
                          VALUES_MAX);
    sh_status status = sh_json_parse(json, where, &top, err);
    if (status == SH_OK) status = sh_json_refuse_nul(json, where, err);
    if (status == SH_OK) status = sh_json_string_required(top, "sha", where, &commit, err);
    if (status == SH_OK && !sh_is_hex(commit, SH_COMMIT_LEN))
        status = sh_err_set(err, SH_ERR_INPUT, "%s: 'sha' must be a commit of %d hex digits", where,
                            SH_COMMIT_LEN);
    if (status == SH_OK) strcpy(l.commit, commit);
    if (status == SH_OK) status = siblings_read(&l, top, where, err);
    cJSON_Delete(top);
    if (status != SH_OK) {
        sh_listing_reset(&l);
        return status;
    }
    *out = l;
    return SH_OK;
}

void sh_listing_reset(sh_listing *listing)
{
    for (size_t i = 0; i < listing->count; i++) free(listing->files[i].path);
    free(listing->files);
    *listing = (sh_listing){0};
}
