/* A ring under one mutex. Queues carry requests and commands, not tokens of a step, so contention
 * does not matter and a lock is easier to trust than a lock-free ring. Only consumers wait. */
#include "base/queue.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct sh_queue {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t filled;
    size_t cap;
    size_t item_size;
    size_t first;
    size_t count;
    bool closed;
    char *items;
};

sh_queue *sh_queue_create(size_t cap, size_t item_size)
{
    SH_ASSERT(cap > 0);
    sh_queue *q = sh_alloc(sizeof(*q));
    q->cap = cap;
    q->item_size = item_size;
    q->items = sh_alloc_array(cap, item_size);
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
#ifndef __APPLE__ /* which has no such call, but relative waits: see wait_until */
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&q->filled, &attr);
    pthread_condattr_destroy(&attr);
    return q;
}

void sh_queue_free(sh_queue *q)
{
    if (q == NULL) return;
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    free(q->items);
    free(q);
}

sh_status sh_queue_push(sh_queue *q, const void *item)
{
    sh_status status = SH_OK;
    pthread_mutex_lock(&q->lock);
    if (q->closed) {
        status = SH_ERR_CANCELLED;
    } else if (q->count == q->cap) {
        status = SH_AGAIN;
    } else {
        size_t at = (q->first + q->count) % q->cap;
        memcpy(q->items + at * q->item_size, item, q->item_size);
        q->count++;
        pthread_cond_signal(&q->filled);
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

/* Deadlines are on the monotonic clock, so a change of the wall clock must not affect the wait. */
static int wait_until(sh_queue *q, sh_deadline deadline)
{
    if (deadline == SH_DEADLINE_NEVER) return pthread_cond_wait(&q->filled, &q->lock);
#ifdef __APPLE__
    int64_t left = deadline - sh_clock_ns();
    if (left <= 0) return ETIMEDOUT;
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    return pthread_cond_timedwait_relative_np(&q->filled, &q->lock, &t);
#else
    struct timespec t = {.tv_sec = (time_t)(deadline / 1000000000),
                         .tv_nsec = (long)(deadline % 1000000000)};
    return pthread_cond_timedwait(&q->filled, &q->lock, &t);
#endif
}

/* Items that were queued before closing are still delivered; only then SH_ERR_CANCELLED. */
sh_status sh_queue_pop(sh_queue *q, void *item, sh_deadline deadline)
{
    sh_status status = SH_OK;
    pthread_mutex_lock(&q->lock);
    while (q->count == 0 && !q->closed)
        if (wait_until(q, deadline) == ETIMEDOUT) break;
    if (q->count > 0) {
        memcpy(item, q->items + q->first * q->item_size, q->item_size);
        q->first = (q->first + 1) % q->cap;
        q->count--;
    } else {
        status = q->closed ? SH_ERR_CANCELLED : SH_AGAIN;
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

void sh_queue_close(sh_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

size_t sh_queue_count(sh_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t count = q->count;
    pthread_mutex_unlock(&q->lock);
    return count;
}
