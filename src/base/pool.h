/* pool.h - a fixed team of threads that runs one piece of work at a time (fork-join).
 *
 * sh_pool_run calls fn on thread 0, the caller, and on every other thread of the team that is there
 * before thread 0 is done, and returns when all who came are done: work is cut finer than the team
 * and each takes pieces (of sh_pool_next, say) until there are none. So a thread that the system
 * has put aside holds up the piece it has, and none if it has none.
 *
 * Waiting spins for some microseconds, since the next piece of a forward pass follows at once, then
 * sleeps, so that an idle or crowded machine is not held up.
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

/* How many processors this process may use. */
int sh_cpu_count(void);

/* The processor that the calling thread runs on; -1: the system does not say. */
int sh_cpu_now(void);

#endif
