/* sandbox.h - dropping privileges that the process does not need.
 *
 * The API process parses untrusted requests. If one of them exploits a bug, the kernel still keeps
 * the process from running programs, reading or changing other files, connecting to other machines
 * and inspecting other processes. Features that the kernel lacks are skipped; the log says what is
 * in force.
 *
 * Threads: call before other threads start, so that they inherit it. */
#ifndef SH_BASE_SANDBOX_H
#define SH_BASE_SANDBOX_H

#include "base/status.h"

#include <stdbool.h>

enum { SH_SANDBOX_PATHS_MAX = 64 };

/* Paths that may be read, and folders in which files may be written; a folder includes everything
 * below it. Paths that do not exist are skipped. All are copied. */
typedef struct {
    char *read[SH_SANDBOX_PATHS_MAX], *write[SH_SANDBOX_PATHS_MAX];
    int read_count, write_count;
    bool read_all; /* every file may be read */
} sh_sandbox;

/* Allows reading a file, including one that replaces it later: so its whole folder, and the folder
 * of the target if it is a symlink. */
void sh_sandbox_add_file(sh_sandbox *box, const char *path);

/* Allows reading a folder and the folders that symlinks in it point to. */
void sh_sandbox_add_folder(sh_sandbox *box, const char *path);

/* Allows writing a log, and reopening it after log rotation has moved it away. */
void sh_sandbox_add_log(sh_sandbox *box, const char *path);

/* Takes effect at once and cannot be undone; child processes inherit it. Logs which parts of it
 * this kernel supports. */
void sh_sandbox_enter(const sh_sandbox *box);
void sh_sandbox_reset(sh_sandbox *box);

/* Disables core dumps of this process, which would contain prompts and keys. With `hide`, other
 * processes of the same user cannot inspect it either (which MPI libraries may need: do not combine
 * the two). */
void sh_core_dumps_off(bool hide);

#endif
