/* Gathers the fingerprint of this host, from /sys and /proc on Linux and from POSIX elsewhere.
 *
 * Nothing here fails as a whole: a file that is missing or unreadable leaves its field out, since a
 * host that reports less is more useful than one that reports nothing. No privileges are needed and
 * nothing is changed on the host (--listen opens its sockets only to close them again). */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/system.h"
#include "base/version.h"
#include "cluster/backend.h"
#include "cluster/fingerprint.h"
#include "model/identity.h"
#include "net/plugin.h"
#include "net/sock.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* FDB_ENTRY_LEN is sizeof(struct __fdb_entry) of the kernel's bridge code. */
enum { SMALL_FILE_MAX = 1 << 18, FDB_ENTRY_LEN = 16, SEEN_PORTS_MAX = 64 };

/* The file's text, trimmed; empty when it cannot be read. Borrowed from buf, which the next call
 * overwrites. */
static sh_str file_text(const char *path, sh_buf *buf)
{
    sh_err err;
    sh_buf_reset(buf);
    if (sh_file_read(path, SMALL_FILE_MAX, buf, &err) != SH_OK) sh_buf_reset(buf);
    return sh_str_trim(sh_buf_str(buf));
}

static int64_t file_number(const char *path)
{
    sh_buf buf = {0};
    int64_t value = 0;
    if (!sh_str_to_int(file_text(path, &buf), &value)) value = 0;
    sh_buf_reset(&buf);
    return value;
}

/* Text from the system may be in any encoding, but JSON must be UTF-8: drop what is not. */
static void add_text(cJSON *obj, const char *key, sh_str text)
{
    char *copy = sh_str_dup(text);
    if (sh_utf8_valid(copy, strlen(copy))) cJSON_AddStringToObject(obj, key, copy);
    free(copy);
}

/* The value of the first line "name<separator>value", as in /proc/cpuinfo. */
static sh_str line_value(sh_str text, const char *name, char separator)
{
    sh_str line;
    while (sh_str_cut(&text, '\n', &line)) {
        sh_str key;
        if (sh_str_cut(&line, separator, &key) && sh_str_is(sh_str_trim(key), name))
            return sh_str_trim(line);
    }
    return SH_STR("");
}

static sh_str unquoted(sh_str text)
{
    bool quoted = text.len > 1 && text.ptr[0] == '"' && text.ptr[text.len - 1] == '"';
    return quoted ? sh_str_sub(text, 1, text.len - 2) : text;
}

static void add_system(cJSON *top, const sh_fingerprint_opts *opts)
{
    struct utsname name;
    sh_buf buf = {0};
    uname(&name);
    cJSON_AddStringToObject(top, "version", sh_version());
    if (opts->program != NULL) cJSON_AddStringToObject(top, "program", opts->program);
    cJSON_AddStringToObject(top, "hostname", name.nodename);
    sh_str os = unquoted(line_value(file_text("/etc/os-release", &buf), "PRETTY_NAME", '='));
    add_text(top, "os", os.len > 0 ? os : sh_str_of(name.sysname));
    cJSON_AddStringToObject(top, "kernel", name.release);
    cJSON_AddStringToObject(top, "arch", name.machine);
    cJSON *cpu = cJSON_AddObjectToObject(top, "cpu");
    sh_str model = line_value(file_text("/proc/cpuinfo", &buf), "model name", ':');
    add_text(cpu, "name", model.len > 0 ? model : sh_str_of(name.machine));
    cJSON_AddNumberToObject(cpu, "cores", (double)sysconf(_SC_NPROCESSORS_ONLN));
    if (opts->cpu_level != NULL) cJSON_AddStringToObject(cpu, "level", opts->cpu_level);
    sh_buf_reset(&buf);
}

static double limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? -1 : (double)limit;
}

