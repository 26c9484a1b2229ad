/* rdma_channel.h - a channel over RDMA queue pairs; private to net/rdma_*.c.
 *
 *   rdma_frames.c    frames of a lane: credits, sequence numbers, completions
 *   rdma_messages.c  messages over devices that can write into the memory of a peer
 *   rdma_stream.c    messages over devices that can only send
 *   rdma_channel.c   making a channel, waiting and closing
 *
 * Threads: the one that uses the group. */
#ifndef SH_NET_RDMA_CHANNEL_H
#define SH_NET_RDMA_CHANNEL_H

#include "net/rdma_internal.h"

enum {
    SH_RDMA_RESERVED = 2, /* credits that data leaves for notices */
    SH_RDMA_BOUNCE_LEN = 128 * 1024,
    SH_RDMA_HEAD_LEN = 64, /* of a frame that carries its own header; a cache line */
};

typedef enum {
    SH_RDMA_FRAME_SLOT,   /* a short message, or a piece of one from a device that only sends */
    SH_RDMA_FRAME_WRITE,  /* bytes of a message, where the notice said */
    SH_RDMA_FRAME_NOTICE, /* where the next bytes belong, if anywhere */
    SH_RDMA_FRAME_GREET,  /* the first one in each direction */
} sh_rdma_frame_type;

/* Which requests of the send queue a message waits for. */
enum { SH_RDMA_ID_DATA = 1, SH_RDMA_ID_OTHER };

/* Contiguous memory of the receiver. The lanes may belong to several devices, each with its key. */
typedef struct {
    uint64_t at;
    uint32_t len;
    uint32_t key[SH_LANES_MAX];
} sh_rdma_target;

/* A frame that waits in its slot to be read. */
typedef struct {
    uint16_t slot;
    uint32_t len;
} sh_rdma_arrival;

typedef struct {
    sh_rdma_port_ref port;
    unsigned downs; /* of the port, when the channel was made */
    sh_rdma_qp *qp;
    uint32_t inline_max;
    sh_rdma_keys keys; /* of the channel's own memory */
    uint8_t *slots;    /* [depth] */
    uint8_t *places;   /* [depth], what is sent from the channel's own memory; as in the queue */
    int credits;       /* receives that the peer has posted for us */
    int credits_max;
    int owed;   /* receives that were posted again and that the peer does not know of */
    int queued; /* requests in the send queue */
    uint32_t sent, received;  /* frames */
    bool greeted;             /* the peer's first frame has arrived */
    sh_rdma_arrival *waiting; /* [depth], a ring */
    int first, count;         /* of it */
    uint32_t tended;          /* value of `sent` when the lane was last tended */
    int64_t tended_ns;        /* since when it has that value */
    uint32_t confirmed;       /* value of `sent` after the last empty notice because of it */
} sh_rdma_lane;

typedef struct {
    sh_channel base;
    sh_rdma *rdma;
    const sh_rdma_plugin *plugin;
    int peer;
    bool leads;
    bool send_only;
    sh_rdma_kind kind;
    int depth;
    uint32_t slot_len, frame_len;
    uint32_t place_len; /* of each of a lane's places */
    int lanes;
    sh_rdma_lane lane[SH_LANES_MAX];
    char *devices;   /* of all lanes, for reports */
    uint8_t *memory; /* slots, places and bounce buffers */
    size_t memory_len;
    sh_rdma_region **regions; /* [region_count], the first is `memory` */
    int region_count;
    uint64_t events;        /* completions handled so far */
    uint64_t events_asleep; /* and when the rank last went to sleep */
    int64_t looked_ns;      /* when its ports were last looked at */
    uint64_t copied;
    sh_err broken; /* why the channel has failed, once it has */
    struct {
        bool begun;
        size_t posted;        /* bytes of the message that are in the send queue or beyond */
        int pending;          /* requests that read its memory */
        int lane;             /* for the next frame */
        sh_rdma_target to[2]; /* what the peer's last notice has left */
        uint8_t *bounce;
    } out;
    struct {
        bool begun;
        size_t noticed; /* bytes that the peer was asked for; 0: nothing */
        size_t arrived; /* of them */
        bool bounced;
        int lane; /* of the next frame of a stream */
        int lent; /* slot that the caller may be reading, or -1 */
        int lent_lane;
        uint8_t *bounce;
    } in;
} sh_rdma_channel;

/* ---- rdma_frames.c ---- */

/* Each fails the channel for good. */
sh_status sh_rdma_break(sh_rdma_channel *c, const sh_rdma_lane *l, const char *what, sh_err *err);
sh_status sh_rdma_verb_failed(sh_rdma_channel *c, const sh_rdma_lane *l, const char *what,
                              int error, sh_err *err);
/* The lengths of a message differ on the two ends. */
sh_status sh_rdma_out_of_step(sh_rdma_channel *c, const sh_rdma_lane *l, sh_err *err);

/* Whether a frame may be sent, with `reserved` credits left. */
bool sh_rdma_can_post(const sh_rdma_channel *c, const sh_rdma_lane *l, int reserved);

/* Each sends a frame; can_post must hold. The last one's bytes, at most frame_len -
 * SH_RDMA_HEAD_LEN, are at sh_rdma_next_place + SH_RDMA_HEAD_LEN. */
SH_MUST_CHECK sh_status sh_rdma_frame_post(sh_rdma_channel *c, sh_rdma_lane *l,
                                           sh_rdma_frame_type type, sh_rdma_send *send,
                                           sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_notice_post(sh_rdma_channel *c, sh_rdma_lane *l,
                                            sh_rdma_frame_type type, const sh_rdma_target *to,
                                            int count, sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_piece_post(sh_rdma_channel *c, sh_rdma_lane *l,
                                           sh_rdma_frame_type type, uint32_t len, sh_err *err);
uint8_t *sh_rdma_next_place(const sh_rdma_channel *c, const sh_rdma_lane *l);

/* Receives. return: the slot has been read, and the peer may use it again. */
uint8_t *sh_rdma_slot(const sh_rdma_channel *c, const sh_rdma_lane *l, int slot);
SH_MUST_CHECK sh_status sh_rdma_slot_post(sh_rdma_channel *c, sh_rdma_lane *l, int slot,
                                          sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_slot_return(sh_rdma_channel *c, sh_rdma_lane *l, int slot,
                                            sh_err *err);
sh_rdma_arrival sh_rdma_arrival_take(sh_rdma_channel *c, sh_rdma_lane *l);

/* Handles what the queue pairs have completed. */
SH_MUST_CHECK sh_status sh_rdma_progress(sh_rdma_channel *c, sh_err *err);

/* A copy that no device could do; counted. */
void sh_rdma_copy(sh_rdma_channel *c, void *to, const void *from, size_t len);

/* ---- the two ways of messages ---- */

/* Each moves a message on as far as it gets now; `out.posted` and msg->done say how far. Receiving
 * returns SH_AGAIN until it is complete. */
SH_MUST_CHECK sh_status sh_rdma_message_send(sh_rdma_channel *c, const sh_msg *msg, sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_message_recv(sh_rdma_channel *c, sh_msg *msg, sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_stream_send(sh_rdma_channel *c, const sh_msg *msg, sh_err *err);
SH_MUST_CHECK sh_status sh_rdma_stream_recv(sh_rdma_channel *c, sh_msg *msg, sh_err *err);

/* Lets the message point to where it has arrived, until the next one is received. */
void sh_rdma_lend(sh_rdma_channel *c, sh_rdma_lane *l, int slot, size_t offset, sh_msg *msg);

#endif
