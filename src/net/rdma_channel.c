/* A channel over RDMA queue pairs, one for each lane.
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
 * Credits. Every frame uses up one posted receive of the peer, and on an unreliable queue pair a
 * frame that finds none is lost. So a lane counts the receives that the peer has posted and sends
 * nothing without one. Each frame returns the credits for what was received since the last; a peer
 * that only listens sends an empty notice when it owes half of them. Data leaves RESERVED credits
 * unused, so that a notice can always be sent, and two ranks never wait for each other's credits.
 *
 * Loss. Frames are numbered in each direction of a lane. A gap shows that frames were lost, and the
 * group ends. A lost last frame leaves no gap, so a rank that has waited for a while sends an empty
 * notice, whose number reveals it. A port that goes down is reported by the device at once. What is
 * left (a cable that breaks beyond a switch) ends with the deadline of the operation.
 *
 * What the peer sends is checked like bytes from a socket. It can write only to registered memory,
 * at any time; a rank trusts the others that far (docs/security.md). */
#include "base/alloc.h"
#include "base/log.h"
#include "net/rdma_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RESERVED = 2,
    SLOT_LEN = 64 * 1024 + SH_OP_HEAD_LEN,
    FRAME_LEN = 256 * 1024,
    STRIPE_LEN = 32 * 1024, /* frames of a channel with several lanes, so that all have work */
    BOUNCE_LEN = 128 * 1024,
    BATCH = 16,
    ALIGN = 4096,
};

/* The immediate data of a frame: its type, the credits that it returns and its number. */
enum { SEQ_BITS = 20, CREDIT_BITS = 10, TYPE_SHIFT = SEQ_BITS + CREDIT_BITS };
#define SEQ_MASK ((1u << SEQ_BITS) - 1)
#define CREDIT_MASK ((1u << CREDIT_BITS) - 1)

typedef enum {
    FRAME_SLOT,   /* a short message */
    FRAME_WRITE,  /* bytes of a message, where the notice said */
    FRAME_NOTICE, /* where the next bytes belong, if anywhere */
    FRAME_GREET,  /* the first one in each direction */
} frame_type;

/* Which requests of the send queue a message waits for. */
enum { ID_DATA = 1, ID_OTHER };

/* Contiguous memory of the receiver. The lanes may belong to several devices, each with its key. */
typedef struct {
    uint64_t at;
    uint32_t len;
    uint32_t key[SH_LANES_MAX];
} target;

typedef struct {
    sh_rdma_port_ref port;
    unsigned downs; /* of the port, when the channel was made */
    sh_rdma_qp *qp;
    uint32_t inline_max;
    sh_rdma_keys keys; /* of the channel's own memory */
    uint8_t *slots;    /* [depth] */
    uint8_t *notices;  /* [depth], as they are sent; one for each place of the send queue */
    int credits;       /* receives that the peer has posted for us */
    int credits_max;
    int owed;   /* receives that were posted again and that the peer does not know of */
    int queued; /* requests in the send queue */
    uint32_t sent, received; /* frames */
    uint32_t sent_before;    /* value of `sent` when the rank last went to sleep */
    uint32_t confirmed;      /* value of `sent` after the last empty notice of arm */
    bool greeted;            /* the peer's first frame has arrived */
} lane;

typedef struct {
    uint16_t slot;
    uint32_t len;
} arrival;

typedef struct {
    sh_channel base;
    sh_rdma *rdma;
    const sh_rdma_plugin *plugin;
    int peer;
    bool leads;
    sh_rdma_kind kind;
    int depth;
    uint32_t slot_len, frame_len;
    int lanes;
    lane lane[SH_LANES_MAX];
    char *devices;   /* of all lanes, for reports */
    uint8_t *memory; /* slots, notices and bounce buffers */
    size_t memory_len;
    sh_rdma_region **regions; /* [region_count], the first is `memory` */
    int region_count;
    uint64_t events; /* completions handled so far */
    uint64_t copied;
    sh_err broken; /* why the channel has failed, once it has */
    struct {
        bool begun;
        size_t posted; /* bytes of the message that are in the send queue or beyond */
        int pending;   /* requests that read its memory */
        int lane;      /* for the next frame */
        target to[2];  /* what the peer's last notice has left */
        uint8_t *bounce;
    } out;
    struct {
        bool begun;
        size_t noticed; /* bytes that the peer was asked for; 0: nothing */
        size_t arrived; /* of them */
        bool bounced;
        int lent;         /* slot that the caller may be reading, or -1 */
        arrival *waiting; /* [depth] short messages that have arrived, a ring */
        int first, count;
        uint8_t *bounce;
    } in;
} rdma_channel;

