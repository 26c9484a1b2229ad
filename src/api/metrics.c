/* Prometheus' text format, written by hand.
 *
 * The API's own counters are updated as requests end. The engine's numbers are not kept here: they
 * are copied from its latest stats by tables of (path in the stats, metric name). The engine is
 * another process, so only values that are numbers and names made of plain letters are written;
 * otherwise a faulty engine could break the whole page.
 *
 * Labels have few values (route, method, status, rank, kind), none of them from clients, so the
 * number of series is bounded. */
#include "api/metrics.h"

#include "api/process_usage.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/version.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MAX = 20, HTTP_ROWS_MAX = 512 };

/* Upper bounds of the buckets in seconds; 0 ends the list. */
static const double request_bounds[BUCKETS_MAX] = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120};
static const double gap_bounds[BUCKETS_MAX] = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.05,
                                               0.1,   0.2,    0.5,   1,    2};

typedef struct {
    const double *bounds;
    int64_t counts[BUCKETS_MAX + 1]; /* not cumulative; the last has no bound */
    double sum;
} histogram;

typedef struct {
    const char *method;
    const char *route;
    int status;
    int64_t count;
} http_row;

struct sh_metrics {
    http_row http[HTTP_ROWS_MAX];
    int http_count;
    histogram http_seconds;
    histogram first_token_seconds;
    histogram gap_seconds;
    histogram queue_seconds;
    histogram request_seconds;
    int64_t outcomes[SH_OUTCOME_COUNT];
    int64_t prompt_tokens;
    int64_t cached_tokens;
    int64_t generated_tokens;
};

sh_metrics *sh_metrics_create(void)
{
    sh_metrics *metrics = sh_alloc(sizeof(*metrics));
    metrics->http_seconds.bounds = request_bounds;
    metrics->first_token_seconds.bounds = request_bounds;
    metrics->queue_seconds.bounds = request_bounds;
    metrics->request_seconds.bounds = request_bounds;
    metrics->gap_seconds.bounds = gap_bounds;
    return metrics;
}

void sh_metrics_free(sh_metrics *metrics)
{
    free(metrics);
}

static void observe(histogram *h, double value)
{
    int i = 0;
    while (h->bounds[i] != 0 && value > h->bounds[i]) i++;
    h->counts[i]++;
    h->sum += value;
}

void sh_metrics_http(sh_metrics *metrics, const char *method, const char *route, int status,
                     double seconds)
{
    observe(&metrics->http_seconds, seconds);
    for (int i = 0; i < metrics->http_count; i++) {
        http_row *row = &metrics->http[i];
        if (row->route != route || row->status != status || row->method != method) continue;
        row->count++;
        return;
    }
    /* Routes, methods and statuses come from tables, so this limit is never reached. */
    if (metrics->http_count == HTTP_ROWS_MAX) return;
    metrics->http[metrics->http_count++] = (http_row){method, route, status, 1};
}

void sh_metrics_count_refused(sh_metrics *metrics)
{
    metrics->outcomes[SH_OUTCOME_REFUSED]++;
}

void sh_metrics_record(sh_metrics *metrics, const sh_record *record)
{
    metrics->outcomes[record->outcome]++;
    if (record->outcome == SH_OUTCOME_REFUSED) return;
    metrics->prompt_tokens += record->prompt_tokens;
    metrics->cached_tokens += record->cached_tokens;
    metrics->generated_tokens += record->generated_tokens;
    observe(&metrics->request_seconds, record->wall_s);
    if (record->first_token_s <= 0) return;
    observe(&metrics->first_token_seconds, record->first_token_s);
    observe(&metrics->queue_seconds, record->queue_s);
}

void sh_metrics_token_gap(sh_metrics *metrics, double seconds)
{
    observe(&metrics->gap_seconds, seconds);
}

