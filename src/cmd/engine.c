/* shoal engine: the processes that compute. Rank 0 serves requests on a Unix
 * socket; the other ranks do what rank 0 tells them, and rejoin on their own when the group is
 * lost.
 *
 * Signals are the delicate part. SIGINT and SIGTERM are blocked in all threads and taken by one
 * thread with sigwait, so that nothing runs in a signal handler. On rank 0 a signal starts the
 * grace period for running answers, except for SIGUSR2, which renews the process. A worker must not
 * leave on a signal while it is in a group: a stop signals all ranks at once, and a worker that
 * left would break the answers that rank 0 is still finishing. It keeps working until rank 0 ends
 * the group. */
#include "engine/engine.h"

#include "base/log.h"
#include "cmd/support/draft_model.h"
#include "cmd/support/load_view.h"
#include "cmd/support/model_group_setup.h"
#include "cmd/support/p2p.h"
#include "cmd/support/progress.h"
#include "cmd/support/vocabulary.h"
#include "engine/engine_socket.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    REJOIN_MIN_MS = 100,
    REJOIN_MAX_MS = 1000, /* a group that runs forgets who has not asked for longer */
    SEARCH_MAX_MS = 5000, /* where no server answers at all */
};

/* A step must hold a token for every possible draw of all slots and at least one more, however
 * small --chunk is. */
static sh_status setup_init(sh_model_group_setup *setup, const sh_command_args *args, sh_err *err)
{
    const sh_settings *s = args->settings;
    sh_status status = sh_model_group_setup_init(setup, args, err);
    int draws = sh_engine_draws((int)s->slots);
    setup->opts.slots = (int)s->slots;
    setup->opts.chunk = s->chunk > draws ? (int)s->chunk : draws + 1;
    setup->opts.draws = draws;
    setup->opts.kv_tokens = s->kv_tokens;
    setup->opts.kv_memory = s->kv_memory_mb << 20;
    setup->opts.memory_reserve = s->kv_reserve_mb << 20;
    setup->opts.load.progress = sh_progress_loaded;
    setup->opts.load.progress_ctx = (void *)s;
    return status;
}

static const int SIGNALS[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

/* Called before any thread starts: all of them inherit the mask. */
static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < SH_COUNT_OF(SIGNALS); i++) sigaddset(set, SIGNALS[i]);
    pthread_sigmask(SIG_BLOCK, set, NULL);
}

/* What stops rank 0: a signal, or a group that is lost for good. A signal that arrives while the
 * group is still forming or loading ends the process at once: there are no answers to wait for. */
struct stopper {
    sigset_t signals;
    pthread_t thread; /* waits for signals */
    atomic_bool ready;
    const char *socket;
    pthread_mutex_t lock; /* guards `requested` */
    pthread_cond_t changed;
    bool requested;
    bool renewed; /* by SIGUSR2: requests go on at the process that takes over, if they may wait */
};

static void stop_request(void *ctx)
{
    struct stopper *stopper = ctx;
    pthread_mutex_lock(&stopper->lock);
    stopper->requested = true;
    pthread_cond_signal(&stopper->changed);
    pthread_mutex_unlock(&stopper->lock);
}

static void stop_wait(struct stopper *stopper)
{
    pthread_mutex_lock(&stopper->lock);
    while (!stopper->requested) pthread_cond_wait(&stopper->changed, &stopper->lock);
    pthread_mutex_unlock(&stopper->lock);
}

static void *signal_thread(void *arg)
{
    struct stopper *stopper = arg;
    int got;
    do sigwait(&stopper->signals, &got);
    while (got == SIGUSR1); /* rank 0 cannot leave */
    stopper->renewed = got == SIGUSR2;
    if (!atomic_load(&stopper->ready)) {
        unlink(stopper->socket);
        _exit(SH_EXIT_OK);
    }
    stop_request(stopper);
    return NULL;
}

