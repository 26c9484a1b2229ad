/* pool.h - a fixed-size fork-join thread pool.
 *
 * sh_pool_run calls fn on the caller, as thread 0, and on every worker that arrives before thread 0
 * is done; it returns when all of those are done. There is no guarantee that every worker takes
 * part: fn must cut the work into more pieces than there are threads and take them one by one, for
 * instance with sh_pool_next, until none are left. That way a descheduled worker delays only the
 * piece it holds, and nothing if it holds none.
 *
 * Workers spin for some microseconds, since the next op of a forward pass follows at once, then
 * sleep, so that an idle or overcommitted machine is not kept busy.
 *
 * Threads: one owner calls run; fn runs on all. While the workers spin, run takes no lock; it never
 * allocates. */
#ifndef SH_BASE_POOL_H
#define SH_BASE_POOL_H

#include "base/status.h"

#include <stddef.h>

typedef struct sh_pool sh_pool;

/* `thread` is 0..threads-1. */
typedef void (*sh_pool_fn)(void *arg, int thread, int threads);

/* threads is 1..SH_POOL_THREADS_MAX and includes the caller. */
enum { SH_POOL_THREADS_MAX = 256 };
SH_MUST_CHECK sh_status sh_pool_create(int threads, sh_pool **out, sh_err *err);
void sh_pool_free(sh_pool *pool);
int sh_pool_threads(const sh_pool *pool);

void sh_pool_run(sh_pool *pool, sh_pool_fn fn, void *arg);

/* Inside a run: the next piece number, counting from 0 in each run. */
size_t sh_pool_next(sh_pool *pool);

/* The number of CPUs in this process's affinity mask. */
int sh_cpu_count(void);

/* The CPU that the calling thread runs on; -1 if unknown. */
int sh_cpu_now(void);

#endif
