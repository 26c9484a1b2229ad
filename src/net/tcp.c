/* A channel over pairs of sockets: one pair, or one for each cable.
 *
 * A long message is sent on one socket of a pair while the other one receives, and is distributed
 * over the pairs in segments. Short messages alternate between the two sockets of the first pair,
 * and the two ends start with different ones: when ranks exchange messages, each direction has a
 * socket of its own, and the next exchange swaps them. So no packet arrives on a socket that is
 * sending, which would cost the kernel a second pass over it, and the packets of short messages
 * carry the acknowledgements of the previous ones. On loopback an exchange of 16 KiB takes as long
 * as half a round trip; over one socket it takes 1.4 times that.
 *
 * The choice of the socket depends only on lengths and counts, which both ends know; nothing about
 * it is on the wire. A change here must be made on both ends at once, or messages cross. */
#include "base/alloc.h"
#include "net/transport.h"

#include <stdlib.h>

enum {
    /* What is moved before the other direction gets its turn: about one packet of loopback. */
    SEGMENT = 64 * 1024,
    SHORT_MAX = SEGMENT + 4096,
};

/* One direction. */
typedef struct {
    int side;              /* which socket of a pair: 0 or 1 */
    uint32_t shorts;       /* short messages completed so far */
    sh_stream *blocked_on; /* the socket that the last call would have blocked on */
} half;

typedef struct {
    sh_channel base;
    sh_stream socket[SH_SOCKETS_MAX];
    int pairs;
    half out;
    half in;
} tcp_channel;

typedef sh_status (*move_fn)(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                             sh_err *err);

static sh_stream *socket_for(tcp_channel *channel, const half *h, const sh_msg *msg)
{
    if (msg->len <= SHORT_MAX) return &channel->socket[((uint32_t)h->side + h->shorts) & 1];
    size_t pair = msg->done / SEGMENT % (size_t)channel->pairs;
    return &channel->socket[2 * pair + (size_t)h->side];
}

/* Moves at most the rest of one segment. */
static sh_status move_msg(tcp_channel *channel, half *h, sh_msg *msg, move_fn move, sh_err *err)
{
    if (msg->done == msg->len) return SH_OK; /* empty */
    struct iovec parts[2];
    size_t moved;
    size_t end = msg->len <= SHORT_MAX ? msg->len : msg->done / SEGMENT * SEGMENT + SEGMENT;
    int count = sh_msg_parts(msg, msg->done, end, parts);
    h->blocked_on = socket_for(channel, h, msg);
    sh_status status = move(h->blocked_on, parts, count, &moved, err);
    if (status != SH_OK) return status;
    msg->done += moved;
    if (msg->done < msg->len) {
        h->blocked_on = socket_for(channel, h, msg);
        return SH_AGAIN;
    }
    h->shorts += msg->len <= SHORT_MAX;
    return SH_OK;
}

static sh_status tcp_send(sh_channel *channel, sh_msg *msg, sh_err *err)
{
    tcp_channel *tcp = (tcp_channel *)channel;
    return move_msg(tcp, &tcp->out, msg, sh_stream_write, err);
}

static sh_status tcp_recv(sh_channel *channel, sh_msg *msg, sh_err *err)
{
    tcp_channel *tcp = (tcp_channel *)channel;
    return move_msg(tcp, &tcp->in, msg, sh_stream_read, err);
}

static int tcp_arm(sh_channel *channel, bool sending, bool receiving, struct pollfd *out)
{
    const tcp_channel *tcp = (const tcp_channel *)channel;
    int count = 0;
    if (sending) out[count++] = (struct pollfd){.fd = tcp->out.blocked_on->fd, .events = POLLOUT};
    if (receiving) out[count++] = (struct pollfd){.fd = tcp->in.blocked_on->fd, .events = POLLIN};
    return count;
}

static void tcp_close(sh_channel *channel)
{
    tcp_channel *tcp = (tcp_channel *)channel;
    for (int i = 0; i < 2 * tcp->pairs; i++) sh_stream_close(&tcp->socket[i]);
    free(tcp);
}

static const sh_channel_ops TCP_OPS = {
    .name = "tcp", .send = tcp_send, .recv = tcp_recv, .arm = tcp_arm, .close = tcp_close};
static const sh_channel_ops TLS_OPS = {
    .name = "tls", .send = tcp_send, .recv = tcp_recv, .arm = tcp_arm, .close = tcp_close};

/* Sockets always work, and there is nothing to tell: the table of ranks has the addresses, and
 * lanes and plain_data are the same in every hello. */
static sh_status tcp_offer(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine,
                           void **state, sh_err *err)
{
    (void)pair, (void)theirs, (void)mine, (void)state, (void)err;
    return SH_OK;
}

static int tcp_sockets(const sh_pair *pair)
{
    return 2 * pair->lanes;
}

static sh_status tcp_connect(const sh_pair *pair, void *state, const sh_offer *theirs,
                             sh_channel **out, sh_err *err)
{
    (void)state, (void)theirs, (void)err;
    int side = pair->rank > pair->peer;
    tcp_channel *tcp = sh_alloc(sizeof(*tcp));
    tcp->pairs = pair->lanes;
    for (int i = 0; i < 2 * tcp->pairs; i++) {
        tcp->socket[i] = pair->socket[i];
        if (pair->plain_data) sh_stream_end_tls(&tcp->socket[i]);
    }
    tcp->base.ops = tcp->socket[0].ssl != NULL ? &TLS_OPS : &TCP_OPS;
    tcp->out = (half){.side = side, .blocked_on = &tcp->socket[0]};
    tcp->in = (half){.side = 1 - side, .blocked_on = &tcp->socket[0]};
    *out = &tcp->base;
    return SH_OK;
}

const sh_transport sh_transport_tcp = {
    .name = "tcp",
    .title = "sockets",
    .offer = tcp_offer,
    .sockets = tcp_sockets,
    .connect = tcp_connect,
};
