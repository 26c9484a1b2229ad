/* channel.h - the data path between this rank and one peer, over any transport.
 *
 * A channel carries messages in order, one at a time in each direction. Nothing blocks: call send
 * and recv again with the same message until they return SH_OK. Both ends must agree on the length
 * of every message; the channel knows nothing about its contents.
 *
 * To sleep, a rank arms all its channels, sleeps in poll() on the descriptors they returned, and
 * disarms them. What a peer writes into shared memory is checked like bytes from a socket.
 *
 * Threads: a channel has one owner. */
#ifndef SH_NET_CHANNEL_H
#define SH_NET_CHANNEL_H

#include "base/status.h"
#include "net/peer_messages.h"
#include "net/stream.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

enum { SH_CHANNEL_FDS_MAX = 2 * SH_LANES_MAX };

typedef struct {
    struct iovec part[2]; /* a header, which may be empty, and a body */
    size_t len;           /* of both together */
    size_t done;          /* bytes transferred so far */
    /* The receiver can take the message wherever it arrives; both ends must agree on it. A channel
     * that keeps it in its own memory lets the parts point there, until the next recv. */
    bool lend;
} sh_msg;

typedef struct sh_channel sh_channel;

typedef struct {
    const char *name; /* "tcp", "tls", "shm", "mpi", "rdma" */

    /* SH_OK: completely sent (or received). SH_AGAIN: not yet; msg->done is the progress.
     * SH_ERR_PEER: the connection has ended. */
    sh_status (*send)(sh_channel *channel, sh_msg *msg, sh_err *err);
    sh_status (*recv)(sh_channel *channel, sh_msg *msg, sh_err *err);

    /* Before sleeping: fills out (space for SH_CHANNEL_FDS_MAX) with the descriptors that wake this
     * channel for the given directions and returns their number. -1: do not sleep, there is work.
     * NULL: the channel cannot wake a sleeper and must be polled. */
    int (*arm)(sh_channel *channel, bool sending, bool receiving, struct pollfd *out);
    void (*disarm)(sh_channel *channel); /* after arm; NULL: nothing to do */

    /* Called now and then while the rank waits for anything, also for a channel that it does not
     * wait for: finds out that the connection is broken, or lets the peer find out. NULL: it ends
     * by itself. */
    sh_status (*tend)(sh_channel *channel, sh_err *err);

    /* True if the peer seems to be descheduled: it last ran on the CPU that the caller occupies
     * now. NULL: never known. */
    bool (*peer_descheduled)(const sh_channel *channel);

    /* Registers memory that messages will be sent from and received in, so that they need not be
     * copied. It must stay in place until it is unregistered or the channel is closed. NULL: any
     * memory will do. */
    sh_status (*register_memory)(sh_channel *channel, void *at, size_t len, sh_err *err);
    void (*unregister_memory)(sh_channel *channel,
                              void *at); /* with register_memory; it may move now */

    void (*close)(sh_channel *channel);

    /* The name of the device that carries it, such as "mlx5_0". NULL: it has none. */
    const char *(*device)(const sh_channel *channel);
} sh_channel_ops;

/* The first member of every transport's channel. */
struct sh_channel {
    const sh_channel_ops *ops;
};

sh_msg sh_msg_out(const void *head, size_t head_len, const void *body, size_t body_len);
sh_msg sh_msg_in(void *head, size_t head_len, void *body, size_t body_len);

void sh_channel_close(sh_channel *channel); /* takes NULL */

/* For transports: the parts of msg from byte `from` to byte `to`; returns how many are not empty.
 */
int sh_msg_parts(const sh_msg *msg, size_t from, size_t to, struct iovec out[2]);

#endif
