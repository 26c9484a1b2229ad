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

/* A batch as the CPU sees it: the caller's own arrays, and what is derived from them once. */
struct sh_device_batch {
    sh_batch in;
    int32_t *positions; /* [limits.tokens] */
    bool *long_rope;    /* [limits.tokens] of the token's span */
};

enum { SH_PACK_ROWS = 64 }; /* rows that a loader converts at a time: whole panels */

typedef struct sh_cpu_scan sh_cpu_scan;

/* fn(arg, piece, thread) */
typedef void (*sh_cpu_fn)(void *arg, size_t piece, int thread);

typedef struct {
    sh_device base;
    sh_pool *pool;
    sh_cpu_next *next; /* [threads] */
    sh_activations activations;
    const sh_cpu_level *level;
    uint8_t *scratch; /* used by one op at a time; 64-byte aligned */
    size_t scratch_size;
    sh_limits limits;
    struct sh_device_batch batch;
    sh_cpu_scan *scan;
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
void sh_cpu_each(sh_cpu *cpu, size_t pieces, bool alone, sh_cpu_fn fn, void *arg);

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

/* Memory and results of the largest scan. */
sh_cpu_scan *sh_cpu_scan_create(sh_cpu *cpu, const sh_limits *limits);
void sh_cpu_scan_free(sh_cpu_scan *scan); /* takes NULL */

/* The CPU keeps activations as f32. */
static inline float *sh_cpu_f32(sh_tensor t)
{
    return t.data;
}

/* The ops, by file; kernels/device.h says what they do. */

/* device.c */
sh_status sh_cpu_open(const sh_device_opts *opts, sh_device **out, sh_err *err);
void sh_cpu_close(sh_device *dev);
sh_status sh_cpu_reserve(sh_device *dev, const sh_limits *limits, sh_err *err);
const sh_device_batch *sh_cpu_step_begin(sh_device *dev, const sh_batch *batch);
sh_status sh_cpu_step_end(sh_device *dev, const sh_device_batch *b, sh_err *err);

/* memory.c */
int64_t sh_cpu_memory_free(sh_device *dev);
double sh_cpu_read_speed(sh_device *dev);
sh_status sh_cpu_map(sh_device *dev, size_t size, const char *what, void **out, sh_err *err);
void sh_cpu_unmap(sh_device *dev, void *ptr, size_t size);
void sh_cpu_upload(sh_device *dev, void *dst, const void *src, size_t size);
void sh_cpu_copy(sh_device *dev, void *dst, const void *src, size_t size);
size_t sh_cpu_tensor_layout(sh_device *dev, int64_t rows, int64_t cols, sh_tensor *out);
void sh_cpu_read_rows(sh_device *dev, sh_tensor x, int64_t first, int64_t rows, int64_t cols,
                      float *out);
void sh_cpu_write_rows(sh_device *dev, sh_tensor x, int64_t rows, int64_t cols, const float *in);

/* exchange.c */
void *sh_cpu_exchange_buffer(sh_device *dev, size_t size);
void *sh_cpu_exchange_at(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t block);
void sh_cpu_encode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   void *wire);
void sh_cpu_fold(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                 const void *const *parts, int count, void *sum);
void sh_cpu_decode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first, size_t end,
                   const void *wire);

/* matrix.c */
size_t sh_cpu_matrix_bytes(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols);
int64_t sh_cpu_matrix_cut(sh_device *dev, const sh_quant *quant);
void sh_cpu_matrix_pack(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_raw_rows *raw);
void sh_cpu_matrix_copy(sh_device *dev, const sh_matrix *m, const sh_matrix_part *part,
                        const sh_matrix *from, int64_t index, int64_t row, int64_t col);
void sh_cpu_embed(sh_device *dev, const sh_device_batch *b, const sh_matrix *w, int64_t row_first,
                  float scale, sh_tensor y);

/* matmul.c */
void sh_cpu_matmul(sh_device *dev, const sh_product *products, int count, sh_tensor x, int tokens);
void sh_cpu_matmul_heads(sh_device *dev, const sh_matrix *w, sh_tensor x, int64_t x_head_stride,
                         sh_tensor y, int64_t y_head_stride, int tokens);

/* experts.c */
void sh_cpu_experts(sh_device *dev, const sh_experts *ex, sh_tensor x, int tokens,
                    const int32_t *ids, const float *weights, int topk, sh_tensor y);

/* copy.c */
void sh_cpu_zero(sh_device *dev, sh_tensor x, int rows, int64_t cols);
void sh_cpu_copy_rows(sh_device *dev, const sh_device_batch *b, sh_tensor y, sh_tensor x,
                      int64_t cols);
void sh_cpu_copy_heads(sh_device *dev, sh_tensor y, int64_t y_head_stride, sh_tensor x,
                       int64_t x_head_stride, int tokens, int heads, int64_t dim);
void sh_cpu_hash_rows(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                      uint64_t seed, uint64_t *out);

/* elementwise.c */
void sh_cpu_add(sh_device *dev, sh_tensor x, sh_tensor y, int rows, int64_t cols);
void sh_cpu_scale_by_position(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                              float beta, int every);
void sh_cpu_rmsnorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, int rows, int heads,
                    int64_t dim, float eps);
void sh_cpu_layernorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, const float *bias,
                      int rows, int64_t dim, float eps);
void sh_cpu_add_positions(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                          const float *positions, int offset, const float *types, int type_count);
void sh_cpu_act(sh_device *dev, sh_act act, sh_tensor y, sh_tensor gate, sh_tensor up, int tokens,
                int64_t cols);

void sh_cpu_gate_rows(sh_device *dev, sh_tensor x, sh_tensor gate, int tokens, int64_t cols);

/* route.c */
void sh_cpu_route(sh_device *dev, const sh_router *router, sh_tensor x, int tokens, int64_t cols,
                  int32_t *ids, float *weights);

/* rope.c */
void sh_cpu_rope_table(sh_device *dev, const sh_device_batch *b, const sh_rope rope[2],
                       float *table);
void sh_cpu_rope(sh_device *dev, const sh_rope *rope, const float *table, sh_tensor x, int tokens,
                 int heads, int64_t head_stride);

/* kv.c */
size_t sh_cpu_kv_block_bytes(sh_device *dev, const sh_kv_shape *shape);
void sh_cpu_kv_write(sh_device *dev, const sh_device_batch *b, const sh_kv *kv, sh_tensor k,
                     sh_tensor v);

/* attend.c */
void sh_cpu_attend(sh_device *dev, const sh_device_batch *b, const sh_attention *attn,
                   const sh_kv *kv, sh_tensor q, sh_tensor out);

/* short_conv.c */
size_t sh_cpu_conv_state_bytes(sh_device *dev, int64_t channels, int taps);
void sh_cpu_short_conv(sh_device *dev, const sh_device_batch *b, const sh_short_conv *conv,
                       const sh_state *state, sh_tensor gate_in, sh_tensor gate_out, sh_tensor x,
                       sh_tensor y);

/* delta_net.c */
size_t sh_cpu_delta_state_bytes(sh_device *dev, const sh_delta_net *net);
void sh_cpu_delta_net(sh_device *dev, const sh_device_batch *b, const sh_delta_net *net,
                      const sh_state *state, sh_tensor qkvz, sh_tensor ba, sh_tensor y);

/* scan.c */
void sh_cpu_scan_rows(sh_device *dev, const sh_device_batch *b, sh_tensor logits, int32_t first,
                      int32_t len, const sh_row_query *queries, sh_logits_summary *out);

extern const sh_ops sh_cpu_ops; /* ops.c */

#endif
