/* One row of the table for each kind of pooling: which tokens it needs, how one is added to the
 * sum, and by what the sum is divided. */
#include "engine/pooled.h"

#include "base/alloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sh_pooled {
    int width;
    double *sums; /* [slots, width] */
    float *row;   /* [width] of one token */
};

sh_pooled *sh_pooled_create(int slots, int width)
{
    sh_pooled *p = sh_alloc(sizeof(*p));
    p->width = width;
    p->sums = sh_alloc_array((size_t)slots * (size_t)width, sizeof(*p->sums));
    p->row = sh_alloc_array((size_t)width, sizeof(*p->row));
    return p;
}

void sh_pooled_free(sh_pooled *p)
{
    if (p == NULL) return;
    free(p->sums);
    free(p->row);
    free(p);
}

static double one(int n)
{
    (void)n;
    return 1;
}

static double count_of(int n)
{
    return n;
}

static double sum_to(int n)
{
    return n * (n + 1.0) / 2;
}

static double root_of(int n)
{
    return sqrt(n);
}

static const struct {
    bool all;                 /* every token counts */
    bool largest;             /* by its largest numbers; else by the sum */
    double (*weight)(int n);  /* of token n, from 1 on */
    double (*divisor)(int n); /* for n tokens */
} POOLS[SH_POOLS] = {
    [SH_POOL_LAST] = {.weight = one, .divisor = one},
    [SH_POOL_MEAN] = {.all = true, .weight = one, .divisor = count_of},
    [SH_POOL_FIRST] = {.all = true, .weight = one, .divisor = one},
    [SH_POOL_MAX] = {.all = true, .largest = true, .weight = one, .divisor = one},
    [SH_POOL_WEIGHTED] = {.all = true, .weight = count_of, .divisor = sum_to},
    [SH_POOL_SQRT] = {.all = true, .weight = one, .divisor = root_of},
};

bool sh_pool_kind_needs_all(sh_pool_kind pool)
{
    return POOLS[pool].all;
}

static void row_add(const sh_pooled *p, sh_pool_kind pool, int pos, double *sum)
{
    double weight = POOLS[pool].weight(pos + 1);
    bool starts = pos == 0 || pool == SH_POOL_LAST;
    for (int i = 0; i < p->width; i++) {
        double x = (double)p->row[i];
        if (starts)
            sum[i] = weight * x;
        else if (!POOLS[pool].largest)
            sum[i] += weight * x;
        else if (!(x <= sum[i])) /* a NaN shows */
            sum[i] = x;
    }
}

void sh_pooled_add(sh_pooled *p, sh_device *dev, sh_tensor x, sh_pool_kind pool, int slot,
                   int first, int count, int pos)
{
    double *sum = p->sums + (size_t)slot * (size_t)p->width;
    int from = pool == SH_POOL_LAST ? count - 1 : 0;
    int to = pool == SH_POOL_FIRST && pos + count > 1 ? 1 - pos : count;
    for (int i = from; i < to; i++) {
        dev->ops->read_rows(dev, x, first + i, 1, p->width, p->row);
        row_add(p, pool, pos + i, sum);
    }
}

void sh_pooled_take(const sh_pooled *p, sh_pool_kind pool, int slot, int count, float *out)
{
    const double *sum = p->sums + (size_t)slot * (size_t)p->width;
    double divisor = POOLS[pool].divisor(count);
    for (int i = 0; i < p->width; i++) out[i] = (float)(sum[i] / divisor);
}
