/* Parsing of hostfiles, and the addresses that follow from them.
 *
 * The forms differ in their top level only: an object has "hosts", a list has either host objects
 * or rows. Whether a list of rows holds addresses or devices is decided once for the whole file, by
 * the presence of a null (a host has no device to itself, so a matrix always has one).
 *
 * A hostfile decides what ssh is started with. A name that begins with '-' would be read as an
 * option of ssh (-oProxyCommand=... runs a command), and one with spaces or control characters
 * would break scripts and logs, so such names are refused here, before anything uses them. */
#include "cluster/hostfile.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "net/addr.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LEN_MAX = 4 << 20, ENVS_MAX = 1024, DEVICES_MAX = 64, DEVICE_NAME_MAX = 64 };

typedef struct {
    sh_hostfile *file;
    const char *where;
    sh_err *err;
    bool matrix; /* a list of rows of devices */
} parse;

static sh_status bad(const parse *p, const char *entry, const char *must, const cJSON *found)
{
    return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s must be %s, not %s", p->where, entry, must,
                      sh_json_kind(found));
}

static const char *keep(parse *p, const char *text)
{
    return sh_arena_str(&p->file->arena, sh_str_of(text)).ptr;
}

/* A host name or IP address, including IPv6 with a scope, short enough that it still fits into an
 * address text with brackets and port. */
static bool is_host_text(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && strchr(".-_:%", text[i]) == NULL) return false;
    return len > 0 && text[0] != '-' && len + strlen("[]:65535") < SH_ADDR_TEXT_MAX;
}

static bool is_one_word(const char *text)
{
    const char *p = text;
    while ((unsigned char)*p > ' ' && *p != 0x7f) p++;
    return p > text && *p == '\0';
}

/* Unknown keys are left to other programs, except those that look like a slip: what they say would
 * be missed without a word. */
static sh_status keys_check(const parse *p, const char *entry, const cJSON *obj,
                            const char *const *keys, int count)
{
    for (const cJSON *item = obj->child; item != NULL; item = item->next) {
        sh_suggestion meant = {.typed = sh_str_of(item->string)};
        for (int i = 0; i < count; i++) sh_suggestion_try(&meant, keys[i]);
        if (meant.name != NULL && meant.distance > 0)
            return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s has the key '%s'; did you mean '%s'?",
                              p->where, entry, item->string, meant.name);
    }
    return SH_OK;
}

/* Whether the text is an address with a port; an IPv6 address has more than one colon. */
static bool has_port(const char *text)
{
    const char *colon = strchr(text, ':');
    size_t digits = colon == NULL ? 0 : strspn(colon + 1, "0123456789");
    return text[0] == '[' || (digits > 0 && colon[1 + digits] == '\0');
}

static sh_status parse_address(parse *p, sh_host *host, const char *entry, const cJSON *item,
                               bool with_port)
{
    char name[SH_ADDR_HOST_MAX];
    uint16_t port;
    if (!cJSON_IsString(item)) return bad(p, entry, "a string", item);
    if (host->address_count == SH_LANES_MAX)
        return sh_err_set(p->err, SH_ERR_LIMIT, "%s: %s has more than %d addresses", p->where,
                          entry, SH_LANES_MAX);
    if (with_port && sh_addr_split(item->valuestring, name, &port, p->err) != SH_OK)
        return sh_err_prefix(p->err, "%s: %s", p->where, entry);
    if (!with_port && has_port(item->valuestring))
        return sh_err_set(p->err, SH_ERR_INPUT,
                          "%s: %s has '%s': write the address without a port; ports count up from "
                          "%d, and --listen sets others",
                          p->where, entry, item->valuestring, SH_HOSTFILE_PORT);
    if (!is_host_text(with_port ? name : item->valuestring) || (with_port && has_port(name)))
        return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s '%s' is not an address", p->where, entry,
                          item->valuestring);
    host->address[host->address_count++] = keep(p, item->valuestring);
    return SH_OK;
}

/* A name as in /sys/class/infiniband: it becomes part of paths, logs and scripts. */
static bool is_device_text(const char *text)
{
    size_t len = strlen(text);
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && strchr("._-:", text[i]) == NULL) return false;
    return len > 0 && len < DEVICE_NAME_MAX && text[0] != '.' && text[0] != '-';
}

