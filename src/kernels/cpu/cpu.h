/* cpu.h - inside the CPU device: its state, its levels, and where each op lives.
 *
 * A level ("generic", "avx2", ...) is a pair of const kernel tables: `matrix` (products with
 * panels) and `vector` (norms, activations, attention). The op files (matmul.c, attend.c, ...) have
 * the drivers, which are the same at all levels; dot*.c and vector*.c have the tables. A level
 * without a variant of its own uses the table of the level below. All levels share one layout of
 * panels, KV and scratch.
 *
 * Threads: an op runs on the caller and on the threads of the pool; one op at a time uses the
 * scratch. */
#ifndef SH_KERNELS_CPU_CPU_H
#define SH_KERNELS_CPU_CPU_H

#include "base/pool.h"
#include "kernels/cpu/matrix.h"
#include "kernels/cpu/vector.h"
#include "kernels/device.h"

#include <stdatomic.h>

typedef struct {
    const char *name;
    bool (*present)(void); /* this CPU and its operating system support it */
    const sh_matrix_kernels *matrix;
    const sh_vector_kernels *vector;
} sh_cpu_level;

/* The next piece of a thread's run of pieces, padded to a cache line. */
typedef struct {
    atomic_size_t piece;
    char pad[64 - sizeof(atomic_size_t)];
} sh_cpu_next;

typedef struct {
    sh_device base;
    sh_pool *pool;
    sh_cpu_next *next; /* [threads] */
    sh_activations activations;
    const sh_cpu_level *level;
    uint8_t *scratch; /* used by one op at a time; 64-byte aligned */
    size_t scratch_size;
    sh_limits limits;
} sh_cpu;

static inline sh_cpu *sh_cpu_of(sh_device *dev)
{
    return (sh_cpu *)dev;
}

/* The level of that name (NULL or "auto": the best), or an error that lists the available ones. */
SH_MUST_CHECK sh_status sh_cpu_level_find(const char *name, const sh_cpu_level **out, sh_err *err);

/* Level `idx` of those that this CPU supports, lowest first; NULL after the last. */
const sh_cpu_level *sh_cpu_level_at(int idx);

/* Runs fn(arg, piece, thread) once for each piece 0..pieces-1, spread over the pool. `alone`: the
 * work is too small to wake other threads for, so the caller runs all pieces, in order. */
void sh_cpu_each(sh_cpu *cpu, size_t pieces, bool alone, sh_host_fn fn, void *arg);

/* A bump allocator over the scratch, for the duration of one op. With base NULL it only counts, so
 * that the same function plans (in reserve) and places (in the op). */
typedef struct {
    uint8_t *base;
    size_t used;
} sh_scratch;
void *sh_scratch_take(sh_scratch *s, size_t size); /* 64-byte aligned */

/* The most scratch that the ops of a file need; reserve maps the largest. */
size_t sh_cpu_matmul_scratch(const sh_cpu *cpu, const sh_limits *limits);
size_t sh_cpu_experts_scratch(const sh_cpu *cpu, const sh_limits *limits);
size_t sh_cpu_route_scratch(const sh_limits *limits);
size_t sh_cpu_kv_scratch(const sh_limits *limits);
size_t sh_cpu_attend_scratch(const sh_cpu *cpu, const sh_limits *limits);

/* device.c */
sh_status sh_cpu_map(sh_device *dev, size_t size, const char *what, void **out, sh_err *err);
void sh_cpu_unmap(sh_device *dev, void *ptr, size_t size);
void sh_cpu_upload(sh_device *dev, void *dst, const void *src, size_t size);
void sh_cpu_download(sh_device *dev, void *dst, const void *src, size_t size);
void *sh_cpu_peek(sh_device *dev, const void *ptr);
void sh_cpu_host_each(sh_device *dev, size_t pieces, sh_host_fn fn, void *arg);
int sh_cpu_host_threads(const sh_device *dev);
const sh_row_kernels *sh_cpu_rows(const sh_device *dev);
sh_status sh_cpu_reserve(sh_device *dev, const sh_limits *limits, sh_err *err);
void sh_cpu_close(sh_device *dev);

/* matrix.c */
size_t sh_cpu_matrix_bytes(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols);
void sh_cpu_matrix_pack(sh_device *dev, const sh_matrix *m, int64_t index, int64_t row_first,
                        int64_t row_count, const sh_raw_rows *raw);
void sh_cpu_embed(sh_device *dev, const sh_matrix *w, int64_t row_first, const int32_t *ids,
                  int tokens, float scale, float *y);

/* matmul.c */
void sh_cpu_matmul(sh_device *dev, const sh_product *products, int count, const float *x,
                   int64_t x_stride, int tokens);
void sh_cpu_matmul_heads(sh_device *dev, const sh_matrix *w, const float *x, int64_t x_token_stride,
                         int64_t x_head_stride, float *y, int64_t y_token_stride,
                         int64_t y_head_stride, int tokens);

/* experts.c */
void sh_cpu_experts(sh_device *dev, const sh_experts *ex, const float *x, int tokens,
                    const int32_t *ids, const float *weights, int topk, float *y);

/* copy.c */
void sh_cpu_zero(sh_device *dev, float *x, size_t count);
void sh_cpu_copy_heads(sh_device *dev, float *y, int64_t y_token_stride, int64_t y_head_stride,
                       const float *x, int64_t x_token_stride, int64_t x_head_stride, int tokens,
                       int heads, int64_t dim);

/* elementwise.c */
void sh_cpu_add(sh_device *dev, float *x, const float *y, size_t count);
void sh_cpu_scale(sh_device *dev, float *x, float factor, size_t count);
void sh_cpu_copy_rows(sh_device *dev, float *y, const float *x, const int32_t *rows, int count,
                      int64_t dim);
void sh_cpu_rmsnorm(sh_device *dev, float *y, const float *x, const float *w, int64_t rows,
                    int64_t inner, int64_t stride, int64_t dim, float eps);
void sh_cpu_act(sh_device *dev, sh_act act, float *y, const float *gate, const float *up,
                int tokens, int64_t dim, int64_t stride);

/* route.c */
void sh_cpu_route(sh_device *dev, const sh_router *router, const float *x, int tokens, int64_t dim,
                  int32_t *ids, float *weights);

/* rope.c */
void sh_cpu_rope_table(sh_device *dev, const sh_rope *rope, const int32_t *positions, int tokens,
                       float *table);
void sh_cpu_rope(sh_device *dev, const sh_rope *rope, const float *table, float *x, int tokens,
                 int64_t stride, int heads, int64_t head_stride);

/* kv.c */
size_t sh_cpu_kv_block_bytes(sh_device *dev, const sh_kv_shape *shape);
void sh_cpu_kv_write(sh_device *dev, const sh_kv *kv, const sh_batch *batch, const float *k,
                     int64_t k_stride, const float *v, int64_t v_stride);

/* attend.c */
void sh_cpu_attend(sh_device *dev, const sh_attention *attn, const sh_kv *kv, const sh_batch *batch,
                   const float *q, int64_t q_stride, float *out, int64_t out_stride);

extern const sh_ops sh_cpu_ops; /* ops.c */

#endif
