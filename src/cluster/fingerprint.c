/* Parsing of fingerprints. The JSON comes from another host, possibly from another version of this
 * program, so parsing is lenient: unknown keys are ignored, wrong types count as absent, long texts
 * are cut and long lists end at their bound. Only text that is not a JSON object is an error. */
#include "cluster/fingerprint.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Cut to fit; "" when absent or not a string. */
static void text_of(const cJSON *obj, const char *key, char *out, size_t cap)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(obj, key));
    snprintf(out, cap, "%s", text == NULL ? "" : text);
}

/* 9e15 is just below 2^53: beyond it a double no longer holds every integer. */
static int64_t number_of(const cJSON *obj, const char *key, int64_t absent)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    if (!cJSON_IsNumber(item) || item->valuedouble < -9e15 || item->valuedouble > 9e15)
        return absent;
    return (int64_t)item->valuedouble;
}

static bool bool_of(const cJSON *obj, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

static const cJSON *first_of(const cJSON *obj, const char *key)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(obj, key);
    return cJSON_IsArray(list) ? list->child : NULL;
}

#define TEXT(obj, key, field) text_of(obj, key, field, sizeof(field))

/* "10.0.0.1/24"; anything that is not an address with a prefix length is skipped. */
static void address_parse(sh_fingerprint *fp, const cJSON *item, int interface)
{
    sh_str rest = sh_str_of(cJSON_GetStringValue(item)), number;
    int64_t prefix;
    if (fp->address_count == SH_FP_ADDRESSES_MAX || !sh_str_cut(&rest, '/', &number)) return;
    sh_fp_address a = {.interface = interface};
    snprintf(a.text, sizeof(a.text), "%.*s", (int)number.len, number.ptr);
    a.len = strchr(a.text, ':') != NULL ? 16 : 4;
    if (inet_pton(a.len == 16 ? AF_INET6 : AF_INET, a.text, a.bytes) != 1) return;
    if (!sh_str_to_int(rest, &prefix) || prefix < 0 || prefix > a.len * 8) return;
    a.prefix = (int)prefix;
    fp->address[fp->address_count++] = a;
}

static void interfaces_parse(sh_fingerprint *fp, const cJSON *top)
{
    for (const cJSON *item = first_of(top, "interfaces");
         item != NULL && fp->interface_count < SH_FP_INTERFACES_MAX; item = item->next) {
        sh_fp_interface *i = &fp->interface[fp->interface_count];
        TEXT(item, "name", i->name);
        TEXT(item, "mac", i->mac);
        TEXT(item, "bridge", i->bridge);
        i->up = bool_of(item, "up");
        i->loopback = bool_of(item, "loopback");
        i->is_bridge = bool_of(item, "is_bridge");
        i->stp = bool_of(item, "stp");
        i->tap = bool_of(item, "tap");
        i->mtu = number_of(item, "mtu", 0);
        i->speed_mbit = number_of(item, "speed_mbit", 0);
        for (const cJSON *a = first_of(item, "addresses"); a != NULL; a = a->next)
            address_parse(fp, a, fp->interface_count);
        fp->interface_count++;
    }
}

static void device_parse(sh_fp_device *d, const cJSON *item)
{
    TEXT(item, "name", d->name);
    TEXT(item, "state", d->state);
    TEXT(item, "link_layer", d->layer);
    TEXT(item, "rate", d->rate);
    TEXT(item, "interface", d->interface);
    for (const cJSON *gid = first_of(item, "gids"); gid != NULL && d->gid_count < SH_FP_GIDS_MAX;
         gid = gid->next) {
        sh_fp_gid *g = &d->gid[d->gid_count++];
        g->index = number_of(gid, "index", 0);
        TEXT(gid, "gid", g->text);
        TEXT(gid, "type", g->type);
    }
}

/* Each list ends at the capacity of its array; what is beyond is dropped. */
static void networks_parse(sh_fingerprint *fp, const cJSON *top)
{
    const cJSON *item;
    for (item = first_of(top, "gateways"); item != NULL && fp->gateway_count < SH_FP_GATEWAYS_MAX;
         item = item->next) {
        sh_fp_gateway *g = &fp->gateway[fp->gateway_count++];
        TEXT(item, "address", g->address);
        TEXT(item, "interface", g->interface);
    }
    for (item = first_of(top, "rdma"); item != NULL && fp->device_count < SH_FP_DEVICES_MAX;
         item = item->next)
        device_parse(&fp->device[fp->device_count++], item);
    for (item = first_of(top, "seen"); item != NULL && fp->seen_count < SH_FP_SEEN_MAX;
         item = item->next) {
        sh_fp_seen *s = &fp->seen[fp->seen_count++];
        TEXT(item, "port", s->port);
        TEXT(item, "mac", s->mac);
    }
    for (item = first_of(top, "listen"); item != NULL && fp->port_count < SH_FP_PORTS_MAX;
         item = item->next) {
        sh_fp_port *p = &fp->port[fp->port_count++];
        TEXT(item, "address", p->address);
        TEXT(item, "fault", p->fault);
    }
}

