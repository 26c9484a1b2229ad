/* launch_job.h - what the ranks of a launch do: the values of --job.
 *
 * Threads: constant tables. */
#ifndef SH_CMD_SUPPORT_LAUNCH_JOB_H
#define SH_CMD_SUPPORT_LAUNCH_JOB_H

#include "cluster/children.h"

#include <stdbool.h>

typedef struct {
    const char *name;
    const char
        *first; /* the command of rank 0; NULL: the program of the launch (launch_program.h) */
    const char *others; /* of every other rank */
    bool ends;          /* by itself, and is not started again */
    bool needs_model;
    sh_child_policy first_agent, other_agents; /* what the end of an agent means */
} sh_launch_job;

/* The name must be one of the option's choices. */
const sh_launch_job *sh_launch_job_find(const char *name);

#endif
