/* Checks of a hostfile that parsed, and of its devices: mistakes that would only show once ranks
 * fail to connect, such as a loopback address among remote hosts, two hosts with one address, or a
 * backend that is not built in. Works on the file alone; nothing is resolved or contacted. */
#include "cluster/hostfile.h"
#include "net/addr.h"
#include "net/peer_messages.h"

#include <stdio.h>
#include <string.h>

const sh_devices *sh_hostfile_devices(const sh_hostfile *file, int from, int to)
{
    static const sh_devices none;
    const sh_host *host = &file->host[from];
    return to < host->rdma_count ? &host->rdma[to] : &none;
}

bool sh_hostfile_has_devices(const sh_hostfile *file)
{
    for (int i = 0; i < file->count; i++)
        for (int j = 0; j < file->count; j++)
            if (sh_hostfile_devices(file, i, j)->count > 0) return true;
    return false;
}

static bool needs_devices(const sh_backend *backend, int size, int from, int to)
{
    bool next = (from + 1) % size == to || (to + 1) % size == from;
    return backend->devices == SH_DEVICES_EVERYWHERE ||
           (backend->devices == SH_DEVICES_NEIGHBOURS && next);
}

/* A cable has two ends, so both ranks of a pair name equally many devices. */
static sh_status check_cell(const sh_hostfile *file, const sh_backend *backend, int from, int to,
                            sh_err *err)
{
    char cell[48], other[48];
    int mine = sh_hostfile_devices(file, from, to)->count;
    int theirs = sh_hostfile_devices(file, to, from)->count;
    sh_hostfile_cell_name(file->is_matrix, from, to, cell, sizeof(cell));
    sh_hostfile_cell_name(file->is_matrix, to, from, other, sizeof(other));
    if (mine != theirs)
        return sh_err_set(err, SH_ERR_INPUT,
                          "%s: %s names %d device%s, but %s names %d: a link needs one at each end",
                          file->where, cell, mine, mine == 1 ? "" : "s", other, theirs);
    if (mine > SH_LANES_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "%s: %s names %d devices; at most %d", file->where,
                          cell, mine, SH_LANES_MAX);
    if (mine > 0) return SH_OK;
    if (needs_devices(backend, file->count, from, to))
        return sh_err_set(err, SH_ERR_INPUT, "%s: %s names no device, but %s needs one between %s",
                          file->where, cell, backend->name,
                          backend->devices == SH_DEVICES_EVERYWHERE
                              ? "every two ranks (jaccl-ring: only between neighbours)"
                              : "each rank and the next");
    return SH_OK;
}

sh_status sh_hostfile_check_devices(const sh_hostfile *file, const sh_backend *backend, sh_err *err)
{
    if (file->count < 2)
        return sh_err_set(err, SH_ERR_INPUT, "%s: devices need at least two ranks", file->where);
    for (int i = 0; i < file->count; i++)
        for (int j = 0; j < file->count; j++) {
            if (i == j) continue;
            sh_status status = check_cell(file, backend, i, j, err);
            if (status != SH_OK) return status;
        }
    return SH_OK;
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

static void check_backend(const sh_hostfile *file, sh_findings *report)
{
    const sh_backend *backend = sh_backend_find(file->backend);
    if (backend == NULL)
        sh_findings_add(report, SH_FINDING_FAIL, "backend", "",
                        "write ring, or leave it empty and choose with --backend",
                        "'%s' is not a backend", file->backend);
    else if (!sh_backend_is_built_in(backend))
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

/* Devices that suit no backend are a failure only if the file asks for one that needs them. */
static void check_devices(const sh_hostfile *file, sh_findings *report)
{
    static const char *const suited[] = {"jaccl", "jaccl-ring"};
    const sh_backend *asked = sh_backend_find(file->backend);
    bool wanted = asked != NULL && asked->devices != SH_DEVICES_NOWHERE;
    sh_err err;
    if (!sh_hostfile_has_devices(file)) {
        if (wanted)
            sh_findings_add(report, SH_FINDING_WARN, "rdma", "",
                            "`shoal hosts detect` finds out which device reaches which host",
                            "no devices are named: each rank uses any that is active");
        return;
    }
    for (size_t i = 0; i < SH_COUNT_OF(suited); i++)
        if (sh_hostfile_check_devices(file, wanted ? asked : sh_backend_find(suited[i]), &err) ==
            SH_OK) {
            sh_findings_add(report, SH_FINDING_OK, "rdma", "", NULL, "devices for %s",
                            wanted ? asked->name : suited[i]);
            return;
        }
    sh_findings_add(report, wanted ? SH_FINDING_FAIL : SH_FINDING_WARN, "rdma", "",
                    "rdma[j] of host i names the device on host i that reaches host j", "%s",
                    err.text);
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
    if (file->is_matrix)
        sh_findings_add(report, SH_FINDING_WARN, "hosts", "",
                        "it is complete as --ibv-devices; a --hostfile must name hosts",
                        "%d rank%s, but none has an address or an ssh name", file->count,
                        file->count == 1 ? "" : "s");
    else if (sh_findings_count(report, SH_FINDING_FAIL) == before)
        sh_findings_add(report, SH_FINDING_OK, "hosts", "", NULL, "%d rank%s", file->count,
                        file->count == 1 ? "" : "s");
}
