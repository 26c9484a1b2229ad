/* One loop polls everything: signals, exits, output, tethers. Polling every 50 ms is enough here (a
 * restart takes far longer) and keeps the supervisor free of threads, so that fork is safe.
 *
 * The decision after an exit is in child_gone: final or restart, by the rules of the child's
 * policy. Stopping is in children_stop and always runs to its end: ask, ask again, kill. */
#include "cluster/children.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/system.h"
#include "cluster/notify.h"

#include <errno.h>
#include <fcntl.h>
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

enum {
    POLL_MS = 50,
    EARLY_MS = 5000,    /* an error exit before this would only be repeated */
    QUICK_RESTARTS = 3, /* without a pause */
    PAUSE_FIRST_MS = 500,
    PAUSE_MAX_MS = 10000, /* it doubles up to this, unless the child came up */
    HEALTHY_MS = 60000,   /* running this long makes the next restarts quick again */
    TRIES = 3,            /* to come up for the first time */
    LINE_MAX_LEN = 8192,
    REASON_MAX = 1024,
    KEEP_MAX = 16,
    HURRY_MS = 1000, /* between the second request to stop and SIGKILL */
    HEARTBEAT_MS = 5000,
    SILENCE_MS = 60000,
    RENEW_MS = 30000, /* for a rank to end when it is to be renewed */
};

/* What a policy consists of. */
struct rules {
    bool restarts;
    bool early_errors_final; /* error exits in the first seconds, before it came up */
    bool errors_final;       /* all error exits before it came up */
    bool reports;            /* through SHOAL_READY_FD that it came up */
    bool beats;              /* and there, every moment, that it lives */
    bool few_tries;          /* the number of tries to come up is limited */
    bool awaits_peers;       /* and tries that ended for want of peers are not counted */
    bool reloads;            /* gets SIGHUP */
    bool renews_itself;      /* is a supervisor, which stays and renews its own children */
    bool exit_stops_all;
    bool fails_alone; /* even its final failure is no reason to stop the others */
};

static const struct rules RULES[] = {
    [SH_CHILD_TASK] = {0},
    [SH_CHILD_SERVICE] = {.restarts = true,
                          .early_errors_final = true,
                          .reports = true,
                          .reloads = true},
    [SH_CHILD_LOCAL_RANK] = {.restarts = true,
                             .early_errors_final = true,
                             .reports = true,
                             .beats = true,
                             .few_tries = true},
    [SH_CHILD_RANK] = {.restarts = true,
                       .early_errors_final = true,
                       .reports = true,
                       .beats = true,
                       .few_tries = true,
                       .awaits_peers = true},
    [SH_CHILD_MODEL_RANK] = {.restarts = true,
                             .errors_final = true,
                             .reports = true,
                             .beats = true,
                             .few_tries = true,
                             .fails_alone = true},
    [SH_CHILD_OBSERVED_RANK] = {.restarts = true,
                                .errors_final = true,
                                .reports = true,
                                .beats = true,
                                .renews_itself = true},
    [SH_CHILD_AGENT] = {.restarts = true,
                        .errors_final = true,
                        .renews_itself = true,
                        .exit_stops_all = true},
    [SH_CHILD_MEMBER_AGENT] = {.restarts = true, .errors_final = true, .renews_itself = true},
    [SH_CHILD_ADDED_AGENT] = {.restarts = true,
                              .errors_final = true,
                              .renews_itself = true,
                              .fails_alone = true},
};

struct child {
    char *name;
    char **argv, **env;
    const struct rules *rules;
    bool tether, capture, no_input;
    int keep_fds[KEEP_MAX]; /* ends with 0 */
    pid_t pid;              /* 0: not running */
    bool ended;             /* and will not be restarted */
    bool ready;             /* has come up at least once */
    bool up;                /* has come up since it was started last */
    bool renewed;           /* was asked to end, to be started again */
    sh_deadline end_by;     /* once it was asked to end, alone */
    bool dismissed;         /* was stopped alone: its place is free once it has ended */
    pid_t old;              /* the process that this one replaces, while it finishes; or 0 */
    bool handed_over;       /* and has been told to */
    int tries;              /* starts that ended, except those that only waited for peers */
    int input;              /* our end of the tether, or -1 */
    int report_fd;          /* our end of SHOAL_READY_FD, or -1 */
    int64_t started_ns;
    int restarts;      /* since it last ran for HEALTHY_MS */
    int64_t silent_ms; /* since its last beat; -1: it has not begun to beat */
    int loaded;        /* percent of its model; -1: it has not begun to load */
    sh_deadline restart_at;
    int output; /* pipe of its stdout and stderr, or -1 */
    sh_buf line;
    sh_buf reason;  /* what it said about its failure */
    bool in_reason; /* and is still saying */
};