/* A model without a hash and without a reason must not pass as found. */
static void model_parse(sh_fingerprint *fp, const cJSON *model)
{
    fp->model_asked = cJSON_IsObject(model);
    if (!fp->model_asked) return;
    TEXT(model, "dir", fp->model_dir);
    TEXT(model, "hash", fp->model_hash);
    TEXT(model, "fault", fp->model_fault);
    fp->model_bytes = number_of(model, "bytes", 0);
    if (fp->model_hash[0] == '\0' && fp->model_fault[0] == '\0')
        snprintf(fp->model_fault, sizeof(fp->model_fault), "the host did not report its hash");
}

sh_status sh_fingerprint_parse(sh_str text, const char *where, sh_fingerprint *out, sh_err *err)
{
    cJSON *top;
    sh_status status = sh_json_parse(sh_str_trim(text), where, &top, err);
    if (status != SH_OK) return status;
    if (!cJSON_IsObject(top)) {
        cJSON_Delete(top);
        return sh_err_set(err, SH_ERR_INPUT, "%s: a fingerprint must be a JSON object", where);
    }
    memset(out, 0, sizeof(*out));
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(top, "memory");
    const cJSON *limits = cJSON_GetObjectItemCaseSensitive(top, "limits");
    const cJSON *cpu = cJSON_GetObjectItemCaseSensitive(top, "cpu");
    TEXT(top, "version", out->version);
    TEXT(top, "program", out->program);
    TEXT(top, "hostname", out->hostname);
    TEXT(top, "os", out->os);
    TEXT(top, "kernel", out->kernel);
    TEXT(top, "arch", out->arch);
    TEXT(top, "firewall", out->firewall);
    TEXT(top, "rdma_plugin", out->rdma_plugin);
    TEXT(cpu, "name", out->cpu);
    TEXT(cpu, "level", out->cpu_level);
    out->cores = number_of(cpu, "cores", 0);
    out->memory_total = number_of(memory, "total", 0);
    out->memory_available = number_of(memory, "available", 0);
    out->shm_bytes = number_of(memory, "shm", 0);
    out->unix_us = number_of(top, "unix_us", 0);
    out->files_soft = number_of(limits, "files_soft", -1);
    out->files_hard = number_of(limits, "files_hard", -1);
    out->locked = number_of(limits, "locked", -1);
    interfaces_parse(out, top);
    networks_parse(out, top);
    model_parse(out, cJSON_GetObjectItemCaseSensitive(top, "model"));
    cJSON_Delete(top);
    return SH_OK;
}

/* Uses only what every Linux has: sh, awk, uname and iproute2. An interface with several addresses
 * appears several times, once with each. Interface names cannot contain quotes, so nothing needs to
 * be escaped. */
const char sh_fingerprint_script[] =
    "PATH=$PATH:/usr/sbin:/sbin\n"
    "printf '{\"version\":\"\",\"hostname\":\"%s\",\"os\":\"%s\",\"kernel\":\"%s\",\"arch\":\"%s\"'"
    " \"$(uname -n)\" \"$(uname -s)\" \"$(uname -r)\" \"$(uname -m)\"\n"
    "printf ',\"cpu\":{\"cores\":%s}' \"$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 0)\"\n"
    "awk '/^MemTotal:/{t=$2} /^MemAvailable:/{a=$2} END{printf "
    "\",\\\"memory\\\":{\\\"total\\\":%d,\\\"available\\\":%d}\",t*1024,a*1024}'"
    " /proc/meminfo 2>/dev/null\n"
    "printf ',\"unix_us\":%s000000,\"interfaces\":[' \"$(date +%s)\"\n"
    "ip -o addr show 2>/dev/null | awk '$3==\"inet\"||$3==\"inet6\"{printf "
    "\"%s{\\\"name\\\":\\\"%s\\\",\\\"up\\\":true,\\\"loopback\\\":%s,\\\"addresses\\\":["
    "\\\"%s\\\"]}\",s,$2,$2==\"lo\"?\"true\":\"false\",$4;s=\",\"}'\n"
    "printf '],\"gateways\":['\n"
    "ip route show default 2>/dev/null | awk '$2==\"via\"{printf "
    "\"%s{\\\"address\\\":\\\"%s\\\",\\\"interface\\\":\\\"%s\\\"}\",s,$3,$5;s=\",\"}'\n"
    "printf '],\"rdma\":['; s=\n"
    "for p in /sys/class/infiniband/*/ports/1; do\n"
    "[ -e \"$p/state\" ] || continue\n"
    "n=${p%/ports/1}; n=${n##*/}; t=$(cat \"$p/state\")\n"
    "printf '%s{\"name\":\"%s\",\"state\":\"%s\",\"link_layer\":\"%s\"}' \"$s\" \"$n\""
    " \"${t#*: }\" \"$(cat \"$p/link_layer\")\"; s=,\n"
    "done\n"
    "printf ']}\\n'\n";
