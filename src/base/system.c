/* Readings from /proc, /sys and their macOS counterparts. None of them is essential: a file that is
 * missing (a container, another kernel, no permission) gives "unknown" instead of an error, and
 * callers show it as such or fall back to something conservative. */
#include "base/system.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

enum { PROC_MAX = 1 << 16, ZONES_MAX = 16 };

bool sh_pipe(int fd[2])
{
#ifdef __linux__
    return pipe2(fd, O_CLOEXEC) == 0;
#else
    /* Not atomic: a child forked in between inherits an end. Ours close what they do not need. */
    return pipe(fd) == 0 && fcntl(fd[0], F_SETFD, FD_CLOEXEC) == 0 &&
           fcntl(fd[1], F_SETFD, FD_CLOEXEC) == 0;
#endif
}

/* The kernel shows the memory where it put the words of the command line, one after another: what
 * the title does not fill is cleared. `top` shows another name, of 15 characters: the title up to a
 * remark in parentheses, without spaces. */
void sh_process_title(char *const *line, const char *title)
{
#ifdef __linux__
    char name[16];
    char *end = line[0];
    for (char *const *word = line; *word == end; word++) end += strlen(*word) + 1;
    size_t room = (size_t)(end - line[0]), len = strlen(title);
    if (len > room - 1) len = room - 1;
    memset(line[0], 0, room);
    memcpy(line[0], title, len);
    snprintf(name, sizeof(name), "%s", title);
    char *remark = strstr(name, " (");
    if (remark != NULL) *remark = '\0';
    for (char *p = name; *p != '\0'; p++)
        if (*p == ' ') *p = '-';
    prctl(PR_SET_NAME, name);
#else
    (void)line;
    (void)title;
#endif
}

sh_status sh_program_path(char **out, sh_err *err)
{
    char path[PATH_MAX];
#ifdef __APPLE__
    uint32_t size = sizeof(path);
    if (_NSGetExecutablePath(path, &size) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "the program's path is too long");
    char real[PATH_MAX]; /* it may be a link, such as Homebrew's; plugins are near the file */
    if (realpath(path, real) == NULL) return sh_err_sys(err, "%s", path);
    memcpy(path, real, sizeof(path));
#else
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (len < 0) return sh_err_sys(err, "/proc/self/exe");
    path[len] = '\0';
#endif
    *out = sh_strdup(path);
    return SH_OK;
}

void sh_boot_id(char out[SH_BOOT_ID_MAX])
{
    char text[SH_BOOT_ID_MAX] = "";
#ifdef __APPLE__
    size_t len = sizeof(text) - 1;
    if (sysctlbyname("kern.bootsessionuuid", text, &len, NULL, 0) != 0) text[0] = '\0';
#else
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL && fgets(text, sizeof(text), file) == NULL) text[0] = '\0';
    if (file != NULL) fclose(file);
#endif
    text[strcspn(text, "\n")] = '\0';
    snprintf(out, SH_BOOT_ID_MAX, "%s", text[0] == '\0' ? "-" : text);
}

/* The value in kilobytes after "name" in a file of /proc, as bytes; 0 if there is none. */
static int64_t proc_kilobytes(const char *path, const char *name)
{
    sh_buf text = {0};
    sh_err err;
    int64_t bytes = 0;
    if (sh_file_read(path, PROC_MAX, &text, &err) == SH_OK) {
        const char *at = strstr(text.ptr, name);
        if (at != NULL) bytes = strtoll(at + strlen(name), NULL, 10) * 1024;
    }
    sh_buf_reset(&text);
    return bytes;
}

/* A file with one number, as cgroups have; 0 if it is missing or says "max". */
static int64_t file_number(const char *path)
{
    sh_buf text = {0};
    sh_err err;
    int64_t value = 0;
    if (sh_file_read(path, PROC_MAX, &text, &err) == SH_OK && text.len > 0)
        value = strtoll(text.ptr, NULL, 10);
    sh_buf_reset(&text);
    return value;
}

/* Inside a container this is its limit, if cgroup v2 is mounted at the usual place. */
int64_t sh_memory_total(void)
{
    int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    int64_t limit = file_number("/sys/fs/cgroup/memory.max");
    return limit > 0 && limit < total ? limit : total;
}

#ifdef __APPLE__

/* What can be reclaimed without paging out: free pages, and those that only cache files. */
int64_t sh_memory_available(void)
{
    vm_statistics64_data_t vm;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &count) !=
        KERN_SUCCESS)
        return sh_memory_total() / 2;
    return ((int64_t)vm.free_count + vm.inactive_count + vm.purgeable_count) *
           sysconf(_SC_PAGESIZE);
}

int64_t sh_memory_used(void)
{
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &count) !=
        KERN_SUCCESS)
        return 0;
    return (int64_t)info.resident_size;
}

#else

/* Inside a container MemAvailable is that of the whole machine: take the lower of the two. Where
 * neither is known, half of the memory is a guess on the safe side. */
int64_t sh_memory_available(void)
{
    int64_t free = proc_kilobytes("/proc/meminfo", "MemAvailable:");
    int64_t limit = file_number("/sys/fs/cgroup/memory.max");
    if (limit > 0) {
        int64_t left = limit - file_number("/sys/fs/cgroup/memory.current");
        if (left < free) free = left < 0 ? 0 : left;
    }
    return free > 0 ? free : sh_memory_total() / 2;
}

int64_t sh_memory_used(void)
{
    return proc_kilobytes("/proc/self/status", "VmRSS:");
}

#endif

int64_t sh_memory_peak(void)
{
    int64_t peak = proc_kilobytes("/proc/self/status", "VmHWM:");
    if (peak > 0) return peak;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage); /* ru_maxrss is in bytes on macOS, in kilobytes elsewhere */
#ifdef __APPLE__
    return usage.ru_maxrss;
#else
    return usage.ru_maxrss * 1024;
#endif
}

/* The hottest of the thermal zones. */
double sh_temperature_c(void)
{
    double hottest = NAN;
    for (int zone = 0; zone < ZONES_MAX; zone++) {
        char path[64];
        snprintf(path, sizeof(path), "/sys/class/thermal/thermal_zone%d/temp", zone);
        int64_t milli = file_number(path);
        if (milli > 0 && !((double)milli / 1000 < hottest)) hottest = (double)milli / 1000;
    }
    return hottest;
}

double sh_power_w(void)
{
    /* Shared by all callers: a second caller only shortens the interval of the mean. */
    static atomic_llong last_uj, last_ns;
    int64_t energy = file_number("/sys/class/powercap/intel-rapl:0/energy_uj"), now = sh_clock_ns();
    int64_t before = atomic_exchange(&last_uj, energy),
            since = now - atomic_exchange(&last_ns, now);
    /* The counter wraps around, and only root may read it on most systems. */
    if (energy <= 0 || before <= 0 || energy < before || since <= 0) return NAN;
    return (double)(energy - before) * 1e3 / (double)since;
}

double sh_cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}
