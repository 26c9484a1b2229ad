/* Checks of a hostfile that parsed: mistakes that would only show once ranks fail to connect, such
 * as a loopback address among remote hosts, two hosts with one address, or a backend that is not
 * built in. Works on the file alone; nothing is resolved or contacted. */
#include "cluster/hostfile.h"
#include "net/addr.h"

#include <stdio.h>
#include <string.h>

static const sh_devices *devices(const sh_hostfile *file, int from, int to)
{
    static const sh_devices none;
    const sh_host *host = &file->host[from];
    return to < host->rdma_count ? &host->rdma[to] : &none;
}

static bool is_mesh(const sh_hostfile *file, char *why, size_t len)
{
    for (int i = 0; i < file->count; i++)
        for (int j = 0; j < file->count; j++)
            if (i != j && devices(file, i, j)->count == 0) {
                snprintf(why, len, "not a mesh: host %d has no device to host %d", i, j);
                return false;
            }
    return true;
}

/* In a ring all hops must have the same number of devices, in both directions. */
static bool is_ring(const sh_hostfile *file, char *why, size_t len)
{
    int count = devices(file, 0, 1)->count;
    for (int i = 0; i < file->count; i++) {
        int side[2] = {(i + file->count - 1) % file->count, (i + 1) % file->count};
        for (int k = 0; k < 2; k++)
            if (count == 0 || devices(file, i, side[k])->count != count) {
                snprintf(why, len, "not a ring: host %d has %d devices to host %d, not %d", i,
                         devices(file, i, side[k])->count, side[k], count);
                return false;
            }
    }
    return true;
}

sh_device_shape sh_hostfile_devices(const sh_hostfile *file)
{
    sh_device_shape shape = {0};
    char mesh[72] = "", ring[72] = "";
    if (file->count < 2) {
        snprintf(shape.why, sizeof(shape.why), "devices need at least two hosts");
        return shape;
    }
    shape.mesh = is_mesh(file, mesh, sizeof(mesh));
    shape.ring = is_ring(file, ring, sizeof(ring));
    if (!shape.mesh && !shape.ring) snprintf(shape.why, sizeof(shape.why), "%s; %s", mesh, ring);
    return shape;
}

static const char *name_of(const sh_hostfile *file, int idx, char *out, size_t len)
{
    const sh_host *host = &file->host[idx];
    snprintf(out, len, "%d %s", idx,
             host->ssh != NULL         ? host->ssh
             : host->address_count > 0 ? host->address[0]
                                       : "");
    return out;
}

/* The first four names work here; the others belong to MLX and are recognized but not built in. */
static void check_backend(const sh_hostfile *file, sh_findings *report)
{
    static const char *const known[] = {"", "ring", "any", "mpi", "nccl", "jaccl", "jaccl-ring"};
    size_t i = 0;
    while (i < SH_COUNT_OF(known) && strcmp(known[i], file->backend) != 0) i++;
    if (i == SH_COUNT_OF(known))
        sh_findings_add(report, SH_FINDING_FAIL, "backend", "",
                        "write ring, or leave it empty and choose with --backend",
                        "'%s' is not a backend", file->backend);
    else if (i > 3)
        sh_findings_add(report, SH_FINDING_WARN, "backend", "",
                        "start with --backend ring, or write \"backend\": \"ring\"",
                        "'%s' is not built into this program; --backend ring uses TCP",
                        file->backend);
    else
        sh_findings_add(report, SH_FINDING_OK, "backend", "", NULL, "%s",
                        file->backend[0] == '\0' ? "not set: ring" : file->backend);
}

/* Whether the address, with or without a port, is numeric; *out is set if so. */
static bool parse_number(const sh_hostfile *file, const char *address, sh_addr *out)
{
    char text[SH_ADDR_HOST_MAX + 8];
    sh_err err;
    bool v6 = !file->has_ports && strchr(address, ':') != NULL;
    snprintf(text, sizeof(text), file->has_ports ? "%s" : v6 ? "[%s]:1" : "%s:1", address);
    return sh_addr_parse(text, out, &err) == SH_OK;
}

/* Names work but are risky: two hosts may resolve the same name differently. Port 0 marks the hosts
 * that a file for one rank's neighbours does not know. */
static void check_address(const sh_hostfile *file, int idx, const char *address,
                          sh_findings *report)
{
    char name[SH_ADDR_HOST_MAX];
    sh_addr addr;
    name_of(file, idx, name, sizeof(name));
    if (!parse_number(file, address, &addr))
        sh_findings_add(report, SH_FINDING_WARN, "address", name,
                        "write the IP address, which means the same on every host",
                        "'%s' is a name: each host asks its own resolver", address);
    else if (file->count > 1 && !file->has_ports && sh_addr_is_any(&addr))
        sh_findings_add(report, SH_FINDING_FAIL, "address", name, "write an address of that host",
                        "'%s' is not an address to connect to", address);
    else if (file->has_ports && sh_addr_port(&addr) == 0)
        sh_findings_add(
            report, SH_FINDING_WARN, "address", name, "pass --coordinator to say where rank 0 is",
            "'%s' has no port: does the file list one rank's neighbours only?", address);
}

