/* One sh_rdma for the whole process: devices stay open while groups come and go. The lists of names
 * are copied, because the file they come from is closed before the group is. */
#include "cmd/support/rdma_library.h"

#include "base/alloc.h"

#include <stdlib.h>

static struct {
    sh_rdma *rdma;
    sh_rdma_devices devices;
    const char ***names; /* what `devices` points to */
} library;

static bool has_devices(const sh_host *host)
{
    for (int peer = 0; peer < host->rdma_count; peer++)
        if (host->rdma[peer].count > 0) return true;
    return false;
}

static const char **list_copy(const sh_devices *from)
{
    const char **list = sh_alloc_array((size_t)from->count + 1, sizeof(*list));
    for (int i = 0; i < from->count; i++) list[i] = sh_strdup(from->name[i]);
    return list;
}

static void devices_copy(const sh_host *host, bool partial)
{
    int size = host->rdma_count;
    library.names = sh_alloc_array((size_t)size, sizeof(*library.names));
    for (int peer = 0; peer < size; peer++) library.names[peer] = list_copy(&host->rdma[peer]);
    library.devices = (sh_rdma_devices){
        .size = size, .names = (const char *const *const *)library.names, .partial = partial};
}

sh_status sh_rdma_library_open(const sh_hostfile *file, int rank, bool partial, void **out,
                               sh_err *err)
{
    sh_status status = SH_OK;
    if (library.rdma == NULL) {
        if (file != NULL && rank < file->count && has_devices(&file->host[rank]))
            devices_copy(&file->host[rank], partial);
        sh_rdma_opts opts = {.devices = &library.devices};
        status = sh_rdma_open(&opts, &library.rdma, err);
    }
    *out = library.rdma;
    return status;
}

void sh_rdma_library_close(void)
{
    sh_rdma_close(library.rdma);
    for (int peer = 0; peer < library.devices.size; peer++) {
        for (const char **name = library.names[peer]; *name != NULL; name++)
            free((void *)(uintptr_t)*name);
        free(library.names[peer]);
    }
    free(library.names);
    library.rdma = NULL;
    library.names = NULL;
    library.devices = (sh_rdma_devices){0};
}
