/* One thread owns the scheduler, the blocks and the model group, so none of them has a lock. Other
 * threads reach it through a bounded queue of commands: while there is nothing to run the engine
 * sleeps in that queue, otherwise it drains the queue between two steps.
 *
 * Steps are kept in flight as plans in a ring, one for each stage of the pipeline. They are begun
 * and finished in the same order; the scheduler sees a plan twice, when it fills it and when it
 * commits the picks.
 *
 * A lost rank fails everything that is open (group_lost), and the thread then tries to re-form the
 * group until it succeeds. Each attempt is short, because commands are only looked at in between.
 * The thread cannot answer questions meanwhile, so a copy of the last stats is kept under a lock
 * for sh_engine_ask_stats. */
#include "engine/engine.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/thread.h"
#include "engine/engine_stats.h"
#include "engine/kept_answers.h"
#include "model/pooling.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    COMMANDS_MAX = 4096,
    BLOCKED_POLL_MS = 2,   /* requests are open, but none can run now */
    IDLE_POLL_MS = 100,    /* how soon an idle engine notices a lost rank */
    REFORM_PAUSE_MS = 500, /* between two attempts to re-form the group */
    REFORM_JOIN_MS = 3000, /* of one attempt: commands are handled in between */
    REPORT_INTERVAL_NS = 500000000
};

typedef enum { SUBMIT, CANCEL, DETACH, FORGET, ASK_STATS, DISMISS, STOP } command_kind;

typedef struct {
    command_kind kind;
    uint64_t owner;
    uint64_t id;              /* CANCEL, DETACH; for STOP the grace in milliseconds, or -1 */
    sh_submit_message submit; /* SUBMIT, owned */
} command;

/* A step in flight. */
struct flight {
    sh_step_plan *plan;
    int64_t begun_ns;
    double stage_s; /* that the first stage took */
    bool overlaps;  /* others are in flight at the same time */
};

struct sh_engine {
    sh_engine_opts opts;
    sh_engine_info info;
    atomic_bool ready;
    atomic_int context, world_size; /* of the current group; read by other threads */
    sh_model_group *model_group;
    sh_group *group;
    sh_members members;  /* unless the group is of fixed size */
    sh_drafter *drafter; /* NULL: none */
    sh_blocks *blocks;
    uint64_t blocks_epoch; /* the KV that this book is about: sh_model_group_kv_epoch */
    sh_constraints *constraints;
    sh_sched *sched;
    sh_kept_answers *kept;
    struct flight *flights; /* ring of [stages] */
    int flight_first, flight_count;
    sh_pick *picks;
    sh_pooling *pooling;
    float *vectors; /* [slots, width of the pooling] of the step that is being committed */
    sh_queue *commands;
    sh_emit_fn sink;
    void *sink_ctx;
    pthread_t thread;
    bool started;
    bool formed; /* the group, before */
    bool stopping;
    bool leaving; /* for another process that takes over: the other ranks wait for it */
    sh_deadline stop_at;
    sh_engine_stats stats;
    bool reports_asked;
    uint64_t watcher; /* the owner that last asked for stats, or 0 */
    pthread_mutex_t lost_lock;
    sh_buf lost_stats; /* JSON sent while the group re-forms; guarded by lost_lock */
};

int sh_engine_draws(int slots)
{
    /* Not slots * (1 + SH_DRAFTS_MAX): all sequences share the rows for drafts. */
    return slots + 2 * SH_DRAFTS_MAX + 1;
}

static void on_event(void *ctx, uint64_t owner, const sh_event *event)
{
    sh_engine *e = ctx;
    sh_engine_stats_event(&e->stats, event);
    if (owner == SH_KEPT_OWNER)
        sh_kept_event(e->kept, event);
    else
        e->sink(e->sink_ctx, owner, event);
}

static void on_kept_event(void *ctx, uint64_t owner, const sh_event *event)
{
    sh_engine *e = ctx;
    e->sink(e->sink_ctx, owner, event);
}

static bool elastic(const sh_engine *e)
{
    return e->opts.group != NULL && e->opts.elastic && sh_group_opts_can_reform(e->opts.group);
}

