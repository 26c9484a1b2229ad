/* shoal engine and shoal worker: the processes that compute. Rank 0 serves requests on a Unix
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
#include "cmd/support/model_group_setup.h"
#include "cmd/support/progress.h"
#include "engine/engine_socket.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REJOIN_PAUSE_MS = 100 };

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
    setup->opts.memory_reserve = s->kv_reserve_mb << 20;
    return status;
}

/* Called before any thread starts: all of them inherit the mask. */
static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGUSR2);
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
    sigwait(&stopper->signals, &got);
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
    if (!leave) SH_LOGI("stopping: running answers have %lld s to finish", (long long)s->grace);
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
    sh_engine_opts opts = {.model_group = setup->opts,
                           .group = setup->ranks.opts.mesh.size > 1 ? &setup->ranks.opts : NULL,
                           .queue_max = (int)s->queue_max,
                           .timeout_ms = s->req_timeout * 1000,
                           .stall_s = (double)s->stall_ms / 1000,
                           .drafts = (int)s->drafts,
                           .lost_for_good = stop_request,
                           .lost_ctx = &stopper};
    sh_progress(s, "load");
    sh_engine_socket *engine_socket = NULL;
    sh_engine *engine = NULL;
    sh_status status = stopper_start(&stopper, err);
    if (status != SH_OK) return status;
    status = sh_engine_socket_open(s->socket, &engine_socket, err);
    if (status == SH_OK) status = sh_engine_open(&opts, &engine, err);
    if (status == SH_OK) status = serve(s, engine_socket, engine, &stopper, err);
    sh_engine_socket_close(engine_socket);
    sh_engine_close(engine);
    stopper_stop(&stopper); /* last: the engine's thread may call stop_request until it has ended */
    return status;
}

/* After a signal, a worker that is in a group continues until rank 0 releases it, so that answers
 * can finish; one that is not in a group exits. */
struct worker {
    sigset_t signals;
    atomic_bool working;
    atomic_bool stop;
    bool joined; /* it has been in a group before: its token is right */
};

static void *worker_signal_thread(void *arg)
{
    struct worker *w = arg;
    int got;
    sigwait(&w->signals, &got);
    atomic_store(&w->stop, true);
    if (!atomic_load(&w->working)) _exit(SH_EXIT_OK);
    return NULL;
}

/* One membership in a group: join, work until released or lost, leave. */
static sh_status worker_once(struct worker *w, const sh_settings *s, sh_model_group *model_group,
                             const sh_group_opts *opts, sh_err *err)
{
    sh_group *group = NULL;
    sh_progress(s, "join");
    sh_status status = sh_group_open(opts, &group, err);
    if (status != SH_OK) return status;
    atomic_store(&w->working, true);
    w->joined = true;
    sh_progress(s, "load");
    status = sh_model_group_join(model_group, group, err);
    if (status == SH_OK) {
        SH_LOGI("ready");
        sh_progress(s, "ready");
        sh_progress_ready(s);
        status = sh_model_group_work(model_group, err);
    }
    atomic_store(&w->working, false);
    sh_group_close(group);
    return status;
}

/* Errors that may be gone at the next attempt. A refused token is one of them if it was accepted
 * before: another server may be listening at rank 0's address for the moment. */
static bool is_transient(const struct worker *w, sh_status status)
{
    return status == SH_ERR_GROUP || status == SH_ERR_PEER || status == SH_ERR_TIMEOUT ||
           (status == SH_ERR_AUTH && w->joined);
}

/* The weights stay loaded while the group is lost and formed again, where it can be. */
static sh_status work(const sh_settings *s, const sh_model_group_setup *setup, struct worker *w,
                      sh_err *err)
{
    sh_model_group *model_group = NULL;
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker_signal_thread, w) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the signal thread");
    pthread_detach(thread);
    sh_status status = sh_model_group_open(&setup->opts, &model_group, err);
    while (status == SH_OK) {
        status = worker_once(w, s, model_group, &setup->ranks.opts, err);
        if (status == SH_OK || atomic_load(&w->stop) || !is_transient(w, status)) break;
        if (!sh_group_opts_can_reform(&setup->ranks.opts)) break;
        SH_LOGW("%s; waiting for rank 0", err->text);
        sh_sleep_ms(REJOIN_PAUSE_MS);
        status = SH_OK;
    }
    sh_model_group_close(model_group);
    return atomic_load(&w->stop) ? SH_OK : status;
}

static int run(const sh_command_args *args, bool worker)
{
    const sh_settings *s = args->settings;
    sh_err err;
    struct worker w = {0};
    signals_block(&w.signals);
    sh_progress_beat(s);
    sh_model_group_setup setup;
    sh_status status = setup_init(&setup, args, &err);
    if (status != SH_OK) return sh_command_fail(&err);
    int rank = setup.ranks.opts.mesh.rank;
    if (worker && rank == 0)
        status = sh_err_set(
            &err, SH_ERR_INPUT,
            "a worker is rank 1 or higher: give --rank R with --hostfile or --coordinator");
    else if (rank > 0)
        status = work(s, &setup, &w, &err);
    else if (s->socket == NULL)
        status = sh_err_set(&err, SH_ERR_INPUT, "engine needs --socket PATH");
    else
        status = coordinate(s, &setup, &w.signals, &err);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}

static int engine_run(const sh_command_args *args)
{
    if (sh_ranks_must_spawn(args)) return sh_ranks_spawn(args);
    return run(args, false);
}

const sh_command sh_command_engine = {
    SH_COMMAND_NAMED(engine),
    .summary = "load a model and answer on a Unix socket, without HTTP",
    .details = "The computing half of `shoal serve`. Run `shoal api` in front of it to speak HTTP.",
    .run = engine_run,
};

static int worker_run(const sh_command_args *args)
{
    return run(args, true);
}

const sh_command sh_command_worker = {
    SH_COMMAND_NAMED(worker),
    .summary = "run one of the ranks other than rank 0",
    .details = "Start workers in any order, on any machine. A worker rejoins on its own after the "
               "group is lost.",
    .run = worker_run,
};
