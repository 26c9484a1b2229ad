#include "net/link.h"

#include "base/alloc.h"
#include "net/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef enum {
    STAGE_CONNECT, /* dialling: the three-way handshake of TCP */
    STAGE_TLS,
    STAGE_HELLO, /* dialling: hello is out, the answer is due; accepting: hello is due */
    STAGE_OPEN,
} stage;

struct sh_link {
    sh_stream stream;
    char name[SH_ADDR_TEXT_MAX];
    stage stage;
    bool dialled;
    sh_tls *tls;
    sh_deadline deadline;
    sh_hello mine;
    sh_hello theirs;
    sh_buf out;
    sh_buf in;     /* the head of a frame, then its payload */
    bool in_given; /* the frame in `in` was handed out */
};

static sh_link *link_make(int fd, const sh_addr *peer, sh_tls *tls, sh_deadline deadline)
{
    sh_link *link = sh_alloc(sizeof(*link));
    sh_stream_init(&link->stream, fd);
    sh_addr_format(peer, link->name);
    link->tls = tls;
    link->deadline = deadline;
    return link;
}

sh_status sh_link_dial(const sh_addr *to, sh_tls *tls, const sh_hello *mine, sh_deadline deadline,
                       sh_link **out, sh_err *err)
{
    int fd;
    sh_status status = sh_sock_connect(to, &fd, err);
    if (status != SH_OK) return status;
    sh_link *link = link_make(fd, to, tls, deadline);
    link->dialled = true;
    link->mine = *mine;
    *out = link;
    return SH_OK;
}

sh_link *sh_link_take(int fd, const sh_addr *from, sh_tls *tls, sh_deadline deadline)
{
    sh_link *link = link_make(fd, from, tls, deadline);
    link->stage = STAGE_TLS;
    return link;
}

void sh_link_close(sh_link *link)
{
    if (link == NULL) return;
    sh_stream_close(&link->stream);
    sh_buf_reset(&link->out);
    sh_buf_reset(&link->in);
    free(link);
}

static sh_status step_connect(sh_link *link, sh_err *err)
{
    struct pollfd p = {.fd = link->stream.fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0) return SH_AGAIN;
    sh_status status = sh_sock_connected(link->stream.fd, err);
    if (status == SH_OK) link->stage = STAGE_TLS;
    return status;
}

/* A silent peer costs no more than its descriptor: TLS is set up when there is something to read.
 */
static bool is_silent(const sh_link *link)
{
    char byte;
    return recv(link->stream.fd, &byte, 1, MSG_PEEK) < 0 && (errno == EAGAIN || errno == EINTR);
}

static sh_status step_tls(sh_link *link, sh_err *err)
{
    sh_status status = SH_OK;
    if (!link->dialled && link->tls != NULL && link->stream.ssl == NULL && is_silent(link))
        return SH_AGAIN;
    if (link->tls != NULL && link->stream.ssl == NULL)
        status = sh_stream_start_tls(&link->stream, link->tls, !link->dialled, err);
    if (status == SH_OK && link->tls != NULL) status = sh_stream_handshake(&link->stream, err);
    if (status != SH_OK) return status;
    link->stage = STAGE_HELLO;
    if (link->dialled) sh_hello_pack(&link->out, SH_FRAME_HELLO, &link->mine);
    return SH_OK;
}

static sh_status refused(const uint8_t *payload, size_t len, sh_err *err)
{
    sh_notice notice;
    sh_status status = sh_notice_unpack(payload, len, &notice, err);
    if (status != SH_OK) return status;
    return sh_err_set(err, SH_ERR_GROUP, "%s", notice.text);
}

static sh_status step_hello(sh_link *link, sh_err *err)
{
    sh_status status = sh_link_flush(link, err);
    if (status != SH_OK) return status;
    sh_frame_head head;
    const uint8_t *payload;
    status = sh_link_recv(link, &head, &payload, err);
    if (status != SH_OK) return status;
    if (link->dialled && head.type == SH_FRAME_REFUSE) return refused(payload, head.len, err);
    if (head.type != (link->dialled ? SH_FRAME_WELCOME : SH_FRAME_HELLO))
        return sh_err_set(err, SH_ERR_PEER, "a frame of type %d came in place of a hello",
                          head.type);
    status = sh_hello_unpack(payload, head.len, &link->theirs, err);
    if (status == SH_OK && link->dialled)
        status = sh_hello_compare(&link->mine, &link->theirs, err);
    if (status == SH_OK) link->stage = STAGE_OPEN;
    return status;
}

