/* state_dir.h - the folder where a launch keeps what it has made, and processes that are ours for
 * sure.
 *
 * A process is known by its number, the time it started and the boot of the machine: a number that
 * was given to another process since is never signalled.
 *
 *   launch.json    the launcher and its ranks (mode 0600)
 *   launch.log     what they said; launch.log.1 is the run before
 *   lock           held by the launcher while it lives
 *   token          the cluster token that was made
 * and on each host of the cluster
 *   bin/           the program, named by its hash; `native` when it was built there
 *   settings.env, hostfile.json, models/demo/; on rank 0's host api.env, with the API's settings
 *   rank-R.pid     the process of a rank; rank-R.lock is held by its agent
 *
 * Threads: pure functions over the file system. */
#ifndef SH_CLUSTER_STATE_DIR_H
#define SH_CLUSTER_STATE_DIR_H

#include "base/buf.h"
#include "base/status.h"
#include "base/system.h"

#include <stdbool.h>
#include <stdint.h>

/* The folder as a path of this machine: "~/x" is under $HOME. Owned by the caller. */
char *sh_state_dir_path(const char *dir);

/* The same as a word for the shell of another host, whose $HOME counts there. */
void sh_state_dir_shell_word(const char *dir, sh_buf *out);

/* Makes the folder and those above it, for its owner alone. */
SH_MUST_CHECK sh_status sh_state_dir_make(const char *path, sh_err *err);

/* What is in the folder decides which programs are run, with which settings: SH_ERR_AUTH when it
 * belongs to somebody else or others may write to it. A folder that is not there is fine. */
SH_MUST_CHECK sh_status sh_state_dir_check(const char *path, sh_err *err);

/* The same as lines for the shell of another host, where $d is the folder. */
void sh_state_dir_shell_check(sh_buf *out);

/* Replaces a file of the folder, mode 0600. */
SH_MUST_CHECK sh_status sh_state_dir_write(const char *path, const char *name, sh_str text,
                                           sh_err *err);

/* Reads a small file of the folder, which others can not write, nor read where it is a secret; the
 * buffer must be empty. */
SH_MUST_CHECK sh_status sh_state_dir_read(const char *path, const char *name, bool secret,
                                          sh_buf *out, sh_err *err);

/* Takes a lock, a file of the folder, until *fd is closed in all processes that have it. SH_AGAIN:
 * somebody else has it. */
SH_MUST_CHECK sh_status sh_state_dir_lock(const char *path, const char *name, int *fd, sh_err *err);

enum { SH_PROCESS_TEXT_MAX = 96 };

typedef struct {
    int64_t pid;
    uint64_t start;
    char boot[SH_BOOT_ID_MAX];
} sh_process;

/* start is 0 when there is no such process. */
sh_process sh_process_of(int64_t pid);
bool sh_process_alive(const sh_process *process);

/* False when it has ended already. */
bool sh_process_signal(const sh_process *process, int number);

void sh_process_format(const sh_process *process, char out[SH_PROCESS_TEXT_MAX]);
bool sh_process_parse(const char *text, sh_process *out);

#endif
