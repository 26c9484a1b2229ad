/* The operations that only move bytes. Each is a small algorithm for coll/flow.h that says what is
 * sent to whom; allreduce.c has the one that also computes.
 *
 * Ranks are few and all connected to each other, so most operations send directly to everybody: one
 * hop, and all transfers overlap. Only a long broadcast is bound by the root's bandwidth and goes
 * along a chain instead.
 *
 * A receive is a posted message that is awaited. A rank that posts before it sends keeps receiving
 * while it sends, so two ranks that send to each other do not deadlock on full buffers. */
#include "coll/coll.h"

#include "base/alloc.h"
#include "coll/core.h"
#include "coll/flow.h"

#include <stdlib.h>
#include <string.h>

/* At most one message per peer and direction. */
typedef struct {
    struct iovec part[2]; /* by direction */
    bool used[2];
} exchange_pair;

typedef struct {
    exchange_pair pair[SH_RANKS_MAX];
} exchange;

static void exchange_add(exchange *ex, int peer, sh_dir dir, const void *data, size_t len)
{
    ex->pair[peer].part[dir] = (struct iovec){(void *)(uintptr_t)data, len};
    ex->pair[peer].used[dir] = true;
}

static sh_next exchange_next(void *algo, int peer, sh_dir dir, struct iovec *body)
{
    exchange_pair *pair = &((exchange *)algo)->pair[peer];
    if (!pair->used[dir]) return SH_NEXT_END;
    pair->used[dir] = false;
    *body = pair->part[dir];
    return SH_NEXT_READY;
}

static const sh_algo_ops EXCHANGE_OPS = {.next = exchange_next};

/* For messages without a body: only the header arrives, and the flow checks it. */
static void nothing_lent(void *algo, int peer, const void *body)
{
    (void)algo, (void)peer, (void)body;
}

static const sh_algo_ops BARRIER_OPS = {.next = exchange_next, .lent = nothing_lent};

static void exchange_init(exchange *ex, const sh_group *group)
{
    memset(ex->pair, 0, (size_t)group->size * sizeof(ex->pair[0]));
}

static sh_status exchange_run(sh_group *group, sh_flow_opts opts, exchange *ex, sh_err *err)
{
    opts.deadline = sh_flow_deadline(group);
    return sh_flow_run(group, &opts, opts.kind == SH_OP_BARRIER ? &BARRIER_OPS : &EXCHANGE_OPS, ex,
                       err);
}

sh_status sh_coll_barrier(sh_group *group, sh_err *err)
{
    exchange ex;
    exchange_init(&ex, group);
    for (int peer = 0; peer < group->size; peer++) {
        exchange_add(&ex, peer, SH_DIR_OUT, NULL, 0);
        exchange_add(&ex, peer, SH_DIR_IN, NULL, 0);
    }
    return exchange_run(group, (sh_flow_opts){.kind = SH_OP_BARRIER}, &ex, err);
}

/* Shared by all-gather (root < 0) and gather: a rank that collects has space for every block. */
static sh_status gather(sh_group *group, int root, const void *mine, const size_t *lens, void *all,
                        sh_err *err)
{
    exchange ex;
    uint64_t sizes[SH_RANKS_MAX];
    size_t at = 0;
    exchange_init(&ex, group);
    for (int peer = 0; peer < group->size; at += lens[peer++]) {
        sizes[peer] = lens[peer];
        if (peer == group->rank) {
            if (all != NULL && lens[peer] > 0) memmove((char *)all + at, mine, lens[peer]);
            continue;
        }
        if (root < 0 || root == peer) exchange_add(&ex, peer, SH_DIR_OUT, mine, lens[group->rank]);
        if (root < 0 || root == group->rank)
            exchange_add(&ex, peer, SH_DIR_IN, (char *)all + at, lens[peer]);
    }
    sh_flow_opts opts = {.kind = root < 0 ? SH_OP_ALLGATHER : SH_OP_GATHER,
                         .size = lens[group->rank],
                         .sizes = sizes};
    return exchange_run(group, opts, &ex, err);
}

sh_status sh_coll_allgather(sh_group *group, const void *mine, const size_t *lens, void *all,
                            sh_err *err)
{
    return gather(group, -1, mine, lens, all, err);
}

