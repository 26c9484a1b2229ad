/* launch_program.h - the program of `shoal launch -- PROGRAM ARGS...`.
 *
 * It travels to the hosts as a file of their state folders, program.json. The program itself is not
 * sent: like a model it is expected under the same path on all hosts, or in the PATH of each.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_LAUNCH_PROGRAM_H
#define SH_CMD_SUPPORT_LAUNCH_PROGRAM_H

#include "base/buf.h"
#include "base/status.h"

#define SH_LAUNCH_PROGRAM_FILE "program.json"

typedef struct {
    char **argv;  /* NULL-terminated */
    char *folder; /* to run it in */
} sh_launch_program;

/* Of words and the current folder. A path that leads to a file here becomes absolute. */
void sh_launch_program_init(sh_launch_program *program, int count, char *const *words);
void sh_launch_program_reset(sh_launch_program *program);

/* To the text of the file and back, from a state folder. */
void sh_launch_program_write(const sh_launch_program *program, sh_buf *out);
SH_MUST_CHECK sh_status sh_launch_program_read(const char *state, sh_launch_program *out,
                                               sh_err *err);

/* Whether it can be run here: SH_ERR_NOT_FOUND, or SH_ERR_SYSTEM with the reason. */
SH_MUST_CHECK sh_status sh_launch_program_check(const sh_launch_program *program, sh_err *err);

#endif
