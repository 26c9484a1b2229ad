/* The plugin between the program and one MPI library; see net/mpi_plugin.h. It is compiled by the
 * mpicc of that library and only translates calls: deadlines and the cutting of messages are in
 * net/mpi.c, which is the same for all libraries. */
#include "net/mpi_plugin.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(MPI_Request) <= sizeof(sh_mpi_request), "a request must fit");

/* A communicator of our own, so that no message of other users of the library can match ours. */
static MPI_Comm comm;

static MPI_Request load(const sh_mpi_request *request)
{
    MPI_Request handle;
    memcpy(&handle, request->bytes, sizeof(handle));
    return handle;
}

static int store(int code, MPI_Request handle, sh_mpi_request *request)
{
    memcpy(request->bytes, &handle, sizeof(handle));
    return code;
}

static int plugin_init(int *rank, int *size)
{
    int level;
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (code != MPI_SUCCESS) return code;
    if (level < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
    /* Return errors instead of aborting, on both communicators: an error that belongs to no
     * communicator, such as an invalid request, is reported on MPI_COMM_WORLD. */
    code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(comm, rank);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(comm, size);
    return code;
}

static int plugin_finalize(void)
{
    int code = MPI_Comm_free(&comm);
    return code == MPI_SUCCESS ? MPI_Finalize() : code;
}

static int plugin_send(const void *data, int len, int to, int tag, sh_mpi_request *request)
{
    MPI_Request handle;
    int code = MPI_Isend(data, len, MPI_BYTE, to, tag, comm, &handle);
    return store(code, handle, request);
}

static int plugin_recv(void *data, int len, int from, int tag, sh_mpi_request *request)
{
    MPI_Request handle;
    int code = MPI_Irecv(data, len, MPI_BYTE, from, tag, comm, &handle);
    return store(code, handle, request);
}

static int plugin_test(sh_mpi_request *request, bool *done)
{
    int flag = 0;
    MPI_Request handle = load(request);
    int code = MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
    *done = flag != 0;
    return store(code, handle, request);
}

static void plugin_cancel(sh_mpi_request *request)
{
    MPI_Request handle = load(request);
    if (MPI_Cancel(&handle) == MPI_SUCCESS) (void)MPI_Request_free(&handle);
}

static int plugin_barrier(sh_mpi_request *request)
{
    MPI_Request handle;
    int code = MPI_Ibarrier(comm, &handle);
    return store(code, handle, request);
}

static void plugin_error_text(int code, char *out, size_t cap)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    if (MPI_Error_string(code, text, &len) != MPI_SUCCESS) len = 0;
    snprintf(out, cap, "%.*s", len, text);
}

const sh_mpi_plugin sh_mpi_plugin_table = {
    .version = SH_MPI_PLUGIN_VERSION,
#ifdef OPEN_MPI
    .family = "openmpi",
#else
    .family = "mpich",
#endif
    .init = plugin_init,
    .finalize = plugin_finalize,
    .send = plugin_send,
    .recv = plugin_recv,
    .test = plugin_test,
    .cancel = plugin_cancel,
    .barrier = plugin_barrier,
    .error_text = plugin_error_text,
};
