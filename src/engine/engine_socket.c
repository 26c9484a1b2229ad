/* One thread polls the listening socket and all clients. The engine's thread never touches a
 * socket: its sink appends to a client's `out` buffer under the lock and writes a byte into a pipe
 * to end the poll. So a client that does not read can fill its own buffer, up to UNREAD_MAX, but it
 * cannot slow down the engine or other clients.
 *
 * The array of clients is changed by the socket's thread only, under the lock since the sink walks
 * it; its own reads need no lock. Owners are numbered and never reused, so an event for a client
 * that has left finds no recipient.
 *
 * A bad request is answered with an error and the connection goes on; a bad frame ends the
 * connection, since the stream cannot be trusted after it. */
#include "engine/engine_socket.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
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

enum {
    CLIENTS_MAX = 64,
    READ_STEP = 1 << 16,
    UNREAD_MAX = 64 << 20,
    FLUSH_MS = 2000,
    PREDECESSOR_MS = 1000, /* for an engine at the same path to be gone */
};

struct client {
    int fd; /* -1: the entry is free */
    uint64_t owner;
    bool greeted; /* HELLO was received */
    sh_buf in;
    sh_buf out;   /* guarded by the lock, like `overrun` */
    bool overrun; /* events were dropped: the client must go */
};

struct sh_engine_socket {
    char *path;
    int listen_fd;
    int wake[2];                 /* a byte in this pipe ends the poll */
    _Atomic(sh_engine *) engine; /* NULL: it is not ready */
    sh_load_board *board;
    pthread_t thread;
    bool started;
    atomic_bool draining;
    atomic_bool quit;
    pthread_mutex_t lock; /* guards what the engine's thread uses of the clients */
    uint64_t owners;      /* handed out so far */
    struct client clients[CLIENTS_MAX];
};

static void wake(sh_engine_socket *sock)
{
    ssize_t put = write(sock->wake[1], "", 1);
    (void)put; /* if the pipe is full, the poll ends anyway */
}

static bool is_live(const struct sockaddr_un *addr)
{
    int fd = sh_sock_make(AF_UNIX, SOCK_STREAM);
    bool live = fd >= 0 && (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) == 0 ||
                            errno == EAGAIN); /* the listener's backlog is full */
    if (fd >= 0) close(fd);
    return live;
}

/* A socket file without a listener was left behind by an engine that died. One whose supervisor was
 * killed may be about to: the next supervisor starts in the same moment. */
