/* The engine under all operations. Each pair of ranks has a lane in each direction; a flow polls
 * the lanes in turn, asks the algorithm for the next message of an idle lane, and ends when all
 * lanes have. Everything moves in one thread, so algorithms need no locks.
 *
 * Latency matters most: a forward pass has all-reduces in every layer, with short vectors. So the
 * loop spins first and sleeps only after a while. On a machine with more ranks than CPUs spinning
 * is harmful, and the loop then yields or sleeps (see flow_yield).
 *
 * Every failure must name its cause, and the cause is often known elsewhere: a data connection also
 * breaks when a rank leaves because of a third one. So an operation never reports its own error
 * directly. It records it with the watch, which keeps the first failure of the group, and returns
 * that one.
 *
 * The header of each lane's first message (kind, group, sequence number, size) makes ranks that are
 * out of step fail with a message instead of adding up unrelated numbers. */
#include "coll/flow.h"

#include "base/buf.h"
#include "coll/core.h"

#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum {
    VERDICT_MS = 250, /* after a lost data connection: how long the watch may take to know why */
    LEFT_MS = 1000,   /* how long data may take to arrive from a rank that has left */
    NAP_MS = 1000,
    BLIND_NAP_US_MIN = 50, /* for channels that cannot wake us */
    BLIND_NAP_US_MAX = 1000,
    LONG_TURN_NS = 1000000, /* a yield that takes longer shows that other processes compete */
    NO_YIELD_NS = 20000000, /* how long not to yield after that */
};

typedef enum { LANE_IDLE, LANE_ACTIVE, LANE_END } lane_state;

typedef struct {
    lane_state state;
    bool begun; /* the header was transferred */
    sh_msg msg;
} lane;

typedef struct {
    sh_group *group;
    const sh_flow_opts *opts;
    const sh_algo_ops *ops;
    void *algo;
    uint64_t seq;
    int open;                  /* lanes that have not ended */
    int64_t idle_ns;           /* since when nothing has moved; 0: something just did */
    int64_t still_ns;          /* likewise, but also across sleeps */
    int awaited;               /* rank whose expected messages the flow is for; -1: none */
    int nap_us;                /* the next sleep if a channel cannot wake us */
    int peer_of[SH_RANKS_MAX]; /* by rank of the whole group; -1: not a peer in this flow */
    lane lane[SH_RANKS_MAX][2];
} flow;

static const char *kind_name(uint32_t kind)
{
    static const char *const names[] = {"?",      "barrier",   "all-reduce", "all-gather",
                                        "gather", "broadcast", "plan",       "message"};
    kind &= 0xff;
    return names[kind < SH_COUNT_OF(names) ? kind : 0];
}

static sh_channel *channel_of(const sh_group *group, int rank)
{
    return group->core->mesh->peer[rank].channel;
}

static uint8_t *head_of(const flow *f, int peer, sh_dir dir)
{
    return f->group->core->wire->lane_head[f->group->member[peer]][dir];
}

/* Point-to-point messages are numbered per pair, since the other ranks do not see them. */
static uint64_t seq_out(const flow *f, int peer)
{
    if (f->opts->kind != SH_OP_SEND) return f->seq;
    return f->group->core->sent[f->group->member[peer]];
}

/* Fails the group, unless it has already failed for another reason; the first reason becomes the
 * error. `rank` is at fault; -1: none in particular. */
static sh_status end_group(const flow *f, int rank, const sh_err *why, sh_err *err)
{
    sh_watch *watch = f->group->core->watch;
    sh_watch_fail(watch, rank, why->text);
    sh_watch_error(watch, err);
    return err->status;
}

static const char *name_of(const flow *f, int rank)
{
    return f->group->core->mesh->peer[rank].name;
}

/* A data connection also ends if its rank leaves because of a failure elsewhere, and then a notice
 * with the real cause is about to arrive at the watch: give it a moment. */
static sh_status lost_rank(const flow *f, int rank, sh_err *err)
{
    struct pollfd p = {.fd = sh_watch_fd(f->group->core->watch), .events = POLLIN};
    poll(&p, 1, VERDICT_MS);
    sh_err why = *err;
    sh_err_prefix(&why, "rank %d at %s was lost during %s %" PRIu64, rank, name_of(f, rank),
                  kind_name(f->opts->kind), f->seq);
    return end_group(f, rank, &why, err);
}

