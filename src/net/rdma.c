/* The plugin, the devices that were opened and the memory that is registered with them.
 *
 * Registering pins memory and takes milliseconds, so it is done once for each buffer, before the
 * steps start, and for all open devices: a buffer may be sent over any of them. Regions are
 * counted, since every channel of a group registers the same buffers.
 *
 * A device is opened on first use and kept. If it vanishes (a dock was unplugged), its handle is
 * dead: the channels on it fail, and once the last queue pair on it is destroyed, the next use
 * opens it again. */
#include "net/rdma_internal.h"

#include "base/alloc.h"
#include "net/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

struct sh_rdma_region {
    struct sh_rdma_region *next;
    uint8_t *at;
    size_t len;
    int users;
    sh_rdma_mr *mr[SH_RDMA_DEVICES_MAX]; /* by device; NULL: not registered with it */
    sh_rdma_keys keys[SH_RDMA_DEVICES_MAX];
};

/* ---- the plugin ---- */

#ifdef __APPLE__
static const char TO_BUILD[] = "use the SDK of macOS 26.2 or newer and run make again";
static const char TO_LOAD[] = "RDMA needs macOS 26.2 or newer";
#else
static const char TO_BUILD[] = "install libibverbs-dev and run make again";
static const char TO_LOAD[] = "install rdma-core and ibverbs-providers";
#endif

static sh_status plugin_load(const char *dir, const sh_rdma_plugin **out, sh_err *err)
{
    char *path = sh_plugin_find(dir, "shoal-rdma.so");
    if (path == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "RDMA is not available: its plugin was not built; %s", TO_BUILD);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const sh_rdma_plugin *plugin = handle != NULL ? dlsym(handle, SH_RDMA_PLUGIN_SYMBOL) : NULL;
    if (handle == NULL)
        sh_err_set(err, SH_ERR_UNSUPPORTED, "RDMA is not available: %s; %s", dlerror(), TO_LOAD);
    else if (plugin == NULL || plugin->version != SH_RDMA_PLUGIN_VERSION)
        sh_err_set(err, SH_ERR_UNSUPPORTED, "%s: not a plugin of this version", path);
    else
        *out = plugin; /* stays loaded: it is needed until the program ends */
    free(path);
    return *out != NULL ? SH_OK : err->status;
}

sh_status sh_rdma_open(const sh_rdma_opts *opts, sh_rdma **out, sh_err *err)
{
    const sh_rdma_plugin *plugin = opts->plugin;
    sh_status status = plugin != NULL ? SH_OK : plugin_load(opts->dir, &plugin, err);
    if (status != SH_OK) return status;
    sh_rdma *rdma = sh_alloc(sizeof(*rdma));
    rdma->plugin = plugin;
    rdma->devices = opts->devices;
    *out = rdma;
    return SH_OK;
}

void sh_rdma_close(sh_rdma *rdma)
{
    if (rdma == NULL) return;
    SH_ASSERT(rdma->regions == NULL); /* or a channel is still open */
    for (int i = 0; i < rdma->device_count; i++)
        if (rdma->device[i].handle != NULL) rdma->plugin->close(rdma->device[i].handle);
    free(rdma);
}

uint64_t sh_rdma_copied(const sh_rdma *rdma)
{
    return rdma->copied;
}

/* ---- errors ---- */

static sh_status no_memory(const char *device, const char *what, sh_err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return sh_err_set(err, SH_ERR_MEMORY, "%s: %s: out of memory", device, what);
    return sh_err_set(err, SH_ERR_MEMORY,
                      "%s: %s: this process may lock only %llu KiB of memory; raise the limit with "
                      "'ulimit -l unlimited', or LimitMEMLOCK=infinity in a systemd unit",
                      device, what, (unsigned long long)limit.rlim_cur / 1024);
}