static void head(sh_buf *out, const char *name, const char *type, const char *help)
{
    sh_buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(sh_buf *out, const char *name, const char *type, const char *help, double value)
{
    head(out, name, type, help);
    sh_buf_addf(out, "%s %.15g\n", name, value);
}

static void histogram_write(sh_buf *out, const char *name, const char *help, const histogram *h)
{
    int64_t sum = 0;
    head(out, name, "histogram", help);
    for (int i = 0; h->bounds[i] != 0; i++) {
        sum += h->counts[i];
        sh_buf_addf(out, "%s_bucket{le=\"%g\"} %lld\n", name, h->bounds[i], (long long)sum);
    }
    int last = 0;
    while (h->bounds[last] != 0) last++;
    sum += h->counts[last];
    sh_buf_addf(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.9g\n%s_count %lld\n", name,
                (long long)sum, name, h->sum, name, (long long)sum);
}

static void http_write(sh_buf *out, const sh_metrics *metrics)
{
    head(out, "shoal_http_requests_total", "counter",
         "HTTP requests by method, route and status. Many of 401: wrong keys, or "
         "somebody guesses; of 429: the queue is full, or keys reach their limits; of 5xx: see the "
         "log.");
    for (int i = 0; i < metrics->http_count; i++) {
        const http_row *row = &metrics->http[i];
        sh_buf_addf(out,
                    "shoal_http_requests_total{method=\"%s\",route=\"%s\",status=\"%d\"} %lld\n",
                    row->method, row->route, row->status, (long long)row->count);
    }
    histogram_write(out, "shoal_http_request_duration_seconds",
                    "Time from the first byte of a request to the end of its response, streams "
                    "included: long answers take long.",
                    &metrics->http_seconds);
}

static void generation_write(sh_buf *out, const sh_metrics *m)
{
    head(out, "shoal_requests_total", "counter",
         "Requests to the model by outcome. error and timeout should not rise; refused cost the "
         "model "
         "nothing: bad fields, no key, a full queue.");
    for (int i = 0; i < SH_OUTCOME_COUNT; i++)
        sh_buf_addf(out, "shoal_requests_total{outcome=\"%s\"} %lld\n",
                    sh_outcome_name((sh_outcome)i), (long long)m->outcomes[i]);
    single(out, "shoal_prompt_tokens_total", "counter",
           "Tokens in prompts, whether computed or found in the prefix cache.",
           (double)m->prompt_tokens);
    single(out, "shoal_prompt_tokens_cached_total", "counter",
           "Tokens in prompts that were found in the prefix cache and cost nothing.",
           (double)m->cached_tokens);
    single(out, "shoal_generated_tokens_total", "counter",
           "Tokens generated; their rate is the throughput.", (double)m->generated_tokens);
    histogram_write(out, "shoal_request_duration_seconds",
                    "Time from a request to the end of its answer.", &m->request_seconds);
    histogram_write(
        out, "shoal_time_to_first_token_seconds",
        "Time from a request to the first token of its answer: queue and prompt. Rising "
        "with shoal_queue_seconds: more requests than the ranks can serve.",
        &m->first_token_seconds);
    histogram_write(out, "shoal_inter_token_seconds",
                    "Time between two tokens of an answer, as a reader sees it. Rising: larger "
                    "batches, long prompts of others, or a slow rank or link.",
                    &m->gap_seconds);
    histogram_write(
        out, "shoal_queue_seconds",
        "Time that a request waited for a place in the batch. Above a second: more load "
        "than slots.",
        &m->queue_seconds);
}

static void process_write(sh_buf *out, const sh_metrics_now *now)
{
    sh_process_usage host = sh_process_usage_read();
    head(out, "shoal_build_info", "gauge",
         "Version of this program, as a label; the value is always 1.");
    sh_buf_addf(out, "shoal_build_info{version=\"%s\"} 1\n", sh_version());
    single(out, "process_start_time_seconds", "gauge",
           "Unix time at which the API process started. Changing often: "
           "it restarts, see the log.",
           (double)sh_clock_unix_us() * 1e-6 - now->uptime_s);
    single(out, "process_cpu_seconds_total", "counter",
           "CPU time of the API process in seconds. Near one second per "
           "second: the API is the bottleneck.",
           host.cpu_s);
    single(out, "process_resident_memory_bytes", "gauge",
           "Resident memory of the API process in bytes.", (double)host.resident_bytes);
    single(out, "process_open_fds", "gauge",
           "Open file descriptors of the API process; one per connection.", host.open_files);
}

struct metric_row {
    const char *path;
    const char *name;
    const char *type;
    const char *help;
};

/* Numbers in the engine's stats, by their path. A number that the engine does not send is left
 * out. */
static const struct metric_row engine_rows[] = {
    {"waiting", "shoal_engine_queue_requests", "gauge",
     "Requests waiting in the queue. Above 0 for long: more load than slots or KV blocks."},
    {"waiting_max", "shoal_engine_queue_limit_requests", "gauge",
     "Requests that may wait (--queue-max); more are refused with 429."},
    {"running", "shoal_engine_running_requests", "gauge", "Requests in the batch."},
    {"slots", "shoal_engine_batch_limit_requests", "gauge",
     "Requests that fit into the batch (--slots)."},
    {"world_size", "shoal_engine_ranks", "gauge", "Ranks in the group."},
    {"counts.missing_ranks", "shoal_engine_missing_ranks", "gauge",
     "Ranks that the group goes on without until they come back. Above 0: a host needs attention."},
    {"counts.group_changes", "shoal_engine_group_changes_total", "counter",
     "Times the group re-formed because ranks came in or left."},
    {"counts.group_failures", "shoal_engine_group_failures_total", "counter",
     "Times the group was lost, to a rank or a link. Each is in the log with its reason."},
    {"imbalance.ratio", "shoal_engine_imbalance_ratio", "gauge",
     "Compute time of the slowest rank over the mean of all; 1 is perfectly even. Above 1.2: "
     "consider --rebalance."},
    {"imbalance.rank", "shoal_engine_slowest_rank", "gauge", "Number of that rank."},
    {"step_s", "shoal_engine_step_seconds_total", "counter",
     "Time spent in steps. Its rate is how busy the ranks are: 1 is all of the time."},
    {"schedule_s", "shoal_engine_schedule_seconds_total", "counter",
     "Time spent making plans and sending events, between steps. It should stay a few percent of "
     "that in steps."},
    {"mask_s", "shoal_engine_mask_seconds_total", "counter",
     "Time spent on grammars and masks, which is part of making plans."},
    {"counts.requests", "shoal_engine_requests_total", "counter",
     "Requests received, including refused ones; a request with n answers counts n times."},
    {"counts.refused", "shoal_engine_refused_requests_total", "counter",
     "Requests refused by the engine, mostly because the queue was full."},
    {"counts.finished", "shoal_engine_finished_requests_total", "counter", "Requests finished."},
    {"counts.failed", "shoal_engine_failed_requests_total", "counter",
     "Requests that failed: with their group, at their time limit, or for a reason of their own."},
    {"counts.cancelled", "shoal_engine_cancelled_requests_total", "counter",
     "Requests cancelled, because their clients left or a stop string had ended the answer."},
    {"counts.paused", "shoal_engine_paused_requests_total", "counter",
     "Times a request was paused for lack of KV blocks, to be computed again later. Rising: raise "
     "--kv-tokens or lower --slots."},
    {"counts.prompt_tokens", "shoal_engine_prompt_tokens_total", "counter",
     "Tokens in prompts, whether computed or cached."},
    {"counts.cached_tokens", "shoal_engine_prompt_tokens_cached_total", "counter",
     "Tokens in prompts found in the prefix cache."},
    {"counts.answer_tokens", "shoal_engine_generated_tokens_total", "counter", "Tokens generated."},
    {"counts.drafts_tried", "shoal_engine_draft_tokens_total", "counter",
     "Draft tokens that steps verified."},
    {"counts.drafts_kept", "shoal_engine_draft_tokens_kept_total", "counter",
     "Draft tokens that were right; over those tried: how well drafting works."},
    {"counts.drafts_forced_tried", "shoal_engine_draft_tokens_forced_total", "counter",
     "Draft tokens tried that a grammar forces."},
    {"counts.drafts_forced_kept", "shoal_engine_draft_tokens_forced_kept_total", "counter",
     "Those of them that were right."},
    {"counts.drafts_repeated_tried", "shoal_engine_draft_tokens_repeated_total", "counter",
     "Draft tokens tried that repeat earlier text."},
    {"counts.drafts_repeated_kept", "shoal_engine_draft_tokens_repeated_kept_total", "counter",
     "Those of them that were right."},
    {"counts.drafts_model_tried", "shoal_engine_draft_tokens_model_total", "counter",
     "Draft tokens tried that the draft model drew."},
    {"counts.drafts_model_kept", "shoal_engine_draft_tokens_model_kept_total", "counter",
     "Those of them that were right."},
    {"counts.drafts_mtp_tried", "shoal_engine_draft_tokens_mtp_total", "counter",
     "Draft tokens tried that the model's multi-token-prediction layer drew."},
    {"counts.drafts_mtp_kept", "shoal_engine_draft_tokens_mtp_kept_total", "counter",
     "Those of them that were right."},
    {"draft_s", "shoal_engine_draft_seconds_total", "counter",
     "Time that the draft model, or that layer, took."},
    {"draft_model.weights", "shoal_engine_draft_model_weights_bytes", "gauge",
     "Memory for weights of the draft model, on rank 0."},
    {"draft_model.kv", "shoal_engine_draft_model_kv_bytes", "gauge",
     "Memory for KV blocks of the draft model, on rank 0."},
    {"counts.redone_tokens", "shoal_engine_redone_tokens_total", "counter",
     "Tokens computed again after wrong drafts, in models with fixed-size state."},
    {"counts.constrained", "shoal_engine_constrained_requests_total", "counter",
     "Requests whose answers are bound to a grammar."},
    {"counts.masks_used", "shoal_engine_masks_total", "counter", "Draws with a mask."},
    {"counts.masks_sent", "shoal_engine_masks_sent_total", "counter",
     "Masks that were new to the ranks and had to be sent."},
    {"counts.forced_tokens", "shoal_engine_forced_tokens_total", "counter",
     "Tokens generated that a grammar left no choice about: not drawn, or drafted and right."},
    {"counts.steps", "shoal_engine_steps_total", "counter", "Steps run, one forward pass each."},
    {"kv.blocks", "shoal_engine_kv_blocks", "gauge", "KV blocks in total, of 32 tokens each."},
    {"kv.free", "shoal_engine_kv_free_blocks", "gauge",
     "KV blocks not held by a request, including cached ones. Near 0: requests wait or are "
     "paused."},
    {"kv.cached", "shoal_engine_kv_cached_blocks", "gauge",
     "KV blocks kept for prompts that begin the same."},
};

/* The engine's histograms, by their name in the stats. Without a row one is not written. */
static const struct {
    const char *name, *help;
} histogram_helps[] = {
    {"step_seconds", "Duration of a step: all ranks, links included. It bounds the time between "
                     "two tokens."},
    {"batch_tokens", "Tokens of a step: one for each answer, and those of prompts."},
    {"batch_sequences", "Requests that took part in a step."},
    {"queue_seconds", "Time that a request waited for a place in the batch."},
    {"ttft_seconds", "Time from a request's arrival at the engine to its first token."},
    {"inter_token_seconds", "Time between two tokens of an answer, at the engine. Shorter than "
                            "shoal_inter_token_seconds: the API or the network is slow."},
};

/* Numbers of each rank. */
static const struct metric_row rank_rows[] = {
    {"cpu_s", "shoal_rank_cpu_seconds_total", "counter", "CPU time of a rank, all threads."},
    {"compute_s", "shoal_rank_forward_seconds_total", "counter",
     "Time spent in forward passes, without collectives. Uneven between ranks: the shares do not "
     "fit the machines."},
    {"own_s", "shoal_rank_own_seconds_total", "counter",
     "Time spent in steps outside forward passes and collectives."},
    {"steps", "shoal_rank_steps_total", "counter", "Steps run by a rank."},
    {"tokens", "shoal_rank_tokens_total", "counter", "Tokens computed by a rank."},
    {"memory.weights", "shoal_rank_weights_bytes", "gauge", "Memory for weights of a rank."},
    {"memory.kv", "shoal_rank_kv_bytes", "gauge", "Memory for KV blocks of a rank."},
    {"memory.scratch", "shoal_rank_scratch_bytes", "gauge", "Memory for buffers of a rank."},
    {"memory.resident", "shoal_rank_resident_memory_bytes", "gauge",
     "Resident memory of a rank's process."},
    {"memory.available", "shoal_rank_available_memory_bytes", "gauge",
     "Memory that is available on a rank's host. Near 0: it swaps, and everything becomes slow."},
    {"temperature_c", "shoal_rank_temperature_celsius", "gauge",
     "Temperature of a rank's processor, where the host tells it. High and with falling speed: "
     "cooling."},
    {"power_w", "shoal_rank_power_watts", "gauge",
     "Power that a rank's host draws, where the host tells it."},
};

/* Numbers of each kind of collective on each rank. */
static const struct metric_row collective_rows[] = {
    {"calls", "shoal_rank_collectives_total", "counter", "Collectives by kind."},
    {"bytes", "shoal_rank_collective_bytes_total", "counter", "Bytes moved by collectives."},
    {"seconds", "shoal_rank_collective_seconds_total", "counter",
     "Time spent in collectives; for plans, on ranks other than 0, it includes waiting for work. "
     "Sums that take as long as forward passes: the links are the bottleneck."},
};

/* NAN when it is not a number. */
static double number_at(const cJSON *obj, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(obj, key));
}

