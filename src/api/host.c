#include "api/host.h"

#include "base/buf.h"
#include "base/file.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* The number behind a name in a file such as /proc/meminfo, in bytes. */
static int64_t kib_of(sh_str text, const char *name)
{
    size_t at = sh_str_find(text, sh_str_of(name), 0);
    return at == text.len ? 0 : strtoll(text.ptr + at + strlen(name), NULL, 10) * 1024;
}

static int files_count(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and the folder itself */
    if (dir == NULL) return 0;
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

sh_host sh_host_read(void)
{
    sh_host host = {.open_files = files_count()};
    sh_err ignored;
    sh_buf text = {0};
    if (sh_file_read("/proc/meminfo", 1 << 16, &text, &ignored) == SH_OK) {
        host.memory_bytes = kib_of(sh_buf_str(&text), "MemTotal:");
        host.memory_free_bytes = kib_of(sh_buf_str(&text), "MemAvailable:");
    }
    sh_buf_reset(&text);
    if (sh_file_read("/proc/self/status", 1 << 16, &text, &ignored) == SH_OK)
        host.resident_bytes = kib_of(sh_buf_str(&text), "VmRSS:");
    sh_buf_reset(&text);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        host.cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                     (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    return host;
}