sh_status sh_rdma_failed(const char *device, const char *what, int error, sh_err *err)
{
    static const struct {
        int error;
        const char *advice;
    } known[] = {
        {EBUSY, "the device is busy; if a program that used it was killed, wait 30 s"},
        {ENODEV, "the device is gone; check the cable, or load its driver"},
        {EIO, "the device has failed; check the cable, or restart its driver"},
        {EACCES, "no permission for /dev/infiniband; join the group of its files"},
        {EPERM, "no permission for /dev/infiniband; join the group of its files"},
        {ETIMEDOUT, "the peer's address cannot be resolved; check cable and addresses"},
        {EHOSTUNREACH, "there is no route to the peer; check the addresses of both ends"},
        {ENETUNREACH, "there is no route to the peer; check the addresses of both ends"},
    };
    if (error == ENOMEM) return no_memory(device, what, err);
    for (size_t i = 0; i < SH_COUNT_OF(known); i++)
        if (known[i].error == error)
            return sh_err_set(err, SH_ERR_SYSTEM, "%s: %s: %s", device, what, known[i].advice);
    return sh_err_set(err, SH_ERR_SYSTEM, "%s: %s: %s", device, what, strerror(error));
}

static sh_status no_such_device(sh_rdma *rdma, const char *name, sh_err *err)
{
    char names[SH_RDMA_DEVICES_MAX][SH_RDMA_NAME_MAX];
    int count = 0;
    if (rdma->plugin->list(names, SH_RDMA_DEVICES_MAX, &count) != 0) count = 0;
    if (count > SH_RDMA_DEVICES_MAX) count = SH_RDMA_DEVICES_MAX;
    sh_buf list = {0};
    for (int i = 0; i < count; i++) sh_buf_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    sh_err_set(err, SH_ERR_NOT_FOUND, "there is no RDMA device '%s' on this machine, only %s", name,
               count > 0 ? list.ptr : "none at all: is its driver loaded?");
    sh_buf_reset(&list);
    return err->status;
}

/* ---- registered memory ---- */

static sh_status region_register(sh_rdma *rdma, sh_rdma_region *region, sh_rdma_device *device,
                                 sh_err *err)
{
    char what[64];
    int i = device->index;
    int error = rdma->plugin->register_memory(device->handle, region->at, region->len,
                                              &region->mr[i], &region->keys[i]);
    if (error == 0) return SH_OK;
    snprintf(what, sizeof(what), "registering %zu KiB", region->len / 1024);
    return sh_rdma_failed(device->name, what, error, err);
}

static void region_free(sh_rdma *rdma, sh_rdma_region *region)
{
    for (int i = 0; i < rdma->device_count; i++)
        if (region->mr[i] != NULL) rdma->plugin->deregister(region->mr[i]);
    free(region);
}

sh_status sh_rdma_register(sh_rdma *rdma, void *at, size_t len, sh_rdma_region **out, sh_err *err)
{
    sh_rdma_region *region = rdma->regions;
    while (region != NULL && (region->at != at || region->len != len)) region = region->next;
    if (region == NULL) {
        region = sh_alloc(sizeof(*region));
        region->at = at;
        region->len = len;
        for (int i = 0; i < rdma->device_count; i++) {
            if (rdma->device[i].handle == NULL || rdma->device[i].gone) continue;
            sh_status status = region_register(rdma, region, &rdma->device[i], err);
            if (status == SH_OK) continue;
            region_free(rdma, region);
            return status;
        }
        region->next = rdma->regions;
        rdma->regions = region;
    }
    region->users++;
    *out = region;
    return SH_OK;
}

void sh_rdma_unregister(sh_rdma *rdma, sh_rdma_region *region)
{
    if (--region->users > 0) return;
    sh_rdma_region **link = &rdma->regions;
    while (*link != region) link = &(*link)->next;
    *link = region->next;
    region_free(rdma, region);
}

bool sh_rdma_region_is_at(const sh_rdma_region *region, const void *at)
{
    return region->at == at;
}

bool sh_rdma_keys_of(const sh_rdma *rdma, const sh_rdma_device *device, const void *at, size_t len,
                     sh_rdma_keys *out)
{
    const uint8_t *from = at;
    for (const sh_rdma_region *r = rdma->regions; r != NULL; r = r->next) {
        if (r->mr[device->index] == NULL || from < r->at || len > r->len ||
            (size_t)(from - r->at) > r->len - len)
            continue;
        *out = r->keys[device->index];
        return true;
    }
    return false;
}