/* Follows a path such as "memory.kv"; NULL when it leads nowhere. */
static const cJSON *path_find(const cJSON *obj, const char *path)
{
    sh_str rest = sh_str_of(path), part;
    while (obj != NULL && sh_str_cut(&rest, '.', &part)) {
        char key[64];
        snprintf(key, sizeof(key), "%.*s", (int)part.len, part.ptr);
        obj = cJSON_GetObjectItemCaseSensitive(obj, key);
    }
    return obj;
}

/* The beginning of a sample of an engine: its name and its first label. Backslashes and quotes are
 * escaped; a name has no newlines. */
static void sample(sh_buf *out, const char *name, const char *ending, const sh_metrics_engine *e)
{
    sh_buf_addf(out, "%s%s{model=\"", name, ending);
    for (const char *c = e->model; *c != '\0'; c++) {
        if (*c == '\\' || *c == '"') sh_buf_add_char(out, '\\');
        sh_buf_add_char(out, *c);
    }
    sh_buf_add_char(out, '"');
}

static const cJSON *ranks_of(const sh_metrics_engine *e)
{
    const cJSON *ranks = cJSON_GetObjectItemCaseSensitive(e->stats, "ranks");
    return cJSON_IsArray(ranks) ? ranks->child : NULL;
}

/* The ranks of all engines, one after the other. */
#define EACH_ENGINE(e, now)                                                                        \
    for (const sh_metrics_engine *e = (now)->engines; e < (now)->engines + (now)->engine_count; e++)
