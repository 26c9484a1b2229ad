/* The state folder is trusted: `launch` and `agent` run programs from it with the settings in it.
 * So each access checks who owns it and who may write to it, on this machine and, by the same rules
 * in shell, on the others. A unit test holds the two versions against each other. */
#include "cluster/state_dir.h"

#include "base/alloc.h"
#include "base/file.h"
#include "cluster/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

enum { STATE_FILE_MAX = 4 << 20 };

/* What `~` means to a shell. HOME is read here directly; it is not a setting of the program. */
static const char *home(void)
{
    const char *dir = getenv("HOME");
    if (dir != NULL && dir[0] == '/') return dir;
    const struct passwd *me = getpwuid(geteuid());
    return me == NULL ? "/" : me->pw_dir;
}

char *sh_state_dir_path(const char *dir)
{
    if (strcmp(dir, "~") == 0) return sh_strdup(home());
    if (strncmp(dir, "~/", 2) == 0) return sh_path_join(home(), dir + 2);
    return sh_path_absolute(dir);
}

/* "~" must be expanded by the other host, so $HOME stays outside the quotes. */
void sh_state_dir_shell_word(const char *dir, sh_buf *out)
{
    if (strncmp(dir, "~/", 2) == 0) {
        sh_buf_add_text(out, "\"$HOME\"/");
        sh_shell_quote(out, sh_str_of(dir + 2));
        return;
    }
    char *path = sh_state_dir_path(dir);
    sh_shell_quote(out, sh_str_of(path));
    free(path);
}

/* One that already exists is not trusted but checked. */
sh_status sh_state_dir_make(const char *path, sh_err *err)
{
    sh_status status = sh_dir_make_private(path, err);
    return status == SH_OK ? sh_state_dir_check(path, err) : status;
}

sh_status sh_state_dir_check(const char *path, sh_err *err)
{
    sh_status status = sh_dir_check_own(path, err);
    return status == SH_OK || status == SH_ERR_NOT_FOUND ? SH_OK
                                                         : sh_err_prefix(err, "the state folder");
}

/* `find "$d/." -prune` tests the folder itself, also where $d is a symbolic link. */
void sh_state_dir_shell_check(sh_buf *out)
{
    sh_buf_add_text(out,
                    "if [ -e \"$d\" ] && { [ ! -O \"$d\" ] || [ -n \"$(find \"$d/.\" -prune "
                    "\\( -perm -020 -o -perm -002 \\))\" ]; }; then\n"
                    "echo \"the state folder $d belongs to another user, or others may write to "
                    "it\" >&2; exit 1; fi\n");
}

sh_status sh_state_dir_write(const char *path, const char *name, sh_str text, sh_err *err)
{
    char *file = sh_path_join(path, name);
    sh_status status = sh_file_write_private(file, text.ptr, text.len, err);
    free(file);
    return status;
}

sh_status sh_state_dir_read(const char *path, const char *name, bool secret, sh_buf *out,
                            sh_err *err)
{
    char *file = sh_path_join(path, name);
    sh_status status = sh_state_dir_check(path, err);
    if (status == SH_OK)
        status = sh_file_read_own(file, secret ? SH_OTHERS_TOUCH : SH_OTHERS_WRITE, STATE_FILE_MAX,
                                  out, err);
    free(file);
    return status;
}

/* flock belongs to the open file, so the kernel releases it when the last process that holds it
 * dies, however it dies. The file itself stays. */
sh_status sh_state_dir_lock(const char *path, const char *name, int *fd, sh_err *err)
{
    char *file = sh_path_join(path, name);
    int lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    sh_status status = lock < 0 ? sh_err_sys(err, "%s", file) : SH_OK;
    if (status == SH_OK && flock(lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK ? SH_AGAIN : sh_err_sys(err, "%s", file);
    free(file);
    if (status != SH_OK && lock >= 0) close(lock);
    if (status == SH_OK) *fd = lock;
    return status;
}

#ifdef __APPLE__
static uint64_t start_read(int64_t pid)
{
    int name[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, (int)pid};
    struct kinfo_proc info;
    size_t len = sizeof(info);
    if (sysctl(name, 4, &info, &len, NULL, 0) != 0 || len == 0) return 0;
    return (uint64_t)info.kp_proc.p_starttime.tv_sec * 1000000u +
           (uint64_t)info.kp_proc.p_starttime.tv_usec;
}
#else
/* The start time is the 22nd field of /proc/PID/stat. The second field, the process name in
 * parentheses, may contain anything, so parsing starts after the last ')'. A zombie counts as gone.
 */
static uint64_t start_read(int64_t pid)
{
    char path[48];
    sh_buf text = {0};
    sh_err err;
    unsigned long long start = 0;
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    if (sh_file_read(path, 4096, &text, &err) == SH_OK) {
        const char *end = strrchr(text.ptr, ')');
        char state = 'Z';
        if (end == NULL || sscanf(end,
                                  ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                                  "%*s %*s %*s %*s %*s %llu",
                                  &state, &start) != 2)
            start = 0;
        if (state == 'Z' || state == 'X') start = 0;
    }
    sh_buf_reset(&text);
    return start;
}
#endif

sh_process sh_process_of(int64_t pid)
{
    sh_process process = {.pid = pid, .start = start_read(pid)};
    sh_boot_id(process.boot);
    return process;
}

/* A reused pid has another start time, or after a reboot another boot id. */
bool sh_process_alive(const sh_process *process)
{
    if (process->pid <= 0 || process->start == 0) return false;
    sh_process now = sh_process_of(process->pid);
    return now.start == process->start && strcmp(now.boot, process->boot) == 0;
}

bool sh_process_signal(const sh_process *process, int number)
{
    return sh_process_alive(process) && kill((pid_t)process->pid, number) == 0;
}

void sh_process_format(const sh_process *process, char out[SH_PROCESS_TEXT_MAX])
{
    snprintf(out, SH_PROCESS_TEXT_MAX, "%lld %llu %s", (long long)process->pid,
             (unsigned long long)process->start, process->boot);
}

bool sh_process_parse(const char *text, sh_process *out)
{
    long long pid;
    unsigned long long start;
    char boot[SH_BOOT_ID_MAX];
    if (sscanf(text, "%lld %llu %39s", &pid, &start, boot) != 3) return false;
    *out = (sh_process){.pid = pid, .start = start};
    memcpy(out->boot, boot, sizeof(boot));
    return true;
}