/* The book of blocks goes on where all ranks kept their KV: what the interrupted steps were writing
 * had no reader yet and was dropped with its sequences. Otherwise a new book, with a new secret,
 * knows nothing of the old KV, which may have been another shard's. */
static sh_status blocks_open(sh_engine *e, sh_err *err)
{
    uint64_t epoch = sh_model_group_kv_epoch(e->model_group);
    if (e->blocks != NULL && epoch != 0 && epoch == e->blocks_epoch) return SH_OK;
    struct {
        uint64_t model;
        int64_t format;
    } text = {sh_model_group_identity(e->model_group), e->opts.model_group.kv_format};
    sh_key128 secret;
    sh_status status = sh_random_bytes(&secret, sizeof(secret), err);
    if (status != SH_OK) return status;
    sh_blocks_free(e->blocks);
    e->blocks = sh_blocks_create(sh_model_group_limits(e->model_group)->blocks, secret,
                                 sh_hash128(secret, &text, sizeof(text)));
    bool states = sh_config_has_fixed_state(sh_model_group_config(e->model_group));
    sh_blocks_reuse_parts(e->blocks, states ? SH_PARTS_WHOLE : SH_PARTS_ANY);
    e->blocks_epoch = epoch;
    return SH_OK;
}

static void flights_free(sh_engine *e)
{
    for (int i = 0; e->flights != NULL && i < e->stats.stages; i++)
        sh_step_plan_free(e->flights[i].plan);
    free(e->flights);
    e->flights = NULL;
    e->flight_first = e->flight_count = 0;
}

static bool drafts_by_head(const sh_engine_opts *opts)
{
    return opts->draft_model != NULL && opts->drafts > 0 &&
           strcmp(opts->draft_model, SH_DRAFT_MODEL_MTP) == 0;
}

/* Loaded before the group is formed, so that its memory is gone when the ranks share out theirs. */
static sh_status drafter_open(sh_engine *e, sh_err *err)
{
    sh_model_group_opts *group = &e->opts.model_group;
    bool head = drafts_by_head(&e->opts);
    sh_drafter_opts opts = {.model_dir = head ? group->model_dir : e->opts.draft_model,
                            .head = head,
                            .device = group->device,
                            .device_opts = group->device_opts,
                            .kv_format = group->kv_format,
                            .load = group->load,
                            .slots = group->slots,
                            .vocab = sh_model_group_config(e->model_group)->vocab};
    if (e->opts.draft_model == NULL || e->opts.drafts == 0) return SH_OK;
    sh_status status = sh_drafter_open(&opts, &e->drafter, err);
    if (status == SH_OK)
        sh_model_group_set_beside(e->model_group, (int64_t)sh_drafter_block_bytes(e->drafter));
    else if (head)
        sh_err_prefix(err, "--draft-model %s", SH_DRAFT_MODEL_MTP);
    return status;
}

/* A new scheduler for the limits of the new group; its counters continue from the old one's. */
static void sched_open(sh_engine *e)
{
    const sh_config *config = sh_model_group_config(e->model_group);
    const sh_step_limits *limits = sh_model_group_limits(e->model_group);
    bool longrope = config->rope[0].kind == SH_ROPE_LONGROPE;
    sh_sched_opts opts = {.limits = *limits,
                          .constraints = e->constraints,
                          .context = sh_model_group_context(e->model_group),
                          .queue_max = e->opts.queue_max,
                          .timeout_ms = e->opts.timeout_ms,
                          .stall_s = e->opts.stall_s,
                          .stages_in_flight = sh_model_group_stages(e->model_group),
                          .drafts = e->opts.drafts,
                          .drafts_always = e->opts.drafts_always,
                          .drafter = e->drafter,
                          .fixed_state = sh_config_has_fixed_state(config),
                          .pool = sh_pooling_kind(e->pooling),
                          .whole = config->bidirectional,
                          .headless = config->headless,
                          .rope_original = longrope ? config->rope[0].original_context : 0};
    sh_sched *before = e->sched;
    e->sched = sh_sched_create(&opts, e->blocks, on_event, e);
    if (before != NULL) sh_sched_carry(e->sched, before);
    sh_sched_free(before);
    flights_free(e);
    e->stats.stages = sh_model_group_stages(e->model_group);
    e->flights = sh_alloc_array((size_t)e->stats.stages, sizeof(*e->flights));
    for (int i = 0; i < e->stats.stages; i++) e->flights[i].plan = sh_step_plan_create(limits);
    free(e->picks);
    e->picks = sh_alloc_array((size_t)limits->draws, sizeof(*e->picks));
    free(e->vectors);
    e->vectors = sh_alloc_array((size_t)limits->slots * (size_t)sh_pooling_width(e->pooling),
                                sizeof(*e->vectors));
}