/* ---- devices ---- */

static void device_drop(sh_rdma *rdma, sh_rdma_device *device)
{
    for (sh_rdma_region *r = rdma->regions; r != NULL; r = r->next) {
        if (r->mr[device->index] != NULL) rdma->plugin->deregister(r->mr[device->index]);
        r->mr[device->index] = NULL;
    }
    rdma->plugin->close(device->handle);
    device->handle = NULL;
}

/* Opens a device, and registers with it what the others already have. */
static sh_status device_open(sh_rdma *rdma, sh_rdma_device *device, sh_err *err)
{
    int error = rdma->plugin->open(device->name, &device->handle);
    if (error == ENODEV) return no_such_device(rdma, device->name, err);
    if (error != 0) return sh_rdma_failed(device->name, "opening it", error, err);
    device->gone = false;
    for (sh_rdma_region *r = rdma->regions; r != NULL; r = r->next) {
        sh_status status = region_register(rdma, r, device, err);
        if (status == SH_OK) continue;
        device_drop(rdma, device);
        return status;
    }
    return SH_OK;
}

static sh_status is_gone(const sh_rdma_device *device, sh_err *err)
{
    return sh_err_set(err, SH_ERR_PEER, "%s is gone; check the cable, or load its driver",
                      device->name);
}

static sh_status device_find(sh_rdma *rdma, const char *name, sh_rdma_device **out, sh_err *err)
{
    int i = 0;
    while (i < rdma->device_count && strcmp(rdma->device[i].name, name) != 0) i++;
    if (i == SH_RDMA_DEVICES_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "more than %d RDMA devices are in use",
                          SH_RDMA_DEVICES_MAX);
    sh_rdma_device *device = &rdma->device[i];
    if (i < rdma->device_count && device->gone && device->handle != NULL) {
        if (device->users > 0) return is_gone(device, err);
        device_drop(rdma, device);
    }
    if (i == rdma->device_count || device->handle == NULL) {
        snprintf(device->name, sizeof(device->name), "%s", name);
        device->index = i;
        sh_status status = device_open(rdma, device, err);
        if (status != SH_OK) return status;
        if (i == rdma->device_count) rdma->device_count++;
    }
    *out = device;
    return SH_OK;
}

/* Takes note of what has happened to a device. */
static void take_events(sh_rdma *rdma, sh_rdma_device *device)
{
    int port = 0;
    for (;;) {
        switch (rdma->plugin->event(device->handle, &port)) {
        case SH_RDMA_QUIET: return;
        case SH_RDMA_GONE: device->gone = true; return;
        case SH_RDMA_PORT_DOWN:
            if (port >= 0 && port <= SH_RDMA_PORTS_MAX) device->downs[port]++;
            break;
        }
    }
}

static sh_status port_query(sh_rdma *rdma, sh_rdma_device *device, int number,
                            sh_rdma_port_ref *out, sh_err *err)
{
    *out = (sh_rdma_port_ref){.device = device, .number = number};
    take_events(rdma, device); /* what happened before does not concern the next channel */
    int error = rdma->plugin->port(device->handle, number, &out->is);
    if (error == ENODEV || error == EIO) device->gone = true;
    return error == 0 ? SH_OK : sh_rdma_failed(device->name, "querying its port", error, err);
}

int sh_rdma_qp_create(sh_rdma *rdma, const sh_rdma_port_ref *port, sh_rdma_kind kind, int depth,
                      sh_rdma_qp **out)
{
    int error = rdma->plugin->create(port->device->handle, port->number, kind, depth, out);
    if (error == 0) port->device->users++;
    return error;
}

void sh_rdma_qp_destroy(sh_rdma *rdma, const sh_rdma_port_ref *port, sh_rdma_qp *qp)
{
    if (qp == NULL) return;
    rdma->plugin->destroy(qp);
    port->device->users--;
}

