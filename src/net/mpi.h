/* mpi.h - messages between ranks through the system's MPI library.
 *
 * MPI can be opened once in a process, and the ranks that mpirun or srun started stay the same to
 * the end: a group over it can not form again. It carries data only; the control links of a mesh,
 * with their beats and deadlines, stay sockets, so a dead or silent rank is noticed as everywhere
 * else.
 *
 * Threads: any, one call at a time. */
#ifndef SH_NET_MPI_H
#define SH_NET_MPI_H

#include "base/clock.h"
#include "net/channel.h"

typedef struct sh_mpi sh_mpi;

/* Loads the plugin of the library that started this process and joins its ranks. `library` names an
 * MPI library to take (as for dlopen), NULL: what fits; `dir` is where plugins lie, NULL: beside
 * the program. SH_ERR_UNSUPPORTED when there is none. */
SH_MUST_CHECK sh_status sh_mpi_open(const char *library, const char *dir, sh_mpi **out,
                                    sh_err *err);

/* Leaves when all ranks do, but waits wait_ms at most (0: not at all, as after a failure: then the
 * launcher ends the job when this process ends). Takes NULL. */
void sh_mpi_close(sh_mpi *mpi, int wait_ms);

int sh_mpi_rank(const sh_mpi *mpi);
int sh_mpi_size(const sh_mpi *mpi);
const char *sh_mpi_family(const sh_mpi *mpi); /* "openmpi", "mpich" */

/* Short messages before there is a mesh. The error names the rank. */
SH_MUST_CHECK sh_status sh_mpi_send(sh_mpi *mpi, int to, const void *data, size_t len,
                                    sh_deadline deadline, sh_err *err);
SH_MUST_CHECK sh_status sh_mpi_recv(sh_mpi *mpi, int from, void *data, size_t len,
                                    sh_deadline deadline, sh_err *err);

/* The data path to a rank. `salt` keeps groups apart that follow each other; mpi is borrowed. */
sh_channel *sh_mpi_channel_create(sh_mpi *mpi, int peer, uint64_t salt);

#endif
