#include "cmd/progress.h"

#include "cluster/launch.h"

#include <stdio.h>
#include <unistd.h>

void sh_progress(const sh_settings *s, const char *state)
{
    if (s->progress) dprintf(STDOUT_FILENO, "%c%s\n", SH_LAUNCH_MARK, state);
}