#define EACH_RANK(rank, e) for (const cJSON *rank = ranks_of(e); rank != NULL; rank = rank->next)

/* Writes a histogram of an engine: {"count", "sum", "buckets": [[bound, cumulative count], ...]}.
 */
static void engine_histogram_write(sh_buf *out, const char *name, const sh_metrics_engine *e,
                                   const cJSON *item)
{
    double count = number_at(item, "count"), sum = number_at(item, "sum");
    const cJSON *buckets = cJSON_GetObjectItemCaseSensitive(item, "buckets");
    if (!isfinite(count) || !isfinite(sum) || !cJSON_IsArray(buckets)) return;
    for (const cJSON *bucket = buckets->child; bucket != NULL; bucket = bucket->next) {
        sample(out, name, "_bucket", e);
        sh_buf_addf(out, ",le=\"%g\"} %.0f\n", cJSON_GetNumberValue(cJSON_GetArrayItem(bucket, 0)),
                    cJSON_GetNumberValue(cJSON_GetArrayItem(bucket, 1)));
    }
    sample(out, name, "_bucket", e);
    sh_buf_addf(out, ",le=\"+Inf\"} %.0f\n", count);
    sample(out, name, "_sum", e);
    sh_buf_addf(out, "} %.9g\n", sum);
    sample(out, name, "_count", e);
    sh_buf_addf(out, "} %.0f\n", count);
}

