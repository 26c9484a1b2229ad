/* system.h - what the operating system says of this machine and this process.
 *
 * Threads: safe from anywhere. */
#ifndef SH_BASE_SYSTEM_H
#define SH_BASE_SYSTEM_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Path of the program that is running, for starting it again; owned by the caller. */
SH_MUST_CHECK sh_status sh_program_path(char **out, sh_err *err);

/* A text that is another one for each boot of each machine; "-" when the system does not tell. */
enum { SH_BOOT_ID_MAX = 40 };
void sh_boot_id(char out[SH_BOOT_ID_MAX]);

/* A pipe that does not survive exec; false and errno when there is none. */
bool sh_pipe(int fd[2]);

/* Bytes; 0 when the system does not tell. */
int64_t sh_memory_total(void);
int64_t sh_memory_available(void); /* without pushing others out; the limit of a container counts */
int64_t sh_memory_used(void);      /* by this process, resident */
int64_t sh_memory_peak(void);      /* the most that this process ever had resident */

/* Of the processor package, where the system tells; NAN elsewhere. Power is the mean since the last
 * call. */
double sh_temperature_c(void);
double sh_power_w(void);

/* Seconds of processor time that this process has used, all threads together. */
double sh_cpu_seconds(void);

#endif
