/* netplan.h - which networks hosts share, which address of each the others should use, and what is
 * wrong with those networks.
 *
 * Works on fingerprints and measured links only; nothing is sent. A link is one host's address as
 * seen from another host.
 *
 * Threads: pure functions over values. */
#ifndef SH_CLUSTER_NETPLAN_H
#define SH_CLUSTER_NETPLAN_H

#include "cluster/findings.h"
#include "cluster/fingerprint.h"

typedef struct {
    const char *name;         /* the name that ssh uses */
    const sh_fingerprint *fp; /* NULL when the host did not answer */
} sh_net_host;

typedef struct {
    int from, to;
    char from_address[SH_FP_NAME_MAX]; /* of `from` in that network; "" when the link is routed */
    char address[SH_FP_NAME_MAX];      /* of `to` */
    char network[SH_FP_NAME_MAX + 8];  /* "10.0.0.0/24", or "routed" */
    bool tried, reached;
    double rtt_us; /* 0: not measured */
    double gbit_s; /* 0: not measured */
    char fault[SH_FP_TEXT_MAX];
} sh_net_link;

enum { SH_NET_LINKS_MAX = 2048 };

/* The links worth trying, for every pair from < to: one for each network that both are in, or else
 * every address of the second host. Returns their number, at most cap. */
int sh_net_links(const sh_net_host *hosts, int count, sh_net_link *out, int cap);

/* Estimated seconds for a message of medium size; INFINITY when the link does not work. */
double sh_net_link_seconds(const sh_net_link *link);

/* The fastest working link of a pair, or NULL. */
const sh_net_link *sh_net_best(const sh_net_link *links, int count, int a, int b);

/* Chooses for each host the address that serves all others best: out[i] is borrowed from the links,
 * or NULL. Reports what was chosen and which pairs cannot reach each other. */
void sh_net_choose(const sh_net_host *hosts, int count, const sh_net_link *links, int link_count,
                   const char **out, sh_findings *report);

/* Reports networks that conflict with the route to a default gateway or with each other, and loops:
 * two cables between a pair of hosts that both put into one bridge. */
void sh_net_check(const sh_net_host *hosts, int count, sh_findings *report);

/* Reports hosts in one network with different MTUs. */
void sh_net_check_mtu(const sh_net_host *hosts, int count, sh_findings *report);

#endif
