/* Creating hostfiles from lists of names or workers, and writing them in any of the known forms.
 *
 * Files that are written here are read by MLX's tools too, so the layout follows Python's
 * json.dump(indent=4); a unit test compares the text byte by byte. */
#include "base/alloc.h"
#include "base/json.h"
#include "cluster/hostfile.h"
#include "cluster/ssh.h"
#include "net/addr.h"
#include "net/sock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 4 };

static void indent(sh_buf *out, int depth)
{
    sh_buf_addf(out, "\n%*s", depth * INDENT, "");
}

/* One value per line, indented by four spaces; cJSON_Print would indent with tabs. */
static void print(const cJSON *item, int depth, sh_buf *out)
{
    bool object = cJSON_IsObject(item);
    if (!object && !cJSON_IsArray(item)) {
        char *text = cJSON_PrintUnformatted(item);
        sh_buf_add_text(out, text);
        cJSON_free(text);
        return;
    }
    sh_buf_add_char(out, object ? '{' : '[');
    for (const cJSON *child = item->child; child != NULL; child = child->next) {
        indent(out, depth + 1);
        if (object) sh_buf_addf(out, "\"%s\": ", child->string);
        print(child, depth + 1, out);
        if (child->next != NULL) sh_buf_add_char(out, ',');
    }
    if (item->child != NULL) indent(out, depth);
    sh_buf_add_char(out, object ? '}' : ']');
}

static cJSON *strings(const char *const *text, int count)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < count; i++) cJSON_AddItemToArray(list, cJSON_CreateString(text[i]));
    return list;
}

static cJSON *devices_json(const sh_host *host)
{
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < host->rdma_count; i++) {
        const sh_devices *d = &host->rdma[i];
        cJSON_AddItemToArray(list, d->count == 0   ? cJSON_CreateNull()
                                   : d->count == 1 ? cJSON_CreateString(d->name[0])
                                                   : strings(d->name, d->count));
    }
    return list;
}

/* Ports are dropped, because this form has none. A host without an ssh name gets its first address
 * as one: the form requires "ssh". The item is already in `list`, so it is freed with it on
 * failure. */
static sh_status host_json(const sh_hostfile *file, int idx, cJSON *list, sh_err *err)
{
    const sh_host *host = &file->host[idx];
    const char *ssh = host->ssh;
    cJSON *item = cJSON_CreateObject(), *ips = cJSON_CreateArray();
    char name[SH_ADDR_HOST_MAX];
    cJSON_AddItemToArray(list, item);
    for (int i = 0; i < host->address_count; i++) {
        uint16_t port;
        const char *address = host->address[i];
        if (file->has_ports && sh_addr_split(address, name, &port, err) != SH_OK) {
            cJSON_Delete(ips);
            return err->status;
        }
        cJSON_AddItemToArray(ips, cJSON_CreateString(file->has_ports ? name : address));
    }
    if (ssh == NULL && ips->child != NULL) ssh = ips->child->valuestring;
    if (ssh != NULL) cJSON_AddStringToObject(item, "ssh", ssh);
    cJSON_AddItemToObject(item, "ips", ips);
    cJSON_AddItemToObject(item, "rdma", devices_json(host));
    if (ssh != NULL) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "host %d has neither a name nor an address, but this form needs one", idx);
}

static sh_status list_fill(const sh_hostfile *file, cJSON *list, sh_err *err)
{
    sh_status status = SH_OK;
    for (int i = 0; status == SH_OK && i < file->count; i++) status = host_json(file, i, list, err);
    return status;
}

/* If any rank has several addresses, all rows become lists: the form does not mix the two. */
static sh_status plain_fill(const sh_hostfile *file, cJSON *list, sh_err *err)
{
    bool nested = false;
    for (int i = 0; i < file->count; i++) nested |= file->host[i].address_count > 1;
    for (int i = 0; i < file->count; i++) {
        sh_addr_list addresses;
        sh_status status = sh_hostfile_addresses(file, i, SH_HOSTFILE_PORT, &addresses, err);
        if (status != SH_OK) return status;
        cJSON *row = nested ? cJSON_CreateArray() : list;
        for (int k = 0; k < addresses.count; k++)
            cJSON_AddItemToArray(row, cJSON_CreateString(addresses.text[k]));
        if (nested) cJSON_AddItemToArray(list, row);
    }
    return SH_OK;
}

