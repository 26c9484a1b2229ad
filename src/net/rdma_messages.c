/* Messages over devices that can write into the memory of a peer.
 *
 * A message travels in one of two ways; both ends derive from its length which one.
 *
 *   Short, and the receiver takes it wherever it arrives (sh_msg.lend): the sender sends it into a
 *   slot, a receive that was posted in advance. One hop, like a step's plan or a short sum.
 *
 *   Otherwise the receiver first tells the sender where the bytes belong (a notice), and the sender
 *   writes them there, over all lanes. A receive that is posted before the sender gets to it, as
 *   between the stages of a pipeline, costs no extra time. Nothing is copied on either end.
 *
 * Both work on reliable and on unreliable queue pairs alike. Slots for long messages were rejected:
 * each would be copied once, and a copy takes as long as the wire of a fast link.
 *
 * The peer can write only to registered memory, at any time; a rank trusts the others that far
 * (docs/security.md). */
#include "net/rdma_channel.h"

static bool fits_slot(const sh_rdma_channel *c, const sh_msg *msg)
{
    return msg->lend && msg->len <= c->slot_len;
}

/* ---- sending ---- */

/* Lets `send` gather the bytes from `from` on, at most `len`, and returns how many it does: fewer
 * if they must be copied because their memory is not registered, 0 if the copy has to wait. */
static size_t gather(sh_rdma_channel *c, const sh_rdma_lane *l, const sh_msg *msg, size_t from,
                     size_t len, sh_rdma_send *send)
{
    struct iovec parts[2];
    bool registered = true;
    send->parts = sh_msg_parts(msg, from, from + len, parts);
    send->in_line = len <= l->inline_max;
    for (int i = 0; i < send->parts; i++) {
        sh_rdma_keys keys = {0};
        registered = registered &&
                     (send->in_line || sh_rdma_keys_of(c->rdma, l->port.device, parts[i].iov_base,
                                                       parts[i].iov_len, &keys));
        send->part[i] = (sh_rdma_part){parts[i].iov_base, (uint32_t)parts[i].iov_len, keys.local};
    }
    if (registered) return len;
    if (c->out.pending > 0) return 0; /* it may still be read from the bounce buffer */
    if (len > SH_RDMA_BOUNCE_LEN) len = SH_RDMA_BOUNCE_LEN;
    int count = sh_msg_parts(msg, from, from + len, parts);
    uint8_t *at = c->out.bounce;
    for (int i = 0; i < count; at += parts[i].iov_len, i++)
        sh_rdma_copy(c, at, parts[i].iov_base, parts[i].iov_len);
    send->parts = 1;
    send->part[0] = (sh_rdma_part){c->out.bounce, (uint32_t)len, l->keys.local};
    return len;
}

static sh_status data_post(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_frame_type type,
                           sh_rdma_send *send, size_t len, sh_err *err)
{
    send->id = send->in_line ? SH_RDMA_ID_OTHER : SH_RDMA_ID_DATA;
    sh_status status = sh_rdma_frame_post(c, l, type, send, err);
    if (status != SH_OK) return status;
    c->out.pending += !send->in_line;
    c->out.posted += len;
    return SH_OK;
}

static sh_status send_short(sh_rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    sh_rdma_lane *l = &c->lane[0];
    sh_rdma_send send = {0};
    if (c->out.posted > 0 || !sh_rdma_can_post(c, l, SH_RDMA_RESERVED)) return SH_OK;
    size_t len = gather(c, l, msg, 0, msg->len, &send);
    return len == 0 ? SH_OK : data_post(c, l, SH_RDMA_FRAME_SLOT, &send, len, err);
}

/* Writes as much as the peer has asked for and credits allow. */
static sh_status send_long(sh_rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    for (;;) {
        sh_rdma_target *to = c->out.to[0].len > 0 ? &c->out.to[0] : &c->out.to[1];
        sh_rdma_lane *l = &c->lane[c->out.lane];
        sh_rdma_send send = {.write = true, .remote = to->at, .remote_key = to->key[c->out.lane]};
        size_t len = to->len < c->frame_len ? to->len : c->frame_len;
        if (len == 0 || !sh_rdma_can_post(c, l, SH_RDMA_RESERVED)) return SH_OK;
        if (to->len > msg->len - c->out.posted) return sh_rdma_out_of_step(c, l, err);
        len = gather(c, l, msg, c->out.posted, len, &send);
        if (len == 0) return SH_OK;
        sh_status status = data_post(c, l, SH_RDMA_FRAME_WRITE, &send, len, err);
        if (status != SH_OK) return status;
        to->at += len;
        to->len -= (uint32_t)len;
        c->out.lane = (c->out.lane + 1) % c->lanes;
    }
}

