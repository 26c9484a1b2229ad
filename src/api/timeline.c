/* Readings are raw counters, points are figures. Only readings have histograms, and only as many
 * readings are kept as the window needs, so that an hour of points stays small.
 *
 * What the engine sends is input like any other: a member that is missing or is no number gives an
 * unknown figure (NaN, null in JSON), never a wrong one. */
#include "api/timeline.h"

#include "base/alloc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS_MAX = 32,
    READINGS = 12, /* of the last 10 s, with one to spare on either side */
    SECOND_US = 1000000,
    RATE_US = 5 * SECOND_US,
    SHARE_US = 10 * SECOND_US,
    SILENT_US = 5 * SECOND_US, /* an engine that has reported nothing for so long has no figures */
};

/* Counters of the stats, by their paths. */
enum { ANSWERED, PROMPTED, CACHED, TRIED, KEPT, STEPS, BATCHED, COUNTERS };
static const char *const counter_paths[COUNTERS][3] = {
    [ANSWERED] = {"counts", "answer_tokens"},
    [PROMPTED] = {"counts", "prompt_tokens"},
    [CACHED] = {"counts", "cached_tokens"},
    [TRIED] = {"counts", "drafts_tried"},
    [KEPT] = {"counts", "drafts_kept"},
    [STEPS] = {"counts", "steps"},
    [BATCHED] = {"histograms", "batch_tokens", "sum"},
};

/* Cumulative counts by upper bound, as the engine writes them. */
typedef struct {
    int count;
    double total;
    double bound[BUCKETS_MAX], upto[BUCKETS_MAX];
} histogram;

typedef struct {
    int64_t at_us;
    double uptime_s;
    double counter[COUNTERS];
    histogram ttft, inter_token;
} reading;

/* The figures of a point, by the names that clients see. */
enum {
    GENERATED,
    COMPUTED,
    TTFT_P50,
    TTFT_P95,
    INTER_P50,
    INTER_P95,
    RUNNING,
    WAITING,
    BATCH,
    CACHE,
    DRAFTS,
    KV,
    FIGURES
};
static const char *const figure_names[FIGURES] = {
    [GENERATED] = "generated_tokens_per_s",
    [COMPUTED] = "prompt_tokens_per_s",
    [TTFT_P50] = "ttft_p50_s",
    [TTFT_P95] = "ttft_p95_s",
    [INTER_P50] = "inter_token_p50_s",
    [INTER_P95] = "inter_token_p95_s",
    [RUNNING] = "running",
    [WAITING] = "waiting",
    [BATCH] = "tokens_per_step",
    [CACHE] = "cache_hit_rate",
    [DRAFTS] = "drafts_accepted",
    [KV] = "kv_used",
};

typedef struct {
    int64_t at_us;
    float figure[FIGURES];
} point;

struct sh_timeline {
    reading readings[READINGS]; /* oldest first */
    int reading_count;
    bool known; /* `now` is that of the last reading */
    point now;
    point points[SH_TIMELINE_POINTS]; /* a ring */
    int count, next;
};

sh_timeline *sh_timeline_create(void)
{
    return sh_alloc(sizeof(sh_timeline));
}

void sh_timeline_free(sh_timeline *t)
{
    free(t);
}

/* ---- readings ---- */

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

static double number_at(const cJSON *stats, const char *const path[3])
{
    const cJSON *object = stats;
    int i = 0;
    for (; i < 2 && path[i + 1] != NULL; i++)
        object = cJSON_GetObjectItemCaseSensitive(object, path[i]);
    return number(object, path[i]);
}

static void histogram_read(const cJSON *stats, const char *name, histogram *out)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(stats, "histograms");
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(all, name), *pair;
    out->count = 0;
    out->total = number(json, "count");
    cJSON_ArrayForEach(pair, cJSON_GetObjectItemCaseSensitive(json, "buckets"))
    {
        const cJSON *bound = cJSON_GetArrayItem(pair, 0), *upto = cJSON_GetArrayItem(pair, 1);
        if (!cJSON_IsNumber(bound) || !cJSON_IsNumber(upto) || out->count == BUCKETS_MAX) return;
        out->bound[out->count] = bound->valuedouble;
        out->upto[out->count++] = upto->valuedouble;
    }
}

static void reading_take(reading *r, int64_t now_us, const cJSON *stats)
{
    r->at_us = now_us;
    r->uptime_s = number(stats, "uptime_s");
    for (int i = 0; i < COUNTERS; i++) r->counter[i] = number_at(stats, counter_paths[i]);
    histogram_read(stats, "ttft_seconds", &r->ttft);
    histogram_read(stats, "inter_token_seconds", &r->inter_token);
}

/* The newest reading that is at least `span` older than the last one; else the oldest. */
static const reading *reading_before(const sh_timeline *t, int64_t span_us)
{
    const reading *last = &t->readings[t->reading_count - 1];
    for (int i = t->reading_count - 2; i > 0; i--)
        if (last->at_us - t->readings[i].at_us >= span_us) return &t->readings[i];
    return &t->readings[0];
}

/* ---- figures ---- */

static double grown(const reading *now, const reading *then, int counter)
{
    return now->counter[counter] - then->counter[counter];
}

static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* The value below which a fraction `p` of the events between two histograms lies; linear within a
 * bucket. */
static double percentile(const histogram *now, const histogram *then, double p)
{
    double wanted = p * (now->total - then->total), low = 0, below = 0;
    if (!(wanted > 0) || now->count != then->count) return NAN;
    for (int i = 0; i < now->count; i++) {
        double upto = now->upto[i] - then->upto[i];
        if (upto >= wanted) {
            double within = upto > below ? (wanted - below) / (upto - below) : 1;
            return low + within * (now->bound[i] - low);
        }
        low = now->bound[i];
        below = upto;
    }
    return low;
}