/* Splits "mlx5_0:2" into the device and the port, which is 1 without a number. */
static sh_status split_name(const char *text, char name[SH_RDMA_NAME_MAX], int *port, sh_err *err)
{
    const char *colon = strchr(text, ':');
    size_t len = colon != NULL ? (size_t)(colon - text) : strlen(text);
    *port = colon == NULL                                            ? 1
            : colon[1] >= '1' && colon[1] <= '8' && colon[2] == '\0' ? colon[1] - '0'
                                                                     : 0;
    if (len == 0 || len >= SH_RDMA_NAME_MAX || *port == 0)
        return sh_err_set(err, SH_ERR_INPUT,
                          "'%s' is not an RDMA device; must be a name, or name:port with a port "
                          "from 1 to %d",
                          text, SH_RDMA_PORTS_MAX);
    memcpy(name, text, len);
    name[len] = '\0';
    return SH_OK;
}

static sh_status port_is_down(const char *device, int number, sh_err *err)
{
    return sh_err_set(err, SH_ERR_SYSTEM,
                      "port %d of %s is down; check the cable, and that the peer is up", number,
                      device);
}

sh_status sh_rdma_find_port(sh_rdma *rdma, const char *name, sh_rdma_port_ref *out, sh_err *err)
{
    char device_name[SH_RDMA_NAME_MAX];
    sh_rdma_device *device = NULL;
    int number;
    sh_status status = split_name(name, device_name, &number, err);
    if (status == SH_OK) status = device_find(rdma, device_name, &device, err);
    if (status == SH_OK) status = port_query(rdma, device, number, out, err);
    if (status != SH_OK || out->is.active) return status;
    return port_is_down(device_name, number, err);
}

/* Adds the active ports of a device to `out`; an error if there are none. */
static sh_status device_ports(sh_rdma *rdma, const char *name, sh_rdma_port_ref *out, int cap,
                              int *count, sh_err *err)
{
    sh_rdma_device *device;
    int before = *count, ports = 1;
    sh_status status = device_find(rdma, name, &device, err);
    for (int number = 1; number <= ports && *count < cap && status == SH_OK; number++) {
        sh_rdma_port_ref port;
        status = port_query(rdma, device, number, &port, err);
        if (status != SH_OK) break;
        ports = port.is.ports < SH_RDMA_PORTS_MAX ? port.is.ports : SH_RDMA_PORTS_MAX;
        if (port.is.active) out[(*count)++] = port;
    }
    return status == SH_OK && *count == before ? port_is_down(name, 1, err) : status;
}

sh_status sh_rdma_active_ports(sh_rdma *rdma, sh_rdma_port_ref *out, int cap, int *count,
                               sh_err *err)
{
    char names[SH_RDMA_DEVICES_MAX][SH_RDMA_NAME_MAX];
    int devices = 0;
    int error = rdma->plugin->list(names, SH_RDMA_DEVICES_MAX, &devices);
    if (error == ENOSYS)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "RDMA: this system has no support for it");
    if (error != 0) return sh_rdma_failed("RDMA", "listing the devices", error, err);
    if (devices > SH_RDMA_DEVICES_MAX) devices = SH_RDMA_DEVICES_MAX;
    if (devices == 0)
        return sh_err_set(err, SH_ERR_NOT_FOUND,
                          "this machine has no RDMA devices; is the driver loaded?");
    *count = 0;
    sh_err first = {.status = SH_OK};
    for (int i = 0; i < devices; i++) {
        sh_status status = device_ports(rdma, names[i], out, cap, count, err);
        if (status != SH_OK && first.status == SH_OK) first = *err;
    }
    if (*count > 0) return SH_OK;
    *err = first;
    return err->status;
}

sh_status sh_rdma_check_port(sh_rdma *rdma, sh_rdma_device *device, int port, unsigned downs,
                             sh_err *err)
{
    if (!device->gone) take_events(rdma, device);
    if (device->gone) return is_gone(device, err);
    if (device->downs[port] != downs)
        return sh_err_set(err, SH_ERR_PEER, "port %d of %s went down; check the cable", port,
                          device->name);
    return SH_OK;
}
