/* From device names to connected queue pairs.
 *
 * The rank that goes first opens a queue pair of every kind that its devices have, for each lane,
 * and offers their numbers. The rank that answers sees what both can do: it takes reliable ones if
 * all lanes have them and the GIDs that are closest, connects its own end and posts the receives.
 * Its answer names only those, so the first rank knows what was chosen, connects its end and
 * greets. The channel is there when a frame has gone each way on every lane: that the GIDs, the
 * path and the receives work is tried, not assumed. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "net/cluster_token.h"
#include "net/rdma_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GREET_MS = 10000 };

/* One lane of this end. */
typedef struct {
    sh_rdma_port_ref port;
    sh_rdma_qp *qp[SH_RDMA_KINDS]; /* NULL: the device does not have that kind */
    int gid_index[SH_RDMA_GID_CLASSES];
    sh_rdma_gid_class class; /* of the GID in use, once both ends are known */
    sh_rdma_address address;
} endpoint;

/* What an offer makes. */
typedef struct {
    sh_rdma *rdma;
    int lanes; /* until the answer to alternatives is there, these */
    endpoint lane[SH_LANES_MAX];
    sh_rdma_addresses mine;
    sh_channel *channel; /* once the peer's addresses are known; owns the queue pairs then */
    sh_deadline greet;
} setup;

static void endpoint_close(sh_rdma *rdma, endpoint *e)
{
    for (int kind = 0; kind < SH_RDMA_KINDS; kind++)
        sh_rdma_qp_destroy(rdma, &e->port, e->qp[kind]);
}

static void rdma_withdraw(void *state)
{
    setup *s = state;
    sh_channel_close(s->channel);
    for (int i = 0; i < s->lanes; i++) endpoint_close(s->rdma, &s->lane[i]);
    free(s);
}

/* ---- which ports ---- */

static const char *const *names_for(const sh_rdma *rdma, int peer)
{
    static const char *const none[] = {NULL};
    const sh_rdma_devices *d = rdma->devices;
    return peer < d->size && d->names[peer] != NULL ? d->names[peer] : none;
}

static bool any_port(const sh_rdma *rdma)
{
    return rdma->devices == NULL || rdma->devices->size == 0;
}

static bool rdma_covers(const sh_pair *pair)
{
    const sh_rdma *rdma = pair->library;
    return rdma == NULL || any_port(rdma) || !rdma->devices->partial ||
           names_for(rdma, pair->peer)[0] != NULL;
}

static sh_status no_gid(const sh_rdma_port_ref *port, const sh_rdma_address *theirs, sh_err *err)
{
    char text[SH_RDMA_GID_TEXT_MAX];
    if (theirs == NULL)
        return sh_err_set(err, SH_ERR_SYSTEM,
                          "%s has no GID; give its network interface an address",
                          port->device->name);
    int class = 0;
    while (class < SH_RDMA_GID_CLASSES - 1 && theirs->gid[class].type == SH_RDMA_GID_NONE) class ++;
    sh_rdma_gid_format(&theirs->gid[class], text);
    return sh_err_set(err, SH_ERR_SYSTEM,
                      "%s has no GID that reaches %s; give both interfaces an address in the same "
                      "network",
                      port->device->name, text);
}

/* Fills in the best GID of each class that the port has. */
static sh_status offer_gids(const sh_rdma *rdma, endpoint *e, sh_err *err)
{
    int best[SH_RDMA_GID_CLASSES] = {0}, found = 0;
    for (int i = 0; i < e->port.is.gids; i++) {
        sh_rdma_gid gid;
        if (rdma->plugin->gid(e->port.device->handle, e->port.number, i, &gid) != 0) continue;
        sh_rdma_gid_class class = sh_rdma_gid_class_of(&gid);
        int value = sh_rdma_gid_value(&gid, NULL);
        if (value <= best[class]) continue;
        best[class] = value;
        e->address.gid[class] = gid;
        e->gid_index[class] = i;
        found++;
    }
    return found > 0 ? SH_OK : no_gid(&e->port, NULL, err);
}

