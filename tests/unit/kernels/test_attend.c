/* Attention against a softmax in double, for every level and KV format, and against itself: the
 * bits of a query must not depend on how its step was put together.
 *
 * Keys and values are n/64 with n in -127..127, and the largest always occurs, so that f32, f16 and
 * int8 represent them exactly and one bound serves all. KV memory starts as NaN: a slot that was
 * never written must not affect any result. */
#include "levels.h"

enum { SEQS_MAX = 8, CONTEXT_MAX = 1600, BLOCKS_MAX = CONTEXT_MAX / SH_KV_BLOCK * 2 };

typedef struct {
    int heads, kv_heads, k_dim, v_dim;
    bool v_in_k;
    int window;
    bool both;
    bool sinks;
    sh_kv_format format;
    bool uneven; /* the first KV head has more query heads than the others */
} shape;

typedef struct {
    int len;
    float *q, *k, *v; /* [len, heads * dim] */
    float *out;       /* [len, heads * v_dim] */
    int32_t blocks[CONTEXT_MAX / SH_KV_BLOCK + 1];
} seq;

/* All sequences of a test on one device. */
typedef struct {
    shape s;
    sh_device *dev;
    sh_kv kv;
    size_t kv_size;
    int32_t kv_of[128];
    float sinks[128];
    bool write_only; /* a step stores keys and values, but computes no output */
    int seq_count;
    seq seqs[SEQS_MAX];
} world;

static float *coded(uint64_t *rng, int rows, int dim)
{
    float *x = malloc((size_t)rows * dim * sizeof(*x));
    for (int i = 0; i < rows; i++) {
        for (int d = 0; d < dim; d++)
            x[i * dim + d] = (float)((int)(random_u32(rng) % 255) - 127) / 64.0f;
        x[i * dim + (int)(random_u32(rng) % dim)] = 127.0f / 64.0f;
    }
    return x;
}

static void heads_share(world *w)
{
    const shape *s = &w->s;
    for (int h = 0; h < s->heads; h++) {
        int first = s->heads - (s->kv_heads - 1); /* of the heads, for KV head 0 */
        if (s->uneven)
            w->kv_of[h] = h < first ? 0 : h - first + 1;
        else
            w->kv_of[h] = h / (s->heads / s->kv_heads);
    }
}

