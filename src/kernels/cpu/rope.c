/* Rotary position embedding. An angle is the product of two f32 in double, so that it is as exact
 * at position 1000000 as at 1. The table of a token is its cosines, then its sines, rotary_dim / 2
 * of each. It is computed once per step and used by all layers. */
#include "kernels/cpu/cpu.h"

#include <math.h>

enum { TABLE_ALONE = 64, ROPE_ALONE = 8192 }; /* numbers; fewer run on the caller alone */

struct table {
    const sh_rope *rope; /* [2] */
    const sh_device_batch *batch;
    float *to;
};

static void table_run(void *arg, size_t token, int thread)
{
    const struct table *t = arg;
    const sh_rope *rope = &t->rope[t->batch->long_rope[token]];
    int half = rope->rotary_dim / 2;
    float *cosines = t->to + (int64_t)token * rope->rotary_dim, *sines = cosines + half;
    (void)thread;
    for (int i = 0; i < half; i++) {
        double angle = (double)t->batch->positions[token] * (double)rope->inv_freq[i];
        cosines[i] = (float)cos(angle) * rope->scale;
        sines[i] = (float)sin(angle) * rope->scale;
    }
}

void sh_cpu_rope_table(sh_device *dev, const sh_device_batch *b, const sh_rope rope[2],
                       float *table)
{
    struct table t = {rope, b, table};
    bool alone = (int64_t)b->in.tokens * rope->rotary_dim <= TABLE_ALONE;
    sh_cpu_each(sh_cpu_of(dev), (size_t)b->in.tokens, alone, table_run, &t);
}

struct rotation {
    const sh_vector_kernels *kernels;
    const sh_rope *rope;
    const float *table;
    float *x;
    int64_t stride, head_stride;
    int heads;
};

static void rope_run(void *arg, size_t token, int thread)
{
    const struct rotation *t = arg;
    const float *table = t->table + (int64_t)token * t->rope->rotary_dim;
    float *x = t->x + (int64_t)token * t->stride;
    (void)thread;
    for (int h = 0; h < t->heads; h++, x += t->head_stride)
        t->kernels->rope(x, table, t->rope->rotary_dim / 2, t->rope->interleaved);
}

void sh_cpu_rope(sh_device *dev, const sh_rope *rope, const float *table, sh_tensor x, int tokens,
                 int heads, int64_t head_stride)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct rotation t = {cpu->level->vector, rope,        table, sh_cpu_f32(x),
                         x.stride,           head_stride, heads};
    bool alone = (int64_t)tokens * heads * rope->rotary_dim <= ROPE_ALONE;
    sh_cpu_each(cpu, (size_t)tokens, alone, rope_run, &t);
}