/* How close a GID of the port comes to one of theirs, 0 if none reaches any; the closest becomes
 * the only one of *out. */
static int answer_gid(const sh_rdma *rdma, const sh_rdma_port_ref *port,
                      const sh_rdma_address *theirs, endpoint *out)
{
    int best = 0;
    for (int i = 0; i < port->is.gids; i++) {
        sh_rdma_gid gid;
        if (rdma->plugin->gid(port->device->handle, port->number, i, &gid) != 0) continue;
        sh_rdma_gid_class class = sh_rdma_gid_class_of(&gid);
        int value = sh_rdma_gid_value(&gid, &theirs->gid[class]);
        if (value <= best) continue;
        best = value;
        *out = (endpoint){.port = *port, .class = class};
        out->address.gid[class] = gid;
        out->gid_index[class] = i;
    }
    return best;
}

/* Finds the port among `ports` and, if theirs are alternatives, the lane among them, that are
 * closest to each other. Networks of their own tell cables apart; where all addresses are
 * link-local, only names do. */
static sh_status answer_ports(const sh_rdma *rdma, const sh_rdma_port_ref *ports, int count,
                              const sh_rdma_addresses *theirs, int lane, endpoint *out, int *chosen,
                              sh_err *err)
{
    int best = 0;
    int first = theirs->any ? 0 : lane, end = theirs->any ? theirs->count : lane + 1;
    for (int i = 0; i < count; i++) {
        for (int k = first; k < end; k++) {
            endpoint e;
            int value = answer_gid(rdma, &ports[i], &theirs->lane[k], &e);
            if (value <= best) continue;
            best = value;
            *out = e;
            *chosen = k;
        }
    }
    return best > 0 ? SH_OK : no_gid(&ports[0], &theirs->lane[first], err);
}

static sh_status count_lanes(const sh_pair *pair, const char *const *names,
                             const sh_rdma_addresses *theirs, int *out, sh_err *err)
{
    int count = 0;
    while (names[count] != NULL) count++;
    if (count == 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "rank %d has no RDMA device for rank %d in its device list", pair->rank,
                          pair->peer);
    if (count > SH_LANES_MAX)
        return sh_err_set(err, SH_ERR_INPUT, "rank %d lists %d devices for rank %d; at most %d",
                          pair->rank, count, pair->peer, SH_LANES_MAX);
    if (theirs != NULL && (theirs->any ? 1 : theirs->count) != count)
        return sh_err_set(err, SH_ERR_INPUT,
                          "rank %d lists %d devices for it; must be %d, as on the other end",
                          pair->rank, count, theirs->any ? 1 : theirs->count);
    *out = count;
    return SH_OK;
}

/* Without names, a pair uses one port: this end offers all active ones. */
static sh_status choose_any(setup *s, const sh_rdma_addresses *theirs, sh_err *err)
{
    sh_rdma_port_ref ports[SH_LANES_MAX];
    int count;
    sh_status status = sh_rdma_active_ports(s->rdma, ports, SH_LANES_MAX, &count, err);
    if (status != SH_OK) return status;
    if (theirs != NULL) {
        s->lanes = 1;
        return answer_ports(s->rdma, ports, count, theirs, 0, &s->lane[0], &s->mine.chosen, err);
    }
    s->mine.any = true;
    for (int i = 0; i < count; i++) { /* one without an address may be meant for something else */
        s->lane[s->lanes].port = ports[i];
        status = offer_gids(s->rdma, &s->lane[s->lanes], err);
        s->lanes += status == SH_OK;
    }
    return s->lanes > 0 ? SH_OK : status;
}

