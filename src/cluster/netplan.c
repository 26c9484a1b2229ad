/* The network plan of a cluster, from fingerprints and measurements.
 *
 * Hosts often have several networks in common (Ethernet, Wi-Fi, a direct cable) and a hostfile
 * needs one address for each host, which all others use. sh_net_links lists the candidates, the
 * survey measures them, and sh_net_choose takes for each host the address that the fewest others
 * fail to reach and, among those, the one whose slowest link is the fastest: ranks wait for each
 * other, so the worst pair sets the pace of the group.
 *
 * The checks find mistakes that produce strange failures much later: a link that hides the default
 * gateway, overlapping networks, a bridge loop, different MTUs. */
#include "cluster/netplan.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAIR_LINKS_MAX = 8 };

/* A message of medium size, between the sums of one token and those of a prompt: weighs latency
 * against bandwidth. */
static const double MESSAGE_BITS = 256 * 1024 * 8;
static const double GBIT_UNKNOWN = 1; /* assumed for a link whose bandwidth was not measured */

static bool same_bits(const uint8_t *a, const uint8_t *b, int bits)
{
    for (int i = 0; i < bits; i++)
        if ((a[i / 8] ^ b[i / 8]) >> (7 - i % 8) & 1) return false;
    return true;
}

static bool same_network(const sh_fp_address *a, const sh_fp_address *b)
{
    return a->len == b->len && a->prefix == b->prefix && same_bits(a->bytes, b->bytes, a->prefix);
}

/* Whether another host could connect there. Not to link-local IPv6: it needs a scope, whose name
 * may differ on every host. Not to a network of a single address (/32, /128). */
static bool is_usable(const sh_fingerprint *fp, const sh_fp_address *a)
{
    const sh_fp_interface *i = &fp->interface[a->interface];
    bool link_local6 = a->len == 16 && a->bytes[0] == 0xfe && (a->bytes[1] & 0xc0) == 0x80;
    return i->up && !i->loopback && !link_local6 && a->prefix < a->len * 8;
}

static void network_text(const sh_fp_address *a, char *out, size_t cap)
{
    uint8_t bytes[16] = {0};
    char text[INET6_ADDRSTRLEN] = "";
    for (int i = 0; i < a->prefix; i++)
        bytes[i / 8] |= (uint8_t)(a->bytes[i / 8] & (0x80 >> i % 8));
    inet_ntop(a->len == 16 ? AF_INET6 : AF_INET, bytes, text, sizeof(text));
    snprintf(out, cap, "%s/%d", text, a->prefix);
}

static bool has_address(const sh_fingerprint *fp, const sh_fp_address *a)
{
    for (int i = 0; i < fp->address_count; i++)
        if (fp->address[i].len == a->len && memcmp(fp->address[i].bytes, a->bytes, 16) == 0)
            return true;
    return false;
}

/* The address of `fp` in the network of `to`, or NULL. */
static const sh_fp_address *neighbour(const sh_fingerprint *fp, const sh_fp_address *to)
{
    for (int i = 0; i < fp->address_count; i++)
        if (is_usable(fp, &fp->address[i]) && same_network(&fp->address[i], to))
            return &fp->address[i];
    return NULL;
}

/* Candidates for one pair: the addresses of b in networks that a is in too, or with `routed` the
 * other ones. */
static int pair_links(const sh_net_host *hosts, int a, int b, bool routed, sh_net_link *out,
                      int cap)
{
    const sh_fingerprint *from = hosts[a].fp, *to = hosts[b].fp;
    int count = 0;
    for (int i = 0; i < to->address_count && count < cap; i++) {
        const sh_fp_address *target = &to->address[i];
        const sh_fp_address *own = neighbour(from, target);
        /* An address that both hosts have (such as that of a container bridge) leads each host to
         * itself. */
        if (!is_usable(to, target) || has_address(from, target) || (own == NULL) != routed)
            continue;
        sh_net_link *link = &out[count++];
        *link = (sh_net_link){.from = a, .to = b};
        snprintf(link->address, sizeof(link->address), "%s", target->text);
        snprintf(link->network, sizeof(link->network), "routed");
        if (own == NULL) continue;
        snprintf(link->from_address, sizeof(link->from_address), "%s", own->text);
        network_text(target, link->network, sizeof(link->network));
    }
    return count;
}