/* cJSON numbers are doubles: exact up to 2^53, which is enough for bytes of memory. */
static void add_resources(cJSON *top)
{
    struct rlimit files, locked;
    struct statvfs shm;
    cJSON *memory = cJSON_AddObjectToObject(top, "memory");
    cJSON_AddNumberToObject(memory, "total", (double)sh_memory_total());
    cJSON_AddNumberToObject(memory, "available", (double)sh_memory_available());
    if (statvfs("/dev/shm", &shm) == 0)
        cJSON_AddNumberToObject(memory, "shm", (double)shm.f_bavail * (double)shm.f_frsize);
    cJSON_AddNumberToObject(top, "unix_us", (double)sh_clock_unix_us());
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    cJSON *limits = cJSON_AddObjectToObject(top, "limits");
    cJSON_AddNumberToObject(limits, "files_soft", limit_of(files.rlim_cur));
    cJSON_AddNumberToObject(limits, "files_hard", limit_of(files.rlim_max));
    cJSON_AddNumberToObject(limits, "locked", limit_of(locked.rlim_cur));
}

/* /sys/class/net/NAME/WHAT, owned by the caller. */
static char *net_path(const char *name, const char *what)
{
    return sh_asprintf("/sys/class/net/%s/%s", name, what);
}

static int64_t net_number(const char *name, const char *what)
{
    char *path = net_path(name, what);
    int64_t value = file_number(path);
    free(path);
    return value;
}

static bool net_has(const char *name, const char *what)
{
    char *path = net_path(name, what);
    bool has = access(path, F_OK) == 0;
    free(path);
    return has;
}

/* By ioctl, which systems without /sys have as well. */
static int64_t mtu_of(const char *name)
{
    struct ifreq request = {0};
    int fd = sh_sock_make(AF_INET, SOCK_DGRAM);
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    bool found = fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0;
    if (fd >= 0) close(fd);
    return found ? request.ifr_mtu : 0;
}

/* A port of a bridge has a link "master" to it; the bridge itself has a folder "bridge"; tun and
 * tap devices, which carry no cable, have a file "tun_flags". */
static cJSON *interface_create(const struct ifaddrs *entry)
{
    const char *name = entry->ifa_name;
    cJSON *item = cJSON_CreateObject();
    char *path = net_path(name, "address"), target[256];
    sh_buf buf = {0};
    cJSON_AddStringToObject(item, "name", name);
    cJSON_AddBoolToObject(item, "up", (entry->ifa_flags & IFF_RUNNING) != 0);
    cJSON_AddBoolToObject(item, "loopback", (entry->ifa_flags & IFF_LOOPBACK) != 0);
    cJSON_AddNumberToObject(item, "mtu", (double)mtu_of(name));
    int64_t speed = net_number(name, "speed");
    if (speed > 0) cJSON_AddNumberToObject(item, "speed_mbit", (double)speed);
    add_text(item, "mac", file_text(path, &buf));
    free(path);
    path = net_path(name, "master");
    ssize_t len = readlink(path, target, sizeof(target) - 1);
    free(path);
    if (len > 0) {
        target[len] = '\0';
        const char *slash = strrchr(target, '/');
        cJSON_AddStringToObject(item, "bridge", slash == NULL ? target : slash + 1);
    }
    if (net_has(name, "bridge")) {
        cJSON_AddTrueToObject(item, "is_bridge");
        cJSON_AddBoolToObject(item, "stp", net_number(name, "bridge/stp_state") != 0);
    }
    if (net_has(name, "tun_flags")) cJSON_AddTrueToObject(item, "tap");
    cJSON_AddArrayToObject(item, "addresses");
    sh_buf_reset(&buf);
    return item;
}

/* getifaddrs lists an interface once for each of its addresses. */
static cJSON *interface_find(cJSON *list, const struct ifaddrs *entry)
{
    cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *name = cJSON_GetObjectItemCaseSensitive(item, "name")->valuestring;
        if (strcmp(name, entry->ifa_name) == 0) return item;
    }
    item = interface_create(entry);
    cJSON_AddItemToArray(list, item);
    return item;
}

static int prefix_of(const uint8_t *mask, int len)
{
    int bits = 0;
    for (int i = 0; i < len * 8 && (mask[i / 8] >> (7 - i % 8) & 1) != 0; i++) bits++;
    return bits;
}

