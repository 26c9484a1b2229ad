/* A state machine that opens a connection between two ranks: connect, TLS, hello, open.
 *
 * Anybody who can reach the port can open connections, so an unproven peer must be cheap: TLS state
 * is allocated only when its first bytes have arrived, frames have a maximum length, and everything
 * before STAGE_OPEN runs under one deadline.
 *
 * Reads never take more than the frame at hand. A data connection is released as a stream right
 * after the welcome, and bytes read ahead would be lost to it. */
#include "net/peer_conn.h"

#include "base/alloc.h"
#include "net/sock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef enum {
    STAGE_CONNECT, /* outgoing: TCP is connecting */
    STAGE_TLS,
    STAGE_HELLO, /* outgoing: hello sent, waiting for the answer; incoming: waiting for hello */
    STAGE_OPEN,
} stage;

struct sh_peer_conn {
    sh_stream stream;
    char name[SH_ADDR_TEXT_MAX];
    stage stage;
    bool outgoing;
    sh_tls *tls;
    sh_deadline deadline;
    sh_hello mine;
    sh_hello theirs;
    sh_buf out;
    sh_buf in;     /* one frame: header, then payload */
    bool in_given; /* the frame in `in` was returned to the caller */
};

static sh_peer_conn *conn_create(int fd, const sh_addr *peer, sh_tls *tls, sh_deadline deadline)
{
    sh_peer_conn *conn = sh_alloc(sizeof(*conn));
    sh_stream_init(&conn->stream, fd);
    sh_addr_format(peer, conn->name);
    conn->tls = tls;
    conn->deadline = deadline;
    return conn;
}

sh_status sh_peer_conn_connect(const sh_addr *to, sh_tls *tls, const sh_hello *mine,
                               sh_deadline deadline, sh_peer_conn **out, sh_err *err)
{
    int fd;
    sh_status status = sh_sock_connect(to, &fd, err);
    if (status != SH_OK) return status;
    sh_peer_conn *conn = conn_create(fd, to, tls, deadline);
    conn->outgoing = true;
    conn->mine = *mine;
    *out = conn;
    return SH_OK;
}

sh_peer_conn *sh_peer_conn_accept(int fd, const sh_addr *from, sh_tls *tls, sh_deadline deadline)
{
    sh_peer_conn *conn = conn_create(fd, from, tls, deadline);
    conn->stage = STAGE_TLS;
    return conn;
}

void sh_peer_conn_close(sh_peer_conn *conn)
{
    if (conn == NULL) return;
    sh_stream_close(&conn->stream);
    sh_buf_reset(&conn->out);
    sh_buf_reset(&conn->in);
    free(conn);
}

static sh_status step_connect(sh_peer_conn *conn, sh_err *err)
{
    struct pollfd p = {.fd = conn->stream.fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0) return SH_AGAIN;
    sh_status status = sh_sock_connected(conn->stream.fd, err);
    if (status == SH_OK) conn->stage = STAGE_TLS;
    return status;
}

/* Whether nothing has arrived yet. A silent peer should cost no more than its descriptor. */
static bool is_silent(const sh_peer_conn *conn)
{
    char byte;
    return recv(conn->stream.fd, &byte, 1, MSG_PEEK) < 0 && (errno == EAGAIN || errno == EINTR);
}

static sh_status step_tls(sh_peer_conn *conn, sh_err *err)
{
    sh_status status = SH_OK;
    if (!conn->outgoing && conn->tls != NULL && conn->stream.ssl == NULL && is_silent(conn))
        return SH_AGAIN;
    if (conn->tls != NULL && conn->stream.ssl == NULL)
        status = sh_stream_start_tls(&conn->stream, conn->tls, !conn->outgoing, err);
    if (status == SH_OK && conn->tls != NULL) status = sh_stream_handshake(&conn->stream, err);
    if (status != SH_OK) return status;
    conn->stage = STAGE_HELLO;
    if (conn->outgoing) sh_hello_pack(&conn->out, SH_FRAME_HELLO, &conn->mine);
    return SH_OK;
}

