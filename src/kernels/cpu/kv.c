/* KV blocks: their layout, and storing the keys and values of a step. */
#include "kernels/cpu/kv.h"

#include "kernels/cpu/cpu.h"

enum {
    ALIGN = 64,         /* a cache line, and the widest vector */
    WRITE_ALONE = 8192, /* numbers; fewer are not worth waking other threads for */
};

static size_t part_take(size_t *used, size_t size)
{
    size_t at = *used;
    *used = (at + size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

/* A head's keys, values and scales are contiguous, because a tile of attention reads one head. */
sh_kv_layout sh_kv_layout_of(const sh_kv_shape *shape)
{
    static const size_t sizes[] = {[SH_KV_F32] = 4, [SH_KV_F16] = 2, [SH_KV_INT8] = 1};
    size_t token = sizes[shape->format] * SH_KV_BLOCK, used = 0;
    size_t scales = shape->format == SH_KV_INT8 ? SH_KV_BLOCK * sizeof(float) : 0;
    sh_kv_layout l = {.v_pad = (shape->v_dim + SH_KV_BLOCK - 1) / SH_KV_BLOCK * SH_KV_BLOCK};
    part_take(&used, token * shape->k_dim);
    l.values = part_take(&used, shape->v_in_k ? 0 : token * l.v_pad);
    l.k_scales = part_take(&used, scales);
    l.v_scales = shape->v_in_k ? l.k_scales : part_take(&used, scales);
    l.head_bytes = used;
    l.block_bytes = used * shape->heads;
    return l;
}

size_t sh_cpu_kv_block_bytes(sh_device *dev, const sh_kv_shape *shape)
{
    (void)dev;
    return sh_kv_layout_of(shape).block_bytes;
}

struct write {
    const sh_vector_kernels *kernels;
    const sh_kv *kv;
    const sh_batch *batch;
    const float *k, *v;
    int64_t k_stride, v_stride;
    sh_kv_layout layout;
    int32_t *begin; /* [span_count + 1] first block of each span, counting those written to */
};

static int32_t *begin_place(sh_scratch *s, int spans)
{
    return sh_scratch_take(s, ((size_t)spans + 1) * sizeof(int32_t));
}

/* Tokens [first, end) of a span, which share a block. */
static void tokens_write(const struct write *w, const sh_span *span, int first, int end, int head)
{
    const sh_kv_shape *shape = &w->kv->shape;
    int pos = span->pos + first, slot = pos % SH_KV_BLOCK;
    int64_t token = span->first + first;
    uint8_t *to = sh_kv_head_at(w->kv, &w->layout, span->blocks[pos / SH_KV_BLOCK], head);
    const float *k = w->k + token * w->k_stride + (int64_t)head * shape->k_dim;
    w->kernels->k_store[shape->format](to, (float *)(to + w->layout.k_scales), slot, k, w->k_stride,
                                       end - first, shape->k_dim);
    if (shape->v_in_k) return;
    const float *v = w->v + token * w->v_stride + (int64_t)head * shape->v_dim;
    w->kernels->v_store[shape->format](to + w->layout.values, (float *)(to + w->layout.v_scales),
                                       slot, v, w->v_stride, end - first, shape->v_dim);
}

/* A piece is one head of one block, so that no two threads write to the same cache line: keys of
 * adjacent tokens are interleaved. */
static void write_run(void *arg, size_t piece, int thread)
{
    const struct write *w = arg;
    int head = (int)(piece % w->kv->shape.heads), block = (int)(piece / w->kv->shape.heads);
    int s = sh_span_of(w->begin, w->batch->span_count, block);
    (void)thread;
    const sh_span *span = &w->batch->spans[s];
    int first = (span->pos / SH_KV_BLOCK + block - w->begin[s]) * SH_KV_BLOCK - span->pos;
    int end = first + SH_KV_BLOCK < span->count ? first + SH_KV_BLOCK : span->count;
    tokens_write(w, span, first > 0 ? first : 0, end, head);
}

void sh_cpu_kv_write(sh_device *dev, const sh_device_batch *b, const sh_kv *kv, sh_tensor k,
                     sh_tensor v)
{
    const sh_batch *batch = &b->in;
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_scratch scratch = {.base = cpu->scratch};
    struct write w = {.kernels = cpu->level->vector,
                      .kv = kv,
                      .batch = batch,
                      .k = sh_cpu_f32(k),
                      .v = sh_cpu_f32(v),
                      .k_stride = k.stride,
                      .v_stride = v.stride,
                      .layout = sh_kv_layout_of(&kv->shape),
                      .begin = begin_place(&scratch, batch->span_count)};
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    w.begin[0] = 0;
    for (int s = 0; s < batch->span_count; s++) {
        const sh_span *span = &batch->spans[s];
        int last = (span->pos + span->count - 1) / SH_KV_BLOCK;
        w.begin[s + 1] = w.begin[s] + last - span->pos / SH_KV_BLOCK + 1;
    }
    size_t pieces = (size_t)w.begin[batch->span_count] * kv->shape.heads;
    bool alone = (int64_t)batch->tokens * kv->shape.heads * kv->shape.k_dim <= WRITE_ALONE;
    sh_cpu_each(cpu, pieces, alone, write_run, &w);
}

size_t sh_cpu_kv_scratch(const sh_limits *limits)
{
    sh_scratch s = {0};
    begin_place(&s, limits->tokens);
    return s.used;
}
