/* Opens the safetensors files of a folder as one set of tensors.
 *
 * Which files belong to a model is decided here, and must not depend on what else lies around in
 * the folder: the index is authoritative, then the single file, and only without either are files
 * matched by name. With an index every entry is verified: a tensor must be in the file that the
 * index names. No tensor may be in two files. A truncated or incomplete download shows up here,
 * before any weights are read.
 *
 * Names of files in the index come from the download. They must be plain names, so that an index
 * cannot make us open files outside the folder.
 *
 * Descriptors stay open for the life of the set and reads are positional, so any number of threads
 * may read at once. */
#include "model/tensors.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_NAME "model.safetensors.index.json"

enum { FILES_MAX = 4096, INDEX_LEN_MAX = 256 << 20, NAME_MAX_LEN = 512 };

typedef struct {
    char *path;
    int fd;
    sh_tensor_list list;
} tensor_file;

struct sh_tensors {
    char *where;
    const sh_window_source *source; /* NULL: the files */
    sh_arena arena;
    tensor_file *files;
    int file_count;
    sh_tensor_list all;
    uint64_t bytes;
};

/* The length is checked against the size of the file before that much is allocated. */
static sh_status read_header(sh_tensors *set, tensor_file *file, sh_err *err)
{
    struct stat st;
    uint8_t prefix[SH_SAFETENSORS_PREFIX];
    sh_buf header = {0};
    size_t len = 0;
    if (fstat(file->fd, &st) != 0) return sh_err_sys(err, "%s", file->path);
    uint64_t size = (uint64_t)st.st_size;
    sh_status status = sh_fd_read_at(file->fd, file->path, 0, prefix, sizeof(prefix), err);
    if (status == SH_OK) status = sh_safetensors_header_len(prefix, size, file->path, &len, err);
    if (status != SH_OK) return status;

    status = sh_fd_read_at(file->fd, file->path, sizeof(prefix), sh_buf_reserve(&header, len), len,
                           err);
    if (status == SH_OK) {
        header.len = len;
        status = sh_safetensors_parse(sh_buf_str(&header), size, file->path, &set->arena,
                                      &file->list, err);
    }
    sh_buf_reset(&header);
    return status;
}

/* Takes ownership of path. file_count is raised first, so that sh_tensors_close frees it on errors.
 */
static sh_status open_file(sh_tensors *set, char *path, sh_err *err)
{
    tensor_file *file = &set->files[set->file_count];
    file->path = path;
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    set->file_count++;
    if (file->fd < 0) return sh_err_sys(err, "%s", path);
    return read_header(set, file, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const sh_stored_tensor *)a)->name, ((const sh_stored_tensor *)b)->name);
}

/* One sorted list over all files; duplicates end up next to each other. */
static sh_status join_lists(sh_tensors *set, sh_err *err)
{
    size_t count = 0;
    for (int i = 0; i < set->file_count; i++) count += set->files[i].list.count;
    set->all.tensors = sh_arena_array(&set->arena, count + 1, sizeof(sh_stored_tensor));
    for (int i = 0; i < set->file_count; i++) {
        const sh_tensor_list *list = &set->files[i].list;
        set->all.mlx = set->all.mlx || list->mlx;
        for (size_t k = 0; k < list->count; k++) {
            sh_stored_tensor *tensor = &set->all.tensors[set->all.count++];
            *tensor = list->tensors[k];
            tensor->file = i;
            set->bytes += tensor->size;
        }
    }
    qsort(set->all.tensors, count, sizeof(sh_stored_tensor), by_name);
    for (size_t k = 1; k < count; k++) {
        const sh_stored_tensor *a = &set->all.tensors[k - 1], *b = &set->all.tensors[k];
        if (strcmp(a->name, b->name) == 0)
            return sh_err_set(err, SH_ERR_INPUT, "tensor '%s' is both in %s and in %s", a->name,
                              set->files[a->file].path, set->files[b->file].path);
    }
    return SH_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

typedef struct {
    char **names;
    size_t count;
} name_list;

static void names_add(name_list *list, const char *name)
{
    list->names = sh_realloc_array(list->names, list->count + 1, sizeof(*list->names));
    list->names[list->count++] = sh_strdup(name);
}

static void names_free(name_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->names[i]);
    free(list->names);
}

