/* launcher_env.h - rank and size as set by an external launcher: mpirun of Open MPI or MPICH, or
 * srun of Slurm.
 *
 * All of it comes from the environment. Slurm also exports which machine runs rank 0; mpirun does
 * not, so its ranks find out through MPI itself (cluster/rendezvous.h).
 *
 * Threads: reads the environment; call before threads start. */
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
    /* Slurm: "host:port" of rank 0; "" otherwise. The port is derived from the job's number, so
     * that two jobs on one machine do not collide. */
    char coordinator[SH_ADDR_HOST_MAX + 8];
} sh_launcher_env;

/* SH_LAUNCHER_NONE, as rank 0 of 1, when no launcher started this process. Errors name the
 * offending variable. */
SH_MUST_CHECK sh_status sh_launcher_env_read(sh_launcher_env *out, sh_err *err);

/* The first name of a Slurm node list: "node01" for "node[01-03,7],gpu5". */
SH_MUST_CHECK sh_status sh_nodelist_first(const char *list, char out[SH_ADDR_HOST_MAX],
                                          sh_err *err);

#endif
