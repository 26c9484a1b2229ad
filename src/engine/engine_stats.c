#include "engine/engine_stats.h"

#include "base/system.h"

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

void sh_engine_stats_event(sh_engine_stats *s, const sh_event *event)
{
    if (event->kind != SH_EVENT_DONE || event->finish == SH_FINISH_CANCEL) return;
    sh_hist_add(&s->queue, event->queue_s);
    sh_hist_add(&s->ttft, event->queue_s + event->prefill_s);
    if (event->completion_tokens > 1)
        sh_hist_add(&s->inter_token, event->decode_s / (event->completion_tokens - 1));
}

void sh_engine_stats_step(sh_engine_stats *s, double took_s, int tokens, int sequences)
{
    s->steps++;
    s->step_s += took_s;
    sh_hist_add(&s->step, took_s);
    sh_hist_add(&s->batch_tokens, tokens);
    sh_hist_add(&s->batch_sequences, sequences);
}

static void counts_json(const sh_engine_stats *s, const sh_sched_stats *c, sh_buf *out)
{
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"requests", c->requests},           {"refused", c->refused},
        {"finished", c->finished},           {"failed", c->failed},
        {"cancelled", c->cancelled},         {"paused", c->paused},
        {"prompt_tokens", c->prompt_tokens}, {"cached_tokens", c->cached_tokens},
        {"answer_tokens", c->answer_tokens}, {"drafts_tried", c->drafts_tried},
        {"drafts_kept", c->drafts_kept},     {"steps", s->steps},
        {"group_failures", s->failures},
    };
    sh_buf_add_text(out, "\"counts\":{");
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++)
        sh_buf_addf(out, "%s\"%s\":%llu", i == 0 ? "" : ",", counts[i].name,
                    (unsigned long long)counts[i].value);
    sh_buf_add_text(out, "}");
}

static void rank_json(sh_crew *crew, sh_buf *out)
{
    sh_model_memory m = sh_model_memory_used(sh_crew_model(crew));
    sh_crew_times t = sh_crew_times_of(crew);
    sh_buf_addf(
        out,
        "\"memory\":{\"weights\":%zu,\"kv\":%zu,\"scratch\":%zu,\"resident\":%lld,\"peak\":%lld,"
        "\"available\":%lld,\"total\":%lld},\"cpu_s\":%.3f,",
        m.weights, m.kv, m.scratch, (long long)sh_memory_used(), (long long)sh_memory_peak(),
        (long long)sh_memory_available(), (long long)sh_memory_total(), sh_cpu_seconds());
    sh_buf_addf(out, "\"compute_s\":%.6f,\"reduce_s\":%.6f,\"reduce_bytes\":%llu,\"tokens\":%llu",
                t.compute_s, t.reduce_s, (unsigned long long)t.reduce_bytes,
                (unsigned long long)t.tokens);
}

static void shares_json(sh_crew *crew, sh_buf *out)
{
    sh_buf_add_text(out, "\"ranks\":[");
    for (int i = 0; i < sh_crew_size(crew); i++) {
        const sh_shard *s = sh_crew_shard(crew, i);
        sh_buf_addf(out,
                    "%s{\"rank\":%d,\"stage\":%d,\"tensor_rank\":%d,\"layers\":[%d,%d],\"heads\":%"
                    "lld,\"ffn\":%lld,"
                    "\"vocab\":%lld}",
                    i == 0 ? "" : ",", i, s->stage, s->tensor_rank, s->layer_first,
                    s->layer_first + s->layer_count, (long long)s->heads.count,
                    (long long)s->ffn.count, (long long)s->vocab.count);
    }
    sh_buf_add_text(out, "]");
}

void sh_engine_stats_json(const sh_engine_stats *s, sh_crew *crew, sh_sched *sched,
                          const sh_blocks *blocks, const sh_engine_opts *opts, sh_buf *out)
{
    const sh_sched_stats *c = sh_sched_stats_of(sched);
    sh_buf_addf(
        out, "{\"uptime_s\":%.3f,\"world_size\":%d,\"stages\":%d,\"context\":%d,\"step_s\":%.6f,",
        (double)(sh_clock_ns() - s->opened_ns) * 1e-9, sh_crew_size(crew), s->stages,
        sh_crew_context(crew), s->step_s);
    sh_buf_addf(out, "\"waiting\":%d,\"waiting_max\":%d,\"running\":%d,\"slots\":%d,", c->waiting,
                opts->queue_max, c->running, opts->crew.slots);
    counts_json(s, c, out);
    sh_buf_addf(out, ",\"kv\":{\"blocks\":%d,\"free\":%d,\"cached\":%d,\"block_tokens\":%d},",
                sh_blocks_total(blocks), sh_blocks_room(blocks), sh_blocks_cached(blocks),
                SH_KV_BLOCK);
    rank_json(crew, out);
    sh_buf_add_char(out, ',');
    shares_json(crew, out);
    sh_buf_add_text(out, ",\"histograms\":{");
    const sh_hist *hists[] = {&s->step,  &s->batch_tokens, &s->batch_sequences,
                              &s->queue, &s->ttft,         &s->inter_token};
    for (size_t i = 0; i < SH_COUNT_OF(hists); i++) {
        if (i > 0) sh_buf_add_char(out, ',');
        sh_hist_json(hists[i], out);
    }
    sh_buf_add_text(out, "}}");
}