/* ---- lengths ---- */

uint32_t sh_rdma_slot_len(uint32_t frame_max)
{
    return frame_max < SLOT_LEN ? frame_max : SLOT_LEN;
}

uint32_t sh_rdma_frame_len(uint32_t frame_max)
{
    return frame_max < FRAME_LEN ? frame_max : FRAME_LEN;
}

static size_t padded(size_t len)
{
    return (len + ALIGN - 1) / ALIGN * ALIGN;
}

static bool fits_slot(const rdma_channel *c, const sh_msg *msg)
{
    return msg->lend && msg->len <= c->slot_len;
}

/* ---- frames ---- */

static sh_status break_with(rdma_channel *c, const lane *l, const char *what, sh_err *err)
{
    sh_err_set(err, SH_ERR_PEER, "RDMA over %s: %s", l->port.device->name, what);
    c->broken = *err;
    return err->status;
}

static sh_status verb_failed(rdma_channel *c, const lane *l, const char *what, int error,
                             sh_err *err)
{
    sh_rdma_failed(l->port.device->name, what, error, err);
    err->status = SH_ERR_PEER;
    c->broken = *err;
    return err->status;
}

/* A post fails with ENOMEM if the queue has no place left. */
static sh_status post_failed(rdma_channel *c, const lane *l, const char *what, int error,
                             sh_err *err)
{
    if (error == ENOMEM) return break_with(c, l, "its queue is full", err);
    return verb_failed(c, l, what, error, err);
}

/* The lengths of a message differ on the two ends. */
static sh_status out_of_step(rdma_channel *c, const lane *l, sh_err *err)
{
    return break_with(
        c, l, "the peer's message has another length: the ranks do not run the same operations",
        err);
}

static bool can_post(const rdma_channel *c, const lane *l, int reserved)
{
    return l->credits > reserved && l->queued < c->depth;
}

/* can_post must hold. */
static sh_status frame_post(rdma_channel *c, lane *l, frame_type type, sh_rdma_send *send,
                            sh_err *err)
{
    send->imm = (uint32_t)type << TYPE_SHIFT | (uint32_t)l->owed << SEQ_BITS | (l->sent & SEQ_MASK);
    int error = c->plugin->post_send(l->qp, send);
    if (error != 0) return post_failed(c, l, "sending", error, err);
    l->owed = 0;
    l->credits--;
    l->queued++;
    l->sent++;
    return SH_OK;
}

static void put_le(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) out[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)in[i] << (8 * i);
    return value;
}

/* Of a notice: a count, and for each target its address, length and keys. */
static uint32_t notice_len(const rdma_channel *c, int count)
{
    return (uint32_t)(1 + count * (12 + 4 * c->lanes));
}

_Static_assert(1 + 2 * (12 + 4 * SH_LANES_MAX) <= SH_RDMA_NOTICE_LEN,
               "the longest notice must fit");

static void notice_pack(const rdma_channel *c, const target *to, int count, uint8_t *out)
{
    *out++ = (uint8_t)count;
    for (int i = 0; i < count; i++) {
        put_le(out, to[i].at, 8);
        put_le(out + 8, to[i].len, 4);
        for (int k = 0; k < c->lanes; k++) put_le(out + 12 + 4 * k, to[i].key[k], 4);
        out += 12 + 4 * c->lanes;
    }
}

/* Tells the peer where the next bytes belong (count 0: nothing, but number and credits arrive). The
 * place in `notices` is free: as many requests as it has places were completed since. */
static sh_status notice_post(rdma_channel *c, lane *l, frame_type type, const target *to, int count,
                             sh_err *err)
{
    uint8_t *at = l->notices + l->sent % (uint32_t)c->depth * SH_RDMA_NOTICE_LEN;
    uint32_t len = notice_len(c, count);
    notice_pack(c, to, count, at);
    sh_rdma_send send = {.id = ID_OTHER,
                         .in_line = len <= l->inline_max,
                         .parts = 1,
                         .part = {{at, len, l->keys.local}}};
    return frame_post(c, l, type, &send, err);
}

