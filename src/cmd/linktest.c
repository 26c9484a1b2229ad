/* shoal linktest: forms a group, tests and times its links, and gives a verdict. The verdict
 * compares the collectives with raw sockets between the same processes, because absolute times
 * depend on the machines; slow links are still a pass, since the results are right. */
#include "cluster/linktest.h"

#include "base/json.h"
#include "cmd/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRESS_ROUNDS = 2000, ROUNDS_PER_LINE = 10 };

static void show_phase(void *arg, const char *name)
{
    const sh_settings *s = arg;
    if (!s->json) printf("phase %s\n", name);
    fflush(stdout);
}

/* --verbose: the times of a batch, on lines of ten. */
static void show_rounds(void *arg, size_t bytes, const double *seconds, int count)
{
    const sh_settings *s = arg;
    for (int i = 0; i < count && !s->json; i++) {
        if (i % ROUNDS_PER_LINE == 0) printf("%12zu bytes, us:", bytes);
        printf(" %10.2f%s", seconds[i] * 1e6,
               i % ROUNDS_PER_LINE == ROUNDS_PER_LINE - 1 || i == count - 1 ? "\n" : "");
    }
    fflush(stdout);
}

/* An all-reduce of 16 KiB should take at most 1.5 raw half round trips per peer. */
static bool is_quick_enough(const sh_linktest_report *r, int ranks)
{
    for (int i = 0; i < r->latency_count; i++)
        if (r->latency[i].bytes == 16384 &&
            r->latency[i].seconds > 1.5 * (ranks - 1) * r->latency[i].raw_seconds)
            return false;
    return true;
}

/* Bus bandwidth of the all-reduce relative to the bandwidth of the raw sockets. */
static double rate_ratio(const sh_linktest_row *row, int ranks)
{
    return sh_linktest_rate(row, ranks) * row->raw_seconds / (double)row->bytes;
}

/* The largest size should reach 0.8 of the raw bandwidth. */
static bool is_broad_enough(const sh_linktest_report *r, int ranks)
{
    if (r->bandwidth_count == 0) return true;
    return rate_ratio(&r->bandwidth[r->bandwidth_count - 1], ranks) >= 0.8;
}

static const char *verdict(const sh_linktest_report *r, int ranks)
{
    bool quick = is_quick_enough(r, ranks);
    bool broad = is_broad_enough(r, ranks);
    return quick && broad ? "pass"
           : quick        ? "pass, but long sums stay below 0.8 of the raw sockets"
           : broad        ? "pass, but short sums take more than 1.5 raw half round trips per peer"
                          : "pass, but short and long sums are slow compared to the raw sockets";
}

static double large_rate(const sh_linktest_report *r, int ranks)
{
    sh_linktest_row row = {.bytes = r->large_bytes, .seconds = r->large_median};
    return sh_linktest_rate(&row, ranks);
}

static void print_text(const sh_linktest_report *r, int ranks)
{
    printf("barrier %.1f us\n", r->barrier_seconds * 1e6);
    if (r->stress_done > 0) printf("stress %lld operations correct\n", (long long)r->stress_done);
    if (r->large_bytes > 0)
        printf("large  %d sums of %zu bytes correct: %.2f ms at best, %.2f median, %.2f at worst; "
               "%.3f GB/s\n",
               r->large_rounds, r->large_bytes, r->large_min * 1e3, r->large_median * 1e3,
               r->large_max * 1e3, large_rate(r, ranks) / 1e9);
    if (r->latency_count > 0)
        printf("%12s %14s %14s %7s\n", "bytes", "all-reduce us", "raw half trip", "ratio");
    for (int i = 0; i < r->latency_count; i++)
        printf("%12zu %14.2f %14.2f %7.2f\n", r->latency[i].bytes, r->latency[i].seconds * 1e6,
               r->latency[i].raw_seconds * 1e6, r->latency[i].seconds / r->latency[i].raw_seconds);
    if (r->bandwidth_count > 0)
        printf("%12s %14s %14s %7s\n", "bytes", "sum GB/s", "raw GB/s", "ratio");
    for (int i = 0; i < r->bandwidth_count; i++)
        printf("%12zu %14.3f %14.3f %7.2f\n", r->bandwidth[i].bytes,
               sh_linktest_rate(&r->bandwidth[i], ranks) / 1e9,
               (double)r->bandwidth[i].bytes / r->bandwidth[i].raw_seconds / 1e9,
               rate_ratio(&r->bandwidth[i], ranks));
    printf("verdict: %s\n", verdict(r, ranks));
}

static void add_row(cJSON *list, const sh_linktest_row *row, int ranks, bool latency)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddNumberToObject(item, "bytes", (double)row->bytes);
    cJSON_AddNumberToObject(item, "allreduce_us", row->seconds * 1e6);
    if (latency) {
        cJSON_AddNumberToObject(item, "raw_half_trip_us", row->raw_seconds * 1e6);
        cJSON_AddNumberToObject(item, "ratio", row->seconds / row->raw_seconds);
    } else {
        cJSON_AddNumberToObject(item, "bus_gb_s", sh_linktest_rate(row, ranks) / 1e9);
        cJSON_AddNumberToObject(item, "raw_gb_s", (double)row->bytes / row->raw_seconds / 1e9);
        cJSON_AddNumberToObject(item, "ratio", rate_ratio(row, ranks));
    }
    cJSON_AddItemToArray(list, item);
}

