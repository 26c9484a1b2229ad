/* All ranks walk through the pairs in the same order, so a rank never waits for a peer that waits
 * for it. Latency is the median of PINGS short round trips, so that outliers do not count;
 * bandwidth is the best of BULKS long ones. */
#include "engine/rank_report.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/system.h"
#include "engine/rank_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PINGS = 21, PING_BYTES = 64, BULK_BYTES = 1 << 20, BULKS = 2 };

const char *sh_traffic_name(sh_traffic kind)
{
    static const char *const names[SH_TRAFFICS] = {"plan", "sum", "handover", "scans"};
    return names[kind];
}

void sh_rank_report_fill(sh_rank_report *r)
{
    gethostname(r->host, sizeof(r->host) - 1);
    r->host[sizeof(r->host) - 1] = '\0';
    r->pid = getpid();
    r->resident = sh_memory_used();
    r->peak = sh_memory_peak();
    r->available = sh_memory_available();
    r->total = sh_memory_total();
    r->cpu_s = sh_cpu_seconds();
    r->temperature_c = sh_temperature_c();
    r->power_w = sh_power_w();
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One round trip; the lower rank sends first. */
static sh_status bounce(sh_group *group, int peer, void *data, size_t len, double *seconds,
                        sh_err *err)
{
    bool first = sh_group_rank(group) < peer;
    int64_t start = sh_clock_ns();
    sh_status status = first ? sh_coll_send(group, peer, data, len, err)
                             : sh_coll_recv(group, peer, data, len, err);
    if (status == SH_OK)
        status = first ? sh_coll_recv(group, peer, data, len, err)
                       : sh_coll_send(group, peer, data, len, err);
    *seconds = (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

static sh_status pair_measure(sh_group *group, int peer, char *data, sh_link_report *out,
                              sh_err *err)
{
    double times[PINGS], bulk, best = 1e30;
    sh_status status = SH_OK;
    for (int i = 0; i < PINGS && status == SH_OK; i++)
        status = bounce(group, peer, data, PING_BYTES, &times[i], err);
    for (int i = 0; i < BULKS && status == SH_OK; i++) {
        status = bounce(group, peer, data, BULK_BYTES, &bulk, err);
        if (bulk < best) best = bulk;
    }
    if (status != SH_OK) return status;
    qsort(times, PINGS, sizeof(times[0]), compare);
    *out = (sh_link_report){.latency_s = times[PINGS / 2] / 2,
                            .bytes_per_s = 2.0 * BULK_BYTES / best};
    snprintf(out->kind, sizeof(out->kind), "%s", sh_group_path(group, peer));
    snprintf(out->device, sizeof(out->device), "%s", sh_group_device(group, peer));
    return SH_OK;
}

/* All-gathers the ranks' rows of the link matrix. */
static sh_status rows_exchange(sh_group *group, const sh_link_report *row, sh_link_report *links,
                               sh_err *err)
{
    int size = sh_group_size(group);
    sh_buf mine = {0}, all = {0};
    for (int i = 0; i < size; i++) sh_link_report_pack(&row[i], &mine);
    size_t *lens = sh_alloc_array((size_t)size, sizeof(*lens));
    for (int i = 0; i < size; i++) lens[i] = mine.len;
    sh_buf_reserve(&all, mine.len * (size_t)size);
    all.len = mine.len * (size_t)size;
    sh_status status = sh_coll_allgather(group, mine.ptr, lens, all.ptr, err);
    sh_reader r = sh_reader_of(sh_buf_str(&all));
    for (int i = 0; status == SH_OK && i < size * size; i++) sh_link_report_unpack(&r, &links[i]);
    if (status == SH_OK) status = sh_get_end(&r, "the links of a rank", err);
    free(lens);
    sh_buf_reset(&mine);
    sh_buf_reset(&all);
    return status;
}

sh_status sh_links_measure(sh_group *group, sh_link_report *links, sh_err *err)
{
    int rank = sh_group_rank(group), size = sh_group_size(group);
    sh_link_report *row = sh_alloc_array((size_t)size, sizeof(*row));
    char *data = sh_alloc(BULK_BYTES);
    sh_status status = sh_group_register_memory(group, data, BULK_BYTES, err);
    for (int a = 0; a < size && status == SH_OK; a++)
        for (int b = a + 1; b < size && status == SH_OK; b++) {
            if (rank == a) status = pair_measure(group, b, data, &row[b], err);
            if (rank == b) status = pair_measure(group, a, data, &row[a], err);
            /* Pairs without a common rank would measure at the same time, and each other. */
            if (status == SH_OK && size > 3) status = sh_coll_barrier(group, err);
        }
    if (status == SH_OK) status = rows_exchange(group, row, links, err);
    sh_group_unregister_memory(group, data);
    free(data);
    free(row);
    return status;
}
