/* Profiles a device from outside: dev->ops is swapped for a copy of the table in which every op
 * that takes time is wrapped. Without a profile nothing is measured and nothing costs anything. */
#include "kernels/profile.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

typedef enum {
    OP_MATMUL,
    OP_MATMUL_HEADS,
    OP_EXPERTS,
    OP_ROUTE,
    OP_ATTEND,
    OP_KV_WRITE,
    OP_RMSNORM,
    OP_ROPE,
    OP_ACT,
    OP_EMBED,
    OP_MOVE, /* add, scale, copies, zero */
    OP_COUNT
} op_kind;

static const char *const NAMES[OP_COUNT] = {
    "matmul",  "matmul_heads", "experts", "route", "attend", "kv_write",
    "rmsnorm", "rope",         "act",     "embed", "move",
};

struct sh_profile {
    sh_ops ops; /* the device's table while the profile is on; first, see profile_of */
    const sh_ops *real;
    sh_device *dev;
    sh_profile_row rows[OP_COUNT];
};

/* An op gets the device only. Its table is our first member, which leads back to the profile. */
static sh_profile *profile_of(const sh_device *dev)
{
    return (sh_profile *)(uintptr_t)dev->ops;
}

static void count(const sh_device *dev, op_kind op, int64_t start, uint64_t bytes)
{
    sh_profile_row *row = &profile_of(dev)->rows[op];
    row->calls++;
    row->ns += sh_clock_ns() - start;
    row->bytes += bytes;
}

/* Runs the real op and adds its time. */
#define TIMED(op, bytes, call)                                                                     \
    do {                                                                                           \
        int64_t start = sh_clock_ns();                                                             \
        profile_of(dev)->real->call;                                                               \
        count(dev, op, start, bytes);                                                              \
    } while (0)

static void timed_embed(sh_device *dev, const sh_matrix *w, int64_t row_first, const int32_t *ids,
                        int tokens, float scale, float *y)
{
    TIMED(OP_EMBED, 0, embed(dev, w, row_first, ids, tokens, scale, y));
}

static void timed_add(sh_device *dev, float *x, const float *y, size_t n)
{
    TIMED(OP_MOVE, 0, add(dev, x, y, n));
}

static void timed_scale(sh_device *dev, float *x, float factor, size_t n)
{
    TIMED(OP_MOVE, 0, scale(dev, x, factor, n));
}

static void timed_copy_rows(sh_device *dev, float *y, const float *x, const int32_t *rows, int n,
                            int64_t dim)
{
    TIMED(OP_MOVE, 0, copy_rows(dev, y, x, rows, n, dim));
}

static void timed_zero(sh_device *dev, float *x, size_t n)
{
    TIMED(OP_MOVE, 0, zero(dev, x, n));
}

static void timed_copy_heads(sh_device *dev, float *y, int64_t yt, int64_t yh, const float *x,
                             int64_t xt, int64_t xh, int tokens, int heads, int64_t dim)
{
    TIMED(OP_MOVE, 0, copy_heads(dev, y, yt, yh, x, xt, xh, tokens, heads, dim));
}

static void timed_rmsnorm(sh_device *dev, float *y, const float *x, const float *w, int64_t rows,
                          int64_t inner, int64_t stride, int64_t dim, float eps)
{
    TIMED(OP_RMSNORM, 0, rmsnorm(dev, y, x, w, rows, inner, stride, dim, eps));
}

static void timed_matmul(sh_device *dev, const sh_product *products, int n, const float *x,
                         int64_t x_stride, int tokens)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += products[i].w->stride;
    TIMED(OP_MATMUL, bytes, matmul(dev, products, n, x, x_stride, tokens));
}

static void timed_matmul_heads(sh_device *dev, const sh_matrix *w, const float *x, int64_t xt,
                               int64_t xh, float *y, int64_t yt, int64_t yh, int tokens)
{
    TIMED(OP_MATMUL_HEADS, w->stride * (uint64_t)w->count,
          matmul_heads(dev, w, x, xt, xh, y, yt, yh, tokens));
}