static void print_json(sh_group *group, const sh_linktest_report *r)
{
    int ranks = sh_group_size(group);
    cJSON *top = cJSON_CreateObject();
    cJSON_AddNumberToObject(top, "ranks", ranks);
    cJSON *paths = cJSON_AddArrayToObject(top, "paths");
    for (int i = 0; i < ranks; i++)
        cJSON_AddItemToArray(paths, cJSON_CreateString(sh_group_path(group, i)));
    cJSON *devices = cJSON_AddArrayToObject(top, "devices");
    for (int i = 0; i < ranks; i++)
        cJSON_AddItemToArray(devices, cJSON_CreateString(sh_group_device(group, i)));
    cJSON_AddNumberToObject(top, "barrier_us", r->barrier_seconds * 1e6);
    cJSON_AddTrueToObject(top, "correct");
    cJSON *latency = cJSON_AddArrayToObject(top, "latency");
    for (int i = 0; i < r->latency_count; i++) add_row(latency, &r->latency[i], ranks, true);
    cJSON *bandwidth = cJSON_AddArrayToObject(top, "bandwidth");
    for (int i = 0; i < r->bandwidth_count; i++) add_row(bandwidth, &r->bandwidth[i], ranks, false);
    if (r->stress_done > 0)
        cJSON_AddNumberToObject(top, "stress_operations", (double)r->stress_done);
    if (r->large_bytes > 0) {
        cJSON *large = cJSON_AddObjectToObject(top, "large_sums");
        cJSON_AddNumberToObject(large, "bytes", (double)r->large_bytes);
        cJSON_AddNumberToObject(large, "rounds", r->large_rounds);
        cJSON_AddNumberToObject(large, "min_ms", r->large_min * 1e3);
        cJSON_AddNumberToObject(large, "median_ms", r->large_median * 1e3);
        cJSON_AddNumberToObject(large, "max_ms", r->large_max * 1e3);
        cJSON_AddNumberToObject(large, "bus_gb_s", large_rate(r, ranks) / 1e9);
    }
    cJSON_AddStringToObject(top, "verdict", verdict(r, ranks));
    char *text = cJSON_Print(top);
    puts(text);
    cJSON_free(text);
    cJSON_Delete(top);
}

static void print_group(sh_group *group)
{
    printf("%d ranks; paths from rank 0:", sh_group_size(group));
    for (int r = 0; r < sh_group_size(group); r++) {
        const char *device = sh_group_device(group, r);
        printf(device[0] == '\0' ? " %s" : " %s(%s)", sh_group_path(group, r), device);
    }
    printf("\n");
}

/* --rounds counts repetitions of a size, but with --stress the number of operations. */
static sh_status gather_opts(sh_linktest_opts *opts, const sh_settings *s, sh_err *err)
{
    sh_linktest_opts_init(opts, s->quick);
    opts->rounds = s->stress ? 0 : s->link_rounds;
    if (s->stress) opts->stress_rounds = s->link_rounds > 0 ? s->link_rounds : STRESS_ROUNDS;
    opts->each_round = s->verbose;
    if (s->sizes != NULL) return sh_linktest_parse_sizes(opts, s->sizes, err);
    return s->counts == NULL ? SH_OK : sh_linktest_parse_counts(opts, s->counts, err);
}

static sh_status run(const sh_command_args *args, sh_linktest_opts *opts, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_linktest_report report;
    sh_ranks ranks;
    sh_group *group = NULL;
    sh_status status = sh_ranks_init(&ranks, args, err);
    if (status == SH_OK && ranks.opts.mesh.size < 2)
        status = sh_err_set(err, SH_ERR_INPUT,
                            "linktest needs at least two ranks: --ranks N, or --hostfile");
    if (status != SH_OK) return status;
    opts->wire = ranks.wire;
    status = sh_group_open(&ranks.opts, &group, err);
    if (status != SH_OK) return status;
    bool shows = sh_group_rank(group) == 0;
    if (shows && !s->json) print_group(group);
    sh_linktest_hooks hooks = {
        .phase = show_phase, .rounds = show_rounds, .arg = (void *)(uintptr_t)s};
    status = sh_linktest_run(group, opts, &hooks, &report, err);
    if (status == SH_OK && shows && s->json) print_json(group, &report);
    if (status == SH_OK && shows && !s->json) print_text(&report, sh_group_size(group));
    sh_group_close(group);
    return status;
}

/* The options are checked before ranks are spawned, so that a mistake is reported once and not by
 * every rank. */
static int linktest_run(const sh_command_args *args)
{
    sh_linktest_opts opts;
    sh_err err;
    sh_status status = gather_opts(&opts, args->settings, &err);
    if (status == SH_OK && sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    if (status == SH_OK) status = run(args, &opts, &err);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

const sh_command sh_command_linktest = {
    SH_COMMAND_NAMED(linktest),
    .summary = "test and time the links between ranks",
    .details = "Phases: barrier, correctness, latency and bandwidth, over the backend that was "
               "asked for. Each time is printed next to that of a raw TCP socket between the same "
               "processes in the same run. With --stress: many operations in random order, then "
               "100 sums of the largest size, each one checked.",
    .run = linktest_run,
};
