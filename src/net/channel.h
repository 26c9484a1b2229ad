/* channel.h - the data path from this rank to one other, over any transport.
 *
 * A port carries messages in order, one under way in each direction at a time. Nothing blocks: send
 * and recv are called again with the same message until they say SH_OK. Both ends must agree on the
 * length of every message; what it means is not the port's business.
 *
 * To sleep, a rank arms all its ports, sleeps in poll() on what they gave it, and disarms them.
 * What a peer writes into shared memory is checked like bytes from a socket.
 *
 * Threads: a port has one owner. */
#ifndef SH_NET_CHANNEL_H
#define SH_NET_CHANNEL_H

#include "base/status.h"
#include "net/peer_messages.h"
#include "net/stream.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    struct iovec part[2]; /* a head, which may be empty, and a body */
    size_t len;           /* of both */
    size_t done;          /* bytes that are through */
} sh_msg;

typedef struct sh_channel sh_channel;

typedef struct {
    const char *name; /* "tcp", "tls", "shm", "mpi" */

    /* SH_OK: all of it is out (or in). SH_AGAIN: not yet; msg->done says how far. SH_ERR_PEER: the
     * connection has ended. */
    sh_status (*send)(sh_channel *channel, sh_msg *msg, sh_err *err);
    sh_status (*recv)(sh_channel *channel, sh_msg *msg, sh_err *err);

    /* Before sleeping: fills out (room for two) with what wakes this port up for the
     * directions that wait, returns how many; -1 when it need not sleep. 0: nothing can wake it,
     * it must be asked again and again. */
    int (*arm)(sh_channel *channel, bool sending, bool receiving, struct pollfd *out);
    void (*disarm)(sh_channel *channel);

    /* The peer surely does not run now: it would on the caller's processor. NULL: never known. */
    bool (*peer_descheduled)(const sh_channel *channel);

    void (*close)(sh_channel *channel);
} sh_channel_ops;

/* What every transport's port begins with. */
struct sh_channel {
    const sh_channel_ops *ops;
};

sh_msg sh_msg_out(const void *head, size_t head_len, const void *body, size_t body_len);
sh_msg sh_msg_in(void *head, size_t head_len, void *body, size_t body_len);

/* Over sockets; takes over `pairs` (1..SH_LANES_MAX) pairs of streams in an order that both ends
 * share. One end is side 0, the other side 1. */
sh_channel *sh_tcp_channel_create(const sh_stream *sockets, int pairs, int side);

void sh_channel_close(sh_channel *channel); /* takes NULL */

/* The parts of msg from byte `from` to byte `to`, for transports; returns how many are not empty.
 */
int sh_msg_parts(const sh_msg *msg, size_t from, size_t to, struct iovec out[2]);

#endif
