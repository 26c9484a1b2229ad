/* Finds what a loader has in memory of what another one is to load.
 *
 * Every job says which rows and columns of which tensor it holds. Two jobs of the same tensor hold
 * the same numbers where these overlap, whatever layer, head or expert they belong to, so nothing
 * here knows about models. The overlap is then cut to what the device can copy in its own layout:
 * whole packs of rows, and columns at its cuts. */
#include "base/alloc.h"
#include "model/loader_internal.h"

#include <stdlib.h>
#include <string.h>

static int order(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* Jobs that compare as equal are parts of the same matrix or vector. Addresses of tensors are those
 * of the same open set. */
static int compare_origin(const sh_load_job *a, const sh_load_job *b)
{
    const sh_source *s = &a->source, *t = &b->source;
    const sh_vector_source *v = &a->vector, *w = &b->vector;
    const sh_stored_tensor *x = a->kind == SH_JOB_VECTOR ? v->tensor : s->w;
    const sh_stored_tensor *y = b->kind == SH_JOB_VECTOR ? w->tensor : t->w;
    const int64_t orders[] = {
        order(a->kind, b->kind),         order((int64_t)(uintptr_t)x, (int64_t)(uintptr_t)y),
        order(s->index, t->index),       order(s->row_first, t->row_first),
        order(s->row_step, t->row_step), order(v->rows, w->rows),
        order(v->row_len, w->row_len),   order(v->step, w->step)};
    for (size_t i = 0; i < SH_COUNT_OF(orders); i++)
        if (orders[i] != 0) return (int)orders[i];
    return 0;
}

static int compare_jobs(const void *a, const void *b)
{
    return compare_origin(*(const sh_load_job *const *)a, *(const sh_load_job *const *)b);
}

/* Part of a range of numbers, [first, end). */
typedef struct {
    int64_t first, end;
} span;

/* What a range of `count` numbers from `first` on has in common with another, relative to `first`.
 */
static span overlap(int64_t first, int64_t count, int64_t other, int64_t other_count)
{
    span s = {other - first, other + other_count - first};
    if (s.first < 0) s.first = 0;
    if (s.end > count) s.end = count;
    return s;
}

/* Moves the ends of s inwards to multiples of `unit`; the end of the whole range may stay. */
static span cut_to(span s, int64_t unit, int64_t count, bool end_stays)
{
    s.first = (s.first + unit - 1) / unit * unit;
    if (s.end != count || !end_stays) s.end = s.end / unit * unit;
    return s;
}

/* What the old job has of a matrix, as a part that the device can copy. */
static bool keep_matrix(const sh_loader *loader, sh_load_job *j, const sh_load_job *old)
{
    const sh_ops *ops = loader->dev->ops;
    int64_t cut = ops->matrix_cut(loader->dev, &j->m->quant);
    span rows = overlap(j->row_first, j->rows, old->row_first, old->rows);
    span cols = overlap(j->col_first, j->cols, old->col_first, old->cols);
    bool ends_alike = j->col_first + j->cols == old->col_first + old->cols;
    if (memcmp(&j->m->quant, &old->m->quant, sizeof(j->m->quant)) != 0) return false;
    if ((j->col_first - old->col_first) % cut != 0) return false;
    rows = cut_to(rows, ops->pack_rows, j->rows, true);
    cols = cut_to(cols, cut, j->cols, ends_alike || j->cols % cut == 0);
    if (rows.first >= rows.end || cols.first >= cols.end) return false;
    j->kept = (sh_matrix_part){.index = j->index,
                               .row = rows.first,
                               .rows = rows.end - rows.first,
                               .col = cols.first,
                               .cols = cols.end - cols.first};
    return true;
}

/* Vectors are small: they are copied as a whole or not at all. */
static bool keep_floats(const sh_load_job *j, const sh_load_job *old)
{
    const sh_vector_source *v = &j->vector, *w = &old->vector;
    if (j->kind == SH_JOB_FLOATS) return true;
    int64_t skip = v->first - w->first;
    return memcmp(&v->plus, &w->plus, sizeof(v->plus)) == 0 && skip >= 0 && skip % v->step == 0 &&
           skip / v->step + v->count <= w->count;
}

static size_t find_first(const sh_load_job *const *sorted, size_t count, const sh_load_job *j)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (compare_origin(sorted[mid], j) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* A matrix may be held in several parts (the heads of a latent projection); of these at most one
 * overlaps with any other. */
static void match_job(const sh_loader *loader, const sh_load_job *const *sorted, size_t count,
                      sh_load_job *j)
{
    for (size_t i = find_first(sorted, count, j); i < count; i++) {
        if (compare_origin(sorted[i], j) != 0) return;
        bool kept = j->m != NULL ? keep_matrix(loader, j, sorted[i]) : keep_floats(j, sorted[i]);
        if (!kept) continue;
        j->old = sorted[i];
        return;
    }
}

void sh_load_match(sh_loader *loader, const sh_loader *before)
{
    const sh_load_job **sorted = sh_alloc_array(before->job_count + 1, sizeof(*sorted));
    for (size_t i = 0; i < before->job_count; i++) sorted[i] = &before->jobs[i];
    qsort(sorted, before->job_count, sizeof(*sorted), compare_jobs);
    for (size_t i = 0; i < loader->job_count; i++)
        match_job(loader, sorted, before->job_count, &loader->jobs[i]);
    free(sorted);
}

static bool same_job(const sh_load_job *a, const sh_load_job *b)
{
    if (a->old != b || a->rows != b->rows || a->cols != b->cols) return false;
    if (a->m == NULL) return a->offset == b->offset && a->vector.first == b->vector.first;
    return a->index == b->index && a->m->count == b->m->count && a->row_first == b->row_first &&
           a->col_first == b->col_first;
}

/* The layout of a region follows from what was declared in it, in that order. */
bool sh_load_same_region(const sh_loader *loader, const sh_load_region *region,
                         const sh_loader *before)
{
    const sh_load_job *jobs = loader->jobs + region->job_first;
    if (region->job_count == 0 || jobs[0].old == NULL) return false;
    const sh_load_region *other = &before->regions[jobs[0].old->region];
    if (region->size != other->size || region->job_count != other->job_count) return false;
    for (size_t i = 0; i < region->job_count; i++)
        if (!same_job(&jobs[i], &before->jobs[other->job_first + i])) return false;
    return true;
}

void sh_load_copy_floats(const sh_loader *loader, const sh_load_job *j)
{
    const float *from = *j->old->out;
    if (j->kind == SH_JOB_VECTOR) from += (j->vector.first - j->old->vector.first) / j->vector.step;
    int64_t stride = j->old->cols;
    uint8_t *to = loader->regions[j->region].memory + j->offset;
    for (int64_t r = 0; r < j->rows; r++)
        loader->dev->ops->copy(loader->dev, to + (size_t)(r * j->cols) * sizeof(float),
                               from + r * stride, (size_t)j->cols * sizeof(float));
}
