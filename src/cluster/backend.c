#include "cluster/backend.h"

#include <string.h>

static const sh_backend BACKENDS[] = {
    {.name = "ring"},
    {.name = "any"}, /* MLX: whatever is configured */
    {.name = "mpi", .transport = "mpi", .own_launcher = true, .peers_read_memory = true},
    {.name = "jaccl", .transport = "jaccl", .devices = SH_DEVICES_EVERYWHERE},
    {.name = "jaccl-ring", .transport = "jaccl", .devices = SH_DEVICES_NEIGHBOURS},
    {.name = "nccl", .transport = "nccl"},
};

const sh_backend *sh_backend_find(const char *name)
{
    if (name[0] == '\0') return &BACKENDS[0];
    for (size_t i = 0; i < SH_COUNT_OF(BACKENDS); i++)
        if (strcmp(BACKENDS[i].name, name) == 0) return &BACKENDS[i];
    return NULL;
}

const sh_transport *sh_backend_transport(const sh_backend *backend)
{
    if (backend->transport == NULL) return NULL;
    return sh_transport_find_backend(sh_transports, backend->transport);
}

bool sh_backend_is_built_in(const sh_backend *backend)
{
    return backend->transport == NULL || sh_backend_transport(backend) != NULL;
}