static sh_status choose_ports(const sh_pair *pair, setup *s, const sh_rdma_addresses *theirs,
                              sh_err *err)
{
    if (any_port(s->rdma)) return choose_any(s, theirs, err);
    const char *const *names = names_for(s->rdma, pair->peer);
    int count = 0;
    sh_status status = count_lanes(pair, names, theirs, &count, err);
    for (; s->lanes < count && status == SH_OK; s->lanes++) {
        endpoint *e = &s->lane[s->lanes];
        status = sh_rdma_find_port(s->rdma, names[s->lanes], &e->port, err);
        if (status != SH_OK) break;
        sh_rdma_port_ref port = e->port;
        status = theirs == NULL
                     ? offer_gids(s->rdma, e, err)
                     : answer_ports(s->rdma, &port, 1, theirs, s->lanes, e, &s->mine.chosen, err);
    }
    return status;
}

/* ---- queue pairs ---- */

/* Whether the error says that a device does not have a kind of queue pair. */
static bool is_unsupported(int error)
{
    static const int errors[] = {EOPNOTSUPP, ENOTSUP, ENOSYS, EINVAL};
    for (size_t i = 0; i < SH_COUNT_OF(errors); i++)
        if (errors[i] == error) return true;
    return false;
}

static sh_status no_queue_pair(const endpoint *e, int error, sh_err *err)
{
    return sh_rdma_failed(e->port.device->name,
                          error == ENOMEM
                              ? "creating a queue pair (the device may have no more of them)"
                              : "creating a queue pair",
                          error, err);
}

/* A device without reliable queue pairs is fine. One that has them but fails to make one is not: to
 * use unreliable ones then would hide the reason. */
static sh_status create_kinds(setup *s, endpoint *e, unsigned kinds, int depth, sh_err *err)
{
    int error = 0, made = 0;
    for (int kind = 0; kind < SH_RDMA_KINDS; kind++) {
        if ((kinds >> kind & 1) == 0) continue;
        int code = sh_rdma_qp_create(s->rdma, &e->port, (sh_rdma_kind)kind, depth, &e->qp[kind]);
        if (code != 0 && made == 0 && !is_unsupported(code)) return no_queue_pair(e, code, err);
        if (code != 0) error = code;
        if (code != 0) continue;
        e->address.qpn[kind] = s->rdma->plugin->number(e->qp[kind]);
        made++;
    }
    return made > 0 ? SH_OK : no_queue_pair(e, error, err);
}

/* Which kinds the peer has on all of its lanes. */
static unsigned kinds_of(const sh_rdma_addresses *a)
{
    unsigned kinds = (1u << SH_RDMA_KINDS) - 1;
    for (int i = 0; i < a->count; i++)
        for (int kind = 0; kind < SH_RDMA_KINDS; kind++)
            if (a->lane[i].qpn[kind] == 0) kinds &= ~(1u << kind);
    return kinds;
}

/* Fills in everything about this end that the peer needs to know. */
static sh_status describe(setup *s, unsigned kinds, sh_err *err)
{
    sh_rdma_addresses *mine = &s->mine;
    uint32_t frame_max = UINT32_MAX;
    sh_status status = SH_OK;
    mine->depth = SH_RDMA_DEPTH;
    for (int i = 0; i < s->lanes; i++) {
        const sh_rdma_port *port = &s->lane[i].port.is;
        if (port->depth < mine->depth) mine->depth = port->depth;
        if (port->frame_max < frame_max) frame_max = port->frame_max;
        if (port->send_only) mine->send_only = true;
    }
    if (mine->depth < SH_RDMA_DEPTH_MIN || frame_max < SH_RDMA_FRAME_MIN)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "%s can queue %d frames of %u bytes; must be at least %d of %d",
                          s->lane[0].port.device->name, mine->depth, frame_max, SH_RDMA_DEPTH_MIN,
                          SH_RDMA_FRAME_MIN);
    mine->slot_len = sh_rdma_slot_len(frame_max);
    mine->frame_len = sh_rdma_frame_len(frame_max);
    mine->count = s->lanes;
    for (int i = 0; i < s->lanes && status == SH_OK; i++) {
        endpoint *e = &s->lane[i];
        e->address.lid = e->port.is.ethernet && !e->port.is.send_only ? 0 : e->port.is.lid;
        e->address.mtu = e->port.is.mtu;
        sh_random(&e->address.psn, sizeof(e->address.psn));
        e->address.psn &= 0xffffff;
        status = create_kinds(s, e, kinds, mine->depth, err);
        mine->lane[i] = e->address;
    }
    return status;
}