/* Connects the ranks. An attempt to re-form is short, but not shorter than the wait for those who
 * may be left out. */
static sh_status group_open(sh_engine *e, sh_err *err)
{
    sh_group_opts opts = *e->opts.group;
    int *join_ms = &opts.mesh.join_ms;
    if (e->formed && *join_ms > REFORM_JOIN_MS) *join_ms = REFORM_JOIN_MS;
    if (elastic(e)) {
        int64_t wait_ms = sh_deadline_left_ms(sh_roster_without_at(&e->members.roster));
        if (wait_ms <= REFORM_JOIN_MS && *join_ms < wait_ms + REFORM_JOIN_MS)
            *join_ms = (int)wait_ms + REFORM_JOIN_MS;
        opts.mesh.roster = &e->members.roster;
    }
    if (opts.mesh.listen_fd >= 0)
        opts.mesh.listen_fd = dup(opts.mesh.listen_fd); /* the original is needed to re-form */
    return sh_group_open(&opts, &e->group, err);
}

/* The ranks of the group load the model. One that is alone needs no group for that. */
static sh_status group_load(sh_engine *e, sh_err *err)
{
    bool alone = e->group == NULL || sh_group_size(e->group) == 1;
    sh_status status = sh_model_group_join(e->model_group, alone ? NULL : e->group, err);
    if (status == SH_OK && alone && e->group != NULL)
        status = sh_model_group_receive(e->model_group, e->group, err);
    if (status == SH_OK) status = blocks_open(e, err);
    if (status == SH_OK && e->drafter != NULL)
        status = sh_drafter_reserve(e->drafter, sh_model_group_limits(e->model_group),
                                    sh_model_group_context(e->model_group), err);
    return status;
}

/* Forms the group, at start and again after ranks were lost, came or left. */
static sh_status group_form(sh_engine *e, sh_err *err)
{
    sh_status status = e->opts.group != NULL ? group_open(e, err) : SH_OK;
    if (e->drafter != NULL) sh_drafter_release(e->drafter);
    if (status == SH_OK) status = group_load(e, err);
    if (elastic(e) && status == SH_OK)
        sh_members_formed(&e->members, e->group);
    else if (elastic(e))
        sh_members_failed(&e->members, e->group, err);
    if (status != SH_OK) return status;
    sched_open(e);
    if (elastic(e))
        e->stats.missing_count = sh_roster_missing(&e->members.roster, e->stats.missing);
    atomic_store(&e->context, sh_model_group_context(e->model_group));
    atomic_store(&e->world_size, sh_model_group_size(e->model_group));
    e->stats.ready = e->formed = true;
    atomic_store(&e->ready, true);
    if (e->opts.formed != NULL) e->opts.formed(e->opts.formed_ctx, atomic_load(&e->world_size));
    return SH_OK;
}

/* Whether the first group, which could not form, waits for other ranks or for those that were lost
 * on the way: whoever comes by itself must not be able to end the server. */
static bool gathers_again(sh_engine *e, const sh_err *err)
{
    bool too_small = err->status == SH_ERR_MEMORY;
    bool lost = err->status == SH_ERR_GROUP || err->status == SH_ERR_PEER ||
                err->status == SH_ERR_TIMEOUT;
    if (!elastic(e) || !e->members.roster.gathers || e->members.roster.formed) return false;
    if (!too_small && !lost) return false;
    SH_LOGW("%s; waiting for %s", err->text, too_small ? "more ranks" : "ranks");
    sh_group_close(e->group);
    e->group = NULL;
    sh_roster_regather(&e->members.roster, too_small);
    return true;
}

