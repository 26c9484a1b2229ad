/* One thread owns scheduler, blocks and model. Others reach it through a bounded queue of commands;
 * while there is nothing to run it sleeps in that queue, and while there is it looks in between two
 * steps. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/system.h"
#include "engine/rank.h"
#include "engine/stats.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS_MAX = 4096, ADJUSTS_MAX = 1 << 14, NOT_RUNNABLE_MS = 2 };

typedef enum { SUBMIT, CANCEL, FORGET, ASK_STATS, STOP } command_kind;

typedef struct {
    command_kind kind;
    uint64_t owner;
    uint64_t id;             /* CANCEL; for STOP the grace in milliseconds */
    sh_wire_request request; /* SUBMIT, owned */
} command;

struct sh_engine {
    sh_engine_opts opts;
    sh_engine_info info;
    char *model_dir;
    sh_device *dev;
    sh_config config;
    sh_model *model;
    sh_blocks *blocks;
    sh_sched *sched;
    sh_rank *rank;
    sh_step_plan *plan;
    sh_pick *picks;
    sh_candidate *row; /* scratch for whole rows */
    sh_queue *commands;
    sh_emit_fn sink;
    void *sink_ctx;
    pthread_t thread;
    bool started;
    bool stopping;
    sh_deadline stop_at;
    int64_t opened_ns;
    uint64_t steps;
    double step_s, forward_s; /* time in steps, and in the forward passes of them */
    sh_hist hist_step, hist_batch, hist_sequences, hist_queue, hist_ttft, hist_inter;
};

static sh_kv_format kv_format_of(const sh_engine_opts *opts)
{
    if (!opts->kv_auto) return opts->kv_format;
    return opts->cpu.activations == SH_ACTIVATIONS_F32 ? SH_KV_F32 : SH_KV_F16;
}

