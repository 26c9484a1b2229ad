/* mpi.h - messages between ranks through the system's MPI library.
 *
 * MPI can be initialized only once per process, and the ranks that mpirun or srun started never
 * change: a group over MPI cannot re-form. MPI carries data only; the control connections of a
 * mesh, with their heartbeats and deadlines, are still sockets, so a dead or silent rank is
 * detected in the same way as without MPI.
 *
 * Threads: any, one call at a time. */
#ifndef SH_NET_MPI_H
#define SH_NET_MPI_H

#include "base/clock.h"
#include "base/status.h"

#include <stddef.h>

typedef struct sh_mpi sh_mpi;

/* Loads the plugin for the MPI library that started this process and initializes it. `library`
 * names the library to use (as for dlopen), NULL: detect it; `dir` is the folder of the plugins,
 * NULL: beside the program. SH_ERR_UNSUPPORTED if there is none. */
SH_MUST_CHECK sh_status sh_mpi_open(const char *library, const char *dir, sh_mpi **out,
                                    sh_err *err);

/* Finalizes together with all other ranks, waiting at most wait_ms for them (0: do not finalize, as
 * after a failure; the launcher then ends the job when this process exits). Takes NULL. */
void sh_mpi_close(sh_mpi *mpi, int wait_ms);

int sh_mpi_rank(const sh_mpi *mpi);
int sh_mpi_size(const sh_mpi *mpi);
const char *sh_mpi_family(const sh_mpi *mpi); /* "openmpi", "mpich" */

/* Short messages before the mesh has formed. The error names the rank. */
SH_MUST_CHECK sh_status sh_mpi_send(sh_mpi *mpi, int to, const void *data, size_t len,
                                    sh_deadline deadline, sh_err *err);
SH_MUST_CHECK sh_status sh_mpi_recv(sh_mpi *mpi, int from, void *data, size_t len,
                                    sh_deadline deadline, sh_err *err);

#endif