static sh_status slot_post(rdma_channel *c, lane *l, int slot, sh_err *err)
{
    int error = c->plugin->post_receive(l->qp, (uint64_t)slot,
                                        l->slots + (size_t)slot * padded(c->slot_len), c->slot_len,
                                        l->keys.local);
    return error == 0 ? SH_OK : post_failed(c, l, "posting a receive", error, err);
}

/* The slot has been read: the peer may use it again. */
static sh_status slot_return(rdma_channel *c, lane *l, int slot, sh_err *err)
{
    l->owed++;
    return slot_post(c, l, slot, err);
}

static sh_status notice_take(rdma_channel *c, const lane *l, const uint8_t *bytes, uint32_t len,
                             sh_err *err)
{
    int count = len > 0 ? bytes[0] : -1;
    bool unused = c->out.to[0].len > 0 || c->out.to[1].len > 0;
    if (count < 0 || count > 2 || len != notice_len(c, count) || (count > 0 && unused))
        return break_with(c, l, "the peer sent a malformed notice", err);
    bytes++;
    for (int i = 0; i < count; i++, bytes += 12 + 4 * c->lanes) {
        target *to = &c->out.to[i];
        to->at = get_le(bytes, 8);
        to->len = (uint32_t)get_le(bytes + 8, 4);
        for (int k = 0; k < c->lanes; k++) to->key[k] = (uint32_t)get_le(bytes + 12 + 4 * k, 4);
    }
    return SH_OK;
}

static sh_status frame_take(rdma_channel *c, lane *l, frame_type type, int slot, uint32_t len,
                            sh_err *err)
{
    sh_status status = SH_OK;
    const uint8_t *bytes = l->slots + (size_t)slot * padded(c->slot_len);
    switch (type) {
    case FRAME_SLOT:
        if (l != &c->lane[0] || c->in.count == c->depth)
            return break_with(c, l, "the peer sent a message on the wrong lane", err);
        c->in.waiting[(c->in.first + c->in.count++) % c->depth] = (arrival){(uint16_t)slot, len};
        return SH_OK; /* the slot is returned when the message has been read */
    case FRAME_WRITE:
        if (len > c->in.noticed - c->in.arrived)
            return break_with(c, l, "the peer wrote more than it was asked for", err);
        c->in.arrived += len;
        break;
    case FRAME_NOTICE: status = notice_take(c, l, bytes, len, err); break;
    case FRAME_GREET: l->greeted = true; break;
    }
    return status == SH_OK ? slot_return(c, l, slot, err) : status;
}

static sh_status frame_check(rdma_channel *c, lane *l, const sh_rdma_completion *done, sh_err *err)
{
    frame_type type = done->imm >> TYPE_SHIFT;
    int returned = (int)(done->imm >> SEQ_BITS & CREDIT_MASK);
    if ((done->imm & SEQ_MASK) != (l->received & SEQ_MASK))
        return break_with(c, l, "frames were lost; check the cable", err);
    l->received++;
    l->credits += returned;
    if (l->credits > l->credits_max || done->id >= (uint64_t)c->depth ||
        (!done->written && done->len > c->slot_len) || done->written != (type == FRAME_WRITE) ||
        (type == FRAME_GREET) != !l->greeted)
        return break_with(c, l, "the peer sent an invalid frame", err);
    return frame_take(c, l, type, (int)done->id, done->len, err);
}

static sh_status lane_failed(rdma_channel *c, const lane *l, const sh_rdma_completion *done,
                             sh_err *err)
{
    if (sh_rdma_check_port(c->rdma, l->port.device, l->port.number, l->downs, err) != SH_OK) {
        c->broken = *err;
        return err->status;
    }
    if (done->result == SH_RDMA_SILENT)
        return break_with(c, l, "the peer does not acknowledge; check the cable", err);
    char what[160];
    snprintf(what, sizeof(what),
             "the queue pair has failed: %s; check the cable and the log of the peer",
             done->result == SH_RDMA_FLUSHED ? "its requests were cancelled" : done->reason);
    return break_with(c, l, what, err);
}

