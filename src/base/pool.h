/* pool.h - a fixed team of threads that runs one piece of work at a time (fork-join).
 *
 * sh_pool_run calls fn on every thread of the team, the caller being thread 0, and returns when
 * all are done. Waiting spins for some microseconds, since the next piece of a forward pass
 * follows at once, then sleeps, so that an idle or crowded machine is not held up.
 *
 * Work that is cut finer than the team takes its pieces from sh_pool_next: a thread that the
 * system has put aside then holds up one piece, not its whole share.
 *
 * Threads: one owner calls run; fn runs on all. No allocation and no lock in run while the team
 * spins. */
#ifndef SH_BASE_POOL_H
#define SH_BASE_POOL_H

#include "base/status.h"

#include <stddef.h>

typedef struct sh_pool sh_pool;

/* `thread` is 0..threads-1. */
typedef void (*sh_pool_fn)(void *arg, int thread, int threads);

/* threads 1..SH_POOL_THREADS_MAX, the caller counted. Fails when the system gives no thread. */
enum { SH_POOL_THREADS_MAX = 256 };
SH_MUST_CHECK sh_status sh_pool_create(int threads, sh_pool **out, sh_err *err);
void sh_pool_free(sh_pool *pool);
int sh_pool_threads(const sh_pool *pool);

void sh_pool_run(sh_pool *pool, sh_pool_fn fn, void *arg);

/* Inside a run: the next piece number, counting up from 0 in this run. */
size_t sh_pool_next(sh_pool *pool);

/* Inside a run: all threads meet here. Also sets sh_pool_next back to 0. */
void sh_pool_meet(sh_pool *pool);

/* How many processors this process may use. */
int sh_cpu_count(void);

#endif