static void world_open(world *w, shape s, const char *level, int threads, const int *lens,
                       int count, uint64_t seed)
{
    *w = (world){.s = s, .seq_count = count};
    int32_t ids[BLOCKS_MAX], used = 0, blocks = 0;
    uint64_t rng = seed;
    sh_err err;
    sh_limits limits = {.tokens = SEQS_MAX * CONTEXT_MAX,
                        .cols = 64,
                        .expert_rows = 64,
                        .hidden = 64,
                        .heads = s.heads,
                        .head_dim = s.k_dim > s.v_dim ? s.k_dim : s.v_dim};
    w->dev = level_open(level, threads, &limits);
    w->kv.shape = (sh_kv_shape){.format = s.format,
                                .heads = s.kv_heads,
                                .k_dim = s.k_dim,
                                .v_dim = s.v_dim,
                                .v_in_k = s.v_in_k};
    for (int i = 0; i < count; i++) blocks += (lens[i] + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    assert_true(blocks <= BLOCKS_MAX);
    w->kv_size = blocks * w->dev->ops->kv_block_bytes(w->dev, &w->kv.shape);
    CHECK_OK(w->dev->ops->map(w->dev, w->kv_size, "KV of a test", &w->kv.data, &err), err);
    memset(w->kv.data, 0xff, w->kv_size);
    heads_share(w);
    for (int h = 0; h < s.heads; h++) w->sinks[h] = random_float(&rng) * 4.0f;
    for (int i = 0; i < blocks; i++) {
        int j = (int)(random_u32(&rng) % (i + 1));
        ids[i] = ids[j];
        ids[j] = i;
    }
    for (int i = 0; i < count; i++) {
        seq *q = &w->seqs[i];
        uint64_t own = seed * 1000 + (uint64_t)i; /* the same data whatever the other sequences */
        q->len = lens[i];
        q->q = random_floats(&own, (size_t)q->len * s.heads * s.k_dim, 2.0f);
        q->k = coded(&own, q->len * s.kv_heads, s.k_dim);
        q->v = coded(&own, q->len * s.kv_heads, s.v_dim);
        q->out = calloc((size_t)q->len * s.heads * s.v_dim, sizeof(float));
        for (int b = 0; b * SH_KV_BLOCK < q->len; b++) q->blocks[b] = ids[used++];
    }
}

static void world_close(world *w)
{
    for (int i = 0; i < w->seq_count; i++) {
        free(w->seqs[i].q);
        free(w->seqs[i].k);
        free(w->seqs[i].v);
        free(w->seqs[i].out);
    }
    w->dev->ops->unmap(w->dev, w->kv.data, w->kv_size);
    w->dev->ops->close(w->dev);
}

static void rows_copy(float *to, const float *from, int first, int count, int dim)
{
    memcpy(to, from + (size_t)first * dim, (size_t)count * dim * sizeof(float));
}

/* One step: tokens [from[i], to[i]) of each sequence. */
static void world_step(world *w, const int *from, const int *to)
{
    const shape *s = &w->s;
    int q_dim = s->heads * s->k_dim, k_dim = s->kv_heads * s->k_dim, v_dim = s->kv_heads * s->v_dim;
    int out_dim = s->heads * s->v_dim, tokens = 0, spans = 0;
    sh_span span[SEQS_MAX];
    for (int i = 0; i < w->seq_count; i++) {
        if (from[i] >= to[i]) continue;
        span[spans++] = (sh_span){
            .first = tokens, .count = to[i] - from[i], .pos = from[i], .blocks = w->seqs[i].blocks};
        tokens += to[i] - from[i];
    }
    float *q = malloc((size_t)tokens * q_dim * sizeof(float));
    float *k = malloc((size_t)tokens * k_dim * sizeof(float));
    float *v = malloc((size_t)tokens * v_dim * sizeof(float));
    float *out = malloc((size_t)tokens * out_dim * sizeof(float));
    for (int i = 0, at = 0; i < w->seq_count; i++) {
        int count = to[i] > from[i] ? to[i] - from[i] : 0;
        rows_copy(q + (size_t)at * q_dim, w->seqs[i].q, from[i], count, q_dim);
        rows_copy(k + (size_t)at * k_dim, w->seqs[i].k, from[i], count, k_dim);
        rows_copy(v + (size_t)at * v_dim, w->seqs[i].v, from[i], count, v_dim);
        at += count;
    }
    sh_batch batch = {.tokens = tokens, .span_count = spans, .spans = span};
    sh_attention attn = {.heads = s->heads,
                         .kv_of = w->kv_of,
                         .scale = 0.125f,
                         .window = s->window,
                         .both = s->both,
                         .sinks = s->sinks ? w->sinks : NULL};
    const sh_device_batch *b = w->dev->ops->step_begin(w->dev, &batch);
    w->dev->ops->kv_write(w->dev, b, &w->kv, tensor_of(k, k_dim),
                          tensor_of(s->v_in_k ? NULL : v, v_dim));
    if (!w->write_only)
        w->dev->ops->attend(w->dev, b, &attn, &w->kv, tensor_of(q, q_dim), tensor_of(out, out_dim));
    for (int i = 0, at = 0; i < w->seq_count; i++) {
        if (from[i] >= to[i] || w->write_only) continue;
        memcpy(w->seqs[i].out + (size_t)from[i] * out_dim, out + (size_t)at * out_dim,
               (size_t)(to[i] - from[i]) * out_dim * sizeof(float));
        at += to[i] - from[i];
    }
    free(q);
    free(k);
    free(v);
    free(out);
}

static void world_step_all(world *w)
{
    int from[SEQS_MAX] = {0}, to[SEQS_MAX];
    for (int i = 0; i < w->seq_count; i++) to[i] = w->seqs[i].len;
    world_step(w, from, to);
}

/* One row in double, straight from the definition. */
static void reference(const world *w, const seq *q, int pos, int head, double *out)
{
    const shape *s = &w->s;
    int kv = w->kv_of[head], first = s->window > 0 && pos + 1 > s->window ? pos + 1 - s->window : 0;
    int last = pos;
    if (s->both)
        last = s->window > 0 && pos + s->window < q->len ? pos + s->window - 1 : q->len - 1;
    const float *query = q->q + ((size_t)pos * s->heads + head) * s->k_dim;
    static double score[CONTEXT_MAX];
    double top = s->sinks ? w->sinks[head] : -INFINITY, total = 0.0;
    for (int t = first; t <= last; t++) {
        const float *key = q->k + ((size_t)t * s->kv_heads + kv) * s->k_dim;
        score[t] = 0.0;
        for (int d = 0; d < s->k_dim; d++) score[t] += (double)query[d] * (double)key[d];
        score[t] *= 0.125;
        top = fmax(top, score[t]);
    }
    if (s->sinks) total = exp(w->sinks[head] - top);
    for (int d = 0; d < s->v_dim; d++) out[d] = 0.0;
    for (int t = first; t <= last; t++) {
        const float *value = s->v_in_k ? q->k + ((size_t)t * s->kv_heads + kv) * s->k_dim
                                       : q->v + ((size_t)t * s->kv_heads + kv) * s->v_dim;
        double p = exp(score[t] - top);
        total += p;
        for (int d = 0; d < s->v_dim; d++) out[d] += p * (double)value[d];
    }
    for (int d = 0; d < s->v_dim; d++) out[d] /= total;
}

/* Scores reach about 40 here, where an f32 has steps of 4e-6; values are under 2. */
static void check_reference(const world *w, int from, const char *what)
{
    double want[576];
    for (int i = 0; i < w->seq_count; i++)
        for (int pos = from; pos < w->seqs[i].len; pos += 1 + pos / 20)
            for (int h = 0; h < w->s.heads; h++) {
                reference(w, &w->seqs[i], pos, h, want);
                const float *got = w->seqs[i].out + ((size_t)pos * w->s.heads + h) * w->s.v_dim;
                check_near(what, got, want, (size_t)w->s.v_dim, 4e-5);
            }
}

static void check_same(const world *a, int i, const world *b, int j, const char *what)
{
    size_t size = (size_t)a->seqs[i].len * a->s.heads * a->s.v_dim * sizeof(float);
    check_same_bits(what, a->seqs[i].out, b->seqs[j].out, size);
}

static const shape SHAPES[] = {
    {.heads = 4, .kv_heads = 4, .k_dim = 24, .v_dim = 40},
    {.heads = 8, .kv_heads = 2, .k_dim = 32, .v_dim = 32, .window = 50},
    {.heads = 8, .kv_heads = 1, .k_dim = 16, .v_dim = 64, .window = 128, .sinks = true},
    {.heads = 14, .kv_heads = 2, .k_dim = 8, .v_dim = 16, .sinks = true},
    {.heads = 5, .kv_heads = 3, .k_dim = 20, .v_dim = 9, .uneven = true},
    {.heads = 13, .kv_heads = 1, .k_dim = 17, .v_dim = 33, .window = 1},
    {.heads = 5, .kv_heads = 1, .k_dim = 576, .v_dim = 512, .v_in_k = true},
    {.heads = 3, .kv_heads = 1, .k_dim = 40, .v_dim = 25, .v_in_k = true, .window = 33},
};

TEST(every_level_and_format_agrees_with_a_softmax_in_double)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[] = {1, 37, 140};
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(SHAPES); i++)
            for (int f = SH_KV_F32; f <= SH_KV_INT8; f++) {
                shape s = SHAPES[i];
                s.format = (sh_kv_format)f;
                char what[64];
                snprintf(what, sizeof(what), "%s, shape %zu, format %d", names[l], i, f);
                world w;
                world_open(&w, s, names[l], 1, lens, s.k_dim < 100 ? 3 : 2, i + 1);
                world_step_all(&w);
                check_reference(&w, 0, what);
                world_close(&w);
            }
}

