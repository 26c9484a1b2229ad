/* What becomes of the KV cache when a group re-forms: it is kept if every rank still has it, and
 * never described by a book of blocks that was made for other memory. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/model_group_internal.h"

#include "unit/engine/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT = 200, ANSWER = 24, PEER_MS = 400, WAIT_MS = 120000 };

static int32_t answer[ANSWER];
static sh_event end;
static atomic_int got, ended;

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_TOKEN && atomic_load(&got) < ANSWER)
        answer[atomic_fetch_add(&got, 1)] = event->token;
    if (event->kind != SH_EVENT_DONE && event->kind != SH_EVENT_ERROR) return;
    end = *event;
    atomic_store(&ended, 1);
}

static sh_group_opts group_of(int rank, const char *where, int fd)
{
    sh_group_opts opts = group_opts(rank, 2, where, fd, NULL);
    opts.silence_ms = PEER_MS;
    return opts;
}

/* Cuts all connections of this process. */
static void connections_cut(void)
{
    for (int fd = 3; fd < 256; fd++) shutdown(fd, SHUT_RDWR);
}

static const sh_ops *real;
static sh_ops ops;

static sh_status map_then_cut(sh_device *dev, size_t bytes, const char *what, void **out,
                              sh_err *err)
{
    sh_status status = real->map(dev, bytes, what, out, err);
    if (strcmp(what, "KV blocks") != 0) return status;
    connections_cut();
    dev->ops = real;
    return status;
}

/* A rank that joins again with what it has, as `shoal worker` does. `cut`: it loses its connections
 * when it has reserved its first KV blocks. */
static void worker(const sh_model_group_opts *opts, const char *where, bool cut)
{
    sh_err err;
    sh_model_group *mg = NULL;
    sh_status status = sh_model_group_open(opts, &mg, &err);
    if (status == SH_OK && cut) {
        real = mg->dev->ops;
        ops = *real;
        ops.map = map_then_cut;
        mg->dev->ops = &ops;
    }
    if (status != SH_OK) _exit(1);
    sh_group_opts own = group_of(1, where, -1);
    rank_run_again(mg, &own, WAIT_MS);
}

static pid_t worker_start(const sh_model_group_opts *opts, const char *where, int listener,
                          bool cut, bool later)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    close(listener);
    if (later) raise(SIGSTOP);
    sh_model_group_opts own = *opts;
    own.draws = sh_engine_draws(own.slots);
    worker(&own, where, cut);
    _exit(1);
}

/* The same request each time; returns how many tokens of its prompt came from the cache. */
static int ask(sh_engine *engine, int32_t out[ANSWER])
{
    static uint64_t id;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = 10 + i * 7 % 900;
    sh_sequence_spec q = {.id = ++id,
                          .prompt = prompt,
                          .prompt_count = PROMPT,
                          .max_tokens = ANSWER,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = 1;
    q.sampling.seed = 5;
    atomic_store(&got, 0);
    atomic_store(&ended, 0);
    engine_ask(engine, &q);
    sh_deadline limit = sh_deadline_in_ms(WAIT_MS);
    while (!atomic_load(&ended) && !sh_deadline_passed(limit)) sh_sleep_ms(2);
    assert_true(atomic_load(&ended));
    assert_int_equal(end.kind, SH_EVENT_DONE);
    assert_int_equal(atomic_load(&got), ANSWER);
    memcpy(out, answer, sizeof(answer));
    return end.cached_tokens;
}

static const sh_model_group_opts DEMO = {.model_dir = "models/demo",
                                         .device_opts = {.threads = 1},
                                         .kv_format = SH_KV_F16,
                                         .kv_tokens = 2048,
                                         .slots = 2,
                                         .chunk = 64};

TEST(a_rank_that_comes_back_alive_keeps_the_cache_and_a_new_one_does_not)
{
    UNUSED_STATE;
    char where[SH_ADDR_TEXT_MAX];
    sh_err err;
    sh_engine *engine;
    int32_t want[ANSWER], again[ANSWER];
    sh_engine_opts opts = {.model_group = DEMO, .queue_max = 10, .stall_s = 0.2};
    opts.model_group.device = test_device();
    sh_group_opts own = group_of(0, where, listen_somewhere(where));
    pid_t pid = worker_start(&opts.model_group, where, own.mesh.listen_fd, false, false);
    pid_t next = worker_start(&opts.model_group, where, own.mesh.listen_fd, false, true);
    opts.group = &own;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    assert_int_equal(ask(engine, want), 0);

    kill(pid, SIGSTOP); /* until the others have given it up */
    await_state(engine, false, WAIT_MS);
    kill(pid, SIGCONT);
    await_state(engine, true, WAIT_MS);
    assert_int_equal(ask(engine, again), PROMPT / SH_KV_BLOCK * SH_KV_BLOCK);
    assert_memory_equal(again, want, sizeof(want));

    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    await_state(engine, false, WAIT_MS);
    kill(next, SIGCONT);
    await_state(engine, true, WAIT_MS);
    assert_int_equal(ask(engine, again), 0);
    assert_memory_equal(again, want, sizeof(want));

    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    int status = -1;
    assert_int_equal(waitpid(next, &status, 0), next);
    assert_int_equal(status, 0);
    close(own.mesh.listen_fd);
}

TEST(a_join_that_failed_after_reserving_blocks_leaves_their_number_with_them)
{
    UNUSED_STATE;
    char where[SH_ADDR_TEXT_MAX];
    sh_err err;
    sh_model_group *mg;
    sh_model_group_opts opts = DEMO;
    opts.device = test_device();
    int fd = listen_somewhere(where);
    pid_t pid = worker_start(&opts, where, fd, true, false);
    opts.draws = sh_engine_draws(opts.slots);
    CHECK_OK(sh_model_group_open(&opts, &mg, &err), err);
    uint64_t epochs[2];
    for (int i = 0; i < 2; i++) {
        sh_group *group;
        sh_group_opts g = group_of(0, where, dup(fd));
        CHECK_OK(sh_group_open(&g, &group, &err), err);
        epochs[i] = sh_group_epoch(group);
        /* Whether this rank hears of the cut before it is done with the first one is chance. */
        sh_status status = sh_model_group_join(mg, group, &err);
        if (i == 1) CHECK_OK(status, err);
        if (i == 1) CHECK_OK(sh_model_group_stop(mg, &err), err);
        sh_group_close(group);
    }
    assert_int_equal(sh_model_group_limits(mg)->blocks, 2048 / SH_KV_BLOCK);
    assert_int_equal(sh_model_group_context(mg), 2048);
    assert_true(sh_model_group_kv_epoch(mg) == epochs[0] ||
                sh_model_group_kv_epoch(mg) == epochs[1]);
    sh_model_group_close(mg);
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(fd);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_comes_back_alive_keeps_the_cache_and_a_new_one_does_not),
        cmocka_unit_test(a_join_that_failed_after_reserving_blocks_leaves_their_number_with_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
