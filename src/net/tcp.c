/* A port over one or more sockets. A short message takes the first socket. A long one is cut into
 * as many runs of bytes as there are sockets; both ends know its length, so they make the same cut.
 */
#include "net/port.h"

#include "base/alloc.h"

#include <stdlib.h>

/* Below this a second socket brings more system calls than bandwidth. */
enum { CUT_MIN = 128 * 1024 };

typedef struct {
    sh_port base;
    sh_stream lane[SH_LANES_MAX];
    int count;
    size_t sent[SH_LANES_MAX]; /* of the message under way, on each lane */
    size_t received[SH_LANES_MAX];
} tcp_port;

typedef sh_status (*move_fn)(sh_stream *stream, const struct iovec *parts, int count, size_t *moved,
                             sh_err *err);

static size_t lane_start(const tcp_port *port, size_t len, int lane)
{
    if (lane == port->count) return len;
    if (len < CUT_MIN) return lane == 0 ? 0 : len;
    return len / (size_t)port->count * (size_t)lane;
}

static sh_status move_lane(tcp_port *port, int lane, size_t *done, sh_msg *msg, move_fn move,
                           sh_err *err)
{
    size_t end = lane_start(port, msg->len, lane + 1);
    for (size_t at; (at = lane_start(port, msg->len, lane) + done[lane]) < end;) {
        struct iovec parts[2];
        int count = sh_msg_parts(msg, at, end, parts);
        size_t moved;
        sh_status status = move(&port->lane[lane], parts, count, &moved, err);
        if (status != SH_OK) return status;
        done[lane] += moved;
        msg->done += moved;
    }
    return SH_OK;
}

static sh_status move_all(tcp_port *port, size_t *done, sh_msg *msg, move_fn move, sh_err *err)
{
    for (int lane = 0; lane < port->count; lane++) {
        sh_status status = move_lane(port, lane, done, msg, move, err);
        if (status < 0) return status;
    }
    if (msg->done < msg->len) return SH_AGAIN;
    for (int lane = 0; lane < port->count; lane++) done[lane] = 0;
    return SH_OK;
}

static sh_status tcp_send(sh_port *port, sh_msg *msg, sh_err *err)
{
    tcp_port *tcp = (tcp_port *)port;
    return move_all(tcp, tcp->sent, msg, sh_stream_write, err);
}

static sh_status tcp_recv(sh_port *port, sh_msg *msg, sh_err *err)
{
    tcp_port *tcp = (tcp_port *)port;
    return move_all(tcp, tcp->received, msg, sh_stream_read, err);
}

static int tcp_arm(sh_port *port, bool sending, bool receiving, struct pollfd *out)
{
    const tcp_port *tcp = (const tcp_port *)port;
    short events = (short)((sending ? POLLOUT : 0) | (receiving ? POLLIN : 0));
    for (int i = 0; i < tcp->count; i++)
        out[i] = (struct pollfd){.fd = tcp->lane[i].fd, .events = events};
    return tcp->count;
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

sh_port *sh_tcp_port_create(const sh_stream *lanes, int count)
{
    SH_ASSERT(count >= 1 && count <= SH_LANES_MAX);
    tcp_port *tcp = sh_alloc(sizeof(*tcp));
    tcp->base.ops = lanes[0].ssl != NULL ? &TLS_OPS : &TCP_OPS;
    tcp->count = count;
    for (int i = 0; i < count; i++) tcp->lane[i] = lanes[i];
    return &tcp->base;
}
