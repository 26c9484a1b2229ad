/* Hashes config.json and the headers of all weight files. Headers list every tensor with its shape
 * and offset, and the file sizes catch cut-off downloads, so the weights themselves, which can be
 * hundreds of gigabytes, are not read. Two files that differ only in weights of equal shape are not
 * told apart. */
#include "model/identity.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONFIG_MAX = 16 << 20, HEADER_MAX = 128 << 20, FILES_MAX = 4096 };

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the safetensors files, sorted, since readdir has no order. */
static sh_status files_list(const char *dir, char **names, int *count, sh_err *err)
{
    DIR *d = opendir(dir);
    if (d == NULL) return sh_err_sys(err, "%s", dir);
    for (struct dirent *entry; (entry = readdir(d)) != NULL && *count < FILES_MAX;)
        if (sh_str_ends(sh_str_of(entry->d_name), SH_STR(".safetensors")))
            names[(*count)++] = sh_strdup(entry->d_name);
    closedir(d);
    qsort(names, (size_t)*count, sizeof(*names), compare);
    return SH_OK;
}

static sh_status file_add(const char *dir, const char *name, sh_buf *text, int64_t *bytes,
                          sh_err *err)
{
    char *path = sh_path_join(dir, name);
    struct stat st;
    uint64_t header = 0;
    sh_status status = SH_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) status = sh_err_sys(err, "%s", path);
    if (status == SH_OK) status = sh_fd_read_at(fd, path, 0, &header, sizeof(header), err);
    if (status == SH_OK && header > HEADER_MAX)
        status = sh_err_set(err, SH_ERR_INPUT, "%s: its header claims to be %llu bytes long", path,
                            (unsigned long long)header);
    if (status == SH_OK) {
        sh_buf_addf(text, "\n%s %lld\n", name, (long long)st.st_size);
        status = sh_fd_read_at(fd, path, sizeof(header), sh_buf_reserve(text, (size_t)header),
                               (size_t)header, err);
    }
    if (status == SH_OK) {
        text->len += (size_t)header;
        *bytes += st.st_size;
    }
    if (fd >= 0) close(fd);
    free(path);
    return status;
}

sh_status sh_identity_read(const char *dir, sh_identity *out, sh_err *err)
{
    char **names = sh_alloc_array(FILES_MAX, sizeof(*names));
    char *config = sh_path_join(dir, "config.json");
    int count = 0;
    int64_t bytes = 0;
    sh_buf text = {0};
    sh_status status = sh_file_read(config, CONFIG_MAX, &text, err);
    if (status == SH_OK) status = files_list(dir, names, &count, err);
    for (int i = 0; status == SH_OK && i < count; i++)
        status = file_add(dir, names[i], &text, &bytes, err);
    /* Two hashes under different keys make the 256 bits. */
    if (status == SH_OK) {
        sh_key128 low = sh_hash128((sh_key128){1, 2}, text.ptr, text.len);
        sh_key128 high = sh_hash128((sh_key128){3, 4}, text.ptr, text.len);
        memcpy(out->id, &low, sizeof(low));
        memcpy(out->id + sizeof(low), &high, sizeof(high));
        out->weight_bytes = bytes;
    }
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
    free(config);
    sh_buf_reset(&text);
    return status;
}
