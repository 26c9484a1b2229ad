/* Two ways to report: lines for an agent, which passes them to the launcher, and a byte in a pipe
 * for a parent on the same machine (cluster/children.h). */
#include "cmd/support/progress.h"

#include "cluster/launch.h"

#include <stdio.h>
#include <unistd.h>

void sh_progress(const sh_settings *s, const char *state)
{
    if (s->progress) dprintf(STDOUT_FILENO, "%c%s\n", SH_LAUNCH_MARK, state);
}

void sh_progress_ready(const sh_settings *s)
{
    ssize_t put = s->ready_fd < 0 ? 0 : write((int)s->ready_fd, "R", 1);
    (void)put; /* if the parent is gone, that is noticed elsewhere */
}