sh_status sh_link_step(sh_link *link, sh_err *err)
{
    sh_status status = SH_OK;
    while (status == SH_OK && link->stage != STAGE_OPEN) {
        switch (link->stage) {
        case STAGE_CONNECT: status = step_connect(link, err); break;
        case STAGE_TLS: status = step_tls(link, err); break;
        default: status = step_hello(link, err); break;
        }
    }
    if (status == SH_AGAIN && sh_deadline_passed(link->deadline)) {
        static const char *const waits[] = {"an answer", "the TLS handshake", "a hello", ""};
        return sh_err_set(err, SH_ERR_TIMEOUT, "no answer: waited in vain for %s",
                          waits[link->stage]);
    }
    return status;
}

sh_link_standing sh_link_standing_of(const sh_link *link)
{
    if (link->stage == STAGE_OPEN) return SH_STANDING_PROVED;
    if (link->stream.ssl != NULL)
        return SSL_session_reused(link->stream.ssl) ? SH_STANDING_PROVED : SH_STANDING_HEARD;
    return link->in.len > 0 ? SH_STANDING_HEARD : SH_STANDING_SILENT;
}

bool sh_link_is_connected(const sh_link *link)
{
    return link->stage > STAGE_CONNECT;
}

bool sh_link_is_vouched(const sh_link *link)
{
    return link->stage > STAGE_TLS;
}

void sh_link_welcome(sh_link *link, const sh_hello *mine)
{
    sh_hello_pack(&link->out, SH_FRAME_WELCOME, mine);
}

void sh_link_refuse(sh_link *link, const sh_notice *notice)
{
    sh_err ignored;
    sh_notice_pack(&link->out, SH_FRAME_REFUSE, notice);
    if (sh_link_flush(link, &ignored) == SH_OK) sh_stream_shut_write(&link->stream);
}

const sh_hello *sh_link_peer(const sh_link *link)
{
    return &link->theirs;
}

const char *sh_link_name(const sh_link *link)
{
    return link->name;
}

sh_buf *sh_link_out(sh_link *link)
{
    return &link->out;
}

sh_status sh_link_flush(sh_link *link, sh_err *err)
{
    size_t sent = 0;
    sh_status status = SH_OK;
    while (sent < link->out.len) {
        struct iovec part = {link->out.ptr + sent, link->out.len - sent};
        size_t moved;
        status = sh_stream_write(&link->stream, &part, 1, &moved, err);
        if (status != SH_OK) break;
        sent += moved;
    }
    sh_buf_drop_front(&link->out, sent);
    return status;
}

/* Reads until `in` holds `want` bytes, never more: what follows may not be ours to read. */
static sh_status fill(sh_link *link, size_t want, sh_err *err)
{
    while (link->in.len < want) {
        size_t left = want - link->in.len;
        struct iovec part = {sh_buf_reserve(&link->in, left), left};
        size_t moved;
        sh_status status = sh_stream_read(&link->stream, &part, 1, &moved, err);
        if (status != SH_OK) return status;
        link->in.len += moved;
    }
    return SH_OK;
}

sh_status sh_link_recv(sh_link *link, sh_frame_head *head, const uint8_t **payload, sh_err *err)
{
    if (link->in_given) sh_buf_clear(&link->in);
    link->in_given = false;
    sh_status status = fill(link, SH_FRAME_HEAD_LEN, err);
    if (status != SH_OK) return status;
    sh_frame_head found;
    status = sh_frame_head_unpack((const uint8_t *)link->in.ptr, &found, err);
    if (status != SH_OK) return status;
    status = fill(link, SH_FRAME_HEAD_LEN + (size_t)found.len, err);
    if (status != SH_OK) return status;
    link->in_given = true;
    *head = found;
    *payload = (const uint8_t *)link->in.ptr + SH_FRAME_HEAD_LEN;
    return SH_OK;
}

struct pollfd sh_link_poll(const sh_link *link)
{
    bool write = link->stage == STAGE_CONNECT || link->out.len > 0 ||
                 (link->stage == STAGE_TLS && link->stream.blocked_on_write);
    return (struct pollfd){.fd = link->stream.fd,
                           .events = (short)(write ? POLLIN | POLLOUT : POLLIN)};
}

void sh_link_shut(sh_link *link)
{
    sh_stream_shut_write(&link->stream);
}

sh_stream sh_link_release(sh_link *link)
{
    sh_stream stream = link->stream;
    sh_stream_init(&link->stream, -1);
    sh_link_close(link);
    return stream;
}
