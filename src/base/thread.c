#include "base/thread.h"

#include <signal.h>
#include <stddef.h>

/* Faults of the thread itself, which a debugger or a sanitizer may want to handle. */
static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/* A new thread inherits the mask of the one that starts it, so there is no moment in which it takes
 * signals. */
int sh_thread_start(pthread_t *out, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) sigdelset(&all, FAULTS[i]);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