static sh_status lane_progress(rdma_channel *c, lane *l, sh_err *err)
{
    sh_rdma_completion done[BATCH];
    int count;
    do {
        int error = c->plugin->poll(l->qp, done, BATCH, &count);
        if (error != 0) return verb_failed(c, l, "polling", error, err);
        for (int i = 0; i < count; i++) {
            sh_status status = SH_OK;
            if (done[i].result != SH_RDMA_DONE) return lane_failed(c, l, &done[i], err);
            if (done[i].received) {
                status = frame_check(c, l, &done[i], err);
            } else {
                l->queued--;
                c->out.pending -= done[i].id == ID_DATA;
            }
            if (status != SH_OK) return status;
        }
        c->events += (uint64_t)count;
    } while (count == BATCH);
    if (l->owed < c->depth / 2 || !can_post(c, l, 0)) return SH_OK;
    return notice_post(c, l, FRAME_NOTICE, NULL, 0, err);
}

static sh_status progress(rdma_channel *c, sh_err *err)
{
    sh_status status = SH_OK;
    if (c->broken.status != SH_OK) *err = c->broken, status = err->status;
    for (int i = 0; i < c->lanes && status == SH_OK; i++)
        status = lane_progress(c, &c->lane[i], err);
    return status;
}

/* ---- sending ---- */

static void copy_part(rdma_channel *c, void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
    c->copied += len;
    c->rdma->copied += len;
}

/* Lets `send` gather the bytes from `from` on, at most `len`, and returns how many it does: fewer
 * if they must be copied because their memory is not registered, 0 if the copy has to wait. */
static size_t gather(rdma_channel *c, const lane *l, const sh_msg *msg, size_t from, size_t len,
                     sh_rdma_send *send)
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
    if (len > BOUNCE_LEN) len = BOUNCE_LEN;
    int count = sh_msg_parts(msg, from, from + len, parts);
    uint8_t *at = c->out.bounce;
    for (int i = 0; i < count; at += parts[i].iov_len, i++)
        copy_part(c, at, parts[i].iov_base, parts[i].iov_len);
    send->parts = 1;
    send->part[0] = (sh_rdma_part){c->out.bounce, (uint32_t)len, l->keys.local};
    return len;
}

static sh_status data_post(rdma_channel *c, lane *l, frame_type type, sh_rdma_send *send,
                           size_t len, sh_err *err)
{
    send->id = send->in_line ? ID_OTHER : ID_DATA;
    sh_status status = frame_post(c, l, type, send, err);
    if (status != SH_OK) return status;
    c->out.pending += !send->in_line;
    c->out.posted += len;
    return SH_OK;
}

static sh_status send_short(rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    lane *l = &c->lane[0];
    sh_rdma_send send = {0};
    if (c->out.posted > 0 || !can_post(c, l, RESERVED)) return SH_OK;
    size_t len = gather(c, l, msg, 0, msg->len, &send);
    return len == 0 ? SH_OK : data_post(c, l, FRAME_SLOT, &send, len, err);
}

/* Writes as much as the peer has asked for and credits allow. */
static sh_status send_long(rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    for (;;) {
        target *to = c->out.to[0].len > 0 ? &c->out.to[0] : &c->out.to[1];
        lane *l = &c->lane[c->out.lane];
        sh_rdma_send send = {.write = true, .remote = to->at, .remote_key = to->key[c->out.lane]};
        size_t len = to->len < c->frame_len ? to->len : c->frame_len;
        if (len == 0 || !can_post(c, l, RESERVED)) return SH_OK;
        if (to->len > msg->len - c->out.posted) return out_of_step(c, l, err);
        len = gather(c, l, msg, c->out.posted, len, &send);
        if (len == 0) return SH_OK;
        sh_status status = data_post(c, l, FRAME_WRITE, &send, len, err);
        if (status != SH_OK) return status;
        to->at += len;
        to->len -= (uint32_t)len;
        c->out.lane = (c->out.lane + 1) % c->lanes;
    }
}

static sh_status rdma_send(sh_channel *base, sh_msg *msg, sh_err *err)
{
    rdma_channel *c = (rdma_channel *)base;
    if (msg->len == 0) return SH_OK;
    if (!c->out.begun) c->out.posted = 0;
    c->out.begun = true;
    sh_status status = progress(c, err);
    if (status == SH_OK && c->out.posted < msg->len)
        status = fits_slot(c, msg) ? send_short(c, msg, err) : send_long(c, msg, err);
    if (status != SH_OK) return status;
    msg->done = c->out.posted;
    if (c->out.posted < msg->len || c->out.pending > 0) return SH_AGAIN;
    c->out.begun = false;
    return SH_OK;
}