/* Checks that `rank` sent the operation that this rank is at; of any size if `size_free`. */
static sh_status check_head(const flow *f, int rank, const uint8_t *bytes, const sh_op_head *want,
                            bool size_free, sh_op_head *got, sh_err *err)
{
    sh_err why;
    if (sh_op_head_unpack(bytes, got, &why) != SH_OK) {
        sh_err_prefix(&why, "rank %d at %s", rank, name_of(f, rank));
        return end_group(f, rank, &why, err);
    }
    if (got->kind == want->kind && got->group == want->group && got->seq == want->seq &&
        (size_free || got->size == want->size))
        return SH_OK;
    sh_err_set(&why, SH_ERR_GROUP,
               "rank %d at %s sent %s %" PRIu64 " of %" PRIu64
               " bytes while rank %d is at %s %" PRIu64 " of %" PRIu64
               " bytes%s: the ranks do not run the same operations",
               rank, name_of(f, rank), kind_name(got->kind), got->seq, got->size,
               f->group->core->mesh->rank, kind_name(want->kind), want->seq, want->size,
               got->group == want->group ? "" : " in another group");
    return end_group(f, rank, &why, err);
}

static sh_status lane_check(const flow *f, int peer, const lane *l, sh_err *err)
{
    int rank = f->group->member[peer];
    bool size_free = f->ops->take_size != NULL;
    sh_op_head got, want = {.kind = f->opts->kind, .group = f->group->id, .seq = f->seq};
    want.size = f->opts->sizes != NULL ? f->opts->sizes[peer] : f->opts->size;
    sh_status status = check_head(f, rank, l->msg.part[0].iov_base, &want, size_free, &got, err);
    if (status != SH_OK || !size_free || f->ops->take_size(f->algo, peer, got.size)) return status;
    sh_err why;
    sh_err_set(&why, SH_ERR_GROUP,
               "rank %d at %s sent %s %" PRIu64 " of %" PRIu64 " bytes: too long", rank,
               name_of(f, rank), kind_name(got.kind), got.seq, got.size);
    return end_group(f, rank, &why, err);
}

/* A message is complete. The header is checked only now, after its body has been received, because
 * both arrive as one message; the body was bounded by what the algorithm expected. */
static sh_status lane_finish(flow *f, int peer, sh_dir dir, lane *l, sh_err *err)
{
    l->state = LANE_IDLE;
    if (!l->begun) {
        if (dir == SH_DIR_IN) {
            sh_status status = lane_check(f, peer, l, err);
            if (status != SH_OK) return status;
        }
        l->begun = true;
    }
    if (f->ops->lent != NULL && dir == SH_DIR_IN)
        f->ops->lent(f->algo, peer, l->msg.part[1].iov_base);
    if (f->ops->done != NULL) f->ops->done(f->algo, peer, dir);
    return SH_OK;
}

/* Gets the next message for an idle lane from the algorithm; false: none now. */
static bool lane_load(flow *f, int peer, sh_dir dir, lane *l)
{
    struct iovec body = {NULL, 0};
    switch (f->ops->next(f->algo, peer, dir, &body)) {
    case SH_NEXT_LATER: return false;
    case SH_NEXT_END:
        l->state = LANE_END;
        f->open--;
        return false;
    case SH_NEXT_READY: break;
    }
    l->msg = sh_msg_in(head_of(f, peer, dir), l->begun ? 0 : SH_OP_HEAD_LEN, body.iov_base,
                       body.iov_len);
    l->msg.lend = f->ops->lent != NULL;
    l->state = LANE_ACTIVE;
    return true;
}

/* Advances the current message of one lane. Messages posted ahead of time come first. */
static sh_status lane_step(flow *f, int peer, sh_dir dir, bool *moved, sh_err *err)
{
    lane *l = &f->lane[peer][dir];
    int rank = f->group->member[peer];
    if (l->state == LANE_END) return SH_OK;
    if (l->state == LANE_IDLE && !lane_load(f, peer, dir, l)) {
        if (l->state == LANE_END) *moved = true;
        return SH_OK;
    }
    if (dir == SH_DIR_IN && f->group->core->expected[rank].count > 0) return SH_OK;
    sh_channel *channel = channel_of(f->group, rank);
    size_t before = l->msg.done;
    sh_status status = dir == SH_DIR_OUT ? channel->ops->send(channel, &l->msg, err)
                                         : channel->ops->recv(channel, &l->msg, err);
    if (l->msg.done != before || status == SH_OK) *moved = true;
    if (status == SH_OK) return lane_finish(f, peer, dir, l, err);
    return status == SH_AGAIN ? SH_OK : lost_rank(f, rank, err);
}

