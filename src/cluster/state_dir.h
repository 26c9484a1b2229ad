/* state_dir.h - the folder where a launch keeps its files, and safe references to processes.
 *
 * A process is identified by its pid, its start time and the boot id of the machine, so a pid that
 * has been reused by another process is never signalled.
 *
 *   launch.json    the launcher and its ranks (mode 0600)
 *   launch.log     their output; launch.log.1 is that of the previous run
 *   lock           held by the launcher while it is alive
 *   token          the generated cluster token
 * and on each host of the cluster
 *   bin/           the program, named by its hash; `native` when it was built there
 *   settings.env, hostfile.json, models/demo/; on rank 0's host also api.env (the API's settings)
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

/* The folder as an absolute path on this machine: "~/x" is below $HOME. Owned by the caller. */
char *sh_state_dir_path(const char *dir);

/* The same as a word for the shell of another host, where "~/x" is below that host's $HOME. */
void sh_state_dir_shell_word(const char *dir, sh_buf *out);

/* Creates the folder (mode 0700) and its parents, and checks it. */
SH_MUST_CHECK sh_status sh_state_dir_make(const char *path, sh_err *err);

/* SH_ERR_AUTH when the folder belongs to another user or others may write to it: its contents
 * decide which programs are run and with which settings. A folder that does not exist is fine. */
SH_MUST_CHECK sh_status sh_state_dir_check(const char *path, sh_err *err);

/* The same check as lines of a shell script for another host, where $d is the folder. */
void sh_state_dir_shell_check(sh_buf *out);

/* Replaces a file in the folder, with mode 0600. */
SH_MUST_CHECK sh_status sh_state_dir_write(const char *path, const char *name, sh_str text,
                                           sh_err *err);

/* Reads a small file in the folder. Fails if others may write to it or, for a secret, read it. The
 * buffer must be empty. */
SH_MUST_CHECK sh_status sh_state_dir_read(const char *path, const char *name, bool secret,
                                          sh_buf *out, sh_err *err);

/* Takes a lock, which is a file in the folder; it is held until *fd is closed in all processes that
 * inherited it. SH_AGAIN: another process holds it. */
SH_MUST_CHECK sh_status sh_state_dir_lock(const char *path, const char *name, int *fd, sh_err *err);

enum { SH_PROCESS_TEXT_MAX = 96 };

typedef struct {
    int64_t pid;
    uint64_t start;
    char boot[SH_BOOT_ID_MAX];
} sh_process;

/* start is 0 when no such process exists. */
sh_process sh_process_of(int64_t pid);
bool sh_process_alive(const sh_process *process);

/* False when it has ended already. */
bool sh_process_signal(const sh_process *process, int number);

void sh_process_format(const sh_process *process, char out[SH_PROCESS_TEXT_MAX]);
bool sh_process_parse(const char *text, sh_process *out);

#endif