sh_status sh_coll_gather(sh_group *group, int root, const void *mine, const size_t *lens, void *all,
                         sh_err *err)
{
    SH_ASSERT(root >= 0 && root < group->size);
    return gather(group, root, mine, lens, group->rank == root ? all : NULL, err);
}

/* A long broadcast goes along a chain of all ranks in pieces, so that no rank sends it more than
 * once. A rank forwards a piece as soon as it has all of it, while the next one is arriving. */
enum { CHAIN_MIN = 256 * 1024, CHAIN_PIECE = 128 * 1024 };

typedef struct {
    char *data;
    size_t len;
    int from; /* -1: this is the root */
    int to;   /* -1: this is the last rank */
    size_t sent;
    size_t received;
} chain;

static size_t piece_at(const chain *c, size_t at)
{
    return c->len - at < CHAIN_PIECE ? c->len - at : CHAIN_PIECE;
}

static sh_next chain_next(void *algo, int peer, sh_dir dir, struct iovec *body)
{
    chain *c = algo;
    size_t at = dir == SH_DIR_OUT ? c->sent : c->received;
    if (peer != (dir == SH_DIR_OUT ? c->to : c->from) || at == c->len) return SH_NEXT_END;
    if (dir == SH_DIR_OUT && c->received < at + piece_at(c, at)) return SH_NEXT_LATER;
    *body = (struct iovec){c->data + at, piece_at(c, at)};
    return SH_NEXT_READY;
}

static void chain_done(void *algo, int peer, sh_dir dir)
{
    chain *c = algo;
    (void)peer;
    size_t *at = dir == SH_DIR_OUT ? &c->sent : &c->received;
    *at += piece_at(c, *at);
}

static sh_status broadcast_chain(sh_group *group, int root, void *data, size_t len, sh_err *err)
{
    static const sh_algo_ops ops = {.next = chain_next, .done = chain_done};
    int place = (group->rank - root + group->size) % group->size;
    chain c = {.data = data, .len = len, .from = -1, .to = -1};
    if (place > 0) c.from = (group->rank - 1 + group->size) % group->size;
    if (place < group->size - 1) c.to = (group->rank + 1) % group->size;
    if (place == 0) c.received = len; /* the root has all of it */
    sh_flow_opts opts = {.kind = SH_OP_BROADCAST, .size = len, .deadline = sh_flow_deadline(group)};
    return sh_flow_run(group, &opts, &ops, &c, err);
}

sh_status sh_coll_broadcast(sh_group *group, int root, void *data, size_t len, sh_err *err)
{
    SH_ASSERT(root >= 0 && root < group->size);
    if (group->size > 2 && len >= CHAIN_MIN) return broadcast_chain(group, root, data, len, err);
    exchange ex;
    exchange_init(&ex, group);
    for (int peer = 0; peer < group->size; peer++)
        if (group->rank == root) exchange_add(&ex, peer, SH_DIR_OUT, data, len);
    if (group->rank != root) exchange_add(&ex, root, SH_DIR_IN, data, len);
    return exchange_run(group, (sh_flow_opts){.kind = SH_OP_BROADCAST, .size = len}, &ex, err);
}

/* A broadcast of unknown length in one message: the header carries the length, and a body of fixed
 * size carries the whole plan if it is short. The rest of a longer one follows as a second message.
 * So the usual step costs one hop and no exchange of lengths. */
typedef struct {
    int root;
    bool is_root;
    sh_buf *buf;
    size_t max_len;
    uint8_t step[SH_RANKS_MAX]; /* completed messages, per peer */
    void *first;    /* SH_PLAN_INLINE bytes of the group's own, to send or receive them in */
    const void *at; /* where the message that has just arrived lies */
} plan;

static sh_next plan_next(void *algo, int peer, sh_dir dir, struct iovec *body)
{
    plan *p = algo;
    if (p->is_root != (dir == SH_DIR_OUT) || (!p->is_root && peer != p->root)) return SH_NEXT_END;
    switch (p->step[peer]) {
    case 0: *body = (struct iovec){p->first, SH_PLAN_INLINE}; return SH_NEXT_READY;
    case 1:
        if (p->buf->len <= SH_PLAN_INLINE) return SH_NEXT_END;
        *body = (struct iovec){p->buf->ptr + SH_PLAN_INLINE, p->buf->len - SH_PLAN_INLINE};
        return SH_NEXT_READY;
    default: return SH_NEXT_END;
    }
}