static void point_make(const sh_timeline *t, const cJSON *stats, point *out)
{
    const reading *now = &t->readings[t->reading_count - 1];
    const reading *near = reading_before(t, RATE_US), *far = reading_before(t, SHARE_US);
    const cJSON *kv = cJSON_GetObjectItemCaseSensitive(stats, "kv");
    double took_s = now->uptime_s - near->uptime_s;
    double steps = grown(now, near, STEPS);
    float *f = out->figure;
    out->at_us = now->at_us;
    f[GENERATED] = (float)ratio(grown(now, near, ANSWERED), took_s);
    f[COMPUTED] = (float)ratio(grown(now, near, PROMPTED) - grown(now, near, CACHED), took_s);
    f[TTFT_P50] = (float)percentile(&now->ttft, &far->ttft, 0.50);
    f[TTFT_P95] = (float)percentile(&now->ttft, &far->ttft, 0.95);
    f[INTER_P50] = (float)percentile(&now->inter_token, &far->inter_token, 0.50);
    f[INTER_P95] = (float)percentile(&now->inter_token, &far->inter_token, 0.95);
    f[RUNNING] = (float)number(stats, "running");
    f[WAITING] = (float)number(stats, "waiting");
    f[BATCH] = steps > 0 ? (float)(grown(now, near, BATCHED) / steps) : 0;
    f[CACHE] = (float)ratio(grown(now, far, CACHED), grown(now, far, PROMPTED));
    f[DRAFTS] = (float)ratio(grown(now, far, KEPT), grown(now, far, TRIED));
    f[KV] = 1 - (float)ratio(number(kv, "free"), number(kv, "blocks"));
}

/* One point for each step of the clock, so that all models have theirs at the same times. */
static void point_keep(sh_timeline *t)
{
    const int64_t step_us = (int64_t)SH_TIMELINE_STEP_S * SECOND_US;
    const point *last = &t->points[(t->next + SH_TIMELINE_POINTS - 1) % SH_TIMELINE_POINTS];
    if (t->count > 0 && last->at_us / step_us == t->now.at_us / step_us) return;
    t->points[t->next] = t->now;
    t->next = (t->next + 1) % SH_TIMELINE_POINTS;
    if (t->count < SH_TIMELINE_POINTS) t->count++;
}

static void forget(sh_timeline *t)
{
    t->reading_count = 0;
    t->known = false;
}

void sh_timeline_take(sh_timeline *t, int64_t now_us, const cJSON *stats)
{
    const reading *last = t->reading_count > 0 ? &t->readings[t->reading_count - 1] : NULL;
    double uptime_s = number(stats, "uptime_s");
    if (isnan(uptime_s)) {
        forget(t);
        return;
    }
    if (last != NULL && uptime_s == last->uptime_s) { /* no report since */
        if (now_us - last->at_us >= SILENT_US) t->known = false;
        return;
    }
    bool anew = last != NULL && (uptime_s < last->uptime_s || now_us - last->at_us >= SHARE_US ||
                                 now_us < last->at_us);
    if (anew) forget(t);
    if (t->reading_count == READINGS) {
        memmove(t->readings, t->readings + 1, (READINGS - 1) * sizeof(reading));
        t->reading_count--;
    }
    reading_take(&t->readings[t->reading_count++], now_us, stats);
    t->known = t->reading_count > 1;
    if (!t->known) return;
    point_make(t, stats, &t->now);
    point_keep(t);
}

/* ---- JSON ---- */

static double seconds_of(const point *p)
{
    return (double)p->at_us / SECOND_US;
}

/* Five digits: a float has no more to say, and an hour of them is sent at once. */
static void figure_write(const char *key, float value, sh_json_writer *w)
{
    char text[32];
    if (!isfinite(value)) {
        sh_write_null(w, key);
        return;
    }
    snprintf(text, sizeof(text), "%.5g", (double)value);
    sh_write_raw(w, key, sh_str_of(text));
}

void sh_timeline_write_now(const sh_timeline *t, const char *key, sh_json_writer *w)
{
    if (t == NULL || !t->known) {
        sh_write_null(w, key);
        return;
    }
    sh_write_begin(w, key, '{');
    sh_write_fixed(w, "time", seconds_of(&t->now), 3);
    for (int i = 0; i < FIGURES; i++) figure_write(figure_names[i], t->now.figure[i], w);
    sh_write_end(w, '}');
}

/* A row for each point instead of an object: the names would be most of the text. */
void sh_timeline_write(const sh_timeline *t, sh_json_writer *w)
{
    sh_write_int(w, "interval_s", SH_TIMELINE_STEP_S);
    sh_write_begin(w, "fields", '[');
    sh_write_text(w, NULL, "time");
    for (int i = 0; i < FIGURES; i++) sh_write_text(w, NULL, figure_names[i]);
    sh_write_end(w, ']');
    sh_write_begin(w, "points", '[');
    for (int i = 0; t != NULL && i < t->count; i++) {
        int at = (t->next - t->count + i + SH_TIMELINE_POINTS) % SH_TIMELINE_POINTS;
        sh_write_begin(w, NULL, '[');
        sh_write_fixed(w, NULL, seconds_of(&t->points[at]), 3);
        for (int f = 0; f < FIGURES; f++) figure_write(NULL, t->points[at].figure[f], w);
        sh_write_end(w, ']');
    }
    sh_write_end(w, ']');
}