/* ---- connecting ---- */

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Keeps the queue pairs of the chosen kind, for the channel, and destroys the others. */
static void keep_kind(setup *s, sh_rdma_kind kept, sh_rdma_channel_opts *opts)
{
    for (int i = 0; i < s->lanes; i++) {
        for (int kind = 0; kind < SH_RDMA_KINDS; kind++) {
            sh_rdma_qp *qp = s->lane[i].qp[kind];
            s->lane[i].qp[kind] = NULL;
            if (kind == (int)kept)
                opts->lane[i].qp = qp;
            else
                sh_rdma_qp_destroy(s->rdma, &s->lane[i].port, qp);
        }
    }
}

static sh_status lane_connect(setup *s, const endpoint *e, sh_rdma_qp *qp, sh_rdma_kind kind,
                              const sh_rdma_address *theirs, sh_err *err)
{
    const sh_rdma_gid *to = &theirs->gid[e->class];
    sh_rdma_path path = {.gid_index = e->gid_index[e->class],
                         .mtu = e->address.mtu < theirs->mtu ? e->address.mtu : theirs->mtu,
                         .my_psn = e->address.psn,
                         .psn = theirs->psn,
                         .qpn = theirs->qpn[kind],
                         .lid = theirs->lid};
    char gid[SH_RDMA_GID_TEXT_MAX], what[SH_RDMA_GID_TEXT_MAX + 32];
    memcpy(path.gid, to->raw, SH_RDMA_GID_LEN);
    int error = s->rdma->plugin->connect(qp, &path);
    if (error == 0) return SH_OK;
    sh_rdma_gid_format(to, gid);
    snprintf(what, sizeof(what), "connecting to %s", gid);
    return sh_rdma_failed(e->port.device->name, what, error, err);
}

/* All frames of a send-only device have one length, a power of two. */
static sh_status same_lengths(sh_rdma_channel_opts *opts, sh_err *err)
{
    uint32_t len = SH_RDMA_PIECE_MIN;
    if (opts->frame_len < len)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "a device that can only send needs frames of at least %d bytes; rank %d "
                          "or this one has %u",
                          SH_RDMA_PIECE_MIN, opts->peer, opts->frame_len);
    while (2 * len <= opts->frame_len) len *= 2;
    opts->frame_len = opts->slot_len = len;
    return SH_OK;
}

/* Both ends are known: makes the channel, connects it and posts its receives. The peer sends
 * nothing before it has seen a sign that this end is ready. */
static sh_status setup_connect(const sh_pair *pair, setup *s, const sh_rdma_addresses *theirs,
                               sh_rdma_kind kind, sh_err *err)
{
    sh_rdma_channel_opts opts = {.rdma = s->rdma,
                                 .peer = pair->peer,
                                 .leads = pair->rank > pair->peer,
                                 .send_only = s->mine.send_only || theirs->send_only,
                                 .kind = kind,
                                 .lanes = s->lanes,
                                 .depth = s->mine.depth,
                                 .slot_len = smaller(s->mine.slot_len, theirs->slot_len),
                                 .frame_len = smaller(s->mine.frame_len, theirs->frame_len)};
    sh_status status = opts.send_only ? same_lengths(&opts, err) : SH_OK;
    if (status != SH_OK) return status;
    keep_kind(s, kind, &opts);
    for (int i = 0; i < s->lanes; i++) {
        opts.lane[i].port = s->lane[i].port;
        opts.lane[i].peer_depth = theirs->depth;
    }
    status = sh_rdma_channel_create(&opts, &s->channel, err);
    for (int i = 0; i < s->lanes && status == SH_OK; i++)
        status = lane_connect(s, &s->lane[i], opts.lane[i].qp, kind, &theirs->lane[i], err);
    if (status == SH_OK) status = sh_rdma_channel_start(s->channel, err);
    s->greet = sh_deadline_in_ms(GREET_MS);
    return status;
}