/* Encoders: a token sees what comes after it, too. */
TEST(attention_to_both_sides_agrees_with_a_softmax_in_double)
{
    UNUSED_STATE;
    static const shape shapes[] = {
        {.heads = 4, .kv_heads = 4, .k_dim = 24, .v_dim = 40, .both = true},
        {.heads = 8, .kv_heads = 2, .k_dim = 16, .v_dim = 16, .both = true, .window = 21},
        {.heads = 3, .kv_heads = 3, .k_dim = 8, .v_dim = 8, .both = true, .window = 200},
    };
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[] = {SLOW ? 200 : 700, 1, 37, 140};
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(shapes); i++) {
            shape s = shapes[i];
            s.format = (sh_kv_format)(i % 3);
            world all, alone;
            world_open(&all, s, names[l], 2, lens, 4, i + 1);
            world_open(&alone, s, names[l], 1, lens, 1, i + 1);
            world_step_all(&all);
            world_step_all(&alone);
            check_reference(&all, 0, names[l]);
            check_same(&alone, 0, &all, 0, names[l]);
            world_close(&all);
            world_close(&alone);
        }
}

TEST(long_contexts_agree_with_a_softmax_in_double)
{
    UNUSED_STATE;
    shape shapes[] = {
        {.heads = 2, .kv_heads = 1, .k_dim = 64, .v_dim = 64, .format = SH_KV_F16},
        {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .window = 700, .sinks = true},
        {.heads = 2, .kv_heads = 1, .k_dim = 48, .v_dim = 32, .v_in_k = true, .format = SH_KV_INT8},
    };
    int from = CONTEXT_MAX - 40, lens[] = {CONTEXT_MAX - 1};
    for (size_t i = 0; i < SH_COUNT_OF(shapes); i++) {
        world w;
        world_open(&w, shapes[i], NULL, 2, lens, 1, 77 + i);
        w.write_only = true;
        world_step(&w, &(int){0}, &from);
        w.write_only = false;
        world_step(&w, &from, lens);
        check_reference(&w, from, "a long context");
        world_close(&w);
    }
}