/* The first message expected from a rank is complete: check its header and remove it. */
static sh_status expected_take(const flow *f, int rank, sh_err *err)
{
    sh_core *core = f->group->core;
    sh_expected *e = &core->expected[rank];
    const struct sh_expected_msg *m = &e->list[e->first];
    sh_op_head got, want = {SH_OP_SEND, m->group, core->received[rank], m->len};
    sh_status status = check_head(f, rank, core->wire->expected_head[rank], &want, false, &got,
                                  err);
    if (status != SH_OK) return status;
    e->begun = false;
    e->first = (e->first + 1) % e->cap;
    e->count--;
    core->expected_count--;
    core->received[rank]++;
    return SH_OK;
}

/* Receives as much as possible of the messages expected from a rank. */
static sh_status expected_step(const flow *f, int rank, bool *moved, sh_err *err)
{
    sh_core *core = f->group->core;
    sh_expected *e = &core->expected[rank];
    sh_channel *channel = channel_of(f->group, rank);
    while (e->count > 0) {
        const struct sh_expected_msg *m = &e->list[e->first];
        if (!e->begun)
            e->msg = sh_msg_in(core->wire->expected_head[rank], SH_OP_HEAD_LEN, m->data, m->len);
        e->begun = true;
        size_t before = e->msg.done;
        sh_status status = channel->ops->recv(channel, &e->msg, err);
        if (e->msg.done != before) *moved = true;
        if (status == SH_AGAIN) return SH_OK;
        if (status != SH_OK) return lost_rank(f, rank, err);
        status = expected_take(f, rank, err);
        if (status != SH_OK) return status;
        *moved = true;
    }
    return SH_OK;
}