static void histograms_write(sh_buf *out, const sh_metrics_now *now)
{
    for (size_t i = 0; i < SH_COUNT_OF(histogram_helps); i++) {
        char name[96];
        bool any = false;
        snprintf(name, sizeof(name), "shoal_engine_%s", histogram_helps[i].name);
        EACH_ENGINE(e, now)
        {
            const cJSON *all = cJSON_GetObjectItemCaseSensitive(e->stats, "histograms");
            const cJSON *item = cJSON_GetObjectItemCaseSensitive(all, histogram_helps[i].name);
            if (item == NULL) continue;
            if (!any) head(out, name, "histogram", histogram_helps[i].help);
            any = true;
            engine_histogram_write(out, name, e, item);
        }
    }
}

/* A group that is not formed has no rank that works. */
static void ranks_up_write(sh_buf *out, const sh_metrics_now *now)
{
    head(out, "shoal_rank_up", "gauge",
         "1 while a rank takes part in the group; 0 while it is missing, or the group is not "
         "formed. At 0 for longer than a restart takes: look at that host.");
    EACH_ENGINE(e, now)
    {
        const cJSON *missing = cJSON_GetObjectItemCaseSensitive(e->stats, "missing");
        EACH_RANK(rank, e)
        {
            sample(out, "shoal_rank_up", "", e);
            sh_buf_addf(out, ",rank=\"%.0f\"} %d\n", number_at(rank, "rank"), e->up);
        }
        for (const cJSON *rank = missing == NULL ? NULL : missing->child; rank != NULL;
             rank = rank->next) {
            sample(out, "shoal_rank_up", "", e);
            sh_buf_addf(out, ",rank=\"%.0f\"} 0\n", cJSON_GetNumberValue(rank));
        }
    }
}

