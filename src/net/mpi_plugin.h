/* mpi_plugin.h - what the program asks of an MPI library.
 *
 * MPI libraries differ in their binary interface, so nothing of mpi.h is in the program: a plugin
 * (plugins/mpi.c) is built with each mpicc that is installed, and the one that fits the launcher is
 * loaded when --backend mpi, or mpirun, asks for it. The program and its plugin come from one
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

/* Room for the library's own handle. */
typedef struct {
    _Alignas(8) unsigned char bytes[16];
} sh_mpi_request;

typedef struct {
    int version;        /* SH_MPI_PLUGIN_VERSION */
    const char *family; /* "openmpi", "mpich" */

    int (*init)(int *rank, int *size);
    /* Waits for all ranks: to be called when they are known to come. */
    int (*finalize)(void);

    /* Bytes to and from a rank; data stays where it is until test says done. */
    int (*send)(const void *data, int len, int to, int tag, sh_mpi_request *request);
    int (*recv)(void *data, int len, int from, int tag, sh_mpi_request *request);
    int (*test)(sh_mpi_request *request, bool *done);
    /* Gives up what test has not called done. */
    void (*cancel)(sh_mpi_request *request);

    /* All ranks have come here once test says done. */
    int (*barrier)(sh_mpi_request *request);

    void (*error_text)(int code, char *out, size_t cap);
} sh_mpi_plugin;

/* The one name that a plugin exports. */
#define SH_MPI_PLUGIN_SYMBOL "sh_mpi_plugin_table"
extern const sh_mpi_plugin sh_mpi_plugin_table;

#endif
