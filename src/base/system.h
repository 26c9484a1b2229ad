/* system.h - information from the operating system about this machine and process.
 *
 * Threads: safe from anywhere. */
#ifndef SH_BASE_SYSTEM_H
#define SH_BASE_SYSTEM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Path of the running program, for starting it again; owned by the caller. */
SH_MUST_CHECK sh_status sh_program_path(char **out, sh_err *err);

/* A text that is unique to this boot of this machine; "-" if unknown. */
enum { SH_BOOT_ID_MAX = 40 };
void sh_boot_id(char out[SH_BOOT_ID_MAX]);

/* What `ps` and `top` show of this process instead of its command line, which is overwritten;
 * `line` is the argv of main. Only on Linux. */
void sh_process_title(char *const *line, const char *title);

/* A close-on-exec pipe; false and errno on failure. */
bool sh_pipe(int fd[2]);

/* In bytes; 0 if unknown. Total and available respect the memory limit of a container. */
int64_t sh_memory_total(void);
int64_t sh_memory_available(void); /* what can be allocated without swapping */
int64_t sh_memory_used(void);      /* resident set of this process */
int64_t sh_memory_peak(void);      /* its largest resident set so far */

/* Of the CPU package; NAN if unknown. Power is the mean since the last call. */
double sh_temperature_c(void);
double sh_power_w(void);

/* CPU time used by all threads of this process, in seconds. */
double sh_cpu_seconds(void);

#endif
