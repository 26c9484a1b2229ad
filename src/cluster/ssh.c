/* Parallel jobs over ssh. Each job is a child process in its own process group, with three pipes;
 * one loop feeds and drains all pipes without blocking, so that no host can hold up another.
 *
 * A job ends when its process ends, not when its pipes close: a process that it leaves in the
 * background may keep them open. Killing is done by process group for the same reason. What runs on
 * the other host is not killed directly; it notices that the connection has closed. */
#include "cluster/ssh.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/system.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CONNECT_S = 5,
    LIMIT_MS = 60000,
    OUTPUT_MAX = 1 << 20,
    POLL_MS = 100, /* how often to check `cancel` and for ended processes */
    READ_LEN = 1 << 16,
    HOST_MAX = 256,
};

/* One job while it runs. */
struct running {
    sh_ssh_job *job;
    pid_t pid; /* 0: ended, or never started */
    int in, out, errors;
    size_t sent;
};

/* Single quotes protect everything but a single quote, which becomes '\'' (close, escape, open). */
void sh_shell_quote(sh_buf *out, sh_str word)
{
    sh_buf_add_char(out, '\'');
    for (size_t i = 0; i < word.len; i++) {
        if (word.ptr[i] == '\'')
            sh_buf_add_text(out, "'\\''");
        else
            sh_buf_add_char(out, word.ptr[i]);
    }
    sh_buf_add_char(out, '\'');
}

static void argv_add(char ***argv, size_t *count, char *word)
{
    *argv = sh_realloc_array(*argv, *count + 2, sizeof(char *));
    (*argv)[(*count)++] = word;
    (*argv)[*count] = NULL;
}

/* ServerAlive makes ssh notice a dead network after 15 s. "--" keeps a host name from being read as
 * an option. ssh joins its arguments into one string for the login shell, whatever that is, so the
 * command is quoted once more and handed to /bin/sh. */
char **sh_ssh_argv(const sh_ssh_opts *opts, const char *host, const char *command)
{
    char **argv = NULL;
    size_t count = 0;
    if (host == NULL) {
        const char *const words[] = {"/bin/sh", "-c", command};
        for (size_t i = 0; i < SH_COUNT_OF(words); i++)
            argv_add(&argv, &count, sh_strdup(words[i]));
        return argv;
    }
    const char *const words[] = {"ssh", "-T",
                                 "-o",  "BatchMode=yes",
                                 "-o",  "ServerAliveInterval=5",
                                 "-o",  "ServerAliveCountMax=3",
                                 "-o",  "LogLevel=ERROR"};
    for (size_t i = 0; i < SH_COUNT_OF(words); i++) argv_add(&argv, &count, sh_strdup(words[i]));
    sh_str rest = sh_str_of(opts->options), word;
    while (sh_str_cut(&rest, ' ', &word))
        if (word.len > 0) argv_add(&argv, &count, sh_str_dup(word));
    /* After the user's options: if a setting is given twice, ssh uses the first. */
    argv_add(&argv, &count, sh_strdup("-o"));
    argv_add(&argv, &count,
             sh_asprintf("ConnectTimeout=%d", opts->connect_s > 0 ? opts->connect_s : CONNECT_S));
    argv_add(&argv, &count, sh_strdup("--"));
    argv_add(&argv, &count, sh_strdup(host));
    sh_buf script = {0};
    sh_buf_add_text(&script, "exec /bin/sh -c ");
    sh_shell_quote(&script, sh_str_of(command));
    argv_add(&argv, &count, sh_buf_take(&script));
    return argv;
}

void sh_ssh_argv_free(char **argv)
{
    for (char **p = argv; p != NULL && *p != NULL; p++) free(*p);
    free(argv);
}

static const char *host_name(const sh_ssh_job *job)
{
    return job->host == NULL ? "localhost" : job->host;
}

static void pipe_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Runs in the child between fork and exec: only async-signal-safe calls. */
static void job_exec(char **argv, const int in[2], const int out[2], const int errors[2])
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(errors[1], STDERR_FILENO);
    execvp(argv[0], argv);
    _exit(127);
}

/* setpgid is called in the parent and in the child, so that the group exists whichever runs first.
 */