/* Of alternatives only this one is left. */
static void keep_chosen(sh_rdma_addresses *a, int chosen)
{
    a->lane[0] = a->lane[chosen];
    a->count = 1;
}

/* The end that answers: the peer's addresses decide, and this end is connected before they are
 * answered. */
static sh_status answer(const sh_pair *pair, setup *s, const sh_offer *offer, sh_err *err)
{
    sh_rdma_addresses theirs;
    sh_status status = sh_rdma_addresses_unpack(offer, &theirs, err);
    if (status == SH_OK) status = choose_ports(pair, s, &theirs, err);
    if (status == SH_OK && theirs.any) keep_chosen(&theirs, s->mine.chosen);
    if (status == SH_OK && s->lanes != theirs.count)
        status = sh_err_set(err, SH_ERR_INPUT, "rank %d uses %d devices and rank %d %d", pair->rank,
                            s->lanes, pair->peer, theirs.count);
    if (status == SH_OK) status = describe(s, kinds_of(&theirs), err);
    if (status != SH_OK) return status;
    unsigned kinds = kinds_of(&theirs) & kinds_of(&s->mine);
    if (kinds == 0)
        return sh_err_set(err, SH_ERR_UNSUPPORTED,
                          "the devices of ranks %d and %d have no kind of queue pair in common",
                          pair->rank, pair->peer);
    sh_rdma_kind kind = kinds >> SH_RDMA_RC & 1 ? SH_RDMA_RC : SH_RDMA_UC;
    for (int i = 0; i < s->lanes; i++) s->mine.lane[i].qpn[1 - kind] = 0;
    return setup_connect(pair, s, &theirs, kind, err);
}

static sh_status rdma_offer(const sh_pair *pair, const sh_offer *theirs, sh_offer *mine,
                            void **state, sh_err *err)
{
    if (pair->library == NULL)
        return sh_err_set(err, SH_ERR_UNSUPPORTED, "rank %d was started without --backend jaccl",
                          pair->rank);
    setup *s = sh_alloc(sizeof(*s));
    s->rdma = pair->library;
    *state = s;
    sh_status status;
    if (theirs != NULL) {
        status = answer(pair, s, theirs, err);
    } else {
        status = choose_ports(pair, s, NULL, err);
        if (status == SH_OK) status = describe(s, (1u << SH_RDMA_KINDS) - 1, err);
    }
    if (status == SH_OK) sh_rdma_addresses_pack(&s->mine, mine);
    return status;
}

static void log_pair(const sh_pair *pair, const setup *s, const sh_rdma_addresses *theirs)
{
    char gid[SH_RDMA_GID_TEXT_MAX];
    bool reliable = theirs->lane[0].qpn[SH_RDMA_RC] != 0 && s->mine.lane[0].qpn[SH_RDMA_RC] != 0;
    for (int i = 0; i < s->lanes; i++) {
        const endpoint *e = &s->lane[i];
        int mtu = e->address.mtu < theirs->lane[i].mtu ? e->address.mtu : theirs->lane[i].mtu;
        sh_rdma_gid_format(&e->address.gid[e->class], gid);
        SH_LOGI("RDMA to rank %d: %s port %d, %s queue pairs%s, MTU %d, GID %d (%s), in clear",
                pair->peer, e->port.device->name, e->port.number, reliable ? "RC" : "UC",
                s->mine.send_only || theirs->send_only ? " that only send" : "", mtu,
                e->gid_index[e->class], gid);
    }
}