struct sh_children {
    struct child *list;
    int count;
    int last; /* the child that was added last */
    sigset_t signals, before;
    int code; /* of the first final failure */
    int64_t linger_ms;
    int64_t frozen_ms; /* a child that is silent for so long is killed; 0: never */
    int64_t polled_ns;
    sh_deadline give_up_at; /* once one has failed for good, or an agent has exited */
    bool standing;          /* goes on without children */
    bool patient;           /* the first request to stop is only passed on */
    bool asked;             /* and has been: what ends now is not started again */
    bool stopping, agent_exited;
    bool services_due; /* to be renewed */
    sh_children_hooks hooks;
    sh_notify notify;
    bool ready_when_alive;    /* for the service manager */
    sh_deadline heartbeat_at; /* when to write to the tethers next */
    int tether;               /* holds this process; or -1 */
    sh_deadline tether_silent_at;
    sh_buf told; /* what has arrived of a line of text */
    bool telling;
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
    sigaddset(&c->signals, SIGUSR1);
    sigaddset(&c->signals, SIGUSR2);
    sigaddset(&c->signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &c->signals, &c->before);
    c->tether = c->notify.fd = -1;
    c->polled_ns = sh_clock_ns();
    return c;
}

void sh_children_set_hooks(sh_children *c, const sh_children_hooks *hooks)
{
    c->hooks = *hooks;
}

void sh_children_set_tether(sh_children *c, int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    c->tether = fd;
    c->tether_silent_at = sh_deadline_in_ms(SILENCE_MS);
}

void sh_children_ready(sh_children *c, int idx)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    c->list[idx].ready = c->list[idx].up = true;
}

/* Runs in the new process, before exec: async-signal-safe calls only (and putenv, which is safe
 * while the parent has one thread). */
static void child_exec(const sh_children *c, const struct child *child, pid_t parent,
                       const int pipes[3][2], char *ready_env)
{
    static char served_env[] = "SHOAL_SERVED=1";
    setpgid(0, 0);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
#else
    (void)parent;
#endif
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    signal(SIGPIPE, SIG_DFL);
    int input = child->no_input ? open("/dev/null", O_RDONLY) : pipes[0][0];
    if (input >= 0) dup2(input, STDIN_FILENO);
    if (child->no_input) close(input);
    if (pipes[1][1] >= 0) {
        dup2(pipes[1][1], STDOUT_FILENO);
        dup2(pipes[1][1], STDERR_FILENO);
    }
    for (const int *fd = child->keep_fds; *fd > STDERR_FILENO; fd++) fcntl(*fd, F_SETFD, 0);
    if (pipes[2][1] >= 0) fcntl(pipes[2][1], F_SETFD, 0);
    if (pipes[2][1] >= 0) putenv(ready_env);
    if (child->ready) putenv(served_env);
    for (char **env = child->env; *env != NULL; env++)
        if (strchr(*env, '=') != NULL)
            putenv(*env);
        else
            unsetenv(*env);
    execvp(child->argv[0], child->argv);
    _exit(127);
}