/* KV blocks: as many as asked for, else as many as all slots can fill, as far as memory goes. */
static sh_status blocks_count(const sh_engine *e, int64_t *out, sh_err *err)
{
    int64_t seq = (e->info.context + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    int64_t bytes = (int64_t)sh_model_kv_block_bytes(e->model);
    int64_t fit = bytes == 0 ? INT32_MAX : (sh_memory_available() - e->opts.memory_reserve) / bytes;
    int64_t want = e->opts.kv_tokens > 0 ? (e->opts.kv_tokens + SH_KV_BLOCK - 1) / SH_KV_BLOCK
                                         : seq * e->opts.slots;
    int64_t count = want < fit ? want : fit;
    if (e->opts.kv_tokens > 0 && want > fit)
        return sh_err_set(err, SH_ERR_MEMORY,
                          "KV for %lld tokens needs %.1f MiB; %.1f MiB are free",
                          (long long)e->opts.kv_tokens, (double)(want * bytes) / (1 << 20),
                          (double)(fit < 0 ? 0 : fit * bytes) / (1 << 20));
    if (count < 2)
        return sh_err_set(err, SH_ERR_MEMORY,
                          "no memory for the KV cache: one token takes %.1f KiB",
                          (double)bytes / SH_KV_BLOCK / 1024);
    *out = count;
    return SH_OK;
}

static sh_status model_open(sh_engine *e, sh_err *err)
{
    sh_status status = sh_config_load(e->model_dir, &e->config, err);
    if (status == SH_OK) status = sh_device_open_cpu(&e->opts.cpu, &e->dev, err);
    if (status != SH_OK) return status;
    e->info.vocab = e->config.vocab;
    e->info.context = e->opts.context > 0 ? e->opts.context : e->config.context;
    sh_shard shard = sh_shard_whole(&e->config);
    sh_model_opts opts = {
        .tokens_max = e->opts.chunk,
        .rows_max = e->opts.slots * (1 + SH_DRAFTS_MAX),
        .kv_format = kv_format_of(&e->opts),
        .load = {.progress = e->opts.progress, .progress_ctx = e->opts.progress_ctx}};
    return sh_model_load(e->model_dir, &e->config, &shard, e->dev, &opts, &e->model, err);
}

static sh_status identity_root(const sh_engine *e, sh_key128 *secret, sh_key128 *root, sh_err *err)
{
    struct {
        uint64_t config;
        int64_t format;
    } text = {e->config.hash, kv_format_of(&e->opts)};
    sh_status status = sh_random_bytes(secret, sizeof(*secret), err);
    if (status == SH_OK) *root = sh_hash128(*secret, &text, sizeof(text));
    return status;
}

static void on_event(void *ctx, uint64_t owner, const sh_event *event);

static sh_status steps_open(sh_engine *e, int64_t block_count, sh_err *err)
{
    sh_key128 secret, root;
    sh_status status = identity_root(e, &secret, &root, err);
    if (status == SH_OK) status = sh_model_reserve_kv(e->model, (int)block_count, err);
    if (status != SH_OK) return status;
    int64_t kv_tokens = block_count * SH_KV_BLOCK;
    if (kv_tokens < e->info.context) e->info.context = (int)kv_tokens;
    sh_step_room room = {.slots = e->opts.slots,
                         .tokens = e->opts.chunk,
                         .draws = e->opts.slots * (1 + SH_DRAFTS_MAX),
                         .adjusts = ADJUSTS_MAX,
                         .blocks = (int)block_count,
                         .seq_blocks = (e->info.context + SH_DRAFTS_MAX + SH_KV_BLOCK) /
                                       SH_KV_BLOCK};
    sh_sched_opts sched = {.room = room,
                           .context = e->info.context,
                           .queue_max = e->opts.queue_max,
                           .timeout_ms = e->opts.timeout_ms,
                           .stall_s = e->opts.stall_s,
                           .drafts = e->opts.drafts,
                           .rope_original = e->config.rope[0].kind == SH_ROPE_LONGROPE
                                                ? e->config.rope[0].original_context
                                                : 0,
                           .eos = e->config.eos,
                           .eos_count = e->config.eos_count};
    e->blocks = sh_blocks_create((int)block_count, secret, root);
    e->sched = sh_sched_create(&sched, e->blocks, on_event, e);
    e->rank = sh_rank_create(e->model, NULL, &room);
    e->plan = sh_step_create(&room);
    e->picks = sh_alloc_array((size_t)room.draws, sizeof(*e->picks));
    e->row = sh_alloc_array((size_t)e->config.vocab, sizeof(*e->row));
    return SH_OK;
}

static void hists_init(sh_engine *e)
{
    e->hist_step = (sh_hist){.name = "step_seconds", .least = 1e-4, .factor = 2};
    e->hist_batch = (sh_hist){.name = "batch_tokens", .least = 1, .factor = 2};
    e->hist_sequences = (sh_hist){.name = "batch_sequences", .least = 1, .factor = 2};
    e->hist_queue = (sh_hist){.name = "queue_seconds", .least = 1e-3, .factor = 2};
    e->hist_ttft = (sh_hist){.name = "ttft_seconds", .least = 1e-3, .factor = 2};
    e->hist_inter = (sh_hist){.name = "inter_token_seconds", .least = 1e-4, .factor = 2};
}

sh_status sh_engine_open(const sh_engine_opts *opts, sh_engine **out, sh_err *err)
{
    SH_ASSERT(opts->slots > 0 && opts->chunk > opts->slots * (1 + SH_DRAFTS_MAX));
    sh_engine *e = sh_alloc(sizeof(*e));
    int64_t block_count = 0;
    e->opts = *opts;
    e->model_dir = sh_strdup(opts->model_dir);
    e->info = (sh_engine_info){.model_dir = e->model_dir, .world_size = 1, .ready = true};
    e->opened_ns = sh_clock_ns();
    e->commands = sh_queue_create(COMMANDS_MAX, sizeof(command));
    hists_init(e);
    sh_status status = model_open(e, err);
    if (status == SH_OK) status = blocks_count(e, &block_count, err);
    if (status == SH_OK) status = steps_open(e, block_count, err);
    if (status != SH_OK) {
        sh_engine_close(e);
        return status;
    }
    *out = e;
    return SH_OK;
}

void sh_engine_close(sh_engine *e)
{
    if (e == NULL) return;
    if (e->started) sh_engine_stop(e, 0);
    for (command c; sh_queue_pop(e->commands, &c, 0) == SH_OK;) sh_wire_request_reset(&c.request);
    sh_queue_free(e->commands);
    sh_sched_free(e->sched);
    sh_blocks_free(e->blocks);
    sh_rank_free(e->rank);
    sh_step_free(e->plan);
    sh_model_free(e->model);
    sh_config_reset(&e->config);
    if (e->dev != NULL) e->dev->ops->close(e->dev);
    free(e->picks);
    free(e->row);
    free(e->model_dir);
    free(e);
}

const sh_engine_info *sh_engine_info_of(const sh_engine *e)
{
    return &e->info;
}

static void on_event(void *ctx, uint64_t owner, const sh_event *event)
{
    sh_engine *e = ctx;
    if (event->kind == SH_EVENT_DONE && event->finish != SH_FINISH_CANCEL) {
        sh_hist_add(&e->hist_queue, event->queue_s);
        sh_hist_add(&e->hist_ttft, event->queue_s + event->prefill_s);
        if (event->completion_tokens > 1)
            sh_hist_add(&e->hist_inter, event->decode_s / (event->completion_tokens - 1));
    }
    e->sink(e->sink_ctx, owner, event);
}

/* Rank 0 applies its own plan first: the state behind it is what every rank must come to. */
static sh_status step_run(sh_engine *e, sh_err *err)
{
    sh_status status = sh_rank_apply(e->rank, e->plan, &e->plan->fingerprint, err);
    if (status != SH_OK) return status;
    int64_t start = sh_clock_ns();
    status = sh_rank_run(e->rank, e->plan, err);
    e->forward_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK) return status;
    const sh_scan *scans = sh_rank_scans(e->rank);
    for (int i = 0; i < e->plan->draw_count; i++) {
        const sh_draw *draw = &e->plan->draws[i].draw;
        if (sh_pick_join(draw, &scans[i], 1, &e->picks[i]) == SH_OK) continue;
        int32_t first, len;
        const float *row = sh_rank_row(e->rank, i, &first, &len);
        sh_pick_whole(draw, row, len, e->row, &e->picks[i]);
    }
    return SH_OK;
}

