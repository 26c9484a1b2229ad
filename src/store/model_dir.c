#include "store/model_dir.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_model(const char *path)
{
    char *config = sh_path_join(path, "config.json");
    bool is = sh_file_exists(config);
    free(config);
    return is;
}

static sh_status scan(const char *dir, const char *org, sh_model_dir *out, sh_err *err);

static sh_status entry_take(const char *dir, const char *org, const char *name, sh_model_dir *out,
                            sh_err *err)
{
    sh_status status = SH_OK;
    char *path = sh_path_join(dir, name);
    if (is_folder(path) && is_model(path)) {
        out->names = sh_realloc_array(out->names, out->count + 1, sizeof(*out->names));
        out->names[out->count++] = org == NULL ? sh_strdup(name) : sh_path_join(org, name);
        if (out->count > SH_MODEL_DIR_MAX)
            status = sh_err_set(err, SH_ERR_LIMIT, "%s has more than %d models", dir,
                                SH_MODEL_DIR_MAX);
    } else if (org == NULL && is_folder(path)) {
        status = scan(path, name, out, err);
    }
    free(path);
    return status;
}

static sh_status scan(const char *dir, const char *org, sh_model_dir *out, sh_err *err)
{
    DIR *folder = opendir(dir);
    sh_status status = SH_OK;
    if (folder == NULL) /* one that cannot be read further down has no models */
        return org == NULL ? sh_err_sys(err, "%s", dir) : SH_OK;
    const struct dirent *entry;
    while (status == SH_OK && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.') status = entry_take(dir, org, entry->d_name, out, err);
    closedir(folder);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

sh_status sh_model_dir_read(const char *dir, sh_model_dir *out, sh_err *err)
{
    *out = (sh_model_dir){0};
    sh_status status = scan(dir, NULL, out, err);
    if (status != SH_OK) sh_model_dir_reset(out);
    if (out->count > 0) qsort(out->names, out->count, sizeof(*out->names), by_name);
    return status;
}

void sh_model_dir_reset(sh_model_dir *found)
{
    for (size_t i = 0; i < found->count; i++) free(found->names[i]);
    free(found->names);
    *found = (sh_model_dir){0};
}