/* A rank 0 that took over found too few ranks: the next attempt needs all. */
static bool waits_for_all(sh_engine *e)
{
    if (!elastic(e) || !e->members.roster.needs_all) return false;
    sh_group_close(e->group);
    e->group = NULL;
    return true;
}

/* What the model can make: text, vectors, or both. */
static void info_pooling(sh_engine *e)
{
    bool pools = sh_pooling_kind(e->pooling) != SH_POOL_NONE;
    e->info.headless = sh_model_group_config(e->model_group)->headless;
    e->info.vector_len = pools ? sh_pooling_width(e->pooling) : 0;
    e->info.scores = pools && sh_pooling_scores(e->pooling);
    e->info.normalized = sh_pooling_normalizes(e->pooling);
}

sh_status sh_engine_open(const sh_engine_opts *opts, sh_engine **out, sh_err *err)
{
    SH_ASSERT(opts->model_group.chunk > sh_engine_draws(opts->model_group.slots));
    sh_engine *e = sh_alloc(sizeof(*e));
    e->opts = *opts;
    e->opts.model_group.draws = sh_engine_draws(opts->model_group.slots);
    e->opts.model_group.outputs = drafts_by_head(opts);
    e->commands = sh_queue_create(COMMANDS_MAX, sizeof(command));
    e->kept = sh_kept_create(on_kept_event, e);
    pthread_mutex_init(&e->lost_lock, NULL);
    sh_engine_stats_init(&e->stats);
    if (elastic(e))
        sh_members_init(&e->members, opts->group->mesh.size, opts->degrade_ms, opts->rejoin_ms);
    if (elastic(e) && opts->gathers)
        sh_roster_gather(&e->members.roster, opts->min_ranks, opts->gather_ms);
    if (e->members.roster.gathering) SH_LOGI("waiting for ranks to join");
    if (opts->resumed) sh_roster_resume(&e->members.roster, 0);
    sh_status status = sh_model_group_open(&e->opts.model_group, &e->model_group, err);
    if (status == SH_OK) {
        const sh_config *config = sh_model_group_config(e->model_group);
        e->info = (sh_engine_info){.model_dir = opts->model_group.model_dir,
                                   .vocab = config->vocab,
                                   .model_hash = sh_model_group_identity(e->model_group)};
        status = sh_pooling_open(opts->model_group.model_dir, config, opts->pool, &e->pooling, err);
    }
    if (status == SH_OK) {
        const sh_config *config = sh_model_group_config(e->model_group);
        info_pooling(e);
        status = sh_constraints_open(&opts->vocabulary, config->vocab, &e->constraints, err);
    }
    if (status == SH_OK) status = drafter_open(e, err);
    if (status == SH_OK) {
        status = group_form(e, err);
        if (status == SH_ERR_MEMORY && waits_for_all(e)) status = group_form(e, err);
        while (status != SH_OK && gathers_again(e, err)) status = group_form(e, err);
    }
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
    for (command c; sh_queue_pop(e->commands, &c, 0) == SH_OK;) sh_submit_message_reset(&c.submit);
    sh_queue_free(e->commands);
    sh_sched_free(e->sched);
    sh_drafter_close(e->drafter);
    sh_constraints_close(e->constraints);
    sh_kept_free(e->kept);
    sh_blocks_free(e->blocks);
    flights_free(e);
    sh_engine_stats_reset(&e->stats);
    /* Before the model group: receives may still write into its memory. */
    if (e->group != NULL) sh_group_close(e->group);
    sh_model_group_close(e->model_group);
    sh_pooling_close(e->pooling);
    free(e->vectors);
    free(e->picks);
    sh_buf_reset(&e->lost_stats);
    pthread_mutex_destroy(&e->lost_lock);
    free(e);
}

sh_engine_info sh_engine_info_of(const sh_engine *e)
{
    sh_engine_info info = e->info;
    info.context = atomic_load(&e->context);
    info.world_size = atomic_load(&e->world_size);
    info.ready = atomic_load(&e->ready);
    return info;
}

static void stats_emit(sh_engine *e, uint64_t owner, const sh_buf *json)
{
    sh_event event = {.kind = SH_EVENT_STATS, .stats = sh_buf_str(json)};
    e->sink(e->sink_ctx, owner, &event);
}