static void step(sh_engine *e)
{
    sh_err err;
    int64_t start = sh_clock_ns();
    e->plan->step = ++e->steps;
    if (step_run(e, &err) != SH_OK) {
        SH_LOGE("step %llu: %s", (unsigned long long)e->steps, err.text);
        sh_sched_fail_all(e->sched, &err);
        return;
    }
    double took = (double)(sh_clock_ns() - start) * 1e-9;
    e->step_s += took;
    sh_hist_add(&e->hist_step, took);
    sh_hist_add(&e->hist_batch, e->plan->token_count);
    sh_hist_add(&e->hist_sequences, e->plan->seq_count);
    sh_sched_commit(e->sched, e->plan, e->picks, took);
}

static void counts_json(sh_engine *e, sh_buf *out)
{
    const sh_sched_stats *s = sh_sched_stats_of(e->sched);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"requests", s->requests},           {"refused", s->refused},
        {"finished", s->finished},           {"failed", s->failed},
        {"cancelled", s->cancelled},         {"paused", s->paused},
        {"prompt_tokens", s->prompt_tokens}, {"cached_tokens", s->cached_tokens},
        {"answer_tokens", s->answer_tokens}, {"drafts_tried", s->drafts_tried},
        {"drafts_kept", s->drafts_kept},     {"steps", e->steps},
    };
    sh_buf_add_text(out, "\"counts\":{");
    for (size_t i = 0; i < SH_COUNT_OF(counts); i++)
        sh_buf_addf(out, "%s\"%s\":%llu", i == 0 ? "" : ",", counts[i].name,
                    (unsigned long long)counts[i].value);
    sh_buf_addf(out, "},\"waiting\":%d,\"waiting_max\":%d,\"running\":%d,\"slots\":%d", s->waiting,
                e->opts.queue_max, s->running, e->opts.slots);
}

static void stats_json(sh_engine *e, sh_buf *out)
{
    sh_model_memory m = sh_model_memory_used(e->model);
    sh_buf_addf(
        out,
        "{\"uptime_s\":%.3f,\"world_size\":%d,\"context\":%d,\"step_s\":%.6f,\"forward_s\":%.6f,",
        (double)(sh_clock_ns() - e->opened_ns) * 1e-9, e->info.world_size, e->info.context,
        e->step_s, e->forward_s);
    counts_json(e, out);
    sh_buf_addf(out, ",\"kv\":{\"blocks\":%d,\"free\":%d,\"cached\":%d,\"block_tokens\":%d},",
                sh_blocks_total(e->blocks), sh_blocks_room(e->blocks), sh_blocks_cached(e->blocks),
                SH_KV_BLOCK);
    sh_buf_addf(
        out,
        "\"memory\":{\"weights\":%zu,\"kv\":%zu,\"scratch\":%zu,\"resident\":%lld,\"peak\":%lld,"
        "\"available\":%lld,\"total\":%lld},\"cpu_s\":%.3f,\"histograms\":{",
        m.weights, m.kv, m.scratch, (long long)sh_memory_used(), (long long)sh_memory_peak(),
        (long long)sh_memory_available(), (long long)sh_memory_total(), sh_cpu_seconds());
    const sh_hist *hists[] = {&e->hist_step,  &e->hist_batch, &e->hist_sequences,
                              &e->hist_queue, &e->hist_ttft,  &e->hist_inter};
    for (size_t i = 0; i < SH_COUNT_OF(hists); i++) {
        if (i > 0) sh_buf_add_char(out, ',');
        sh_hist_json(hists[i], out);
    }
    sh_buf_add_text(out, "}}");
}