int sh_net_links(const sh_net_host *hosts, int count, sh_net_link *out, int cap)
{
    int total = 0;
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++) {
            if (hosts[a].fp == NULL || hosts[b].fp == NULL) continue;
            int space = cap - total < PAIR_LINKS_MAX ? cap - total : PAIR_LINKS_MAX;
            int found = pair_links(hosts, a, b, false, out + total, space);
            if (found == 0) found = pair_links(hosts, a, b, true, out + total, space);
            total += found;
        }
    return total;
}

double sh_net_link_seconds(const sh_net_link *link)
{
    if (!link->reached) return INFINITY;
    double gbit = link->gbit_s > 0 ? link->gbit_s : GBIT_UNKNOWN;
    return link->rtt_us * 0.5e-6 + MESSAGE_BITS / (gbit * 1e9);
}

const sh_net_link *sh_net_best(const sh_net_link *links, int count, int a, int b)
{
    const sh_net_link *best = NULL;
    for (int i = 0; i < count; i++) {
        bool pair = (links[i].from == a && links[i].to == b) ||
                    (links[i].from == b && links[i].to == a);
        if (!pair || !links[i].reached) continue;
        if (best == NULL || sh_net_link_seconds(&links[i]) < sh_net_link_seconds(best))
            best = &links[i];
    }
    return best;
}

/* The address of `host` on this link, or NULL. */
static const char *end_of(const sh_net_link *link, int host)
{
    if (link->to == host) return link->address;
    return link->from == host && link->from_address[0] != '\0' ? link->from_address : NULL;
}

/* How good an address is: compared by `missing` first, then by worst_s. */
typedef struct {
    int missing; /* hosts that cannot reach it */
    double worst_s;
} merit;

static merit merit_of(const char *address, int host, int count, const sh_net_link *links,
                      int link_count)
{
    merit m = {0};
    for (int other = 0; other < count; other++) {
        double best = INFINITY;
        if (other == host) continue;
        for (int i = 0; i < link_count; i++) {
            const char *end = end_of(&links[i], host);
            bool of_pair = links[i].from == other || links[i].to == other;
            if (end == NULL || !of_pair || strcmp(end, address) != 0) continue;
            if (sh_net_link_seconds(&links[i]) < best) best = sh_net_link_seconds(&links[i]);
        }
        if (isinf(best))
            m.missing++;
        else if (best > m.worst_s)
            m.worst_s = best;
    }
    return m;
}

static const char *choose_one(int host, int count, const sh_net_link *links, int link_count,
                              merit *out)
{
    const char *best = NULL;
    for (int i = 0; i < link_count; i++) {
        const char *end = end_of(&links[i], host);
        if (end == NULL || !links[i].reached) continue;
        merit m = merit_of(end, host, count, links, link_count);
        if (best == NULL || m.missing < out->missing ||
            (m.missing == out->missing && m.worst_s < out->worst_s)) {
            best = end;
            *out = m;
        }
    }
    return best;
}

static void report_link(const sh_net_host *hosts, const sh_net_link *link, sh_findings *report)
{
    char pair[2 * SH_FP_NAME_MAX], speed[48] = "bandwidth not measured";
    snprintf(pair, sizeof(pair), "%s - %s", hosts[link->from].name, hosts[link->to].name);
    if (link->gbit_s > 0) snprintf(speed, sizeof(speed), "%.2f Gbit/s", link->gbit_s);
    sh_findings_add(report, SH_FINDING_OK, "link", pair, NULL, "best over %s: %.0f us, %s",
                    link->network, link->rtt_us, speed);
}

static void report_no_link(const sh_net_host *hosts, int a, int b, const sh_net_link *links,
                           int count, sh_findings *report)
{
    char pair[2 * SH_FP_NAME_MAX];
    const char *fault = "they share no network";
    for (int i = 0; i < count; i++)
        if (links[i].from == a && links[i].to == b && links[i].fault[0] != '\0')
            fault = links[i].fault;
    snprintf(pair, sizeof(pair), "%s - %s", hosts[a].name, hosts[b].name);
    sh_findings_add(report, SH_FINDING_FAIL, "link", pair,
                    "give both an address in one network, and allow TCP between them in firewalls",
                    "no connection: %s", fault);
}