static void stats_send(sh_engine *e, uint64_t owner)
{
    sh_buf json = {0};
    sh_engine_stats_json(&e->stats, e->model_group, e->sched, e->blocks, e->drafter, &e->opts,
                         &json);
    stats_emit(e, owner, &json);
    sh_buf_reset(&json);
}

static bool can_reform(const sh_engine *e)
{
    return e->opts.group == NULL || sh_group_opts_can_reform(e->opts.group);
}

sh_status sh_engine_check(const sh_engine *e, sh_err *err)
{
    if (e->stats.failures == 0 || can_reform(e)) return SH_OK;
    return sh_err_set(err, SH_ERR_GROUP, "%s", e->stats.lost);
}

/* While it re-forms the group, the engine's thread cannot answer: keep the last state. */
static void lost_stats_keep(sh_engine *e)
{
    pthread_mutex_lock(&e->lost_lock);
    sh_buf_clear(&e->lost_stats);
    sh_engine_stats_json(&e->stats, e->model_group, e->sched, e->blocks, e->drafter, &e->opts,
                         &e->lost_stats);
    pthread_mutex_unlock(&e->lost_lock);
}

/* The group has ended: fail every open request and mark the group as not ready, so that
 * engine_main() re-forms it. The API submits them again then, with what was answered so far. A
 * client that watches the stats is notified without asking.
 *
 * `ready` is cleared after lost_stats was written: other threads read it without a lock, and once
 * it is false sh_engine_ask_stats() sends lost_stats. */
static void group_end(sh_engine *e, const sh_err *why)
{
    e->stats.ready = false;
    snprintf(e->stats.lost, sizeof(e->stats.lost), "%s", why->text);
    sh_sched_fail_all(e->sched, why);
    e->flight_count = 0;
    e->stats.report_count = 0;
    e->reports_asked = false;
    lost_stats_keep(e);
    atomic_store(&e->ready, false);
    if (e->watcher != 0) stats_send(e, e->watcher);
}

/* Rank 0 reports, so it is not among them. If nobody in particular is at fault, it may be any of
 * the others. */
static uint64_t lost_ranks(const sh_engine *e)
{
    uint64_t all = 0;
    int at_fault = e->group == NULL ? 0 : sh_group_at_fault(e->group);
    for (int i = 1; at_fault < 0 && i < sh_group_size(e->group); i++)
        all |= UINT64_C(1) << sh_group_number(e->group, i);
    return at_fault > 0 ? UINT64_C(1) << at_fault : all;
}

/* A rank was lost. Whatever the cause, the requests are not at fault. */
static void group_lost(sh_engine *e, const sh_err *why)
{
    SH_LOGE("%s", why->text);
    sh_err lost = *why;
    lost.status = SH_ERR_GROUP;
    e->stats.failures++;
    e->stats.lost_ranks = lost_ranks(e);
    if (elastic(e)) sh_members_lost(&e->members, e->group, e->model_group);
    group_end(e, &lost);
    if (!can_reform(e) && e->opts.lost_for_good != NULL) e->opts.lost_for_good(e->opts.lost_ctx);
}

/* Ranks come in or leave: all others learn why this group ends, and come back at once. */
static void group_change(sh_engine *e, const sh_err *why)
{
    sh_err planned;
    sh_err_set(&planned, SH_ERR_CANCELLED, "the group re-forms: %s", why->text);
    SH_LOGI("%s", planned.text);
    sh_group_fail(e->group, planned.text);
    e->stats.changes++;
    e->stats.lost_ranks = 0;
    group_end(e, &planned);
}

/* One attempt, with a new group. */
static void group_reform(sh_engine *e)
{
    sh_err err;
    uint64_t before = e->blocks_epoch;
    if (e->group != NULL) sh_group_close(e->group);
    e->group = NULL;
    if (group_form(e, &err) == SH_OK) {
        SH_LOGI("the group has re-formed: %d ranks%s", sh_model_group_size(e->model_group),
                e->blocks_epoch == before ? ", which kept their KV cache" : "");
        if (e->watcher != 0) stats_send(e, e->watcher);
        return;
    }
    SH_LOGW("the group could not be formed, trying again: %s", err.text);
    sh_sleep_ms(REFORM_PAUSE_MS);
}

