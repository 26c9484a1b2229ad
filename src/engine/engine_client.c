/* Both directions are plain buffers that progress() moves as far as the socket allows. Events are
 * parsed in place: an event may point into `in`, so consumed bytes are only counted (in_done) and
 * dropped when more data is read.
 *
 * The promise to the owner is one DONE or ERROR for every request, even if the engine dies. So the
 * client keeps the ids of open requests, and once the engine is lost and the received events are
 * used up, sh_engine_client_next() makes an error for each of them. */
#include "engine/engine_client.h"

#include "base/alloc.h"
#include "engine/engine_messages.h"
#include "net/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { READ_STEP = 1 << 16 };

struct sh_engine_client {
    int fd;
    sh_engine_info info;
    sh_buf in;
    size_t in_done; /* bytes of `in` that were handed out as events */
    sh_buf out;
    uint64_t *open; /* ids of requests that have not ended */
    size_t open_count, open_cap;
    int unanswered; /* stats requests since the last event */
    bool lost;
    sh_err lost_why;
};

sh_sampling sh_sampling_default(void)
{
    return (sh_sampling){.top_p = 1, .repetition_penalty = 1, .repetition_window = 20};
}

/* The first reason is the one that is kept and reported. */
static sh_status mark_lost(sh_engine_client *c, const char *why, sh_err *err)
{
    if (!c->lost) sh_err_set(&c->lost_why, SH_ERR_PEER, "the engine is gone: %s", why);
    c->lost = true;
    *err = c->lost_why;
    return SH_ERR_PEER;
}

static sh_status socket_connect(const char *path, int *out, sh_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return sh_err_set(err, SH_ERR_INPUT, "engine socket %s: the path is longer than %zu bytes",
                          path, sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    int fd = sh_sock_make(AF_UNIX, SOCK_STREAM);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        bool full = errno == EAGAIN; /* nobody accepts: the engine is starting, as in info_await */
        sh_err_sys(err, "engine socket %s", path);
        err->status = full ? SH_ERR_TIMEOUT : SH_ERR_PEER;
        if (fd >= 0) close(fd);
        return err->status;
    }
    /* Another user could have put a socket there to read the prompts. */
    if (!sh_sock_is_own(fd)) {
        close(fd);
        return sh_err_set(err, SH_ERR_PEER,
                          "engine socket %s: it belongs to a process of another user", path);
    }
    *out = fd;
    return SH_OK;
}

