/* A channel over RDMA queue pairs, one for each lane: making one, waiting and closing. How messages
 * travel is in rdma_messages.c and, for devices that can only send, in rdma_stream.c; both build on
 * the frames of rdma_frames.c.
 *
 * Loss. A port that goes down is reported by its device at once. Other lost frames show as a gap in
 * the numbers as soon as another one arrives. If none follows, the rank that sent the last one
 * confirms it after a moment: an empty notice, whose number reveals the loss. It does so for all
 * channels while it waits for anything (tend), since the rank that misses the frame may be one that
 * this rank does not wait for. What is left (a cable that breaks beyond a switch, in both
 * directions) ends with the deadline of the operation. */
#include "net/rdma_channel.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLOT_LEN = 64 * 1024 + SH_OP_HEAD_LEN,
    FRAME_LEN = 256 * 1024,
    STRIPE_LEN = 32 * 1024, /* frames of a channel with several lanes, so that all have work */
    CONFIRM_MS = 250,       /* how long a lane is quiet before its last frame is confirmed */
    LOOK_MS = 50,           /* how often the ports of a device without events are looked at */
    DRAIN_MS = 200,         /* how long the last frames may take to leave */
    DRAIN_NAP_US = 20,
    ALIGN = 4096,
};

/* ---- lengths ---- */

uint32_t sh_rdma_slot_len(uint32_t frame_max)
{
    return frame_max < SLOT_LEN ? frame_max : SLOT_LEN;
}

uint32_t sh_rdma_frame_len(uint32_t frame_max)
{
    return frame_max < FRAME_LEN ? frame_max : FRAME_LEN;
}

size_t sh_rdma_padded(size_t len)
{
    return (len + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- messages ---- */

void sh_rdma_lend(sh_rdma_channel *c, sh_rdma_lane *l, int slot, size_t offset, sh_msg *msg)
{
    uint8_t *at = sh_rdma_slot(c, l, slot) + offset;
    c->in.lent = slot;
    c->in.lent_lane = (int)(l - c->lane);
    msg->part[0].iov_base = at;
    msg->part[1].iov_base = at + msg->part[0].iov_len;
    msg->done = msg->len;
}

static sh_status rdma_send(sh_channel *base, sh_msg *msg, sh_err *err)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    if (msg->len == 0) return SH_OK;
    if (!c->out.begun) c->out.posted = 0;
    c->out.begun = true;
    sh_status status = sh_rdma_progress(c, err);
    if (status == SH_OK && c->out.posted < msg->len)
        status = (c->send_only ? sh_rdma_stream_send : sh_rdma_message_send)(c, msg, err);
    if (status != SH_OK) return status;
    msg->done = c->out.posted;
    if (c->out.posted < msg->len || c->out.pending > 0) return SH_AGAIN;
    c->out.begun = false;
    return SH_OK;
}

static sh_status rdma_recv(sh_channel *base, sh_msg *msg, sh_err *err)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    sh_status status = SH_OK;
    if (msg->len == 0) return SH_OK;
    if (!c->in.begun && c->in.lent >= 0)
        status = sh_rdma_slot_return(c, &c->lane[c->in.lent_lane], c->in.lent, err);
    if (!c->in.begun) c->in.lent = -1;
    c->in.begun = true;
    if (status == SH_OK) status = sh_rdma_progress(c, err);
    if (status == SH_OK)
        status = (c->send_only ? sh_rdma_stream_recv : sh_rdma_message_recv)(c, msg, err);
    if (status == SH_OK) c->in.begun = false;
    return status;
}

/* ---- waiting ---- */

/* Confirms what an unreliable lane sent before it became quiet. One credit stays for a notice that
 * matters. */
static sh_status lane_confirm(sh_rdma_channel *c, sh_rdma_lane *l, int64_t now_ns, sh_err *err)
{
    if (l->sent != l->tended) {
        l->tended = l->sent;
        l->tended_ns = now_ns;
    }
    if (c->kind != SH_RDMA_UC || l->sent == l->confirmed || !sh_rdma_can_post(c, l, 1) ||
        now_ns - l->tended_ns < (int64_t)CONFIRM_MS * 1000000)
        return SH_OK;
    sh_status status = sh_rdma_notice_post(c, l, SH_RDMA_FRAME_NOTICE, NULL, 0, err);
    l->confirmed = l->sent;
    return status;
}

