/* compute.h - for commands that compute: converts settings into options of the layers below. */
#ifndef SH_CMD_SUPPORT_COMPUTE_H
#define SH_CMD_SUPPORT_COMPUTE_H

#include "cmd/support/settings.h"
#include "kernels/device.h"

#include <string.h>

static inline sh_device_opts sh_compute_device(const sh_settings *s)
{
    return (sh_device_opts){.threads = (int)s->threads,
                            .level = s->cpu,
                            .activations = strcmp(s->activations, "f32") == 0
                                               ? SH_ACTIVATIONS_F32
                                               : SH_ACTIVATIONS_INT8};
}

/* "auto" is f16, or f32 with f32 activations. */
static inline sh_kv_format sh_compute_kv(const sh_settings *s)
{
    if (strcmp(s->kv_format, "auto") == 0)
        return strcmp(s->activations, "f32") == 0 ? SH_KV_F32 : SH_KV_F16;
    return strcmp(s->kv_format, "f32") == 0    ? SH_KV_F32
           : strcmp(s->kv_format, "int8") == 0 ? SH_KV_INT8
                                               : SH_KV_F16;
}

#endif
