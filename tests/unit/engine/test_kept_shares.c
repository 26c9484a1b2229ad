/* Shares outlive the rank 0 that decided on them; with `rebalance` they follow what was measured.
 */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"
#include "engine/model_group_internal.h"

#include "unit/engine/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROMPT = 40, ANSWER = 24, PEER_MS = 1000, WAIT_MS = 120000, SLOWED = 3 };

static int32_t answer[ANSWER];
static atomic_int got, ended, told;
static char stats[1 << 16];

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_STATS) {
        snprintf(stats, sizeof(stats), "%.*s", (int)event->stats.len, event->stats.ptr);
        atomic_store(&told, 1);
    }
    if (event->kind == SH_EVENT_TOKEN && atomic_load(&got) < ANSWER)
        answer[atomic_fetch_add(&got, 1)] = event->token;
    if (event->kind == SH_EVENT_DONE) atomic_store(&ended, 1);
    if (event->kind == SH_EVENT_ERROR) atomic_store(&ended, -1);
}

static sh_group_opts group_of(int rank, const char *where, int fd)
{
    sh_group_opts opts = group_opts(rank, 2, where, fd, NULL);
    opts.silence_ms = PEER_MS;
    return opts;
}

/* A device whose products take much longer: each is computed several times. */
static const sh_ops *real;
static sh_ops slow_ops;

static void slow_matmul(sh_device *dev, const sh_product *products, int count, sh_tensor x,
                        int tokens)
{
    for (int i = 0; i < SLOWED; i++) real->matmul(dev, products, count, x, tokens);
}

/* Joins again with what it has, as `shoal worker` does. */
static void worker(const sh_model_group_opts *opts, const char *where, bool slow)
{
    sh_err err;
    sh_model_group *mg = NULL;
    sh_status status = sh_model_group_open(opts, &mg, &err);
    if (status != SH_OK) _exit(1);
    if (slow) {
        real = mg->dev->ops;
        slow_ops = *real;
        slow_ops.matmul = slow_matmul;
        mg->dev->ops = &slow_ops;
    }
    sh_group_opts own = group_of(1, where, -1);
    rank_run_again(mg, &own, WAIT_MS);
}

static pid_t worker_start(const sh_model_group_opts *opts, const char *where, int listener,
                          bool slow, bool later)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    close(listener);
    if (later) raise(SIGSTOP);
    sh_model_group_opts own = *opts;
    own.draws = sh_engine_draws(own.slots);
    worker(&own, where, slow);
    _exit(1);
}