/* ---- receiving ---- */

static sh_status recv_short(rdma_channel *c, sh_msg *msg, sh_err *err)
{
    lane *l = &c->lane[0];
    if (c->in.count == 0) return SH_AGAIN;
    arrival a = c->in.waiting[c->in.first];
    if (a.len != msg->len) return out_of_step(c, l, err);
    c->in.first = (c->in.first + 1) % c->depth;
    c->in.count--;
    c->in.lent = a.slot;
    uint8_t *at = l->slots + (size_t)a.slot * padded(c->slot_len);
    msg->part[0].iov_base = at;
    msg->part[1].iov_base = at + msg->part[0].iov_len;
    msg->done = msg->len;
    return SH_OK;
}

/* Fills in a target for a piece of memory; false if it is not registered. */
static bool target_at(const rdma_channel *c, void *at, size_t len, target *to)
{
    *to = (target){.at = (uintptr_t)at, .len = (uint32_t)len};
    for (int i = 0; i < c->lanes; i++) {
        sh_rdma_keys keys;
        if (!sh_rdma_keys_of(c->rdma, c->lane[i].port.device, at, len, &keys)) return false;
        to->key[i] = keys.remote;
    }
    return true;
}

/* Where the rest of the message belongs: its own memory if that is registered, otherwise, for as
 * much as fits there, the bounce buffer. */
static int targets_of(rdma_channel *c, const sh_msg *msg, target to[2])
{
    enum { AT_ONCE = 1 << 30 };
    struct iovec parts[2];
    size_t left = msg->len - msg->done;
    int count = sh_msg_parts(msg, msg->done, msg->done + (left < AT_ONCE ? left : AT_ONCE), parts);
    c->in.bounced = false;
    for (int i = 0; i < count; i++)
        if (!target_at(c, parts[i].iov_base, parts[i].iov_len, &to[i])) c->in.bounced = true;
    if (!c->in.bounced) return count;
    bool known = target_at(c, c->in.bounce, left < BOUNCE_LEN ? left : BOUNCE_LEN, &to[0]);
    SH_ASSERT(known);
    return 1;
}

static sh_status notice_next(rdma_channel *c, const sh_msg *msg, sh_err *err)
{
    target to[2];
    if (!can_post(c, &c->lane[0], 0)) return SH_AGAIN;
    int count = targets_of(c, msg, to);
    c->in.noticed = c->in.arrived = 0;
    for (int i = 0; i < count; i++) c->in.noticed += to[i].len;
    return notice_post(c, &c->lane[0], FRAME_NOTICE, to, count, err);
}

static void bounce_out(rdma_channel *c, const sh_msg *msg)
{
    struct iovec parts[2];
    int count = sh_msg_parts(msg, msg->done, msg->done + c->in.noticed, parts);
    const uint8_t *at = c->in.bounce;
    for (int i = 0; i < count; at += parts[i].iov_len, i++)
        copy_part(c, parts[i].iov_base, at, parts[i].iov_len);
}

static sh_status recv_long(rdma_channel *c, sh_msg *msg, sh_err *err)
{
    for (;;) {
        if (c->in.noticed == 0) {
            sh_status status = notice_next(c, msg, err);
            if (status != SH_OK) return status;
        }
        /* On one lane nothing overtakes, so a short message that came first is for another call. */
        if (c->in.arrived < c->in.noticed)
            return c->lanes == 1 && c->in.count > 0 ? out_of_step(c, &c->lane[0], err) : SH_AGAIN;
        if (c->in.bounced) bounce_out(c, msg);
        msg->done += c->in.noticed;
        c->in.noticed = c->in.arrived = 0;
        if (msg->done == msg->len) return SH_OK;
    }
}

static sh_status rdma_recv(sh_channel *base, sh_msg *msg, sh_err *err)
{
    rdma_channel *c = (rdma_channel *)base;
    sh_status status = SH_OK;
    if (msg->len == 0) return SH_OK;
    if (!c->in.begun && c->in.lent >= 0) status = slot_return(c, &c->lane[0], c->in.lent, err);
    if (!c->in.begun) c->in.lent = -1;
    c->in.begun = true;
    if (status == SH_OK) status = progress(c, err);
    if (status == SH_OK)
        status = fits_slot(c, msg) ? recv_short(c, msg, err) : recv_long(c, msg, err);
    if (status == SH_OK) c->in.begun = false;
    return status;
}