/* A clock that stands still while the drafter runs. */
static double work_s(const sh_engine *e)
{
    return (double)sh_clock_ns() * 1e-9 - sh_sched_stats_of(e->sched)->draft_s;
}

static sh_status flight_begin(sh_engine *e, sh_err *err)
{
    struct flight *f = &e->flights[(e->flight_first + e->flight_count) % e->stats.stages];
    double start_s = work_s(e);
    if (!sh_sched_plan(e->sched, f->plan)) return SH_AGAIN;
    double begun_s = work_s(e);
    e->stats.schedule_s += begun_s - start_s;
    f->begun_ns = sh_clock_ns();
    f->overlaps = e->flight_count > 0;
    if (f->overlaps) e->flights[e->flight_first].overlaps = true;
    e->flight_count++;
    sh_status status = sh_model_group_begin(e->model_group, f->plan, err);
    f->stage_s = work_s(e) - begun_s;
    return status;
}

/* From the hidden states that the ranks have pooled to what the model's files make of them. */
static void vectors_finish(sh_engine *e, const sh_step_plan *plan)
{
    const float *pooled = sh_model_group_vectors(e->model_group);
    int width = sh_pooling_width(e->pooling);
    int hidden = sh_model_group_config(e->model_group)->hidden;
    for (int i = 0; i < sh_step_plan_vectors(plan); i++)
        sh_pooling_finish(e->pooling, pooled + (size_t)i * (size_t)hidden,
                          e->vectors + (size_t)i * (size_t)width);
    sh_sched_vectors(e->sched, e->vectors, width);
}

static sh_status flight_finish(sh_engine *e, sh_err *err)
{
    struct flight *f = &e->flights[e->flight_first];
    sh_status status = sh_model_group_finish(e->model_group, f->plan, e->picks, err);
    if (status != SH_OK) return status;
    e->flight_first = (e->flight_first + 1) % e->stats.stages;
    e->flight_count--;
    double took = (double)(sh_clock_ns() - f->begun_ns) * 1e-9, end_s = work_s(e);
    sh_engine_stats_step(&e->stats, took, f->plan->token_count, f->plan->seq_count);
    vectors_finish(e, f->plan);
    if (f->plan->outputs)
        sh_sched_outputs(e->sched, sh_model_group_outputs(e->model_group, f->plan),
                         sh_model_group_config(e->model_group)->hidden);
    sh_sched_commit(e->sched, f->plan, e->picks, took,
                    f->overlaps ? f->stage_s * e->stats.stages : took);
    e->stats.schedule_s += work_s(e) - end_s;
    return SH_OK;
}

/* Begins steps until every stage is busy, then finishes the oldest. False when there was nothing to
 * run. */
static bool steps_run(sh_engine *e)
{
    sh_err err;
    sh_status status = SH_OK;
    /* SH_AGAIN (positive): nothing more to run. Negative: an error, and with it a lost group. */
    while (status == SH_OK && e->flight_count < e->stats.stages) status = flight_begin(e, &err);
    if (status >= 0 && e->flight_count == 0) return false;
    if (status >= 0) status = flight_finish(e, &err);
    if (status < 0) group_lost(e, &err);
    return true;
}

static sh_status reports_take(sh_engine *e, sh_err *err)
{
    int size = sh_model_group_size(e->model_group);
    e->stats.reports = sh_realloc_array(e->stats.reports, (size_t)size, sizeof(*e->stats.reports));
    e->stats.report_count = 0;
    sh_status status = sh_model_group_take_reports(e->model_group, e->stats.reports, err);
    if (status != SH_OK) return status;
    e->stats.report_count = size;
    e->reports_asked = false;
    return SH_OK;
}

/* Requests reports from the ranks, at most every REPORT_INTERVAL_NS. With steps in flight the
 * reports are picked up between two steps once all have arrived; otherwise wait for them. */