static sh_status stopper_start(struct stopper *stopper, sh_err *err)
{
    pthread_mutex_init(&stopper->lock, NULL);
    pthread_cond_init(&stopper->changed, NULL);
    if (pthread_create(&stopper->thread, NULL, signal_thread, stopper) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the signal thread");
    return SH_OK;
}

static void stopper_stop(struct stopper *stopper)
{
    pthread_cancel(stopper->thread);
    pthread_join(stopper->thread, NULL);
    pthread_cond_destroy(&stopper->changed);
    pthread_mutex_destroy(&stopper->lock);
}

/* Those who search for this group are told how large it is. */
struct seen {
    sh_answerer *answerer; /* NULL: nobody searches */
    const sh_mesh_opts *mesh;
};

static void on_formed(void *ctx, int world_size)
{
    const struct seen *seen = ctx;
    if (seen->answerer != NULL) sh_answerer_set(seen->answerer, seen->mesh->node, 0, world_size);
}

static sh_status serve(const sh_settings *s, sh_engine_socket *engine_socket, sh_engine *engine,
                       struct stopper *stopper, sh_err *err)
{
    sh_status status = sh_engine_start(engine, sh_engine_socket_emit, engine_socket, err);
    if (status == SH_OK) status = sh_engine_socket_start(engine_socket, engine, err);
    if (status != SH_OK) return status;
    sh_engine_info info = sh_engine_info_of(engine);
    SH_LOGI("ready: %s on %d rank%s, %d tokens of context", s->model, info.world_size,
            info.world_size == 1 ? "" : "s", info.context);
    if (strcmp(s->part, "engine") != 0) sh_progress(s, "ready"); /* otherwise the API reports it */
    sh_progress_ready(s);
    atomic_store(&stopper->ready, true);
    stop_wait(stopper);
    bool leave = stopper->renewed && s->replay_timeout != 0;
    if (!leave)
        SH_LOGI("shutting down: active requests have %lld s to finish", (long long)s->grace);
    sh_engine_socket_drain(engine_socket);
    sh_engine_stop(engine, leave ? SH_ENGINE_LEAVE : s->grace * 1000);
    return sh_engine_check(engine, err);
}

/* Rank 0. The socket is opened before the model is loaded, so that a path that cannot be used is
 * reported at once. */
static sh_status coordinate(const sh_settings *s, sh_model_group_setup *setup,
                            const sigset_t *signals, sh_err *err)
{
    struct stopper stopper = {.signals = *signals, .socket = s->socket};
    char *draft_model = NULL;
    sh_load_board *board = sh_load_board_create();
    sh_load_view *view = NULL;
    setup->opts.load_board = board;
    struct seen seen = {.mesh = &setup->ranks.opts.mesh};
    sh_vocabulary_files files = {.model_dir = s->model};
    sh_engine_opts opts = {.model_group = setup->opts,
                           .group = sh_ranks_form_group(&setup->ranks) ? &setup->ranks.opts : NULL,
                           .elastic = true,
                           .resumed = s->served,
                           .degrade_ms = s->degrade_after < 0 ? -1 : s->degrade_after * 1000,
                           .rejoin_ms = s->rejoin_after * 1000,
                           .gathers = s->p2p,
                           .min_ranks = (int)s->min_ranks,
                           .gather_ms = s->wait < 0 ? -1 : s->wait * 1000,
                           .formed = on_formed,
                           .formed_ctx = &seen,
                           .queue_max = (int)s->queue_max,
                           .timeout_ms = s->req_timeout * 1000,
                           .stall_s = (double)s->stall_ms / 1000,
                           .drafts = (int)s->drafts,
                           .pool = sh_pool_kind_find(s->pooling), /* none for "auto" */
                           .vocabulary = {sh_vocabulary_load, &files},
                           .lost_for_good = stop_request,
                           .lost_ctx = &stopper};
    sh_progress(s, "load");
    sh_engine_socket *engine_socket = NULL;
    sh_engine *engine = NULL;
    sh_status status = stopper_start(&stopper, err);
    if (status != SH_OK) return status;
    status = sh_draft_model_obtain(s, &draft_model, err);
    opts.draft_model = draft_model;
    if (status == SH_OK) status = sh_engine_socket_open(s->socket, &engine_socket, err);
    if (status == SH_OK) status = sh_engine_socket_announce(engine_socket, board, err);
    if (status == SH_OK) status = sh_load_view_start(board, &view, err);
    if (status == SH_OK) status = sh_p2p_answer(&setup->ranks, s, &seen.answerer, err);
    if (status == SH_OK) status = sh_engine_open(&opts, &engine, err);
    if (status == SH_OK) status = serve(s, engine_socket, engine, &stopper, err);
    sh_engine_socket_close(engine_socket);
    sh_engine_close(engine);
    sh_load_view_stop(view);
    sh_load_board_free(board);
    sh_answerer_stop(seen.answerer);
    free(draft_model);
    sh_vocabulary_files_reset(&files);
    stopper_stop(&stopper); /* last: the engine's thread may call stop_request until it has ended */
    return status;
}

/* A worker that is in a group cannot just exit on a signal: usually all ranks are being stopped,
 * and answers are to finish first. It asks rank 0 to let it leave and goes on until that ends the
 * group. On SIGUSR2 it makes room for the next process, if rank 0 does not end the group by itself.
 * One that is not in a group exits, and one that still loads its first share gives up: over a slow
 * link that may take hours, and nobody has come to rely on it. A second signal is obeyed at once,
 * except for SIGUSR1: that is only a question, which may be asked again. */
struct worker {
    sigset_t signals;
    const sh_settings *settings;
    pthread_mutex_t lock; /* guards group and loaded */
    sh_group *group;      /* while it works in one */
    bool loaded;          /* it has had a share of the model */
    atomic_bool stop;
    sh_answerer *answerer;         /* NULL: nobody searches */
    bool any_number;               /* it was started without one */
    bool joined;                   /* it has been in a group before: its token is right */
    char refusal[SH_ERR_TEXT_MAX]; /* why it was not in a group at the last attempt; "": it was */
    int pause_ms;
};

enum { RENEW_MS = 500, ANSWER_MS = 10000, POLL_MS = 50 };

static void group_break(sh_group *group, const char *why)
{
    char text[64];
    snprintf(text, sizeof(text), "rank %d %s", sh_group_number(group, sh_group_rank(group)), why);
    sh_group_fail(group, text);
}

static void worker_renew(struct worker *w)
{
    sh_sleep_ms(RENEW_MS);
    pthread_mutex_lock(&w->lock);
    if (w->group != NULL) group_break(w->group, "is restarted");
    pthread_mutex_unlock(&w->lock);
}

static void worker_leave(const struct worker *w, int signal)
{
    sh_group_ask_to_leave(w->group);
    if (!w->loaded && signal != SIGUSR1) group_break(w->group, "leaves before it has its share");
}

/* Reports that rank 0 refuses to let this rank leave. Ends when the group does, and early on the
 * next signal. */
static void worker_await_answer(struct worker *w)
{
    sh_deadline end = sh_deadline_in_ms(ANSWER_MS);
    sigset_t pending;
    bool waits = true;
    while (waits && !sh_deadline_passed(end)) {
        char why[SH_STAY_TEXT_MAX] = "";
        sh_sleep_ms(POLL_MS);
        pthread_mutex_lock(&w->lock);
        bool stays = w->group != NULL && sh_group_must_stay(w->group, why);
        waits = w->group != NULL && !stays;
        pthread_mutex_unlock(&w->lock);
        if (stays) sh_progress_refused(w->settings, why);
        sigpending(&pending);
        for (int i = 0; i < (int)SH_COUNT_OF(SIGNALS); i++)
            waits = waits && sigismember(&pending, SIGNALS[i]) != 1;
    }
}

static void *worker_signal_thread(void *arg)
{
    struct worker *w = arg;
    for (int got, count = 0;; count += got != SIGUSR1) {
        sigwait(&w->signals, &got);
        atomic_store(&w->stop, true);
        pthread_mutex_lock(&w->lock);
        if (w->group == NULL || (count > 0 && got != SIGUSR1)) _exit(SH_EXIT_OK);
        if (got != SIGUSR2) worker_leave(w, got);
        pthread_mutex_unlock(&w->lock);
        if (got == SIGUSR2) worker_renew(w);
        if (got == SIGUSR1) worker_await_answer(w);
    }
    return NULL;
}

static void worker_set_loaded(struct worker *w, bool loaded)
{
    pthread_mutex_lock(&w->lock);
    w->loaded = loaded;
    pthread_mutex_unlock(&w->lock);
}

static void worker_set_group(struct worker *w, sh_group *group)
{
    pthread_mutex_lock(&w->lock);
    w->group = group;
    if (group != NULL && atomic_load(&w->stop)) sh_group_ask_to_leave(group);
    pthread_mutex_unlock(&w->lock);
}

/* The number and the group of this membership are what the next one starts from, once the group
 * has loaded the model: if it never does, it never was. */
static void membership_keep(const sh_group *group, sh_mesh_opts *mesh)
{
    mesh->rank = sh_group_number(group, sh_group_rank(group));
    mesh->last_epoch = sh_group_epoch(group);
    mesh->last_left = sh_group_left(group);
    sh_log_set_rank(mesh->rank);
}

static void worker_show(struct worker *w, const sh_mesh_opts *mesh, int world_size)
{
    if (w->answerer != NULL) sh_answerer_set(w->answerer, mesh->node, mesh->rank, world_size);
}

/* Joins the group. One that runs wants this rank to have loaded its share first, and again if it
 * has changed meanwhile. */
static sh_status group_enter(const sh_settings *s, sh_model_group *model_group, sh_group_opts *opts,
                             sh_group **out, sh_err *err)
{
    sh_mesh_opts *mesh = &opts->mesh;
    int own = mesh->rank;
    mesh->prepared = SH_PREPARED_NOT;
    sh_status status = sh_group_open(opts, out, err);
    while (status == SH_ERR_CANCELLED) {
        mesh->rank = own;
        sh_progress(s, "load");
        status = sh_model_group_prepare(model_group, opts, &mesh->rank, &mesh->prepared, err);
        if (status == SH_OK) SH_LOGI("rank %d has its share, and comes in", mesh->rank);
        if (status == SH_OK) status = sh_group_open(opts, out, err);
    }
    if (status != SH_OK) mesh->rank = own;
    return status;
}

/* A rank 0 that was restarted may have given the number of this rank away. It knows this rank by
 * its node id if it did not, so a rank that may have any number is safe to ask for one again. */
static void number_forget(const struct worker *w, sh_status status, sh_mesh_opts *mesh)
{
    if (status == SH_ERR_GROUP && w->any_number) mesh->rank = SH_RANK_ANY;
}

/* One membership in a group: join, work until released or lost, leave. */
static sh_status worker_once(struct worker *w, const sh_settings *s, sh_model_group *model_group,
                             sh_ranks *ranks, sh_err *err)
{
    sh_group_opts *opts = &ranks->opts;
    sh_group *group = NULL;
    sh_progress(s, "join");
    sh_status status = s->p2p ? sh_p2p_find(ranks, err) : SH_OK;
    if (status == SH_OK) status = group_enter(s, model_group, opts, &group, err);
    number_forget(w, status, &opts->mesh);
    if (status != SH_OK) return status;
    worker_set_group(w, group);
    sh_log_set_rank(sh_group_number(group, sh_group_rank(group)));
    w->joined = true;
    w->refusal[0] = '\0';
    sh_progress(s, "load");
    status = sh_model_group_join(model_group, group, err);
    if (status == SH_OK) {
        worker_set_loaded(w, true);
        membership_keep(group, &opts->mesh);
        worker_show(w, &opts->mesh, sh_group_size(group));
        SH_LOGI("ready");
        sh_progress(s, "ready");
        sh_progress_ready(s);
        status = sh_model_group_work(model_group, err);
    }
    worker_set_group(w, NULL);
    worker_show(w, &opts->mesh, 0);
    if (sh_group_must_stay(group, NULL)) atomic_store(&w->stop, false);
    sh_group_close(group);
    return status;
}

/* Errors that may be gone at the next attempt. A refused token is one of them if it was accepted
 * before: another server may be listening at rank 0's address for the moment. */
static bool is_transient(const struct worker *w, sh_status status)
{
    switch (status) {
    case SH_ERR_GROUP:
    case SH_ERR_PEER:
    case SH_ERR_TIMEOUT: return true;
    case SH_ERR_AUTH: return w->joined;
    case SH_ERR_NOT_FOUND:
    case SH_ERR_MEMORY: return w->settings->p2p; /* others come and go, and shares with them */
    default: return false;
    }
}

/* A lost group is joined again at once. A server that keeps giving the same answer, such as that
 * this rank is there already, is asked less and less often, and logged once. */
static void rejoin_pause(struct worker *w, const sh_err *why)
{
    bool same = strcmp(why->text, w->refusal) == 0;
    int most = why->status == SH_ERR_NOT_FOUND ? SEARCH_MAX_MS : REJOIN_MAX_MS;
    w->pause_ms = !same ? REJOIN_MIN_MS : 2 * w->pause_ms;
    if (w->pause_ms > most) w->pause_ms = most;
    sh_log(same ? SH_LOG_DEBUG : SH_LOG_WARN, "%s; waiting for rank 0", why->text);
    snprintf(w->refusal, sizeof(w->refusal), "%s", why->text);
    sh_sleep_ms(w->pause_ms);
}

/* A machine that joined by a token stays lent when its server stops: the next server with this
 * token gets it. That is another group, with numbers of its own and perhaps another model, so
 * nothing is kept of this one but the shard cache, and the memory is free meanwhile. */
static sh_status server_await(struct worker *w, sh_model_group_setup *setup, sh_model_group **mg,
                              sh_err *err)
{
    sh_mesh_opts *mesh = &setup->ranks.opts.mesh;
    SH_LOGI("the server has stopped: this machine waits for the next one with its token, until it "
            "is stopped itself");
    sh_progress(w->settings, "join");
    sh_model_group_close(*mg);
    *mg = NULL;
    mesh->rank = SH_RANK_ANY;
    mesh->last_epoch = mesh->last_left = 0;
    sh_log_set_rank(-1);
    worker_show(w, mesh, 0);
    worker_set_loaded(w, false);
    return sh_model_group_open(&setup->opts, mg, err);
}

/* The weights stay loaded while the group is lost and formed again, where it can be. */
static sh_status work(const sh_settings *s, sh_model_group_setup *setup, struct worker *w,
                      sh_err *err)
{
    sh_model_group *model_group = NULL;
    sh_load_view *view = NULL;
    pthread_t thread;
    w->settings = s;
    w->any_number = setup->ranks.opts.mesh.rank == SH_RANK_ANY;
    pthread_mutex_init(&w->lock, NULL);
    if (pthread_create(&thread, NULL, worker_signal_thread, w) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the signal thread");
    pthread_detach(thread);
    setup->opts.load_board = sh_load_board_create();
    sh_status status = sh_load_view_start(setup->opts.load_board, &view, err);
    if (status == SH_OK) status = sh_p2p_answer(&setup->ranks, s, &w->answerer, err);
    if (status == SH_OK) status = sh_model_group_open(&setup->opts, &model_group, err);
    while (status == SH_OK) {
        status = worker_once(w, s, model_group, &setup->ranks, err);
        if (status == SH_ERR_CONFLICT && !atomic_load(&w->stop)) {
            status = sh_p2p_rename(&setup->ranks, s, err);
            continue;
        }
        if (status == SH_OK && s->p2p && !atomic_load(&w->stop)) {
            status = server_await(w, setup, &model_group, err);
            continue;
        }
        if (status == SH_OK || atomic_load(&w->stop) || !is_transient(w, status)) break;
        if (!sh_group_opts_can_reform(&setup->ranks.opts)) break;
        rejoin_pause(w, err);
        status = SH_OK;
    }
    if (status == SH_OK && !atomic_load(&w->stop)) SH_LOGI("rank 0 has stopped: so does this rank");
    sh_model_group_close(model_group);
    sh_load_view_stop(view);
    sh_load_board_free(setup->opts.load_board);
    sh_answerer_stop(w->answerer);
    return atomic_load(&w->stop) ? SH_OK : status;
}

static int run(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    static struct worker w; /* its signal thread may live longer than this call */
    signals_block(&w.signals);
    sh_progress_beat(s);
    sh_model_group_setup setup;
    sh_status status = setup_init(&setup, args, &err);
    if (status == SH_OK && setup.ranks.opts.mesh.rank > 0)
        status = work(s, &setup, &w, &err);
    else if (status == SH_OK && s->socket == NULL)
        status = sh_err_set(&err, SH_ERR_INPUT, "engine needs --socket PATH");
    else if (status == SH_OK)
        status = coordinate(s, &setup, &w.signals, &err);
    if (status == SH_OK) return SH_EXIT_OK;
    sh_progress_failed(s, &err);
    return sh_command_fail(&err);
}

static int engine_run(const sh_command_args *args)
{
    return sh_ranks_must_spawn(args) ? sh_ranks_spawn(args) : run(args);
}

const sh_command sh_command_engine = {
    SH_COMMAND_NAMED(engine),
    .summary = "load a model and answer on a Unix socket, without HTTP",
    .details = "The computing half of `shoal serve`. Run `shoal api` in front of it to speak HTTP.",
    .run = engine_run,
};
