/* Wrappers around struct event. Triggers of descriptors are recreated when the wanted directions
 * change, since libevent cannot change the events of an existing one. Wake-ups from other threads
 * go through a pipe: a write is the only operation here that is safe outside the loop's thread. */
#include "http/loop_event.h"

#include "base/alloc.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct sh_loop {
    struct event_base *base;
};

struct sh_trigger {
    sh_loop *loop;
    struct event *event;
    sh_trigger_fn fn;
    void *arg;
    int fd;
    int pipe[2]; /* wake: read end, write end */
};

sh_status sh_loop_create(sh_loop **out, sh_err *err)
{
    struct event_base *base = event_base_new();
    if (base == NULL) return sh_err_set(err, SH_ERR_SYSTEM, "cannot create an event loop");
    sh_loop *loop = sh_alloc(sizeof(*loop));
    loop->base = base;
    *out = loop;
    return SH_OK;
}

void sh_loop_free(sh_loop *loop)
{
    if (loop == NULL) return;
    event_base_free(loop->base);
    free(loop);
}

struct event_base *sh_loop_base(const sh_loop *loop)
{
    return loop->base;
}

/* Keeps running without events: other threads may wake the loop later. */
void sh_loop_run(sh_loop *loop)
{
    event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

void sh_loop_stop(sh_loop *loop)
{
    event_base_loopbreak(loop->base);
}

static sh_trigger *trigger_create(sh_loop *loop, sh_trigger_fn fn, void *arg)
{
    sh_trigger *trigger = sh_alloc(sizeof(*trigger));
    *trigger = (sh_trigger){.loop = loop, .fn = fn, .arg = arg, .fd = -1, .pipe = {-1, -1}};
    return trigger;
}

static void trigger_fire(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    sh_trigger *trigger = arg;
    trigger->fn(trigger->arg);
}

static void trigger_set(sh_trigger *trigger, int fd, short what, event_callback_fn fn)
{
    trigger->event = event_new(trigger->loop->base, fd, what, fn, trigger);
    SH_ASSERT(trigger->event != NULL);
}

sh_trigger *sh_trigger_timer(sh_loop *loop, sh_trigger_fn fn, void *arg)
{
    sh_trigger *trigger = trigger_create(loop, fn, arg);
    trigger_set(trigger, -1, 0, trigger_fire);
    return trigger;
}

void sh_trigger_start(sh_trigger *timer, int64_t wait_ms)
{
    struct timeval wait = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    event_add(timer->event, &wait);
}

void sh_trigger_stop(sh_trigger *timer)
{
    event_del(timer->event);
}

sh_trigger *sh_trigger_fd(sh_loop *loop, int fd, sh_trigger_fn fn, void *arg)
{
    sh_trigger *trigger = trigger_create(loop, fn, arg);
    trigger->fd = fd;
    return trigger;
}

void sh_trigger_want(sh_trigger *trigger, bool read, bool write)
{
    short what = (short)(EV_PERSIST | (read ? EV_READ : 0) | (write ? EV_WRITE : 0));
    if (trigger->event != NULL && event_get_events(trigger->event) == what) return;
    if (trigger->event != NULL) event_free(trigger->event);
    trigger->event = NULL;
    if (!read && !write) return;
    trigger_set(trigger, trigger->fd, what, trigger_fire);
    event_add(trigger->event, NULL);
}

sh_trigger *sh_trigger_signal(sh_loop *loop, int signal_number, sh_trigger_fn fn, void *arg)
{
    sh_trigger *trigger = trigger_create(loop, fn, arg);
    trigger_set(trigger, signal_number, EV_SIGNAL | EV_PERSIST, trigger_fire);
    event_add(trigger->event, NULL);
    return trigger;
}

/* Drained before the callback runs: a poke that arrives during it fires again. */
static void wake_fire(evutil_socket_t fd, short what, void *arg)
{
    char sink[64];
    while (read(fd, sink, sizeof(sink)) == (ssize_t)sizeof(sink)) continue;
    trigger_fire(fd, what, arg);
}

static bool pipe_open(int ends[2])
{
    if (pipe(ends) != 0) return false;
    for (int i = 0; i < 2; i++)
        if (fcntl(ends[i], F_SETFL, O_NONBLOCK) != 0 || fcntl(ends[i], F_SETFD, FD_CLOEXEC) != 0)
            return false;
    return true;
}

sh_status sh_trigger_wake(sh_loop *loop, sh_trigger_fn fn, void *arg, sh_trigger **out, sh_err *err)
{
    sh_trigger *trigger = trigger_create(loop, fn, arg);
    if (!pipe_open(trigger->pipe)) {
        sh_err_sys(err, "pipe");
        sh_trigger_free(trigger);
        return err->status;
    }
    trigger_set(trigger, trigger->pipe[0], EV_READ | EV_PERSIST, wake_fire);
    event_add(trigger->event, NULL);
    *out = trigger;
    return SH_OK;
}

void sh_trigger_poke(sh_trigger *wake)
{
    /* A full pipe already holds a wake-up that has not been read: nothing is lost. */
    ssize_t written = write(wake->pipe[1], "", 1);
    (void)written;
}

void sh_trigger_free(sh_trigger *trigger)
{
    if (trigger == NULL) return;
    if (trigger->event != NULL) event_free(trigger->event);
    for (int i = 0; i < 2; i++)
        if (trigger->pipe[i] >= 0) close(trigger->pipe[i]);
    free(trigger);
}