static void reports_refresh(sh_engine *e)
{
    sh_err err;
    sh_status status = SH_OK;
    int64_t now = sh_clock_ns();
    if (!atomic_load(&e->ready)) return;
    if (!e->reports_asked) {
        if (e->stats.reports != NULL && now - e->stats.reported_ns < REPORT_INTERVAL_NS) return;
        e->stats.reported_ns = now;
        status = sh_model_group_ask_reports(e->model_group, &err);
        e->reports_asked = status == SH_OK;
    }
    if (status == SH_OK && (e->flight_count == 0 || sh_model_group_reports_ready(e->model_group)))
        status = reports_take(e, &err);
    if (status != SH_OK) group_lost(e, &err);
}

/* A request with a key: the scheduler runs it only if there is no answer under way. */
static void kept_submit(sh_engine *e, command *c)
{
    sh_event refusal = {.kind = SH_EVENT_ERROR, .id = c->submit.spec.id};
    const sh_sequence_spec *spec;
    uint64_t replaced;
    sh_status status = sh_kept_enter(e->kept, c->owner, &c->submit, &spec, &replaced,
                                     &refusal.error);
    refusal.retry = status == SH_ERR_LIMIT;
    if (replaced != 0) sh_sched_cancel(e->sched, SH_KEPT_OWNER, replaced);
    if (status != SH_OK)
        e->sink(e->sink_ctx, c->owner, &refusal);
    else if (spec != NULL)
        sh_sched_submit(e->sched, SH_KEPT_OWNER, spec);
}

static void kept_cancel(sh_engine *e, uint64_t owner, uint64_t id)
{
    uint64_t kept = sh_kept_find(e->kept, owner, id);
    sh_sched_cancel(e->sched, kept != 0 ? SH_KEPT_OWNER : owner, kept != 0 ? kept : id);
}

static void kept_expire(sh_engine *e)
{
    uint64_t id;
    while ((id = sh_kept_expire(e->kept)) != 0) sh_sched_cancel(e->sched, SH_KEPT_OWNER, id);
}

static void submit_run(sh_engine *e, command *c)
{
    sh_event refusal = {.kind = SH_EVENT_ERROR, .id = c->submit.spec.id, .retry = true};
    if (e->stopping) {
        sh_err_set(&refusal.error, SH_ERR_CANCELLED, "the engine is stopping");
        e->sink(e->sink_ctx, c->owner, &refusal);
    } else if (!atomic_load(&e->ready)) {
        sh_err_set(&refusal.error, SH_ERR_GROUP,
                   "a rank was lost and the group is re-forming; try again later");
        e->sink(e->sink_ctx, c->owner, &refusal);
    } else if (c->submit.spec.retry_key != NULL && c->submit.spec.retry_key[0] != '\0') {
        kept_submit(e, c);
    } else {
        sh_sched_submit(e->sched, c->owner, &c->submit.spec);
    }
    sh_submit_message_reset(&c->submit);
}

static void ranks_dismiss(sh_engine *e, uint64_t ranks)
{
    bool ready = atomic_load(&e->ready);
    if (!elastic(e)) return;
    sh_members_dismiss(&e->members, ranks, ready ? 0 : e->stats.lost_ranks);
    e->stats.missing_count = sh_roster_missing(&e->members.roster, e->stats.missing);
    e->stats.lost_ranks &= ~ranks;
    if (!ready) lost_stats_keep(e);
}

static void command_run(sh_engine *e, command *c)
{
    switch (c->kind) {
    case SUBMIT: submit_run(e, c); break;
    case CANCEL: kept_cancel(e, c->owner, c->id); break;
    case DETACH: sh_kept_detach(e->kept, c->owner, c->id); break;
    case FORGET:
        sh_sched_forget(e->sched, c->owner);
        sh_kept_forget(e->kept, c->owner);
        if (e->watcher == c->owner) e->watcher = 0;
        break;
    case ASK_STATS:
        e->watcher = c->owner;
        kept_expire(e);
        reports_refresh(e);
        stats_send(e, c->owner);
        break;
    case DISMISS: ranks_dismiss(e, c->id); break;
    case STOP:
        e->stopping = true;
        e->leaving = (int64_t)c->id < 0;
        e->stop_at = sh_deadline_in_ms(e->leaving ? 0 : (int64_t)c->id);
        break;
    }
}

/* Handles the queued commands; waits for one while there is nothing to run. With a group the wait
 * is short, so that a rank lost while the engine is idle is noticed (see group_poll). */
