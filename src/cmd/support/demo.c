/* Finds the demo model, for a program that runs from its build folder or from an installation. */
#include "cmd/support/demo.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

char *sh_demo_find(const char *program)
{
    static const char *const places[] = {"", "/..", "/../..", "/../../..", "/../share/shoal"};
    char *plain = NULL;
    if (sh_file_exists("models/demo/config.json")) return sh_strdup("models/demo");
    char *real = realpath(program, NULL); /* it may be a link into an installation */
    if (real == NULL) return NULL;
    *strrchr(real, '/') = '\0';
    for (size_t i = 0; i < SH_COUNT_OF(places) && plain == NULL; i++) {
        char *path = sh_asprintf("%s%s/models/demo", real, places[i]);
        char *config = sh_path_join(path, "config.json");
        bool there = sh_file_exists(config);
        free(config);
        plain = there ? realpath(path, NULL) : NULL; /* users see it: without the ".." */
        free(path);
    }
    free(real);
    return plain;
}
