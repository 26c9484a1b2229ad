#include "store/tree.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH_MAX = 32 };

static sh_status walk(const char *path, int depth, sh_tree_fn fn, void *ctx, sh_err *err)
{
    struct stat st;
    sh_status status = SH_OK;
    if (lstat(path, &st) != 0) return errno == ENOENT ? SH_OK : sh_err_sys(err, "%s", path);
    if (!S_ISDIR(st.st_mode)) return fn(ctx, path, &st, err);
    if (depth == DEPTH_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "%s: folders are nested too deeply", path);
    DIR *d = opendir(path);
    if (d == NULL) return sh_err_sys(err, "%s", path);
    for (struct dirent *e; status == SH_OK && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        char *below = sh_path_join(path, e->d_name);
        status = walk(below, depth + 1, fn, ctx, err);
        free(below);
    }
    closedir(d);
    return status == SH_OK ? fn(ctx, path, &st, err) : status;
}

sh_status sh_tree_walk(const char *path, sh_tree_fn fn, void *ctx, sh_err *err)
{
    return walk(path, 0, fn, ctx, err);
}

static sh_status drop(void *ctx, const char *path, const struct stat *st, sh_err *err)
{
    (void)ctx;
    int rc = S_ISDIR(st->st_mode) ? rmdir(path) : unlink(path);
    return rc == 0 || errno == ENOENT ? SH_OK : sh_err_sys(err, "%s", path);
}

sh_status sh_tree_remove(const char *path, sh_err *err)
{
    return sh_tree_walk(path, drop, NULL, err);
}
