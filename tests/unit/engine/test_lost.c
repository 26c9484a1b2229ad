/* What an engine still does after a rank was lost, while the group re-forms. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"

#include "unit/engine/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOON_MS = 500 };

static atomic_int tokens, errors, told_lost, told_ready;
static char error_text[SH_ERR_TEXT_MAX];

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_TOKEN) atomic_fetch_add(&tokens, 1);
    if (event->kind == SH_EVENT_ERROR) {
        memcpy(error_text, event->error.text, sizeof(error_text));
        atomic_fetch_add(&errors, 1);
    }
    if (event->kind != SH_EVENT_STATS) return;
    bool ready = strstr(event->stats.ptr, "\"ready\":true") != NULL;
    atomic_fetch_add(ready ? &told_ready : &told_lost, 1);
}

static bool comes(atomic_int *what, int least, int wait_ms)
{
    sh_deadline end = sh_deadline_in_ms(wait_ms);
    while (atomic_load(what) < least && !sh_deadline_passed(end)) sh_sleep_ms(2);
    return atomic_load(what) >= least;
}

/* Forked before there are threads, since fork and threads do not mix; the one needed later is
 * stopped until SIGCONT. */
static pid_t worker_start(const sh_engine_opts *opts, const char *where, bool later)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (later) raise(SIGSTOP);
    sh_group_opts own = group_opts(1, 2, where, -1, NULL);
    rank_run(&opts->model_group, &own);
    return pid;
}

static void ask(sh_engine *engine)
{
    static const int32_t prompt[] = {1, 2, 3};
    sh_sequence_spec q = {.id = 7,
                          .prompt = prompt,
                          .prompt_count = SH_COUNT_OF(prompt),
                          .max_tokens = 1900,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    engine_ask(engine, &q);
}

TEST(stats_and_cancels_are_answered_while_the_group_re_forms)
{
    UNUSED_STATE;
    char where[SH_ADDR_TEXT_MAX];
    sh_err err;
    sh_engine *engine;
    sh_group_opts own = group_opts(0, 2, where, listen_somewhere(where), NULL);
    sh_engine_opts opts = {.model_group = {.model_dir = "models/demo",
                                           .device = test_device(),
                                           .device_opts = {.threads = 1},
                                           .kv_format = SH_KV_F16,
                                           .slots = 2,
                                           .chunk = 64},
                           .queue_max = 10,
                           .stall_s = 0.2};
    pid_t pid = worker_start(&opts, where, false), next = worker_start(&opts, where, true);
    opts.group = &own;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    ask(engine);
    assert_true(comes(&tokens, 5, 20000));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(comes(&errors, 1, 10000));
    assert_non_null(strstr(error_text, "rank 1"));
    while (sh_engine_info_of(engine).ready) sh_sleep_ms(1);
    sh_sleep_ms(300); /* by now the engine's thread is waiting for the rank */

    int64_t start = sh_clock_ns();
    int before = atomic_load(&told_lost);
    sh_engine_cancel(engine, 1, 7);
    sh_engine_ask_stats(engine, 1);
    assert_true(comes(&told_lost, before + 1, SOON_MS));
    assert_true(sh_clock_ns() - start < SOON_MS * INT64_C(1000000));

    kill(next, SIGCONT);
    sh_deadline end = sh_deadline_in_ms(30000);
    while (!sh_engine_info_of(engine).ready && !sh_deadline_passed(end)) sh_sleep_ms(10);
    sh_engine_ask_stats(engine, 1);
    assert_true(comes(&told_ready, 1, 10000));
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    int status = -1;
    assert_int_equal(waitpid(next, &status, 0), next);
    assert_int_equal(status, 0);
    close(own.mesh.listen_fd);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stats_and_cancels_are_answered_while_the_group_re_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
