/* mpi_plugin.h - the interface between the program and an MPI library.
 *
 * MPI libraries are not binary compatible with each other, so the program contains nothing of
 * mpi.h: a plugin (plugins/mpi.c) is built with each installed mpicc, and the one that matches the
 * launcher is loaded on --backend mpi or under mpirun. The program and its plugins come from one
 * build.
 *
 * All calls return 0 or an error code of the library, which error_text explains.
 *
 * Threads: any, one call at a time. */
#ifndef SH_NET_MPI_PLUGIN_H
#define SH_NET_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

enum { SH_MPI_PLUGIN_VERSION = 1, SH_MPI_TAG_MAX = 32767 };

/* Space for the library's own handle. */
typedef struct {
    _Alignas(8) unsigned char bytes[16];
} sh_mpi_request;

typedef struct {
    int version;        /* SH_MPI_PLUGIN_VERSION */
    const char *family; /* "openmpi", "mpich" */

    int (*init)(int *rank, int *size);
    /* Waits for all ranks without a timeout: call it only once all are known to finalize. */
    int (*finalize)(void);

    /* Start a transfer to or from a rank; data must stay in place until test reports done. */
    int (*send)(const void *data, int len, int to, int tag, sh_mpi_request *request);
    int (*recv)(void *data, int len, int from, int tag, sh_mpi_request *request);
    int (*test)(sh_mpi_request *request, bool *done);
    /* Cancels a request that test has not reported as done. */
    void (*cancel)(sh_mpi_request *request);

    /* Starts a barrier; all ranks have reached it once test reports done. */
    int (*barrier)(sh_mpi_request *request);

    void (*error_text)(int code, char *out, size_t cap);
} sh_mpi_plugin;

/* The only symbol that a plugin exports. */
#define SH_MPI_PLUGIN_SYMBOL "sh_mpi_plugin_table"
extern const sh_mpi_plugin sh_mpi_plugin_table;

#endif