static void commands_run(sh_engine *e, bool runnable)
{
    bool ready = atomic_load(&e->ready);
    int64_t wait_ms = sh_sched_busy(e->sched) ? BLOCKED_POLL_MS : IDLE_POLL_MS;
    sh_deadline wait = runnable || !ready ? 0 : sh_deadline_in_ms(wait_ms);
    /* Without a group, an idle engine has nothing to watch but its queue. */
    if (!runnable && ready && e->group == NULL && !sh_sched_busy(e->sched))
        wait = SH_DEADLINE_NEVER;
    command c;
    while (sh_queue_pop(e->commands, &c, wait) == SH_OK) {
        command_run(e, &c);
        wait = 0;
    }
}

static void group_poll(sh_engine *e)
{
    sh_err err;
    if (e->group != NULL && sh_group_check(e->group, &err) != SH_OK) group_lost(e, &err);
}

static void members_poll(sh_engine *e)
{
    sh_err why;
    if (!elastic(e) || e->stopping || !atomic_load(&e->ready)) return;
    if (sh_members_poll(&e->members, e->group, e->model_group, !sh_sched_busy(e->sched), &why))
        group_change(e, &why);
}

/* Commands, then a step, and again. When it stops, it goes on until all requests have ended or the
 * grace period is over; what is left then fails. */
static void *engine_main(void *arg)
{
    sh_engine *e = arg;
    bool runnable = false;
    while (!e->stopping || (sh_sched_busy(e->sched) && !sh_deadline_passed(e->stop_at))) {
        commands_run(e, runnable);
        if (!atomic_load(&e->ready)) {
            if (!can_reform(e))
                sh_sleep_ms(REFORM_PAUSE_MS);
            else if (!e->stopping)
                group_reform(e);
            continue;
        }
        runnable = steps_run(e);
        if (!runnable) group_poll(e);
        if (!runnable) kept_expire(e);
        members_poll(e);
        /* The balance is measured by reports, whether or not anybody watches. */
        if (e->reports_asked || (runnable && e->opts.model_group.rebalance)) reports_refresh(e);
    }
    sh_err err;
    if (!e->leaving && atomic_load(&e->ready) && sh_model_group_stop(e->model_group, &err) != SH_OK)
        SH_LOGW("%s", err.text);
    sh_err_set(&err, SH_ERR_CANCELLED, "the engine was stopped");
    sh_sched_fail_all(e->sched, &err);
    return NULL;
}

sh_status sh_engine_start(sh_engine *e, sh_emit_fn sink, void *ctx, sh_err *err)
{
    e->sink = sink;
    e->sink_ctx = ctx;
    if (sh_thread_start(&e->thread, engine_main, e) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the engine's thread");
    e->started = true;
    return SH_OK;
}

/* Commands other than submit must not be dropped: wait until the engine has drained the queue. */
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

sh_status sh_engine_submit(sh_engine *e, uint64_t owner, sh_submit_message *submit)
{
    command c = {.kind = SUBMIT, .owner = owner, .submit = *submit};
    sh_status status = sh_queue_push(e->commands, &c);
    if (status == SH_OK) *submit = (sh_submit_message){0};
    return status;
}

void sh_engine_cancel(sh_engine *e, uint64_t owner, uint64_t id)
{
    command_send(e, &(command){.kind = CANCEL, .owner = owner, .id = id});
}

void sh_engine_detach(sh_engine *e, uint64_t owner, uint64_t id)
{
    command_send(e, &(command){.kind = DETACH, .owner = owner, .id = id});
}

void sh_engine_forget(sh_engine *e, uint64_t owner)
{
    command_send(e, &(command){.kind = FORGET, .owner = owner});
}

void sh_engine_dismiss(sh_engine *e, uint64_t ranks)
{
    command_send(e, &(command){.kind = DISMISS, .id = ranks});
}

void sh_engine_ask_stats(sh_engine *e, uint64_t owner)
{
    if (!atomic_load(&e->ready)) {
        pthread_mutex_lock(&e->lost_lock);
        stats_emit(e, owner, &e->lost_stats);
        pthread_mutex_unlock(&e->lost_lock);
        return;
    }
    command_send(e, &(command){.kind = ASK_STATS, .owner = owner});
}