static void plan_lent(void *algo, int peer, const void *body)
{
    (void)peer;
    ((plan *)algo)->at = body;
}

/* Puts a part of the plan into the buffer, unless it has arrived there. */
static void plan_done(void *algo, int peer, sh_dir dir)
{
    plan *p = algo;
    size_t from = p->step[peer]++ == 0 ? 0 : SH_PLAN_INLINE;
    size_t len = p->buf->len - from;
    if (from == 0 && len > SH_PLAN_INLINE) len = SH_PLAN_INLINE;
    if (dir == SH_DIR_IN && len > 0 && p->at != p->buf->ptr + from)
        memcpy(p->buf->ptr + from, p->at, len);
}

/* Called before plan_done of the first message, so the buffer is sized when that copies into it. */
static bool plan_take_size(void *algo, int peer, uint64_t size)
{
    plan *p = algo;
    (void)peer;
    if (size > p->max_len) return false;
    sh_buf_clear(p->buf);
    sh_buf_reserve(p->buf, (size_t)size + 1);
    p->buf->len = (size_t)size;
    p->buf->ptr[size] = '\0';
    return true;
}

sh_status sh_coll_broadcast_buf(sh_group *group, int root, sh_buf *buf, size_t max_len,
                                sh_deadline deadline, sh_err *err)
{
    static const sh_algo_ops ops = {plan_next, plan_done, plan_lent, plan_take_size};
    SH_ASSERT(root >= 0 && root < group->size);
    if (group->size == 1) return SH_OK;
    plan p = {.root = root,
              .is_root = group->rank == root,
              .buf = buf,
              .max_len = max_len,
              .first = group->core->wire->plan};
    sh_flow_opts opts = {.kind = SH_OP_PLAN, .deadline = deadline};
    if (p.is_root) {
        SH_ASSERT(buf->len <= max_len);
        opts.size = buf->len;
        if (buf->len > 0)
            memcpy(p.first, buf->ptr, buf->len < SH_PLAN_INLINE ? buf->len : SH_PLAN_INLINE);
    }
    return sh_flow_run(group, &opts, &ops, &p, err);
}

sh_status sh_coll_send(sh_group *group, int to, const void *data, size_t len, sh_err *err)
{
    exchange ex;
    SH_ASSERT(to >= 0 && to < group->size && to != group->rank);
    exchange_init(&ex, group);
    exchange_add(&ex, to, SH_DIR_OUT, data, len);
    sh_status status = exchange_run(group, (sh_flow_opts){.kind = SH_OP_SEND, .size = len}, &ex,
                                    err);
    if (status == SH_OK) group->core->sent[group->member[to]]++;
    return status;
}

static void ring_grow(sh_expected *e)
{
    int cap = e->cap * 2 + 4;
    struct sh_expected_msg *list = sh_alloc_array((size_t)cap, sizeof(*list));
    for (int i = 0; i < e->count; i++) list[i] = e->list[(e->first + i) % e->cap];
    free(e->list);
    e->list = list;
    e->first = 0;
    e->cap = cap;
}

uint64_t sh_coll_expect(sh_group *group, int from, void *data, size_t len)
{
    SH_ASSERT(from >= 0 && from < group->size && from != group->rank);
    sh_core *core = group->core;
    int rank = group->member[from];
    sh_expected *e = &core->expected[rank];
    if (e->count == e->cap) ring_grow(e);
    e->list[(e->first + e->count) % e->cap] = (struct sh_expected_msg){group->id, data, len};
    e->count++;
    core->expected_count++;
    return core->received[rank] + (uint64_t)e->count;
}

bool sh_coll_has_come(const sh_group *group, int from, uint64_t message)
{
    return group->core->received[group->member[from]] >= message;
}

sh_status sh_coll_await(sh_group *group, int from, uint64_t message, sh_err *err)
{
    return sh_flow_await(group, from, message, sh_flow_deadline(group), err);
}

sh_status sh_coll_recv(sh_group *group, int from, void *data, size_t len, sh_err *err)
{
    return sh_coll_await(group, from, sh_coll_expect(group, from, data, len), err);
}
