/* rank_report.h - how a rank is, and how its links to the others are.
 *
 * Threads: the owner of the model group. */
#ifndef SH_ENGINE_RANK_REPORT_H
#define SH_ENGINE_RANK_REPORT_H

#include "base/status.h"
#include "coll/coll.h"

#include <stdint.h>

enum { SH_RANK_REPORT_HOST_MAX = 64 };

/* What ranks say to each other in steps. */
typedef enum {
    SH_TRAFFIC_PLAN,      /* what to do; on other ranks than 0 the time is that of waiting for it */
    SH_TRAFFIC_SUM,       /* sums over the ranks of a stage */
    SH_TRAFFIC_HANDOVER,  /* hidden states from stage to stage */
    SH_TRAFFIC_SUMMARIES, /* what was found in the logits, to rank 0 */
    SH_TRAFFICS,
} sh_traffic;

const char *sh_traffic_name(sh_traffic kind);

typedef struct {
    uint64_t calls, bytes; /* bytes as they were before any packing for the wire */
    double seconds;        /* waiting for others included */
} sh_traffic_cost;

typedef struct {
    char host[SH_RANK_REPORT_HOST_MAX];
    int64_t pid;
    int64_t weights, kv, scratch; /* bytes */
    int64_t resident, peak, available, total;
    double cpu_s;
    double compute_s; /* in forward passes, sums excluded */
    double own_s;     /* in steps, but neither computing nor moving data */
    sh_traffic_cost traffic[SH_TRAFFICS];
    uint64_t steps, tokens;
    double temperature_c, power_w; /* NAN where the system does not tell */
} sh_rank_report;

enum { SH_LINK_KIND_MAX = 8 };

typedef struct {
    double latency_s;            /* half of a round trip of a short message */
    double bytes_per_s;          /* one way */
    char kind[SH_LINK_KIND_MAX]; /* "tcp", "tls", "shm", "mpi"; "" of a rank to itself */
} sh_link_report;

/* Fills what the process knows of itself. */
void sh_rank_report_fill(sh_rank_report *out);

/* Measures each pair of ranks, one after the other; all ranks call it. links [size, size]: this
 * rank's row is filled, on rank 0 all of them. */
SH_MUST_CHECK sh_status sh_links_measure(sh_group *group, sh_link_report *links, sh_err *err);

#endif