static void add_interfaces(cJSON *top)
{
    struct ifaddrs *first = NULL;
    cJSON *list = cJSON_AddArrayToObject(top, "interfaces");
    if (getifaddrs(&first) != 0) return;
    for (const struct ifaddrs *entry = first; entry != NULL; entry = entry->ifa_next) {
        cJSON *item = interface_find(list, entry);
        if (entry->ifa_addr == NULL || entry->ifa_netmask == NULL) continue;
        int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        bool v6 = family == AF_INET6;
        const void *number = v6 ? (const void *)&((struct sockaddr_in6 *)entry->ifa_addr)->sin6_addr
                                : (const void *)&((struct sockaddr_in *)entry->ifa_addr)->sin_addr;
        const void *mask =
            v6 ? (const void *)&((struct sockaddr_in6 *)entry->ifa_netmask)->sin6_addr
               : (const void *)&((struct sockaddr_in *)entry->ifa_netmask)->sin_addr;
        char text[INET6_ADDRSTRLEN], with[INET6_ADDRSTRLEN + 8];
        inet_ntop(family, number, text, sizeof(text));
        snprintf(with, sizeof(with), "%s/%d", text, prefix_of(mask, v6 ? 16 : 4));
        cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(item, "addresses"),
                             cJSON_CreateString(with));
    }
    freeifaddrs(first);
}

/* Lines of /proc/net/route: interface, destination, gateway, ... The addresses are in hexadecimal
 * and already in network byte order. */
static void add_gateways(cJSON *top)
{
    cJSON *list = cJSON_AddArrayToObject(top, "gateways");
    sh_buf buf = {0};
    sh_str rest = file_text("/proc/net/route", &buf), line;
    while (sh_str_cut(&rest, '\n', &line)) {
        char name[32], text[INET_ADDRSTRLEN], *copy = sh_str_dup(line);
        unsigned destination, gateway;
        bool is_default = sscanf(copy, "%31s %x %x", name, &destination, &gateway) == 3 &&
                          destination == 0 && gateway != 0;
        free(copy);
        if (!is_default) continue;
        cJSON *item = cJSON_CreateObject();
        struct in_addr addr = {gateway};
        cJSON_AddStringToObject(item, "address", inet_ntop(AF_INET, &addr, text, sizeof(text)));
        cJSON_AddStringToObject(item, "interface", name);
        cJSON_AddItemToArray(list, item);
    }
    sh_buf_reset(&buf);
}

/* Calls fn for each entry of a folder, in no particular order. */
typedef void (*name_fn)(cJSON *list, const char *dir, const char *name);
static void each_name(const char *dir, name_fn fn, cJSON *list)
{
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') fn(list, dir, e->d_name);
    closedir(d);
}

/* The forwarding table knows a port by its number; record the interface name under that number. */
static void find_port(cJSON *names, const char *dir, const char *name)
{
    char *path = sh_asprintf("%s/%s/port_no", dir, name);
    sh_buf buf = {0};
    char *number = sh_str_dup(file_text(path, &buf)); /* "0x1" */
    long idx = strtol(number, NULL, 0);
    if (idx > 0 && idx < SEEN_PORTS_MAX)
        cJSON_ReplaceItemInArray(names, (int)idx, cJSON_CreateString(name));
    free(number);
    free(path);
    sh_buf_reset(&buf);
}

/* The forwarding table of a bridge: entries of MAC address, port number, is_local, ... It shows
 * which hosts are reached through which port, and with that a loop (netplan.c). Interfaces that are
 * not bridges have no such file and add nothing. */
static void add_seen(cJSON *list, const char *dir, const char *name)
{
    char *table = sh_asprintf("%s/%s/brforward", dir, name);
    char *ports = sh_asprintf("%s/%s/brif", dir, name);
    sh_buf text = {0};
    sh_err err;
    cJSON *names = cJSON_CreateArray();
    for (int i = 0; i < SEEN_PORTS_MAX; i++) cJSON_AddItemToArray(names, cJSON_CreateNull());
    each_name(ports, find_port, names);
    if (sh_file_read(table, SMALL_FILE_MAX, &text, &err) != SH_OK) sh_buf_reset(&text);
    for (size_t at = 0; at + FDB_ENTRY_LEN <= text.len; at += FDB_ENTRY_LEN) {
        const uint8_t *e = (const uint8_t *)text.ptr + at;
        const cJSON *port = e[6] < SEEN_PORTS_MAX ? cJSON_GetArrayItem(names, e[6]) : NULL;
        if (!cJSON_IsString(port) || e[7] != 0 || cJSON_GetArraySize(list) >= SH_FP_SEEN_MAX)
            continue;
        char mac[24];
        snprintf(mac, sizeof(mac), "%02x:%02x:%02x:%02x:%02x:%02x", e[0], e[1], e[2], e[3], e[4],
                 e[5]);
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "port", port->valuestring);
        cJSON_AddStringToObject(item, "mac", mac);
        cJSON_AddItemToArray(list, item);
    }
    cJSON_Delete(names);
    sh_buf_reset(&text);
    free(table);
    free(ports);
}

