/* process_usage.h - resource usage of this process and memory of this machine.
 *
 * Threads: pure functions over the system. */
#ifndef SH_API_PROCESS_USAGE_H
#define SH_API_PROCESS_USAGE_H

#include <stdint.h>

typedef struct {
    int64_t memory_bytes;      /* of the machine */
    int64_t memory_free_bytes; /* available to programs without swapping */
    int64_t resident_bytes;    /* of this process, like the fields below */
    double cpu_s;
    int open_files;
} sh_process_usage;

/* Values that the system does not report are 0. */
sh_process_usage sh_process_usage_read(void);

#endif