static void fd_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static sh_status child_start(sh_children *c, struct child *child, sh_err *err)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}}; /* stdin, output, readiness */
    char ready_env[32];
    bool piped = (!child->tether || sh_pipe(pipes[0])) && (!child->capture || sh_pipe(pipes[1])) &&
                 (!child->rules->reports || sh_pipe(pipes[2]));
    snprintf(ready_env, sizeof(ready_env), "SHOAL_READY_FD=%d", pipes[2][1]);
    pid_t parent = getpid(), pid = piped ? fork() : -1;
    if (pid == 0) child_exec(c, child, parent, (const int(*)[2])pipes, ready_env);
    if (pid < 0) sh_err_sys(err, "start %s", child->name);
    fd_close(&pipes[0][0]);
    fd_close(&pipes[1][1]);
    fd_close(&pipes[2][1]);
    if (pid < 0) {
        fd_close(&pipes[0][1]);
        fd_close(&pipes[1][0]);
        fd_close(&pipes[2][0]);
        return err->status;
    }
    setpgid(pid, pid); /* the child does the same: either may run first */
    if (child->tether) fcntl(pipes[0][1], F_SETFL, O_NONBLOCK);
    if (child->capture) fcntl(pipes[1][0], F_SETFL, O_NONBLOCK);
    if (child->rules->reports) fcntl(pipes[2][0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->input = pipes[0][1];
    child->output = pipes[1][0];
    child->report_fd = pipes[2][0];
    child->started_ns = sh_clock_ns();
    child->up = child->renewed = child->in_reason = false;
    child->silent_ms = child->loaded = -1;
    sh_buf_clear(&child->reason);
    if (c->hooks.started != NULL) c->hooks.started(c->hooks.arg, (int)(child - c->list), pid);
    return SH_OK;
}

static void child_reset(struct child *child)
{
    free(child->name);
    strings_free(child->argv);
    strings_free(child->env);
    sh_buf_reset(&child->line);
    sh_buf_reset(&child->reason);
}

/* A place for a new child: that of one that was stopped alone, or one at the end. */
static struct child *place_take(sh_children *c)
{
    for (c->last = 0; c->last < c->count; c->last++) {
        struct child *child = &c->list[c->last];
        if (!child->dismissed || !child->ended) continue;
        child_reset(child);
        return child;
    }
    c->list = sh_realloc_array(c->list, (size_t)c->count + 1, sizeof(*c->list));
    return &c->list[c->count++];
}

int sh_children_last(const sh_children *c)
{
    return c->last;
}

sh_status sh_children_add(sh_children *c, const sh_child_spec *spec, sh_err *err)
{
    struct child *child = place_take(c);
    *child = (struct child){.name = sh_strdup(spec->name),
                            .argv = strings_copy(spec->argv),
                            .env = strings_copy(spec->env),
                            .rules = &RULES[spec->policy],
                            .tether = spec->tether,
                            .capture = spec->capture,
                            .no_input = spec->no_input,
                            .input = -1,
                            .report_fd = -1,
                            .output = -1};
    for (int i = 0; spec->keep_fds != NULL && spec->keep_fds[i] > 0 && i < KEEP_MAX - 1; i++)
        child->keep_fds[i] = spec->keep_fds[i];
    sh_status status = child_start(c, child, err);
    if (status != SH_OK) child->ended = true;
    return status;
}

static void line_show(const sh_children *c, const struct child *child, sh_str line)
{
    sh_buf out = {0};
    if (c->hooks.line != NULL) {
        c->hooks.line(c->hooks.arg, (int)(child - c->list), line);
        return;
    }
    sh_buf_addf(&out, "[%s] ", child->name);
    /* Log lines of a rank already carry its name. */
    if (sh_str_find(line, sh_buf_str(&out), 0) < line.len) sh_buf_clear(&out);
    sh_buf_add_str(&out, line);
    sh_buf_add_char(&out, '\n');
    ssize_t put = write(STDERR_FILENO, out.ptr, out.len);
    (void)put;
    sh_buf_reset(&out);
}

/* Passes on whole lines; one that never ends is cut. */
static void output_pump(const sh_children *c, struct child *child, bool last)
{
    for (;;) {
        char *to = sh_buf_reserve(&child->line, LINE_MAX_LEN);
        ssize_t got = child->output < 0 ? 0 : read(child->output, to, LINE_MAX_LEN);
        if (got > 0) child->line.len += (size_t)got;
        size_t end;
        while ((end = sh_str_find(sh_buf_str(&child->line), SH_STR("\n"), 0)) < child->line.len) {
            line_show(c, child, (sh_str){child->line.ptr, end});
            sh_buf_drop_front(&child->line, end + 1);
        }
        if (child->line.len > LINE_MAX_LEN || (last && got <= 0 && child->line.len > 0)) {
            line_show(c, child, sh_buf_str(&child->line));
            sh_buf_clear(&child->line);
        }
        if (got <= 0) return;
    }
}

static void report_take(struct child *child, unsigned char byte)
{
    if (child->in_reason && byte != '\n' && child->reason.len < REASON_MAX)
        sh_buf_add_char(&child->reason, (char)byte);
    else if (child->in_reason)
        child->in_reason = byte != '\n';
    else if (byte == 'E')
        child->in_reason = true;
    else if (byte == 'R')
        child->ready = child->up = true;
    else if ((byte & SH_CHILD_LOADED) != 0)
        child->loaded = byte & ~SH_CHILD_LOADED;
}

/* Reads what the child reports: an 'R' when it has come up, a '.' as a sign of life, a percentage
 * while it loads, an 'E' with a line about why it fails. Silence counts only while this process
 * runs itself: after the machine slept, all children seem silent. */
static void report_poll(struct child *child, int64_t passed_ms)
{
    char bytes[REASON_MAX];
    ssize_t got = child->report_fd < 0 ? 0 : read(child->report_fd, bytes, sizeof(bytes));
    if (got <= 0 && child->silent_ms >= 0)
        child->silent_ms += passed_ms < 4 * POLL_MS ? passed_ms : 4 * POLL_MS;
    if (got <= 0) return;
    child->silent_ms = 0;
    for (ssize_t i = 0; i < got; i++) report_take(child, (unsigned char)bytes[i]);
}

/* Kills a child that was stopped or swapped out: its group has given it up long ago, but would wait
 * for it without end. */
static void freeze_check(const sh_children *c, struct child *child)
{
    if (!child->rules->beats || c->frozen_ms == 0 || child->silent_ms < c->frozen_ms) return;
    SH_LOGW("%s has shown no sign of life for %.0f s: ending it", child->name,
            (double)child->silent_ms / 1000);
    child->silent_ms = -1;
    kill(-child->pid, SIGKILL);
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

static bool is_out_of_tries(const struct child *child)
{
    return child->rules->few_tries && !child->ready && child->tries == TRIES;
}

/* Ended in a way that a restart would only repeat. Death by a signal is never that: it may have
 * come from outside. */
static bool would_repeat(const struct child *child, int wait_status, int64_t ran_ms)
{
    if (child->ready) return false;
    if (is_out_of_tries(child)) return true;
    bool early = child->rules->early_errors_final && ran_ms < EARLY_MS;
    return WIFEXITED(wait_status) && (child->rules->errors_final || early);
}

static void child_failed(sh_children *c, const struct child *child, int wait_status,
                         const char *how)
{
    int code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    const char *tried = is_out_of_tries(child) ? "; giving up: it did not come up in three tries"
                                               : "";
    if (c->hooks.line == NULL) SH_LOGE("%s %s%s", child->name, how, tried);
    if (c->code != 0 || child->rules->fails_alone) return;
    c->give_up_at = sh_deadline_in_ms(c->linger_ms);
    c->code = code;
}

/* The pause before the next start. Whoever was killed from outside should be back at once; only a
 * child that does not even come up is given longer and longer. */
static int64_t restart_pause(const struct child *child)
{
    if (child->restarts <= QUICK_RESTARTS) return 0;
    int64_t pause = PAUSE_FIRST_MS;
    for (int i = QUICK_RESTARTS + 1; i < child->restarts && pause < PAUSE_MAX_MS; i++) pause *= 2;
    return child->up ? PAUSE_FIRST_MS : pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS;
}

static void child_restart_later(sh_children *c, struct child *child, int64_t ran_ms,
                                const char *how)
{
    child->restarts = ran_ms > HEALTHY_MS ? 1 : child->restarts + 1;
    int64_t pause = restart_pause(child);
    child->restart_at = sh_deadline_in_ms(pause);
    if (c->hooks.line != NULL) return;
    if (pause == 0)
        SH_LOGW("%s %s; restarting", child->name, how);
    else
        SH_LOGW("%s %s; restarting in %.1f s", child->name, how, (double)pause / 1000);
}

/* The new process has ended before it served: the old one stays. */
static bool service_fall_back(struct child *child, const char *how)
{
    if (child->old == 0 || child->handed_over || child->up) return false;
    SH_LOGE("the new %s %s; the old one stays", child->name, how);
    child->pid = child->old;
    child->old = 0;
    child->up = true;
    return true;
}

/* A child has exited: decides between a restart and the end. */
static void child_gone(sh_children *c, struct child *child, int wait_status)
{
    char how[64];
    output_pump(c, child, true);
    report_poll(child, 0);
    fd_close(&child->output);
    fd_close(&child->input);
    fd_close(&child->report_fd);
    child->pid = 0;
    bool waited = child->rules->awaits_peers && WIFEXITED(wait_status) &&
                  WEXITSTATUS(wait_status) == SH_CHILD_EXIT_PEERS_MISSING;
    if (!waited && !child->renewed) child->tries++;
    int64_t ran_ms = (sh_clock_ns() - child->started_ns) / 1000000;
    /* Asked before it could do more about it than end. */
    bool obeyed = c->asked && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGTERM;
    bool ended_well = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
    bool clean = (ended_well || obeyed) && !child->renewed;
    bool repeats = !child->renewed && would_repeat(child, wait_status, ran_ms);
    end_text(wait_status, how, sizeof(how));
    if (child->reason.len == 0) sh_buf_add_text(&child->reason, how);
    if (service_fall_back(child, how)) return;
    child->ended = c->stopping || (c->asked && !child->renewed) || clean || child->dismissed ||
                   !child->rules->restarts || repeats;
    if (child->rules->exit_stops_all && clean && !c->agent_exited) {
        c->agent_exited = true;
        c->give_up_at = sh_deadline_in_ms(c->linger_ms);
    }
    if (!child->ended && child->renewed)
        child->restart_at = 0;
    else if (!child->ended)
        child_restart_later(c, child, ran_ms, how);
    else if (!c->stopping && !clean && !child->dismissed)
        child_failed(c, child, wait_status, how);
    if (c->hooks.ended != NULL)
        c->hooks.ended(c->hooks.arg, (int)(child - c->list), how, !child->ended);
}

static void tether_write(const struct child *child, char order)
{
    if (child->input >= 0 && write(child->input, &order, 1) < 0 && errno != EAGAIN)
        SH_LOGD("%s: its tether is broken", child->name);
}

/* A rank ends and starts again, a supervisor sees to its own children. A rank that cannot join a
 * group a second time (MPI) stays as it is. */
void sh_children_renew(sh_children *c, int idx)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    struct child *child = &c->list[idx];
    if (child->pid == 0 || child->rules->reloads) return;
    if (!child->rules->restarts) {
        SH_LOGW("%s cannot be renewed", child->name);
    } else if (child->rules->renews_itself && child->tether) {
        tether_write(child, SH_TETHER_RENEW);
    } else if (child->rules->renews_itself) {
        kill(child->pid, SIGUSR2);
    } else {
        SH_LOGI("renewing %s", child->name);
        kill(child->pid, SIGUSR2);
        child->renewed = true;
        child->end_by = sh_deadline_in_ms(RENEW_MS);
    }
}

/* SIGUSR2: replaces every process by a new one. */
static void children_renew(sh_children *c)
{
    for (int i = 0; i < c->count; i++) sh_children_renew(c, i);
    c->services_due = true;
}

static bool ranks_up(const sh_children *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].rules->beats && !c->list[i].ended && (c->list[i].renewed || !c->list[i].up))
            return false;
    return true;
}

