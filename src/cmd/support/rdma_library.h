/* rdma_library.h - the RDMA library of this process, opened with the devices that a file names.
 *
 * Threads: the main thread. */
#ifndef SH_CMD_SUPPORT_RDMA_LIBRARY_H
#define SH_CMD_SUPPORT_RDMA_LIBRARY_H

#include "cluster/hostfile.h"
#include "net/rdma.h"

/* Opens it on the first call; *out is for sh_mesh_opts.library. file: whose devices `rank` uses;
 * NULL, or one without devices: any active one. partial: pairs without devices use sockets. */
SH_MUST_CHECK sh_status sh_rdma_library_open(const sh_hostfile *file, int rank, bool partial,
                                             void **out, sh_err *err);

/* After the last group was closed. */
void sh_rdma_library_close(void);

#endif