static sh_status no_greeting(const setup *s, const sh_rdma_addresses *theirs, sh_err *err)
{
    char mine[SH_RDMA_GID_TEXT_MAX], other[SH_RDMA_GID_TEXT_MAX];
    sh_rdma_gid_class class = s->lane[0].class;
    sh_rdma_gid_format(&s->lane[0].address.gid[class], mine);
    sh_rdma_gid_format(&theirs->lane[0].gid[class], other);
    return sh_err_set(err, SH_ERR_TIMEOUT,
                      "nothing arrived over %s (%s) from %s within %d s; check that a cable or "
                      "switch connects the two, and name the devices if there are several",
                      s->lane[0].port.device->name, mine, other, GREET_MS / 1000);
}

/* The answer names the port that it goes to, of alternatives, and one GID for each lane: this end
 * uses its own of the same class. */
static sh_status take_answer(setup *s, const sh_rdma_addresses *theirs, sh_err *err)
{
    if (s->mine.any) {
        if (theirs->chosen >= s->lanes)
            return sh_err_set(err, SH_ERR_PEER, "the answer names port %d of %d", theirs->chosen,
                              s->lanes);
        endpoint first = s->lane[0];
        s->lane[0] = s->lane[theirs->chosen];
        s->lane[theirs->chosen] = first;
        keep_chosen(&s->mine, theirs->chosen);
        for (; s->lanes > 1; s->lanes--) endpoint_close(s->rdma, &s->lane[s->lanes - 1]);
    }
    if (theirs->count != s->lanes)
        return sh_err_set(err, SH_ERR_PEER, "the answer has %d lanes, must be %d", theirs->count,
                          s->lanes);
    for (int i = 0; i < s->lanes; i++) {
        endpoint *e = &s->lane[i];
        while (theirs->lane[i].gid[e->class].type == SH_RDMA_GID_NONE) e->class ++;
        if (e->address.gid[e->class].type == SH_RDMA_GID_NONE)
            return sh_err_set(err, SH_ERR_PEER, "the answer has an address of another class");
    }
    return SH_OK;
}

static sh_status rdma_connect(const sh_pair *pair, void *state, const sh_offer *offer,
                              sh_channel **out, sh_err *err)
{
    setup *s = state;
    sh_rdma_addresses theirs;
    sh_status status = sh_rdma_addresses_unpack(offer, &theirs, err);
    if (status == SH_OK && s->channel != NULL && theirs.any)
        keep_chosen(&theirs, s->mine.chosen); /* this end has answered already */
    if (status == SH_OK && s->channel == NULL) {
        status = take_answer(s, &theirs, err);
        if (status != SH_OK) return status;
        unsigned kinds = kinds_of(&theirs) & kinds_of(&s->mine);
        if (kinds == 0) return sh_err_set(err, SH_ERR_PEER, "the answer names no queue pair");
        sh_rdma_kind kind = kinds >> SH_RDMA_RC & 1 ? SH_RDMA_RC : SH_RDMA_UC;
        status = setup_connect(pair, s, &theirs, kind, err);
    }
    if (status == SH_OK) status = sh_rdma_channel_greet(s->channel, err);
    if (status == SH_AGAIN && sh_deadline_passed(s->greet)) return no_greeting(s, &theirs, err);
    if (status != SH_OK) return status;
    log_pair(pair, s, &theirs);
    *out = s->channel;
    s->channel = NULL;
    rdma_withdraw(s);
    return SH_OK;
}

const sh_transport sh_transport_rdma = {
    .name = "rdma",
    .title = "RDMA",
    .backend = "jaccl",
    .clear_text = true,
    .covers = rdma_covers,
    .offer = rdma_offer,
    .connect = rdma_connect,
    .withdraw = rdma_withdraw,
};