/* Starts the process that will replace a service. The old one goes on beside it: services_hand_over
 * ends it once the new one serves, service_fall_back when that has failed. */
static void service_renew(sh_children *c, struct child *child)
{
    sh_err err;
    SH_LOGI("renewing %s", child->name);
    fd_close(&child->report_fd);
    child->old = child->pid;
    child->handed_over = false;
    if (child_start(c, child, &err) == SH_OK) return;
    SH_LOGE("%s", err.text);
    child->pid = child->old;
    child->old = 0;
}

/* Services follow the ranks: until those are back, the old process accepts requests and holds them.
 * One whose predecessor is still busy has to wait for its end. */
static void services_renew(sh_children *c)
{
    if (!c->services_due || c->stopping || !ranks_up(c)) return;
    c->services_due = false;
    for (int i = 0; i < c->count; i++) {
        struct child *child = &c->list[i];
        if (child->pid == 0 || !child->rules->reloads) continue;
        if (child->old == 0)
            service_renew(c, child);
        else
            c->services_due = true;
    }
}

static void services_hand_over(sh_children *c)
{
    for (int i = 0; i < c->count; i++) {
        struct child *child = &c->list[i];
        if (child->old == 0 || child->handed_over || !child->up) continue;
        child->handed_over = true;
        kill(child->old, SIGUSR2);
    }
}

