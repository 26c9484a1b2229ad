/* fenced.h - a device whose memory nobody can touch from outside.
 *
 * It wraps the CPU. What it maps is PROT_NONE except while one of its ops runs, and it lends no
 * numbers in place, so whatever reads or writes device memory without an op crashes: what passes
 * on this device does not depend on the device being the host. The model, rank and engine tests run
 * on it with SHOAL_TEST_DEVICE=fenced.
 *
 * Threads: as kernels/device.h says; what fills in weights may come from several at once. */
#ifndef SH_TESTS_UNIT_FENCED_H
#define SH_TESTS_UNIT_FENCED_H

#include "base/alloc.h"
#include "kernels/device.h"
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* To fence a gap between two ops costs a page fault for each page that the next ones write. The
 * same gaps come again in every layer and step, so one of a few is enough (a prime, to meet them
 * all); `make nightly` fences every one. */
enum { FENCED_REGIONS_MAX = 256, FENCED_STRIDE = 7 };

typedef struct {
    sh_device base;
    sh_device *cpu;
    pthread_mutex_t lock;
    int inside;     /* ops that run now */
    int gaps;       /* between ops so far */
    int gap_stride; /* of so many gaps one is fenced */
    bool is_open;
    struct {
        void *at;
        size_t size;
    } regions[FENCED_REGIONS_MAX];
    int region_count;
    void *buffer; /* lent for exchange */
    size_t buffer_size;
} fenced;

static inline fenced *fenced_of(sh_device *dev)
{
    return (fenced *)dev;
}

static inline void fenced_protect(const fenced *f, int how)
{
    for (int i = 0; i < f->region_count; i++)
        if (mprotect(f->regions[i].at, f->regions[i].size, how) != 0) abort();
}

static inline fenced *fenced_enter(sh_device *dev)
{
    fenced *f = fenced_of(dev);
    pthread_mutex_lock(&f->lock);
    f->inside++;
    if (!f->is_open) fenced_protect(f, PROT_READ | PROT_WRITE);
    f->is_open = true;
    pthread_mutex_unlock(&f->lock);
    return f;
}

static inline void fenced_leave(fenced *f)
{
    pthread_mutex_lock(&f->lock);
    if (--f->inside == 0 && ++f->gaps % f->gap_stride == 0) {
        fenced_protect(f, PROT_NONE);
        f->is_open = false;
    }
    pthread_mutex_unlock(&f->lock);
}

/* Runs an op of the CPU, whose device is f->cpu, inside the fence. */
#define FENCED(call)                                                                               \
    do {                                                                                           \
        fenced *f = fenced_enter(dev);                                                             \
        f->cpu->ops->call;                                                                         \
        fenced_leave(f);                                                                           \
    } while (0)

static inline sh_status fenced_map(sh_device *dev, size_t size, const char *what, void **out,
                                   sh_err *err)
{
    fenced *f = fenced_of(dev);
    if (f->region_count == FENCED_REGIONS_MAX) abort();
    void *at = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return sh_err_sys(err, "%s", what);
    f->regions[f->region_count].at = at;
    f->regions[f->region_count++].size = size;
    f->is_open = false; /* not all of it */
    *out = at;
    return SH_OK;
}

static inline void fenced_unmap(sh_device *dev, void *ptr, size_t size)
{
    fenced *f = fenced_of(dev);
    int i = 0;
    if (ptr == NULL) return;
    while (f->regions[i].at != ptr) i++;
    munmap(ptr, size);
    f->regions[i] = f->regions[--f->region_count];
}

static inline void fenced_close(sh_device *dev)
{
    fenced *f = fenced_of(dev);
    f->cpu->ops->close(f->cpu);
    if (f->buffer != NULL) munmap(f->buffer, f->buffer_size);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

static inline int64_t fenced_memory_free(sh_device *dev)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->memory_free(cpu);
}

static inline double fenced_read_speed(sh_device *dev)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->read_speed(cpu);
}

static inline void fenced_upload(sh_device *dev, void *dst, const void *src, size_t size)
{
    FENCED(upload(f->cpu, dst, src, size));
}

static inline void fenced_copy(sh_device *dev, void *dst, const void *src, size_t size)
{
    FENCED(copy(f->cpu, dst, src, size));
}

