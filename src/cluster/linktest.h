/* linktest.h - tests and times the links of a group.
 *
 * Every phase is collective. Times are medians over batches; batches of the group's operation and
 * of the raw socket alternate, so that other load on the machines affects both. Only rank 0 fills
 * its report, with times from its clock.
 *
 * Threads: the owner of the group. */
#ifndef SH_CLUSTER_LINKTEST_H
#define SH_CLUSTER_LINKTEST_H

#include "coll/coll.h"

enum { SH_LINKTEST_SIZES_MAX = 32 };

typedef struct {
    sh_codec wire;
    bool quick;
    int64_t rounds;                        /* for each size; 0: chosen by the time of one round */
    size_t latency[SH_LINKTEST_SIZES_MAX]; /* bytes, a multiple of 4 (f32) */
    int latency_count;
    size_t bandwidth[SH_LINKTEST_SIZES_MAX];
    int bandwidth_count;
    int64_t stress_rounds; /* 0: none */
    int large_rounds;      /* of a stress run: sums of the largest size */
    bool each_round;       /* time each round of a sum by itself, for the hook */
} sh_linktest_opts;

typedef struct {
    size_t bytes;
    double seconds;     /* of one all-reduce */
    double raw_seconds; /* latency: half a round trip; bandwidth: the same bytes sent to one
                           neighbour while receiving from the other */
} sh_linktest_row;

typedef struct {
    double barrier_seconds;
    sh_linktest_row latency[SH_LINKTEST_SIZES_MAX];
    int latency_count;
    sh_linktest_row bandwidth[SH_LINKTEST_SIZES_MAX];
    int bandwidth_count;
    int64_t stress_done;
    size_t large_bytes; /* 0: no large sums were made */
    int large_rounds;
    double large_min, large_median, large_max; /* seconds of one sum */
} sh_linktest_report;

/* Called on rank 0 to show progress; each may be NULL. */
typedef struct {
    void (*phase)(void *arg, const char *name); /* before each phase */
    /* After each batch of sums, with opts.each_round: the time of each round. */
    void (*rounds)(void *arg, size_t bytes, const double *seconds, int count);
    void *arg;
} sh_linktest_hooks;

/* The default sizes of a quick or of a full run. */
void sh_linktest_opts_init(sh_linktest_opts *opts, bool quick);

/* Splits a list such as "4K,16K,64M" into short sizes (timed for latency) and long ones (timed for
 * bandwidth). */
SH_MUST_CHECK sh_status sh_linktest_parse_sizes(sh_linktest_opts *opts, const char *text,
                                                sh_err *err);

/* The same for numbers of four bytes, "1024,262144". */
SH_MUST_CHECK sh_status sh_linktest_parse_counts(sh_linktest_opts *opts, const char *text,
                                                 sh_err *err);

/* A wrong result is an error that says where, and fails the group on all ranks. */
SH_MUST_CHECK sh_status sh_linktest_run(sh_group *group, const sh_linktest_opts *opts,
                                        const sh_linktest_hooks *hooks, sh_linktest_report *out,
                                        sh_err *err);

/* 2(n-1)/n * bytes / seconds: the bus bandwidth, that is what each rank sends, and also receives,
 * in a ring all-reduce. */
double sh_linktest_rate(const sh_linktest_row *row, int ranks);

#endif