/* What a negative answer means; SH_OK for frames that are none. A refusal is final for the owner of
 * the connection, a WAIT is not. */
static sh_status refusal_of(sh_frame_type type)
{
    switch (type) {
    case SH_FRAME_REFUSE: return SH_ERR_GROUP;
    case SH_FRAME_WAIT: return SH_ERR_PEER;
    case SH_FRAME_TAKEN: return SH_ERR_CONFLICT;
    case SH_FRAME_ELSEWHERE: return SH_ERR_NOT_FOUND;
    case SH_FRAME_PREPARE: return SH_ERR_CANCELLED;
    default: return SH_OK;
    }
}

/* Comes after the TLS handshake: with a token, only a rank can have sent this text. */
static sh_status refused(sh_frame_head head, const uint8_t *payload, sh_err *err)
{
    sh_notice notice;
    sh_status status = sh_notice_unpack(payload, head.len, &notice, err);
    return status == SH_OK ? sh_err_set(err, refusal_of(head.type), "%s", notice.text) : status;
}

static sh_status step_hello(sh_peer_conn *conn, sh_err *err)
{
    sh_status status = sh_peer_conn_flush(conn, err);
    if (status != SH_OK) return status;
    sh_frame_head head;
    const uint8_t *payload;
    status = sh_peer_conn_recv(conn, &head, &payload, err);
    if (status != SH_OK) return status;
    if (conn->outgoing && refusal_of(head.type) != SH_OK) return refused(head, payload, err);
    if (head.type != (conn->outgoing ? SH_FRAME_WELCOME : SH_FRAME_HELLO))
        return sh_err_set(err, SH_ERR_PEER, "expected a hello, got a frame of type %d", head.type);
    status = sh_hello_unpack(payload, head.len, &conn->theirs, err);
    if (status == SH_OK && conn->outgoing)
        status = sh_hello_compare(&conn->mine, &conn->theirs, err);
    if (status == SH_OK) conn->stage = STAGE_OPEN;
    return status;
}

sh_status sh_peer_conn_step(sh_peer_conn *conn, sh_err *err)
{
    sh_status status = SH_OK;
    while (status == SH_OK && conn->stage != STAGE_OPEN) {
        switch (conn->stage) {
        case STAGE_CONNECT: status = step_connect(conn, err); break;
        case STAGE_TLS: status = step_tls(conn, err); break;
        default: status = step_hello(conn, err); break;
        }
    }
    if (status == SH_AGAIN && sh_deadline_passed(conn->deadline)) {
        static const char *const waits[] = {"an answer", "the TLS handshake", "a hello", ""};
        return sh_err_set(err, SH_ERR_TIMEOUT, "timed out waiting for %s", waits[conn->stage]);
    }
    return status;
}

sh_peer_conn_standing sh_peer_conn_standing_of(const sh_peer_conn *conn)
{
    if (conn->stage == STAGE_OPEN) return SH_STANDING_PROVED;
    /* The session counts as reused as soon as the binder of the pre-shared key in the ClientHello
     * was verified, which is before the handshake is complete. */
    if (conn->stream.ssl != NULL && SSL_session_reused(conn->stream.ssl)) return SH_STANDING_PROVED;
    if (conn->stream.ssl != NULL)
        return BIO_number_read(SSL_get_rbio(conn->stream.ssl)) > 0 ? SH_STANDING_HEARD
                                                                   : SH_STANDING_SILENT;
    return conn->in.len > 0 ? SH_STANDING_HEARD : SH_STANDING_SILENT;
}

bool sh_peer_conn_is_connected(const sh_peer_conn *conn)
{
    return conn->stage > STAGE_CONNECT;
}

bool sh_peer_conn_is_authenticated(const sh_peer_conn *conn)
{
    return conn->stage > STAGE_TLS;
}

void sh_peer_conn_welcome(sh_peer_conn *conn, const sh_hello *mine)
{
    sh_hello_pack(&conn->out, SH_FRAME_WELCOME, mine);
}

