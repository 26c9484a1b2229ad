/* See plugin.h. */
#include "net/plugin.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/system.h"

#include <stdlib.h>
#include <string.h>

char *sh_plugin_find(const char *dir, const char *file)
{
    static const char *const places[] = {"", "/../lib/shoal"};
    char *program = NULL, *found = NULL;
    sh_err ignored;
    if (dir == NULL) {
        if (sh_program_path(&program, &ignored) != SH_OK) return NULL;
        *strrchr(program, '/') = '\0';
        dir = program;
    }
    for (size_t i = 0; i < SH_COUNT_OF(places) && found == NULL; i++) {
        char *path = sh_asprintf("%s%s/%s", dir, places[i], file);
        if (sh_file_exists(path))
            found = path;
        else
            free(path);
    }
    free(program);
    return found;
}