TEST(a_query_has_the_same_bits_alone_and_among_eight)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[SEQS_MAX] = {66, 1, 33, 64, 130, 5, 32, 31};
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(SHAPES); i++) {
            shape s = SHAPES[i];
            s.format = (sh_kv_format)(i % 3);
            world alone, eight;
            world_open(&alone, s, names[l], 1, lens, 1, i + 1);
            world_open(&eight, s, names[l], 2, lens, s.k_dim < 100 ? SEQS_MAX : 3, i + 1);
            world_step_all(&alone);
            world_step_all(&eight);
            check_same(&alone, 0, &eight, 0, names[l]);

            /* token by token, with the others at other positions */
            memset(eight.seqs[0].out, 0, (size_t)lens[0] * s.heads * s.v_dim * sizeof(float));
            for (int pos = 0; pos < lens[0]; pos++) {
                int from[SEQS_MAX], to[SEQS_MAX];
                for (int j = 0; j < eight.seq_count; j++) {
                    from[j] = pos < lens[j] ? pos : lens[j] - 1;
                    to[j] = from[j] + 1;
                }
                world_step(&eight, from, to);
            }
            check_same(&alone, 0, &eight, 0, "token by token");
            world_close(&alone);
            world_close(&eight);
        }
}

static void check_cut(const shape *s, const char *level, int len, const int *cuts, int count)
{
    world whole, cut;
    world_open(&whole, *s, level, 1, &len, 1, 7);
    world_open(&cut, *s, level, 2, &len, 1, 7);
    world_step_all(&whole);
    for (int i = 0; i < count; i += SLOW && cuts == NULL ? 7 : 1) {
        int at = cuts == NULL ? i + 1 : cuts[i];
        memset(cut.kv.data, 0xff, cut.kv_size);
        world_step(&cut, &(int){0}, &at);
        world_step(&cut, &at, &len);
        check_same(&whole, 0, &cut, 0, level == NULL ? "best level" : level);
    }
    world_close(&whole);
    world_close(&cut);
}

