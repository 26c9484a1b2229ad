/* progress.h - where a rank stands, for whoever started it.
 *
 * Threads: safe from anywhere. */
#ifndef SH_CMD_SUPPORT_PROGRESS_H
#define SH_CMD_SUPPORT_PROGRESS_H

#include "cmd/support/settings.h"

/* A line on standard output that no log has (cluster/launch.h), when --progress asks for it. */
void sh_progress(const sh_settings *settings, const char *state);

/* This rank has come up: to the pipe of --ready-fd, if there is one. */
void sh_progress_ready(const sh_settings *settings);

#endif