sh_status sh_rdma_message_send(sh_rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    return fits_slot(c, msg) ? send_short(c, msg, err) : send_long(c, msg, err);
}

/* ---- receiving ---- */

static sh_status recv_short(sh_rdma_channel *c, sh_msg *msg, sh_err *err)
{
    sh_rdma_lane *l = &c->lane[0];
    if (l->count == 0) return SH_AGAIN;
    sh_rdma_arrival a = sh_rdma_arrival_take(c, l);
    if (a.len != msg->len) return sh_rdma_out_of_step(c, l, err);
    sh_rdma_lend(c, l, a.slot, 0, msg);
    return SH_OK;
}

/* Fills in a target for a piece of memory; false if it is not registered. */
static bool target_at(const sh_rdma_channel *c, void *at, size_t len, sh_rdma_target *to)
{
    *to = (sh_rdma_target){.at = (uintptr_t)at, .len = (uint32_t)len};
    for (int i = 0; i < c->lanes; i++) {
        sh_rdma_keys keys;
        if (!sh_rdma_keys_of(c->rdma, c->lane[i].port.device, at, len, &keys)) return false;
        to->key[i] = keys.remote;
    }
    return true;
}

/* Where the rest of the message belongs: its own memory if that is registered, otherwise, for as
 * much as fits there, the bounce buffer. */
static int targets_of(sh_rdma_channel *c, const sh_msg *msg, sh_rdma_target to[2])
{
    enum { AT_ONCE = 1 << 30 };
    struct iovec parts[2];
    size_t left = msg->len - msg->done;
    int count = sh_msg_parts(msg, msg->done, msg->done + (left < AT_ONCE ? left : AT_ONCE), parts);
    c->in.bounced = false;
    for (int i = 0; i < count; i++)
        if (!target_at(c, parts[i].iov_base, parts[i].iov_len, &to[i])) c->in.bounced = true;
    if (!c->in.bounced) return count;
    bool known = target_at(c, c->in.bounce, left < SH_RDMA_BOUNCE_LEN ? left : SH_RDMA_BOUNCE_LEN,
                           &to[0]);
    SH_ASSERT(known);
    return 1;
}

static sh_status notice_next(sh_rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    sh_rdma_target to[2];
    if (!sh_rdma_can_post(c, &c->lane[0], 0)) return SH_AGAIN;
    int count = targets_of(c, msg, to);
    c->in.noticed = c->in.arrived = 0;
    for (int i = 0; i < count; i++) c->in.noticed += to[i].len;
    return sh_rdma_notice_post(c, &c->lane[0], SH_RDMA_FRAME_NOTICE, to, count, err);
}

static void bounce_out(sh_rdma_channel *c, const sh_msg *msg)
{
    struct iovec parts[2];
    int count = sh_msg_parts(msg, msg->done, msg->done + c->in.noticed, parts);
    const uint8_t *at = c->in.bounce;
    for (int i = 0; i < count; at += parts[i].iov_len, i++)
        sh_rdma_copy(c, parts[i].iov_base, at, parts[i].iov_len);
}

static sh_status recv_long(sh_rdma_channel *c, sh_msg *msg, sh_err *err)
{
    for (;;) {
        if (c->in.noticed == 0) {
            sh_status status = notice_next(c, msg, err);
            if (status != SH_OK) return status;
        }
        /* On one lane nothing overtakes, so a short message that came first is for another call. */
        if (c->in.arrived < c->in.noticed)
            return c->lanes == 1 && c->lane[0].count > 0 ? sh_rdma_out_of_step(c, &c->lane[0], err)
                                                         : SH_AGAIN;
        if (c->in.bounced) bounce_out(c, msg);
        msg->done += c->in.noticed;
        c->in.noticed = c->in.arrived = 0;
        if (msg->done == msg->len) return SH_OK;
    }
}

sh_status sh_rdma_message_recv(sh_rdma_channel *c, sh_msg *msg, sh_err *err)
{
    return fits_slot(c, msg) ? recv_short(c, msg, err) : recv_long(c, msg, err);
}
