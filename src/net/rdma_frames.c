/* The frames of a lane, which is one queue pair.
 *
 * Credits. Every frame uses up one posted receive of the peer, and on an unreliable queue pair a
 * frame that finds none is lost. So a lane counts the receives that the peer has posted and sends
 * nothing without one. Each frame returns the credits for what was received since the last; a peer
 * that only listens sends an empty notice when it owes half of them. Data leaves some credits
 * unused, so that a notice can always be sent, and two ranks never wait for each other's credits.
 *
 * Loss. Frames are numbered in each direction of a lane. A gap shows that frames were lost, and the
 * group ends. A lost last frame leaves no gap: see sh_rdma_channel's tend.
 *
 * Type, credits and number travel as immediate data. A device without it puts them in front of the
 * bytes, and all its frames have the same length.
 *
 * What the peer sends is checked like bytes from a socket. */
#include "net/rdma_channel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 16 };

/* The immediate data of a frame: its type, the credits that it returns and its number. */
enum { SEQ_BITS = 20, CREDIT_BITS = 10, TYPE_SHIFT = SEQ_BITS + CREDIT_BITS };
#define SEQ_MASK ((1u << SEQ_BITS) - 1)
#define CREDIT_MASK ((1u << CREDIT_BITS) - 1)

/* ---- errors ---- */

sh_status sh_rdma_break(sh_rdma_channel *c, const sh_rdma_lane *l, const char *what, sh_err *err)
{
    sh_err_set(err, SH_ERR_PEER, "RDMA over %s: %s", l->port.device->name, what);
    c->broken = *err;
    return err->status;
}

sh_status sh_rdma_verb_failed(sh_rdma_channel *c, const sh_rdma_lane *l, const char *what,
                              int error, sh_err *err)
{
    sh_rdma_failed(l->port.device->name, what, error, err);
    err->status = SH_ERR_PEER;
    c->broken = *err;
    return err->status;
}

sh_status sh_rdma_out_of_step(sh_rdma_channel *c, const sh_rdma_lane *l, sh_err *err)
{
    return sh_rdma_break(
        c, l, "the peer's message has another length: the ranks do not run the same operations",
        err);
}

/* A post fails with ENOMEM if the queue has no place left. */
static sh_status post_failed(sh_rdma_channel *c, const sh_rdma_lane *l, const char *what, int error,
                             sh_err *err)
{
    if (error == ENOMEM) return sh_rdma_break(c, l, "its queue is full", err);
    return sh_rdma_verb_failed(c, l, what, error, err);
}

/* ---- sending ---- */

bool sh_rdma_can_post(const sh_rdma_channel *c, const sh_rdma_lane *l, int reserved)
{
    return l->credits > reserved && l->queued < c->depth;
}

/* It is free: as many requests as there are places were completed since it was used. */
uint8_t *sh_rdma_next_place(const sh_rdma_channel *c, const sh_rdma_lane *l)
{
    return l->places + l->sent % (uint32_t)c->depth * (size_t)c->place_len;
}

static uint32_t head_of(const sh_rdma_lane *l, sh_rdma_frame_type type)
{
    return (uint32_t)type << TYPE_SHIFT | (uint32_t)l->owed << SEQ_BITS | (l->sent & SEQ_MASK);
}

