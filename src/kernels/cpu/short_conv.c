/* Gated short convolutions, and their state.
 *
 * A piece is some channels of one span. Its tokens run in order, a KV block at a time: each block
 * starts from the state that the one before left, and leaves its own. So the first block of a span
 * and all others take the same path, and no two threads touch the same numbers. */
#include "kernels/cpu/cpu.h"

enum {
    CHANNELS = 64, /* of a piece: whole cache lines */
    ALIGN = 64,
    ALONE = 8192, /* numbers; fewer are not worth waking other threads for */
};

size_t sh_cpu_conv_state_bytes(sh_device *dev, int64_t channels, int taps)
{
    (void)dev;
    size_t size = (size_t)(taps - 1) * (size_t)channels * sizeof(float);
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

struct run {
    const sh_vector_kernels *kernels;
    const sh_short_conv *conv;
    const sh_state *state;
    const sh_batch *batch;
    sh_tensor gate_in, gate_out, x, y;
    size_t strips; /* pieces of one span */
};

static float *block_state(const sh_state *state, const sh_span *span, int pos)
{
    size_t block = (size_t)span->blocks[pos / SH_KV_BLOCK];
    return (float *)(void *)((char *)state->data + block * state->block_bytes);
}

static float *at(sh_tensor t, int64_t row, int64_t col)
{
    return sh_cpu_f32(t) + row * t.stride + col;
}

/* Channels from `first` on of tokens [pos, end), which share a block. */
static void block_run(const struct run *r, const sh_span *span, int64_t first, int pos, int end)
{
    const sh_short_conv *conv = r->conv;
    int64_t row = span->first + pos - span->pos, left = conv->channels - first;
    sh_conv_run run = {.y = at(r->y, row, first),
                       .gate_in = at(r->gate_in, row, first),
                       .gate_out = at(r->gate_out, row, first),
                       .x = at(r->x, row, first),
                       .y_stride = r->y.stride,
                       .in_stride = r->gate_in.stride,
                       .out_stride = r->gate_out.stride,
                       .x_stride = r->x.stride,
                       .tokens = end - pos,
                       .taps = conv->taps,
                       .channels = left < CHANNELS ? left : CHANNELS,
                       .w_stride = conv->channels,
                       .w = conv->w + first,
                       .bias = conv->bias == NULL ? NULL : conv->bias + first,
                       .from = pos == 0 ? NULL : block_state(r->state, span, pos - 1) + first,
                       .to = block_state(r->state, span, pos) + first};
    r->kernels->conv(&run);
}

static void piece_run(void *arg, size_t piece, int thread)
{
    const struct run *r = arg;
    const sh_span *span = &r->batch->spans[piece / r->strips];
    int64_t first = (int64_t)(piece % r->strips) * CHANNELS;
    (void)thread;
    for (int pos = span->pos, last = span->pos + span->count; pos < last;) {
        int end = (pos / SH_KV_BLOCK + 1) * SH_KV_BLOCK;
        if (end > last) end = last;
        block_run(r, span, first, pos, end);
        pos = end;
    }
}

void sh_cpu_short_conv(sh_device *dev, const sh_device_batch *b, const sh_short_conv *conv,
                       const sh_state *state, sh_tensor gate_in, sh_tensor gate_out, sh_tensor x,
                       sh_tensor y)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct run r = {.kernels = cpu->level->vector,
                    .conv = conv,
                    .state = state,
                    .batch = &b->in,
                    .gate_in = gate_in,
                    .gate_out = gate_out,
                    .x = x,
                    .y = y,
                    .strips = (size_t)((conv->channels + CHANNELS - 1) / CHANNELS)};
    SH_ASSERT(conv->taps >= 2 && conv->taps <= SH_CONV_TAPS_MAX);
    bool alone = b->in.tokens * conv->channels <= ALONE;
    sh_cpu_each(cpu, r.strips * (size_t)b->in.span_count, alone, piece_run, &r);
}
