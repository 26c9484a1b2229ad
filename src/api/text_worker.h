/* text_worker.h - a thread that takes long work off the loop.
 *
 * Tokenizing a prompt of a megabyte takes longer than streams may stall, so such work is done here,
 * one job after the other. A job is a pointer of the caller with two functions: `run` is called
 * with it on the worker's thread, then `done` on the loop.
 *
 * Threads: start, submit and stop from the loop. */
#ifndef SH_API_TEXT_WORKER_H
#define SH_API_TEXT_WORKER_H

#include "base/status.h"
#include "http/loop.h"

typedef struct sh_text_worker sh_text_worker;

typedef void (*sh_text_worker_fn)(void *job);

SH_MUST_CHECK sh_status sh_text_worker_start(sh_loop *loop, sh_text_worker **out, sh_err *err);

/* SH_AGAIN when too many jobs are waiting. */
SH_MUST_CHECK sh_status sh_text_worker_submit(sh_text_worker *worker, sh_text_worker_fn run,
                                              sh_text_worker_fn done, void *job);

/* Waits for the job that is running, then calls `done` for all submitted jobs, run or not. */
void sh_text_worker_stop(sh_text_worker *worker);

#endif
