/* Two queues: jobs go to the thread through `todo` and come back through `finished`, and a trigger
 * wakes the loop. `open` counts both and bounds them, so a finished job always has a place to go
 * and the thread never waits for the loop. */
#include "api/text_worker.h"

#include "base/alloc.h"
#include "base/queue.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MAX = 256 };

typedef struct {
    sh_text_worker_fn run;
    sh_text_worker_fn done;
    void *arg;
} job;

struct sh_text_worker {
    sh_queue *todo;
    sh_queue *finished; /* has space for all open jobs */
    sh_trigger *wake;
    pthread_t thread;
    bool started;
    atomic_bool stopping;
    size_t open; /* submitted and not done yet; used by the loop only */
};

/* When stopping, jobs that have not run are passed through, so that their owners can free them. */
static void *work(void *arg)
{
    sh_text_worker *worker = arg;
    job next;
    while (sh_queue_pop(worker->todo, &next, SH_DEADLINE_NEVER) == SH_OK) {
        if (!atomic_load_explicit(&worker->stopping, memory_order_relaxed)) next.run(next.arg);
        sh_status pushed = sh_queue_push(worker->finished, &next);
        SH_ASSERT(pushed == SH_OK);
        sh_trigger_poke(worker->wake);
    }
    return NULL;
}

static void on_wake(void *arg)
{
    sh_text_worker *worker = arg;
    job next;
    while (sh_queue_pop(worker->finished, &next, 0) == SH_OK) {
        worker->open--;
        next.done(next.arg);
    }
}

sh_status sh_text_worker_start(sh_loop *loop, sh_text_worker **out, sh_err *err)
{
    sh_text_worker *worker = sh_alloc(sizeof(*worker));
    worker->todo = sh_queue_create(JOBS_MAX, sizeof(job));
    worker->finished = sh_queue_create(JOBS_MAX, sizeof(job));
    sh_status status = sh_trigger_wake(loop, on_wake, worker, &worker->wake, err);
    if (status == SH_OK) {
        int failed = pthread_create(&worker->thread, NULL, work, worker);
        worker->started = failed == 0;
        if (failed != 0)
            status = sh_err_set(err, SH_ERR_SYSTEM, "cannot start a thread: %s", strerror(failed));
    }
    if (status != SH_OK) {
        sh_text_worker_stop(worker);
        return status;
    }
    *out = worker;
    return SH_OK;
}

sh_status sh_text_worker_submit(sh_text_worker *worker, sh_text_worker_fn run,
                                sh_text_worker_fn done, void *arg)
{
    if (worker->open == JOBS_MAX) return SH_AGAIN;
    sh_status status = sh_queue_push(worker->todo, &(job){.run = run, .done = done, .arg = arg});
    if (status == SH_OK) worker->open++;
    return status;
}

/* Closing the queue ends the thread after it has drained; on_wake() then hands back the rest, which
 * the loop will not do any more. */
void sh_text_worker_stop(sh_text_worker *worker)
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