TEST(a_prompt_has_the_same_bits_wherever_it_is_cut)
{
    UNUSED_STATE;
    static const int cuts[] = {33, 128};
    const char *names[LEVELS_MAX];
    int levels = levels_list(names);
    for (size_t i = 0; i < SH_COUNT_OF(SHAPES); i++) {
        shape s = SHAPES[i];
        s.format = (sh_kv_format)((i + 1) % 3);
        if (s.k_dim > 100) continue; /* slow, and takes no other path */
        check_cut(&s, NULL, 70, NULL, 69);
        for (int l = 0; l < levels; l++) check_cut(&s, names[l], 139, cuts, SH_COUNT_OF(cuts));
    }
}

/* Few heads and a long context: threads share the chunks of one tile. */
TEST(a_long_context_has_the_same_bits_for_any_count_of_threads)
{
    UNUSED_STATE;
    shape shapes[] = {
        {.heads = 1, .kv_heads = 1, .k_dim = 32, .v_dim = 64, .format = SH_KV_F16},
        {.heads = 3,
         .kv_heads = 2,
         .k_dim = 16,
         .v_dim = 32,
         .window = 1100,
         .sinks = true,
         .uneven = true},
        {.heads = 50, .kv_heads = 1, .k_dim = 9, .v_dim = 7, .v_in_k = true},
    };
    int lens[] = {CONTEXT_MAX - 1, 700};
    int starts[] = {1574, 1590, CONTEXT_MAX - 2, CONTEXT_MAX - 1};
    for (size_t i = 0; i < SH_COUNT_OF(shapes); i++) {
        world w[3];
        for (int j = 0; j < 3; j++) {
            world_open(&w[j], shapes[i], NULL, (int[]){1, 2, 5}[j], lens, 2, 5);
            w[j].write_only = true;
            world_step(&w[j], (int[]){0, 0}, (int[]){starts[0], lens[1] - 1});
            w[j].write_only = false;
        }
        world_step(&w[0], (int[]){starts[0], lens[1] - 1}, lens);
        for (int j = 1; j < 3; j++) {
            for (size_t k = 0; k + 1 < SH_COUNT_OF(starts); k++)
                world_step(&w[j], (int[]){starts[k], lens[1] - 1}, (int[]){starts[k + 1], lens[1]});
            check_same(&w[0], 0, &w[j], 0, "threads");
            check_same(&w[0], 1, &w[j], 1, "threads");
        }
        for (int j = 0; j < 3; j++) world_close(&w[j]);
    }
}

/* A code is off by at most half a step of 1/127 of the largest number. A score is then off by at
 * most |q|_1 * scale * top / 254, a weight by e to twice that, a value by its own half step. */
TEST(int8_keeps_to_its_bound_on_numbers_that_it_can_not_hold)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[] = {60};
    shape s = {.heads = 2, .kv_heads = 1, .k_dim = 64, .v_dim = 64, .format = SH_KV_INT8};
    for (int l = 0; l < levels; l++) {
        world w;
        world_open(&w, s, names[l], 1, lens, 1, 9);
        uint64_t rng = 3;
        seq *q = &w.seqs[0];
        for (int i = 0; i < 60 * 64; i++) {
            q->k[i] = random_float(&rng);
            q->v[i] = random_float(&rng) * 10.0f;
        }
        world_step_all(&w);
        for (int pos = 0; pos < 60; pos++)
            for (int h = 0; h < 2; h++) {
                double want[64], q_sum = 0.0;
                for (int d = 0; d < 64; d++) q_sum += fabs((double)q->q[(pos * 2 + h) * 64 + d]);
                double drift = exp(2.0 * q_sum * 0.125 / 254.0) - 1.0;
                reference(&w, q, pos, h, want);
                check_near(names[l], q->out + (pos * 2 + h) * 64, want, 64,
                           10.0 / 254.0 + 10.0 * drift + 1e-5);
            }
        world_close(&w);
    }
}

