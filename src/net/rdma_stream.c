/* Messages over devices that can only send, such as those of Thunderbolt.
 *
 * A message is cut into pieces, one for each frame, which take the lanes in turn. So the receiver
 * knows on which lane the next piece arrives, and the pieces of several lanes need no numbers of
 * their own. Nothing is agreed on first: pieces that nobody has asked for yet wait in their slots,
 * and a sender without credits waits, like one whose socket is full.
 *
 * Header and bytes must lie together, since a frame has one part, and nothing in a header can make
 * a device put the bytes where they belong. So each end copies once: into the frame, and out of it,
 * unless the message is a single piece that the receiver takes where it arrived (a plan, a short
 * sum). A copy of a frame takes a fraction of the time that the frame is on the wire. */
#include "net/rdma_channel.h"

static size_t piece_len(const sh_rdma_channel *c, size_t left)
{
    size_t most = c->frame_len - SH_RDMA_HEAD_LEN;
    return left < most ? left : most;
}

sh_status sh_rdma_stream_send(sh_rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    while (c->out.posted < msg->len) {
        sh_rdma_lane *l = &c->lane[c->out.lane];
        if (!sh_rdma_can_post(c, l, SH_RDMA_RESERVED)) return SH_OK;
        size_t len = piece_len(c, msg->len - c->out.posted);
        struct iovec parts[2];
        int count = sh_msg_parts(msg, c->out.posted, c->out.posted + len, parts);
        uint8_t *at = sh_rdma_next_place(c, l) + SH_RDMA_HEAD_LEN;
        for (int i = 0; i < count; at += parts[i].iov_len, i++)
            sh_rdma_copy(c, at, parts[i].iov_base, parts[i].iov_len);
        sh_status status = sh_rdma_piece_post(c, l, SH_RDMA_FRAME_SLOT, (uint32_t)len, err);
        if (status != SH_OK) return status;
        c->out.posted += len;
        c->out.lane = (c->out.lane + 1) % c->lanes;
    }
    return SH_OK;
}

static sh_status piece_take(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_arrival a, sh_msg *msg,
                            sh_err *err)
{
    struct iovec parts[2];
    if (msg->lend && a.len == msg->len) {
        sh_rdma_lend(c, l, a.slot, SH_RDMA_HEAD_LEN, msg);
        return SH_OK;
    }
    const uint8_t *at = sh_rdma_slot(c, l, a.slot) + SH_RDMA_HEAD_LEN;
    int count = sh_msg_parts(msg, msg->done, msg->done + a.len, parts);
    for (int i = 0; i < count; at += parts[i].iov_len, i++)
        sh_rdma_copy(c, parts[i].iov_base, at, parts[i].iov_len);
    msg->done += a.len;
    return sh_rdma_slot_return(c, l, a.slot, err);
}

sh_status sh_rdma_stream_recv(sh_rdma_channel *c, sh_msg *msg, sh_err *err)
{
    while (msg->done < msg->len) {
        sh_rdma_lane *l = &c->lane[c->in.lane];
        if (l->count == 0) return SH_AGAIN;
        sh_rdma_arrival a = sh_rdma_arrival_take(c, l);
        if (a.len != piece_len(c, msg->len - msg->done)) return sh_rdma_out_of_step(c, l, err);
        sh_status status = piece_take(c, l, a, msg, err);
        if (status != SH_OK) return status;
        c->in.lane = (c->in.lane + 1) % c->lanes;
    }
    return SH_OK;
}
