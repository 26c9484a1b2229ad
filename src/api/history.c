/* Statistics over the ring are computed when they are requested, so there is nothing to keep up to
 * date. Latencies are those of successful requests only; token rates and times to the first token
 * include requests that failed later. */
#include "api/history.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATUSES_MAX = 16 };

struct sh_history {
    sh_record *records;
    int cap, count, next;
    int64_t total;
    int64_t by_outcome[SH_OUTCOME_COUNT];
    int64_t generated_tokens;
    int64_t prompt_tokens;
    double wall_s;
    struct {
        int http_status;
        int64_t count;
    } refused[STATUSES_MAX];
};

const char *sh_outcome_name(sh_outcome outcome)
{
    static const char *const names[] = {"ok", "error", "timeout", "cancelled", "refused"};
    return names[outcome];
}

/* The same words in the records of all dialects. */
static const char *const finish_names[] = {
    [SH_ANSWER_RUNNING] = NULL,
    [SH_ANSWER_STOP] = "stop",
    [SH_ANSWER_STOP_STRING] = "stop",
    [SH_ANSWER_LENGTH] = "length",
    [SH_ANSWER_TOOL_CALLS] = "tool_calls",
};

double sh_record_rate(const sh_record *record)
{
    /* The first token belongs to the prefill. */
    return record->decode_s > 0 && record->generated_tokens > 1
               ? (record->generated_tokens - 1) / record->decode_s
               : 0;
}

void sh_record_write(const sh_record *r, const char *key, sh_json_writer *w)
{
    sh_write_begin(w, key, '{');
    sh_write_text(w, "request_id", r->id);
    sh_write_fixed(w, "timestamp", (double)r->time_us * 1e-6, 3);
    sh_write_text(w, "kind", r->kind);
    sh_write_text(w, "model_id", r->model);
    sh_write_int(w, "prompt_tokens", r->prompt_tokens);
    sh_write_int(w, "cached_tokens", r->cached_tokens);
    sh_write_int(w, "generated_tokens", r->generated_tokens);
    if (r->key[0] != '\0') sh_write_text(w, "key", r->key);
    sh_write_int(w, "max_tokens_requested", r->max_tokens);
    sh_write_num(w, "wall_time_s", r->wall_s);
    sh_write_num(w, "queue_s", r->queue_s);
    sh_write_num(w, "time_to_first_token_s", r->first_token_s);
    sh_write_num(w, "prefill_s", r->prefill_s);
    sh_write_num(w, "decode_s", r->decode_s);
    sh_write_num(w, "tokens_per_second", sh_record_rate(r));
    sh_write_bool(w, "kv_cache_hit", r->cached_tokens > 0);
    sh_write_text(w, "status", sh_outcome_name(r->outcome));
    sh_write_int(w, "http_status", r->http_status);
    sh_write_text(w, "error_message", r->error[0] == '\0' ? NULL : r->error);
    sh_write_text(w, "finish_reason", finish_names[r->finish]);
    sh_write_bool(w, "is_stream", r->stream);
    sh_write_end(w, '}');
}

sh_history *sh_history_create(int cap)
{
    sh_history *history = sh_alloc(sizeof(*history));
    history->records = sh_alloc_array((size_t)cap, sizeof(sh_record));
    history->cap = cap;
    return history;
}

void sh_history_free(sh_history *history)
{
    if (history == NULL) return;
    free(history->records);
    free(history);
}

void sh_history_count_refused(sh_history *history, int http_status)
{
    int i = 0; /* there are fewer statuses than entries; if not, the last entry takes the rest */
    while (i < STATUSES_MAX - 1 && history->refused[i].http_status != 0 &&
           history->refused[i].http_status != http_status)
        i++;
    history->refused[i].http_status = http_status;
    history->refused[i].count++;
    history->total++;
    history->by_outcome[SH_OUTCOME_REFUSED]++;
}

