/* See rdma_address.h. Queue pair and packet sequence numbers have 24 bits. */
#include "net/rdma_address.h"

#include "base/pack.h"

#include <arpa/inet.h>
#include <string.h>

enum {
    HEAD_LEN = 13,
    LANE_LEN = 13 + SH_RDMA_GID_CLASSES * (1 + SH_RDMA_GID_LEN),
    SEND_ONLY = 1, /* flags */
    ANY = 2,
    DEPTH_MAX = 1000, /* credits have 10 bits */
    LEN_MAX = 1 << 30,
    MTU_MIN = 256,
    MTU_MAX = 4096,
};

_Static_assert(HEAD_LEN + SH_LANES_MAX * LANE_LEN <= SH_OFFER_BODY_MAX, "all lanes must fit");

static bool is_v4(const sh_rdma_gid *gid)
{
    static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
    return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool is_link_local(const sh_rdma_gid *gid)
{
    if (is_v4(gid)) return gid->raw[12] == 169 && gid->raw[13] == 254;
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

sh_rdma_gid_class sh_rdma_gid_class_of(const sh_rdma_gid *gid)
{
    if (is_v4(gid)) return SH_RDMA_IPV4;
    return is_link_local(gid) ? SH_RDMA_LINK_LOCAL : SH_RDMA_IPV6;
}

void sh_rdma_addresses_pack(const sh_rdma_addresses *from, sh_offer *offer)
{
    sh_buf out = {0};
    sh_put_uint(&out, (uint64_t)from->count, 1);
    sh_put_uint(&out, (from->send_only ? SEND_ONLY : 0) | (from->any ? ANY : 0), 1);
    sh_put_uint(&out, (uint64_t)from->chosen, 1);
    sh_put_uint(&out, (uint64_t)from->depth, 2);
    sh_put_uint(&out, from->slot_len, 4);
    sh_put_uint(&out, from->frame_len, 4);
    for (int i = 0; i < from->count; i++) {
        const sh_rdma_address *a = &from->lane[i];
        sh_put_uint(&out, a->lid, 2);
        sh_put_uint(&out, (uint64_t)(a->mtu / MTU_MIN), 1);
        for (int class = 0; class < SH_RDMA_GID_CLASSES; class ++) {
            sh_put_uint(&out, a->gid[class].type, 1);
            if (a->gid[class].type != SH_RDMA_GID_NONE)
                sh_buf_add(&out, a->gid[class].raw, SH_RDMA_GID_LEN);
        }
        for (int kind = 0; kind < SH_RDMA_KINDS; kind++) sh_put_uint(&out, a->qpn[kind], 3);
        sh_put_uint(&out, a->psn, 3);
    }
    SH_ASSERT(out.len <= SH_OFFER_BODY_MAX);
    memcpy(offer->body, out.ptr, out.len);
    offer->body_len = (uint32_t)out.len;
    sh_buf_reset(&out);
}

static bool lane_is_sane(const sh_rdma_address *lane)
{
    bool has_gid = false;
    for (int class = 0; class < SH_RDMA_GID_CLASSES; class ++) {
        const sh_rdma_gid *gid = &lane->gid[class];
        if (gid->type == SH_RDMA_GID_NONE) continue;
        if (gid->type > SH_RDMA_GID_ROCE_2 || (int)sh_rdma_gid_class_of(gid) != class) return false;
        has_gid = true;
    }
    return has_gid && lane->mtu >= MTU_MIN && lane->mtu <= MTU_MAX &&
           (lane->qpn[SH_RDMA_RC] != 0 || lane->qpn[SH_RDMA_UC] != 0);
}

static bool is_sane(const sh_rdma_addresses *a)
{
    if (a->depth < SH_RDMA_DEPTH_MIN || a->depth > DEPTH_MAX || a->slot_len < SH_RDMA_NOTICE_LEN ||
        a->slot_len > LEN_MAX || a->frame_len == 0 || a->frame_len > LEN_MAX ||
        a->chosen >= SH_LANES_MAX)
        return false;
    for (int i = 0; i < a->count; i++)
        if (!lane_is_sane(&a->lane[i])) return false;
    return true;
}

static void get_lane(sh_reader *r, sh_rdma_address *a)
{
    a->lid = (uint16_t)sh_get_uint(r, 2);
    a->mtu = (int)sh_get_uint(r, 1) * MTU_MIN;
    for (int class = 0; class < SH_RDMA_GID_CLASSES; class ++) {
        a->gid[class].type = (sh_rdma_gid_type)sh_get_uint(r, 1);
        if (a->gid[class].type == SH_RDMA_GID_NONE) continue;
        const void *raw = sh_get_array(r, 1, SH_RDMA_GID_LEN);
        if (raw != NULL) memcpy(a->gid[class].raw, raw, SH_RDMA_GID_LEN);
    }
    for (int kind = 0; kind < SH_RDMA_KINDS; kind++) a->qpn[kind] = (uint32_t)sh_get_uint(r, 3);
    a->psn = (uint32_t)sh_get_uint(r, 3);
}

sh_status sh_rdma_addresses_unpack(const sh_offer *offer, sh_rdma_addresses *out, sh_err *err)
{
    sh_reader r = sh_reader_of((sh_str){(const char *)offer->body, offer->body_len});
    memset(out, 0, sizeof(*out));
    out->count = (int)sh_get_uint(&r, 1);
    if (out->count < 1 || out->count > SH_LANES_MAX)
        return sh_err_set(err, SH_ERR_PEER, "the offer is malformed: %d lanes, must be 1 to %d",
                          out->count, SH_LANES_MAX);
    unsigned flags = (unsigned)sh_get_uint(&r, 1);
    out->send_only = (flags & SEND_ONLY) != 0;
    out->any = (flags & ANY) != 0;
    out->chosen = (int)sh_get_uint(&r, 1);
    out->depth = (int)sh_get_uint(&r, 2);
    out->slot_len = (uint32_t)sh_get_uint(&r, 4);
    out->frame_len = (uint32_t)sh_get_uint(&r, 4);
    for (int i = 0; i < out->count; i++) get_lane(&r, &out->lane[i]);
    if (sh_get_end(&r, "the offer", err) != SH_OK) return err->status = SH_ERR_PEER;
    if (!is_sane(out)) return sh_err_set(err, SH_ERR_PEER, "the offer is malformed");
    return SH_OK;
}

static int common_bits(const uint8_t *a, const uint8_t *b)
{
    int bits = 0;
    while (bits < 8 * SH_RDMA_GID_LEN && ((a[bits / 8] ^ b[bits / 8]) >> (7 - bits % 8) & 1) == 0)
        bits++;
    return bits;
}

static int reach(const sh_rdma_gid *gid)
{
    return 1 + 4 * (gid->type == SH_RDMA_GID_ROCE_2) + 2 * !is_link_local(gid) + is_v4(gid);
}

/* Version 2 of RoCE is routed like UDP, version 1 only reaches the same network. Next to a GID of
 * the peer, only one of the same version and the same kind of address works, and the one that
 * shares most leading bits with it is in the same subnet. Bits of different classes say nothing
 * about each other: those of link-local ones come from similar MAC addresses. */
int sh_rdma_gid_value(const sh_rdma_gid *gid, const sh_rdma_gid *near)
{
    if (gid->type == SH_RDMA_GID_NONE) return 0;
    if (near == NULL) return reach(gid);
    if (gid->type != near->type) return 0;
    if (gid->type != SH_RDMA_GID_IB && is_v4(gid) != is_v4(near)) return 0;
    return reach(near) << 12 | common_bits(gid->raw, near->raw) << 3 | (reach(gid) - 1);
}

void sh_rdma_gid_format(const sh_rdma_gid *gid, char out[SH_RDMA_GID_TEXT_MAX])
{
    inet_ntop(AF_INET6, gid->raw, out, SH_RDMA_GID_TEXT_MAX);
}
