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
    OP_SHORT_CONV,
    OP_DELTA_NET,
    OP_NORM,
    OP_ROPE,
    OP_ACT,
    OP_EMBED,
    OP_SCAN,
    OP_MOVE, /* add, scaling, copies, zero */
    OP_COUNT
} op_kind;

static const char *const NAMES[OP_COUNT] = {
    "matmul",    "matmul_heads", "experts", "route", "attend", "kv_write", "short_conv",
    "delta_net", "norm",         "rope",    "act",   "embed",  "scan",     "move",
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

static void timed_embed(sh_device *dev, const sh_device_batch *b, const sh_matrix *w,
                        int64_t row_first, float scale, sh_tensor y)
{
    TIMED(OP_EMBED, 0, embed(dev, b, w, row_first, scale, y));
}

static void timed_add_positions(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                                const float *positions, int offset, const float *types,
                                int type_count)
{
    TIMED(OP_EMBED, 0, add_positions(dev, b, x, cols, positions, offset, types, type_count));
}

static void timed_add(sh_device *dev, sh_tensor x, sh_tensor y, int rows, int64_t cols)
{
    TIMED(OP_MOVE, 0, add(dev, x, y, rows, cols));
}

static void timed_zero(sh_device *dev, sh_tensor x, int rows, int64_t cols)
{
    TIMED(OP_MOVE, 0, zero(dev, x, rows, cols));
}

static void timed_copy_rows(sh_device *dev, const sh_device_batch *b, sh_tensor y, sh_tensor x,
                            int64_t cols)
{
    TIMED(OP_MOVE, 0, copy_rows(dev, b, y, x, cols));
}

static void timed_copy_heads(sh_device *dev, sh_tensor y, int64_t y_head_stride, sh_tensor x,
                             int64_t x_head_stride, int tokens, int heads, int64_t dim)
{
    TIMED(OP_MOVE, 0, copy_heads(dev, y, y_head_stride, x, x_head_stride, tokens, heads, dim));
}

static void timed_scale_by_position(sh_device *dev, const sh_device_batch *b, sh_tensor x,
                                    int64_t cols, float beta, int every)
{
    TIMED(OP_MOVE, 0, scale_by_position(dev, b, x, cols, beta, every));
}

static void timed_rmsnorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, int rows,
                          int heads, int64_t dim, float eps)
{
    TIMED(OP_NORM, 0, rmsnorm(dev, y, x, w, rows, heads, dim, eps));
}

static void timed_layernorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w,
                            const float *bias, int rows, int64_t dim, float eps)
{
    TIMED(OP_NORM, 0, layernorm(dev, y, x, w, bias, rows, dim, eps));
}

static void timed_matmul(sh_device *dev, const sh_product *products, int n, sh_tensor x, int tokens)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++) bytes += products[i].w->stride;
    TIMED(OP_MATMUL, bytes, matmul(dev, products, n, x, tokens));
}

static void timed_matmul_heads(sh_device *dev, const sh_matrix *w, sh_tensor x,
                               int64_t x_head_stride, sh_tensor y, int64_t y_head_stride,
                               int tokens)
{
    TIMED(OP_MATMUL_HEADS, w->stride * (uint64_t)w->count,
          matmul_heads(dev, w, x, x_head_stride, y, y_head_stride, tokens));
}

static void timed_act(sh_device *dev, sh_act act, sh_tensor y, sh_tensor gate, sh_tensor up,
                      int tokens, int64_t cols)
{
    TIMED(OP_ACT, 0, act(dev, act, y, gate, up, tokens, cols));
}

static void timed_route(sh_device *dev, const sh_router *router, sh_tensor x, int tokens,
                        int64_t cols, int32_t *ids, float *weights)
{
    TIMED(OP_ROUTE, 0, route(dev, router, x, tokens, cols, ids, weights));
}

