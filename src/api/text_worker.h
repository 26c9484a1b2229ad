/* text_worker.h - a thread that takes long work off the loop.
 *
 * A prompt of a megabyte takes longer to tokenize than streams may wait, so such work is done here,
 * one job after the other. A job is a pointer of the caller's with two functions: `run` is called
 * with it on the thread, then `done` on the loop.
 *
 * Threads: submit and free from the loop; run on the worker's thread. */
#ifndef SH_API_TEXT_WORKER_H
#define SH_API_TEXT_WORKER_H

#include "base/status.h"
#include "http/loop.h"

typedef struct sh_text_worker sh_text_worker;

typedef void (*sh_text_worker_fn)(void *job);

SH_MUST_CHECK sh_status sh_text_worker_start(sh_loop *loop, sh_text_worker **out, sh_err *err);

/* SH_OK, or SH_AGAIN when too many jobs wait. */
SH_MUST_CHECK sh_status sh_text_worker_submit(sh_text_worker *worker, sh_text_worker_fn run,
                                              sh_text_worker_fn done, void *job);

/* Waits for the job in work; calls done for all that were submitted, run or not. */
void sh_text_worker_stop(sh_text_worker *worker);

#endif