static sh_status matrix_fill(const sh_hostfile *file, cJSON *list, sh_err *err)
{
    for (int i = 0; i < file->count; i++) {
        if (file->host[i].rdma_count != file->count)
            return sh_err_set(err, SH_ERR_INPUT,
                              "host %d has no 'rdma' entry for every host, but a matrix needs them",
                              i);
        cJSON_AddItemToArray(list, devices_json(&file->host[i]));
    }
    return SH_OK;
}

/* Built as a JSON tree first, so that nothing is written when a form does not fit. */
sh_status sh_hostfile_write(const sh_hostfile *file, sh_hostfile_form form, sh_buf *out,
                            sh_err *err)
{
    cJSON *top = form == SH_HOSTFILE_OBJECT ? cJSON_CreateObject() : cJSON_CreateArray();
    sh_status status = SH_OK;
    switch (form) {
    case SH_HOSTFILE_OBJECT:
        cJSON_AddStringToObject(top, "backend", file->backend);
        cJSON_AddItemToObject(top, "envs", strings(file->env, file->env_count));
        status = list_fill(file, cJSON_AddArrayToObject(top, "hosts"), err);
        break;
    case SH_HOSTFILE_LIST: status = list_fill(file, top, err); break;
    case SH_HOSTFILE_PLAIN: status = plain_fill(file, top, err); break;
    case SH_HOSTFILE_MATRIX: status = matrix_fill(file, top, err); break;
    }
    if (status == SH_OK) {
        print(top, 0, out);
        sh_buf_add_char(out, '\n');
    }
    cJSON_Delete(top);
    return status;
}

/* Whether a name is an IPv4 or IPv6 address. */
static bool is_number(const char *name)
{
    char text[SH_ADDR_HOST_MAX + 8];
    sh_addr addr;
    sh_err err;
    snprintf(text, sizeof(text), strchr(name, ':') != NULL ? "[%s]:1" : "%s:1", name);
    return sh_addr_parse(text, &addr, &err) == SH_OK;
}

/* Adds `repeat` ranks for one name. The same rules as in hostfile.c: nothing that ssh would take
 * for an option. */
static sh_status name_add(sh_hostfile *file, const char *names, sh_str name, int repeat,
                          sh_err *err)
{
    name = sh_str_trim(name);
    if (name.len == 0 || name.ptr[0] == '-' || name.len >= SH_ADDR_HOST_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "host %d of '%s' is not a host name",
                          file->count / repeat, names);
    const char *text = sh_arena_str(&file->arena, name).ptr;
    if (file->count + repeat > SH_RANKS_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "'%s' makes more than %d ranks", names, SH_RANKS_MAX);
    for (int i = 0; i < repeat; i++) {
        sh_host *host = &file->host[file->count++];
        host->ssh = text;
        if (is_number(text)) host->address[host->address_count++] = text;
    }
    return SH_OK;
}

sh_status sh_hostfile_of_names(const char *names, int repeat, sh_hostfile **out, sh_err *err)
{
    sh_hostfile *file = sh_alloc(sizeof(*file));
    sh_str rest = sh_str_of(names), name;
    sh_status status = SH_OK;
    file->backend = "";
    file->host = sh_arena_array(&file->arena, SH_RANKS_MAX, sizeof(*file->host));
    if (rest.len == 0 || rest.ptr[rest.len - 1] == ',')
        status = sh_err_set(err, SH_ERR_INPUT, "'%s' ends without a host name", names);
    while (status == SH_OK && sh_str_cut(&rest, ',', &name))
        status = name_add(file, names, name, repeat, err);
    if (status != SH_OK) {
        sh_hostfile_free(file);
        return status;
    }
    *out = file;
    return SH_OK;
}

