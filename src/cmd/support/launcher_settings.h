/* launcher_settings.h - settings that come from mpirun or srun instead of flags.
 *
 * Rank, size and the address of rank 0 are set as if they were environment variables of this
 * process (SHOAL_RANK, SHOAL_RANKS, SHOAL_COORDINATOR, SHOAL_TOKEN, SHOAL_COORDINATOR_FD). Settings
 * by the user take precedence.
 *
 * Threads: the main thread, before others start. */
#ifndef SH_CMD_SUPPORT_LAUNCHER_SETTINGS_H
#define SH_CMD_SUPPORT_LAUNCHER_SETTINGS_H

#include "cmd/command.h"

/* Does nothing outside of a launcher, or when --rank was given. With `own_process` they really
 * become variables, which the processes that this one starts inherit, and this process ends with
 * its launcher. */
SH_MUST_CHECK sh_status sh_launcher_settings_adopt(sh_options *options, const sh_settings *settings,
                                                   bool own_process, sh_err *err);

#endif
