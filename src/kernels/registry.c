/* The kinds of devices by name. Those that need a library of their own (a GPU's) register when
 * their plugin is loaded; the CPU is always there. */
#include "base/buf.h"
#include "kernels/cpu/cpu.h"
#include "kernels/device.h"

#include <string.h>

enum { KINDS_MAX = 8 };

static sh_device_kind kinds[KINDS_MAX] = {{"cpu", sh_cpu_open}};
static int kind_count = 1;

void sh_device_register(const sh_device_kind *kind)
{
    SH_ASSERT(kind_count < KINDS_MAX);
    kinds[kind_count++] = *kind;
}

static sh_status unknown(const char *name, sh_err *err)
{
    sh_buf list = {0};
    for (int i = 0; i < kind_count; i++)
        sh_buf_addf(&list, "%s%s", i == 0 ? "" : ", ", kinds[i].name);
    sh_status status = sh_err_set(err, SH_ERR_INPUT, "device '%s' is unknown; there are: %s", name,
                                  list.ptr);
    sh_buf_reset(&list);
    return status;
}

sh_status sh_device_open(const char *name, const sh_device_opts *opts, sh_device **out, sh_err *err)
{
    if (name == NULL) name = "cpu";
    for (int i = 0; i < kind_count; i++)
        if (strcmp(kinds[i].name, name) == 0) return kinds[i].open(opts, out, err);
    return unknown(name, err);
}
