/* metrics.h - counters and histograms of the API process, in Prometheus' text format.
 *
 * Names follow its conventions: base units, `_total` for counters. The engine's own numbers come
 * from its stats and are written along with these.
 *
 * Threads: the loop's. */
#ifndef SH_API_METRICS_H
#define SH_API_METRICS_H

#include "api/history.h"
#include "api/replay.h"
#include "base/buf.h"
#include "base/json.h"

typedef struct sh_metrics sh_metrics;

sh_metrics *sh_metrics_create(void);
void sh_metrics_free(sh_metrics *metrics);

/* `method` and `route` must be constants, the latter a path of the route table: they are compared
 * by address. */
void sh_metrics_http(sh_metrics *metrics, const char *method, const char *route, int status,
                     double seconds);
void sh_metrics_record(sh_metrics *metrics, const sh_record *record);
void sh_metrics_count_refused(sh_metrics *metrics);
void sh_metrics_token_gap(sh_metrics *metrics, double seconds);

/* The engine of a model. */
typedef struct {
    const char *model; /* its name; "" if it is not known yet */
    bool up;
    const cJSON *stats; /* or NULL */
} sh_metrics_engine;

/* Gauges, measured when the metrics are written. */
typedef struct {
    int connections;
    int running; /* requests at the engines */
    sh_replay_stats replay;
    double uptime_s;
    const sh_metrics_engine *engines;
    int engine_count;
} sh_metrics_now;

void sh_metrics_write(const sh_metrics *metrics, const sh_metrics_now *now, sh_buf *out);

#endif
