/* bench_attention - times the ops other than products with weights, as CSV.
 *
 *   cc -O2 -std=c11 -D_GNU_SOURCE -Isrc bench/bench_attention.c build/release/libshoal.a -lm
 * -pthread
 *   ./a.out [threads [level [part of a shape's name]]]
 *
 * Columns: op and shape, KV format, best time, GFLOP/s, GB/s. For attention these count its two
 * products, without what the mask hides, and the KV that it has to read; for the router its product
 * and its gate; for the other ops what they read and write. */
#include "base/clock.h"
#include "kernels/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };

static sh_device *dev;

static float *floats(size_t count)
{
    float *x = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (x == NULL) exit(1);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)((i * 2654435761u >> 8) % 2001) / 1000.0f - 1.0f;
    return x;
}

/* The best of several rounds, each long enough for the resolution of the clock. */
#define BEST_SECONDS(best, call)                                                                   \
    do {                                                                                           \
        best = INFINITY;                                                                           \
        for (int round_ = 0; round_ < ROUNDS; round_++) {                                          \
            int count_ = 0;                                                                        \
            int64_t start_ = sh_clock_ns(), ns_;                                                   \
            do {                                                                                   \
                call;                                                                              \
                count_++;                                                                          \
            } while ((ns_ = sh_clock_ns() - start_) < 40000000);                                   \
            best = fmin(best, (double)ns_ * 1e-9 / count_);                                        \
        }                                                                                          \
    } while (0)

typedef struct {
    const char *name;
    int heads, kv_heads, k_dim, v_dim;
    bool v_in_k;
    int context; /* before the step */
    int tokens;  /* of each sequence */
    int seqs;
} shape;

static sh_tensor tensor_of(float *x, int64_t stride)
{
    return (sh_tensor){x, stride, sizeof(*x)};
}

static const sh_device_batch *batch_of(int tokens, int span_count, const sh_span *spans)
{
    sh_batch batch = {.tokens = tokens, .span_count = span_count, .spans = spans};
    return dev->ops->step_begin(dev, &batch);
}

static void attend_bench(const shape *s, sh_kv_format format)
{
    static const char *const formats[] = {"f32", "f16", "int8"};
    int blocks = (s->context + s->tokens + SH_KV_BLOCK - 1) / SH_KV_BLOCK,
        all = s->tokens * s->seqs;
    sh_kv kv = {.shape = {format, s->kv_heads, s->k_dim, s->v_dim, s->v_in_k}};
    size_t block_bytes = dev->ops->kv_block_bytes(dev, &kv.shape);
    size_t size = block_bytes * blocks * s->seqs;
    sh_err err;
    if (dev->ops->map(dev, size, "KV", &kv.data, &err) != SH_OK) exit(1);
    int32_t *ids = malloc(sizeof(*ids) * blocks * s->seqs), kv_of[256];
    sh_span *spans = malloc(sizeof(*spans) * s->seqs);
    for (int i = 0; i < blocks * s->seqs; i++) ids[i] = i;
    for (int i = 0; i < s->heads; i++) kv_of[i] = i / (s->heads / s->kv_heads);
    float *q = floats((size_t)all * s->heads * s->k_dim);
    float *k = floats((size_t)s->seqs * SH_KV_BLOCK * s->kv_heads * s->k_dim);
    float *v = floats((size_t)s->seqs * SH_KV_BLOCK * s->kv_heads * s->v_dim);
    float *out = floats((size_t)all * s->heads * s->v_dim);
    for (int b = 0; b < blocks; b++) {
        for (int i = 0; i < s->seqs; i++)
            spans[i] = (sh_span){.first = i * SH_KV_BLOCK,
                                 .count = SH_KV_BLOCK,
                                 .pos = b * SH_KV_BLOCK,
                                 .blocks = ids + i * blocks};
        dev->ops->kv_write(dev, batch_of(s->seqs * SH_KV_BLOCK, s->seqs, spans), &kv,
                           tensor_of(k, s->kv_heads * s->k_dim),
                           tensor_of(v, s->kv_heads * s->v_dim));
    }
    for (int i = 0; i < s->seqs; i++)
        spans[i] = (sh_span){.first = i * s->tokens,
                             .count = s->tokens,
                             .pos = s->context,
                             .blocks = ids + i * blocks};
    const sh_device_batch *batch = batch_of(all, s->seqs, spans);
    sh_attention attn = {.heads = s->heads, .kv_of = kv_of, .scale = 0.1f};
    double best;
    BEST_SECONDS(best, dev->ops->attend(dev, batch, &attn, &kv, tensor_of(q, s->heads * s->k_dim),
                                        tensor_of(out, s->heads * s->v_dim)));
    double pairs = (double)s->seqs * s->tokens * (s->context + (s->tokens + 1) / 2.0);
    printf("attend %s,%s,%.3f ms,%.1f GFLOP/s,%.2f GB/s\n", s->name, formats[format], best * 1e3,
           pairs * s->heads * 2 * (s->k_dim + s->v_dim) / best * 1e-9, (double)size / best * 1e-9);
    fflush(stdout);
    dev->ops->unmap(dev, kv.data, size);
    free(ids);
    free(spans);
    free(q);
    free(k);
    free(v);
    free(out);
}