static void timed_act(sh_device *dev, sh_act act, float *y, const float *gate, const float *up,
                      int tokens, int64_t dim, int64_t stride)
{
    TIMED(OP_ACT, 0, act(dev, act, y, gate, up, tokens, dim, stride));
}

static void timed_route(sh_device *dev, const sh_router *router, const float *x, int tokens,
                        int64_t dim, int32_t *ids, float *weights)
{
    TIMED(OP_ROUTE, 0, route(dev, router, x, tokens, dim, ids, weights));
}

static void timed_experts(sh_device *dev, const sh_experts *ex, const float *x, int tokens,
                          const int32_t *ids, const float *weights, int topk, float *y)
{
    /* ids are in device memory, so count the most experts that the tokens can choose. */
    int64_t chosen = (int64_t)tokens * topk;
    uint64_t each = ex->gate.stride + ex->up.stride + ex->down.stride;
    if (chosen > ex->gate.count) chosen = ex->gate.count;
    TIMED(OP_EXPERTS, each * (uint64_t)chosen, experts(dev, ex, x, tokens, ids, weights, topk, y));
}

static void timed_rope_table(sh_device *dev, const sh_rope *rope, const int32_t *positions,
                             int tokens, float *table)
{
    TIMED(OP_ROPE, 0, rope_table(dev, rope, positions, tokens, table));
}

static void timed_rope(sh_device *dev, const sh_rope *rope, const float *table, float *x,
                       int tokens, int64_t stride, int heads, int64_t head_stride)
{
    TIMED(OP_ROPE, 0, rope(dev, rope, table, x, tokens, stride, heads, head_stride));
}

static void timed_kv_write(sh_device *dev, const sh_kv *kv, const sh_batch *batch, const float *k,
                           int64_t k_stride, const float *v, int64_t v_stride)
{
    TIMED(OP_KV_WRITE, 0, kv_write(dev, kv, batch, k, k_stride, v, v_stride));
}

static void timed_attend(sh_device *dev, const sh_attention *attn, const sh_kv *kv,
                         const sh_batch *batch, const float *q, int64_t q_stride, float *out,
                         int64_t out_stride)
{
    TIMED(OP_ATTEND, 0, attend(dev, attn, kv, batch, q, q_stride, out, out_stride));
}

sh_profile *sh_profile_start(sh_device *dev)
{
    sh_profile *p = sh_alloc(sizeof(*p));
    p->real = dev->ops;
    p->dev = dev;
    p->ops = *dev->ops;
    p->ops.embed = timed_embed;
    p->ops.add = timed_add;
    p->ops.scale = timed_scale;
    p->ops.copy_rows = timed_copy_rows;
    p->ops.zero = timed_zero;
    p->ops.copy_heads = timed_copy_heads;
    p->ops.rmsnorm = timed_rmsnorm;
    p->ops.matmul = timed_matmul;
    p->ops.matmul_heads = timed_matmul_heads;
    p->ops.act = timed_act;
    p->ops.route = timed_route;
    p->ops.experts = timed_experts;
    p->ops.rope_table = timed_rope_table;
    p->ops.rope = timed_rope;
    p->ops.kv_write = timed_kv_write;
    p->ops.attend = timed_attend;
    sh_profile_clear(p);
    dev->ops = &p->ops;
    return p;
}

void sh_profile_stop(sh_profile *p)
{
    if (p == NULL) return;
    p->dev->ops = p->real;
    free(p);
}

void sh_profile_clear(sh_profile *p)
{
    for (int i = 0; i < OP_COUNT; i++) p->rows[i] = (sh_profile_row){.op = NAMES[i]};
}

const sh_profile_row *sh_profile_rows(const sh_profile *p, size_t *n)
{
    *n = OP_COUNT;
    return p->rows;
}
