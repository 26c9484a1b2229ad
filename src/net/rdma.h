/* rdma.h - RDMA devices of this machine: the library behind the transport "rdma" (--backend jaccl).
 *
 * libibverbs is not on every machine, so the program contains nothing of it: a plugin
 * (plugins/rdma.c) is built where it is installed and loaded here. An sh_rdma keeps the devices
 * that it has opened, with the memory that is registered with them, from one group to the next; it
 * is passed to a group as sh_mesh_opts.library.
 *
 * Threads: any, one call at a time; the calls of a group's channels count. */
#ifndef SH_NET_RDMA_H
#define SH_NET_RDMA_H

#include "base/status.h"
#include "net/rdma_plugin.h"

#include <stdbool.h>

typedef struct sh_rdma sh_rdma;

/* Which devices connect this rank with each of the others. A name is that of a device ("mlx5_0"),
 * or of one of its ports ("mlx5_0:2"); without a number it is port 1. Several are lanes: the two
 * ranks of a pair use the first of both lists together, and so on. */
typedef struct {
    int size;                        /* of the group; 0: any active port, for all peers */
    const char *const *const *names; /* [size], by rank; each ends with NULL, or is NULL if empty */
    bool partial;                    /* pairs without devices use sockets (jaccl-ring) */
} sh_rdma_devices;

typedef struct {
    const char *dir;                /* folder of the plugin; NULL: beside the program */
    const sh_rdma_plugin *plugin;   /* use this one instead of loading one; for tests */
    const sh_rdma_devices *devices; /* borrowed for the life of the sh_rdma; NULL: any */
} sh_rdma_opts;

/* SH_ERR_UNSUPPORTED if there is no plugin, or if it cannot be loaded. */
SH_MUST_CHECK sh_status sh_rdma_open(const sh_rdma_opts *opts, sh_rdma **out, sh_err *err);
void sh_rdma_close(sh_rdma *rdma); /* after the groups that use it; takes NULL */

/* Bytes that had to be copied so far, because the memory of a message was not registered
 * (sh_group_register_memory). */
uint64_t sh_rdma_copied(const sh_rdma *rdma);

#endif
