/* Gated delta nets, and their state.
 *
 * A piece is one key head of one span, with its value heads. Its tokens run in order, one at a
 * time, and change the state in the block that they belong to; a block starts from a copy of what
 * the one before has at its end. So bits do not depend on how a prompt was cut. */
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum {
    ALIGN = 16,    /* floats */
    ALONE = 32768, /* numbers of S; fewer are not worth waking other threads for */
};

static int channels(const sh_delta_net *n)
{
    return 2 * n->k_dim + n->values * n->v_dim;
}

/* Floats of the state of a key head: the inputs, then S of each value head. */
static size_t head_floats(const sh_delta_net *n)
{
    size_t count = (size_t)(n->taps - 1) * (size_t)channels(n) +
                   (size_t)n->values * (size_t)n->k_dim * (size_t)n->v_dim;
    return (count + ALIGN - 1) / ALIGN * ALIGN;
}

size_t sh_cpu_delta_state_bytes(sh_device *dev, const sh_delta_net *net)
{
    (void)dev;
    return (size_t)net->heads * head_floats(net) * sizeof(float);
}

struct run {
    const sh_vector_kernels *kernels;
    const sh_delta_net *net;
    const sh_state *state;
    const sh_batch *batch;
    sh_tensor qkvz, ba, y;
};

static float *head_state(const struct run *r, const sh_span *span, int head, int pos)
{
    size_t block = (size_t)span->blocks[pos / SH_KV_BLOCK];
    char *at = (char *)r->state->data + block * r->state->block_bytes;
    return (float *)(void *)at + (size_t)head * head_floats(r->net);
}

/* q, k and the values of a token after the convolution, [channels]; `past` moves on. */
static void inputs_mix(const struct run *r, int head, const float *in, float *past, float *mixed)
{
    const sh_delta_net *n = r->net;
    int count = channels(n), k = n->k_dim, v = n->values * n->v_dim;
    const struct {
        const float *w;
        int first, count;
    } parts[] = {{n->conv_q, 0, k}, {n->conv_k, k, k}, {n->conv_v, 2 * k, v}};
    for (size_t i = 0; i < SH_COUNT_OF(parts); i++) {
        int at = parts[i].first, own = parts[i].count;
        r->kernels->delta_conv(mixed + at, in + at, past + at, count, parts[i].w + head * own,
                               (int64_t)n->heads * own, n->taps, own);
    }
    memmove(past, past + count, (size_t)(n->taps - 2) * (size_t)count * sizeof(*past));
    memcpy(past + (n->taps - 2) * count, in, (size_t)count * sizeof(*past));
    r->kernels->act(SH_ACT_SILU, mixed, mixed, NULL, count);
}

/* Makes x `length` long. */
static void set_length(const struct run *r, float *x, float length)
{
    float square;
    r->kernels->dots(&square, 1, x, 1, x, 1, r->net->k_dim);
    r->kernels->scale(x, length / sqrtf(square + 1e-6f), (size_t)r->net->k_dim);
}

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* One token of a key head. */
static void token_run(const struct run *r, int head, int64_t row, float *state)
{
    const sh_delta_net *n = r->net;
    int count = channels(n), values = n->values, v_dim = n->v_dim;
    const float *in = sh_cpu_f32(r->qkvz) + row * r->qkvz.stride + head * (count + values * v_dim);
    const float *b = sh_cpu_f32(r->ba) + row * r->ba.stride + head * 2 * values, *a = b + values;
    float *y = sh_cpu_f32(r->y) + row * r->y.stride + head * values * v_dim;
    float mixed[(2 + SH_DELTA_VALUES_MAX) * SH_DELTA_DIM_MAX];
    inputs_mix(r, head, in, state, mixed);
    float *q = mixed, *k = q + n->k_dim, *v = k + n->k_dim;
    float *s = state + (n->taps - 1) * count;
    set_length(r, q, 1 / sqrtf((float)n->k_dim));
    set_length(r, k, 1);
    for (int i = 0; i < values; i++, y += v_dim, v += v_dim, s += n->k_dim * v_dim) {
        int own = head * values + i;
        double forgets = exp((double)n->a_log[own]) * softplus((double)(a[i] + n->dt_bias[own]));
        float beta = (float)(1 / (1 + exp(-(double)b[i])));
        r->kernels->delta_step(y, s, q, k, v, (float)exp(-forgets), beta, n->k_dim, v_dim);
        r->kernels->rmsnorm(y, y, n->norm, v_dim, n->eps);
        r->kernels->act(SH_ACT_SILU, y, in + count + i * v_dim, y, v_dim);
    }
}

static void piece_run(void *arg, size_t piece, int thread)
{
    const struct run *r = arg;
    const sh_span *span = &r->batch->spans[piece / (size_t)r->net->heads];
    int head = (int)(piece % (size_t)r->net->heads);
    size_t bytes = head_floats(r->net) * sizeof(float);
    (void)thread;
    for (int i = 0; i < span->count; i++) {
        int pos = span->pos + i;
        float *state = head_state(r, span, head, pos);
        if (pos == 0)
            memset(state, 0, bytes);
        else if (pos % SH_KV_BLOCK == 0)
            memcpy(state, head_state(r, span, head, pos - 1), bytes);
        token_run(r, head, span->first + i, state);
    }
}

void sh_cpu_delta_net(sh_device *dev, const sh_device_batch *b, const sh_delta_net *net,
                      const sh_state *state, sh_tensor qkvz, sh_tensor ba, sh_tensor y)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct run r = {.kernels = cpu->level->vector,
                    .net = net,
                    .state = state,
                    .batch = &b->in,
                    .qkvz = qkvz,
                    .ba = ba,
                    .y = y};
    SH_ASSERT(net->taps >= 2 && net->values <= SH_DELTA_VALUES_MAX &&
              net->k_dim <= SH_DELTA_DIM_MAX && net->v_dim <= SH_DELTA_DIM_MAX);
    bool alone = (int64_t)b->in.tokens * net->heads * net->values * net->k_dim * net->v_dim <=
                 ALONE;
    sh_cpu_each(cpu, (size_t)net->heads * (size_t)b->in.span_count, alone, piece_run, &r);
}