static void stats_tell(sh_engine *e, uint64_t owner)
{
    sh_buf json = {0};
    stats_json(e, &json);
    sh_event event = {.kind = SH_EVENT_STATS, .stats = sh_buf_str(&json)};
    e->sink(e->sink_ctx, owner, &event);
    sh_buf_reset(&json);
}

static void submit_run(sh_engine *e, command *c)
{
    if (!e->stopping) {
        sh_sched_submit(e->sched, c->owner, &c->request.request);
    } else {
        sh_event event = {.kind = SH_EVENT_ERROR, .id = c->request.request.id, .retry = true};
        sh_err_set(&event.error, SH_ERR_CANCELLED, "the engine is stopping");
        e->sink(e->sink_ctx, c->owner, &event);
    }
    sh_wire_request_reset(&c->request);
}

static void command_run(sh_engine *e, command *c)
{
    switch (c->kind) {
    case SUBMIT: submit_run(e, c); break;
    case CANCEL: sh_sched_cancel(e->sched, c->owner, c->id); break;
    case FORGET: sh_sched_forget(e->sched, c->owner); break;
    case ASK_STATS: stats_tell(e, c->owner); break;
    case STOP:
        e->stopping = true;
        e->stop_at = sh_deadline_in_ms((int64_t)c->id);
        break;
    }
}

/* Waits for a command while there is nothing to run; otherwise takes what is there. */
static void commands_run(sh_engine *e, bool runnable)
{
    sh_deadline wait = runnable                  ? 0
                       : sh_sched_busy(e->sched) ? sh_deadline_in_ms(NOT_RUNNABLE_MS)
                                                 : SH_DEADLINE_NEVER;
    command c;
    while (sh_queue_pop(e->commands, &c, wait) == SH_OK) {
        command_run(e, &c);
        wait = 0;
    }
}

static void *engine_main(void *arg)
{
    sh_engine *e = arg;
    bool runnable = false;
    while (!e->stopping || (sh_sched_busy(e->sched) && !sh_deadline_passed(e->stop_at))) {
        commands_run(e, runnable);
        runnable = sh_sched_plan(e->sched, e->plan);
        if (runnable) step(e);
    }
    sh_err err;
    sh_err_set(&err, SH_ERR_CANCELLED, "the engine was stopped");
    sh_sched_fail_all(e->sched, &err);
    return NULL;
}

sh_status sh_engine_start(sh_engine *e, sh_emit_fn sink, void *ctx, sh_err *err)
{
    e->sink = sink;
    e->sink_ctx = ctx;
    if (pthread_create(&e->thread, NULL, engine_main, e) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "the engine's thread could not be started");
    e->started = true;
    return SH_OK;
}

/* Commands other than submit must not be lost: wait for room, which a step makes. */
static void command_send(sh_engine *e, const command *c)
{
    while (sh_queue_push(e->commands, c) == SH_AGAIN) sh_sleep_ms(1);
}

void sh_engine_stop(sh_engine *e, int64_t grace_ms)
{
    if (!e->started) return;
    command_send(e, &(command){.kind = STOP, .id = (uint64_t)grace_ms});
    pthread_join(e->thread, NULL);
    e->started = false;
}

sh_status sh_engine_submit(sh_engine *e, uint64_t owner, sh_wire_request *request)
{
    command c = {.kind = SUBMIT, .owner = owner, .request = *request};
    sh_status status = sh_queue_push(e->commands, &c);
    if (status == SH_OK) *request = (sh_wire_request){0};
    return status;
}

void sh_engine_cancel(sh_engine *e, uint64_t owner, uint64_t id)
{
    command_send(e, &(command){.kind = CANCEL, .owner = owner, .id = id});
}

void sh_engine_forget(sh_engine *e, uint64_t owner)
{
    command_send(e, &(command){.kind = FORGET, .owner = owner});
}

void sh_engine_ask_stats(sh_engine *e, uint64_t owner)
{
    command_send(e, &(command){.kind = ASK_STATS, .owner = owner});
}