/* Which firewall has rules, as far as an ordinary user can see. */
static const char *firewall_name(void)
{
    sh_buf buf = {0};
    bool ufw = sh_str_is(line_value(file_text("/etc/ufw/ufw.conf", &buf), "ENABLED", '='), "yes");
    bool tables = file_text("/proc/net/ip_tables_names", &buf).len > 0;
    sh_buf_reset(&buf);
    return ufw                                   ? "ufw"
           : access("/run/firewalld", F_OK) == 0 ? "firewalld"
           : tables                              ? "iptables"
                                                 : "";
}

/* The identity covers names, sizes and headers of the files, not all bytes, so it is quick whatever
 * the size of the model. */
static void add_model(cJSON *top, const sh_fingerprint_opts *opts)
{
    cJSON *model = cJSON_AddObjectToObject(top, "model");
    sh_identity identity;
    sh_err err;
    if (opts->model_fault != NULL) {
        cJSON_AddStringToObject(model, "fault", opts->model_fault);
        return;
    }
    cJSON_AddStringToObject(model, "dir", opts->model);
    if (sh_identity_read(opts->model, &identity, &err) != SH_OK) {
        cJSON_AddStringToObject(model, "fault", err.text);
        return;
    }
    char hex[2 * SH_IDENTITY_LEN + 1];
    for (int i = 0; i < SH_IDENTITY_LEN; i++) snprintf(hex + 2 * i, 3, "%02x", identity.id[i]);
    cJSON_AddStringToObject(model, "hash", hex);
    cJSON_AddNumberToObject(model, "bytes", (double)identity.weight_bytes);
}

/* Tries to listen on each address; the fault is empty where that worked. */
static void add_listen(cJSON *top, const char *listen)
{
    cJSON *list = cJSON_AddArrayToObject(top, "listen");
    sh_str rest = sh_str_of(listen), part;
    while (sh_str_cut(&rest, ',', &part)) {
        char *text = sh_str_dup(part);
        cJSON *item = cJSON_CreateObject();
        sh_addr addr;
        sh_err err = {0};
        int fd = -1, count;
        if (sh_addr_resolve(text, 1, &addr, &count, &err) == SH_OK &&
            sh_sock_listen(&addr, &fd, &err) == SH_OK)
            sh_sock_close(fd);
        cJSON_AddStringToObject(item, "address", text);
        cJSON_AddStringToObject(item, "fault", err.text);
        cJSON_AddItemToArray(list, item);
        free(text);
    }
}

/* RDMA needs a plugin, which is built only where libibverbs is. */
static void add_plugin(cJSON *top)
{
    char *path = sh_plugin_find(NULL, SH_RDMA_PLUGIN_FILE);
    if (path != NULL) add_text(top, "rdma_plugin", sh_str_of(path));
    free(path);
}

cJSON *sh_fingerprint_gather(const sh_fingerprint_opts *opts)
{
    cJSON *top = cJSON_CreateObject();
    add_system(top, opts);
    add_resources(top);
    add_interfaces(top);
    add_gateways(top);
    sh_fingerprint_add_rdma(top, "/sys/class/infiniband");
    add_plugin(top);
    each_name("/sys/class/net", add_seen, cJSON_AddArrayToObject(top, "seen"));
    cJSON_AddStringToObject(top, "firewall", firewall_name());
    if (opts->model != NULL || opts->model_fault != NULL) add_model(top, opts);
    if (opts->listen != NULL) add_listen(top, opts->listen);
    return top;
}
