/* cables.h - which interfaces of which hosts are connected, which RDMA devices that joins, and
 * addresses for direct cables that have none.
 *
 * A cable here is a pair of interfaces that reach each other without a router: the two ends of a
 * real cable, or two ports of one switch. survey.h finds them by trying.
 *
 * Threads: pure functions over values. */
#ifndef SH_CLUSTER_CABLES_H
#define SH_CLUSTER_CABLES_H

#include "cluster/netplan.h"
#include "net/peer_messages.h"

enum { SH_CABLES_MAX = 1024, SH_RDMA_LINKS_MAX = SH_LANES_MAX };

typedef struct {
    int host[2];      /* the lower one first */
    int interface[2]; /* of each host, in its fingerprint */
} sh_cable;

typedef struct {
    sh_cable cable[SH_CABLES_MAX];
    int count;
} sh_cables;

/* Whether an interface can be the end of a cable: it is up, and nothing that is only software
 * between other interfaces. */
bool sh_cable_can_end_at(const sh_fp_interface *interface);

/* The ends may be in any order. A cable that is known already is not added again. */
void sh_cables_add(sh_cables *cables, sh_cable cable);

/* Adds what measured links show: addresses of one network that reached each other. */
void sh_cables_add_links(sh_cables *cables, const sh_net_host *hosts, const sh_net_link *links,
                         int count);

/* Whether nothing else was found at either end, and no default gateway is there. */
bool sh_cables_is_direct(const sh_cables *cables, const sh_net_host *hosts, int idx);

/* Two RDMA ports that reach each other; the names are borrowed from the fingerprints. */
typedef struct {
    const char *device[2];
} sh_rdma_link;

/* The RDMA links between two hosts, each port in one of them: over their cables, or within one
 * InfiniBand subnet. Only active ports count. device[0] belongs to host a. Returns their number. */
int sh_cables_rdma_links(const sh_cables *cables, const sh_net_host *hosts, int a, int b,
                         sh_rdma_link out[SH_RDMA_LINKS_MAX]);

/* Finds an order of the hosts in which each is linked to the next and the last to the first;
 * linked[i * count + j]: host i reaches host j. False if there is none. */
bool sh_cables_ring(const bool *linked, int count, int *order);

/* An address to give to an interface. */
typedef struct {
    int host;
    char interface[SH_FP_NAME_MAX];
    char address[SH_FP_NAME_MAX]; /* "10.254.0.1/30" */
} sh_cable_address;

/* Addresses for the two ends of every direct cable that has none: a /30 of its own for each, out of
 * 10.254.0.0/16, that overlaps no network of any host. Returns their number, at most cap; -1: no
 * such network is left. */
int sh_cables_plan(const sh_cables *cables, const sh_net_host *hosts, int count,
                   sh_cable_address *out, int cap);

#endif