static void children_poll(sh_children *c)
{
    int64_t now = sh_clock_ns(), passed_ms = (now - c->polled_ns) / 1000000;
    c->polled_ns = now;
    services_renew(c);
    services_hand_over(c);
    for (int i = 0; i < c->count; i++) {
        struct child *child = &c->list[i];
        int wait_status;
        if (child->old != 0 && waitpid(child->old, &wait_status, WNOHANG) == child->old)
            child->old = 0;
        if (child->pid != 0) {
            output_pump(c, child, false);
            report_poll(child, passed_ms);
            freeze_check(c, child);
            if ((child->renewed || child->dismissed) && sh_deadline_passed(child->end_by))
                kill(-child->pid, SIGKILL);
            if (waitpid(child->pid, &wait_status, WNOHANG) == child->pid)
                child_gone(c, child, wait_status);
        }
        if (child->pid == 0 && !child->ended && !c->stopping &&
            sh_deadline_passed(child->restart_at)) {
            sh_err err;
            if (child_start(c, child, &err) != SH_OK) {
                SH_LOGE("%s", err.text);
                child->restart_at = sh_deadline_in_ms(PAUSE_MAX_MS);
            }
        }
    }
}

static int alive(const sh_children *c, bool or_waiting)
{
    int count = 0;
    for (int i = 0; i < c->count; i++)
        count += c->list[i].pid != 0 || c->list[i].old != 0 || (or_waiting && !c->list[i].ended);
    return count;
}

