/* Two ways to report: lines for an agent, which passes them to the launcher, and bytes in a pipe
 * for a parent on the same machine (cluster/children.h). */
#include "cmd/support/progress.h"

#include "base/clock.h"
#include "cluster/launch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { BEAT_MS = 200 }; /* several in the shortest time of --frozen-after */

void sh_progress(const sh_settings *s, const char *state)
{
    if (s->progress) dprintf(STDOUT_FILENO, "%c%s\n", SH_LAUNCH_MARK, state);
}

void sh_progress_refused(const sh_settings *s, const char *why)
{
    if (s->progress) dprintf(STDOUT_FILENO, "%crefused %s\n", SH_LAUNCH_MARK, why);
}

static bool report(int fd, char what)
{
    return write(fd, &what, 1) == 1 || errno != EPIPE;
}

/* The kernel has sent a SIGTERM when the parent died, where it can. This is then the second one,
 * after which a worker does not wait for its group: nobody is left to do what follows. */
static void *beat(void *arg)
{
    int fd = (int)(intptr_t)arg;
    while (report(fd, '.')) sh_sleep_ms(BEAT_MS);
    kill(getpid(), SIGTERM);
    return NULL;
}

void sh_progress_beat(const sh_settings *s)
{
    pthread_t thread;
    if (s->ready_fd >= 0 && pthread_create(&thread, NULL, beat, (void *)(intptr_t)s->ready_fd) == 0)
        pthread_detach(thread);
}

void sh_progress_ready(const sh_settings *s)
{
    if (s->ready_fd >= 0) report((int)s->ready_fd, 'R');
}

/* One write, so that no sign of life comes in between. */
void sh_progress_failed(const sh_settings *s, const sh_err *err)
{
    char line[SH_ERR_TEXT_MAX + 3];
    int len = snprintf(line, sizeof(line), "E%s\n", err->text);
    if (s->ready_fd >= 0 && write((int)s->ready_fd, line, (size_t)len) < 0) return;
}

void sh_progress_loaded(void *settings, uint64_t done, uint64_t total)
{
    const sh_settings *s = settings;
    uint64_t percent = total == 0 ? 100 : done * 100 / total;
    if (s->ready_fd >= 0) report((int)s->ready_fd, (char)(SH_CHILD_LOADED | percent));
}

static void on_started(void *arg, int child, pid_t pid)
{
    char text[SH_PROCESS_TEXT_MAX];
    sh_process process = sh_process_of(pid);
    (void)arg;
    sh_process_format(&process, text);
    if (child == 0) dprintf(STDOUT_FILENO, "%cpid %s\n", SH_LAUNCH_MARK, text);
}

static void on_ended(void *arg, int child, const char *how, bool restarts)
{
    (void)arg;
    if (child == 0 && restarts) dprintf(STDOUT_FILENO, "%cended %s\n", SH_LAUNCH_MARK, how);
}

sh_children_hooks sh_progress_hooks(const sh_settings *s)
{
    return s->progress ? (sh_children_hooks){.started = on_started, .ended = on_ended}
                       : (sh_children_hooks){0};
}
