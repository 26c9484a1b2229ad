/* Ops whose outputs depend on one number, or one row, of their inputs only. Large inputs are cut
 * into pieces for the threads; no cut can change a result. */
#include "kernels/cpu/cpu.h"

#include <math.h>

enum { PIECE = 16384 }; /* numbers that are worth waking another thread for */

static size_t pieces_of(size_t count)
{
    return (count + PIECE - 1) / PIECE;
}

struct sum {
    const sh_vector_kernels *kernels;
    float *x;
    const float *y;
    size_t count;
};

static size_t piece_count(size_t count, size_t piece)
{
    size_t left = count - piece * PIECE;
    return left < PIECE ? left : PIECE;
}

static void add_run(void *arg, size_t piece, int thread)
{
    struct sum *s = arg;
    size_t at = piece * PIECE;
    (void)thread;
    s->kernels->add(s->x + at, s->y + at, piece_count(s->count, piece));
}

void sh_cpu_add(sh_device *dev, sh_tensor x, sh_tensor y, int rows, int64_t cols)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct sum s = {.kernels = cpu->level->vector,
                    .x = sh_cpu_f32(x),
                    .y = sh_cpu_f32(y),
                    .count = (size_t)rows * (size_t)cols};
    SH_ASSERT(x.stride == cols && y.stride == cols);
    sh_cpu_each(cpu, pieces_of(s.count), false, add_run, &s);
}

/* The arguments of the ops on rows; each uses some of them. */
struct rows {
    const sh_vector_kernels *kernels;
    sh_tensor y, x;
    sh_tensor up;   /* act */
    const float *w; /* norms */
    const float *bias;
    const int32_t *positions;
    int64_t count;
    int64_t heads; /* rmsnorm: normed apart, within a row */
    int64_t dim;   /* numbers of a row, or of a head */
    int64_t piece; /* rows in one */
    float eps, beta;
    int every;
    sh_act act;
};

/* Runs rows in pieces of about PIECE numbers. */
static void rows_each(sh_cpu *cpu, struct rows *rows, sh_cpu_fn fn)
{
    rows->kernels = cpu->level->vector;
    rows->piece = (PIECE + rows->dim - 1) / rows->dim;
    size_t pieces = (size_t)((rows->count + rows->piece - 1) / rows->piece);
    sh_cpu_each(cpu, pieces, false, fn, rows);
}

static int64_t rows_end(const struct rows *rows, size_t piece)
{
    int64_t end = ((int64_t)piece + 1) * rows->piece;
    return end < rows->count ? end : rows->count;
}

static float *row_at(sh_tensor t, int64_t row)
{
    return sh_cpu_f32(t) + row * t.stride;
}

static void rmsnorm_run(void *arg, size_t piece, int thread)
{
    const struct rows *n = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * n->piece; r < rows_end(n, piece); r++) {
        int64_t row = r / n->heads, at = r % n->heads * n->dim;
        n->kernels->rmsnorm(row_at(n->y, row) + at, row_at(n->x, row) + at, n->w, n->dim, n->eps);
    }
}

void sh_cpu_rmsnorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, int rows, int heads,
                    int64_t dim, float eps)
{
    struct rows n = {.y = y,
                     .x = x,
                     .w = w,
                     .count = (int64_t)rows * heads,
                     .heads = heads,
                     .dim = dim,
                     .eps = eps};
    rows_each(sh_cpu_of(dev), &n, rmsnorm_run);
}

static void layernorm_run(void *arg, size_t piece, int thread)
{
    const struct rows *n = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * n->piece; r < rows_end(n, piece); r++)
        n->kernels->layernorm(row_at(n->y, r), row_at(n->x, r), n->w, n->bias, n->dim, n->eps);
}

void sh_cpu_layernorm(sh_device *dev, sh_tensor y, sh_tensor x, const float *w, const float *bias,
                      int rows, int64_t dim, float eps)
{
    struct rows n = {.y = y, .x = x, .w = w, .bias = bias, .count = rows, .dim = dim, .eps = eps};
    rows_each(sh_cpu_of(dev), &n, layernorm_run);
}

struct positions {
    const sh_vector_kernels *kernels;
    const sh_device_batch *batch;
    sh_tensor x;
    int64_t cols;
    const float *positions, *types;
    int offset, type_count;
};

static void positions_run(void *arg, size_t span, int thread)
{
    const struct positions *p = arg;
    const sh_span *s = &p->batch->in.spans[span];
    size_t cols = (size_t)p->cols;
    (void)thread;
    for (int i = 0; i < s->count; i++) {
        float *x = row_at(p->x, s->first + i);
        int pos = s->pos + i;
        bool second = p->type_count > 1 && s->second > 0 && pos >= s->second;
        if (p->positions != NULL)
            p->kernels->add(x, p->positions + (int64_t)(pos + p->offset) * p->cols, cols);
        if (p->types != NULL) p->kernels->add(x, p->types + (second ? p->cols : 0), cols);
    }
}

void sh_cpu_add_positions(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                          const float *positions, int offset, const float *types, int type_count)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct positions p = {.kernels = cpu->level->vector,
                          .batch = b,
                          .x = x,
                          .cols = cols,
                          .positions = positions,
                          .types = types,
                          .offset = offset,
                          .type_count = type_count};
    sh_cpu_each(cpu, (size_t)b->in.span_count, false, positions_run, &p);
}

static void act_run(void *arg, size_t piece, int thread)
{
    const struct rows *a = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * a->piece; r < rows_end(a, piece); r++)
        a->kernels->act(a->act, row_at(a->y, r), row_at(a->x, r),
                        a->up.data == NULL ? NULL : row_at(a->up, r), a->dim);
}

void sh_cpu_act(sh_device *dev, sh_act act, sh_tensor y, sh_tensor gate, sh_tensor up, int tokens,
                int64_t cols)
{
    struct rows a = {.act = act, .y = y, .x = gate, .up = up, .count = tokens, .dim = cols};
    rows_each(sh_cpu_of(dev), &a, act_run);
}

static void gate_run(void *arg, size_t piece, int thread)
{
    const struct rows *g = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * g->piece; r < rows_end(g, piece); r++) {
        double open = 1 / (1 + exp(-(double)*row_at(g->up, r)));
        g->kernels->scale(row_at(g->x, r), (float)open, (size_t)g->dim);
    }
}

void sh_cpu_gate_rows(sh_device *dev, sh_tensor x, sh_tensor gate, int tokens, int64_t cols)
{
    struct rows g = {.x = x, .up = gate, .count = tokens, .dim = cols};
    rows_each(sh_cpu_of(dev), &g, gate_run);
}

static void scale_run(void *arg, size_t piece, int thread)
{
    const struct rows *s = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * s->piece; r < rows_end(s, piece); r++) {
        int steps = s->positions[r] / s->every;
        if (steps > 0)
            s->kernels->scale(row_at(s->x, r), (float)(1 + (double)s->beta * log(1.0 + steps)),
                              (size_t)s->dim);
    }
}

void sh_cpu_scale_by_position(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                              float beta, int every)
{
    struct rows s = {.x = x,
                     .positions = b->positions,
                     .count = b->in.tokens,
                     .dim = cols,
                     .beta = beta,
                     .every = every};
    rows_each(sh_cpu_of(dev), &s, scale_run);
}
