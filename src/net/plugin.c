/* See plugin.h. */
#include "net/plugin.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static char *folder_of(const char *path)
{
    const char *end = strrchr(path, '/');
    return end == NULL ? NULL : sh_strndup(path, (size_t)(end - path));
}

static char *program_folder(void)
{
    char *program = NULL;
    sh_err ignored;
    if (sh_program_path(&program, &ignored) != SH_OK) return NULL;
    char *folder = folder_of(program);
    free(program);
    return folder;
}

/* Of the file that has this code: the shared library, or the program once more. */
static char *library_folder(void)
{
    static const char here;
    Dl_info info;
    return dladdr(&here, &info) == 0 || info.dli_fname == NULL ? NULL : folder_of(info.dli_fname);
}

static char *find_below(const char *dir, const char *file)
{
    static const char *const places[] = {"", "/../lib/shoal", "/shoal"};
    for (size_t i = 0; i < SH_COUNT_OF(places) && dir != NULL; i++) {
        char *path = sh_asprintf("%s%s/%s", dir, places[i], file);
        if (sh_file_exists(path)) return path;
        free(path);
    }
    return NULL;
}

char *sh_plugin_find(const char *dir, const char *file)
{
    if (dir != NULL) return find_below(dir, file);
    char *program = program_folder(), *library = library_folder();
    char *found = find_below(program, file);
    if (found == NULL) found = find_below(library, file);
    free(program);
    free(library);
    return found;
}
