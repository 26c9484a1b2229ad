/* process_usage.h - this process and this machine in numbers.
 *
 * Threads: pure functions over the system. */
#ifndef SH_API_PROCESS_USAGE_H
#define SH_API_PROCESS_USAGE_H

#include <stdint.h>

typedef struct {
    int64_t memory_bytes;      /* of the machine */
    int64_t memory_free_bytes; /* could be given to a program now */
    int64_t resident_bytes;    /* of this process, as all below */
    double cpu_s;
    int open_files;
} sh_process_usage;

/* What the system does not tell is 0. */
sh_process_usage sh_process_usage_read(void);

#endif
