/* netplan.h - which networks hosts share, which address of each the others should use, and what is
 * wrong with the networks.
 *
 * Works on fingerprints and on measured links alone; nothing is sent here. A link is an address of
 * one host as another reaches it.
 *
 * Threads: pure functions over values. */
#ifndef SH_CLUSTER_NETPLAN_H
#define SH_CLUSTER_NETPLAN_H

#include "cluster/findings.h"
#include "cluster/fingerprint.h"

typedef struct {
    const char *name;         /* as ssh knows it */
    const sh_fingerprint *fp; /* NULL when the host did not answer */
} sh_net_host;

typedef struct {
    int from, to;
    char from_address[SH_FP_NAME_MAX]; /* of `from` in that network; "" when routers lie between */
    char address[SH_FP_NAME_MAX];      /* of `to` */
    char network[SH_FP_NAME_MAX + 8];  /* "10.0.0.0/24", or "routed" */
    bool tried, reached;
    double rtt_us; /* 0: not measured */
    double gbit_s; /* 0: not measured */
    char fault[SH_FP_TEXT_MAX];
} sh_net_link;

enum { SH_NET_LINKS_MAX = 2048 };

/* The links worth a try, for every pair from < to: one for each network that both are in, else
 * every address of the second. Returns how many of cap. */
int sh_net_links(const sh_net_host *hosts, int count, sh_net_link *out, int cap);

/* Seconds that a message of middle size takes; INFINITY when it does not arrive. */
double sh_net_link_seconds(const sh_net_link *link);

/* The quickest link of a pair, or NULL. */
const sh_net_link *sh_net_best(const sh_net_link *links, int count, int a, int b);

/* The address of each host that serves all others best: out[i] borrowed from the links, or NULL.
 * Says in the report what was chosen and which pairs do not reach each other. */
void sh_net_choose(const sh_net_host *hosts, int count, const sh_net_link *links, int link_count,
                   const char **out, sh_findings *report);

/* Networks that clash with the way to a default gateway or with each other, and two cables between
 * one pair of hosts inside one bridge. */
void sh_net_check(const sh_net_host *hosts, int count, sh_findings *report);

/* Hosts of one network whose packets may have different lengths. */
void sh_net_check_mtu(const sh_net_host *hosts, int count, sh_findings *report);

#endif
