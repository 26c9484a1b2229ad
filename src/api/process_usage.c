/* Open files are counted through /dev/fd, which both Linux and macOS have. */
#include "api/process_usage.h"

#include "base/system.h"

#include <dirent.h>

static int files_count(void)
{
    DIR *dir = opendir("/dev/fd");
    int count = -3; /* do not count ".", ".." and the descriptor of the folder itself */
    if (dir == NULL) return 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

sh_process_usage sh_process_usage_read(void)
{
    return (sh_process_usage){.open_files = files_count(),
                              .memory_bytes = sh_memory_total(),
                              .memory_free_bytes = sh_memory_available(),
                              .resident_bytes = sh_memory_used(),
                              .cpu_s = sh_cpu_seconds()};
}