static sh_status expected_pass(const flow *f, bool *moved, sh_err *err)
{
    const sh_core *core = f->group->core;
    for (int rank = 0; rank < core->mesh->size && core->expected_count > 0; rank++) {
        sh_status status = expected_step(f, rank, moved, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

/* In which directions this rank waits for `rank`; `peer` is its number in the group of the flow, or
 * -1. */
static void waits_for(const flow *f, int rank, int peer, bool *out, bool *in)
{
    *out = peer >= 0 && f->lane[peer][SH_DIR_OUT].state == LANE_ACTIVE;
    *in = (peer >= 0 && f->lane[peer][SH_DIR_IN].state == LANE_ACTIVE) ||
          f->group->core->expected[rank].count > 0;
}

static sh_status timed_out(const flow *f, sh_err *err)
{
    const sh_group *group = f->group;
    sh_buf who = {0};
    int first = -1;
    for (int rank = 0; rank < group->core->mesh->size; rank++) {
        bool out, in;
        waits_for(f, rank, f->peer_of[rank], &out, &in);
        if (rank == group->core->mesh->rank || (!out && !in)) continue;
        if (first < 0) first = rank;
        sh_buf_addf(&who, "%s%d (which completed %" PRIu64 " operations)", who.len > 0 ? ", " : "",
                    rank, sh_watch_peer_progress(group->core->watch, rank));
    }
    sh_err why;
    sh_err_set(&why, SH_ERR_GROUP,
               "%s %" PRIu64 " of %" PRIu64 " bytes timed out on rank %d (which completed %" PRIu64
               "), waiting for rank %s",
               kind_name(f->opts->kind), f->seq, f->opts->size, group->core->mesh->rank,
               group->core->finished, who.len > 0 ? who.ptr : "?");
    sh_buf_reset(&who);
    return end_group(f, first, &why, err);
}

/* Whether this flow cannot end without `rank`. Messages that are expected for a later call do not
 * count: a rank may leave without having sent them. */
static bool depends_on(const flow *f, int rank)
{
    int peer = f->peer_of[rank];
    return rank == f->awaited || (peer >= 0 && (f->lane[peer][SH_DIR_OUT].state == LANE_ACTIVE ||
                                                f->lane[peer][SH_DIR_IN].state == LANE_ACTIVE));
}

/* A socket ends when its rank leaves, but other channels (RDMA, MPI) just stay quiet. */
static sh_status check_left(const flow *f, int64_t now_ns, sh_err *err)
{
    const int64_t moment_ns = (int64_t)LEFT_MS * 1000000;
    if (now_ns - f->still_ns < moment_ns) return SH_OK;
    for (int rank = 0; rank < f->group->core->mesh->size; rank++) {
        int64_t left_ns = sh_watch_left_ns(f->group->core->watch, rank);
        if (left_ns == 0 || now_ns - left_ns < moment_ns || !depends_on(f, rank)) continue;
        sh_err why;
        sh_err_set(&why, SH_ERR_GROUP, "rank %d at %s left during %s %" PRIu64, rank,
                   name_of(f, rank), kind_name(f->opts->kind), f->seq);
        return end_group(f, rank, &why, err);
    }
    return SH_OK;
}

/* Sleeps longer each time, since a rank that waits for work should leave the CPU to others. */
static void blind_nap(flow *f)
{
    struct timespec nap = {.tv_nsec = (long)1000 * f->nap_us};
    nanosleep(&nap, NULL);
    f->nap_us = f->nap_us < BLIND_NAP_US_MAX ? 2 * f->nap_us : BLIND_NAP_US_MAX;
}

/* A frame that was lost on the way to a rank is noticed there only with our help, and that rank may
 * be one that we do not wait for. One that has left is done with its channels. */
static sh_status tend_channels(const flow *f, sh_err *err)
{
    const sh_core *core = f->group->core;
    for (int rank = 0; rank < core->mesh->size; rank++) {
        sh_channel *channel = channel_of(f->group, rank);
        if (channel == NULL || channel->ops->tend == NULL ||
            sh_watch_left_ns(core->watch, rank) != 0)
            continue;
        if (channel->ops->tend(channel, err) != SH_OK) return lost_rank(f, rank, err);
    }
    return SH_OK;
}

/* Sleeps until a channel that we wait for is ready, the group fails, or the deadline is near. */
static void flow_sleep(flow *f)
{
    struct pollfd fds[SH_RANKS_MAX * SH_CHANNEL_FDS_MAX + 1];
    sh_channel *armed[SH_RANKS_MAX];
    int armed_count = 0;
    int count = 0;
    bool ready = false;
    bool blind = false;
    for (int rank = 0; rank < f->group->core->mesh->size && !ready; rank++) {
        bool out, in;
        waits_for(f, rank, f->peer_of[rank], &out, &in);
        if (!out && !in) continue;
        sh_channel *channel = channel_of(f->group, rank);
        if (channel->ops->arm == NULL) {
            blind = true;
            continue;
        }
        int added = channel->ops->arm(channel, out, in, &fds[count]);
        armed[armed_count++] = channel;
        ready = added < 0;
        count += ready ? 0 : added;
    }
    fds[count++] = (struct pollfd){.fd = sh_watch_fd(f->group->core->watch), .events = POLLIN};
    int left_ms = sh_deadline_left_ms(f->opts->deadline);
    if (!ready && blind)
        blind_nap(f);
    else if (!ready)
        poll(fds, (nfds_t)count, left_ms < NAP_MS ? left_ms : NAP_MS);
    if (!blind) f->idle_ns = 0;
    for (int i = 0; i < armed_count; i++)
        if (armed[i]->ops->disarm != NULL) armed[i]->ops->disarm(armed[i]);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A rank that we wait for is not running now, because we occupy its CPU. */
static bool peer_is_descheduled(const flow *f)
{
    for (int rank = 0; rank < f->group->core->mesh->size; rank++) {
        bool out, in;
        waits_for(f, rank, f->peer_of[rank], &out, &in);
        if (!in) continue;
        const sh_channel *channel = channel_of(f->group, rank);
        if (channel->ops->peer_descheduled != NULL && channel->ops->peer_descheduled(channel))
            return true;
    }
    return false;
}

/* On an overcommitted machine the scheduler puts ranks on one CPU, and there each would spin away
 * the time in which the other could answer. They take turns about twenty times per step; yielding
 * costs a third of sleeping and being woken. But if other processes compete for the CPU, yielding
 * moves us to the end of their queue: a yield that takes long shows that, and then sleeping is
 * better for a while. */
static bool flow_yield(flow *f, int64_t now_ns)
{
    sh_core *core = f->group->core;
    if (now_ns < core->yield_from_ns) return false;
    sched_yield();
    int64_t back_ns = sh_clock_ns();
    if (back_ns - now_ns > LONG_TURN_NS) core->yield_from_ns = back_ns + NO_YIELD_NS;
    return true;
}

/* Waits a moment if that is better than sleeping; false: sleep. */
static bool flow_spin(flow *f, int64_t now_ns)
{
    if (now_ns - f->idle_ns >= f->group->core->spin_ns) return false;
    if (peer_is_descheduled(f)) return flow_yield(f, now_ns);
    relax();
    return true;
}

/* Nothing moved in this pass: spin, yield or sleep. A failed group is checked first, so that a rank
 * which waits for a dead one returns at once. */
static sh_status flow_idle(flow *f, sh_err *err)
{
    sh_core *core = f->group->core;
    if (sh_watch_failed(core->watch)) {
        sh_watch_error(core->watch, err);
        return err->status;
    }
    int64_t now_ns = sh_clock_ns();
    if (f->idle_ns == 0) f->idle_ns = now_ns;
    if (f->still_ns == 0) f->still_ns = now_ns;
    if (flow_spin(f, now_ns)) return SH_OK;
    sh_status status = check_left(f, now_ns, err);
    if (status != SH_OK) return status;
    if (sh_deadline_passed(f->opts->deadline)) return timed_out(f, err);
    status = tend_channels(f, err);
    if (status == SH_OK) flow_sleep(f);
    return status;
}

static sh_status flow_pass(flow *f, sh_err *err)
{
    bool moved = false;
    sh_group *group = f->group;
    sh_status status = expected_pass(f, &moved, err);
    if (status != SH_OK) return status;
    for (int i = 1; i < group->size; i++) {
        /* Ring order, so that not all ranks start with the same peer. */
        int to = group->rank + i < group->size ? group->rank + i : group->rank + i - group->size;
        int from = group->rank >= i ? group->rank - i : group->rank - i + group->size;
        status = lane_step(f, to, SH_DIR_OUT, &moved, err);
        if (status == SH_OK) status = lane_step(f, from, SH_DIR_IN, &moved, err);
        if (status != SH_OK) return status;
    }
    if (moved) {
        f->idle_ns = f->still_ns = 0;
        f->nap_us = BLIND_NAP_US_MIN;
        return SH_OK;
    }
    return flow_idle(f, err);
}

/* Ranks outside the group, and this rank itself, have no lanes in a flow. */
static void flow_init(flow *f, sh_group *group, const sh_flow_opts *opts)
{
    f->group = group;
    f->opts = opts;
    f->open = 0;
    f->idle_ns = f->still_ns = 0;
    f->awaited = -1;
    f->nap_us = BLIND_NAP_US_MIN;
    for (int rank = 0; rank < group->core->mesh->size; rank++) f->peer_of[rank] = -1;
    for (int peer = 0; peer < group->size; peer++) {
        if (peer != group->rank) f->peer_of[group->member[peer]] = peer;
        f->lane[peer][SH_DIR_OUT].state = f->lane[peer][SH_DIR_IN].state = LANE_END;
    }
}

static void lanes_open(flow *f)
{
    sh_group *group = f->group;
    for (int peer = 0; peer < group->size; peer++) {
        if (peer == group->rank) continue;
        for (int dir = 0; dir < 2; dir++) {
            f->lane[peer][dir].state = LANE_IDLE;
            f->lane[peer][dir].begun = false;
        }
        sh_op_head head = {f->opts->kind, group->id, seq_out(f, peer), f->opts->size};
        sh_op_head_pack(&head, head_of(f, peer, SH_DIR_OUT));
        f->open += 2;
    }
}

static void flow_finished(sh_core *core)
{
    core->finished++;
    if (core->watch != NULL) sh_watch_set_progress(core->watch, core->finished);
}

sh_status sh_flow_run(sh_group *group, const sh_flow_opts *opts, const sh_algo_ops *ops, void *algo,
                      sh_err *err)
{
    sh_core *core = group->core;
    sh_status status = sh_group_check(group, err);
    if (status != SH_OK) return status;
    flow f;
    flow_init(&f, group, opts);
    f.ops = ops;
    f.algo = algo;
    f.seq = opts->kind == SH_OP_SEND ? core->finished : group->seq++;
    lanes_open(&f);
    while (f.open > 0) {
        status = flow_pass(&f, err);
        if (status != SH_OK) return status;
    }
    flow_finished(core);
    return SH_OK;
}

sh_status sh_flow_await(sh_group *group, int peer, uint64_t count, sh_deadline deadline,
                        sh_err *err)
{
    sh_core *core = group->core;
    int rank = group->member[peer];
    sh_status status = sh_group_check(group, err);
    if (status != SH_OK) return status;
    if (core->received[rank] >= count) return SH_OK;
    const sh_expected *e = &core->expected[rank];
    sh_flow_opts opts = {.kind = SH_OP_SEND, .size = e->list[e->first].len, .deadline = deadline};
    flow f;
    flow_init(&f, group, &opts);
    f.awaited = rank;
    f.seq = core->finished;
    while (core->received[rank] < count) {
        status = flow_pass(&f, err);
        if (status != SH_OK) return status;
    }
    flow_finished(core);
    return SH_OK;
}

sh_deadline sh_flow_deadline(const sh_group *group)
{
    int op_ms = group->core->op_ms;
    return op_ms > 0 ? sh_deadline_in_ms(op_ms) : SH_DEADLINE_NEVER;
}

void *sh_flow_staging(sh_group *group)
{
    return group->core->wire != NULL ? group->core->wire->staging : NULL;
}
