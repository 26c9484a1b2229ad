/* loop.h - the event loop: file descriptors, timers, signals and wake-ups from other threads.
 *
 * A thin wrapper around libevent, so that the layers above see plain callbacks and no library. A
 * trigger is one source of callbacks; timers and descriptors start disabled. Its owner frees it,
 * which is allowed from inside its own callback.
 *
 * Threads: all of it belongs to the thread that runs the loop, except sh_trigger_poke. */
#ifndef SH_HTTP_LOOP_H
#define SH_HTTP_LOOP_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_loop sh_loop;
typedef struct sh_trigger sh_trigger;

typedef void (*sh_trigger_fn)(void *arg);

SH_MUST_CHECK sh_status sh_loop_create(sh_loop **out, sh_err *err);
void sh_loop_free(sh_loop *loop); /* free all triggers first */

/* Runs callbacks until sh_loop_stop. */
void sh_loop_run(sh_loop *loop);
void sh_loop_stop(sh_loop *loop);

/* Fires once, wait_ms after each sh_trigger_start. */
sh_trigger *sh_trigger_timer(sh_loop *loop, sh_trigger_fn fn, void *arg);
void sh_trigger_start(sh_trigger *timer, int64_t wait_ms);
void sh_trigger_stop(sh_trigger *timer);

/* Fires while fd is ready for what sh_trigger_want asked for last; for nothing at first. The caller
 * owns fd, which must outlive the trigger. */
sh_trigger *sh_trigger_fd(sh_loop *loop, int fd, sh_trigger_fn fn, void *arg);
void sh_trigger_want(sh_trigger *trigger, bool read, bool write);

/* Fires in the loop some time after each signal. */
sh_trigger *sh_trigger_signal(sh_loop *loop, int signal_number, sh_trigger_fn fn, void *arg);

/* Fires in the loop some time after sh_trigger_poke, possibly once for several pokes. */
SH_MUST_CHECK sh_status sh_trigger_wake(sh_loop *loop, sh_trigger_fn fn, void *arg,
                                        sh_trigger **out, sh_err *err);
void sh_trigger_poke(sh_trigger *wake); /* from any thread */

void sh_trigger_free(sh_trigger *trigger);

#endif