static sh_status rdma_tend(sh_channel *base, sh_err *err)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    sh_status status = sh_rdma_progress(c, err);
    int64_t now_ns = sh_clock_ns();
    bool look = !c->send_only || now_ns - c->looked_ns >= (int64_t)LOOK_MS * 1000000;
    if (look) c->looked_ns = now_ns;
    for (int i = 0; i < c->lanes && status == SH_OK; i++) {
        sh_rdma_lane *l = &c->lane[i];
        if (look)
            status = sh_rdma_check_port(c->rdma, l->port.device, l->port.number, l->downs, err);
        if (status == SH_OK) status = lane_confirm(c, l, now_ns, err);
    }
    if (status != SH_OK && c->broken.status == SH_OK) c->broken = *err;
    return status;
}

/* Completions between the last poll and arm raise no event, so poll once more after it. What has
 * completed since the rank last went to sleep may concern a direction that it had tried before, so
 * it must try both again. */
static int rdma_arm(sh_channel *base, bool sending, bool receiving, struct pollfd *out)
{
    (void)sending, (void)receiving;
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    sh_status status = SH_OK;
    sh_err err;
    int count = 0;
    for (int i = 0; i < c->lanes && status == SH_OK; i++) {
        sh_rdma_lane *l = &c->lane[i];
        int error = c->plugin->arm(l->qp);
        if (error != 0) status = sh_rdma_verb_failed(c, l, "arming", error, &err);
        out[count++] = (struct pollfd){.fd = c->plugin->fd(l->qp), .events = POLLIN};
        out[count++] = (struct pollfd){.fd = c->plugin->event_fd(l->port.device->handle),
                                       .events = POLLIN};
    }
    if (status == SH_OK) status = sh_rdma_progress(c, &err);
    bool news = c->events != c->events_asleep;
    c->events_asleep = c->events;
    return status != SH_OK || news ? -1 : count;
}

static void rdma_disarm(sh_channel *base)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    for (int i = 0; i < c->lanes; i++) c->plugin->disarm(c->lane[i].qp);
}

/* ---- making one ---- */

static sh_status region_add(sh_rdma_channel *c, void *at, size_t len, sh_err *err)
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
    return region_add((sh_rdma_channel *)base, at, len, err);
}

static void rdma_unregister(sh_channel *base, void *at)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    int i = 0;
    while (i < c->region_count && !sh_rdma_region_is_at(c->regions[i], at)) i++;
    if (i == c->region_count) return;
    sh_rdma_unregister(c->rdma, c->regions[i]);
    c->regions[i] = c->regions[--c->region_count];
}

/* Destroying a queue pair drops what has not left it yet, such as the last frame of a rank that
 * leaves; so wait for it, but not for a peer that has gone. */
static void drain(sh_rdma_channel *c)
{
    const struct timespec nap = {.tv_nsec = (long)1000 * DRAIN_NAP_US};
    sh_deadline deadline = sh_deadline_in_ms(DRAIN_MS);
    sh_err err;
    for (int i = 0; i < c->lanes; i++)
        while (c->lane[i].queued > 0 && !sh_deadline_passed(deadline) &&
               sh_rdma_progress(c, &err) == SH_OK)
            if (c->lane[i].queued > 0) nanosleep(&nap, NULL);
}

static void rdma_close(sh_channel *base)
{
    sh_rdma_channel *c = (sh_rdma_channel *)base;
    uint64_t frames = 0;
    drain(c);
    for (int i = 0; i < c->lanes; i++) {
        frames += c->lane[i].sent;
        sh_rdma_qp_destroy(c->rdma, &c->lane[i].port, c->lane[i].qp);
        free(c->lane[i].waiting);
    }
    SH_LOGD("RDMA to rank %d: %" PRIu64 " frames sent, %" PRIu64 " bytes copied", c->peer, frames,
            c->copied);
    for (int i = 0; i < c->region_count; i++) sh_rdma_unregister(c->rdma, c->regions[i]);
    free(c->regions);
    sh_mem_unmap(c->memory, c->memory_len);
    free(c->devices);
    free(c);
}

static const char *rdma_device(const sh_channel *base)
{
    return ((const sh_rdma_channel *)base)->devices;
}

static const sh_channel_ops RDMA_OPS = {
    .name = "rdma",
    .send = rdma_send,
    .recv = rdma_recv,
    .arm = rdma_arm,
    .disarm = rdma_disarm,
    .tend = rdma_tend,
    .register_memory = rdma_register,
    .unregister_memory = rdma_unregister,
    .close = rdma_close,
    .device = rdma_device,
};

/* Such a device cannot wake a sleeper, and since every byte is copied, any memory will do. */
static const sh_channel_ops SEND_ONLY_OPS = {
    .name = "rdma",
    .send = rdma_send,
    .recv = rdma_recv,
    .tend = rdma_tend,
    .close = rdma_close,
    .device = rdma_device,
};

