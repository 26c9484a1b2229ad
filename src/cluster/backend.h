/* backend.h - the values of --backend, which are also those of "backend" in a hostfile, and what
 * each of them asks for. MLX's names are all known, including those that this program cannot serve.
 *
 * Threads: constant tables. */
#ifndef SH_CLUSTER_BACKEND_H
#define SH_CLUSTER_BACKEND_H

#include "net/transport.h"

/* The plugin of the backends that need devices, beside the program. */
#define SH_RDMA_PLUGIN_FILE "shoal-rdma.so"

/* Between which ranks a backend needs RDMA devices. */
typedef enum {
    SH_DEVICES_NOWHERE,
    SH_DEVICES_EVERYWHERE, /* every pair */
    SH_DEVICES_NEIGHBOURS, /* each rank and the next, the last and the first; others may use TCP */
} sh_device_need;

typedef struct {
    const char *name;
    const char *transport; /* the backend of the transport that it uses (net/transport.h); NULL:
                              the best one of each pair */
    sh_device_need devices;
    bool own_launcher;      /* its ranks are started by mpirun or srun and meet through MPI */
    bool peers_read_memory; /* ranks copy from each other's memory, as debuggers do */
} sh_backend;

/* NULL for a name that nobody knows; "" is the default, the ring. */
const sh_backend *sh_backend_find(const char *name);

/* The transport that all data takes; NULL: the best one of each pair. */
const sh_transport *sh_backend_transport(const sh_backend *backend);

/* Whether this program has what the backend needs. */
bool sh_backend_is_built_in(const sh_backend *backend);

#endif