static sh_status job_start(struct running *r, const sh_ssh_opts *opts)
{
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    sh_ssh_job *job = r->job;
    char **argv = sh_ssh_argv(opts, job->host, job->command);
    sh_status status = SH_OK;
    for (int i = 0; i < 3 && status == SH_OK; i++)
        if (!sh_pipe(pipes[i])) status = sh_err_sys(&job->err, "pipe");
    pid_t pid = status == SH_OK ? fork() : -1;
    if (pid == 0) job_exec(argv, pipes[0], pipes[1], pipes[2]);
    if (pid < 0 && status == SH_OK) status = sh_err_sys(&job->err, "start %s", argv[0]);
    sh_ssh_argv_free(argv);
    pipe_close(&pipes[0][0]);
    pipe_close(&pipes[1][1]);
    pipe_close(&pipes[2][1]);
    r->in = pipes[0][1];
    r->out = pipes[1][0];
    r->errors = pipes[2][0];
    if (status != SH_OK) return status;
    setpgid(pid, pid);
    r->pid = pid;
    const int ours[] = {r->in, r->out, r->errors};
    for (size_t i = 0; i < SH_COUNT_OF(ours); i++) fcntl(ours[i], F_SETFL, O_NONBLOCK);
    return SH_OK;
}

/* Kills the local process group; what it started on another host ends with its connection. */
static void job_kill(struct running *r)
{
    int wait_status;
    if (r->pid == 0) return;
    kill(-r->pid, SIGKILL);
    waitpid(r->pid, &wait_status, 0);
    r->pid = 0;
}

static void job_give_up(struct running *r, sh_status status, const char *why)
{
    sh_ssh_job *job = r->job;
    if (r->pid == 0) return;
    job_kill(r);
    job->status = sh_err_set(&job->err, status, "host %s: %s", host_name(job), why);
}

/* Feeds stdin as far as the pipe takes it, and closes it at the end: the command waits for that. */
static void pump_in(struct running *r)
{
    const sh_str *input = &r->job->input;
    while (r->in >= 0 && r->sent < input->len) {
        ssize_t put = write(r->in, input->ptr + r->sent, input->len - r->sent);
        if (put < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (put < 0) break; /* the command stopped reading; its exit code will say why */
        r->sent += (size_t)put;
    }
    pipe_close(&r->in);
}

/* Drains a pipe. Bounded, because the other host may send without end. */
static void pump_out(struct running *r, int *fd, sh_buf *to)
{
    size_t max = r->job->output_max > 0 ? r->job->output_max : OUTPUT_MAX;
    while (*fd >= 0) {
        ssize_t got = read(*fd, sh_buf_reserve(to, READ_LEN), READ_LEN);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) {
            pipe_close(fd);
            return;
        }
        to->len += (size_t)got;
        to->ptr[to->len] = '\0';
        if (to->len > max) job_give_up(r, SH_ERR_LIMIT, "the command printed too much");
        if (r->pid == 0) return;
    }
}

/* The last non-empty line: where ssh and shells put the reason. */
static sh_str last_line(const sh_buf *text)
{
    sh_str rest = sh_str_trim(sh_buf_str(text)), line, last = {0};
    while (sh_str_cut(&rest, '\n', &line))
        if (sh_str_trim(line).len > 0) last = sh_str_trim(line);
    return last;
}

static bool says(const sh_buf *text, const char *part)
{
    return sh_str_find(sh_buf_str(text), sh_str_of(part), 0) < text->len;
}

/* ssh reports its own failures with code 255; the cause is only in its English messages. */
static sh_status connect_error(sh_ssh_job *job, sh_str line)
{
    const char *what = "ssh could not connect";
    sh_status status = SH_ERR_PEER;
    if (says(&job->errors, "Permission denied")) {
        what = "the key was refused (shoal never prompts for a password: see ssh-copy-id)";
        status = SH_ERR_AUTH;
    } else if (says(&job->errors, "Host key verification failed") ||
               says(&job->errors, "REMOTE HOST IDENTIFICATION HAS CHANGED")) {
        what = "its host key is unknown or has changed (connect once by hand)";
        status = SH_ERR_AUTH;
    }
    return sh_err_set(&job->err, status, "host %s: %s: %.*s", host_name(job), what, (int)line.len,
                      line.ptr);
}

/* 255 from a local command has no special meaning; 127 is the shell's code for a missing command.
 */
static sh_status end_status(sh_ssh_job *job, int wait_status)
{
    sh_str line = last_line(&job->errors);
    job->code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
    if (job->code == 0) return SH_OK;
    if (job->code == 255 && job->host != NULL) return connect_error(job, line);
    if (job->code == 127)
        return sh_err_set(&job->err, SH_ERR_NOT_FOUND, "host %s: command not found: %.*s",
                          host_name(job), (int)line.len, line.ptr);
    return sh_err_set(&job->err, SH_ERR_INPUT, "host %s: the command ended with code %d%s%.*s",
                      host_name(job), job->code, line.len > 0 ? ": " : "", (int)line.len, line.ptr);
}

/* Moves bytes and reaps the process if it has ended. The pipes are drained once more after that:
 * output may have arrived between the first read and the end. */