static void signal_all(const sh_children *c, int number)
{
    for (int i = 0; i < c->count; i++) {
        if (c->list[i].pid != 0) kill(-c->list[i].pid, number);
        if (c->list[i].old != 0) kill(-c->list[i].old, number);
    }
}

static void ask(pid_t pid)
{
    kill(-pid, SIGTERM);
    kill(-pid, SIGCONT); /* a stopped process would never see SIGTERM */
}

/* Asks all to stop, the last one first: it may depend on those before it. */
static void ask_all(const sh_children *c)
{
    for (int i = c->count - 1; i >= 0; i--) {
        const struct child *child = &c->list[i];
        if (child->old != 0) ask(child->old);
        if (child->pid == 0) continue;
        if (child->tether)
            tether_write(child, SH_TETHER_STOP);
        else
            ask(child->pid);
    }
}

void sh_children_stop(sh_children *c, int idx, int64_t grace_ms)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    struct child *child = &c->list[idx];
    child->dismissed = true;
    child->end_by = sh_deadline_in_ms(grace_ms);
    if (child->pid == 0)
        child->ended = true;
    else
        ask(child->pid);
}

sh_child_state sh_children_state(const sh_children *c, int idx)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    const struct child *child = &c->list[idx];
    if (child->ended && child->pid == 0) return SH_CHILD_GONE;
    return child->up && child->pid != 0 ? SH_CHILD_UP : SH_CHILD_STARTING;
}

const char *sh_children_reason(const sh_children *c, int idx)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    return c->list[idx].reason.len == 0 ? "" : c->list[idx].reason.ptr;
}

bool sh_children_ask_to_leave(sh_children *c, int idx)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    struct child *child = &c->list[idx];
    if (child->pid == 0)
        child->ended = true;
    else if (child->tether)
        tether_write(child, SH_TETHER_LEAVE);
    else
        kill(child->pid, SIGUSR1);
    return child->pid != 0;
}

/* In one write, which a pipe takes whole or not at all: no other order can come in between. */
void sh_children_tell(sh_children *c, int idx, sh_str text)
{
    SH_ASSERT(idx >= 0 && idx < c->count);
    sh_buf line = {0};
    sh_buf_add_char(&line, SH_TETHER_TELL);
    for (size_t i = 0; i < text.len && i < SH_TETHER_TEXT_MAX; i++)
        sh_buf_add_char(&line, text.ptr[i] == '\n' ? ' ' : text.ptr[i]);
    sh_buf_add_char(&line, '\n');
    if (c->list[idx].input >= 0 && write(c->list[idx].input, line.ptr, line.len) < 0)
        SH_LOGW("%s: it does not read its tether", c->list[idx].name);
    sh_buf_reset(&line);
}