static void ranks_write(sh_buf *out, const sh_metrics_now *now)
{
    for (size_t i = 0; i < SH_COUNT_OF(rank_rows); i++) {
        const struct metric_row *row = &rank_rows[i];
        head(out, row->name, row->type, row->help);
        EACH_ENGINE(e, now)
        EACH_RANK(rank, e)
        {
            const cJSON *value = path_find(rank, row->path);
            if (!cJSON_IsNumber(value)) continue;
            sample(out, row->name, "", e);
            sh_buf_addf(out, ",rank=\"%.0f\"} %.15g\n", number_at(rank, "rank"),
                        value->valuedouble);
        }
    }
}

static void collective_write(sh_buf *out, const struct metric_row *row, const sh_metrics_engine *e,
                             const cJSON *rank)
{
    const cJSON *kinds = cJSON_GetObjectItemCaseSensitive(rank, "collectives");
    for (const cJSON *kind = kinds == NULL ? NULL : kinds->child; kind != NULL; kind = kind->next) {
        if (strspn(kind->string, "abcdefghijklmnopqrstuvwxyz_") != strlen(kind->string)) continue;
        sample(out, row->name, "", e);
        sh_buf_addf(out, ",rank=\"%.0f\",kind=\"%s\"} %.15g\n", number_at(rank, "rank"),
                    kind->string, number_at(kind, row->path));
    }
}

static void collectives_write(sh_buf *out, const sh_metrics_now *now)
{
    for (size_t i = 0; i < SH_COUNT_OF(collective_rows); i++) {
        const struct metric_row *row = &collective_rows[i];
        head(out, row->name, row->type, row->help);
        EACH_ENGINE(e, now)
        EACH_RANK(rank, e) collective_write(out, row, e, rank);
    }
}

static void engine_numbers_write(sh_buf *out, const sh_metrics_now *now)
{
    for (size_t i = 0; i < SH_COUNT_OF(engine_rows); i++) {
        const struct metric_row *row = &engine_rows[i];
        bool any = false;
        EACH_ENGINE(e, now)
        {
            const cJSON *item = path_find(e->stats, row->path);
            if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) continue;
            if (!any) head(out, row->name, row->type, row->help);
            any = true;
            sample(out, row->name, "", e);
            sh_buf_addf(out, "} %.15g\n", item->valuedouble);
        }
    }
}

static void engines_write(sh_buf *out, const sh_metrics_now *now)
{
    bool ranks = false;
    head(out, "shoal_engine_up", "gauge",
         "1 when the engine of a model is connected and its group is formed; 0: the model cannot "
         "be used now.");
    EACH_ENGINE(e, now)
    {
        sample(out, "shoal_engine_up", "", e);
        sh_buf_addf(out, "} %d\n", e->up);
        ranks = ranks || ranks_of(e) != NULL;
    }
    engine_numbers_write(out, now);
    histograms_write(out, now);
    if (!ranks) return;
    ranks_up_write(out, now);
    ranks_write(out, now);
    collectives_write(out, now);
}

void sh_metrics_write(const sh_metrics *metrics, const sh_metrics_now *now, sh_buf *out)
{
    http_write(out, metrics);
    single(out, "shoal_http_connections", "gauge",
           "Open connections of clients; --connections limits them.", now->connections);
    generation_write(out, metrics);
    single(out, "shoal_requests_running", "gauge", "Requests at the engine, waiting ones included.",
           now->running);
    single(out, "shoal_requests_held", "gauge",
           "Requests that wait for a lost engine or rank to come back. Above 0: the group is "
           "re-forming.",
           now->replay.held);
    single(out, "shoal_requests_replayed_total", "counter",
           "Answers that went on after their engine or a rank was lost.",
           (double)now->replay.replays);
    single(out, "shoal_requests_given_up_total", "counter",
           "Requests that were ended because the ranks were lost whenever they ran. Above 0: a "
           "bug; see "
           "the log.",
           (double)now->replay.given_up);
    engines_write(out, now);
    process_write(out, now);
}
