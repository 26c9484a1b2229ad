/* Two ways to report: lines for an agent, which passes them to the launcher, and bytes in a pipe
 * for a parent on the same machine (cluster/children.h). */
#include "cmd/support/progress.h"

#include "base/clock.h"
#include "cluster/launch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { BEAT_MS = 200 }; /* several in the shortest time of --frozen-after */

void sh_progress(const sh_settings *s, const char *state)
{
    if (s->progress) dprintf(STDOUT_FILENO, "%c%s\n", SH_LAUNCH_MARK, state);
}

static void report(int fd, char what)
{
    ssize_t put = write(fd, &what, 1);
    (void)put; /* if the parent is gone, that is noticed elsewhere */
}

static void *beat(void *arg)
{
    for (int fd = (int)(intptr_t)arg;; sh_sleep_ms(BEAT_MS)) report(fd, '.');
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