/* null, "device" or ["device", ...]. */
static sh_status parse_devices(parse *p, const char *entry, const cJSON *item, sh_devices *out)
{
    if (cJSON_IsNull(item)) return SH_OK;
    if (!cJSON_IsString(item) && !cJSON_IsArray(item))
        return bad(p, entry, "null, a string or a list of strings", item);
    int count = cJSON_IsString(item) ? 1 : cJSON_GetArraySize(item);
    if (count > DEVICES_MAX)
        return sh_err_set(p->err, SH_ERR_LIMIT, "%s: %s has more than %d devices", p->where, entry,
                          DEVICES_MAX);
    out->name = sh_arena_array(&p->file->arena, (size_t)count, sizeof(*out->name));
    const cJSON *device = cJSON_IsString(item) ? item : item->child;
    for (; out->count < count; device = device->next) {
        if (!cJSON_IsString(device))
            return bad(p, entry, "null, a string or a list of strings", item);
        if (!is_device_text(device->valuestring))
            return sh_err_set(p->err, SH_ERR_INPUT,
                              "%s: %s '%s' is not the name of a device, such as mlx5_0", p->where,
                              entry, device->valuestring);
        out->name[out->count++] = keep(p, device->valuestring);
    }
    return SH_OK;
}

void sh_hostfile_cell_name(bool matrix, int from, int to, char *out, size_t len)
{
    if (matrix)
        snprintf(out, len, "row %d, column %d", from, to);
    else
        snprintf(out, len, "rdma[%d] of host %d", to, from);
}

/* One entry for each host, null at the host's own position; or an empty list. */
static sh_status parse_rdma(parse *p, sh_host *host, int idx, const cJSON *list)
{
    char entry[48];
    snprintf(entry, sizeof(entry), p->matrix ? "row %d" : "rdma of host %d", idx);
    if (!cJSON_IsArray(list)) return bad(p, entry, "a list", list);
    int count = cJSON_GetArraySize(list);
    if (count != 0 && count != p->file->count)
        return sh_err_set(p->err, SH_ERR_INPUT,
                          "%s: %s has %d entries, must have one for each of %d hosts", p->where,
                          entry, count, p->file->count);
    host->rdma = sh_arena_array(&p->file->arena, (size_t)count, sizeof(*host->rdma));
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        sh_hostfile_cell_name(p->matrix, idx, host->rdma_count, entry, sizeof(entry));
        sh_status status = parse_devices(p, entry, item, &host->rdma[host->rdma_count]);
        if (status != SH_OK) return status;
        if (host->rdma_count == idx && host->rdma[idx].count > 0)
            return bad(p, entry, "null, because a host has no device to itself", item);
        host->rdma_count++;
    }
    return SH_OK;
}

static sh_status parse_host_object(parse *p, sh_host *host, int idx, const cJSON *obj)
{
    static const char *const keys[] = {"ssh", "ips", "rdma"};
    char entry[48];
    snprintf(entry, sizeof(entry), "host %d", idx);
    if (!cJSON_IsObject(obj)) return bad(p, entry, "an object", obj);
    if (keys_check(p, entry, obj, keys, SH_COUNT_OF(keys)) != SH_OK) return p->err->status;
    const cJSON *ssh = cJSON_GetObjectItemCaseSensitive(obj, "ssh");
    const cJSON *ips = cJSON_GetObjectItemCaseSensitive(obj, "ips");
    const cJSON *rdma = cJSON_GetObjectItemCaseSensitive(obj, "rdma");
    snprintf(entry, sizeof(entry), "'ssh' of host %d", idx);
    if (!cJSON_IsString(ssh)) return bad(p, entry, "a string", ssh);
    if (ssh->valuestring[0] == '-' || !is_one_word(ssh->valuestring))
        return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s '%s' is not a host name", p->where, entry,
                          ssh->valuestring);
    host->ssh = keep(p, ssh->valuestring);
    snprintf(entry, sizeof(entry), "'ips' of host %d", idx);
    if (ips != NULL && !cJSON_IsArray(ips)) return bad(p, entry, "a list", ips);
    for (const cJSON *ip = ips == NULL ? NULL : ips->child; ip != NULL; ip = ip->next) {
        sh_status status = parse_address(p, host, entry, ip, false);
        if (status != SH_OK) return status;
    }
    return rdma == NULL ? SH_OK : parse_rdma(p, host, idx, rdma);
}

