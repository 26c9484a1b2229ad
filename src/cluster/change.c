#include "cluster/change.h"

#include "base/clock.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_MS = 3000, WORDS_MAX = 8 };

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

/* The words after the program. Hosts come after "--", though none can look like a flag. */
static const struct {
    const char *what;
    bool takes_host;
    const char *words[WORDS_MAX];
} ORDERS[] = {
    {"restart", false, {"restart", "--warm"}},
    {"add", true, {"hosts", "add"}},
    {"remove", true, {"hosts", "remove"}},
};

static bool is_made_of(sh_str text, const char *allowed)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '\0' || strchr(allowed, text.ptr[i]) == NULL) return false;
    return text.len > 0;
}

bool sh_change_is_host(sh_str text)
{
    return text.len <= SH_CHANGE_HOST_MAX && is_made_of(text, ALNUM "._-@:%[]") &&
           is_made_of(sh_str_sub(text, 0, 1), ALNUM "[");
}

static int order_find(sh_str what)
{
    for (size_t i = 0; i < SH_COUNT_OF(ORDERS); i++)
        if (sh_str_is(what, ORDERS[i].what)) return (int)i;
    return -1;
}

sh_status sh_change_parse(sh_str line, sh_change_order *out, sh_err *err)
{
    *out = (sh_change_order){0};
    sh_str rest = line, id;
    if (!sh_str_cut(&rest, ' ', &id) || id.len > SH_CHANGE_ID_MAX || !is_made_of(id, ALNUM "_-."))
        return sh_err_set(err, SH_ERR_INPUT, "a change has no id");
    out->id = id;
    if (!sh_str_cut(&rest, ' ', &out->what)) out->what = SH_STR("");
    out->host = rest;
    int idx = order_find(out->what);
    if (idx < 0)
        return sh_err_set(err, SH_ERR_INPUT, "a change is 'restart', 'add HOST' or 'remove HOST'");
    if (!ORDERS[idx].takes_host && rest.len > 0)
        return sh_err_set(err, SH_ERR_INPUT, "'%s' takes no host", ORDERS[idx].what);
    if (ORDERS[idx].takes_host && !sh_change_is_host(rest))
        return sh_err_set(err, SH_ERR_INPUT,
                          "a host is a name or an address, with a user before an '@' if it needs "
                          "one: letters, digits and any of ._-@:%%[]");
    return SH_OK;
}

/* Runs in the new process. */
_Noreturn static void command_exec(char *const *argv, int output)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setpgid(0, 0); /* Ctrl-C at a terminal is for the launcher */
    dup2(null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(argv[0], argv);
    _exit(127);
}

sh_status sh_change_start(sh_change *c, const sh_change_order *order, const char *program,
                          const char *state, sh_err *err)
{
    char host[SH_CHANGE_HOST_MAX + 1];
    const char *argv[WORDS_MAX + 6] = {program};
    int pipe[2], idx = order_find(order->what), count = 1;
    SH_ASSERT(idx >= 0);
    if (c->pid != 0)
        return sh_err_set(err, SH_ERR_CONFLICT, "another change of the cluster is running");
    snprintf(host, sizeof(host), "%.*s", (int)order->host.len, order->host.ptr);
    for (const char *const *word = ORDERS[idx].words; *word != NULL; word++) argv[count++] = *word;
    argv[count++] = "--state-dir";
    argv[count++] = state;
    if (ORDERS[idx].takes_host) {
        argv[count++] = "--";
        argv[count++] = host;
    }
    if (!sh_pipe(pipe)) return sh_err_sys(err, "pipe");
    pid_t pid = fork();
    if (pid == 0) command_exec((char *const *)(uintptr_t)argv, pipe[1]);
    if (pid < 0) sh_err_sys(err, "fork");
    close(pipe[1]);
    if (pid < 0) {
        close(pipe[0]);
        return err->status;
    }
    setpgid(pid, pid); /* the child does the same: either may run first */
    fcntl(pipe[0], F_SETFL, O_NONBLOCK);
    *c = (sh_change){.pid = pid, .output = pipe[0]};
    snprintf(c->id, sizeof(c->id), "%.*s", (int)order->id.len, order->id.ptr);
    return SH_OK;
}

static void line_take(sh_change *c)
{
    static const char mark[] = "shoal: ";
    const char *text = c->line.ptr;
    if (c->line.len > 0 && strncmp(text, mark, strlen(mark)) == 0)
        snprintf(c->failed, sizeof(c->failed), "%s", text + strlen(mark));
    if (c->line.len > 0) snprintf(c->last, sizeof(c->last), "%s", text);
    sh_buf_clear(&c->line);
}

static void output_read(sh_change *c)
{
    char bytes[4096];
    for (ssize_t got; (got = read(c->output, bytes, sizeof(bytes))) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            if (bytes[i] == '\n')
                line_take(c);
            else if (c->line.len < SH_ERR_TEXT_MAX)
                sh_buf_add_char(&c->line, bytes[i]);
        }
}

static void reset(sh_change *c)
{
    close(c->output);
    sh_buf_reset(&c->line);
    c->pid = 0;
}

sh_status sh_change_poll(sh_change *c, sh_err *said)
{
    int how = 0;
    if (c->pid == 0) return SH_AGAIN;
    pid_t ended = waitpid(c->pid, &how, WNOHANG);
    output_read(c); /* after the wait: all that it has written is there */
    if (ended == 0) return SH_AGAIN;
    line_take(c);
    reset(c);
    bool well = ended > 0 && WIFEXITED(how) && WEXITSTATUS(how) == 0;
    sh_status status = well ? SH_OK : SH_ERR_PEER;
    const char *text = well || c->failed[0] == '\0' ? c->last : c->failed;
    sh_err_set(said, status, "%s", text[0] == '\0' ? "see `shoal logs`" : text);
    return status;
}

void sh_change_end(sh_change *c)
{
    sh_deadline end = sh_deadline_in_ms(END_MS);
    int how;
    if (c->pid == 0) return;
    kill(-c->pid, SIGTERM);
    while (waitpid(c->pid, &how, WNOHANG) == 0) {
        if (sh_deadline_passed(end)) kill(-c->pid, SIGKILL);
        sh_sleep_ms(20);
    }
    reset(c);
}
