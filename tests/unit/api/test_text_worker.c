#include "api/text_worker.h"

#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static sh_loop *loop;
static pthread_t loop_thread;
static atomic_int runs;
static int dones;

typedef struct {
    int number;
    bool ran;
} job;

static job jobs[300];

static void run(void *arg)
{
    job *j = arg;
    assert_false(pthread_equal(pthread_self(), loop_thread));
    j->ran = true;
    atomic_fetch_add(&runs, 1);
}

static void done(void *arg)
{
    job *j = arg;
    assert_true(pthread_equal(pthread_self(), loop_thread));
    assert_int_equal(j->number, dones);
    if (++dones == 10) sh_loop_stop(loop);
}

TEST(runs_jobs_in_order_and_hands_them_back_to_the_loop)
{
    UNUSED_STATE;
    sh_err err;
    sh_text_worker *worker = NULL;
    loop_thread = pthread_self();
    CHECK_OK(sh_loop_create(&loop, &err), err);
    CHECK_OK(sh_text_worker_start(loop, &worker, &err), err);
    for (int i = 0; i < 10; i++) {
        jobs[i].number = i;
        assert_int_equal(sh_text_worker_submit(worker, run, done, &jobs[i]), SH_OK);
    }
    sh_loop_run(loop);
    assert_int_equal(dones, 10);
    for (int i = 0; i < 10; i++) assert_true(jobs[i].ran);
    sh_text_worker_stop(worker);
    sh_loop_free(loop);
}

static void run_slowly(void *arg)
{
    usleep(1000);
    run(arg);
}

static void count(void *arg)
{
    (void)arg;
    dones++;
}

TEST(refuses_when_full_and_hands_all_jobs_back_when_stopped)
{
    UNUSED_STATE;
    sh_err err;
    sh_text_worker *worker = NULL;
    int taken = 0;
    dones = 0;
    CHECK_OK(sh_loop_create(&loop, &err), err);
    CHECK_OK(sh_text_worker_start(loop, &worker, &err), err);
    while (taken < 300 && sh_text_worker_submit(worker, run_slowly, count, &jobs[taken]) == SH_OK)
        taken++;
    assert_int_equal(taken, 256);
    sh_text_worker_stop(worker);
    assert_int_equal(dones, taken);
    sh_loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_jobs_in_order_and_hands_them_back_to_the_loop),
        cmocka_unit_test(refuses_when_full_and_hands_all_jobs_back_when_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
