/* The router: which experts a token goes to, and with what weight. Every rank computes this on its
 * own, and all must agree whatever their CPUs, so nothing here depends on the level: the kernels
 * are portable ones, and the choice compares and adds floats in the order of their index. */
#include "kernels/cpu/cpu.h"

#include <math.h>

enum { DOTS_ALONE = 1 << 18, CHOICES_ALONE = 4096 };

struct job {
    const sh_vector_kernels *kernels;
    const sh_router *router;
    const float *x;
    int tokens;
    int64_t dim;
    float *scores; /* [tokens, experts] logits, then scores */
    float *choice; /* [tokens, experts] scores + pick_bias; not used without one */
    int32_t *ids;
    float *weights;
    int x_tiles, w_tile;
};

static void place(struct job *job, sh_scratch *s, int tokens, int experts)
{
    size_t size = (size_t)tokens * experts * sizeof(float);
    job->scores = sh_scratch_take(s, size);
    job->choice = sh_scratch_take(s, size);
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static void logits_run(void *arg, size_t piece, int thread)
{
    const struct job *job = arg;
    int experts = job->router->experts;
    int x = (int)(piece % job->x_tiles) * SH_DOT_TILE,
        w = (int)(piece / job->x_tiles) * job->w_tile;
    (void)thread;
    job->kernels->dots(job->scores + (size_t)x * experts + w, experts, job->x + x * job->dim,
                       min_int(SH_DOT_TILE, job->tokens - x), job->router->gate + w * job->dim,
                       min_int(job->w_tile, experts - w), job->dim);
}

/* Inserts the best of values [first, end) into ids, a list of at most `count` indices in order of
 * descending value, ties by ascending index, which has `have` entries already. Returns how many it
 * has then. */
static int best_insert(int32_t *ids, int have, int count, const float *values, int first, int end)
{
    for (int i = first; i < end; i++) {
        int at = have;
        while (at > 0 && values[i] > values[ids[at - 1]]) at--;
        if (at == count) continue;
        have += have < count;
        for (int j = have - 1; j > at; j--) ids[j] = ids[j - 1];
        ids[at] = i;
    }
    return have;
}

/* The score of a group: its best expert, or the sum of its best two. */
static float group_score(const float *choice, int first, int end, bool top2)
{
    int32_t best[2];
    int have = best_insert(best, 0, 2, choice, first, end);
    return top2 && have == 2 ? choice[best[0]] + choice[best[1]] : choice[best[0]];
}

enum { GROUPS_MAX = 256 };

/* The best experts; with groups, only those of the best groups. Groups are visited in ascending
 * order, not by score, which keeps the order of ties. */
static void experts_pick(const sh_router *router, const float *choice, int32_t *ids)
{
    if (router->groups <= 1) {
        best_insert(ids, 0, router->topk, choice, 0, router->experts);
        return;
    }
    float scores[GROUPS_MAX];
    int32_t groups[GROUPS_MAX];
    int size = router->experts / router->groups, have = 0;
    bool taken[GROUPS_MAX] = {false};
    for (int g = 0; g < router->groups; g++)
        scores[g] = group_score(choice, g * size, (g + 1) * size, router->group_top2);
    best_insert(groups, 0, router->topk_groups, scores, 0, router->groups);
    for (int g = 0; g < router->topk_groups; g++) taken[groups[g]] = true;
    for (int g = 0; g < router->groups; g++)
        if (taken[g]) have = best_insert(ids, have, router->topk, choice, g * size, (g + 1) * size);
}

/* The weights come from the scores without pick_bias. A sum of 0 would make them NaN. */
static void weights_finish(const struct job *job, const float *scores, const int32_t *ids,
                           float *weights)
{
    const sh_router *router = job->router;
    float sum = 0.0f;
    for (int k = 0; k < router->topk; k++) weights[k] = scores[ids[k]];
    if (router->kind == SH_ROUTE_TOPK_SOFTMAX) job->kernels->softmax(weights, router->topk);
    for (int k = 0; k < router->topk; k++) sum += weights[k];
    if (router->normalize && sum > 0.0f)
        for (int k = 0; k < router->topk; k++) weights[k] /= sum;
    for (int k = 0; k < router->topk; k++) weights[k] *= router->scale;
}

static void choose_run(void *arg, size_t token, int thread)
{
    const struct job *job = arg;
    const sh_router *router = job->router;
    float *scores = job->scores + token * router->experts, *choice = scores;
    int32_t *ids = job->ids + token * router->topk;
    (void)thread;
    if (router->logit_bias != NULL) job->kernels->add(scores, router->logit_bias, router->experts);
    if (router->kind == SH_ROUTE_SOFTMAX) job->kernels->softmax(scores, router->experts);
    if (router->kind == SH_ROUTE_SIGMOID) job->kernels->sigmoid(scores, router->experts);
    if (router->pick_bias != NULL) {
        choice = job->choice + token * router->experts;
        for (int e = 0; e < router->experts; e++) choice[e] = scores[e] + router->pick_bias[e];
    }
    experts_pick(router, choice, ids);
    weights_finish(job, scores, ids, job->weights + token * router->topk);
}

void sh_cpu_route(sh_device *dev, const sh_router *router, sh_tensor x, int tokens, int64_t cols,
                  int32_t *ids, float *weights)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_scratch scratch = {.base = cpu->scratch};
    struct job job = {.kernels = cpu->level->vector,
                      .router = router,
                      .x = sh_cpu_f32(x),
                      .tokens = tokens,
                      .dim = cols,
                      .ids = ids,
                      .weights = weights};
    SH_ASSERT(x.stride == cols);
    SH_ASSERT(router->groups >= 1 && router->groups <= GROUPS_MAX);
    int size = router->experts / router->groups;
    SH_ASSERT(router->topk <= (router->groups > 1 ? router->topk_groups * size : router->experts));
    place(&job, &scratch, tokens, router->experts);
    SH_ASSERT(scratch.used <= cpu->scratch_size);

    /* Few tokens are bound by reading the gate from memory: smaller pieces occupy more threads. */
    job.x_tiles = (tokens + SH_DOT_TILE - 1) / SH_DOT_TILE;
    job.w_tile = tokens < SH_DOT_TILE ? SH_DOT_TILE / 4 : SH_DOT_TILE;
    int w_tiles = (router->experts + job.w_tile - 1) / job.w_tile;
    int64_t scores = (int64_t)tokens * router->experts;
    sh_cpu_each(cpu, (size_t)job.x_tiles * w_tiles, scores * cols <= DOTS_ALONE, logits_run, &job);
    sh_cpu_each(cpu, (size_t)tokens, scores <= CHOICES_ALONE, choose_run, &job);
}

size_t sh_cpu_route_scratch(const sh_limits *limits)
{
    sh_scratch s = {0};
    struct job job;
    place(&job, &s, limits->tokens, limits->experts);
    return s.used;
}
