/* shoal engine: the computing process behind the Unix socket. */
#include "engine/engine.h"

#include "base/log.h"
#include "cmd/command.h"
#include "cmd/compute.h"
#include "engine/door.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static sh_engine_opts engine_opts(const sh_settings *s)
{
    int chunk = sh_engine_draws((int)s->slots) + 1;
    return (sh_engine_opts){
        .crew = {.model_dir = s->model,
                 .cpu = sh_compute_cpu(s),
                 .kv_format = sh_compute_kv(s),
                 .context = (int)s->context,
                 .slots = (int)s->slots,
                 .chunk = s->chunk > chunk ? (int)s->chunk : chunk,
                 .kv_tokens = s->kv_tokens,
                 .memory_reserve = s->kv_reserve_mb << 20},
        .queue_max = (int)s->queue_max,
        .timeout_ms = s->req_timeout * 1000,
        .stall_s = (double)s->stall_ms / 1000,
        .drafts = (int)s->drafts,
    };
}

/* Blocked in every thread, so that one place waits for them. */
static void signals_block(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, set, NULL);
}

static sh_status serve(const sh_settings *s, sh_door *door, sh_engine *engine,
                       const sigset_t *signals, sh_err *err)
{
    sh_status status = sh_engine_start(engine, sh_door_emit, door, err);
    if (status == SH_OK) status = sh_door_start(door, engine, err);
    if (status != SH_OK) return status;
    SH_LOGI("ready on %s", s->socket);
    int got = 0;
    sigwait(signals, &got);
    SH_LOGI("stopping: running answers have %lld s", (long long)s->grace);
    sh_door_drain(door);
    sh_engine_stop(engine, s->grace * 1000);
    return SH_OK;
}

int sh_cmd_engine(const sh_command_args *args)
{
    const sh_settings *s = args->settings;
    sh_err err;
    if (s->model == NULL || s->socket == NULL) {
        fprintf(stderr, "shoal: engine needs --model and --socket\n");
        return SH_EXIT_USAGE;
    }
    sigset_t signals;
    signals_block(&signals);
    sh_engine_opts opts = engine_opts(s);
    sh_door *door = NULL;
    sh_engine *engine = NULL;
    sh_status status = sh_door_open(s->socket, &door, &err);
    if (status == SH_OK) status = sh_engine_open(&opts, &engine, &err);
    if (status == SH_OK) status = serve(s, door, engine, &signals, &err);
    sh_door_close(door);
    sh_engine_close(engine);
    return status == SH_OK ? SH_EXIT_OK : sh_command_fail(&err);
}