static void told_take(sh_children *c, char byte)
{
    c->telling = byte != '\n';
    if (c->telling && c->told.len < SH_TETHER_TEXT_MAX) sh_buf_add_char(&c->told, byte);
    if (c->telling) return;
    if (c->hooks.told != NULL) c->hooks.told(c->hooks.arg, sh_buf_str(&c->told));
    sh_buf_clear(&c->told);
}

static void tethers_heartbeat(sh_children *c)
{
    if (!sh_deadline_passed(c->heartbeat_at)) return;
    c->heartbeat_at = sh_deadline_in_ms(HEARTBEAT_MS);
    for (int i = 0; i < c->count; i++) {
        ssize_t put = c->list[i].input < 0 ? 0 : write(c->list[i].input, ".", 1);
        (void)put; /* a full or broken pipe: that process is about to exit anyway */
    }
}

/* The signal that stands for what the tether asks for, one order at a time; 0: nothing. That it was
 * closed, or silent for too long, is a request to stop. */
static int tether_order(sh_children *c)
{
    char order;
    while (c->tether >= 0) {
        ssize_t got = read(c->tether, &order, 1);
        if (got < 0 && errno == EAGAIN) break;
        if (got <= 0) {
            c->tether = -1;
            return SIGTERM;
        }
        c->tether_silent_at = sh_deadline_in_ms(SILENCE_MS);
        if (c->telling) {
            told_take(c, order);
            continue;
        }
        c->telling = order == SH_TETHER_TELL;
        if (order == SH_TETHER_STOP) return SIGTERM;
        if (order == SH_TETHER_RENEW) return SIGUSR2;
        if (order == SH_TETHER_LEAVE) return SIGUSR1;
    }
    if (c->tether < 0 || !sh_deadline_passed(c->tether_silent_at)) return 0;
    c->tether = -1;
    return SIGTERM;
}

static bool is_up(const sh_children *c, const struct child *child)
{
    if (child->ended || !child->rules->reports) return true;
    return child->up || (c->ready_when_alive && child->silent_ms >= 0);
}

static void child_describe(const struct child *child, char *out, size_t cap)
{
    if (child->loaded >= 0)
        snprintf(out, cap, "%s: loading the model, %d %%", child->name, child->loaded);
    else
        snprintf(out, cap, "%s: %s", child->name, child->restarts > 0 ? "restarting" : "starting");
}

/* The state of all children, by the first that is not up. */
static void state_notify(sh_children *c)
{
    sh_notify_state state = {.ready = true, .stopping = c->stopping, .text = "ready"};
    for (int i = c->count - 1; i >= 0; i--) {
        state.ready = state.ready && is_up(c, &c->list[i]);
        if (!c->list[i].up && c->list[i].rules->reports && !c->list[i].ended)
            child_describe(&c->list[i], state.text, sizeof(state.text));
    }
    if (c->asked) snprintf(state.text, sizeof(state.text), "leaving the group");
    if (c->stopping)
        snprintf(state.text, sizeof(state.text), "draining: finishing running requests");
    sh_notify_send(&c->notify, &state);
}

/* The next signal that asks for something, or 0 after POLL_MS. The exit of a child (SIGCHLD) ends
 * the wait early. */
static int signal_wait(sh_children *c)
{
    struct timespec wait = {.tv_nsec = (long)POLL_MS * 1000000};
#ifdef __APPLE__
    nanosleep(&wait, NULL);
    sigset_t pending;
    int number = 0;
    if (sigpending(&pending) == 0 &&
        (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM) ||
         sigismember(&pending, SIGHUP) || sigismember(&pending, SIGUSR1) ||
         sigismember(&pending, SIGUSR2)))
        sigwait(&c->signals, &number);
#else
    siginfo_t info;
    int number = sigtimedwait(&c->signals, &info, &wait);
    /* SIGHUP from a process means reload; from the kernel, that the terminal was closed. */
    if (number == SIGHUP && info.si_code == SI_KERNEL) number = SIGTERM;
#endif
    tethers_heartbeat(c);
    state_notify(c);
    int order = tether_order(c);
    if (order != 0) return order;
    return number > 0 && number != SIGCHLD ? number : 0;
}

static void wait_for_all(sh_children *c, int64_t wait_ms)
{
    sh_deadline end = sh_deadline_in_ms(wait_ms);
    while (alive(c, false) > 0 && !sh_deadline_passed(end)) {
        int number = signal_wait(c);
        children_poll(c);
        if (number == SIGINT || number == SIGTERM)
            break; /* the second request: do not wait any longer */
    }
}

