#include "api/host.h"

#include "base/system.h"

#include <dirent.h>

static int files_count(void)
{
    DIR *dir = opendir("/dev/fd");
    int count = -3; /* ".", ".." and the folder itself */
    if (dir == NULL) return 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

sh_host sh_host_read(void)
{
    return (sh_host){.open_files = files_count(),
                     .memory_bytes = sh_memory_total(),
                     .memory_free_bytes = sh_memory_available(),
                     .resident_bytes = sh_memory_used(),
                     .cpu_s = sh_cpu_seconds()};
}