static inline sh_status fenced_reserve(sh_device *dev, const sh_limits *limits, sh_err *err)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->reserve(cpu, limits, err);
}

static inline size_t fenced_tensor_layout(sh_device *dev, int64_t rows, int64_t cols,
                                          sh_tensor *out)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->tensor_layout(cpu, rows, cols, out);
}

static inline void fenced_read_rows(sh_device *dev, sh_tensor x, int64_t first, int64_t rows,
                                    int64_t cols, float *out)
{
    FENCED(read_rows(f->cpu, x, first, rows, cols, out));
}

static inline void fenced_write_rows(sh_device *dev, sh_tensor x, int64_t rows, int64_t cols,
                                     const float *in)
{
    FENCED(write_rows(f->cpu, x, rows, cols, in));
}

static inline size_t fenced_matrix_bytes(sh_device *dev, const sh_quant *quant, int64_t rows,
                                         int64_t cols)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->matrix_bytes(cpu, quant, rows, cols);
}

static inline int64_t fenced_matrix_cut(sh_device *dev, const sh_quant *quant)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->matrix_cut(cpu, quant);
}

static inline void fenced_matrix_pack(sh_device *dev, const sh_matrix *m,
                                      const sh_matrix_part *part, const sh_raw_rows *raw)
{
    FENCED(matrix_pack(f->cpu, m, part, raw));
}

static inline void fenced_matrix_copy(sh_device *dev, const sh_matrix *m,
                                      const sh_matrix_part *part, const sh_matrix *from,
                                      int64_t index, int64_t row, int64_t col)
{
    FENCED(matrix_copy(f->cpu, m, part, from, index, row, col));
}

static inline const sh_device_batch *fenced_step_begin(sh_device *dev, const sh_batch *batch)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->step_begin(cpu, batch);
}

static inline sh_status fenced_step_end(sh_device *dev, const sh_device_batch *b, sh_err *err)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->step_end(cpu, b, err);
}

static inline void fenced_embed(sh_device *dev, const sh_device_batch *b, const sh_matrix *w,
                                int64_t row_first, float scale, sh_tensor y)
{
    FENCED(embed(f->cpu, b, w, row_first, scale, y));
}

static inline void fenced_add(sh_device *dev, sh_tensor x, sh_tensor y, int rows, int64_t cols)
{
    FENCED(add(f->cpu, x, y, rows, cols));
}

static inline void fenced_zero(sh_device *dev, sh_tensor x, int rows, int64_t cols)
{
    FENCED(zero(f->cpu, x, rows, cols));
}

static inline void fenced_copy_rows(sh_device *dev, const sh_device_batch *b, sh_tensor y,
                                    sh_tensor x, int64_t cols)
{
    FENCED(copy_rows(f->cpu, b, y, x, cols));
}

static inline void fenced_copy_heads(sh_device *dev, sh_tensor y, int64_t y_head_stride,
                                     sh_tensor x, int64_t x_head_stride, int tokens, int heads,
                                     int64_t dim)
{
    FENCED(copy_heads(f->cpu, y, y_head_stride, x, x_head_stride, tokens, heads, dim));
}

static inline void fenced_scale_by_position(sh_device *dev, const sh_device_batch *b, sh_tensor x,
                                            int64_t cols, float beta, int every)
{
    FENCED(scale_by_position(f->cpu, b, x, cols, beta, every));
}

static inline void fenced_rmsnorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w,
                                  int rows, int heads, int64_t dim, float eps)
{
    FENCED(rmsnorm(f->cpu, y, x, w, rows, heads, dim, eps));
}

static inline void fenced_layernorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w,
                                    const float *bias, int rows, int64_t dim, float eps)
{
    FENCED(layernorm(f->cpu, y, x, w, bias, rows, dim, eps));
}

static inline void fenced_add_positions(sh_device *dev, const sh_device_batch *b, sh_tensor x,
                                        int64_t cols, const float *positions, int offset,
                                        const float *types, int type_count)
{
    FENCED(add_positions(f->cpu, b, x, cols, positions, offset, types, type_count));
}

static inline void fenced_matmul(sh_device *dev, const sh_product *products, int count, sh_tensor x,
                                 int tokens)
{
    FENCED(matmul(f->cpu, products, count, x, tokens));
}

