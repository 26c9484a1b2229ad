/* A model split over ranks gives the same logits as on one. Ranks are threads here, each with its
 * own device and its own shard of the weights; sums are made in rank order. */
#include "rig.h"

#include <pthread.h>

enum { RANKS_MAX = 8 };
static const double DIFF_MAX = 0.001;

typedef struct {
    int size;
    pthread_barrier_t barrier;
    float *parts[RANKS_MAX];
} group;

typedef struct {
    group *g;
    rig r;
    int rank; /* in its stage */
    const sh_forward_input *step;
    float *part; /* of this rank, in host memory */
    float *sum;  /* result, kept apart until all ranks have read the parts */
    sh_logits out;
    sh_status status;
} member;

static sh_status reduce(void *ctx, sh_tensor x, int rows, int64_t cols, sh_err *err)
{
    member *m = ctx;
    sh_device *dev = m->r.dev;
    (void)err;
    dev->ops->read_rows(dev, x, 0, rows, cols, m->part);
    m->g->parts[m->rank] = m->part;
    pthread_barrier_wait(&m->g->barrier);
    for (int64_t i = 0; i < rows * cols; i++) {
        m->sum[i] = m->g->parts[0][i];
        for (int r = 1; r < m->g->size; r++) m->sum[i] += m->g->parts[r][i];
    }
    pthread_barrier_wait(&m->g->barrier);
    dev->ops->write_rows(dev, x, rows, cols, m->sum);
    return SH_OK;
}

static void hidden_read(const member *m, int tokens, float *out)
{
    m->r.dev->ops->read_rows(m->r.dev, sh_model_hidden(m->r.model), 0, tokens, m->r.config->hidden,
                             out);
}

static void *run_member(void *arg)
{
    member *m = arg;
    sh_err err = {0};
    sh_peers peers = {.ctx = m, .reduce = reduce};
    m->status = sh_model_step(m->r.model, m->step, &peers, &m->out, &err);
    return NULL;
}

/* All ranks of one stage run the step. The first stage embeds tokens, a later one gets the hidden
 * states of the one before. */
static void run_stage(member *members, int size, const sh_forward_input *step, const float *hidden)
{
    group g = {.size = size};
    pthread_t threads[RANKS_MAX];
    int tokens = step->batch.tokens;
    int64_t width = members[0].r.config->hidden;
    pthread_barrier_init(&g.barrier, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        const rig *r = &members[i].r;
        members[i].g = &g;
        members[i].rank = i;
        members[i].step = step;
        if (hidden != NULL)
            r->dev->ops->write_rows(r->dev, sh_model_hidden(r->model), tokens, width, hidden);
        assert_int_equal(pthread_create(&threads[i], NULL, run_member, &members[i]), 0);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(members[i].status, SH_OK);
    }
    /* All ranks of a stage have the same bits. */
    hidden_read(&members[0], tokens, members[0].sum);
    for (int i = 1; i < size; i++) {
        hidden_read(&members[i], tokens, members[i].sum);
        assert_memory_equal(members[i].sum, members[0].sum,
                            (size_t)(tokens * width) * sizeof(float));
    }
    pthread_barrier_destroy(&g.barrier);
}

/* Each rank of the last stage has a part of each row of logits; together they have all of it. */
static void check_result(const golden *g, const member *last, int width, const char *how)
{
    double max = 0;
    int64_t next = 0;
    for (int r = 0; r < width; r++) {
        const sh_logits *part = &last[r].out;
        assert_int_equal(part->first, next);
        next += part->count;
        float *got = sh_alloc_array((size_t)(g->len * part->count) + 1, sizeof(*got));
        if (part->count > 0)
            last[r].r.dev->ops->read_rows(last[r].r.dev, part->rows, 0, g->len, part->count, got);
        for (int64_t i = 0; i < g->len * part->count; i++) {
            const float *want = g->logits + i / part->count * g->vocab + part->first;
            double diff = fabs((double)got[i] - (double)want[i % part->count]);
            if (!(diff <= max)) max = diff;
        }
        free(got);
    }
    assert_int_equal(next, g->vocab);
    if (!(max <= DIFF_MAX * g->std)) fail_msg("%s: largest difference %g", how, max / g->std);
}

static void check_split(const golden *g, int width, int stages, const double *weights,
                        const char *how)
{
    sh_err err = {0};
    sh_config config;
    sh_shard shards[RANKS_MAX];
    member members[RANKS_MAX] = {{0}};
    int32_t rows[RIG_TOKENS], blocks[8] = {5, 3, 7, 1, 0, 2, 4, 6};
    CHECK_OK(sh_config_load(g->dir, &config, &err), err);
    if (stages > config.layers) stages = config.layers;
    CHECK_OK(sh_shard_plan(&config, &(sh_plan_opts){width, stages, weights, 0}, shards, &err), err);
    size_t count = (size_t)g->len * (size_t)config.hidden;
    for (int r = 0; r < width * stages; r++) {
        members[r].r = rig_open(g->dir, true, &shards[r], 1);
        members[r].part = sh_alloc_array(count, sizeof(float));
        members[r].sum = sh_alloc_array(count, sizeof(float));
    }
    for (int i = 0; i < g->len; i++) rows[i] = i;
    sh_span span = {
        .count = g->len, .long_rope = rig_long_rope(&members[0].r, g->len), .blocks = blocks};
    sh_forward_input step = {.batch = {.tokens = g->len,
                                       .ids = g->ids,
                                       .span_count = 1,
                                       .spans = &span,
                                       .rows = rows,
                                       .row_count = g->len}};
    /* run_stage leaves the hidden states in `sum` of its first rank. */
    for (int s = 0; s < stages; s++)
        run_stage(&members[s * width], width, &step, s == 0 ? NULL : members[(s - 1) * width].sum);
    check_result(g, &members[(stages - 1) * width], width, how);
    for (int r = 0; r < width * stages; r++) {
        rig_close(&members[r].r);
        free(members[r].part);
        free(members[r].sum);
    }
    sh_config_reset(&config);
}

TEST(any_split_gives_the_same_logits)
{
    golden g = golden_load(*state);
    check_split(&g, 2, 1, NULL, "two tensor ranks");
    check_split(&g, 3, 1, NULL, "three tensor ranks");
    check_split(&g, 4, 1, NULL, "four tensor ranks");
    check_split(&g, 5, 1, NULL, "five tensor ranks");
    check_split(&g, 1, 2, NULL, "two stages");
    check_split(&g, 1, 3, NULL, "three stages");
    check_split(&g, 2, 2, NULL, "two by two");
    check_split(&g, 2, 1, (const double[]){3, 1}, "three to one");
    check_split(&g, 3, 1, (const double[]){1, 0, 6}, "one rank with nothing");
    golden_free(&g);
}

int main(void)
{
    return rig_each_model("any split gives the same logits", any_split_gives_the_same_logits);
}