TEST(f16_stops_at_its_largest_number)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[] = {1};
    shape s = {.heads = 1, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .format = SH_KV_F16};
    for (int l = 0; l < levels; l++) {
        world w;
        world_open(&w, s, names[l], 1, lens, 1, 9);
        w.seqs[0].v[3] = 1e9f;
        w.seqs[0].v[4] = -INFINITY;
        world_step_all(&w);
        assert_true(w.seqs[0].out[3] == 65504.0f);
        assert_true(w.seqs[0].out[4] == -65504.0f);
        world_close(&w);
    }
}

/* A NaN is a fault that must show, whatever the format and wherever it is in a key or value. */
TEST(a_nan_stays_one_in_every_format)
{
    UNUSED_STATE;
    enum { DIM = 40, LEN = 33 };
    static const int places[] = {0, 15, 16, 31, DIM - 1};
    const char *names[LEVELS_MAX];
    int levels = levels_list(names), lens[] = {LEN};
    shape s = {.heads = 1, .kv_heads = 1, .k_dim = DIM, .v_dim = DIM};
    for (int l = 0; l < levels; l++)
        for (size_t i = 0; i < SH_COUNT_OF(places) * 2 * 3; i++) {
            world w;
            int place = places[i % SH_COUNT_OF(places)];
            bool key = i / SH_COUNT_OF(places) % 2 == 0;
            s.format = (sh_kv_format)(i / SH_COUNT_OF(places) / 2);
            world_open(&w, s, names[l], 1, lens, 1, 9);
            (key ? w.seqs[0].k : w.seqs[0].v)[7 * DIM + place] = NAN;
            world_step_all(&w);
            if (!isnan(w.seqs[0].out[(LEN - 1) * DIM + place]))
                fail_msg("%s, format %d: number %d of a %s", names[l], (int)s.format, place,
                         key ? "key" : "value");
            world_close(&w);
        }
}

/* A rank of a large group may have no heads. */
TEST(no_heads_and_no_tokens_are_nothing_to_do)
{
    UNUSED_STATE;
    sh_limits limits = {.tokens = 4, .cols = 64, .expert_rows = 64, .hidden = 64};
    sh_device *dev = level_open(NULL, 2, &limits);
    sh_span span = {.count = 4, .blocks = &(int32_t){0}};
    sh_kv kv = {.shape = {.format = SH_KV_F16, .k_dim = 64, .v_dim = 64}};
    sh_attention attn = {.scale = 1.0f};
    float out = 7.0f;
    assert_int_equal(dev->ops->kv_block_bytes(dev, &kv.shape), 0);
    for (int spans = 0; spans <= 1; spans++) {
        sh_batch batch = {.tokens = 4 * spans, .span_count = spans, .spans = &span};
        const sh_device_batch *b = dev->ops->step_begin(dev, &batch);
        dev->ops->kv_write(dev, b, &kv, tensor_of(&out, 0), tensor_of(&out, 0));
        dev->ops->attend(dev, b, &attn, &kv, tensor_of(&out, 0), tensor_of(&out, 0));
    }
    assert_true(out == 7.0f);
    dev->ops->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_and_format_agrees_with_a_softmax_in_double),
        cmocka_unit_test(attention_to_both_sides_agrees_with_a_softmax_in_double),
        cmocka_unit_test(long_contexts_agree_with_a_softmax_in_double),
        cmocka_unit_test(a_query_has_the_same_bits_alone_and_among_eight),
        cmocka_unit_test(a_prompt_has_the_same_bits_wherever_it_is_cut),
        cmocka_unit_test(a_long_context_has_the_same_bits_for_any_count_of_threads),
        cmocka_unit_test(int8_keeps_to_its_bound_on_numbers_that_it_can_not_hold),
        cmocka_unit_test(f16_stops_at_its_largest_number),
        cmocka_unit_test(a_nan_stays_one_in_every_format),
        cmocka_unit_test(no_heads_and_no_tokens_are_nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