/* The address from which this host would reach another, by the routing table; nothing is sent. */
static sh_status own_address(sh_hostfile *file, const char *to, const char **out, sh_err *err)
{
    char text[SH_ADDR_HOST_MAX + 8], own[SH_ADDR_TEXT_MAX], name[SH_ADDR_HOST_MAX];
    sh_addr there, here;
    uint16_t port;
    int count;
    snprintf(text, sizeof(text), strchr(to, ':') != NULL ? "[%s]:1" : "%s:1", to);
    sh_status status = sh_addr_resolve(text, 1, &there, &count, err);
    if (status == SH_OK) status = sh_sock_route(&there, &here, err);
    if (status != SH_OK) return status;
    sh_addr_format(&here, own);
    status = sh_addr_split(own, name, &port, err);
    if (status == SH_OK) *out = sh_arena_str(&file->arena, sh_str_of(name)).ptr;
    return status;
}

static bool is_this_host(const char *name)
{
    char text[SH_ADDR_HOST_MAX + 8];
    sh_addr addr;
    sh_err err;
    snprintf(text, sizeof(text), strchr(name, ':') != NULL ? "[%s]:1" : "%s:1", name);
    bool loopback = strcmp(name, "localhost") == 0 ||
                    (sh_addr_parse(text, &addr, &err) == SH_OK && sh_addr_is_loopback(&addr));
    return !loopback && sh_ssh_is_local(name);
}

/* All machines may be listed, so that the same settings are right on each: the one that they are
 * used on is rank 0. Loopback addresses are ranks of their own. */
static sh_status roles_assign(sh_hostfile *file, sh_err *err)
{
    sh_host *host = file->host;
    for (int i = 1; i <= file->count; i++) {
        if (!is_this_host(host[i].address[0])) continue;
        host[0].address[0] = host[i].address[0];
        file->count--;
        memmove(&host[i], &host[i + 1], (size_t)(file->count + 1 - i) * sizeof(*host));
        if (file->count > 0) return SH_OK;
        return sh_err_set(err, SH_ERR_INPUT,
                          "the only worker, %s, is this machine: list the other one, or both",
                          host[0].address[0]);
    }
    return own_address(file, host[1].address[0], &host[0].address[0], err);
}

/* The workers are parsed as names first and then moved up by one, to make rank 0 this host.
 * file->count stays at the number of workers until the end. */
sh_status sh_hostfile_of_workers(const char *addresses, const char *ssh, sh_hostfile **out,
                                 sh_err *err)
{
    sh_hostfile *file;
    sh_status status = sh_hostfile_of_names(addresses, 1, &file, err);
    if (status != SH_OK) return status;
    sh_str rest = sh_str_of(ssh), name;
    if (file->count == SH_RANKS_MAX)
        status = sh_err_set(err, SH_ERR_LIMIT, "more than %d ranks", SH_RANKS_MAX);
    if (status == SH_OK)
        memmove(&file->host[1], &file->host[0], (size_t)file->count * sizeof(*file->host));
    file->host[0] = (sh_host){.ssh = "127.0.0.1", .address_count = 1};
    for (int i = 1; status == SH_OK && i <= file->count; i++) {
        file->host[i].address[0] = file->host[i].ssh;
        file->host[i].address_count = 1;
        if (ssh == NULL) continue;
        if (!sh_str_cut(&rest, ',', &name) || (name = sh_str_trim(name)).len == 0 ||
            name.ptr[0] == '-')
            status = sh_err_set(err, SH_ERR_INPUT, "worker %d has an address but no ssh name", i);
        else
            file->host[i].ssh = sh_arena_str(&file->arena, name).ptr;
    }
    if (status == SH_OK && rest.len > 0)
        status = sh_err_set(err, SH_ERR_INPUT, "there are more ssh names than worker addresses");
    if (status == SH_OK) status = roles_assign(file, err);
    file->count++;
    if (status == SH_OK) {
        *out = file;
        return SH_OK;
    }
    sh_hostfile_free(file);
    return status;
}
