/* A port over one or more sockets. Messages are dealt to them in turn, long ones in segments; both
 * ends know all lengths, so they deal alike. The two ends start with different sockets: when ranks
 * exchange messages, each direction has a socket of its own, and the next exchange swaps them. So
 * no packet comes in on a socket that is just sending, which would cost a second pass of the kernel
 * over it, and every packet carries the acknowledgement of the one before. On loopback that makes
 * an exchange of 16 KiB as quick as half a round trip; over a single socket it takes 1.4 times as
 * long. */
#include "net/port.h"

#include "base/alloc.h"

#include <stdlib.h>

/* What is moved at a time, before the other direction has its turn: about what a packet of loopback
 * holds. */
enum { SEGMENT = 64 * 1024 };

typedef struct {
    sh_port base;
    sh_stream lane[SH_LANES_MAX];
    int count;
    uint32_t out_turn; /* the lane of the message under way, before the remainder is taken */
    uint32_t in_turn;
} tcp_port;

typedef sh_status (*move_fn)(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                             sh_err *err);

static sh_stream *lane_of(tcp_port *port, uint32_t turn)
{
    return &port->lane[turn % (uint32_t)port->count];
}

/* At most the rest of one segment. */
static sh_status move_msg(tcp_port *port, uint32_t *turn, sh_msg *msg, move_fn move, sh_err *err)
{
    if (msg->done == msg->len) return SH_OK; /* empty */
    struct iovec parts[2];
    size_t end = msg->done / SEGMENT * SEGMENT + SEGMENT;
    int count = sh_msg_parts(msg, msg->done, end < msg->len ? end : msg->len, parts);
    size_t moved;
    sh_status status = move(lane_of(port, *turn), parts, count, &moved, err);
    if (status != SH_OK) return status;
    msg->done += moved;
    if (msg->done == end || msg->done == msg->len) ++*turn;
    return msg->done == msg->len ? SH_OK : SH_AGAIN;
}

static sh_status tcp_send(sh_port *port, sh_msg *msg, sh_err *err)
{
    tcp_port *tcp = (tcp_port *)port;
    return move_msg(tcp, &tcp->out_turn, msg, sh_stream_write, err);
}

static sh_status tcp_recv(sh_port *port, sh_msg *msg, sh_err *err)
{
    tcp_port *tcp = (tcp_port *)port;
    return move_msg(tcp, &tcp->in_turn, msg, sh_stream_read, err);
}

static int tcp_arm(sh_port *port, bool sending, bool receiving, struct pollfd *out)
{
    tcp_port *tcp = (tcp_port *)port;
    int count = 0;
    if (sending)
        out[count++] = (struct pollfd){.fd = lane_of(tcp, tcp->out_turn)->fd, .events = POLLOUT};
    if (receiving)
        out[count++] = (struct pollfd){.fd = lane_of(tcp, tcp->in_turn)->fd, .events = POLLIN};
    return count;
}

static void tcp_disarm(sh_port *port)
{
    (void)port;
}

static void tcp_close(sh_port *port)
{
    tcp_port *tcp = (tcp_port *)port;
    for (int i = 0; i < tcp->count; i++) sh_stream_close(&tcp->lane[i]);
    free(tcp);
}

static const sh_port_ops TCP_OPS = {"tcp", tcp_send, tcp_recv, tcp_arm, tcp_disarm, tcp_close};
static const sh_port_ops TLS_OPS = {"tls", tcp_send, tcp_recv, tcp_arm, tcp_disarm, tcp_close};

sh_port *sh_tcp_port_create(const sh_stream *lanes, int count, int side)
{
    SH_ASSERT(count >= 1 && count <= SH_LANES_MAX);
    tcp_port *tcp = sh_alloc(sizeof(*tcp));
    tcp->base.ops = lanes[0].ssl != NULL ? &TLS_OPS : &TCP_OPS;
    tcp->count = count;
    tcp->out_turn = (uint32_t)side;
    tcp->in_turn = (uint32_t)(1 - side);
    for (int i = 0; i < count; i++) tcp->lane[i] = lanes[i];
    return &tcp->base;
}
