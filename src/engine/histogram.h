/* histogram.h - histograms of the engine's measurements, and their JSON.
 *
 * Threads: belongs to the engine's thread. */
#ifndef SH_ENGINE_HISTOGRAM_H
#define SH_ENGINE_HISTOGRAM_H

#include "base/buf.h"

#include <stdint.h>

enum { SH_HIST_BUCKETS = 20 };

/* Counts by upper bound; the bounds grow by a constant factor from `least`. */
typedef struct {
    const char *name; /* with its unit, such as "ttft_seconds" */
    double least;
    double factor;
    uint64_t counts[SH_HIST_BUCKETS + 1]; /* the last one counts values above all bounds */
    uint64_t total;
    double sum;
} sh_hist;

void sh_hist_add(sh_hist *hist, double value);

/* "name":{"count":..,"sum":..,"buckets":[[bound,count],...]} with cumulative counts, as in
 * Prometheus. */
void sh_hist_json(const sh_hist *hist, sh_buf *out);

#endif
