/* Ops whose outputs depend on one number, or one row, of their inputs only. Large inputs are cut
 * into pieces for the threads; no cut can change a result. */
#include "kernels/cpu/cpu.h"

#include <string.h>

enum { PIECE = 16384 }; /* numbers that are worth waking another thread for */

static size_t pieces_of(size_t count)
{
    return (count + PIECE - 1) / PIECE;
}

/* The arguments of add and scale. */
struct pairs {
    const sh_vector_kernels *kernels;
    float *x;
    const float *y;
    float factor;
    size_t count;
};

static size_t piece_count(size_t count, size_t piece)
{
    size_t left = count - piece * PIECE;
    return left < PIECE ? left : PIECE;
}

static void add_run(void *arg, size_t piece, int thread)
{
    struct pairs *p = arg;
    size_t at = piece * PIECE;
    (void)thread;
    p->kernels->add(p->x + at, p->y + at, piece_count(p->count, piece));
}

void sh_cpu_add(sh_device *dev, float *x, const float *y, size_t count)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct pairs p = {.kernels = cpu->level->vector, .x = x, .y = y, .count = count};
    sh_cpu_each(cpu, pieces_of(count), false, add_run, &p);
}

static void scale_run(void *arg, size_t piece, int thread)
{
    struct pairs *p = arg;
    (void)thread;
    p->kernels->scale(p->x + piece * PIECE, p->factor, piece_count(p->count, piece));
}

void sh_cpu_scale(sh_device *dev, float *x, float factor, size_t count)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct pairs p = {.kernels = cpu->level->vector, .x = x, .factor = factor, .count = count};
    sh_cpu_each(cpu, pieces_of(count), false, scale_run, &p);
}

/* The arguments of the ops on rows; each uses some of them. */
struct rows {
    const sh_vector_kernels *kernels;
    float *y;
    const float *x;
    const float *w; /* rmsnorm: weights, act: up */
    const int32_t *pick;
    int64_t count, inner, stride, dim;
    int64_t piece; /* rows in one */
    float eps;
    sh_act act;
};

/* Runs rows in pieces of about PIECE numbers. */
static void rows_each(sh_cpu *cpu, struct rows *rows, sh_host_fn fn)
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

static void copy_run(void *arg, size_t piece, int thread)
{
    const struct rows *c = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * c->piece; r < rows_end(c, piece); r++)
        memcpy(c->y + r * c->dim, c->x + c->pick[r] * c->dim, (size_t)c->dim * sizeof(float));
}

void sh_cpu_copy_rows(sh_device *dev, float *y, const float *x, const int32_t *rows, int count,
                      int64_t dim)
{
    struct rows c = {.y = y, .x = x, .pick = rows, .count = count, .dim = dim};
    rows_each(sh_cpu_of(dev), &c, copy_run);
}

static void rmsnorm_run(void *arg, size_t piece, int thread)
{
    const struct rows *n = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * n->piece; r < rows_end(n, piece); r++) {
        int64_t at = r / n->inner * n->stride + r % n->inner * n->dim;
        n->kernels->rmsnorm(n->y + at, n->x + at, n->w, n->dim, n->eps);
    }
}

void sh_cpu_rmsnorm(sh_device *dev, float *y, const float *x, const float *w, int64_t rows,
                    int64_t inner, int64_t stride, int64_t dim, float eps)
{
    struct rows n = {.y = y,
                     .x = x,
                     .w = w,
                     .count = rows,
                     .inner = inner,
                     .stride = stride,
                     .dim = dim,
                     .eps = eps};
    rows_each(sh_cpu_of(dev), &n, rmsnorm_run);
}

static void act_run(void *arg, size_t piece, int thread)
{
    const struct rows *a = arg;
    (void)thread;
    for (int64_t r = (int64_t)piece * a->piece; r < rows_end(a, piece); r++) {
        int64_t at = r * a->stride;
        a->kernels->act(a->act, a->y + at, a->x + at, a->w + at, a->dim);
    }
}

void sh_cpu_act(sh_device *dev, sh_act act, float *y, const float *gate, const float *up,
                int tokens, int64_t dim, int64_t stride)
{
    struct rows a = {
        .act = act, .y = y, .x = gate, .w = up, .count = tokens, .dim = dim, .stride = stride};
    rows_each(sh_cpu_of(dev), &a, act_run);
}