static void route_bench(int experts, int64_t dim, int tokens)
{
    float *gate = floats((size_t)experts * dim), *x = floats((size_t)tokens * dim),
          weights[512 * 8];
    int32_t ids[512 * 8];
    sh_router r = {.kind = SH_ROUTE_SOFTMAX, .experts = experts, .topk = 8, .groups = 1};
    r.scale = 1.0f;
    r.gate = gate;
    double best;
    BEST_SECONDS(best, dev->ops->route(dev, &r, tensor_of(x, dim), tokens, dim, ids, weights));
    printf("route %d experts x %d, %d tokens,f32,%.3f ms,%.1f GFLOP/s,%.2f GB/s\n", experts,
           (int)dim, tokens, best * 1e3, 2.0 * experts * (double)dim * tokens / best * 1e-9,
           4.0 * experts * (double)dim / best * 1e-9);
    free(gate);
    free(x);
}

static void rows_bench(int tokens, int64_t dim)
{
    size_t count = (size_t)tokens * dim;
    float *x = floats(count), *y = floats(count), *z = floats(count);
    double add, norm, act;
    BEST_SECONDS(add, dev->ops->add(dev, tensor_of(x, dim), tensor_of(y, dim), tokens, dim));
    BEST_SECONDS(norm, dev->ops->rmsnorm(dev, tensor_of(z, dim), tensor_of(y, dim), x, tokens, 1,
                                         dim, 1e-5f));
    BEST_SECONDS(act, dev->ops->act(dev, SH_ACT_SILU, tensor_of(z, dim), tensor_of(x, dim),
                                    tensor_of(y, dim), tokens, dim));
    double gb = (double)count * 4e-9;
    printf("add %d x %d,f32,%.3f ms,,%.1f GB/s\n", tokens, (int)dim, add * 1e3, 3 * gb / add);
    printf("rmsnorm %d x %d,f32,%.3f ms,,%.1f GB/s\n", tokens, (int)dim, norm * 1e3, 2 * gb / norm);
    printf("silu %d x %d,f32,%.3f ms,,%.1f GB/s\n", tokens, (int)dim, act * 1e3, 3 * gb / act);
    free(x);
    free(y);
    free(z);
}

static void rope_bench(int tokens, int heads, int dim, bool interleaved)
{
    float *inv = floats((size_t)dim / 2), *table = floats((size_t)tokens * dim);
    float *x = floats((size_t)tokens * heads * dim);
    for (int i = 0; i < dim / 2; i++) inv[i] = powf(10000.0f, -2.0f * (float)i / (float)dim);
    sh_span span = {.count = tokens};
    const sh_device_batch *batch = batch_of(tokens, 1, &span);
    sh_rope rope[2] = {{dim, interleaved, 1.0f, inv}, {dim, interleaved, 1.0f, inv}};
    double make, rotate;
    BEST_SECONDS(make, dev->ops->rope_table(dev, batch, rope, table));
    BEST_SECONDS(rotate,
                 dev->ops->rope(dev, rope, table, tensor_of(x, heads * dim), tokens, heads, dim));
    printf("rope_table %d x %d,f32,%.3f ms,,\n", tokens, dim, make * 1e3);
    printf("rope %d x %d x %d%s,f32,%.3f ms,,%.1f GB/s\n", tokens, heads, dim,
           interleaved ? " pairs" : "", rotate * 1e3, 8e-9 * tokens * heads * dim / rotate);
    free(inv);
    free(table);
    free(x);
}

int main(int argc, char **argv)
{
    static const shape shapes[] = {
        {"prefill 512, 32/8 heads x 64", 32, 8, 64, 64, false, 0, 512, 1},
        {"prefill 512, 16/8 heads x 128", 16, 8, 128, 128, false, 0, 512, 1},
        {"prefill 512 after 7680, 32/8 x 128", 32, 8, 128, 128, false, 7680, 512, 1},
        {"prefill 128 after 896, MLA 16 heads", 16, 1, 576, 512, true, 896, 128, 1},
        {"decode at 512, 32/8 x 64", 32, 8, 64, 64, false, 511, 1, 1},
        {"decode at 16384, 32/8 x 64", 32, 8, 64, 64, false, 16383, 1, 1},
        {"decode at 16384, 16/8 x 128", 16, 8, 128, 128, false, 16383, 1, 1},
        {"decode at 32768, 14/2 x 64", 14, 2, 64, 64, false, 32767, 1, 1},
        {"decode 8 seqs at 4096, 32/8 x 128", 32, 8, 128, 128, false, 4095, 1, 8},
        {"decode at 8192, MLA 16 heads", 16, 1, 576, 512, true, 8191, 1, 1},
        {"decode at 8192, MLA 128 heads", 128, 1, 576, 512, true, 8191, 1, 1},
    };
    sh_err err;
    sh_device_opts opts = {.threads = argc > 1 ? atoi(argv[1]) : 1,
                           .level = argc > 2 ? argv[2] : NULL};
    sh_limits limits = {.tokens = 512,
                        .cols = 64,
                        .expert_rows = 64,
                        .hidden = 64,
                        .experts = 256,
                        .topk = 8,
                        .heads = 128,
                        .head_dim = 576};
    if (sh_device_open(NULL, &opts, &dev, &err) != SH_OK ||
        dev->ops->reserve(dev, &limits, &err) != SH_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const char *only = argc > 3 ? argv[3] : "";
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        for (int f = SH_KV_F16; f <= SH_KV_INT8; f++)
            if (strstr(shapes[i].name, only) != NULL) attend_bench(&shapes[i], (sh_kv_format)f);
    if (*only == '\0') {
        route_bench(128, 2048, 512);
        route_bench(256, 7168, 512);
        route_bench(128, 2048, 1);
        route_bench(256, 7168, 1);
        rows_bench(1, 2048);
        rows_bench(512, 2048);
        rows_bench(512, 8192);
        rope_bench(512, 32, 64, false);
        rope_bench(512, 16, 64, true);
        rope_bench(1, 32, 64, false);
    }
    dev->ops->close(dev);
    return 0;
}
