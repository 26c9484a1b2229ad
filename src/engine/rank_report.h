/* rank_report.h - the state of a rank (memory, time, traffic), and of its links to the others.
 *
 * Threads: the owner of the model group. */
#ifndef SH_ENGINE_RANK_REPORT_H
#define SH_ENGINE_RANK_REPORT_H

#include "base/status.h"
#include "coll/coll.h"

#include <stdint.h>

enum { SH_RANK_REPORT_HOST_MAX = 64 };

/* The kinds of traffic between ranks in steps. */
typedef enum {
    SH_TRAFFIC_PLAN,      /* plans; on ranks other than 0 the time includes waiting for work */
    SH_TRAFFIC_SUM,       /* sums over the ranks of a stage */
    SH_TRAFFIC_HANDOVER,  /* hidden states from stage to stage */
    SH_TRAFFIC_SUMMARIES, /* logits summaries and rows, to rank 0 */
    SH_TRAFFICS,
} sh_traffic;

const char *sh_traffic_name(sh_traffic kind);

typedef struct {
    uint64_t calls, bytes; /* bytes before any encoding for the wire */
    double seconds;        /* including the time waiting for others */
} sh_traffic_cost;

typedef struct {
    char host[SH_RANK_REPORT_HOST_MAX];
    int64_t pid;
    int64_t weights, kv, scratch; /* bytes */
    int64_t resident, peak, available, total;
    double cpu_s;
    double compute_s; /* in forward passes, without sums */
    double own_s;     /* in steps, neither computing nor moving data */
    sh_traffic_cost traffic[SH_TRAFFICS];
    uint64_t steps, tokens;
    double temperature_c, power_w; /* NAN where the system does not report it */
} sh_rank_report;

enum { SH_LINK_KIND_MAX = 8, SH_LINK_DEVICE_MAX = 32 };

typedef struct {
    double latency_s;                /* half the round-trip time of a short message */
    double bytes_per_s;              /* one way */
    char kind[SH_LINK_KIND_MAX];     /* "tcp", "tls", "shm", "mpi"; "" from a rank to itself */
    char device[SH_LINK_DEVICE_MAX]; /* at this rank's end: "mlx5_0"; "" where there is none */
} sh_link_report;

/* Fills the fields that the process can read from the system: host, memory, CPU time, sensors. */
void sh_rank_report_fill(sh_rank_report *out);

/* Measures the link between each pair of ranks, one pair at a time; all ranks call it. Fills links
 * [size, size]: on rank 0 all of it, on other ranks their own row. */
SH_MUST_CHECK sh_status sh_links_measure(sh_group *group, sh_link_report *links, sh_err *err);

#endif
