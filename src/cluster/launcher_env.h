/* launcher_env.h - what the launcher of a cluster says of this process: mpirun of Open MPI or
 * MPICH, or srun of Slurm.
 *
 * It is all in the environment. Slurm also says on which machine rank 0 is; mpirun does not, so
 * there the ranks ask each other (cluster/rendezvous.h).
 *
 * Threads: reads the environment; before threads start. */
#ifndef SH_CLUSTER_LAUNCHER_ENV_H
#define SH_CLUSTER_LAUNCHER_ENV_H

#include "base/status.h"
#include "net/addr.h"

#include <stdbool.h>

typedef enum { SH_LAUNCHER_NONE, SH_LAUNCHER_MPI, SH_LAUNCHER_SLURM } sh_launcher_kind;

typedef struct {
    sh_launcher_kind launcher;
    int rank;
    int size;
    bool one_host; /* all ranks are on this machine */
    /* Slurm: "host:port" where rank 0 is to be met; "" otherwise. The port comes from the job's
     * number, so that jobs on one machine do not meet. */
    char coordinator[SH_ADDR_HOST_MAX + 8];
} sh_launcher_env;

/* NONE, with rank 0 of 1, when nobody has started this process as one of several. The error names
 * the variable that makes no sense. */
SH_MUST_CHECK sh_status sh_launcher_env_read(sh_launcher_env *out, sh_err *err);

/* The first name of a list such as "node[01-03,7],gpu5": "node01". */
SH_MUST_CHECK sh_status sh_nodelist_first(const char *list, char out[SH_ADDR_HOST_MAX],
                                          sh_err *err);

#endif