sh_status sh_rdma_frame_post(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_frame_type type,
                             sh_rdma_send *send, sh_err *err)
{
    send->imm = head_of(l, type);
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

/* The frame is as long as the receive that it goes to, however little it carries. */
sh_status sh_rdma_piece_post(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_frame_type type,
                             uint32_t len, sh_err *err)
{
    uint8_t *at = sh_rdma_next_place(c, l);
    put_le(at, head_of(l, type), 4);
    put_le(at + 4, len, 4);
    sh_rdma_send send = {
        .id = SH_RDMA_ID_OTHER, .parts = 1, .part = {{at, c->frame_len, l->keys.local}}};
    return sh_rdma_frame_post(c, l, type, &send, err);
}

/* Of a notice: a count, and for each target its address, length and keys. */
static uint32_t notice_len(const sh_rdma_channel *c, int count)
{
    return (uint32_t)(1 + count * (12 + 4 * c->lanes));
}

_Static_assert(1 + 2 * (12 + 4 * SH_LANES_MAX) <= SH_RDMA_NOTICE_LEN,
               "the longest notice must fit");

static void notice_pack(const sh_rdma_channel *c, const sh_rdma_target *to, int count, uint8_t *out)
{
    *out++ = (uint8_t)count;
    for (int i = 0; i < count; i++) {
        put_le(out, to[i].at, 8);
        put_le(out + 8, to[i].len, 4);
        for (int k = 0; k < c->lanes; k++) put_le(out + 12 + 4 * k, to[i].key[k], 4);
        out += 12 + 4 * c->lanes;
    }
}

/* Tells the peer where the next bytes belong (count 0: nothing, but number and credits arrive). */
sh_status sh_rdma_notice_post(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_frame_type type,
                              const sh_rdma_target *to, int count, sh_err *err)
{
    if (c->send_only) return sh_rdma_piece_post(c, l, type, 0, err);
    uint8_t *at = sh_rdma_next_place(c, l);
    uint32_t len = notice_len(c, count);
    notice_pack(c, to, count, at);
    sh_rdma_send send = {.id = SH_RDMA_ID_OTHER,
                         .in_line = len <= l->inline_max,
                         .parts = 1,
                         .part = {{at, len, l->keys.local}}};
    return sh_rdma_frame_post(c, l, type, &send, err);
}

/* ---- receiving ---- */

uint8_t *sh_rdma_slot(const sh_rdma_channel *c, const sh_rdma_lane *l, int slot)
{
    return l->slots + (size_t)slot * sh_rdma_padded(c->slot_len);
}

sh_status sh_rdma_slot_post(sh_rdma_channel *c, sh_rdma_lane *l, int slot, sh_err *err)
{
    int error = c->plugin->post_receive(l->qp, (uint64_t)slot, sh_rdma_slot(c, l, slot),
                                        c->slot_len, l->keys.local);
    return error == 0 ? SH_OK : post_failed(c, l, "posting a receive", error, err);
}

sh_status sh_rdma_slot_return(sh_rdma_channel *c, sh_rdma_lane *l, int slot, sh_err *err)
{
    l->owed++;
    return sh_rdma_slot_post(c, l, slot, err);
}

sh_rdma_arrival sh_rdma_arrival_take(sh_rdma_channel *c, sh_rdma_lane *l)
{
    sh_rdma_arrival a = l->waiting[l->first];
    l->first = (l->first + 1) % c->depth;
    l->count--;
    return a;
}

static sh_status notice_take(sh_rdma_channel *c, const sh_rdma_lane *l, const uint8_t *bytes,
                             uint32_t len, sh_err *err)
{
    if (c->send_only && len == 0) return SH_OK;
    int count = len > 0 ? bytes[0] : -1;
    bool unused = c->out.to[0].len > 0 || c->out.to[1].len > 0;
    if (c->send_only || count < 0 || count > 2 || len != notice_len(c, count) ||
        (count > 0 && unused))
        return sh_rdma_break(c, l, "the peer sent a malformed notice", err);
    bytes++;
    for (int i = 0; i < count; i++, bytes += 12 + 4 * c->lanes) {
        sh_rdma_target *to = &c->out.to[i];
        to->at = get_le(bytes, 8);
        to->len = (uint32_t)get_le(bytes + 8, 4);
        for (int k = 0; k < c->lanes; k++) to->key[k] = (uint32_t)get_le(bytes + 12 + 4 * k, 4);
    }
    return SH_OK;
}

static sh_status frame_take(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_frame_type type, int slot,
                            uint32_t len, sh_err *err)
{
    sh_status status = SH_OK;
    switch (type) {
    case SH_RDMA_FRAME_SLOT:
        if ((l != &c->lane[0] && !c->send_only) || l->count == c->depth)
            return sh_rdma_break(c, l, "the peer sent a message on the wrong lane", err);
        l->waiting[(l->first + l->count++) % c->depth] = (sh_rdma_arrival){(uint16_t)slot, len};
        return SH_OK; /* the slot is returned when the message has been read */
    case SH_RDMA_FRAME_WRITE:
        if (len > c->in.noticed - c->in.arrived)
            return sh_rdma_break(c, l, "the peer wrote more than it was asked for", err);
        c->in.arrived += len;
        break;
    case SH_RDMA_FRAME_NOTICE:
        status = notice_take(c, l, sh_rdma_slot(c, l, slot), len, err);
        break;
    case SH_RDMA_FRAME_GREET: l->greeted = true; break;
    }
    return status == SH_OK ? sh_rdma_slot_return(c, l, slot, err) : status;
}

/* Reads the header in front of the bytes; false if they cannot be a frame. */
static bool piece_open(const sh_rdma_channel *c, const sh_rdma_lane *l, sh_rdma_completion *done)
{
    if (done->id >= (uint64_t)c->depth || done->written || done->len != c->frame_len) return false;
    const uint8_t *at = sh_rdma_slot(c, l, (int)done->id);
    done->imm = (uint32_t)get_le(at, 4);
    done->len = (uint32_t)get_le(at + 4, 4);
    return done->len <= c->frame_len - SH_RDMA_HEAD_LEN;
}

static sh_status frame_check(sh_rdma_channel *c, sh_rdma_lane *l, sh_rdma_completion *done,
                             sh_err *err)
{
    if (c->send_only && !piece_open(c, l, done))
        return sh_rdma_break(c, l, "the peer sent an invalid frame", err);
    sh_rdma_frame_type type = done->imm >> TYPE_SHIFT;
    int returned = (int)(done->imm >> SEQ_BITS & CREDIT_MASK);
    if ((done->imm & SEQ_MASK) != (l->received & SEQ_MASK))
        return sh_rdma_break(c, l, "frames were lost; check the cable", err);
    l->received++;
    l->credits += returned;
    if (l->credits > l->credits_max || done->id >= (uint64_t)c->depth ||
        (!done->written && done->len > c->slot_len) ||
        done->written != (type == SH_RDMA_FRAME_WRITE) ||
        (type == SH_RDMA_FRAME_GREET) != !l->greeted)
        return sh_rdma_break(c, l, "the peer sent an invalid frame", err);
    return frame_take(c, l, type, (int)done->id, done->len, err);
}

/* ---- completions ---- */

static sh_status lane_failed(sh_rdma_channel *c, const sh_rdma_lane *l,
                             const sh_rdma_completion *done, sh_err *err)
{
    if (sh_rdma_check_port(c->rdma, l->port.device, l->port.number, l->downs, err) != SH_OK) {
        c->broken = *err;
        return err->status;
    }
    if (done->result == SH_RDMA_SILENT)
        return sh_rdma_break(c, l, "the peer does not acknowledge; check the cable", err);
    char what[160];
    snprintf(what, sizeof(what),
             "the queue pair has failed: %s; check the cable and the log of the peer",
             done->result == SH_RDMA_FLUSHED ? "its requests were cancelled" : done->reason);
    return sh_rdma_break(c, l, what, err);
}

static sh_status lane_progress(sh_rdma_channel *c, sh_rdma_lane *l, sh_err *err)
{
    sh_rdma_completion done[BATCH];
    int count;
    do {
        int error = c->plugin->poll(l->qp, done, BATCH, &count);
        if (error != 0) return sh_rdma_verb_failed(c, l, "polling", error, err);
        for (int i = 0; i < count; i++) {
            sh_status status = SH_OK;
            if (done[i].result != SH_RDMA_DONE) return lane_failed(c, l, &done[i], err);
            if (done[i].received) {
                status = frame_check(c, l, &done[i], err);
            } else {
                l->queued--;
                c->out.pending -= done[i].id == SH_RDMA_ID_DATA;
            }
            if (status != SH_OK) return status;
        }
        c->events += (uint64_t)count;
    } while (count == BATCH);
    if (l->owed < c->depth / 2 || !sh_rdma_can_post(c, l, 0)) return SH_OK;
    return sh_rdma_notice_post(c, l, SH_RDMA_FRAME_NOTICE, NULL, 0, err);
}

sh_status sh_rdma_progress(sh_rdma_channel *c, sh_err *err)
{
    sh_status status = SH_OK;
    if (c->broken.status != SH_OK) *err = c->broken, status = err->status;
    for (int i = 0; i < c->lanes && status == SH_OK; i++)
        status = lane_progress(c, &c->lane[i], err);
    return status;
}

void sh_rdma_copy(sh_rdma_channel *c, void *to, const void *from, size_t len)
{
    memcpy(to, from, len);
    c->copied += len;
    c->rdma->copied += len;
}
