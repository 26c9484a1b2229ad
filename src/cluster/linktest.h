/* linktest.h - tries and times the links of a group.
 *
 * Every phase is collective. Times are medians over batches; batches of the group's operation and
 * of the raw socket take turns, so that what else happens on the machines hits both. Rank 0's clock
 * counts, and only its report is filled.
 *
 * Threads: the owner of the group. */
#ifndef SH_CLUSTER_LINKTEST_H
#define SH_CLUSTER_LINKTEST_H

#include "coll/coll.h"

enum { SH_LINKTEST_SIZES_MAX = 32 };

typedef struct {
    sh_codec wire;
    bool quick;
    int64_t rounds;                        /* of each size; 0 chooses */
    size_t latency[SH_LINKTEST_SIZES_MAX]; /* bytes of f32 numbers */
    int latency_count;
    size_t bandwidth[SH_LINKTEST_SIZES_MAX];
    int bandwidth_count;
    int64_t stress_rounds; /* 0: none */
} sh_linktest_opts;

typedef struct {
    size_t bytes;
    double seconds;     /* of one all-reduce */
    double raw_seconds; /* latency: half a round trip; bandwidth: these bytes to each neighbour at
                           once */
} sh_linktest_row;

typedef struct {
    double barrier_seconds;
    sh_linktest_row latency[SH_LINKTEST_SIZES_MAX];
    int latency_count;
    sh_linktest_row bandwidth[SH_LINKTEST_SIZES_MAX];
    int bandwidth_count;
    int64_t stress_done;
} sh_linktest_report;

/* Called on rank 0 before a phase, for whoever watches; may be NULL. */
typedef void (*sh_linktest_phase_fn)(void *arg, const char *name);

/* The sizes and rounds of --quick or of a full run. */
void sh_linktest_opts_init(sh_linktest_opts *opts, bool quick);

/* Splits a list such as "4K,16K,64M" into the sizes that are short (latency) and long (bandwidth).
 */
SH_MUST_CHECK sh_status sh_linktest_parse_sizes(sh_linktest_opts *opts, const char *text,
                                                sh_err *err);

/* A wrong result is an error that says where, and ends the group for all. */
SH_MUST_CHECK sh_status sh_linktest_run(sh_group *group, const sh_linktest_opts *opts,
                                        sh_linktest_phase_fn phase, void *arg,
                                        sh_linktest_report *out, sh_err *err);

/* 2(n-1)/n * bytes / seconds: what each rank sends, and takes, in an all-reduce. */
double sh_linktest_rate(const sh_linktest_row *row, int ranks);

#endif
