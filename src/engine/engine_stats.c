/* The stats JSON is written directly into a buffer, without building a tree. Strings that come from
 * elsewhere (host names, error texts) are stripped of quotes and backslashes here. The API process
 * and, through it, the dashboard and /metrics read the keys by name. */
#include "engine/engine_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void sh_engine_stats_init(sh_engine_stats *s)
{
    *s = (sh_engine_stats){.opened_ns = sh_clock_ns()};
    s->step = (sh_hist){.name = "step_seconds", .least = 1e-4, .factor = 2};
    s->batch_tokens = (sh_hist){.name = "batch_tokens", .least = 1, .factor = 2};
    s->batch_sequences = (sh_hist){.name = "batch_sequences", .least = 1, .factor = 2};
    s->queue = (sh_hist){.name = "queue_seconds", .least = 1e-3, .factor = 2};
    s->ttft = (sh_hist){.name = "ttft_seconds", .least = 1e-3, .factor = 2};
    s->inter_token = (sh_hist){.name = "inter_token_seconds", .least = 1e-4, .factor = 2};
}

/* Cancelled requests say nothing about speed, and failed ones have no times. The first token
 * belongs to the prefill, so n tokens have n - 1 gaps. */
void sh_engine_stats_event(sh_engine_stats *s, const sh_event *event)
{
    if (event->kind != SH_EVENT_DONE || event->finish == SH_FINISH_CANCEL) return;
    sh_hist_add(&s->queue, event->queue_s);
    sh_hist_add(&s->ttft, event->queue_s + event->prefill_s);
    if (event->drawn_tokens > 1)
        sh_hist_add(&s->inter_token, event->decode_s / (event->drawn_tokens - 1));
}

void sh_engine_stats_step(sh_engine_stats *s, double took_s, int tokens, int sequences)
{
    s->steps++;
    s->step_s += took_s;
    sh_hist_add(&s->step, took_s);
    sh_hist_add(&s->batch_tokens, tokens);
    sh_hist_add(&s->batch_sequences, sequences);
}

static uint64_t sum(const uint64_t *by_source)
{
    uint64_t all = 0;
    for (int i = 0; i < SH_DRAFT_SOURCES; i++) all += by_source[i];
    return all;
}

static void counts_json(const sh_engine_stats *s, const sh_sched_stats *c, sh_buf *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"requests", c->requests},
        {"refused", c->refused},
        {"finished", c->finished},
        {"failed", c->failed},
        {"cancelled", c->cancelled},
        {"paused", c->paused},
        {"prompt_tokens", c->prompt_tokens},
        {"cached_tokens", c->cached_tokens},
        {"answer_tokens", c->answer_tokens},
        {"drafts_forced_tried", c->drafts_tried[SH_DRAFT_FORCED]},
        {"drafts_forced_kept", c->drafts_kept[SH_DRAFT_FORCED]},
        {"drafts_repeated_tried", c->drafts_tried[SH_DRAFT_REPEATED]},
        {"drafts_repeated_kept", c->drafts_kept[SH_DRAFT_REPEATED]},
        {"drafts_model_tried", c->drafts_tried[SH_DRAFT_MODEL]},
        {"drafts_model_kept", c->drafts_kept[SH_DRAFT_MODEL]},
        {"drafts_mtp_tried", c->drafts_tried[SH_DRAFT_HEAD]},
        {"drafts_mtp_kept", c->drafts_kept[SH_DRAFT_HEAD]},
        {"drafts_tried", sum(c->drafts_tried)},
        {"drafts_kept", sum(c->drafts_kept)},
        {"redone_tokens", c->redone_tokens},
        {"constrained", c->constrained},
        {"masks_used", c->masks_used},
        {"masks_sent", c->masks_sent},
        {"masks_made", c->masks_made},
        {"forced_tokens", c->forced_tokens},
        {"steps", s->steps},
        {"group_failures", s->failures},
        {"group_changes", s->changes},
        {"missing_ranks", (uint64_t)s->missing_count},
    };
    sh_buf_add_text(out, "\"counts\":{");
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++)
        sh_buf_addf(out, "%s\"%s\":%llu", i == 0 ? "" : ",", counts[i].name,
                    (unsigned long long)counts[i].value);
    sh_buf_add_text(out, "}");
}

void sh_engine_stats_reset(sh_engine_stats *s)
{
    free(s->reports);
    s->reports = NULL;
    s->report_count = 0;
    sh_buf_reset(&s->ranks);
}

/* JSON has no NaN. */
static void number_json(const char *name, double value, sh_buf *out)
{
    if (isnan(value))
        sh_buf_addf(out, ",\"%s\":null", name);
    else
        sh_buf_addf(out, ",\"%s\":%.3f", name, value);
}