static void timed_experts(sh_device *dev, const sh_experts *ex, sh_tensor x, int tokens,
                          const int32_t *ids, const float *weights, int topk, sh_tensor y)
{
    int64_t chosen = (int64_t)tokens * topk;
    uint64_t each = ex->gate.stride + ex->up.stride + ex->down.stride;
    if (chosen > ex->gate.count) chosen = ex->gate.count;
    TIMED(OP_EXPERTS, each * (uint64_t)chosen, experts(dev, ex, x, tokens, ids, weights, topk, y));
}

static void timed_rope_table(sh_device *dev, const sh_device_batch *b, const sh_rope rope[2],
                             float *table)
{
    TIMED(OP_ROPE, 0, rope_table(dev, b, rope, table));
}

static void timed_rope(sh_device *dev, const sh_rope *rope, const float *table, sh_tensor x,
                       int tokens, int heads, int64_t head_stride)
{
    TIMED(OP_ROPE, 0, rope(dev, rope, table, x, tokens, heads, head_stride));
}

static void timed_kv_write(sh_device *dev, const sh_device_batch *b, const sh_kv *kv, sh_tensor k,
                           sh_tensor v)
{
    TIMED(OP_KV_WRITE, 0, kv_write(dev, b, kv, k, v));
}

static void timed_attend(sh_device *dev, const sh_device_batch *b, const sh_attention *attn,
                         const sh_kv *kv, sh_tensor q, sh_tensor out)
{
    TIMED(OP_ATTEND, 0, attend(dev, b, attn, kv, q, out));
}

static void timed_short_conv(sh_device *dev, const sh_device_batch *b, const sh_short_conv *conv,
                             const sh_state *state, sh_tensor gate_in, sh_tensor gate_out,
                             sh_tensor x, sh_tensor y)
{
    TIMED(OP_SHORT_CONV, 0, short_conv(dev, b, conv, state, gate_in, gate_out, x, y));
}

static void timed_delta_net(sh_device *dev, const sh_device_batch *b, const sh_delta_net *net,
                            const sh_state *state, sh_tensor qkvz, sh_tensor ba, sh_tensor y)
{
    TIMED(OP_DELTA_NET, 0, delta_net(dev, b, net, state, qkvz, ba, y));
}

static void timed_gate_rows(sh_device *dev, sh_tensor x, sh_tensor gate, int tokens, int64_t cols)
{
    TIMED(OP_ACT, 0, gate_rows(dev, x, gate, tokens, cols));
}

static void timed_scan(sh_device *dev, const sh_device_batch *b, sh_tensor logits, int32_t first,
                       int32_t len, const sh_row_query *queries, sh_logits_summary *out)
{
    TIMED(OP_SCAN, 0, scan(dev, b, logits, first, len, queries, out));
}

sh_profile *sh_profile_start(sh_device *dev)
{
    sh_profile *p = sh_alloc(sizeof(*p));
    p->real = dev->ops;
    p->dev = dev;
    p->ops = *dev->ops;
    p->ops.embed = timed_embed;
    p->ops.add_positions = timed_add_positions;
    p->ops.add = timed_add;
    p->ops.scale_by_position = timed_scale_by_position;
    p->ops.copy_rows = timed_copy_rows;
    p->ops.zero = timed_zero;
    p->ops.copy_heads = timed_copy_heads;
    p->ops.rmsnorm = timed_rmsnorm;
    p->ops.layernorm = timed_layernorm;
    p->ops.matmul = timed_matmul;
    p->ops.matmul_heads = timed_matmul_heads;
    p->ops.act = timed_act;
    p->ops.route = timed_route;
    p->ops.experts = timed_experts;
    p->ops.rope_table = timed_rope_table;
    p->ops.rope = timed_rope;
    p->ops.kv_write = timed_kv_write;
    p->ops.attend = timed_attend;
    p->ops.short_conv = timed_short_conv;
    p->ops.delta_net = timed_delta_net;
    p->ops.gate_rows = timed_gate_rows;
    p->ops.scan = timed_scan;
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