/* One block for everything, so that it is registered in one go. */
static sh_status memory_create(sh_rdma_channel *c, sh_err *err)
{
    size_t slots = (size_t)c->depth * sh_rdma_padded(c->slot_len);
    size_t places = sh_rdma_padded((size_t)c->depth * c->place_len);
    size_t bounce = c->send_only ? 0 : SH_RDMA_BOUNCE_LEN;
    void *at;
    c->memory_len = (size_t)c->lanes * (slots + places) + 2 * bounce;
    sh_status status = sh_mem_map(c->memory_len, "the slots of an RDMA channel", &at, err);
    if (status != SH_OK) return status;
    c->memory = at;
    uint8_t *next = c->memory;
    for (int i = 0; i < c->lanes; i++) {
        c->lane[i].slots = next;
        c->lane[i].places = next + slots;
        next += slots + places;
    }
    c->out.bounce = next;
    c->in.bounce = next + bounce;
    return region_add(c, c->memory, c->memory_len, err);
}

static sh_status lane_init(sh_rdma_channel *c, sh_rdma_lane *l, sh_err *err)
{
    l->downs = l->port.device->downs[l->port.number];
    l->inline_max = c->send_only ? 0 : c->plugin->inline_max(l->qp);
    l->waiting = sh_alloc_array((size_t)c->depth, sizeof(*l->waiting));
    if (!sh_rdma_keys_of(c->rdma, l->port.device, c->memory, c->memory_len, &l->keys))
        return sh_rdma_verb_failed(c, l, "registering the slots", ENODEV, err); /* gone since */
    return SH_OK;
}

static char *devices_of(const sh_rdma_channel *c)
{
    sh_buf names = {0};
    for (int i = 0; i < c->lanes; i++)
        sh_buf_addf(&names, "%s%s", i > 0 ? "+" : "", c->lane[i].port.device->name);
    return sh_buf_take(&names);
}

sh_status sh_rdma_channel_create(const sh_rdma_channel_opts *opts, sh_channel **out, sh_err *err)
{
    sh_rdma_channel *c = sh_alloc(sizeof(*c));
    c->base.ops = opts->send_only ? &SEND_ONLY_OPS : &RDMA_OPS;
    c->rdma = opts->rdma;
    c->plugin = opts->rdma->plugin;
    c->peer = opts->peer;
    c->leads = opts->leads;
    c->send_only = opts->send_only;
    c->kind = opts->kind;
    c->depth = opts->depth;
    c->slot_len = opts->slot_len;
    c->frame_len = opts->frame_len;
    if (opts->lanes > 1 && c->frame_len > STRIPE_LEN) c->frame_len = STRIPE_LEN;
    c->place_len = c->send_only ? c->frame_len : SH_RDMA_NOTICE_LEN;
    c->lanes = opts->lanes;
    c->in.lent = -1;
    for (int i = 0; i < c->lanes; i++) {
        c->lane[i].port = opts->lane[i].port;
        c->lane[i].qp = opts->lane[i].qp;
        c->lane[i].credits = c->lane[i].credits_max = opts->lane[i].peer_depth;
    }
    c->devices = devices_of(c);
    sh_status status = memory_create(c, err);
    for (int i = 0; i < c->lanes && status == SH_OK; i++) status = lane_init(c, &c->lane[i], err);
    if (status != SH_OK) {
        rdma_close(&c->base);
        return status;
    }
    *out = &c->base;
    return SH_OK;
}

sh_status sh_rdma_channel_start(sh_channel *channel, sh_err *err)
{
    sh_rdma_channel *c = (sh_rdma_channel *)channel;
    sh_status status = SH_OK;
    for (int i = 0; i < c->lanes; i++)
        for (int slot = 0; slot < c->depth && status == SH_OK; slot++)
            status = sh_rdma_slot_post(c, &c->lane[i], slot, err);
    return status;
}

/* The end that answered was connected first, so it waits for the greeting of the other: a frame
 * that finds an unconnected queue pair would be lost. */
sh_status sh_rdma_channel_greet(sh_channel *channel, sh_err *err)
{
    sh_rdma_channel *c = (sh_rdma_channel *)channel;
    sh_status status = sh_rdma_progress(c, err);
    bool all = true;
    for (int i = 0; i < c->lanes && status == SH_OK; i++) {
        sh_rdma_lane *l = &c->lane[i];
        if (l->sent == 0 && (c->leads || l->greeted))
            status = sh_rdma_notice_post(c, l, SH_RDMA_FRAME_GREET, NULL, 0, err);
        all = all && l->greeted && l->sent > 0;
    }
    return status != SH_OK ? status : all ? SH_OK : SH_AGAIN;
}