/* Sorts and removes duplicates. */
static void names_unique(name_list *list)
{
    size_t kept = 0;
    if (list->count == 0) return;
    qsort(list->names, list->count, sizeof(*list->names), by_text);
    for (size_t i = 1; i < list->count; i++) {
        if (strcmp(list->names[kept], list->names[i]) == 0)
            free(list->names[i]);
        else
            list->names[++kept] = list->names[i];
    }
    list->count = kept + 1;
}

static sh_status open_files(sh_tensors *set, const char *dir, name_list *names, sh_err *err)
{
    names_unique(names);
    if (names->count > FILES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: more than %d weight files", dir, FILES_MAX);
    set->files = sh_alloc_array(names->count + 1, sizeof(*set->files));
    for (size_t i = 0; i < names->count; i++) {
        sh_status status = open_file(set, sh_path_join(dir, names->names[i]), err);
        if (status != SH_OK) return status;
    }
    return join_lists(set, err);
}

/* A plain name inside the folder; anything else could name a file elsewhere. */
static bool plain_name(const char *name)
{
    return name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL &&
           strlen(name) < NAME_MAX_LEN;
}

static sh_status index_names(const cJSON *map, const char *path, name_list *names, sh_err *err)
{
    const char *last = "";
    const cJSON *item = NULL;
    if (!cJSON_IsObject(map))
        return sh_err_set(err, SH_ERR_INPUT, "%s: 'weight_map' must be an object, not %s", path,
                          sh_json_kind(map));
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item) || !plain_name(item->valuestring))
            return sh_err_set(err, SH_ERR_INPUT,
                              "%s: the entry of '%s' must be the name of a file in the folder",
                              path, item->string);
        /* Neighbouring tensors are mostly in one file: this keeps the list short. */
        if (strcmp(last, item->valuestring) != 0) names_add(names, item->valuestring);
        last = item->valuestring;
    }
    return SH_OK;
}

/* Every tensor of the index must be in the file that the index names. */
static sh_status check_index(const sh_tensors *set, const cJSON *map, const char *path, sh_err *err)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, map)
    {
        const sh_stored_tensor *tensor = sh_tensor_list_find(&set->all, item->string);
        const char *file = tensor == NULL ? "" : strrchr(set->files[tensor->file].path, '/') + 1;
        if (strcmp(file, item->valuestring) != 0)
            return sh_err_set(err, SH_ERR_INPUT, "%s: tensor '%s' should be in %s, but is %s%s",
                              path, item->string, item->valuestring,
                              tensor == NULL ? "missing" : "in ", file);
    }
    return SH_OK;
}

static sh_status open_indexed(sh_tensors *set, const char *dir, const char *path, sh_err *err)
{
    cJSON *json = NULL;
    name_list names = {0};
    sh_status status = sh_json_load(path, INDEX_LEN_MAX, &json, err);
    if (status != SH_OK) return status;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(json, "weight_map");
    status = index_names(map, path, &names, err);
    if (status == SH_OK) status = open_files(set, dir, &names, err);
    if (status == SH_OK) status = check_index(set, map, path, err);
    names_free(&names);
    cJSON_Delete(json);
    return status;
}

/* The last resort. The prefix leaves out adapters and other files that are not part of the model.
 */
static sh_status open_globbed(sh_tensors *set, const char *dir, sh_err *err)
{
    name_list names = {0};
    DIR *d = opendir(dir);
    if (d == NULL) return sh_err_sys(err, "%s", dir);
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        sh_str name = sh_str_of(e->d_name);
        if (sh_str_starts(name, SH_STR("model")) && sh_str_ends(name, SH_STR(".safetensors")))
            names_add(&names, e->d_name);
    }
    closedir(d);
    sh_status status = names.count > 0 ? open_files(set, dir, &names, err)
                                       : sh_err_set(err, SH_ERR_NOT_FOUND,
                                                    "%s: no model.safetensors in this folder", dir);
    names_free(&names);
    return status;
}

/* Its files have the right sizes and would be read as zeros. */
static sh_status check_outline(const char *dir, sh_err *err)
{
    char *marker = sh_path_join(dir, SH_TENSORS_OUTLINE);
    bool outline = sh_file_exists(marker);
    free(marker);
    if (!outline) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "%s belongs to a shard cache: it has the headers of a model, not its weights",
                      dir);
}