void sh_history_add(sh_history *history, const sh_record *record)
{
    history->records[history->next] = *record;
    history->next = (history->next + 1) % history->cap;
    if (history->count < history->cap) history->count++;
    if (record->outcome == SH_OUTCOME_REFUSED) {
        sh_history_count_refused(history, record->http_status);
        return;
    }
    history->total++;
    history->by_outcome[record->outcome]++;
    history->generated_tokens += record->generated_tokens;
    history->prompt_tokens += record->prompt_tokens;
    history->wall_s += record->wall_s;
}

int64_t sh_history_total(const sh_history *history)
{
    return history->total;
}

/* The record `back` places before the newest. */
static const sh_record *record_at(const sh_history *history, int back)
{
    return &history->records[(history->next - 1 - back + 2 * history->cap) % history->cap];
}

const sh_record *sh_history_last(const sh_history *history)
{
    for (int i = 0; i < history->count; i++)
        if (record_at(history, i)->outcome == SH_OUTCOME_OK) return record_at(history, i);
    return NULL;
}

void sh_history_write_recent(const sh_history *history, int count, sh_json_writer *w)
{
    if (count > history->count) count = history->count;
    sh_write_bool(w, "ok", true);
    sh_write_int(w, "count", count);
    sh_write_begin(w, "requests", '[');
    for (int i = 0; i < count; i++) sh_record_write(record_at(history, i), NULL, w);
    sh_write_end(w, ']');
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Values to take the mean and percentiles of; the memory belongs to the caller. */
typedef struct {
    double *values;
    int count;
    double sum;
} series;

static void series_add(series *s, double value)
{
    s->values[s->count++] = value;
    s->sum += value;
}

static double series_mean(const series *s)
{
    return s->count == 0 ? 0 : s->sum / s->count;
}

/* The value at index p * (count - 1), rounded down, of the sorted list. */
static double series_percentile(const series *s, double p)
{
    return s->count == 0 ? 0 : s->values[(int)(p * (s->count - 1))];
}

static void series_write(series *s, const char *const names[3], sh_json_writer *w)
{
    if (s->count > 0) qsort(s->values, (size_t)s->count, sizeof(double), compare);
    sh_write_num(w, names[0], series_mean(s));
    sh_write_num(w, names[1], series_percentile(s, 0.50));
    sh_write_num(w, names[2], series_percentile(s, 0.95));
}

/* {"400": 3, "503": 1} */
static void refused_write(const sh_history *history, sh_json_writer *w)
{
    sh_write_begin(w, "refused_by_status", '{');
    for (int i = 0; i < STATUSES_MAX && history->refused[i].count > 0; i++) {
        char status[16];
        snprintf(status, sizeof(status), "%d", history->refused[i].http_status);
        sh_write_int(w, status, history->refused[i].count);
    }
    sh_write_end(w, '}');
}

static void totals_write(const sh_history *history, sh_json_writer *w)
{
    const int64_t *by = history->by_outcome;
    int64_t bad = by[SH_OUTCOME_ERROR] + by[SH_OUTCOME_TIMEOUT]; /* a cancel is no error */
    int64_t accepted = history->total - by[SH_OUTCOME_REFUSED];
    sh_write_int(w, "total_requests", history->total);
    sh_write_int(w, "ok", by[SH_OUTCOME_OK]);
    sh_write_int(w, "errors", by[SH_OUTCOME_ERROR]);
    sh_write_int(w, "timeouts", by[SH_OUTCOME_TIMEOUT]);
    sh_write_int(w, "cancelled", by[SH_OUTCOME_CANCELLED]);
    sh_write_int(w, "refused", by[SH_OUTCOME_REFUSED]);
    refused_write(history, w);
    sh_write_int(w, "pressure_aborts", 0);
    sh_write_num(w, "error_rate", accepted == 0 ? 0 : (double)bad / (double)accepted);
    sh_write_int(w, "total_generated_tokens", history->generated_tokens);
    sh_write_num(w, "total_wall_time_s", history->wall_s);
    sh_write_int(w, "buffer_size", history->count);
}

void sh_history_write_stats(const sh_history *history, sh_json_writer *w)
{
    static const char *const rate_names[] = {"avg_tps", "p50_tps", "p95_tps"};
    static const char *const wall_names[] = {"avg_latency_s", "p50_latency_s", "p95_latency_s"};
    static const char *const first_names[] = {"avg_ttft_s", "p50_ttft_s", "p95_ttft_s"};
    size_t capacity = (size_t)history->count + 1;
    double *memory = sh_alloc_array(3 * capacity, sizeof(double));
    series rates = {.values = memory}, walls = {.values = memory + capacity},
           firsts = {.values = memory + 2 * capacity};
    int hits = 0, accepted = 0;
    for (int i = 0; i < history->count; i++) {
        const sh_record *record = record_at(history, i);
        if (record->outcome == SH_OUTCOME_REFUSED) continue;
        accepted++;
        if (sh_record_rate(record) > 0) series_add(&rates, sh_record_rate(record));
        if (record->outcome == SH_OUTCOME_OK) series_add(&walls, record->wall_s);
        if (record->first_token_s > 0) series_add(&firsts, record->first_token_s);
        if (record->cached_tokens > 0) hits++;
    }
    totals_write(history, w);
    series_write(&rates, rate_names, w);
    series_write(&walls, wall_names, w);
    series_write(&firsts, first_names, w);
    sh_write_num(w, "kv_cache_hit_rate", accepted == 0 ? 0 : (double)hits / accepted);
    free(memory);
}

/* The newest requests with a token rate, as points of a plot, oldest first. */
static void points_write(const sh_history *history, sh_json_writer *w)
{
    enum { POINTS = 40 };
    const sh_record *points[POINTS];
    int count = 0;
    for (int i = 0; i < history->count && count < POINTS; i++)
        if (sh_record_rate(record_at(history, i)) > 0) points[count++] = record_at(history, i);
    sh_write_begin(w, "history", '[');
    while (count > 0) {
        const sh_record *record = points[--count];
        sh_write_begin(w, NULL, '{');
        sh_write_int(w, "t", record->time_us / 1000000);
        sh_write_num(w, "tps", sh_record_rate(record));
        sh_write_num(w, "latency", record->wall_s);
        sh_write_int(w, "ctokens", record->generated_tokens);
        sh_write_text(w, "kind", record->kind);
        sh_write_end(w, '}');
    }
    sh_write_end(w, ']');
}

void sh_history_write_snapshot(const sh_history *history, int64_t now_us, sh_json_writer *w)
{
    enum { WINDOW_US = 60 * 1000000 };
    int recent = 0, rated = 0, answered = 0;
    double rate_sum = 0, rate_max = 0, wall_sum = 0;
    /* From the newest back, until one is older than the window. */
    for (int i = 0; i < history->count; i++) {
        const sh_record *record = record_at(history, i);
        if (now_us - record->time_us > WINDOW_US) break;
        double rate = sh_record_rate(record);
        if (record->outcome == SH_OUTCOME_REFUSED) continue;
        recent++;
        if (record->outcome == SH_OUTCOME_OK) {
            answered++;
            wall_sum += record->wall_s;
        }
        if (rate > 0) rated++;
        rate_sum += rate;
        if (rate > rate_max) rate_max = rate;
    }
    sh_write_int(w, "total_requests", history->total);
    sh_write_int(w, "total_tokens", history->generated_tokens);
    sh_write_int(w, "total_prompt_tokens", history->prompt_tokens);
    sh_write_int(w, "error_count",
                 history->by_outcome[SH_OUTCOME_ERROR] + history->by_outcome[SH_OUTCOME_TIMEOUT]);
    sh_write_int(w, "cancelled_count", history->by_outcome[SH_OUTCOME_CANCELLED]);
    sh_write_int(w, "refused_count", history->by_outcome[SH_OUTCOME_REFUSED]);
    sh_write_int(w, "recent_count", recent);
    sh_write_num(w, "avg_tps_60s", rated == 0 ? 0 : rate_sum / rated);
    sh_write_num(w, "peak_tps_60s", rate_max);
    sh_write_num(w, "avg_latency_60s", answered == 0 ? 0 : wall_sum / answered);
    points_write(history, w);
}