static void report_json(const sh_rank_report *r, sh_buf *out)
{
    sh_buf_add_text(out, "\"host\":\"");
    for (const char *p = r->host; *p != '\0'; p++) /* the name comes from another machine */
        if (*p >= ' ' && *p < 127 && *p != '"' && *p != '\\') sh_buf_add_char(out, *p);
    sh_buf_addf(out,
                "\",\"pid\":%lld,\"memory\":{\"weights\":%lld,\"kv\":%lld,\"scratch\":%lld,"
                "\"resident\":%lld,"
                "\"peak\":%lld,\"available\":%lld,\"total\":%lld}",
                (long long)r->pid, (long long)r->weights, (long long)r->kv, (long long)r->scratch,
                (long long)r->resident, (long long)r->peak, (long long)r->available,
                (long long)r->total);
    sh_buf_addf(out,
                ",\"cpu_s\":%.3f,\"compute_s\":%.6f,\"own_s\":%.6f,\"steps\":%llu,"
                "\"tokens\":%llu,\"collectives\":{",
                r->cpu_s, r->compute_s, r->own_s, (unsigned long long)r->steps,
                (unsigned long long)r->tokens);
    double seconds = 0, bytes = 0;
    for (int i = 0; i < SH_TRAFFICS; i++) {
        if (i != SH_TRAFFIC_PLAN) seconds += r->traffic[i].seconds;
        bytes += (double)r->traffic[i].bytes;
        sh_buf_addf(out, "%s\"%s\":{\"calls\":%llu,\"bytes\":%llu,\"seconds\":%.6f}",
                    i == 0 ? "" : ",", sh_traffic_name((sh_traffic)i),
                    (unsigned long long)r->traffic[i].calls,
                    (unsigned long long)r->traffic[i].bytes, r->traffic[i].seconds);
    }
    /* Plan traffic is left out: on most ranks its time is that of waiting for work. */
    sh_buf_addf(out, "},\"collective_s\":%.6f,\"collective_bytes\":%.0f", seconds, bytes);
    number_json("temperature_c", r->temperature_c, out);
    number_json("power_w", r->power_w, out);
}

/* The devices at the two ends of a link, where it has any. Names are those of the system: other
 * characters than these could end the string. */
static void devices_json(const char *a, const char *b, sh_buf *out)
{
    static const char *const plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        "._-:,";
    if (a[0] == '\0' || b[0] == '\0') return;
    sh_buf_addf(out, ",\"a_device\":\"%.*s\",\"b_device\":\"%.*s\"", (int)strspn(a, plain), a,
                (int)strspn(b, plain), b);
}

/* How much slower than the mean the slowest rank computes; null while that is not known. */
static void imbalance_json(const sh_model_group *mg, sh_buf *out)
{
    int rank;
    double ratio;
    sh_buf_add_text(out, ",\"imbalance\":");
    if (sh_model_group_size(mg) > 1 &&
        sh_balance_slowest(sh_model_group_balance(mg), &rank, &ratio))
        sh_buf_addf(out, "{\"ratio\":%.3f,\"rank\":%d}", ratio, sh_model_group_number(mg, rank));
    else
        sh_buf_add_text(out, "null");
}

static void ranks_json(const sh_engine_stats *s, sh_model_group *mg, sh_buf *out)
{
    sh_buf_add_text(out, "\"ranks\":[");
    for (int i = 0; i < sh_model_group_size(mg); i++) {
        const sh_shard *h = sh_model_group_shard(mg, i);
        sh_buf_addf(out,
                    "%s{\"rank\":%d,\"stage\":%d,\"tensor_rank\":%d,\"layers\":[%d,%d],\"heads\":%"
                    "lld,\"ffn\":%lld,"
                    "\"vocab\":%lld",
                    i == 0 ? "" : ",", sh_model_group_number(mg, i), h->stage, h->tensor_rank,
                    h->layer_first, h->layer_first + h->layer_count, (long long)h->heads.count,
                    (long long)h->ffn.count, (long long)h->vocab.count);
        if (i < s->report_count) {
            sh_buf_add_char(out, ',');
            report_json(&s->reports[i], out);
        }
        sh_buf_add_char(out, '}');
    }
    sh_buf_add_text(out, "],\"links\":[");
    bool first = true;
    for (int a = 0; a < sh_model_group_size(mg); a++)
        for (int b = a + 1; b < sh_model_group_size(mg); b++, first = false) {
            const sh_link_report *link = sh_model_group_link(mg, a, b);
            sh_buf_addf(
                out,
                "%s{\"a\":%d,\"b\":%d,\"kind\":\"%s\",\"latency_us\":%.2f,\"bandwidth_gb_s\":%.3f",
                first ? "" : ",", sh_model_group_number(mg, a), sh_model_group_number(mg, b),
                link->kind, link->latency_s * 1e6, link->bytes_per_s / 1e9);
            devices_json(link->device, sh_model_group_link(mg, b, a)->device, out);
            sh_buf_add_char(out, '}');
        }
    sh_buf_add_text(out, "]");
    imbalance_json(mg, out);
}

