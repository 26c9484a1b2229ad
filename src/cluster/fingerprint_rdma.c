/* The RDMA ports of this host, from /sys/class/infiniband: what `ibv_devinfo` shows, without
 * libibverbs, so that hosts without it can be asked as well.
 *
 * A port is listed under the name by which hostfiles know it: "mlx5_0" is port 1 of that device,
 * "mlx5_0:2" its second. Files that are missing leave their field out. */
#include "base/alloc.h"
#include "base/buf.h"
#include "cluster/fingerprint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_LEN = 128 };

/* The first line of dir/name, without white space at its ends; "" when there is none. */
static const char *line_of(const char *dir, const char *name, char out[LINE_MAX_LEN])
{
    char *path = sh_asprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "r");
    free(path);
    out[0] = '\0';
    if (file == NULL) return out;
    if (fgets(out, LINE_MAX_LEN, file) == NULL) out[0] = '\0';
    fclose(file);
    sh_str text = sh_str_trim(sh_str_of(out));
    memmove(out, text.ptr, text.len);
    out[text.len] = '\0';
    return sh_utf8_valid(out, text.len) ? out : "";
}

static void add_line(cJSON *item, const char *key, const char *dir, const char *name)
{
    char line[LINE_MAX_LEN];
    cJSON_AddStringToObject(item, key, line_of(dir, name, line));
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Calls fn for the entries of a folder, in the order of their names. */
typedef void (*entry_fn)(cJSON *list, const char *dir, const char *name, const char *owner);
static void each_entry(const char *dir, entry_fn fn, cJSON *list, const char *owner)
{
    struct dirent **entries = NULL;
    int count = scandir(dir, &entries, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        fn(list, dir, entries[i]->d_name, owner);
        free(entries[i]);
    }
    free(entries);
}

/* Most entries of a table are empty. */
static void add_gid(cJSON *list, const char *dir, const char *index, const char *port_dir)
{
    char gid[LINE_MAX_LEN], *type = sh_asprintf("gid_attrs/types/%s", index);
    line_of(dir, index, gid);
    if (strspn(gid, "0:") < strlen(gid) && cJSON_GetArraySize(list) < SH_FP_GIDS_MAX) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddNumberToObject(item, "index", atoi(index));
        cJSON_AddStringToObject(item, "gid", gid);
        add_line(item, "type", port_dir, type);
        cJSON_AddItemToArray(list, item);
    }
    free(type);
}

/* The network interface of a port: RoCE ports have it in their GID table, software ones have it as
 * their parent. InfiniBand ports need none. */
static void add_netdev(cJSON *item, const char *port_dir, const char *device_dir)
{
    char line[LINE_MAX_LEN];
    line_of(port_dir, "gid_attrs/ndevs/0", line);
    if (line[0] == '\0') line_of(device_dir, "parent", line);
    cJSON_AddStringToObject(item, "interface", line);
}

/* dir is ".../DEVICE/ports", name the port's number. */
static void add_port(cJSON *list, const char *dir, const char *name, const char *device)
{
    char line[LINE_MAX_LEN];
    char *port_dir = sh_asprintf("%s/%s", dir, name), *gids = sh_asprintf("%s/gids", port_dir);
    char *device_dir = sh_str_dup((sh_str){dir, strlen(dir) - strlen("/ports")});
    char *shown = strcmp(name, "1") == 0 ? sh_strdup(device) : sh_asprintf("%s:%s", device, name);
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "name", shown);
    const char *state = line_of(port_dir, "state", line), *colon = strchr(state, ':');
    cJSON_AddStringToObject(item, "state",
                            colon == NULL ? state : colon + 1 + strspn(colon + 1, " "));
    add_line(item, "link_layer", port_dir, "link_layer");
    add_line(item, "rate", port_dir, "rate");
    add_netdev(item, port_dir, device_dir);
    each_entry(gids, add_gid, cJSON_AddArrayToObject(item, "gids"), port_dir);
    cJSON_AddItemToArray(list, item);
    free(port_dir);
    free(gids);
    free(device_dir);
    free(shown);
}

static void add_device(cJSON *list, const char *dir, const char *name, const char *owner)
{
    char *ports = sh_asprintf("%s/%s/ports", dir, name);
    (void)owner;
    if (sh_utf8_valid(name, strlen(name))) each_entry(ports, add_port, list, name);
    free(ports);
}

void sh_fingerprint_add_rdma(cJSON *top, const char *dir)
{
    each_entry(dir, add_device, cJSON_AddArrayToObject(top, "rdma"), NULL);
}
