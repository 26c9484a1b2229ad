#include "cluster/children.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

enum {
    LOOK_MS = 50,    /* how often children are looked at */
    EARLY_MS = 5000, /* an error before this is not a crash but a mistake */
    BACKOFF_FIRST_MS = 500,
    BACKOFF_MAX_MS = 10000,
    HEALTHY_MS = 60000, /* running this long forgives earlier crashes */
    LINE_MAX_LEN = 8192,
};

struct child {
    char *name;
    char **argv, **env;
    bool restart, prefix;
    int keep_fd;
    pid_t pid;  /* 0: not running */
    bool ended; /* for good */
    int64_t started_ns;
    int64_t backoff_ms;
    sh_deadline restart_at;
    int output; /* pipe of its stdout and stderr, or -1 */
    sh_buf line;
};

struct sh_children {
    struct child *list;
    int count;
    sigset_t signals, before;
    int code; /* of the first that failed */
    int64_t linger_ms;
    sh_deadline give_up_at; /* once one has failed */
    bool stopping;
};

static char **strings_copy(char *const *list)
{
    size_t count = 0;
    while (list != NULL && list[count] != NULL) count++;
    char **copy = sh_alloc_array(count + 1, sizeof(char *));
    for (size_t i = 0; i < count; i++) copy[i] = sh_strdup(list[i]);
    return copy;
}

static void strings_free(char **list)
{
    for (char **p = list; p != NULL && *p != NULL; p++) free(*p);
    free(list);
}

sh_children *sh_children_create(void)
{
    sh_children *c = sh_alloc(sizeof(*c));
    sigemptyset(&c->signals);
    sigaddset(&c->signals, SIGINT);
    sigaddset(&c->signals, SIGTERM);
    sigaddset(&c->signals, SIGHUP);
    sigaddset(&c->signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &c->signals, &c->before);
    return c;
}

/* In the new process, before exec: only what may be called there. */
static void child_exec(const sh_children *c, const struct child *child, pid_t parent, int output)
{
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
#else
    (void)parent;
#endif
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    if (output >= 0) {
        dup2(output, STDOUT_FILENO);
        dup2(output, STDERR_FILENO);
    }
    if (child->keep_fd > STDERR_FILENO) fcntl(child->keep_fd, F_SETFD, 0);
    for (char **env = child->env; *env != NULL; env++) putenv(*env);
    execv(child->argv[0], child->argv);
    _exit(127);
}

static sh_status child_start(sh_children *c, struct child *child, sh_err *err)
{
    int pipes[2] = {-1, -1};
    if (child->prefix && pipe2(pipes, O_CLOEXEC) < 0)
        return sh_err_sys(err, "pipe for %s", child->name);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) child_exec(c, child, parent, pipes[1]);
    if (pipes[1] >= 0) close(pipes[1]);
    if (pid < 0) {
        if (pipes[0] >= 0) close(pipes[0]);
        return sh_err_sys(err, "start %s", child->name);
    }
    setpgid(pid, pid); /* as the child does: whoever is first */
    if (pipes[0] >= 0) fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->output = pipes[0];
    child->started_ns = sh_clock_ns();
    return SH_OK;
}

sh_status sh_children_add(sh_children *c, const sh_child_spec *spec, sh_err *err)
{
    c->list = sh_realloc_array(c->list, (size_t)c->count + 1, sizeof(*c->list));
    struct child *child = &c->list[c->count++];
    *child = (struct child){.name = sh_strdup(spec->name),
                            .argv = strings_copy(spec->argv),
                            .env = strings_copy(spec->env),
                            .restart = spec->restart,
                            .prefix = spec->prefix,
                            .keep_fd = spec->keep_fd,
                            .output = -1};
    sh_status status = child_start(c, child, err);
    if (status != SH_OK) child->ended = true;
    return status;
}

static void line_show(const struct child *child, sh_str line)
{
    sh_buf out = {0};
    sh_buf_addf(&out, "[%s] ", child->name);
    sh_buf_add_str(&out, line);
    sh_buf_add_char(&out, '\n');
    ssize_t put = write(STDERR_FILENO, out.ptr, out.len);
    (void)put;
    sh_buf_reset(&out);
}

/* Passes on whole lines; an endless one is cut. */
static void output_pump(struct child *child, bool last)
{
    for (;;) {
        char *to = sh_buf_reserve(&child->line, LINE_MAX_LEN);
        ssize_t got = child->output < 0 ? 0 : read(child->output, to, LINE_MAX_LEN);
        if (got > 0) child->line.len += (size_t)got;
        size_t end;
        while ((end = sh_str_find(sh_buf_str(&child->line), SH_STR("\n"), 0)) < child->line.len) {
            line_show(child, (sh_str){child->line.ptr, end});
            sh_buf_drop_front(&child->line, end + 1);
        }
        if (child->line.len > LINE_MAX_LEN || (last && got <= 0 && child->line.len > 0)) {
            line_show(child, sh_buf_str(&child->line));
            sh_buf_clear(&child->line);
        }
        if (got <= 0) return;
    }
}

static const char *end_text(int wait_status, char *out, size_t cap)
{
    if (WIFSIGNALED(wait_status))
        snprintf(out, cap, "was killed by signal %d", WTERMSIG(wait_status));
    else if (WEXITSTATUS(wait_status) == 127)
        snprintf(out, cap, "could not be run");
    else
        snprintf(out, cap, "ended with code %d", WEXITSTATUS(wait_status));
    return out;
}