/* A row of addresses, or of devices if the file is a matrix. */
static sh_status parse_host_row(parse *p, sh_host *host, int idx, const cJSON *row)
{
    char entry[48];
    snprintf(entry, sizeof(entry), "entry %d", idx);
    if (p->matrix) return parse_rdma(p, host, idx, row);
    if (cJSON_IsString(row)) return parse_address(p, host, entry, row, true);
    if (!cJSON_IsArray(row)) return bad(p, entry, "a string or a list of strings", row);
    if (row->child == NULL)
        return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s is an empty list", p->where, entry);
    for (const cJSON *item = row->child; item != NULL; item = item->next) {
        sh_status status = parse_address(p, host, entry, item, true);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static bool has_null(const cJSON *list)
{
    for (const cJSON *row = list->child; row != NULL; row = row->next)
        for (const cJSON *item = cJSON_IsArray(row) ? row->child : NULL; item != NULL;
             item = item->next)
            if (cJSON_IsNull(item)) return true;
    return false;
}

/* file->count is set before the hosts are parsed: parse_rdma compares with it. */
static sh_status parse_hosts(parse *p, const cJSON *list, bool objects)
{
    int count = cJSON_GetArraySize(list);
    if (count < 1 || count > SH_RANKS_MAX)
        return sh_err_set(p->err, SH_ERR_INPUT, "%s: has %d hosts, must have 1 to %d", p->where,
                          count, SH_RANKS_MAX);
    p->file->host = sh_arena_array(&p->file->arena, (size_t)count, sizeof(*p->file->host));
    p->file->count = count;
    p->matrix = !objects && has_null(list);
    p->file->has_ports = !objects && !p->matrix;
    p->file->is_matrix = p->matrix;
    int idx = 0;
    for (const cJSON *item = list->child; item != NULL; item = item->next, idx++) {
        sh_status status = objects ? parse_host_object(p, &p->file->host[idx], idx, item)
                                   : parse_host_row(p, &p->file->host[idx], idx, item);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

static sh_status parse_envs(parse *p, const cJSON *list)
{
    char entry[32];
    if (list == NULL || cJSON_IsNull(list)) return SH_OK;
    if (!cJSON_IsArray(list)) return bad(p, "'envs'", "a list", list);
    int count = cJSON_GetArraySize(list);
    if (count > ENVS_MAX)
        return sh_err_set(p->err, SH_ERR_LIMIT, "%s: 'envs' has more than %d entries", p->where,
                          ENVS_MAX);
    p->file->env = sh_arena_array(&p->file->arena, (size_t)count, sizeof(*p->file->env));
    for (const cJSON *item = list->child; item != NULL; item = item->next) {
        snprintf(entry, sizeof(entry), "envs[%d]", p->file->env_count);
        if (!cJSON_IsString(item)) return bad(p, entry, "a string \"NAME=value\"", item);
        const char *equals = strchr(item->valuestring, '=');
        if (equals == NULL || equals == item->valuestring)
            return sh_err_set(p->err, SH_ERR_INPUT, "%s: %s '%s' must be \"NAME=value\"", p->where,
                              entry, item->valuestring);
        p->file->env[p->file->env_count++] = keep(p, item->valuestring);
    }
    return SH_OK;
}

static sh_status parse_top(parse *p, const cJSON *top)
{
    if (cJSON_IsArray(top)) return parse_hosts(p, top, cJSON_IsObject(top->child));
    static const char *const keys[] = {"backend", "envs", "hosts"};
    if (!cJSON_IsObject(top)) return bad(p, "the top level", "a list or an object", top);
    if (keys_check(p, "the top level", top, keys, SH_COUNT_OF(keys)) != SH_OK)
        return p->err->status;
    const char *backend = "";
    sh_status status = sh_json_string(top, "backend", p->where, &backend, p->err);
    if (status != SH_OK) return status;
    p->file->backend = keep(p, backend);
    status = parse_envs(p, cJSON_GetObjectItemCaseSensitive(top, "envs"));
    if (status != SH_OK) return status;
    const cJSON *hosts = cJSON_GetObjectItemCaseSensitive(top, "hosts");
    if (!cJSON_IsArray(hosts)) return bad(p, "'hosts'", "a list", hosts);
    return parse_hosts(p, hosts, true);
}

sh_status sh_hostfile_parse(sh_str text, const char *where, sh_hostfile **out, sh_err *err)
{
    sh_hostfile *file = sh_alloc(sizeof(*file));
    parse p = {.file = file, .where = where, .err = err};
    cJSON *top = NULL;
    sh_status status = SH_OK;
    file->backend = "";
    file->where = sh_arena_str(&file->arena, sh_str_of(where)).ptr;
    if (sh_str_trim(text).len == 0) { /* mlx.launch writes an empty file for a single host */
        file->host = sh_arena_array(&file->arena, 1, sizeof(*file->host));
        file->count = 1;
    } else {
        status = sh_json_parse(text, where, &top, err);
        if (status == SH_OK) status = parse_top(&p, top);
    }
    cJSON_Delete(top);
    if (status != SH_OK) {
        sh_hostfile_free(file);
        return status;
    }
    *out = file;
    return SH_OK;
}

sh_status sh_hostfile_load(const char *path, sh_hostfile **out, sh_err *err)
{
    sh_buf text = {0};
    sh_status status = sh_file_read(path, FILE_LEN_MAX, &text, err);
    if (status == SH_OK) status = sh_hostfile_parse(sh_buf_str(&text), path, out, err);
    sh_buf_reset(&text);
    return status;
}

/* MLX's variable names a file; starting ranks by hand is easier with the matrix itself. */
sh_status sh_hostfile_load_matrix(const char *text, const char *setting, sh_hostfile **out,
                                  sh_err *err)
{
    sh_hostfile *file = NULL;
    sh_str trimmed = sh_str_trim(sh_str_of(text));
    bool inline_json = sh_str_starts(trimmed, SH_STR("["));
    sh_status status = inline_json ? sh_hostfile_parse(trimmed, setting, &file, err)
                                   : sh_hostfile_load(text, &file, err);
    if (status == SH_OK && !file->is_matrix)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "%s: must be a matrix of devices, such as "
                            "[[null, \"mlx5_0\"], [\"mlx5_0\", null]]",
                            inline_json ? setting : text);
    if (status == SH_OK)
        *out = file;
    else
        sh_hostfile_free(file);
    return status;
}

void sh_hostfile_free(sh_hostfile *file)
{
    if (file == NULL) return;
    sh_arena_reset(&file->arena);
    free(file);
}

/* The address, or if the host has none its ssh name without "user@". */
static const char *host_of(const sh_host *host, int idx)
{
    if (host->address_count > 0) return host->address[idx];
    const char *at = strrchr(host->ssh, '@');
    return at == NULL ? host->ssh : at + 1;
}

sh_status sh_hostfile_addresses(const sh_hostfile *file, int rank, int first_port,
                                sh_addr_list *out, sh_err *err)
{
    SH_ASSERT(rank >= 0 && rank < file->count);
    const sh_host *host = &file->host[rank];
    if (host->address_count == 0 && host->ssh == NULL)
        return sh_err_set(err, SH_ERR_INPUT,
                          "the hostfile has no address for rank %d, only devices", rank);
    if (host->address_count == 0 && (!is_host_text(host_of(host, 0)) || has_port(host_of(host, 0))))
        return sh_err_set(err, SH_ERR_INPUT,
                          "host %d has no ips, and its ssh name '%s' is not an address", rank,
                          host->ssh);
    /* Every rank must arrive at the same port for this one, so the addresses of all ranks before it
     * are counted, whether they share its machine or not. */
    int port = first_port;
    for (int r = 0; r < rank; r++)
        port += file->host[r].address_count > 0 ? file->host[r].address_count : 1;
    int count = host->address_count > 0 ? host->address_count : 1;
    if (port + count > UINT16_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "there are not enough ports above %d for all hosts",
                          first_port);
    sh_addr_list list = {.count = count};
    for (int i = 0; i < count; i++) {
        const char *name = host_of(host, i);
        bool v6 = !file->has_ports && strchr(name, ':') != NULL;
        int len = file->has_ports ? snprintf(list.text[i], SH_ADDR_TEXT_MAX, "%s", name)
                                  : snprintf(list.text[i], SH_ADDR_TEXT_MAX,
                                             v6 ? "[%s]:%d" : "%s:%d", name, port + i);
        if (len >= SH_ADDR_TEXT_MAX)
            return sh_err_set(err, SH_ERR_INPUT, "the hostfile's address '%s' is too long", name);
    }
    *out = list;
    return SH_OK;
}