/* Its name is that of its folder, or "mtp". */
static void draft_model_json(const sh_drafter *d, const char *dir, sh_buf *out)
{
    if (d == NULL) {
        sh_buf_add_text(out, "\"draft_model\":null,");
        return;
    }
    sh_model_memory m = sh_drafter_memory(d);
    const char *slash = strrchr(dir, '/');
    sh_buf_add_text(out, "\"draft_model\":{\"name\":\"");
    for (const char *p = slash == NULL ? dir : slash + 1; *p != '\0'; p++)
        if (*p >= ' ' && *p < 127 && *p != '"' && *p != '\\') sh_buf_add_char(out, *p);
    sh_buf_addf(out, "\",\"weights\":%zu,\"kv\":%zu,\"scratch\":%zu},", m.weights, m.kv, m.scratch);
}

/* While the group re-forms, the ranks are reported as they were before. */
static void group_json(sh_engine_stats *s, sh_model_group *mg, sh_buf *out)
{
    if (s->ready) {
        sh_buf_clear(&s->ranks);
        ranks_json(s, mg, &s->ranks);
    }
    sh_buf_addf(out, "\"ready\":%s,\"lost\":\"", s->ready ? "true" : "false");
    for (const char *p = s->lost; !s->ready && *p != '\0'; p++)
        if (*p != '"' && *p != '\\') sh_buf_add_char(out, *p);
    sh_buf_add_text(out, "\",\"lost_ranks\":[");
    for (int i = 0, count = 0; !s->ready && i < SH_RANKS_MAX; i++)
        if ((s->lost_ranks >> i & 1) != 0) sh_buf_addf(out, "%s%d", count++ == 0 ? "" : ",", i);
    sh_buf_add_text(out, "],\"missing\":[");
    for (int i = 0; i < s->missing_count; i++)
        sh_buf_addf(out, "%s%d", i == 0 ? "" : ",", s->missing[i]);
    sh_buf_add_text(out, "],");
    sh_buf_add_str(out, sh_buf_str(&s->ranks));
}

void sh_engine_stats_json(sh_engine_stats *s, sh_model_group *mg, sh_sched *sched,
                          const sh_blocks *blocks, const sh_drafter *drafter,
                          const sh_engine_opts *opts, sh_buf *out)
{
    const sh_sched_stats *c = sh_sched_stats_of(sched);
    const char *backend = opts->group == NULL ? "local" : sh_group_opts_backend(opts->group);
    sh_buf_addf(out,
                "{\"uptime_s\":%.3f,\"backend\":\"%s\",\"world_size\":%d,\"stages\":%d,\"context\":"
                "%d,\"step_s\":%.6f,"
                "\"schedule_s\":%.6f,\"mask_s\":%.6f,\"draft_s\":%.6f,",
                (double)(sh_clock_ns() - s->opened_ns) * 1e-9, backend, sh_model_group_size(mg),
                s->stages, sh_model_group_context(mg), s->step_s, s->schedule_s, c->mask_s,
                c->draft_s);
    sh_buf_addf(out, "\"request_timeout_s\":%.3f,\"reported_s\":%.3f,",
                (double)opts->timeout_ms * 1e-3,
                s->reported_ns == 0 ? 0 : (double)(s->reported_ns - s->opened_ns) * 1e-9);
    sh_buf_addf(out, "\"waiting\":%d,\"waiting_max\":%d,\"running\":%d,\"slots\":%d,", c->waiting,
                opts->queue_max, c->running, opts->model_group.slots);
    counts_json(s, c, out);
    sh_buf_addf(out, ",\"kv\":{\"blocks\":%d,\"free\":%d,\"cached\":%d,\"block_tokens\":%d},",
                sh_blocks_total(blocks), sh_blocks_available(blocks), sh_blocks_cached(blocks),
                SH_KV_BLOCK);
    draft_model_json(drafter, opts->draft_model, out);
    group_json(s, mg, out);
    sh_buf_add_text(out, ",\"histograms\":{");
    const sh_hist *hists[] = {&s->step,  &s->batch_tokens, &s->batch_sequences,
                              &s->queue, &s->ttft,         &s->inter_token};
    for (size_t i = 0; i < SH_COUNT_OF(hists); i++) {
        if (i > 0) sh_buf_add_char(out, ',');
        sh_hist_json(hists[i], out);
    }
    sh_buf_add_text(out, "}}");
}
