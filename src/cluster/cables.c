/* Cables between hosts, from fingerprints and from what the survey tried. */
#include "cluster/cables.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCKS = 1 << 14, /* networks of four addresses in 10.254.0.0/16 */
    BLOCK_PREFIX = 30,
    RING_STEPS_MAX = 1 << 20, /* finding a ring takes exponential time in the worst case */
    GID_PREFIX_LEN = 19,      /* "fe80:0000:0000:0000", the number of an InfiniBand subnet */
};

static const uint32_t POOL = 10u << 24 | 254u << 16;

bool sh_cable_can_end_at(const sh_fp_interface *interface)
{
    return interface->up && !interface->loopback && !interface->is_bridge && !interface->tap &&
           interface->bridge[0] == '\0';
}

static sh_cable swapped(sh_cable c)
{
    return (sh_cable){{c.host[1], c.host[0]}, {c.interface[1], c.interface[0]}};
}

void sh_cables_add(sh_cables *cables, sh_cable cable)
{
    if (cable.host[0] > cable.host[1]) cable = swapped(cable);
    for (int i = 0; i < cables->count; i++)
        if (memcmp(&cables->cable[i], &cable, sizeof(cable)) == 0) return;
    if (cables->count < SH_CABLES_MAX) cables->cable[cables->count++] = cable;
}

/* The interface of a host that has this address, or -1. */
static int interface_at(const sh_fingerprint *fp, const char *address)
{
    for (int i = 0; fp != NULL && i < fp->address_count; i++)
        if (strcmp(fp->address[i].text, address) == 0) return fp->address[i].interface;
    return -1;
}

void sh_cables_add_links(sh_cables *cables, const sh_net_host *hosts, const sh_net_link *links,
                         int count)
{
    for (int i = 0; i < count; i++) {
        const sh_net_link *l = &links[i];
        int from = interface_at(hosts[l->from].fp, l->from_address);
        int to = interface_at(hosts[l->to].fp, l->address);
        if (!l->reached || from < 0 || to < 0) continue;
        if (sh_cable_can_end_at(&hosts[l->from].fp->interface[from]) &&
            sh_cable_can_end_at(&hosts[l->to].fp->interface[to]))
            sh_cables_add(cables, (sh_cable){{l->from, l->to}, {from, to}});
    }
}

static bool ends_at(const sh_cable *c, int host, int interface)
{
    return (c->host[0] == host && c->interface[0] == interface) ||
           (c->host[1] == host && c->interface[1] == interface);
}

static bool has_gateway(const sh_fingerprint *fp, int interface)
{
    for (int i = 0; i < fp->gateway_count; i++)
        if (strcmp(fp->gateway[i].interface, fp->interface[interface].name) == 0) return true;
    return false;
}

bool sh_cables_is_direct(const sh_cables *cables, const sh_net_host *hosts, int idx)
{
    const sh_cable *c = &cables->cable[idx];
    for (int end = 0; end < 2; end++)
        if (has_gateway(hosts[c->host[end]].fp, c->interface[end])) return false;
    for (int i = 0; i < cables->count; i++)
        for (int end = 0; end < 2 && i != idx; end++)
            if (ends_at(&cables->cable[i], c->host[end], c->interface[end])) return false;
    return true;
}

static bool is_active(const sh_fp_device *d)
{
    return strcmp(d->state, "ACTIVE") == 0;
}

static bool is_on(const sh_fp_device *d, const sh_fingerprint *fp, int interface)
{
    return strcmp(d->interface, fp->interface[interface].name) == 0;
}

static bool on_one_cable(const sh_cables *cables, const sh_net_host *hosts, int a, int b,
                         const sh_fp_device *x, const sh_fp_device *y)
{
    for (int i = 0; i < cables->count; i++) {
        sh_cable c = cables->cable[i];
        if (c.host[0] != a) c = swapped(c);
        if (c.host[0] == a && c.host[1] == b && is_on(x, hosts[a].fp, c.interface[0]) &&
            is_on(y, hosts[b].fp, c.interface[1]))
            return true;
    }
    return false;
}

/* InfiniBand ports of one subnet reach each other: the subnet manager has made the routes. */
static bool in_one_subnet(const sh_fp_device *x, const sh_fp_device *y)
{
    return strcmp(x->layer, "InfiniBand") == 0 && strcmp(y->layer, "InfiniBand") == 0 &&
           x->gid_count > 0 && y->gid_count > 0 && strlen(x->gid[0].text) > GID_PREFIX_LEN &&
           strncmp(x->gid[0].text, y->gid[0].text, GID_PREFIX_LEN) == 0;
}

static bool is_taken(const sh_rdma_link *links, int count, int end, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(links[i].device[end], name) == 0) return true;
    return false;
}

/* Through a switch, every port reaches every other; taking them in order pairs the first with the
 * first, and so on. */