static bool same_machine(const sh_host *a, const sh_host *b)
{
    return a->ssh != NULL && b->ssh != NULL && strcmp(a->ssh, b->ssh) == 0;
}

static bool is_any(const sh_hostfile *file, const char *address)
{
    sh_addr addr;
    return parse_number(file, address, &addr) && sh_addr_is_any(&addr);
}

/* Two ranks at one address. That is fine for two ranks on one machine when ports are counted up,
 * and for the wildcard address, which names no host. */
static void check_pair(const sh_hostfile *file, int a, int b, sh_findings *report)
{
    const sh_host *x = &file->host[a], *y = &file->host[b];
    char name[SH_ADDR_HOST_MAX];
    for (int i = 0; i < x->address_count; i++)
        for (int j = 0; j < y->address_count; j++) {
            if (strcmp(x->address[i], y->address[j]) != 0) continue;
            if (!file->has_ports && same_machine(x, y)) continue;
            if (file->has_ports && is_any(file, x->address[i])) continue;
            sh_findings_add(report, SH_FINDING_FAIL, "address",
                            name_of(file, b, name, sizeof(name)), "give each host its own address",
                            "has the address %s of host %d", y->address[j], a);
        }
}

/* Loopback addresses only are fine (all ranks on one machine); a mixture cannot work. */
static void check_loopback(const sh_hostfile *file, sh_findings *report)
{
    int loopback = 0, total = 0;
    for (int i = 0; i < file->count; i++)
        for (int k = 0; k < file->host[i].address_count; k++) {
            sh_addr addr;
            total++;
            if (parse_number(file, file->host[i].address[k], &addr))
                loopback += sh_addr_is_loopback(&addr);
        }
    if (loopback > 0 && loopback < total)
        sh_findings_add(report, SH_FINDING_FAIL, "address", "",
                        "write the address by which the others reach that host",
                        "some hosts have a loopback address, which other machines cannot reach");
}

/* Devices that fit no topology are a failure only if the file asks for a backend that needs them.
 */
static void check_devices(const sh_hostfile *file, sh_findings *report)
{
    bool any = false;
    for (int i = 0; i < file->count; i++) any |= file->host[i].rdma_count > 0;
    bool wanted = strncmp(file->backend, "jaccl", 5) == 0;
    if (!any && !wanted) return;
    sh_device_shape shape = sh_hostfile_devices(file);
    if (shape.mesh || shape.ring)
        sh_findings_add(report, SH_FINDING_OK, "rdma", "", NULL, "devices for a %s%s%s",
                        shape.mesh ? "mesh" : "", shape.mesh && shape.ring ? " and a " : "",
                        shape.ring ? "ring" : "");
    else
        sh_findings_add(report, wanted ? SH_FINDING_FAIL : SH_FINDING_WARN, "rdma", "",
                        "rdma[j] of host i names the device on host i that reaches host j", "%s",
                        shape.why);
}

/* False for a bare matrix of devices: it does not say where the ranks are. */
static bool has_places(const sh_hostfile *file)
{
    for (int i = 0; i < file->count; i++)
        if (file->host[i].ssh != NULL || file->host[i].address_count > 0) return true;
    return false;
}

void sh_hostfile_check(const sh_hostfile *file, sh_findings *report)
{
    int before = sh_findings_count(report, SH_FINDING_FAIL);
    check_backend(file, report);
    for (int i = 0; i < file->count; i++) {
        char name[SH_ADDR_HOST_MAX];
        const sh_host *host = &file->host[i];
        for (int k = 0; k < host->address_count; k++)
            check_address(file, i, host->address[k], report);
        if (host->address_count == 0 && host->ssh != NULL && file->count > 1)
            sh_findings_add(report, SH_FINDING_WARN, "address",
                            name_of(file, i, name, sizeof(name)),
                            "`shoal hosts detect` finds the best address",
                            "has no ips: the others reach it by its ssh name");
        for (int j = 0; j < i; j++) check_pair(file, j, i, report);
    }
    check_loopback(file, report);
    check_devices(file, report);
    if (!has_places(file))
        sh_findings_add(report, SH_FINDING_WARN, "hosts", "",
                        "it is complete as --ibv-devices; a --hostfile must name hosts",
                        "%d rank%s, but none has an address or an ssh name", file->count,
                        file->count == 1 ? "" : "s");
    else if (sh_findings_count(report, SH_FINDING_FAIL) == before)
        sh_findings_add(report, SH_FINDING_OK, "hosts", "", NULL, "%d rank%s", file->count,
                        file->count == 1 ? "" : "s");
}