static inline void fenced_matmul_heads(sh_device *dev, const sh_matrix *w, sh_tensor x,
                                       int64_t x_head_stride, sh_tensor y, int64_t y_head_stride,
                                       int tokens)
{
    FENCED(matmul_heads(f->cpu, w, x, x_head_stride, y, y_head_stride, tokens));
}

static inline void fenced_act(sh_device *dev, sh_act act, sh_tensor y, sh_tensor gate, sh_tensor up,
                              int tokens, int64_t cols)
{
    FENCED(act(f->cpu, act, y, gate, up, tokens, cols));
}

static inline void fenced_route(sh_device *dev, const sh_router *router, sh_tensor x, int tokens,
                                int64_t cols, int32_t *ids, float *weights)
{
    FENCED(route(f->cpu, router, x, tokens, cols, ids, weights));
}

static inline void fenced_experts(sh_device *dev, const sh_experts *ex, sh_tensor x, int tokens,
                                  const int32_t *ids, const float *weights, int topk, sh_tensor y)
{
    FENCED(experts(f->cpu, ex, x, tokens, ids, weights, topk, y));
}

static inline void fenced_rope_table(sh_device *dev, const sh_device_batch *b,
                                     const sh_rope rope[2], float *table)
{
    FENCED(rope_table(f->cpu, b, rope, table));
}

static inline void fenced_rope(sh_device *dev, const sh_rope *rope, const float *table, sh_tensor x,
                               int tokens, int heads, int64_t head_stride)
{
    FENCED(rope(f->cpu, rope, table, x, tokens, heads, head_stride));
}

static inline size_t fenced_kv_block_bytes(sh_device *dev, const sh_kv_shape *shape)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->kv_block_bytes(cpu, shape);
}

static inline void fenced_kv_write(sh_device *dev, const sh_device_batch *b, const sh_kv *kv,
                                   sh_tensor k, sh_tensor v)
{
    FENCED(kv_write(f->cpu, b, kv, k, v));
}

static inline void fenced_attend(sh_device *dev, const sh_device_batch *b, const sh_attention *attn,
                                 const sh_kv *kv, sh_tensor q, sh_tensor out)
{
    FENCED(attend(f->cpu, b, attn, kv, q, out));
}

static inline size_t fenced_conv_state_bytes(sh_device *dev, int64_t channels, int taps)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->conv_state_bytes(cpu, channels, taps);
}

static inline void fenced_short_conv(sh_device *dev, const sh_device_batch *b,
                                     const sh_short_conv *conv, const sh_state *state,
                                     sh_tensor gate_in, sh_tensor gate_out, sh_tensor x,
                                     sh_tensor y)
{
    FENCED(short_conv(f->cpu, b, conv, state, gate_in, gate_out, x, y));
}

static inline size_t fenced_delta_state_bytes(sh_device *dev, const sh_delta_net *net)
{
    sh_device *cpu = fenced_of(dev)->cpu;
    return cpu->ops->delta_state_bytes(cpu, net);
}

static inline void fenced_delta_net(sh_device *dev, const sh_device_batch *b,
                                    const sh_delta_net *net, const sh_state *state, sh_tensor qkvz,
                                    sh_tensor ba, sh_tensor y)
{
    FENCED(delta_net(f->cpu, b, net, state, qkvz, ba, y));
}

static inline void fenced_gate_rows(sh_device *dev, sh_tensor x, sh_tensor gate, int tokens,
                                    int64_t cols)
{
    FENCED(gate_rows(f->cpu, x, gate, tokens, cols));
}

static inline void fenced_scan(sh_device *dev, const sh_device_batch *b, sh_tensor logits,
                               int32_t first, int32_t len, const sh_row_query *queries,
                               sh_logits_summary *out)
{
    FENCED(scan(f->cpu, b, logits, first, len, queries, out));
}

static inline void fenced_hash_rows(sh_device *dev, const sh_device_batch *b, sh_tensor x,
                                    int64_t cols, uint64_t seed, uint64_t *out)
{
    FENCED(hash_rows(f->cpu, b, x, cols, seed, out));
}

static inline void *fenced_exchange_buffer(sh_device *dev, size_t size)
{
    fenced *f = fenced_of(dev);
    if (f->buffer != NULL) abort();
    f->buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    f->buffer_size = size;
    if (f->buffer == MAP_FAILED) abort();
    return f->buffer;
}

