/* The portable half: collects what is allowed. sandbox_linux.c enforces it.
 *
 * Rules are always for folders, even where one file is meant: Landlock binds a rule to the inode,
 * so a file that is replaced (a new certificate, a rotated log) would lose access under its old
 * name. */
#include "base/sandbox.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/sandbox_kernel.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { PATHS_BY_NAME = 16 }; /* kept for sh_sandbox_add_file */

static void path_add(char **list, int *count, char *path)
{
    for (int i = 0; i < *count; i++)
        if (strcmp(list[i], path) == 0) {
            free(path);
            return;
        }
    SH_ASSERT(*count < SH_SANDBOX_PATHS_MAX);
    list[(*count)++] = path;
}

/* "a/b" of "a/b/c", "." of "c"; owned by the caller. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return sh_strdup(".");
    return slash == path ? sh_strdup("/") : sh_strndup(path, (size_t)(slash - path));
}

void sh_sandbox_add_file(sh_sandbox *box, const char *path)
{
    if (path == NULL) return;
    path_add(box->read, &box->read_count, folder_of(path));
    char *real = realpath(path, NULL);
    if (real != NULL) path_add(box->read, &box->read_count, folder_of(real));
    free(real);
}

void sh_sandbox_add_folder(sh_sandbox *box, const char *path)
{
    DIR *dir = path == NULL ? NULL : opendir(path);
    if (dir == NULL) return;
    path_add(box->read, &box->read_count, sh_strdup(path));
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        char *file = sh_path_join(path, e->d_name);
        struct stat st;
        /* Model caches hold symlinks into a folder of blobs. Links beyond the limit stay
         * unreadable, so that there is always space for files that are added by name. */
        if (lstat(file, &st) == 0 && S_ISLNK(st.st_mode) &&
            box->read_count < SH_SANDBOX_PATHS_MAX - PATHS_BY_NAME)
            sh_sandbox_add_file(box, file);
        free(file);
    }
    closedir(dir);
}

void sh_sandbox_add_log(sh_sandbox *box, const char *path)
{
    if (path == NULL || path[0] == '\0' || strcmp(path, "-") == 0) return;
    path_add(box->write, &box->write_count, folder_of(path));
}

void sh_sandbox_reset(sh_sandbox *box)
{
    for (int i = 0; i < box->read_count; i++) free(box->read[i]);
    for (int i = 0; i < box->write_count; i++) free(box->write[i]);
    *box = (sh_sandbox){0};
}

void sh_core_dumps_off(bool hide)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none); /* lowering a limit is always permitted */
    if (hide) sh_process_hide();
}
