/* shoal hosts detect: what the RDMA devices of the hosts allow, and how it is shown and written.
 *
 * A file that names jaccl does not work without the plugin, so detect chooses that backend by
 * itself only if the ranks could use it. With --backend it does what was asked, or fails. */
#include "cmd/hosts_detect.h"

#include "net/plugin.h"

#include <stdlib.h>
#include <string.h>

static const char *interface_of(const sh_detection *d, const sh_cable *c, int end)
{
    return d->host[c->host[end]].fp->interface[c->interface[end]].name;
}

static const char *device_on(const sh_detection *d, const sh_cable *c, int end)
{
    const sh_fingerprint *fp = d->host[c->host[end]].fp;
    for (int i = 0; i < fp->device_count; i++)
        if (strcmp(fp->device[i].interface, interface_of(d, c, end)) == 0)
            return fp->device[i].name;
    return "";
}

static void report_devices(sh_detection *d)
{
    for (int h = 0; h < d->count; h++) {
        const sh_fingerprint *fp = d->host[h].fp;
        for (int i = 0; fp != NULL && i < fp->device_count; i++) {
            const sh_fp_device *p = &fp->device[i];
            if (strcmp(p->state, "ACTIVE") != 0)
                sh_findings_add(&d->report, SH_FINDING_WARN, "rdma", d->host[h].shown,
                                "plug the cable in at both ends, and `ip link set INTERFACE up`",
                                "%s is %s", p->name, p->state);
            else
                sh_findings_add(&d->report, SH_FINDING_OK, "rdma", d->host[h].shown, NULL,
                                "%s is active%s%s", p->name, p->interface[0] == '\0' ? "" : " on ",
                                p->interface);
        }
    }
}

/* Why the ranks could not use RDMA although the devices are there; NULL: they could. Hosts need no
 * plugin of their own: launch copies that of this program. */
static const char *obstacle(void)
{
    if (!sh_backend_is_built_in(sh_backend_find("jaccl")))
        return "the jaccl backend is not built into this program";
    char *plugin = sh_plugin_find(NULL, SH_RDMA_PLUGIN_FILE);
    bool found = plugin != NULL;
    free(plugin);
    return found ? NULL : "this program has no RDMA plugin (it is built with libibverbs-dev)";
}

static int links_between(const sh_detection *d, int a, int b)
{
    sh_rdma_link links[SH_RDMA_LINKS_MAX];
    return sh_cables_rdma_links(&d->cables, d->net, a, b, links);
}

/* Whether every two hosts have an RDMA link; if not, which two have none. */
static bool is_mesh(const sh_detection *d, int missing[2])
{
    for (int i = 0; i < d->order_count; i++)
        for (int j = 0; j < i; j++)
            if (links_between(d, d->order[j], d->order[i]) == 0) {
                missing[0] = d->order[j];
                missing[1] = d->order[i];
                return false;
            }
    return d->order_count > 1;
}

/* Puts the hosts in the order of a ring of RDMA links, if there is one. */
static bool make_ring(sh_detection *d)
{
    static bool linked[SH_RANKS_MAX * SH_RANKS_MAX];
    int n = d->order_count, found[SH_RANKS_MAX], order[SH_RANKS_MAX];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            linked[i * n + j] = i != j && links_between(d, d->order[i], d->order[j]) > 0;
    if (!sh_cables_ring(linked, n, found)) return false;
    for (int i = 0; i < n; i++) order[i] = d->order[found[i]];
    memcpy(d->order, order, (size_t)n * sizeof(*order));
    return true;
}

/* What was asked for leaves devices out: they would be several ranks' or no rank's. */
static bool without_devices(const sh_settings *s)
{
    return strcmp(s->over, "ethernet") == 0 || s->repeat > 1;
}

static void refuse_asked(sh_detection *d, const sh_backend *asked)
{
    d->refused = true;
    sh_findings_add(
        &d->report, SH_FINDING_FAIL, "backend", "", "leave them out, or use --backend ring",
        "%s does not go with --over ethernet or --repeat, which leave RDMA out", asked->name);
}

/* The backend that was asked for, or what is missing for it. */
static void use_asked(sh_detection *d, const sh_backend *asked)
{
    int missing[2] = {0, 0};
    bool mesh = is_mesh(d, missing);
    bool no_mesh = asked->devices == SH_DEVICES_EVERYWHERE && !mesh;
    bool no_ring = asked->devices == SH_DEVICES_NEIGHBOURS && !make_ring(d);
    d->backend = asked;
    d->refused = no_mesh || no_ring;
    if (no_mesh)
        sh_findings_add(
            &d->report, SH_FINDING_FAIL, "rdma", "",
            "--backend jaccl-ring needs links between neighbours only; --dot draws what "
            "is connected",
            d->order_count < 2 ? "%s needs at least two hosts"
                               : "%s: no RDMA link between %s and %s",
            asked->name, d->host[missing[0]].shown, d->host[missing[1]].shown);
    if (no_ring)
        sh_findings_add(&d->report, SH_FINDING_FAIL, "rdma", "",
                        "--dot draws what is connected; --backend ring uses TCP",
                        "%s: the RDMA links do not form a ring", asked->name);
}

static void use_best(sh_detection *d)
{
    int missing[2];
    const char *name = is_mesh(d, missing) ? "jaccl" : make_ring(d) ? "jaccl-ring" : NULL;
    if (name == NULL) return;
    const char *why = obstacle();
    if (why == NULL) d->backend = sh_backend_find(name);
    sh_findings_add(&d->report, why == NULL ? SH_FINDING_OK : SH_FINDING_WARN, "backend", "",
                    why == NULL ? NULL : "the file has the devices but no backend: ranks use TCP",
                    "RDMA links for %s%s%s", name, why == NULL ? "" : ", but ",
                    why == NULL ? "" : why);
}

