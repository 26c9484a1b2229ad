/* progress.h - reports the state of a rank to the process that started it.
 *
 * Threads: safe from anywhere. */
#ifndef SH_CMD_SUPPORT_PROGRESS_H
#define SH_CMD_SUPPORT_PROGRESS_H

#include "cmd/support/settings.h"

/* With --progress: prints a line on standard output that begins with SH_LAUNCH_MARK
 * (cluster/launch.h), by which it differs from log lines. */
void sh_progress(const sh_settings *settings, const char *state);

/* Starts a thread that writes a sign of life to the same pipe as sh_progress_ready several times a
 * second, by which the parent notices a rank that was stopped or swapped out. */
void sh_progress_beat(const sh_settings *settings);

/* This rank is ready: writes to the pipe of --ready-fd, if there is one. */
void sh_progress_ready(const sh_settings *settings);

#endif