void sh_net_choose(const sh_net_host *hosts, int count, const sh_net_link *links, int link_count,
                   const char **out, sh_findings *report)
{
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++) {
            if (hosts[a].fp == NULL || hosts[b].fp == NULL) continue;
            const sh_net_link *best = sh_net_best(links, link_count, a, b);
            if (best != NULL)
                report_link(hosts, best, report);
            else
                report_no_link(hosts, a, b, links, link_count, report);
        }
    for (int host = 0; host < count; host++) {
        merit m = {0};
        out[host] = NULL;
        if (hosts[host].fp == NULL) continue;
        out[host] = choose_one(host, count, links, link_count, &m);
        if (out[host] == NULL || count < 2) continue;
        if (m.missing == 0)
            sh_findings_add(report, SH_FINDING_OK, "address", hosts[host].name, NULL,
                            "%s: reachable from all others", out[host]);
        else
            sh_findings_add(report, SH_FINDING_WARN, "address", hosts[host].name,
                            "every rank connects to every other: put all hosts in one network (a "
                            "switch), or add routes",
                            "%s: %d of %d others cannot reach it", out[host], m.missing, count - 1);
    }
}

/* The gateway's address is inside the network of another interface: packets for the gateway would
 * leave through that interface. */
static void check_gateways(const sh_net_host *host, sh_findings *report)
{
    const sh_fingerprint *fp = host->fp;
    for (int g = 0; g < fp->gateway_count; g++) {
        uint8_t number[16] = {0};
        if (inet_pton(AF_INET, fp->gateway[g].address, number) != 1) continue;
        for (int i = 0; i < fp->address_count; i++) {
            const sh_fp_address *a = &fp->address[i];
            const char *name = fp->interface[a->interface].name;
            char network[SH_FP_NAME_MAX + 8];
            if (a->len != 4 || strcmp(name, fp->gateway[g].interface) == 0) continue;
            if (fp->interface[a->interface].loopback || !same_bits(a->bytes, number, a->prefix))
                continue;
            network_text(a, network, sizeof(network));
            sh_findings_add(report, SH_FINDING_FAIL, "subnet", host->name,
                            "give the link another network, such as 10.254.0.0/30",
                            "%s on %s holds the default gateway %s, which is on %s: this host may "
                            "lose its internet connection",
                            network, name, fp->gateway[g].address, fp->gateway[g].interface);
        }
    }
}

/* Two interfaces in overlapping networks: which one the kernel sends from is a matter of luck. */
static void check_overlaps(const sh_net_host *host, sh_findings *report)
{
    const sh_fingerprint *fp = host->fp;
    for (int i = 0; i < fp->address_count; i++)
        for (int j = 0; j < i; j++) {
            const sh_fp_address *a = &fp->address[i], *b = &fp->address[j];
            int prefix = a->prefix < b->prefix ? a->prefix : b->prefix;
            char one[SH_FP_NAME_MAX + 8], two[SH_FP_NAME_MAX + 8];
            if (a->interface == b->interface || a->len != b->len || !is_usable(fp, a) ||
                !is_usable(fp, b) || !same_bits(a->bytes, b->bytes, prefix))
                continue;
            network_text(a, one, sizeof(one));
            network_text(b, two, sizeof(two));
            sh_findings_add(report, SH_FINDING_WARN, "subnet", host->name,
                            "give each link its own network", "%s on %s overlaps %s on %s", one,
                            fp->interface[a->interface].name, two,
                            fp->interface[b->interface].name);
        }
}

static bool has_mac(const sh_fingerprint *fp, const char *mac)
{
    for (int i = 0; i < fp->interface_count; i++)
        if (!fp->interface[i].loopback && strcmp(fp->interface[i].mac, mac) == 0) return true;
    return false;
}

/* Counts the ports of a bridge that have a cable; with `heard`, only those on which frames from
 * that host have arrived. */
static int bridge_ports(const sh_fingerprint *fp, const char *bridge, const sh_fingerprint *heard)
{
    int count = 0;
    for (int i = 0; i < fp->interface_count; i++) {
        const sh_fp_interface *port = &fp->interface[i];
        bool hears = heard == NULL;
        if (strcmp(port->bridge, bridge) != 0 || !port->up || port->tap) continue;
        for (int k = 0; heard != NULL && !hears && k < fp->seen_count; k++)
            hears = strcmp(fp->seen[k].port, port->name) == 0 && has_mac(heard, fp->seen[k].mac);
        count += hears;
    }
    return count;
}