static sh_status stale_remove(const struct sockaddr_un *addr, sh_err *err)
{
    sh_deadline patience = sh_deadline_in_ms(PREDECESSOR_MS);
    bool live;
    if (access(addr->sun_path, F_OK) != 0) return SH_OK;
    while ((live = is_live(addr)) && !sh_deadline_passed(patience)) sh_sleep_ms(10);
    if (live)
        return sh_err_set(err, SH_ERR_INPUT, "engine socket %s: another engine is listening there",
                          addr->sun_path);
    struct stat st;
    if (lstat(addr->sun_path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return sh_err_set(err, SH_ERR_INPUT,
                          "engine socket %s: the file exists and is not a socket", addr->sun_path);
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
    mode_t before = umask(0177); /* bind() creates the file: mode 0600 from the first moment */
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

sh_status sh_engine_socket_open(const char *path, sh_engine_socket **out, sh_err *err)
{
    int fd = -1;
    sh_status status = socket_listen(path, &fd, err);
    if (status != SH_OK) return status;
    sh_engine_socket *sock = sh_alloc(sizeof(*sock));
    sock->path = sh_strdup(path);
    sock->listen_fd = fd;
    sock->wake[0] = sock->wake[1] = -1;
    for (int i = 0; i < CLIENTS_MAX; i++) sock->clients[i].fd = -1;
    pthread_mutex_init(&sock->lock, NULL);
    if (sh_sock_pipe(sock->wake, err) != SH_OK) {
        sh_engine_socket_close(sock);
        return err->status;
    }
    *out = sock;
    return SH_OK;
}

/* The engine is notified after the lock is released: the command may have to wait for space in the
 * engine's queue, and the engine's thread may be waiting for the lock in its sink. */
static void client_close(sh_engine_socket *sock, struct client *c)
{
    if (c->fd < 0) return;
    uint64_t owner = c->owner;
    pthread_mutex_lock(&sock->lock);
    close(c->fd);
    sh_buf_reset(&c->out);
    sh_buf_reset(&c->in);
    *c = (struct client){.fd = -1};
    pthread_mutex_unlock(&sock->lock);
    if (sock->engine != NULL) sh_engine_forget(sock->engine, owner);
}

static void client_accept(sh_engine_socket *sock)
{
    int fd = sh_sock_accept_local(sock->listen_fd);
    if (fd < 0) return;
    if (!sh_sock_is_own(fd)) { /* do not rely on the mode of the socket file and its folder */
        SH_LOGW("engine socket: refused a client of another user");
        close(fd);
        return;
    }
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (sock->clients[i].fd >= 0) continue;
        pthread_mutex_lock(&sock->lock);
        sock->clients[i] = (struct client){.fd = fd, .owner = ++sock->owners};
        pthread_mutex_unlock(&sock->lock);
        return;
    }
    SH_LOGW("engine socket: refused a client, %d are connected already", CLIENTS_MAX);
    close(fd);
}

/* On the engine's thread: append the event and wake the socket's thread. */
void sh_engine_socket_emit(void *ctx, uint64_t owner, const sh_event *event)
{
    sh_engine_socket *sock = ctx;
    pthread_mutex_lock(&sock->lock);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &sock->clients[i];
        if (c->fd < 0 || c->owner != owner) continue;
        if (c->out.len > UNREAD_MAX)
            c->overrun = true;
        else
            sh_engine_msg_put_event(&c->out, event);
    }
    pthread_mutex_unlock(&sock->lock);
    wake(sock);
}

static void client_send(sh_engine_socket *sock, struct client *c, const sh_event *event)
{
    pthread_mutex_lock(&sock->lock);
    sh_engine_msg_put_event(&c->out, event);
    pthread_mutex_unlock(&sock->lock);
}

/* What to tell a client as long as there is no engine: how far the ranks are, then why. */
static void not_ready(sh_engine_socket *sock, struct client *c, sh_err *err)
{
    sh_buf json = {0};
    if (sock->board != NULL) sh_load_board_json(sock->board, &json);
    client_send(sock, c, &(sh_event){.kind = SH_EVENT_STATS, .stats = sh_buf_str(&json)});
    sh_buf_reset(&json);
    char ranks[SH_ERR_TEXT_MAX / 2] = "";
    if (sock->board != NULL) sh_load_board_text(sock->board, ranks, sizeof(ranks));
    sh_err_set(err, SH_ERR_GROUP, "the engine is not ready: it is loading the model%s%s",
               ranks[0] == '\0' ? "" : "; ", ranks);
    client_send(sock, c, &(sh_event){.kind = SH_EVENT_ERROR, .error = *err});
}

static sh_status greet(sh_engine_socket *sock, struct client *c, const sh_engine_msg_frame *frame,
                       sh_err *err)
{
    sh_status status = sh_err_set(err, SH_ERR_INPUT,
                                  "engine socket: a client's first frame was not a hello");
    if (frame->type == SH_ENGINE_MSG_HELLO) status = sh_engine_msg_get_hello(frame->payload, err);
    sh_engine *engine = sock->engine;
    if (status == SH_OK && engine == NULL) {
        not_ready(sock, c, err);
        return SH_OK; /* it may ask again, and closes the connection if it does not want to wait */
    }
    if (status != SH_OK) {
        client_send(sock, c, &(sh_event){.kind = SH_EVENT_ERROR, .error = *err});
        return status;
    }
    c->greeted = true;
    sh_engine_info info = sh_engine_info_of(engine);
    pthread_mutex_lock(&sock->lock);
    sh_engine_msg_put_info(&c->out, &info);
    pthread_mutex_unlock(&sock->lock);
    return SH_OK;
}

/* Hands a request to the engine. On failure event->error and event->retry say why. */
static sh_status request_take(sh_engine_socket *sock, struct client *c, sh_submit_message *submit,
                              sh_event *event)
{
    sh_engine_info info = sh_engine_info_of(sock->engine);
    sh_status status = sh_sequence_spec_check(&submit->spec, info.vocab, &event->error);
    if (status != SH_OK) return status;
    event->retry = true;
    if (atomic_load(&sock->draining))
        return sh_err_set(&event->error, SH_ERR_CANCELLED, "the engine is stopping");
    if (!info.ready)
        return sh_err_set(&event->error, SH_ERR_GROUP,
                          "a rank was lost and the group is re-forming; try again later");
    if (sh_engine_submit(sock->engine, c->owner, submit) == SH_OK) return SH_OK;
    return sh_err_set(&event->error, SH_ERR_LIMIT, "the engine is too busy to take a request");
}

/* A request that is refused gets an error event. The connection stays open, since other requests of
 * the client are running on it. */
static void submit_read(sh_engine_socket *sock, struct client *c, sh_str payload)
{
    sh_submit_message submit;
    sh_event refusal = {.kind = SH_EVENT_ERROR};
    sh_status status = sh_engine_msg_get_submit(payload, &submit, &refusal.error);
    refusal.id = submit.spec.id;
    if (status == SH_OK) status = request_take(sock, c, &submit, &refusal);
    if (status == SH_OK) return;
    client_send(sock, c, &refusal);
    sh_submit_message_reset(&submit);
}

static sh_status frame_run(sh_engine_socket *sock, struct client *c,
                           const sh_engine_msg_frame *frame, sh_err *err)
{
    uint64_t id;
    sh_status status;
    if (!c->greeted) return greet(sock, c, frame, err);
    switch (frame->type) {
    case SH_ENGINE_MSG_SUBMIT: submit_read(sock, c, frame->payload); return SH_OK;
    case SH_ENGINE_MSG_CANCEL:
        status = sh_engine_msg_get_id(frame->payload, &id, err);
        if (status == SH_OK) sh_engine_cancel(sock->engine, c->owner, id);
        return status;
    case SH_ENGINE_MSG_DETACH:
        status = sh_engine_msg_get_id(frame->payload, &id, err);
        if (status == SH_OK) sh_engine_detach(sock->engine, c->owner, id);
        return status;
    case SH_ENGINE_MSG_DISMISS:
        status = sh_engine_msg_get_id(frame->payload, &id, err);
        if (status == SH_OK) sh_engine_dismiss(sock->engine, id);
        return status;
    case SH_ENGINE_MSG_ASK_STATS:
        /* The stats follow after the current step, which may take long. Send an empty event at once
         * as a sign of life: see sh_engine_client_unanswered(). */
        client_send(sock, c, &(sh_event){.kind = SH_EVENT_STATS});
        sh_engine_ask_stats(sock->engine, c->owner);
        return SH_OK;
    default:
        return sh_err_set(err, SH_ERR_INPUT, "engine socket: frame type %d is not a request",
                          (int)frame->type);
    }
}

/* Reads once and handles all complete frames. False when the client must be closed. */
static bool client_read(sh_engine_socket *sock, struct client *c)
{
    char *to = sh_buf_reserve(&c->in, READ_STEP);
    ssize_t got = recv(c->fd, to, READ_STEP, 0);
    if (got < 0) return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
    if (got == 0) return false;
    c->in.len += (size_t)got;
    sh_engine_msg_frame frame;
    sh_err err;
    sh_status status;
    while ((status = sh_engine_msg_next(&c->in, &frame, &err)) == SH_OK) {
        status = frame_run(sock, c, &frame, &err);
        if (status != SH_OK) break;
        sh_buf_drop_front(&c->in, frame.size);
    }
    if (status >= 0) return true;
    SH_LOGW("%s", err.text);
    return false;
}

/* Sends what the socket takes without blocking, so the lock is held for a short time only. False
 * when the client must be closed. */
static bool client_write(sh_engine_socket *sock, struct client *c)
{
    bool stays = true;
    pthread_mutex_lock(&sock->lock);
    while (c->out.len > 0 && stays) {
        ssize_t put = send(c->fd, c->out.ptr, c->out.len, MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (put < 0)
            stays = errno == EINTR;
        else
            sh_buf_drop_front(&c->out, (size_t)put);
    }
    if (c->overrun) SH_LOGW("engine socket: dropped a client that does not read its events");
    stays = stays && !c->overrun;
    pthread_mutex_unlock(&sock->lock);
    return stays;
}

/* The wake pipe is entry 0, the listener entry 1 (left out while draining), then the clients. */
static int polls_fill(sh_engine_socket *sock, struct pollfd *polls, struct client **polled)
{
    int count = 0;
    polls[count] = (struct pollfd){.fd = sock->wake[0], .events = POLLIN};
    polled[count++] = NULL;
    polls[count] = (struct pollfd){.fd = atomic_load(&sock->draining) ? -1 : sock->listen_fd,
                                   .events = POLLIN};
    polled[count++] = NULL;
    pthread_mutex_lock(&sock->lock);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client *c = &sock->clients[i];
        if (c->fd < 0) continue;
        polls[count] = (struct pollfd){.fd = c->fd,
                                       .events = (short)(POLLIN | (c->out.len > 0 ? POLLOUT : 0))};
        polled[count++] = c;
    }
    pthread_mutex_unlock(&sock->lock);
    return count;
}

static void *socket_main(void *arg)
{
    sh_engine_socket *sock = arg;
    struct pollfd polls[CLIENTS_MAX + 2];
    struct client *polled[CLIENTS_MAX + 2];
    while (!atomic_load(&sock->quit)) {
        int count = polls_fill(sock, polls, polled);
        if (poll(polls, (nfds_t)count, -1) < 0) continue;
        char bytes[256];
        while (read(sock->wake[0], bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes)) continue;
        if (polls[1].revents != 0) client_accept(sock);
        for (int i = 2; i < count; i++) {
            bool stays = true;
            if ((polls[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
                stays = client_read(sock, polled[i]);
            /* Write even if the client must go: it may be the error that says why. */
            if (!client_write(sock, polled[i]) || !stays) client_close(sock, polled[i]);
        }
    }
    return NULL;
}

static sh_status thread_start(sh_engine_socket *sock, sh_err *err)
{
    if (sh_thread_start(&sock->thread, socket_main, sock) != 0)
        return sh_err_set(err, SH_ERR_SYSTEM, "cannot start the thread of the engine's socket");
    sock->started = true;
    return SH_OK;
}

sh_status sh_engine_socket_announce(sh_engine_socket *sock, sh_load_board *board, sh_err *err)
{
    sock->board = board;
    return thread_start(sock, err);
}

sh_status sh_engine_socket_start(sh_engine_socket *sock, sh_engine *engine, sh_err *err)
{
    sock->engine = engine;
    return sock->started ? SH_OK : thread_start(sock, err);
}
void sh_engine_socket_drain(sh_engine_socket *sock)
{
    atomic_store(&sock->draining, true);
    wake(sock);
}

static bool unsent(sh_engine_socket *sock)
{
    bool some = false;
    pthread_mutex_lock(&sock->lock);
    for (int i = 0; i < CLIENTS_MAX; i++)
        some = some || (sock->clients[i].fd >= 0 && sock->clients[i].out.len > 0);
    pthread_mutex_unlock(&sock->lock);
    return some;
}

void sh_engine_socket_close(sh_engine_socket *sock)
{
    if (sock == NULL) return;
    if (sock->started) {
        /* Let clients read their last events before the thread ends. */
        for (sh_deadline end = sh_deadline_in_ms(FLUSH_MS);
             unsent(sock) && !sh_deadline_passed(end);)
            sh_sleep_ms(2);
        atomic_store(&sock->quit, true);
        wake(sock);
        pthread_join(sock->thread, NULL);
    }
    sock->engine = NULL;
    for (int i = 0; i < CLIENTS_MAX; i++) client_close(sock, &sock->clients[i]);
    close(sock->listen_fd);
    if (sock->wake[0] >= 0) close(sock->wake[0]);
    if (sock->wake[1] >= 0) close(sock->wake[1]);
    unlink(sock->path);
    pthread_mutex_destroy(&sock->lock);
    free(sock->path);
    free(sock);
}