static void ask(sh_engine *engine, int tokens)
{
    static uint64_t id;
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = 10 + i * 7 % 900;
    sh_sequence_spec q = {.id = ++id,
                          .prompt = prompt,
                          .prompt_count = PROMPT,
                          .max_tokens = tokens,
                          .min_tokens = tokens,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = 1;
    q.sampling.seed = 5;
    atomic_store(&got, 0);
    atomic_store(&ended, 0);
    engine_ask(engine, &q);
    sh_deadline limit = sh_deadline_in_ms(WAIT_MS);
    while (!atomic_load(&ended) && !sh_deadline_passed(limit)) sh_sleep_ms(2);
    assert_int_equal(atomic_load(&ended), 1);
}

static void tell(sh_engine *engine)
{
    sh_deadline limit = sh_deadline_in_ms(WAIT_MS);
    atomic_store(&told, 0);
    sh_engine_ask_stats(engine, 1);
    while (!atomic_load(&told) && !sh_deadline_passed(limit)) sh_sleep_ms(2);
    assert_true(atomic_load(&told));
}

/* The feed-forward columns of a rank, of 1024. */
static int columns_of(sh_engine *engine, int rank)
{
    char key[32];
    tell(engine);
    snprintf(key, sizeof(key), "{\"rank\":%d,", rank);
    const char *at = strstr(stats, key);
    assert_non_null(at);
    at = strstr(at, "\"ffn\":");
    assert_non_null(at);
    return atoi(at + strlen("\"ffn\":"));
}

static const sh_model_group_opts DEMO = {.model_dir = "models/demo",
                                         .device_opts = {.threads = 1},
                                         .kv_format = SH_KV_F16,
                                         .kv_tokens = 2048,
                                         .slots = 2,
                                         .chunk = 64};

static sh_engine *engine_open(sh_engine_opts *opts, sh_group_opts *own)
{
    sh_err err;
    sh_engine *engine;
    opts->model_group.device = test_device();
    opts->queue_max = 10;
    opts->stall_s = 0.2;
    opts->group = own;
    CHECK_OK(sh_engine_open(opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    return engine;
}

static void engine_end(sh_engine *engine, pid_t rank)
{
    int status = -1;
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    assert_int_equal(waitpid(rank, &status, 0), rank);
    assert_int_equal(status, 0);
}

/* A rank 0 that has other shares than it would measure: it is given them. Writes its answer, and
 * waits to be killed. */
static void first_rank_0(const char *where, int fd, int out)
{
    static const double split[2] = {3, 1};
    sh_engine_opts opts = {.model_group = DEMO};
    sh_group_opts own = group_of(0, where, fd);
    opts.model_group.split = split;
    opts.model_group.split_count = 2;
    sh_engine *engine = engine_open(&opts, &own);
    ask(engine, ANSWER);
    if (write(out, answer, sizeof(answer)) != sizeof(answer)) _exit(1);
    for (;;) pause();
}

TEST(a_new_rank_0_takes_the_shares_that_the_others_remember)
{
    UNUSED_STATE;
    char where[SH_ADDR_TEXT_MAX];
    int fd = listen_somewhere(where), pipe_fds[2];
    int32_t want[ANSWER];
    sh_engine_opts opts = {.model_group = DEMO};
    assert_int_equal(pipe(pipe_fds), 0);
    opts.model_group.device = test_device();
    pid_t rank = worker_start(&opts.model_group, where, fd, false, false);
    pid_t zero = fork();
    if (zero == 0) first_rank_0(where, fd, pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], want, sizeof(want)), sizeof(want));
    kill(zero, SIGKILL);
    waitpid(zero, NULL, 0);

    sh_group_opts own = group_of(0, where, fd);
    sh_engine *engine = engine_open(&opts, &own);
    assert_int_equal(columns_of(engine, 0), 768);
    ask(engine, ANSWER);
    assert_memory_equal(answer, want, sizeof(want));
    engine_end(engine, rank);
    close(fd);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* Some hundred steps with a slow rank, then it is killed. The one that comes in its place gets less
 * of the model, and only if that was asked for. */
static void run_slow(bool rebalance)
{
    /* Where all ranks are slow, none of them is; `make nightly` tries it all the same. */
    if (test_is_short()) skip();
    char where[SH_ADDR_TEXT_MAX];
    int fd = listen_somewhere(where);
    sh_engine_opts opts = {.model_group = DEMO};
    opts.model_group.device = test_device();
    opts.model_group.rebalance = rebalance;
    pid_t rank = worker_start(&opts.model_group, where, fd, true, false);
    pid_t next = worker_start(&opts.model_group, where, fd, true, true);
    sh_group_opts own = group_of(0, where, fd);
    sh_engine *engine = engine_open(&opts, &own);
    assert_int_equal(columns_of(engine, 1), 512);
    ask(engine, 400);
    sh_sleep_ms(600); /* until the ranks may be asked again */
    tell(engine);
    const char *found = strstr(stats, "\"imbalance\":{\"ratio\":1.");
    assert_non_null(found);
    assert_non_null(strstr(found, "\"rank\":1}"));

    kill(rank, SIGKILL);
    waitpid(rank, NULL, 0);
    await_state(engine, false, WAIT_MS);
    kill(next, SIGCONT);
    await_state(engine, true, WAIT_MS);
    int columns = columns_of(engine, 1);
    if (rebalance ? columns > 448 : columns != 512) fail_msg("%d columns", columns);
    ask(engine, ANSWER);
    engine_end(engine, next);
    close(fd);
}

TEST(a_slow_rank_gets_less_when_the_group_re_forms)
{
    UNUSED_STATE;
    run_slow(true);
}

TEST(shares_stay_without_rebalance)
{
    UNUSED_STATE;
    run_slow(false);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_rank_0_takes_the_shares_that_the_others_remember),
        cmocka_unit_test(a_slow_rank_gets_less_when_the_group_re_forms),
        cmocka_unit_test(shares_stay_without_rebalance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
