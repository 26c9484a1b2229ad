/* queue.h - a bounded queue of fixed-size items between threads.
 *
 * Items are copied in and out. A push to a full queue returns SH_AGAIN at once: the caller has to
 * handle back-pressure, there is no hidden wait. Closing wakes every waiter; items that are still
 * queued can be popped.
 *
 * Threads: any number of producers and consumers. */
#ifndef SH_BASE_QUEUE_H
#define SH_BASE_QUEUE_H

#include "base/clock.h"
#include "base/status.h"

#include <stddef.h>

typedef struct sh_queue sh_queue;

sh_queue *sh_queue_create(size_t cap, size_t item_size);
void sh_queue_free(sh_queue *queue);

/* SH_OK, SH_AGAIN if full, SH_ERR_CANCELLED if closed. */
SH_MUST_CHECK sh_status sh_queue_push(sh_queue *queue, const void *item);

/* SH_OK, SH_AGAIN if nothing arrived before the deadline, SH_ERR_CANCELLED if closed and empty. */
SH_MUST_CHECK sh_status sh_queue_pop(sh_queue *queue, void *item, sh_deadline deadline);

void sh_queue_close(sh_queue *queue);
size_t sh_queue_count(sh_queue *queue);

#endif
