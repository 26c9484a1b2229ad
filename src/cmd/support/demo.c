/* Finds the demo model, for a program that runs from its build folder or from an installation. */
#include "cmd/support/demo.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdlib.h>

char *sh_demo_find(const char *program)
{
    static const char *const places[] = {"", "/..", "/../..", "/../../..", "/../share/shoal"};
    if (sh_file_exists("models/demo/config.json")) return sh_strdup("models/demo");
    sh_str dir = sh_str_of(program);
    while (dir.len > 0 && dir.ptr[dir.len - 1] != '/') dir.len--;
    for (size_t i = 0; i < SH_COUNT_OF(places); i++) {
        char *path = sh_asprintf("%.*s%s/models/demo", (int)dir.len, dir.ptr, places[i]);
        char *config = sh_path_join(path, "config.json");
        bool there = sh_file_exists(config);
        free(config);
        char *plain = there ? realpath(path, NULL) : NULL; /* users see it: without the ".." */
        free(path);
        if (plain != NULL) return plain;
    }
    return NULL;
}
