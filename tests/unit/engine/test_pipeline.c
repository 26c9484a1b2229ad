/* A pipeline of two processes under a load that fills every buffer between them. */
#include "engine/engine.h"

#include "base/log.h"

#include "unit/engine/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = SLOW ? 20 : 300, PROMPT = SLOW ? 200 : 900, TOKENS = 12 };

static atomic_int finished, failed;
static atomic_int_least64_t reported; /* tokens that rank 1 has run, from its last report */
static char error_text[SH_ERR_TEXT_MAX];

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_DONE) atomic_fetch_add(&finished, 1);
    if (event->kind == SH_EVENT_ERROR) {
        memcpy(error_text, event->error.text, sizeof(error_text));
        atomic_fetch_add(&failed, 1);
    }
    if (event->kind != SH_EVENT_STATS) return;
    const char *rank = strstr(event->stats.ptr, "\"rank\":1,");
    const char *tokens = rank == NULL ? NULL : strstr(rank, "\"tokens\":");
    if (tokens != NULL) atomic_store(&reported, strtoll(tokens + 9, NULL, 10));
}

static sh_engine_opts engine_opts(void)
{
    return (sh_engine_opts){.model_group = {.model_dir = "models/demo",
                                            .device = test_device(),
                                            .device_opts = {.threads = 1},
                                            .kv_format = SH_KV_F16,
                                            .stages = 2,
                                            .slots = SLOTS,
                                            .chunk = 2048,
                                            .kv_tokens = 20000},
                            .queue_max = 1000,
                            .stall_s = 10};
}

static pid_t worker_start(const char *where, int silence_ms)
{
    sh_engine_opts opts = engine_opts();
    sh_group_opts own = group_opts(1, 2, where, -1, NULL);
    own.silence_ms = silence_ms;
    return rank_start(&opts.model_group, &own);
}

static void ask(sh_engine *engine, uint64_t id, int count, int most)
{
    int32_t prompt[PROMPT];
    for (int i = 0; i < count; i++) prompt[i] = (i * 31 + (int)id) % 4000;
    sh_sequence_spec q = {.id = id,
                          .prompt = prompt,
                          .prompt_count = (size_t)count,
                          .max_tokens = most,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = 1;
    q.sampling.top_p = 0.95; /* needs all candidates of a summary */
    engine_ask(engine, &q);
}

struct world {
    sh_group_opts own;
    char where[SH_ADDR_TEXT_MAX];
    sh_engine *engine;
    pid_t pid;
};

static void world_open(struct world *w)
{
    sh_err err;
    sh_engine_opts opts = engine_opts();
    int fd = listen_somewhere(w->where);
    w->own = group_opts(0, 2, w->where, fd, NULL);
    w->own.op_ms = SLOW ? 60000 : 20000;
    w->own.silence_ms = SLOW ? 20000 : 5000; /* other tests run at the same time */
    w->pid = worker_start(w->where, w->own.silence_ms);
    opts.group = &w->own;
    CHECK_OK(sh_engine_open(&opts, &w->engine, &err), err);
    CHECK_OK(sh_engine_start(w->engine, sink, NULL, &err), err);
    atomic_store(&finished, 0);
    atomic_store(&failed, 0);
}

static void world_close(struct world *w)
{
    int status = -1;
    sh_engine_stop(w->engine, 100);
    sh_engine_close(w->engine);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_int_equal(status, 0);
    close(w->own.mesh.listen_fd);
}

TEST(summaries_and_hidden_states_do_not_block_each_other)
{
    UNUSED_STATE;
    struct world w;
    world_open(&w);
    for (int i = 1; i < SLOTS; i++) ask(w.engine, (uint64_t)i, 4, TOKENS);
    ask(w.engine, SLOTS, PROMPT, 2);
    sh_deadline end = sh_deadline_in_ms(150000);
    while (atomic_load(&finished) + atomic_load(&failed) < SLOTS && !sh_deadline_passed(end))
        sh_sleep_ms(5);
    if (atomic_load(&failed) > 0) fail_msg("%d failed: %s", atomic_load(&failed), error_text);
    assert_int_equal(atomic_load(&finished), SLOTS);
    world_close(&w);
}

TEST(ranks_report_while_a_pipeline_is_busy)
{
    UNUSED_STATE;
    struct world w;
    world_open(&w);
    for (int i = 1; i <= 8; i++) ask(w.engine, (uint64_t)i, 20, 2000);
    sh_deadline end = sh_deadline_in_ms(60000);
    int64_t first = 0;
    while (!sh_deadline_passed(end)) { /* until two reports came, the second of later work */
        sh_engine_ask_stats(w.engine, 1);
        sh_sleep_ms(50);
        int64_t now = atomic_load(&reported);
        if (first == 0) first = now;
        if (now > first) break;
    }
    assert_int_equal(atomic_load(&finished), 0); /* it was busy the whole time */
    assert_true(first > 0 && atomic_load(&reported) > first);
    world_close(&w);
}

/* The group's timeouts apply again after loading: a frozen rank is given up on after silence_ms. */
TEST(a_frozen_rank_is_noticed_within_the_configured_time)
{
    UNUSED_STATE;
    enum { SILENCE_MS = 5000, USUAL_MS = 2000 };
    struct world w;
    sh_err err;
    sh_engine_opts opts = engine_opts();
    w.own = group_opts(0, 2, w.where, listen_somewhere(w.where), NULL);
    w.own.silence_ms = SILENCE_MS;
    w.pid = worker_start(w.where, SILENCE_MS);
    opts.group = &w.own;
    CHECK_OK(sh_engine_open(&opts, &w.engine, &err), err);
    CHECK_OK(sh_engine_start(w.engine, sink, NULL, &err), err);
    sh_sleep_ms(500); /* until the other rank has also loaded */
    kill(w.pid, SIGSTOP);
    sh_sleep_ms(USUAL_MS + 1500);
    bool patient = sh_engine_info_of(w.engine).ready;
    sh_deadline end = sh_deadline_in_ms(SILENCE_MS);
    while (sh_engine_info_of(w.engine).ready && !sh_deadline_passed(end)) sh_sleep_ms(5);
    bool noticed = !sh_engine_info_of(w.engine).ready;
    kill(w.pid, SIGKILL);
    waitpid(w.pid, NULL, 0);
    sh_engine_close(w.engine);
    close(w.own.mesh.listen_fd);
    assert_true(patient);
    assert_true(noticed);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(summaries_and_hidden_states_do_not_block_each_other),
        cmocka_unit_test(ranks_report_while_a_pipeline_is_busy),
        cmocka_unit_test(a_frozen_rank_is_noticed_within_the_configured_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
