#include "api/worker.h"

#include "base/alloc.h"
#include "base/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MAX = 256 };

struct sh_worker {
    sh_worker_fn run;
    sh_worker_fn done;
    sh_queue *todo;
    sh_queue *finished; /* as large as todo, with room for the one in work */
    sh_trigger *wake;
    pthread_t thread;
    bool started;
    atomic_bool stopping;
    size_t open; /* submitted and not yet done; the loop's */
};

static void *work(void *arg)
{
    sh_worker *worker = arg;
    void *job;
    while (sh_queue_pop(worker->todo, &job, SH_DEADLINE_NEVER) == SH_OK) {
        if (!atomic_load_explicit(&worker->stopping, memory_order_relaxed)) worker->run(job);
        sh_status pushed = sh_queue_push(worker->finished, &job);
        SH_ASSERT(pushed == SH_OK);
        sh_trigger_poke(worker->wake);
    }
    return NULL;
}

static void on_wake(void *arg)
{
    sh_worker *worker = arg;
    void *job;
    while (sh_queue_pop(worker->finished, &job, 0) == SH_OK) {
        worker->open--;
        worker->done(job);
    }
}

sh_status sh_worker_start(sh_loop *loop, sh_worker_fn run, sh_worker_fn done, sh_worker **out,
                          sh_err *err)
{
    sh_worker *worker = sh_alloc(sizeof(*worker));
    worker->run = run;
    worker->done = done;
    worker->todo = sh_queue_create(JOBS_MAX, sizeof(void *));
    worker->finished = sh_queue_create(JOBS_MAX, sizeof(void *));
    sh_status status = sh_trigger_wake(loop, on_wake, worker, &worker->wake, err);
    if (status == SH_OK) {
        int failed = pthread_create(&worker->thread, NULL, work, worker);
        worker->started = failed == 0;
        if (failed != 0) status = sh_err_set(err, SH_ERR_SYSTEM, "no thread: %s", strerror(failed));
    }
    if (status != SH_OK) {
        sh_worker_stop(worker);
        return status;
    }
    *out = worker;
    return SH_OK;
}

sh_status sh_worker_submit(sh_worker *worker, void *job)
{
    if (worker->open == JOBS_MAX) return SH_AGAIN;
    sh_status status = sh_queue_push(worker->todo, &job);
    if (status == SH_OK) worker->open++;
    return status;
}

void sh_worker_stop(sh_worker *worker)
{
    if (worker == NULL) return;
    atomic_store_explicit(&worker->stopping, true, memory_order_relaxed);
    sh_queue_close(worker->todo);
    if (worker->started) pthread_join(worker->thread, NULL);
    on_wake(worker);
    sh_trigger_free(worker->wake);
    sh_queue_free(worker->todo);
    sh_queue_free(worker->finished);
    free(worker);
}