/* Frames from the same host on two ports of one bridge prove a second path, and without spanning
 * tree that is a loop. Where the forwarding table is inconclusive, several ports on both sides only
 * make one possible. */
static void check_loop(const sh_net_host *x, const sh_net_host *y, const sh_fp_address *a,
                       const sh_fp_address *b, sh_findings *report)
{
    const sh_fp_interface *p = &x->fp->interface[a->interface],
                          *q = &y->fp->interface[b->interface];
    static const char *const advice =
        "unplug one cable, or take the second interface out of the bridge and give it its own "
        "network (a loop floods both hosts with broadcasts)";
    char pair[2 * SH_FP_NAME_MAX];
    if (!p->is_bridge || !q->is_bridge || p->stp || q->stp) return;
    snprintf(pair, sizeof(pair), "%s - %s", x->name, y->name);
    int heard = bridge_ports(x->fp, p->name, y->fp), other = bridge_ports(y->fp, q->name, x->fp);
    if (heard > 1 || other > 1)
        sh_findings_add(report, SH_FINDING_FAIL, "bridge", pair, advice,
                        "%d links between the two are in one bridge (%s, %s) without spanning tree",
                        heard > other ? heard : other, p->name, q->name);
    else if (bridge_ports(x->fp, p->name, NULL) > 1 && bridge_ports(y->fp, q->name, NULL) > 1)
        sh_findings_add(report, SH_FINDING_WARN, "bridge", pair, advice,
                        "bridges %s and %s have several ports each and no spanning tree: if two "
                        "cables connect these hosts, they form a loop",
                        p->name, q->name);
}

static void check_loops(const sh_net_host *x, const sh_net_host *y, sh_findings *report)
{
    for (int i = 0; i < x->fp->address_count; i++)
        for (int j = 0; j < y->fp->address_count; j++) {
            const sh_fp_address *a = &x->fp->address[i], *b = &y->fp->address[j];
            if (a->len != 4 || !same_network(a, b) || memcmp(a->bytes, b->bytes, 4) == 0) continue;
            check_loop(x, y, a, b, report);
        }
}

void sh_net_check(const sh_net_host *hosts, int count, sh_findings *report)
{
    for (int i = 0; i < count; i++) {
        if (hosts[i].fp == NULL) continue;
        check_gateways(&hosts[i], report);
        check_overlaps(&hosts[i], report);
        for (int j = 0; j < i; j++)
            if (hosts[j].fp != NULL) check_loops(&hosts[j], &hosts[i], report);
    }
}

void sh_net_check_mtu(const sh_net_host *hosts, int count, sh_findings *report)
{
    for (int x = 0; x < count; x++)
        for (int y = 0; y < x; y++) {
            if (hosts[x].fp == NULL || hosts[y].fp == NULL) continue;
            for (int i = 0; i < hosts[x].fp->address_count; i++) {
                const sh_fp_address *a = &hosts[x].fp->address[i];
                const sh_fp_address *b = is_usable(hosts[x].fp, a) ? neighbour(hosts[y].fp, a)
                                                                   : NULL;
                if (b == NULL || a->len != 4) continue;
                const sh_fp_interface *p = &hosts[x].fp->interface[a->interface],
                                      *q = &hosts[y].fp->interface[b->interface];
                char pair[2 * SH_FP_NAME_MAX], network[SH_FP_NAME_MAX + 8];
                if (p->mtu == 0 || q->mtu == 0 || p->mtu == q->mtu) continue;
                snprintf(pair, sizeof(pair), "%s - %s", hosts[y].name, hosts[x].name);
                network_text(a, network, sizeof(network));
                sh_findings_add(report, SH_FINDING_WARN, "mtu", pair,
                                "set the same MTU on both (ip link set dev NAME mtu 9000)",
                                "in %s the MTU is %lld on one and %lld on the other: large packets "
                                "may be dropped",
                                network, (long long)q->mtu, (long long)p->mtu);
            }
        }
}