/* Asks, asks again (a nested supervisor then stops waiting for its own children), and kills. */
static void children_stop(sh_children *c, int64_t grace_ms)
{
    c->stopping = true;
    ask_all(c);
    wait_for_all(c, grace_ms);
    ask_all(c);
    for (int i = 0; i < c->count; i++) fd_close(&c->list[i].input);
    wait_for_all(c, HURRY_MS);
    signal_all(c, SIGKILL);
    for (int i = 0; i < c->count; i++) {
        int wait_status;
        if (c->list[i].old != 0) waitpid(c->list[i].old, &wait_status, 0);
        c->list[i].old = 0;
        if (c->list[i].pid == 0) continue;
        if (waitpid(c->list[i].pid, &wait_status, 0) == c->list[i].pid)
            child_gone(c, &c->list[i], wait_status);
    }
}

/* SIGHUP reloads where there is a service; elsewhere it asks to stop. */
static bool reload_passed_on(const sh_children *c)
{
    bool passed = false;
    for (int i = 0; i < c->count; i++) {
        const struct child *child = &c->list[i];
        if (child->rules->reloads && child->pid != 0) kill(child->pid, SIGHUP);
        if (child->rules->reloads && child->old != 0) kill(child->old, SIGHUP);
        passed = passed || child->rules->reloads;
    }
    return passed;
}

/* Passes the first request to stop on, and leaves it to the children what follows. */
static void children_ask(sh_children *c)
{
    c->asked = true;
    ask_all(c);
    for (int i = 0; i < c->count; i++)
        if (c->list[i].pid == 0) c->list[i].ended = true;
}

/* SIGUSR1: asks the ranks to leave. */
static void ranks_ask_to_leave(sh_children *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].rules->beats) sh_children_ask_to_leave(c, i);
}

/* Obeys a signal. False: it asks to stop. */
static bool signal_obeyed(sh_children *c, int number)
{
    bool own = number == SIGUSR1 || number == SIGUSR2;
    if (own && c->hooks.signalled != NULL)
        c->hooks.signalled(c->hooks.arg, number);
    else if (number == SIGUSR1)
        ranks_ask_to_leave(c);
    else if (number == SIGUSR2)
        children_renew(c);
    if (number == 0 || own) return true;
    if (number == SIGHUP && reload_passed_on(c)) return true;
    if (!c->patient || c->asked) return false;
    children_ask(c);
    return true;
}

int sh_children_run(sh_children *c, int64_t grace_ms)
{
    int stopped_by = 0;
    while ((c->standing || alive(c, true) > 0) &&
           ((c->code == 0 && !c->agent_exited) || !sh_deadline_passed(c->give_up_at))) {
        int number = signal_wait(c);
        if (!signal_obeyed(c, number)) {
            stopped_by = number;
            break;
        }
        children_poll(c);
        if (c->hooks.polled != NULL) c->hooks.polled(c->hooks.arg);
    }
    children_stop(c, grace_ms);
    return c->code != 0 ? c->code : stopped_by == SIGINT ? 130 : 0;
}

void sh_children_set_frozen(sh_children *c, int64_t frozen_ms)
{
    c->frozen_ms = frozen_ms;
}

void sh_children_give_up(sh_children *c, int code)
{
    c->code = code;
    c->give_up_at = sh_deadline_in_ms(0);
}

void sh_children_set_standing(sh_children *c)
{
    c->standing = true;
}

void sh_children_set_notify(sh_children *c, bool ready_when_alive)
{
    sh_notify_open(&c->notify);
    c->ready_when_alive = ready_when_alive;
}

void sh_children_set_patient(sh_children *c)
{
    c->patient = true;
}

void sh_children_set_linger(sh_children *c, int64_t linger_ms)
{
    c->linger_ms = linger_ms;
}

void sh_children_free(sh_children *c)
{
    if (c == NULL) return;
    children_stop(c, 0);
    for (int i = 0; i < c->count; i++) child_reset(&c->list[i]);
    free(c->list);
    sh_notify_close(&c->notify);
    sigprocmask(SIG_SETMASK, &c->before, NULL);
    sh_buf_reset(&c->told);
    free(c);
}