int sh_cables_rdma_links(const sh_cables *cables, const sh_net_host *hosts, int a, int b,
                         sh_rdma_link out[SH_RDMA_LINKS_MAX])
{
    const sh_fingerprint *fa = hosts[a].fp, *fb = hosts[b].fp;
    int count = 0;
    if (fa == NULL || fb == NULL) return 0;
    for (int i = 0; i < fa->device_count; i++)
        for (int j = 0; j < fb->device_count && count < SH_RDMA_LINKS_MAX; j++) {
            const sh_fp_device *x = &fa->device[i], *y = &fb->device[j];
            if (!is_active(x) || !is_active(y) || is_taken(out, count, 0, x->name) ||
                is_taken(out, count, 1, y->name))
                continue;
            if (in_one_subnet(x, y) || on_one_cable(cables, hosts, a, b, x, y))
                out[count++] = (sh_rdma_link){{x->name, y->name}};
        }
    return count;
}

typedef struct {
    const bool *linked;
    int count;
    int *order;
    bool used[64];
    int steps;
} ring_search;

/* Extends the path by every host that the last one reaches, lowest first, so that hosts which are
 * given in the order of a ring stay in it. */
static bool ring_extend(ring_search *s, int len)
{
    int last = s->order[len - 1];
    if (len == s->count) return s->linked[last * s->count + s->order[0]];
    for (int next = 0; next < s->count; next++) {
        if (s->used[next] || !s->linked[last * s->count + next]) continue;
        if (++s->steps > RING_STEPS_MAX) return false;
        s->used[next] = true;
        s->order[len] = next;
        if (ring_extend(s, len + 1)) return true;
        s->used[next] = false;
    }
    return false;
}

bool sh_cables_ring(const bool *linked, int count, int *order)
{
    ring_search s = {.linked = linked, .count = count, .order = order, .used = {true}};
    order[0] = 0;
    return count > 1 && count <= (int)SH_COUNT_OF(s.used) && ring_extend(&s, 1);
}

static uint32_t number_of(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static uint32_t mask_of(int prefix)
{
    return prefix == 0 ? 0 : ~UINT32_C(0) << (32 - prefix);
}

static bool overlaps(uint32_t block, uint32_t address, int prefix)
{
    uint32_t mask = mask_of(prefix < BLOCK_PREFIX ? prefix : BLOCK_PREFIX);
    return (block & mask) == (address & mask);
}

static bool is_free(uint32_t block, const sh_net_host *hosts, int count)
{
    for (int h = 0; h < count; h++) {
        const sh_fingerprint *fp = hosts[h].fp;
        for (int i = 0; fp != NULL && i < fp->address_count; i++)
            if (fp->address[i].len == 4 &&
                overlaps(block, number_of(fp->address[i].bytes), fp->address[i].prefix))
                return false;
        for (int i = 0; fp != NULL && i < fp->gateway_count; i++) {
            uint8_t bytes[4];
            if (inet_pton(AF_INET, fp->gateway[i].address, bytes) == 1 &&
                overlaps(block, number_of(bytes), 32))
                return false;
        }
    }
    return true;
}

/* Whether the two ends already have IPv4 addresses of one network. */
static bool has_network(const sh_cable *c, const sh_net_host *hosts)
{
    const sh_fingerprint *x = hosts[c->host[0]].fp, *y = hosts[c->host[1]].fp;
    for (int i = 0; i < x->address_count; i++)
        for (int j = 0; j < y->address_count; j++) {
            const sh_fp_address *a = &x->address[i], *b = &y->address[j];
            if (a->interface != c->interface[0] || b->interface != c->interface[1]) continue;
            if (a->len != 4 || b->len != 4 || a->prefix != b->prefix) continue;
            uint32_t mask = mask_of(a->prefix);
            if ((number_of(a->bytes) & mask) == (number_of(b->bytes) & mask)) return true;
        }
    return false;
}

static void address_fill(sh_cable_address *out, const sh_cable *c, int end, uint32_t block,
                         const sh_net_host *hosts)
{
    const sh_fp_interface *interface = &hosts[c->host[end]].fp->interface[c->interface[end]];
    uint32_t number = block + 1 + (uint32_t)end;
    *out = (sh_cable_address){.host = c->host[end]};
    snprintf(out->interface, sizeof(out->interface), "%s", interface->name);
    snprintf(out->address, sizeof(out->address), "%u.%u.%u.%u/%d", number >> 24, number >> 16 & 255,
             number >> 8 & 255, number & 255, BLOCK_PREFIX);
}

int sh_cables_plan(const sh_cables *cables, const sh_net_host *hosts, int count,
                   sh_cable_address *out, int cap)
{
    int used = 0, block = 0;
    for (int i = 0; i < cables->count && used + 2 <= cap; i++) {
        const sh_cable *c = &cables->cable[i];
        if (!sh_cables_is_direct(cables, hosts, i) || has_network(c, hosts)) continue;
        while (block < BLOCKS && !is_free(POOL + 4 * (uint32_t)block, hosts, count)) block++;
        if (block == BLOCKS) return -1;
        for (int end = 0; end < 2; end++)
            address_fill(&out[used++], c, end, POOL + 4 * (uint32_t)block, hosts);
        block++;
    }
    return used;
}
