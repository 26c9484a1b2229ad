#include "engine/door.h"

#include "base/alloc.h"
#include "base/log.h"
#include "net/sock.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, READ_STEP = 1 << 16, UNREAD_MAX = 64 << 20, FLUSH_MS = 2000 };

struct guest {
    int fd; /* -1: the place is free */
    uint64_t owner;
    bool greeted;
    sh_buf in;
    sh_buf out; /* guarded by the door's lock, like `overrun` */
    bool overrun;
};

struct sh_door {
    char *path;
    int listen_fd;
    int wake[2]; /* a byte here ends the poll */
    sh_engine *engine;
    pthread_t thread;
    bool started;
    atomic_bool draining;
    atomic_bool quit;
    pthread_mutex_t
        lock; /* guards the guests' `out` and `overrun`, which the engine's thread writes */
    uint64_t owners;
    struct guest guests[CLIENTS_MAX];
};

static void wake(sh_door *d)
{
    ssize_t put = write(d->wake[1], "", 1);
    (void)put; /* a full pipe wakes as well */
}

/* A socket file that nobody listens at is left over from an engine that died. */
static sh_status stale_remove(const struct sockaddr_un *addr, sh_err *err)
{
    if (access(addr->sun_path, F_OK) != 0) return SH_OK;
    int fd = sh_sock_make(AF_UNIX, SOCK_STREAM);
    bool live = fd >= 0 && (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ||
                            errno == EAGAIN); /* its queue is full */
    if (fd >= 0) close(fd);
    if (live)
        return sh_err_set(err, SH_ERR_INPUT, "engine socket %s: another engine is listening there",
                          addr->sun_path);
    struct stat st;
    if (lstat(addr->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return sh_err_set(err, SH_ERR_INPUT, "engine socket %s: that is a file, not a socket",
                          addr->sun_path);
    if (unlink(addr->sun_path) < 0 && errno != ENOENT)
        return sh_err_sys(err, "engine socket %s", addr->sun_path);
    return SH_OK;
}

static sh_status socket_listen(const char *path, int *out, sh_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return sh_err_set(err, SH_ERR_INPUT, "engine socket %s: the path is longer than %zu bytes",
                          path, sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    sh_status status = stale_remove(&addr, err);
    if (status != SH_OK) return status;
    int fd = sh_sock_make(AF_UNIX, SOCK_STREAM);
    mode_t before = umask(0177);
    bool ok = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
              listen(fd, 16) == 0;
    umask(before);
    if (!ok) {
        sh_err_sys(err, "engine socket %s", path);
        if (fd >= 0) close(fd);
        return err->status;
    }
    *out = fd;
    return SH_OK;
}

sh_status sh_door_open(const char *path, sh_door **out, sh_err *err)
{
    int fd = -1;
    sh_status status = socket_listen(path, &fd, err);
    if (status != SH_OK) return status;
    sh_door *d = sh_alloc(sizeof(*d));
    d->path = sh_strdup(path);
    d->listen_fd = fd;
    d->wake[0] = d->wake[1] = -1;
    for (int i = 0; i < CLIENTS_MAX; i++) d->guests[i].fd = -1;
    pthread_mutex_init(&d->lock, NULL);
    if (sh_sock_pipe(d->wake, err) != SH_OK) {
        sh_door_close(d);
        return err->status;
    }
    *out = d;
    return SH_OK;
}

static void guest_close(sh_door *d, struct guest *g)
{
    if (g->fd < 0) return;
    uint64_t owner = g->owner;
    pthread_mutex_lock(&d->lock);
    close(g->fd);
    sh_buf_reset(&g->out);
    sh_buf_reset(&g->in);
    *g = (struct guest){.fd = -1};
    pthread_mutex_unlock(&d->lock);
    if (d->engine != NULL) sh_engine_forget(d->engine, owner);
}

static void guest_accept(sh_door *d)
{
    int fd = sh_sock_accept_local(d->listen_fd);
    if (fd < 0) return;
    if (!sh_sock_is_own(fd)) { /* whatever the mode of the socket file and its folder is */
        SH_LOGW("engine socket: a client of another user was turned away");
        close(fd);
        return;
    }
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (d->guests[i].fd >= 0) continue;
        pthread_mutex_lock(&d->lock);
        d->guests[i] = (struct guest){.fd = fd, .owner = ++d->owners};
        pthread_mutex_unlock(&d->lock);
        return;
    }
    SH_LOGW("engine socket: %d clients are all that it takes; one more was turned away",
            CLIENTS_MAX);
    close(fd);
}

/* The engine's thread: append, and wake the door. */
void sh_door_emit(void *ctx, uint64_t owner, const sh_event *event)
{
    sh_door *d = ctx;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct guest *g = &d->guests[i];
        if (g->fd < 0 || g->owner != owner) continue;
        if (g->out.len > UNREAD_MAX)
            g->overrun = true;
        else
            sh_wire_put_event(&g->out, event);
    }
    pthread_mutex_unlock(&d->lock);
    wake(d);
}

static void guest_say(sh_door *d, struct guest *g, const sh_event *event)
{
    pthread_mutex_lock(&d->lock);
    sh_wire_put_event(&g->out, event);
    pthread_mutex_unlock(&d->lock);
}

static sh_status greet(sh_door *d, struct guest *g, const sh_wire_frame *frame, sh_err *err)
{
    sh_status status = sh_err_set(err, SH_ERR_INPUT, "engine socket: a client did not greet");
    if (frame->type == SH_WIRE_HELLO) status = sh_wire_get_hello(frame->payload, err);
    if (status != SH_OK) {
        guest_say(d, g, &(sh_event){.kind = SH_EVENT_ERROR, .error = *err});
        return status;
    }
    g->greeted = true;
    sh_engine_info info = sh_engine_info_of(d->engine);
    pthread_mutex_lock(&d->lock);
    sh_wire_put_info(&g->out, &info);
    pthread_mutex_unlock(&d->lock);
    return SH_OK;
}

/* Why a request is not taken, as an event for it; *event stays as it is when it was. */
static sh_status request_take(sh_door *d, struct guest *g, sh_wire_request *request,
                              sh_event *event)
{
    sh_engine_info info = sh_engine_info_of(d->engine);
    sh_status status = sh_request_check(&request->request, info.vocab, &event->error);
    if (status != SH_OK) return status;
    event->retry = true;
    if (atomic_load(&d->draining))
        return sh_err_set(&event->error, SH_ERR_CANCELLED, "the engine is stopping");
    if (!info.ready)
        return sh_err_set(&event->error, SH_ERR_GROUP,
                          "a rank is lost and the group is being formed again");
    if (sh_engine_submit(d->engine, g->owner, request) == SH_OK) return SH_OK;
    return sh_err_set(&event->error, SH_ERR_LIMIT, "the engine is too busy to take a request");
}

/* A request that cannot be taken concerns nobody but who sent it: the connection, with the answers
 * of all others, goes on. */
static void submit(sh_door *d, struct guest *g, sh_str payload)
{
    sh_wire_request request;
    sh_event refusal = {.kind = SH_EVENT_ERROR};
    sh_status status = sh_wire_get_submit(payload, &request, &refusal.error);
    refusal.id = request.request.id;
    if (status == SH_OK) status = request_take(d, g, &request, &refusal);
    if (status == SH_OK) return;
    guest_say(d, g, &refusal);
    sh_wire_request_reset(&request);
}

static sh_status frame_run(sh_door *d, struct guest *g, const sh_wire_frame *frame, sh_err *err)
{
    uint64_t id;
    sh_status status;
    if (!g->greeted) return greet(d, g, frame, err);
    switch (frame->type) {
    case SH_WIRE_SUBMIT: submit(d, g, frame->payload); return SH_OK;
    case SH_WIRE_CANCEL:
        status = sh_wire_get_cancel(frame->payload, &id, err);
        if (status == SH_OK) sh_engine_cancel(d->engine, g->owner, id);
        return status;
    case SH_WIRE_ASK_STATS: /* they come behind a step, which may be long: a sign of life first */
        guest_say(d, g, &(sh_event){.kind = SH_EVENT_STATS});
        sh_engine_ask_stats(d->engine, g->owner);
        return SH_OK;
    default:
        return sh_err_set(err, SH_ERR_INPUT, "engine socket: frame %d is no request",
                          (int)frame->type);
    }
}

/* All that is there to read. False when the guest has to go. */
static bool guest_read(sh_door *d, struct guest *g)
{
    char *to = sh_buf_reserve(&g->in, READ_STEP);
    ssize_t got = recv(g->fd, to, READ_STEP, 0);
    if (got < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    g->in.len += (size_t)got;
    sh_wire_frame frame;
    sh_err err;
    sh_status status;
    while ((status = sh_wire_next(&g->in, &frame, &err)) == SH_OK) {
        status = frame_run(d, g, &frame, &err);
        if (status != SH_OK) break;
        sh_buf_drop_front(&g->in, frame.size);
    }
    if (status >= 0) return true;
    SH_LOGW("%s", err.text);
    return false;
}

static bool guest_write(sh_door *d, struct guest *g)
{
    bool stays = true;
    pthread_mutex_lock(&d->lock);
    while (g->out.len > 0 && stays) {
        ssize_t put = send(g->fd, g->out.ptr, g->out.len, MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (put < 0)
            stays = errno == EINTR;
        else
            sh_buf_drop_front(&g->out, (size_t)put);
    }
    if (g->overrun) SH_LOGW("engine socket: a client does not read its events and is dropped");
    stays = stays && !g->overrun;
    pthread_mutex_unlock(&d->lock);
    return stays;
}

static int polls_fill(sh_door *d, struct pollfd *polls, struct guest **who)
{
    int count = 0;
    polls[count] = (struct pollfd){.fd = d->wake[0], .events = POLLIN};
    who[count++] = NULL;
    polls[count] = (struct pollfd){.fd = atomic_load(&d->draining) ? -1 : d->listen_fd,
                                   .events = POLLIN};
    who[count++] = NULL;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct guest *g = &d->guests[i];
        if (g->fd < 0) continue;
        polls[count] = (struct pollfd){.fd = g->fd,
                                       .events = (short)(POLLIN | (g->out.len > 0 ? POLLOUT : 0))};
        who[count++] = g;
    }
    pthread_mutex_unlock(&d->lock);
    return count;
}

static void *door_main(void *arg)
{
    sh_door *d = arg;
    struct pollfd polls[CLIENTS_MAX + 2];
    struct guest *who[CLIENTS_MAX + 2];
    while (!atomic_load(&d->quit)) {
        int count = polls_fill(d, polls, who);
        if (poll(polls, (nfds_t)count, -1) < 0) continue;
        char bytes[256];
        while (read(d->wake[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) continue;
        if (polls[1].revents != 0) guest_accept(d);
        for (int i = 2; i < count; i++) {
            bool stays = true;
            if ((polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
                stays = guest_read(d, who[i]);
            if (!guest_write(d, who[i]) || !stays) guest_close(d, who[i]);
        }
    }
    return NULL;
}

sh_status sh_door_start(sh_door *d, sh_engine *engine, sh_err *err)
{
    d->engine = engine;
    if (pthread_create(&d->thread, NULL, door_main, d) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM,
                          "the thread of the engine's socket could not be started");
    d->started = true;
    return SH_OK;
}

void sh_door_drain(sh_door *d)
{
    atomic_store(&d->draining, true);
    wake(d);
}

static bool unsent(sh_door *d)
{
    bool some = false;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < CLIENTS_MAX; i++)
        some = some || (d->guests[i].fd >= 0 && d->guests[i].out.len > 0);
    pthread_mutex_unlock(&d->lock);
    return some;
}

void sh_door_close(sh_door *d)
{
    if (d == NULL) return;
    if (d->started) {
        for (sh_deadline end = sh_deadline_in_ms(FLUSH_MS); unsent(d) && !sh_deadline_passed(end);)
            sh_sleep_ms(2);
        atomic_store(&d->quit, true);
        wake(d);
        pthread_join(d->thread, NULL);
    }
    d->engine = NULL;
    for (int i = 0; i < CLIENTS_MAX; i++) guest_close(d, &d->guests[i]);
    close(d->listen_fd);
    if (d->wake[0] >= 0) close(d->wake[0]);
    if (d->wake[1] >= 0) close(d->wake[1]);
    unlink(d->path);
    pthread_mutex_destroy(&d->lock);
    free(d->path);
    free(d);
}