/* A child is gone: again, or for good. */
static void child_gone(sh_children *c, struct child *child, int wait_status)
{
    char text[64];
    output_pump(child, true);
    if (child->output >= 0) close(child->output);
    child->output = -1;
    child->pid = 0;
    int64_t ran_ms = (sh_clock_ns() - child->started_ns) / 1000000;
    bool clean = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    bool mistake = WIFEXITED(wait_status) && ran_ms < EARLY_MS;
    end_text(wait_status, text, sizeof(text));
    if (c->stopping || clean || !child->restart || mistake) {
        child->ended = true;
        int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
        if (!c->stopping && !clean) {
            SH_LOGE("%s %s", child->name, text);
            if (c->code == 0) c->give_up_at = sh_deadline_in_ms(c->linger_ms);
            if (c->code == 0) c->code = code;
        }
        return;
    }
    if (ran_ms > HEALTHY_MS) child->backoff_ms = 0;
    child->backoff_ms = child->backoff_ms == 0 ? BACKOFF_FIRST_MS : child->backoff_ms * 2;
    if (child->backoff_ms > BACKOFF_MAX_MS) child->backoff_ms = BACKOFF_MAX_MS;
    child->restart_at = sh_deadline_in_ms(child->backoff_ms);
    SH_LOGW("%s %s; it is started again in %.1f s", child->name, text,
            (double)child->backoff_ms / 1000);
}

static void children_look(sh_children *c)
{
    for (int i = 0; i < c->count; i++) {
        struct child *child = &c->list[i];
        int wait_status;
        if (child->pid != 0) {
            output_pump(child, false);
            if (waitpid(child->pid, &wait_status, WNOHANG) == child->pid)
                child_gone(c, child, wait_status);
        } else if (!child->ended && !c->stopping && sh_deadline_passed(child->restart_at)) {
            sh_err err;
            if (child_start(c, child, &err) != SH_OK) {
                SH_LOGE("%s", err.text);
                child->restart_at = sh_deadline_in_ms(BACKOFF_MAX_MS);
            }
        }
    }
}

static int alive(const sh_children *c, bool or_waiting)
{
    int count = 0;
    for (int i = 0; i < c->count; i++)
        count += c->list[i].pid != 0 || (or_waiting && !c->list[i].ended);
    return count;
}

static void signal_all(const sh_children *c, int number)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].pid != 0) kill(-c->list[i].pid, number);
}

/* A signal for this process, or 0 when none came in a while; a child that ends, or says something,
 * ends the wait. */
static int signal_wait(sh_children *c)
{
    struct timespec wait = {.tv_nsec = (long)LOOK_MS * 1000000};
#ifdef __APPLE__
    nanosleep(&wait, NULL);
    sigset_t pending;
    int number = 0;
    if (sigpending(&pending) == 0 &&
        (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) ||
         sigismember(&pending, SIGHUP)))
        sigwait(&c->signals, &number);
#else
    int number = sigtimedwait(&c->signals, NULL, &wait);
#endif
    return number > 0 && number != SIGCHLD ? number : 0;
}

static void children_stop(sh_children *c, int64_t grace_ms)
{
    c->stopping = true;
    signal_all(c, SIGTERM);
    sh_deadline end = sh_deadline_in_ms(grace_ms);
    while (alive(c, false) > 0 && !sh_deadline_passed(end)) {
        int number = signal_wait(c);
        children_look(c);
        if (number == SIGINT || number == SIGTERM) break; /* asked twice: now */
    }
    signal_all(c, SIGKILL);
    for (int i = 0; i < c->count; i++) {
        int wait_status;
        if (c->list[i].pid == 0) continue;
        if (waitpid(c->list[i].pid, &wait_status, 0) == c->list[i].pid)
            child_gone(c, &c->list[i], wait_status);
    }
}

int sh_children_run(sh_children *c, int64_t grace_ms)
{
    int number = 0;
    while (alive(c, true) > 0 && (c->code == 0 || !sh_deadline_passed(c->give_up_at))) {
        number = signal_wait(c);
        if (number == SIGHUP)
            signal_all(c, SIGHUP);
        else if (number != 0)
            break;
        children_look(c);
    }
    children_stop(c, grace_ms);
    return c->code != 0 ? c->code : number == SIGINT ? 130 : 0;
}

void sh_children_set_linger(sh_children *c, int64_t linger_ms)
{
    c->linger_ms = linger_ms;
}

void sh_children_free(sh_children *c)
{
    if (c == NULL) return;
    children_stop(c, 0);
    for (int i = 0; i < c->count; i++) {
        free(c->list[i].name);
        strings_free(c->list[i].argv);
        strings_free(c->list[i].env);
        sh_buf_reset(&c->list[i].line);
    }
    free(c->list);
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    free(c);
}

sh_status sh_program_path(char **out, sh_err *err)
{
    char path[PATH_MAX];
#ifdef __APPLE__
    uint32_t size = sizeof(path);
    if (_NSGetExecutablePath(path, &size) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "the program's path is too long");
#else
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (len < 0) return sh_err_sys(err, "/proc/self/exe");
    path[len] = '\0';
#endif
    *out = sh_strdup(path);
    return SH_OK;
}
