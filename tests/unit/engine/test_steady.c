/* A decode step allocates nothing, on any rank: calls of malloc and its relatives are counted in
 * the whole process, including those made inside the C library. */
#include "engine/engine.h"

#include "base/clock.h"
#include "base/log.h"

#include "unit/engine/ranks.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_long allocations;
static atomic_bool counting;

#if defined(__GLIBC__) && !HAS_ASAN && !HAS_TSAN
enum { COUNTED = 1 };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);

static void count(void)
{
    if (atomic_load_explicit(&counting, memory_order_relaxed)) atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t size)
{
    count();
    return __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    count();
    return __libc_calloc(number, size);
}

void *realloc(void *ptr, size_t size)
{
    count();
    return __libc_realloc(ptr, size);
}
#else
enum { COUNTED = 0 };
#endif

enum { REQUESTS = 6, WARM = 12, END = 80, TOKENS = COUNTED ? 100 : 20 };

static int got[REQUESTS];
static atomic_int done;

/* Allocations are counted while all answers are between their tokens WARM and END. */
static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    if (event->kind == SH_EVENT_PROGRESS) return;
    if (event->kind != SH_EVENT_TOKEN) {
        atomic_fetch_add(&done, event->kind == SH_EVENT_DONE ? 1 : 100);
        return;
    }
    got[event->id]++;
    int least = got[0], most = got[0];
    for (int i = 1; i < REQUESTS; i++) {
        least = got[i] < least ? got[i] : least;
        most = got[i] > most ? got[i] : most;
    }
    atomic_store(&counting, least >= WARM && most < END);
}

static sh_engine_opts engine_opts(int stages)
{
    return (sh_engine_opts){.model_group = {.model_dir = "models/demo",
                                            .device = test_device(),
                                            .device_opts = {.threads = 1},
                                            .kv_format = SH_KV_F16,
                                            .stages = stages,
                                            .context = 512,
                                            .slots = 8,
                                            .chunk = 128},
                            .queue_max = 100,
                            .stall_s = 0.2,
                            .drafts = 4};
}

/* Covers every way to draw. */
static void ask(sh_engine *engine, int i)
{
    static const int32_t prompt[] = {11, 12, 13, 11, 12, 14, 11, 12};
    sh_sequence_spec q = {.id = (uint64_t)i,
                          .prompt = prompt,
                          .prompt_count = SH_COUNT_OF(prompt),
                          .max_tokens = TOKENS,
                          .logprobs = i % 3 == 0 ? 3 : -1,
                          .sampling = sh_sampling_default()};
    if (i >= 1) q.sampling.temperature = 1;
    if (i == 2) q.sampling.top_k = 50;
    if (i == 3) q.sampling.top_p = 0.999;
    if (i == 4) q.sampling.min_p = 0.01;
    if (i == 5) q.sampling.presence_penalty = q.sampling.frequency_penalty = 0.5;
    q.sampling.seed = (uint64_t)i;
    engine_ask(engine, &q);
}

static void answers_check(const sh_engine_opts *opts)
{
    sh_engine *engine;
    sh_err err;
    memset(got, 0, sizeof(got));
    atomic_store(&done, 0);
    atomic_store(&allocations, 0);
    CHECK_OK(sh_engine_open(opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    for (int i = 0; i < REQUESTS; i++) ask(engine, i);
    sh_deadline end = sh_deadline_in_ms(200000);
    while (atomic_load(&done) < REQUESTS && !sh_deadline_passed(end)) sh_sleep_ms(5);
    assert_int_equal(atomic_load(&done), REQUESTS);
    for (int i = 0; i < REQUESTS; i++) assert_int_equal(got[i], TOKENS);
    sh_engine_stop(engine, 1000);
    sh_engine_close(engine);
    if (COUNTED) assert_int_equal(atomic_load(&allocations), 0);
}

TEST(a_decode_step_allocates_nothing)
{
    UNUSED_STATE;
    sh_engine_opts opts = engine_opts(0);
    answers_check(&opts);
}

/* A worker does not know when counting should start, so a few allocations over hundreds of steps
 * are allowed. */
static void worker(const sh_model_group_opts *opts, const sh_group_opts *group_opt)
{
    enum { FEW = 20 };
    sh_err err = {0};
    sh_model_group *model_group = NULL;
    sh_group *group = NULL;
    sh_status status = sh_model_group_open(opts, &model_group, &err);
    if (status == SH_OK) status = sh_group_open(group_opt, &group, &err);
    if (status == SH_OK) status = sh_model_group_join(model_group, group, &err);
    atomic_store(&counting, true);
    if (status == SH_OK) status = sh_model_group_work(model_group, &err);
    atomic_store(&counting, false);
    long made = atomic_load(&allocations);
    if (status != SH_OK || made > FEW)
        fprintf(stderr, "worker: %ld allocations, %s\n", made, err.text);
    _exit(status == SH_OK && made <= FEW ? 0 : 1);
}

/* Without a cluster token, and so without TLS: the TLS library allocates, for heartbeats too. */
static void check_two_ranks(int stages)
{
    char where[SH_ADDR_TEXT_MAX];
    int fd = listen_somewhere(where), status = -1;
    sh_engine_opts opts = engine_opts(stages);
    sh_group_opts own = group_opts(0, 2, where, fd, NULL);
    sh_group_opts other = group_opts(1, 2, where, -1, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd);
        opts.model_group.draws = sh_engine_draws(opts.model_group.slots);
        worker(&opts.model_group, &other);
    }
    opts.group = &own;
    answers_check(&opts);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

TEST(nor_does_one_of_two_ranks_that_share_every_layer)
{
    UNUSED_STATE;
    check_two_ranks(1);
}

TEST(nor_does_a_stage_of_a_pipeline)
{
    UNUSED_STATE;
    check_two_ranks(2);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decode_step_allocates_nothing),
        cmocka_unit_test(nor_does_one_of_two_ranks_that_share_every_layer),
        cmocka_unit_test(nor_does_a_stage_of_a_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