void sh_peer_conn_refuse(sh_peer_conn *conn, sh_frame_type answer, const sh_notice *notice)
{
    sh_err ignored;
    sh_notice_pack(&conn->out, answer, notice);
    if (sh_peer_conn_flush(conn, &ignored) == SH_OK) sh_stream_shut_write(&conn->stream);
}

bool sh_peer_conn_turn_away(sh_peer_conn *conn, int rank)
{
    const sh_hello *theirs = &conn->theirs;
    char text[64];
    sh_notice notice;
    bool unsure = rank == SH_RANK_ANY && theirs->use != SH_USE_JOIN;
    if (theirs->protocol != SH_PEER_PROTOCOL || (int)theirs->to == rank || unsure) return false;
    snprintf(text, sizeof(text), "rank %d is there, not rank %d", rank, (int)theirs->to);
    sh_notice_set(&notice, -1, rank == SH_RANK_ANY ? "rank 0 is not there" : text);
    sh_peer_conn_refuse(conn, SH_FRAME_ELSEWHERE, &notice);
    sh_peer_conn_close(conn);
    return true;
}

const sh_hello *sh_peer_conn_peer(const sh_peer_conn *conn)
{
    return &conn->theirs;
}

const char *sh_peer_conn_name(const sh_peer_conn *conn)
{
    return conn->name;
}

sh_buf *sh_peer_conn_out(sh_peer_conn *conn)
{
    return &conn->out;
}

sh_status sh_peer_conn_flush(sh_peer_conn *conn, sh_err *err)
{
    size_t sent = 0;
    sh_status status = SH_OK;
    while (sent < conn->out.len) {
        struct iovec part = {conn->out.ptr + sent, conn->out.len - sent};
        size_t moved;
        status = sh_stream_write(&conn->stream, &part, 1, &moved, err);
        if (status != SH_OK) break;
        sent += moved;
    }
    sh_buf_drop_front(&conn->out, sent);
    return status;
}

/* Reads until `in` holds `want` bytes, never more: what follows may belong to the stream. */
static sh_status fill(sh_peer_conn *conn, size_t want, sh_err *err)
{
    while (conn->in.len < want) {
        size_t left = want - conn->in.len;
        struct iovec part = {sh_buf_reserve(&conn->in, left), left};
        size_t moved;
        sh_status status = sh_stream_read(&conn->stream, &part, 1, &moved, err);
        if (status != SH_OK) return status;
        conn->in.len += moved;
    }
    return SH_OK;
}

/* Resumable: a partial frame stays in `in`, and the next call parses its header again. */
sh_status sh_peer_conn_recv(sh_peer_conn *conn, sh_frame_head *head, const uint8_t **payload,
                            sh_err *err)
{
    if (conn->in_given) sh_buf_clear(&conn->in);
    conn->in_given = false;
    sh_status status = fill(conn, SH_FRAME_HEAD_LEN, err);
    if (status != SH_OK) return status;
    sh_frame_head found;
    status = sh_frame_head_unpack((const uint8_t *)conn->in.ptr, &found, err);
    if (status != SH_OK) return status;
    status = fill(conn, SH_FRAME_HEAD_LEN + (size_t)found.len, err);
    if (status != SH_OK) return status;
    conn->in_given = true;
    *head = found;
    *payload = (const uint8_t *)conn->in.ptr + SH_FRAME_HEAD_LEN;
    return SH_OK;
}

/* Always interested in reading, so that a closed connection is noticed in any stage. */
struct pollfd sh_peer_conn_poll(const sh_peer_conn *conn)
{
    bool write = conn->stage == STAGE_CONNECT || conn->out.len > 0 ||
                 (conn->stage == STAGE_TLS && conn->stream.blocked_on_write);
    return (struct pollfd){.fd = conn->stream.fd,
                           .events = (short)(write ? POLLIN | POLLOUT : POLLIN)};
}

void sh_peer_conn_shut(sh_peer_conn *conn)
{
    sh_stream_shut_write(&conn->stream);
}

sh_stream sh_peer_conn_release(sh_peer_conn *conn)
{
    sh_stream stream = conn->stream;
    sh_stream_init(&conn->stream, -1);
    sh_peer_conn_close(conn);
    return stream;
}
