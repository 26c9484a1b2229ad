/* sandbox.h - a process that gives up what it does not need.
 *
 * The API reads what strangers send. Should one of them find a way to make it do something else,
 * the kernel still keeps it from running programs, reading or changing other files, connecting to
 * other machines, and looking into other processes. What the kernel lacks is left out, and the log
 * says what is in force.
 *
 * Threads: call before other threads start: they inherit it. */
#ifndef SH_BASE_SANDBOX_H
#define SH_BASE_SANDBOX_H

#include "base/status.h"

#include <stdbool.h>

enum { SH_SANDBOX_PATHS_MAX = 64 };

/* What may be read, and where files may be written; folders count with all that is below them. A
 * path that does not exist is passed over. All are copied. */
typedef struct {
    char *read[SH_SANDBOX_PATHS_MAX], *write[SH_SANDBOX_PATHS_MAX];
    int read_count, write_count;
    bool read_all; /* every file may be read */
} sh_sandbox;

/* Lets the file be read, and whatever takes its place there: its folder, and that of the file to
 * which a link leads. */
void sh_sandbox_add_file(sh_sandbox *box, const char *path);

/* Lets a folder be read, and the folders to which links in it lead. */
void sh_sandbox_add_folder(sh_sandbox *box, const char *path);

/* Lets a log be written, and be opened again after somebody moved it away. */
void sh_sandbox_add_log(sh_sandbox *box, const char *path);

/* From now on, for good, and for all that this process starts. The log says which parts of it this
 * kernel has. */
void sh_sandbox_enter(const sh_sandbox *box);
void sh_sandbox_reset(sh_sandbox *box);

/* No core dump of this process, which would hold prompts and keys. With `hide` other processes of
 * the same user can not look into it either (so MPI libraries must not be asked to). */
void sh_core_dumps_off(bool hide);

#endif