static sh_status bytes_send(sh_engine_client *c, sh_err *err)
{
    while (c->out.len > 0) {
        ssize_t put = send(c->fd, c->out.ptr, c->out.len, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return SH_OK;
        if (put < 0) return mark_lost(c, strerror(errno), err);
        sh_buf_drop_front(&c->out, (size_t)put);
    }
    return SH_OK;
}

/* Reads what is there. Invalidates the event that was handed out last. */
static sh_status bytes_recv(sh_engine_client *c, sh_err *err)
{
    sh_buf_drop_front(&c->in, c->in_done);
    c->in_done = 0;
    for (;;) {
        char *to = sh_buf_reserve(&c->in, READ_STEP);
        ssize_t got = recv(c->fd, to, READ_STEP, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return SH_OK;
        if (got <= 0) return mark_lost(c, got == 0 ? "it closed the socket" : strerror(errno), err);
        c->in.len += (size_t)got;
        if (got < READ_STEP) return SH_OK; /* saves a call that would only return EAGAIN */
    }
}

/* The frame after those that were handed out. */
static sh_status frame_peek(sh_engine_client *c, sh_engine_msg_frame *frame, sh_err *err)
{
    if (c->in.ptr == NULL) return SH_AGAIN;
    sh_buf rest = {.ptr = c->in.ptr + c->in_done, .len = c->in.len - c->in_done};
    return sh_engine_msg_next(&rest, frame, err);
}

/* Sends HELLO and waits for INFO. The engine may also answer with an error, such as a protocol
 * version it does not speak. */
static sh_status info_await(sh_engine_client *c, sh_deadline deadline, sh_buf *loading, sh_err *err)
{
    sh_engine_msg_put_hello(&c->out);
    for (;;) {
        sh_status status = sh_engine_client_progress(c, err);
        sh_engine_msg_frame frame;
        sh_status seen = frame_peek(c, &frame, err);
        if (seen == SH_OK) {
            c->in_done += frame.size;
            if (frame.type == SH_ENGINE_MSG_INFO)
                return sh_engine_msg_get_info(frame.payload, &c->info, err);
            sh_event event;
            status = sh_engine_msg_get_event(&frame, &event, err);
            if (status == SH_OK && event.kind == SH_EVENT_STATS) {
                if (loading != NULL) sh_buf_add_str(loading, event.stats);
                continue;
            }
            if (status == SH_OK && event.kind == SH_EVENT_ERROR)
                *err = event.error;
            else
                sh_err_set(err, SH_ERR_INPUT, "engine socket: the engine did not send its info");
            return err->status;
        }
        if (seen < 0) return seen;
        if (status != SH_OK) return status;
        struct pollfd p = {.fd = c->fd, .events = (short)(POLLIN | (c->out.len > 0 ? POLLOUT : 0))};
        if (poll(&p, 1, sh_deadline_left_ms(deadline)) == 0 && sh_deadline_passed(deadline))
            return sh_err_set(err, SH_ERR_TIMEOUT,
                              "engine socket: the engine did not answer in time");
    }
}

sh_status sh_engine_client_open(const char *socket_path, sh_deadline deadline, sh_buf *loading,
                                sh_engine_client **out, sh_err *err)
{
    int fd = -1;
    sh_status status = socket_connect(socket_path, &fd, err);
    if (status != SH_OK) return status;
    sh_engine_client *c = sh_alloc(sizeof(*c));
    c->fd = fd;
    status = info_await(c, deadline, loading, err);
    if (status != SH_OK) {
        sh_engine_client_close(c);
        return status;
    }
    *out = c;
    return SH_OK;
}

void sh_engine_client_close(sh_engine_client *c)
{
    if (c == NULL) return;
    close(c->fd);
    free((char *)c->info.model_dir);
    free(c->open);
    sh_buf_reset(&c->in);
    sh_buf_reset(&c->out);
    free(c);
}

int sh_engine_client_fd(const sh_engine_client *c)
{
    return c->fd;
}

bool sh_engine_client_wants_write(const sh_engine_client *c)
{
    return !c->lost && c->out.len > 0;
}

const sh_engine_info *sh_engine_client_info(const sh_engine_client *c)
{
    return &c->info;
}

sh_status sh_engine_client_submit(sh_engine_client *c, const sh_sequence_spec *q, sh_err *err)
{
    if (c->lost) {
        *err = c->lost_why;
        return err->status;
    }
    if (q->prompt_count > SH_ENGINE_MSG_FRAME_MAX / 8)
        return sh_err_set(err, SH_ERR_LIMIT,
                          "the prompt has %zu tokens, more than an engine can take",
                          q->prompt_count);
    if (q->grammar.len > SH_GRAMMAR_PACKED_MAX)
        return sh_err_set(err, SH_ERR_LIMIT, "the grammar takes %zu bytes; at most %d are allowed",
                          q->grammar.len, SH_GRAMMAR_PACKED_MAX);
    SH_ASSERT(q->stop_id_count <= SH_STOP_IDS_MAX &&
              q->sampling.logit_bias_count <= SH_LOGIT_BIAS_MAX);
    if (c->open_count == c->open_cap) {
        c->open_cap = c->open_cap * 2 + 16;
        c->open = sh_realloc_array(c->open, c->open_cap, sizeof(*c->open));
    }
    c->open[c->open_count++] = q->id;
    sh_engine_msg_put_submit(&c->out, q);
    return bytes_send(c, err);
}

void sh_engine_client_cancel(sh_engine_client *c, uint64_t id)
{
    sh_err ignored; /* progress reports a lost engine */
    sh_engine_msg_put_cancel(&c->out, id);
    if (!c->lost && bytes_send(c, &ignored) != SH_OK) return;
}

void sh_engine_client_detach(sh_engine_client *c, uint64_t id)
{
    sh_err ignored;
    sh_engine_msg_put_detach(&c->out, id);
    if (!c->lost && bytes_send(c, &ignored) != SH_OK) return;
}

void sh_engine_client_ask_stats(sh_engine_client *c)
{
    sh_err ignored;
    c->unanswered++;
    sh_engine_msg_put_ask_stats(&c->out);
    if (!c->lost && bytes_send(c, &ignored) != SH_OK) return;
}

void sh_engine_client_dismiss(sh_engine_client *c, uint64_t ranks)
{
    sh_err ignored;
    sh_engine_msg_put_dismiss(&c->out, ranks);
    if (!c->lost && bytes_send(c, &ignored) != SH_OK) return;
}

int sh_engine_client_unanswered(const sh_engine_client *c)
{
    return c->unanswered;
}

void sh_engine_client_give_up(sh_engine_client *c, const char *why)
{
    sh_err ignored;
    (void)mark_lost(c, why, &ignored);
}

sh_status sh_engine_client_progress(sh_engine_client *c, sh_err *err)
{
    if (c->lost) return mark_lost(c, "", err);
    sh_status sent = bytes_send(c, err);
    sh_status got = bytes_recv(c, err); /* even if sending failed: last events may have arrived */
    return sent != SH_OK ? sent : got;
}

static void open_remove(sh_engine_client *c, uint64_t id)
{
    for (size_t i = 0; i < c->open_count; i++)
        if (c->open[i] == id) {
            c->open[i] = c->open[--c->open_count];
            return;
        }
}

/* The next event received; SH_AGAIN when there is none; an error when it is malformed. */
static sh_status event_take(sh_engine_client *c, sh_event *event, sh_err *err)
{
    sh_engine_msg_frame frame;
    sh_status status;
    do { /* empty stats are only a sign of life */
        status = frame_peek(c, &frame, err);
        if (status == SH_OK) status = sh_engine_msg_get_event(&frame, event, err);
        if (status != SH_OK) return status;
        c->in_done += frame.size;
        c->unanswered = 0;
    } while (event->kind == SH_EVENT_STATS && event->stats.len == 0);
    return SH_OK;
}

sh_status sh_engine_client_next(sh_engine_client *c, sh_event *event)
{
    sh_err err;
    sh_status status = event_take(c, event, &err);
    if (status == SH_OK && (event->kind == SH_EVENT_DONE || event->kind == SH_EVENT_ERROR))
        open_remove(c, event->id);
    if (status == SH_OK) return SH_OK;
    if (status < 0) mark_lost(c, err.text, &err); /* the stream cannot be trusted after that */
    if (c->lost && c->open_count > 0) {
        *event = (sh_event){
            .kind = SH_EVENT_ERROR, .id = c->open[--c->open_count], .error = c->lost_why};
        return SH_OK;
    }
    return SH_AGAIN;
}