/* ---- sleeping ---- */

/* A rank that goes to sleep a second time without having sent anything in between confirms what it
 * sent before. One credit stays for a notice that matters. */
static sh_status confirm(rdma_channel *c, lane *l, sh_err *err)
{
    sh_status status = SH_OK;
    bool quiet = l->sent == l->sent_before;
    if (c->kind == SH_RDMA_UC && quiet && l->sent != l->confirmed && can_post(c, l, 1)) {
        status = notice_post(c, l, FRAME_NOTICE, NULL, 0, err);
        l->confirmed = l->sent;
    }
    l->sent_before = l->sent;
    return status;
}

/* Completions between the last poll and arm raise no event, so poll once more after it. */
static int rdma_arm(sh_channel *base, bool sending, bool receiving, struct pollfd *out)
{
    (void)sending, (void)receiving;
    rdma_channel *c = (rdma_channel *)base;
    uint64_t before = c->events;
    sh_status status = SH_OK;
    sh_err err;
    int count = 0;
    for (int i = 0; i < c->lanes && status == SH_OK; i++) {
        lane *l = &c->lane[i];
        int error = c->plugin->arm(l->qp);
        if (error != 0) status = verb_failed(c, l, "arming", error, &err);
        if (status == SH_OK)
            status = sh_rdma_check_port(c->rdma, l->port.device, l->port.number, l->downs, &err);
        if (status == SH_OK) status = confirm(c, l, &err);
        out[count++] = (struct pollfd){.fd = c->plugin->fd(l->qp), .events = POLLIN};
        out[count++] = (struct pollfd){.fd = c->plugin->event_fd(l->port.device->handle),
                                       .events = POLLIN};
    }
    if (status == SH_OK) status = progress(c, &err);
    if (status != SH_OK && c->broken.status == SH_OK) c->broken = err;
    return status != SH_OK || c->events != before ? -1 : count;
}

static void rdma_disarm(sh_channel *base)
{
    rdma_channel *c = (rdma_channel *)base;
    for (int i = 0; i < c->lanes; i++) c->plugin->disarm(c->lane[i].qp);
}

/* ---- making one ---- */

static sh_status region_add(rdma_channel *c, void *at, size_t len, sh_err *err)
{
    sh_rdma_region *region;
    sh_status status = sh_rdma_register(c->rdma, at, len, &region, err);
    if (status != SH_OK) return status;
    c->regions = sh_realloc_array(c->regions, (size_t)c->region_count + 1, sizeof(*c->regions));
    c->regions[c->region_count++] = region;
    return SH_OK;
}

static sh_status rdma_register(sh_channel *base, void *at, size_t len, sh_err *err)
{
    return region_add((rdma_channel *)base, at, len, err);
}

static void rdma_unregister(sh_channel *base, void *at)
{
    rdma_channel *c = (rdma_channel *)base;
    int i = 0;
    while (i < c->region_count && !sh_rdma_region_is_at(c->regions[i], at)) i++;
    if (i == c->region_count) return;
    sh_rdma_unregister(c->rdma, c->regions[i]);
    c->regions[i] = c->regions[--c->region_count];
}

static void rdma_close(sh_channel *base)
{
    rdma_channel *c = (rdma_channel *)base;
    uint64_t frames = 0;
    for (int i = 0; i < c->lanes; i++) {
        frames += c->lane[i].sent;
        sh_rdma_qp_destroy(c->rdma, &c->lane[i].port, c->lane[i].qp);
    }
    SH_LOGD("RDMA to rank %d: %" PRIu64 " frames sent, %" PRIu64 " bytes copied", c->peer, frames,
            c->copied);
    for (int i = 0; i < c->region_count; i++) sh_rdma_unregister(c->rdma, c->regions[i]);
    free(c->regions);
    sh_mem_unmap(c->memory, c->memory_len);
    free(c->devices);
    free(c->in.waiting);
    free(c);
}

static const char *rdma_device(const sh_channel *base)
{
    return ((const rdma_channel *)base)->devices;
}

