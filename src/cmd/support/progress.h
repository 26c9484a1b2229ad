/* progress.h - reports the state of a rank to the process that started it.
 *
 * Threads: safe from anywhere. */
#ifndef SH_CMD_SUPPORT_PROGRESS_H
#define SH_CMD_SUPPORT_PROGRESS_H

#include "cluster/children.h"
#include "cmd/support/settings.h"

/* With --progress: prints a line on standard output that begins with SH_LAUNCH_MARK
 * (cluster/launch.h), by which it differs from log lines. */
void sh_progress(const sh_settings *settings, const char *state);

/* Starts a thread that writes a sign of life to the same pipe as sh_progress_ready several times a
 * second, by which the parent notices a rank that was stopped or swapped out. Once nobody reads the
 * pipe, the parent is gone, and the rank stops. */
void sh_progress_beat(const sh_settings *settings);

/* This rank is ready: writes to the pipe of --ready-fd, if there is one. */
void sh_progress_ready(const sh_settings *settings);

/* Why this rank is about to end, to the same pipe. */
void sh_progress_failed(const sh_settings *settings, const sh_err *err);

/* A loader's callback (sh_progress_fn) that tells the parent how much of the model is loaded. */
void sh_progress_loaded(void *settings, uint64_t done, uint64_t total);

/* The group cannot do without this rank, which was asked to leave. */
void sh_progress_refused(const sh_settings *settings, const char *why);

/* For a supervisor whose first child is the rank: with --progress, hooks that print its process
 * and its end in the same way; else none. */
sh_children_hooks sh_progress_hooks(const sh_settings *settings);

#endif