void sh_detection_choose_backend(sh_detection *d, const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    const sh_backend *asked = sh_backend_find(s->backend);
    d->order_count = 0;
    for (int i = 0; i < d->count; i++)
        if (d->host[i].fp != NULL) d->order[d->order_count++] = i;
    report_devices(d);
    if (!sh_options_given(args->options, "backend")) {
        if (!without_devices(s)) use_best(d);
    } else if (asked->devices != SH_DEVICES_NOWHERE && without_devices(s)) {
        refuse_asked(d, asked);
    } else {
        use_asked(d, asked);
    }
}

/* Several links of a pair are lanes: both ends list them in the same order. */
void sh_detection_fill_devices(sh_detection *d, sh_hostfile *file)
{
    for (int i = 0; i < file->count; i++) {
        sh_host *row = &file->host[i];
        row->rdma = sh_arena_array(&d->arena, (size_t)file->count, sizeof(*row->rdma));
        row->rdma_count = file->count;
        for (int j = 0; j < file->count; j++) {
            sh_rdma_link links[SH_RDMA_LINKS_MAX];
            int low = i < j ? i : j, high = i < j ? j : i;
            if (i == j) continue;
            int count = sh_cables_rdma_links(&d->cables, d->net, d->order[low], d->order[high],
                                             links);
            row->rdma[j].name = sh_arena_array(&d->arena, (size_t)count, sizeof(char *));
            for (int k = 0; k < count; k++)
                row->rdma[j].name[row->rdma[j].count++] = links[k].device[i == low ? 0 : 1];
        }
    }
}

void sh_detection_print_cables(const sh_detection *d, FILE *to)
{
    bool any = false;
    for (int h = 0; h < d->count; h++)
        any |= d->host[h].fp != NULL && d->host[h].fp->device_count > 0;
    if (any)
        fprintf(to, "\n%-16s %-12s %-8s %-12s %-14s %-22s %s\n", "host", "device", "state", "layer",
                "interface", "rate", "GIDs");
    for (int h = 0; h < d->count; h++)
        for (int i = 0; d->host[h].fp != NULL && i < d->host[h].fp->device_count; i++) {
            const sh_fp_device *p = &d->host[h].fp->device[i];
            fprintf(to, "%-16s %-12s %-8s %-12s %-14s %-22s", d->host[h].shown, p->name, p->state,
                    p->layer, p->interface, p->rate);
            for (int g = 0; g < p->gid_count; g++)
                fprintf(to, " %lld:%s", (long long)p->gid[g].index, p->gid[g].text);
            fprintf(to, "\n");
        }
    if (d->cables.count > 0) fprintf(to, "\n%-24s %-28s %s\n", "pair", "interfaces", "RDMA");
    for (int i = 0; i < d->cables.count; i++) {
        const sh_cable *c = &d->cables.cable[i];
        char pair[160], ends[160];
        snprintf(pair, sizeof(pair), "%.64s - %.64s", d->host[c->host[0]].shown,
                 d->host[c->host[1]].shown);
        snprintf(ends, sizeof(ends), "%s - %s", interface_of(d, c, 0), interface_of(d, c, 1));
        bool rdma = device_on(d, c, 0)[0] != '\0' && device_on(d, c, 1)[0] != '\0';
        fprintf(to, "%-24s %-28s %s%s%s%s\n", pair, ends, rdma ? device_on(d, c, 0) : "-",
                rdma ? " - " : "", rdma ? device_on(d, c, 1) : "",
                sh_cables_is_direct(&d->cables, d->net, i) ? "  direct cable" : "");
    }
}

void sh_detection_add_cables(const sh_detection *d, cJSON *top)
{
    cJSON *list = cJSON_AddArrayToObject(top, "cables");
    for (int i = 0; i < d->cables.count; i++) {
        const sh_cable *c = &d->cables.cable[i];
        cJSON *item = cJSON_CreateObject();
        cJSON_AddStringToObject(item, "from", d->host[c->host[0]].shown);
        cJSON_AddStringToObject(item, "to", d->host[c->host[1]].shown);
        cJSON_AddStringToObject(item, "from_interface", interface_of(d, c, 0));
        cJSON_AddStringToObject(item, "to_interface", interface_of(d, c, 1));
        cJSON_AddStringToObject(item, "from_device", device_on(d, c, 0));
        cJSON_AddStringToObject(item, "to_device", device_on(d, c, 1));
        cJSON_AddBoolToObject(item, "direct", sh_cables_is_direct(&d->cables, d->net, i));
        cJSON_AddItemToArray(list, item);
    }
    cJSON_AddStringToObject(top, "backend", d->backend == NULL ? "" : d->backend->name);
}

/* Quotes cannot occur: interface names have none, and neither have names that ssh takes. */
void sh_detection_print_dot(const sh_detection *d)
{
    printf("graph G {\nnode [shape=rectangle];\n");
    for (int i = 0; i < d->count; i++) printf("h%d [label=\"%s\"];\n", i, d->host[i].shown);
    for (int i = 0; i < d->cables.count; i++) {
        const sh_cable *c = &d->cables.cable[i];
        printf("h%d -- h%d [label=\"%s/%s\"];\n", c->host[0], c->host[1], interface_of(d, c, 0),
               interface_of(d, c, 1));
    }
    printf("}\n");
}