static const sh_channel_ops RDMA_OPS = {
    .name = "rdma",
    .send = rdma_send,
    .recv = rdma_recv,
    .arm = rdma_arm,
    .disarm = rdma_disarm,
    .register_memory = rdma_register,
    .unregister_memory = rdma_unregister,
    .close = rdma_close,
    .device = rdma_device,
};

/* One block for everything, so that it is registered in one go. */
static sh_status memory_create(rdma_channel *c, sh_err *err)
{
    size_t slots = (size_t)c->depth * padded(c->slot_len);
    size_t notices = padded((size_t)c->depth * SH_RDMA_NOTICE_LEN);
    void *at;
    c->memory_len = (size_t)c->lanes * (slots + notices) + 2 * BOUNCE_LEN;
    sh_status status = sh_mem_map(c->memory_len, "the slots of an RDMA channel", &at, err);
    if (status != SH_OK) return status;
    c->memory = at;
    uint8_t *next = c->memory;
    for (int i = 0; i < c->lanes; i++) {
        c->lane[i].slots = next;
        c->lane[i].notices = next + slots;
        next += slots + notices;
    }
    c->out.bounce = next;
    c->in.bounce = next + BOUNCE_LEN;
    return region_add(c, c->memory, c->memory_len, err);
}

static sh_status lane_start(rdma_channel *c, lane *l, sh_err *err)
{
    sh_status status = SH_OK;
    l->downs = l->port.device->downs[l->port.number];
    l->inline_max = c->plugin->inline_max(l->qp);
    if (!sh_rdma_keys_of(c->rdma, l->port.device, c->memory, c->memory_len, &l->keys))
        return verb_failed(c, l, "registering the slots", ENODEV, err); /* it is gone since */
    for (int slot = 0; slot < c->depth && status == SH_OK; slot++)
        status = slot_post(c, l, slot, err);
    return status;
}

static char *devices_of(const rdma_channel *c)
{
    sh_buf names = {0};
    for (int i = 0; i < c->lanes; i++)
        sh_buf_addf(&names, "%s%s", i > 0 ? "+" : "", c->lane[i].port.device->name);
    return sh_buf_take(&names);
}

sh_status sh_rdma_channel_create(const sh_rdma_channel_opts *opts, sh_channel **out, sh_err *err)
{
    rdma_channel *c = sh_alloc(sizeof(*c));
    c->base.ops = &RDMA_OPS;
    c->rdma = opts->rdma;
    c->plugin = opts->rdma->plugin;
    c->peer = opts->peer;
    c->leads = opts->leads;
    c->kind = opts->kind;
    c->depth = opts->depth;
    c->slot_len = opts->slot_len;
    c->frame_len = opts->frame_len;
    if (opts->lanes > 1 && c->frame_len > STRIPE_LEN) c->frame_len = STRIPE_LEN;
    c->lanes = opts->lanes;
    c->in.lent = -1;
    c->in.waiting = sh_alloc_array((size_t)c->depth, sizeof(*c->in.waiting));
    for (int i = 0; i < c->lanes; i++) {
        c->lane[i].port = opts->lane[i].port;
        c->lane[i].qp = opts->lane[i].qp;
        c->lane[i].credits = c->lane[i].credits_max = opts->lane[i].peer_depth;
    }
    c->devices = devices_of(c);
    sh_status status = memory_create(c, err);
    for (int i = 0; i < c->lanes && status == SH_OK; i++) status = lane_start(c, &c->lane[i], err);
    if (status != SH_OK) {
        rdma_close(&c->base);
        return status;
    }
    *out = &c->base;
    return SH_OK;
}

/* The end that answered was connected first, so it waits for the greeting of the other: a frame
 * that finds an unconnected queue pair would be lost. */
sh_status sh_rdma_channel_greet(sh_channel *channel, sh_err *err)
{
    rdma_channel *c = (rdma_channel *)channel;
    sh_status status = progress(c, err);
    bool all = true;
    for (int i = 0; i < c->lanes && status == SH_OK; i++) {
        lane *l = &c->lane[i];
        if (l->sent == 0 && (c->leads || l->greeted))
            status = notice_post(c, l, FRAME_GREET, NULL, 0, err);
        all = all && l->greeted && l->sent > 0;
    }
    return status != SH_OK ? status : all ? SH_OK : SH_AGAIN;
}
