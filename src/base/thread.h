/* thread.h - starts threads that take no signals.
 *
 * A signal to the process is handled by any thread that does not block it. Ours block all: handlers
 * belong to the main thread, or to the program that this code is a library of, whose own threads
 * then run them and see their calls interrupted.
 *
 * Threads: safe from anywhere. */
#ifndef SH_BASE_THREAD_H
#define SH_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create: 0, or an error number. */
int sh_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg);

#endif