static sh_status open_folder(sh_tensors *set, const char *dir, sh_err *err)
{
    char *index = sh_path_join(dir, INDEX_NAME);
    char *single = sh_path_join(dir, "model.safetensors");
    sh_status status;
    if (sh_file_exists(index)) {
        status = open_indexed(set, dir, index, err);
    } else if (sh_file_exists(single)) {
        name_list names = {0};
        names_add(&names, "model.safetensors");
        status = open_files(set, dir, &names, err);
        names_free(&names);
    } else {
        status = open_globbed(set, dir, err);
    }
    free(index);
    free(single);
    return status;
}

static sh_status finish_open(sh_tensors *set, sh_status status, sh_tensors **out)
{
    if (status == SH_OK)
        *out = set;
    else
        sh_tensors_close(set);
    return status;
}

sh_status sh_tensors_open_from(const char *dir, const sh_window_source *source, sh_tensors **out,
                               sh_err *err)
{
    sh_tensors *set = sh_alloc(sizeof(*set));
    set->where = sh_strdup(dir);
    set->source = source;
    sh_status status = source == NULL ? check_outline(dir, err) : SH_OK;
    if (status == SH_OK) status = open_folder(set, dir, err);
    return finish_open(set, status, out);
}

sh_status sh_tensors_open(const char *dir, sh_tensors **out, sh_err *err)
{
    return sh_tensors_open_from(dir, NULL, out, err);
}

sh_status sh_tensors_open_file(const char *path, sh_tensors **out, sh_err *err)
{
    sh_tensors *set = sh_alloc(sizeof(*set));
    set->where = sh_strdup(path);
    set->files = sh_alloc_array(1, sizeof(*set->files));
    sh_status status = open_file(set, sh_strdup(path), err);
    if (status == SH_OK) status = join_lists(set, err);
    return finish_open(set, status, out);
}

void sh_tensors_close(sh_tensors *set)
{
    if (set == NULL) return;
    for (int i = 0; i < set->file_count; i++) {
        if (set->files[i].fd >= 0) close(set->files[i].fd);
        free(set->files[i].path);
    }
    free(set->files);
    free(set->where);
    sh_arena_reset(&set->arena);
    free(set);
}

const sh_tensor_list *sh_tensors_list(const sh_tensors *set)
{
    return &set->all;
}

const sh_stored_tensor *sh_tensors_find(const sh_tensors *set, const char *name, ...)
{
    char text[NAME_MAX_LEN];
    va_list args;
    va_start(args, name);
    int len = vsnprintf(text, sizeof(text), name, args);
    va_end(args);
    SH_ASSERT(len > 0 && (size_t)len < sizeof(text));
    return sh_tensor_list_find(&set->all, text);
}

const char *sh_tensors_path(const sh_tensors *set, const sh_stored_tensor *tensor)
{
    return set->files[tensor->file].path;
}

const char *sh_tensors_where(const sh_tensors *set)
{
    return set->where;
}

uint64_t sh_tensors_bytes(const sh_tensors *set)
{
    return set->bytes;
}

sh_status sh_tensors_read_window(const sh_tensors *set, const sh_stored_tensor *tensor,
                                 const sh_window *window, void *data, sh_err *err)
{
    const tensor_file *file = &set->files[tensor->file];
    const sh_window_source *source = set->source;
    sh_window w = *window;
    if (w.rows == 0 || w.len == 0) return SH_OK;
    SH_ASSERT(sh_window_fits(window, tensor->size));
    w.offset += tensor->offset;
    sh_status status = source == NULL
                           ? sh_window_read(file->fd, file->path, &w, data, err)
                           : source->read(source->ctx, strrchr(file->path, '/') + 1, &w, data, err);
    return status == SH_OK ? SH_OK : sh_err_prefix(err, "tensor '%s'", tensor->name);
}

sh_status sh_tensors_read(const sh_tensors *set, const sh_stored_tensor *tensor, uint64_t offset,
                          void *data, size_t len, sh_err *err)
{
    sh_window window = sh_window_range(offset, len);
    return sh_tensors_read_window(set, tensor, &window, data, err);
}