static inline void *fenced_exchange_at(sh_device *dev, sh_tensor x, const sh_layout *layout,
                                       size_t block)
{
    (void)dev;
    (void)x;
    (void)layout;
    (void)block;
    return NULL;
}

static inline void fenced_encode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first,
                                 size_t end, void *wire)
{
    FENCED(encode(f->cpu, x, layout, first, end, wire));
}

static inline void fenced_fold(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first,
                               size_t end, const void *const *parts, int count, void *sum)
{
    FENCED(fold(f->cpu, x, layout, first, end, parts, count, sum));
}

static inline void fenced_decode(sh_device *dev, sh_tensor x, const sh_layout *layout, size_t first,
                                 size_t end, const void *wire)
{
    FENCED(decode(f->cpu, x, layout, first, end, wire));
}

static inline sh_status fenced_open(const sh_device_opts *opts, sh_device **out, sh_err *err)
{
    static sh_ops ops = {
        .name = "fenced",
        .close = fenced_close,
        .memory_free = fenced_memory_free,
        .read_speed = fenced_read_speed,
        .map = fenced_map,
        .unmap = fenced_unmap,
        .upload = fenced_upload,
        .copy = fenced_copy,
        .reserve = fenced_reserve,
        .tensor_layout = fenced_tensor_layout,
        .read_rows = fenced_read_rows,
        .write_rows = fenced_write_rows,
        .matrix_bytes = fenced_matrix_bytes,
        .matrix_cut = fenced_matrix_cut,
        .matrix_pack = fenced_matrix_pack,
        .matrix_copy = fenced_matrix_copy,
        .step_begin = fenced_step_begin,
        .step_end = fenced_step_end,
        .embed = fenced_embed,
        .add = fenced_add,
        .zero = fenced_zero,
        .copy_rows = fenced_copy_rows,
        .copy_heads = fenced_copy_heads,
        .scale_by_position = fenced_scale_by_position,
        .rmsnorm = fenced_rmsnorm,
        .layernorm = fenced_layernorm,
        .add_positions = fenced_add_positions,
        .matmul = fenced_matmul,
        .matmul_heads = fenced_matmul_heads,
        .act = fenced_act,
        .route = fenced_route,
        .experts = fenced_experts,
        .rope_table = fenced_rope_table,
        .rope = fenced_rope,
        .kv_block_bytes = fenced_kv_block_bytes,
        .kv_write = fenced_kv_write,
        .attend = fenced_attend,
        .conv_state_bytes = fenced_conv_state_bytes,
        .short_conv = fenced_short_conv,
        .delta_state_bytes = fenced_delta_state_bytes,
        .delta_net = fenced_delta_net,
        .gate_rows = fenced_gate_rows,
        .scan = fenced_scan,
        .hash_rows = fenced_hash_rows,
        .exchange_buffer = fenced_exchange_buffer,
        .exchange_at = fenced_exchange_at,
        .encode = fenced_encode,
        .fold = fenced_fold,
        .decode = fenced_decode,
    };
    sh_device *cpu = NULL;
    sh_status status = sh_device_open("cpu", opts, &cpu, err);
    if (status != SH_OK) return status;
    fenced *f = sh_alloc(sizeof(*f));
    ops.pack_rows = cpu->ops->pack_rows;
    f->base.ops = &ops;
    f->cpu = cpu;
    f->gap_stride = getenv("SHOAL_TEST_FULL") != NULL ? 1 : FENCED_STRIDE;
    pthread_mutex_init(&f->lock, NULL);
    *out = &f->base;
    return SH_OK;
}

/* The device that tests of what is above the seam open: the CPU, or what SHOAL_TEST_DEVICE names.
 */
static inline const char *test_device(void)
{
    static bool known;
    if (!known) {
        known = true;
        sh_device_register(&(sh_device_kind){"fenced", fenced_open});
    }
    return getenv("SHOAL_TEST_DEVICE");
}

/* Sanitizers are slow, and so is the fenced device, whose every op takes system calls: they see the
 * short form of long tests, and `make nightly` all of it. */
static inline bool test_is_short(void)
{
    return (test_device() != NULL || SLOW) && getenv("SHOAL_TEST_FULL") == NULL;
}

#endif