static void job_progress(struct running *r)
{
    int wait_status;
    pump_in(r);
    pump_out(r, &r->out, &r->job->out);
    pump_out(r, &r->errors, &r->job->errors);
    if (r->pid == 0 || waitpid(r->pid, &wait_status, WNOHANG) != r->pid) return;
    r->pid = 0;
    pump_out(r, &r->out, &r->job->out);
    pump_out(r, &r->errors, &r->job->errors);
    r->job->status = end_status(r->job, wait_status);
}

static int alive_count(const struct running *list, int count)
{
    int left = 0;
    for (int i = 0; i < count; i++) left += list[i].pid != 0;
    return left;
}

/* Sleeps until a pipe is ready. A process that has closed all of them is only found by polling. */
static void jobs_wait(const struct running *list, int count)
{
    struct pollfd *polls = sh_alloc_array((size_t)count * 3, sizeof(*polls));
    nfds_t used = 0;
    for (int i = 0; i < count; i++) {
        if (list[i].pid == 0) continue;
        if (list[i].in >= 0) polls[used++] = (struct pollfd){list[i].in, POLLOUT, 0};
        if (list[i].out >= 0) polls[used++] = (struct pollfd){list[i].out, POLLIN, 0};
        if (list[i].errors >= 0) polls[used++] = (struct pollfd){list[i].errors, POLLIN, 0};
    }
    poll(polls, used, used > 0 ? POLL_MS : 5);
    free(polls);
}

/* One deadline for all jobs of the call: they run in parallel. */
static void jobs_watch(const sh_ssh_opts *opts, struct running *list, int count)
{
    sh_deadline end = sh_deadline_in_ms(opts->limit_ms > 0 ? opts->limit_ms : LIMIT_MS);
    while (alive_count(list, count) > 0) {
        bool cancelled = opts->cancel != NULL && *opts->cancel != 0;
        bool late = sh_deadline_passed(end);
        for (int i = 0; i < count && (cancelled || late); i++)
            job_give_up(&list[i], cancelled ? SH_ERR_CANCELLED : SH_ERR_TIMEOUT,
                        cancelled ? "stopped" : "the command timed out");
        jobs_wait(list, count);
        for (int i = 0; i < count; i++)
            if (list[i].pid != 0) job_progress(&list[i]);
    }
}

bool sh_ssh_run(const sh_ssh_opts *opts, sh_ssh_job *jobs, int count)
{
    bool all = true;
    struct running *list = sh_alloc_array((size_t)count, sizeof(*list));
    for (int i = 0; i < count; i++) {
        list[i] = (struct running){.job = &jobs[i], .in = -1, .out = -1, .errors = -1};
        jobs[i].code = -1;
        jobs[i].status = job_start(&list[i], opts);
    }
    jobs_watch(opts, list, count);
    for (int i = 0; i < count; i++) {
        pipe_close(&list[i].in);
        pipe_close(&list[i].out);
        pipe_close(&list[i].errors);
        all = all && jobs[i].status == SH_OK;
    }
    free(list);
    return all;
}

void sh_ssh_job_reset(sh_ssh_job *job)
{
    sh_buf_reset(&job->out);
    sh_buf_reset(&job->errors);
}

static bool user_is_me(sh_str user)
{
    struct passwd *me = getpwuid(geteuid());
    return me != NULL && sh_str_is(user, me->pw_name);
}

/* The full name of this machine, or its first label. */
static bool is_own_name(const char *name)
{
    char own[HOST_MAX] = {0};
    if (gethostname(own, sizeof(own) - 1) != 0) return false;
    sh_str full = sh_str_of(own), label;
    return sh_str_is(full, name) || (sh_str_cut(&full, '.', &label) && sh_str_is(label, name));
}

static bool is_own_number(const char *text)
{
    struct in_addr v4;
    struct in6_addr v6;
    bool is4 = inet_pton(AF_INET, text, &v4) == 1, is6 = inet_pton(AF_INET6, text, &v6) == 1;
    struct ifaddrs *list = NULL;
    if ((!is4 && !is6) || getifaddrs(&list) != 0) return false;
    bool found = is4 && ntohl(v4.s_addr) >> 24 == 127;
    for (struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
        if (i->ifa_addr == NULL) continue;
        if (is4 && i->ifa_addr->sa_family == AF_INET)
            found = ((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr.s_addr == v4.s_addr;
        else if (is6 && i->ifa_addr->sa_family == AF_INET6)
            found = memcmp(&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr, &v6,
                           sizeof(v6)) == 0;
    }
    freeifaddrs(list);
    return found;
}

bool sh_ssh_is_local(const char *host)
{
    const char *at = strrchr(host, '@');
    if (at != NULL && !user_is_me((sh_str){host, (size_t)(at - host)})) return false;
    const char *name = at == NULL ? host : at + 1;
    return strcmp(name, "localhost") == 0 || is_own_name(name) || is_own_number(name);
}
