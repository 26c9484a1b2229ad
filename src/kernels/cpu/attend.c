/* Attention over KV blocks.
 *
 * Work is cut into tiles: up to SH_ATTEND_ROWS rows (a row is one query head of one token) of one
 * span that read the same KV head, so that a tile loads keys and values once for all its rows. A
 * tile goes over its keys in chunks of CHUNK positions, each with a softmax of its own, and folds
 * the results of the chunks together in order (the online softmax, at the granularity of a chunk).
 *
 * Batch invariance depends on the borders: chunks and steps start at fixed positions of the
 * sequence, never relative to a tile or a window. So a row has the same bits in whatever tile it
 * is, and whether one thread runs all chunks of a tile or, for a long context with few heads,
 * several threads share them.
 *
 * Split tiles leave the sums of each chunk in slots of the scratch. A round computes as many chunks
 * as there are slots, in parallel, and then folds them in order into `out`, which holds the sums of
 * the rounds before. So the scratch does not grow with the context. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    ROWS = SH_ATTEND_ROWS,
    STEP = SH_ATTEND_STEP,
    CHUNK = 4 * STEP,
    SLOTS = 4,       /* full tiles of sums per thread */
    SPLIT_TILES = 2, /* at most, per thread; see split_wanted */
    ALONE = 1 << 18, /* multiplications; fewer are not worth waking other threads for */
};

static const float LOG2E = 1.44269504f;

/* The state of the online softmax of a tile over some keys. With s the scores in base 2, top is the
 * largest s, total the sum of 2^(s - top) and sum that of 2^(s - top) * value; the result is sum /
 * total. */
struct sums {
    float *sum;   /* [rows, v_pad] */
    float *top;   /* [rows] */
    float *total; /* [rows] */
};

/* The buffers of a thread. */
struct workspace {
    float *q;     /* [rows, k_dim] in the layout of q_pack */
    float *s;     /* [rows, STEP] scores, then weights */
    float *decay; /* [rows] factor on the sums so far, when top rises */
    int *ends;    /* [rows] end of the keys that the row sees, within the step */
    float *v;     /* [v_pad, 32] values extracted from keys (v_in_k) */
    struct sums chunk;
    float *top; /* [rows] of all chunks so far */
    float *total;
};

struct tile {
    const sh_span *span;
    int kv_head;
    int head_first, heads;  /* query heads of this KV head */
    int row_first, rows;    /* row r is token r / heads, head r % heads */
    int key_first, key_end; /* union of the keys that its rows see */
};

struct job {
    sh_cpu *cpu;
    int threads;
    const sh_vector_kernels *kernels;
    const sh_attention *attn;
    const sh_kv *kv;
    const sh_batch *batch;
    const float *q;
    float *out;
    int64_t q_stride, out_stride;
    sh_kv_layout layout;

    int groups;           /* KV heads that are read */
    int group_heads;      /* the most query heads of a KV head */
    int32_t *group_first; /* [groups + 1] first query head of each */
    int32_t *begin;       /* [span_count + 1] tiles of the spans that are not split */
    uint8_t *workspaces;  /* [threads, workspace_size] */
    size_t workspace_size;

    struct tile *split; /* [threads * SPLIT_TILES] */
    int split_count;
    float *split_top, *split_total; /* [split, ROWS] */
    float *slots;
    int64_t slot_size;  /* in floats */
    int chunks_a_round; /* of each split tile */
    int round;
};

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Size in floats of a tile's sums, and the parts of that memory. */
static int64_t sums_size(int rows, int v_pad)
{
    return (int64_t)rows * (v_pad + 2);
}

static struct sums sums_at(float *p, int rows, int v_pad)
{
    int64_t size = (int64_t)rows * v_pad;
    return (struct sums){p, p + size, p + size + rows};
}

static struct workspace workspace_place(sh_scratch *s, int k_dim, int v_pad)
{
    struct workspace ws;
    ws.q = sh_scratch_take(s, sizeof(float) * (ROWS * k_dim + SH_PACK_SPILL));
    ws.s = sh_scratch_take(s, sizeof(float) * ROWS * STEP);
    ws.v = sh_scratch_take(s, sizeof(float) * SH_KV_BLOCK * v_pad);
    ws.ends = sh_scratch_take(s, sizeof(int) * ROWS);
    ws.decay = sh_scratch_take(s, sizeof(float) * ROWS * 3);
    ws.top = ws.decay == NULL ? NULL : ws.decay + ROWS;
    ws.total = ws.decay == NULL ? NULL : ws.decay + 2 * ROWS;
    float *sums = sh_scratch_take(s, sizeof(float) * (size_t)sums_size(ROWS, v_pad));
    ws.chunk = sums == NULL ? (struct sums){0} : sums_at(sums, ROWS, v_pad);
    return ws;
}

/* The layout of the op's scratch; also runs with limits instead of a batch, to plan it. */
static void place(struct job *job, sh_scratch *s, int spans, int heads, int k_dim, int v_pad)
{
    int threads = job->threads;
    size_t tiles = (size_t)threads * SPLIT_TILES;
    job->group_first = sh_scratch_take(s, ((size_t)heads + 1) * sizeof(int32_t));
    job->begin = sh_scratch_take(s, ((size_t)spans + 1) * sizeof(int32_t));
    job->split = sh_scratch_take(s, tiles * sizeof(struct tile));
    job->split_top = sh_scratch_take(s, tiles * ROWS * sizeof(float));
    job->split_total = sh_scratch_take(s, tiles * ROWS * sizeof(float));
    job->slots = sh_scratch_take(s, sizeof(float) * threads * SLOTS * sums_size(ROWS, v_pad));
    sh_scratch one = {0};
    workspace_place(&one, k_dim, v_pad);
    job->workspace_size = one.used;
    job->workspaces = sh_scratch_take(s, threads * one.used);
}

static struct workspace workspace_at(const struct job *job, int thread)
{
    sh_scratch s = {.base = job->workspaces + (size_t)thread * job->workspace_size};
    return workspace_place(&s, job->kv->shape.k_dim, job->layout.v_pad);
}

/* kv_of is ascending, so the query heads of a KV head are adjacent. */
static void groups_find(struct job *job)
{
    const int32_t *kv_of = job->attn->kv_of;
    job->groups = 0;
    for (int h = 0; h < job->attn->heads; h++)
        if (h == 0 || kv_of[h] != kv_of[h - 1]) job->group_first[job->groups++] = h;
    job->group_first[job->groups] = job->attn->heads;
    for (int g = 0; g < job->groups; g++)
        job->group_heads = max_int(job->group_heads, job->group_first[g + 1] - job->group_first[g]);
}

/* First position that a token at `pos` sees. */
static int key_first(const struct job *job, int pos)
{
    return job->attn->window > 0 ? max_int(0, pos + 1 - job->attn->window) : 0;
}

/* How far after its own position a token sees. */
static int ahead(const struct job *job)
{
    if (!job->attn->both) return 0;
    return job->attn->window > 0 ? job->attn->window - 1 : INT_MAX;
}

/* End of the positions that a token at `pos` sees. */
static int key_end(const struct job *job, const sh_span *span, int pos)
{
    int left = span->pos + span->count - 1 - pos;
    return pos + 1 + min_int(left, ahead(job));
}

static int span_tiles(const struct job *job, const sh_span *span)
{
    return job->groups * ((span->count * job->group_heads + ROWS - 1) / ROWS);
}

/* Tile `idx` of a span. All groups get as many tiles as the largest needs; surplus ones of smaller
 * groups have no rows. */
static struct tile tile_at(const struct job *job, const sh_span *span, int idx)
{
    int group = idx % job->groups;
    struct tile t = {.span = span, .row_first = idx / job->groups * ROWS};
    t.head_first = job->group_first[group];
    t.heads = job->group_first[group + 1] - t.head_first;
    t.kv_head = job->attn->kv_of[t.head_first];
    t.rows = max_int(0, min_int(ROWS, span->count * t.heads - t.row_first));
    t.key_first = key_first(job, span->pos + t.row_first / t.heads);
    t.key_end = key_end(job, span, span->pos + (t.row_first + max_int(t.rows, 1) - 1) / t.heads);
    return t;
}

static int chunks_end(const struct tile *t)
{
    return (t->key_end + CHUNK - 1) / CHUNK;
}

static int row_pos(const struct tile *t, int row)
{
    return t->span->pos + (t->row_first + row) / t->heads;
}

static int64_t row_token(const struct tile *t, int row)
{
    return t->span->first + (t->row_first + row) / t->heads;
}

static int row_head(const struct tile *t, int row)
{
    return t->head_first + (t->row_first + row) % t->heads;
}

/* The first row whose token is at `pos` or later. */
static int row_at(const struct tile *t, int pos)
{
    return max_int(0, (pos - t->span->pos) * t->heads - t->row_first);
}

static float *out_row(const struct job *job, const struct tile *t, int row)
{
    return job->out + row_token(t, row) * job->out_stride +
           (int64_t)row_head(t, row) * job->kv->shape.v_dim;
}

/* The scale and the change to base 2 go into the queries, which is cheaper than into every score.
 */
static void q_pack(const struct job *job, const struct tile *t, float *to)
{
    const float *q[ROWS];
    int dim = job->kv->shape.k_dim;
    for (int r = 0; r < t->rows; r++)
        q[r] = job->q + row_token(t, r) * job->q_stride + (int64_t)row_head(t, r) * dim;
    job->kernels->q_pack(to, q, t->rows, dim, job->attn->scale * LOG2E);
}

/* Adds the weighted values of a step to the sums. With v_in_k the values of a block are extracted
 * from its keys first, so blocks go one by one; the decay applies to the first of them only. */
static void step_mix(const struct job *job, const struct workspace *ws, int rows,
                     const uint8_t *const *heads, int first, int end, float *sum)
{
    const sh_kv_shape *shape = &job->kv->shape;
    const void *v[SH_STEP_BLOCKS];
    if (!shape->v_in_k) {
        for (int i = first / SH_KV_BLOCK; i * SH_KV_BLOCK < end; i++)
            v[i] = heads[i] + job->layout.values;
        job->kernels->mix[shape->format](sum, ws->s, ws->decay, ws->ends, rows, v, first, end,
                                         job->layout.v_pad);
        return;
    }
    while (first < end) {
        int i = first / SH_KV_BLOCK, stop = min_int(end, (i + 1) * SH_KV_BLOCK);
        v[i] = ws->v;
        job->kernels->v_of_k[shape->format](ws->v, heads[i], shape->v_dim);
        job->kernels->mix[SH_KV_F32](sum, ws->s, ws->decay, ws->ends, rows, v, first, stop,
                                     job->layout.v_pad);
        for (int r = 0; r < rows; r++) ws->decay[r] = 1.0f;
        first = stop;
    }
}

/* The tile's KV head in the block of that position, or in its last block if pos is past the end. */
static const uint8_t *head_at(const struct job *job, const struct tile *t, int pos)
{
    int32_t block = t->span->blocks[min_int(pos, t->key_end - 1) / SH_KV_BLOCK];
    return sh_kv_head_at(job->kv, &job->layout, block, t->kv_head);
}

/* Scores of the blocks [from, to) of the step at `base`. Rows whose token does not see as far as
 * the block are skipped. */
static void step_scores(const struct job *job, const struct workspace *ws, const struct tile *t,
                        const uint8_t **heads, int from, int to, int base)
{
    const sh_kv_shape *shape = &job->kv->shape;
    for (int i = from; i < to; i++) {
        int pos = base + i * SH_KV_BLOCK, skip = row_at(t, max_int(0, pos - ahead(job)));
        const uint8_t *head = head_at(job, t, pos), *next = head_at(job, t, pos + SH_KV_BLOCK);
        job->kernels->scores[shape->format](ws->s + i * SH_KV_BLOCK, ws->q, skip, t->rows, head,
                                            (const float *)(head + job->layout.k_scales),
                                            shape->k_dim, next,
                                            shape->v_in_k ? next : head + job->layout.values);
        heads[i] = head;
    }
}

/* Keys [base, base + STEP) for all rows of a tile; ws->q has been packed. */
static void step_run(const struct job *job, const struct workspace *ws, const struct tile *t,
                     int base, const struct sums *sums)
{
    const uint8_t *heads[SH_STEP_BLOCKS];
    float scales[STEP], *v_scale = job->kv->shape.format == SH_KV_INT8 ? scales : NULL;
    int first = max_int(t->key_first - base, 0), end = min_int(t->key_end - base, STEP);
    int from = first / SH_KV_BLOCK, to = (end + SH_KV_BLOCK - 1) / SH_KV_BLOCK;
    step_scores(job, ws, t, heads, from, to, base);
    for (int i = from; v_scale != NULL && i < to; i++)
        memcpy(v_scale + i * SH_KV_BLOCK, heads[i] + job->layout.v_scales,
               SH_KV_BLOCK * sizeof(float));
    for (int r = 0; r < t->rows; r++) {
        int pos = row_pos(t, r);
        ws->ends[r] = min_int(key_end(job, t->span, pos) - base, STEP);
        ws->decay[r] = job->kernels->soften(ws->s + r * STEP, from * SH_KV_BLOCK, to * SH_KV_BLOCK,
                                            max_int(key_first(job, pos) - base, 0), ws->ends[r],
                                            v_scale, &sums->top[r], &sums->total[r]);
    }
    step_mix(job, ws, t->rows, heads, first, end, sums->sum);
}

/* A chunk starts from an empty softmax: what it computes depends on its keys and queries only. */
static void chunk_run(const struct job *job, const struct workspace *ws, const struct tile *t,
                      int chunk, const struct sums *sums)
{
    memset(sums->sum, 0, sizeof(float) * t->rows * job->layout.v_pad);
    for (int r = 0; r < t->rows; r++) sums->top[r] = -INFINITY, sums->total[r] = 0.0f;
    for (int base = chunk * CHUNK; base < min_int((chunk + 1) * CHUNK, t->key_end); base += STEP)
        if (base + STEP > t->key_first) step_run(job, ws, t, base, sums);
}

/* Folds the sums of a chunk into the output rows, which hold those of all chunks before it. */
static void chunk_fold(const struct job *job, const struct tile *t, const struct sums *sums,
                       float *top, float *total)
{
    for (int r = 0; r < t->rows; r++)
        job->kernels->fold(out_row(job, t, r), &top[r], &total[r],
                           sums->sum + (int64_t)r * job->layout.v_pad, sums->top[r], sums->total[r],
                           job->kv->shape.v_dim);
}

static void tile_finish(const struct job *job, const struct tile *t, const float *top,
                        const float *total)
{
    for (int r = 0; r < t->rows; r++) {
        const float *sinks = job->attn->sinks;
        float sink = sinks == NULL ? 0.0f : sinks[row_head(t, r)] * LOG2E;
        job->kernels->finish(out_row(job, t, r), top[r], total[r], sinks == NULL ? NULL : &sink,
                             job->kv->shape.v_dim);
    }
}

/* Tiles run from the last to the first: the last ones of a span have the longest contexts, and a
 * long tile that started last would keep the other threads waiting. */
static void tile_run(void *arg, size_t piece, int thread)
{
    const struct job *job = arg;
    int spans = job->batch->span_count;
    int32_t at = job->begin[spans] - 1 - (int32_t)piece;
    int s = sh_span_of(job->begin, spans, at);
    struct tile t = tile_at(job, &job->batch->spans[s], at - job->begin[s]);
    if (t.rows == 0) return;
    struct workspace ws = workspace_at(job, thread);
    q_pack(job, &t, ws.q);
    for (int r = 0; r < t.rows; r++) ws.top[r] = -INFINITY; /* fold sets out and total then */
    for (int chunk = t.key_first / CHUNK; chunk < chunks_end(&t); chunk++) {
        chunk_run(job, &ws, &t, chunk, &ws.chunk);
        chunk_fold(job, &t, &ws.chunk, ws.top, ws.total);
    }
    tile_finish(job, &t, ws.top, ws.total);
}

static struct sums slot_at(const struct job *job, int tile, int idx)
{
    float *p = job->slots + ((int64_t)idx * job->split_count + tile) * job->slot_size;
    return sums_at(p, job->split[tile].rows, job->layout.v_pad);
}

static int round_chunk(const struct job *job, const struct tile *t, int idx)
{
    return t->key_first / CHUNK + job->round * job->chunks_a_round + idx;
}

/* First half of a round: one chunk of one split tile into its slot. Tiles may have fewer chunks
 * than the round. */
static void split_run(void *arg, size_t piece, int thread)
{
    const struct job *job = arg;
    int i = (int)piece % job->split_count, idx = (int)piece / job->split_count;
    const struct tile *t = &job->split[i];
    int chunk = round_chunk(job, t, idx);
    if (chunk >= chunks_end(t)) return;
    struct workspace ws = workspace_at(job, thread);
    struct sums sums = slot_at(job, i, idx);
    q_pack(job, t, ws.q);
    chunk_run(job, &ws, t, chunk, &sums);
}

/* Second half: all chunks of one tile in order, so that the bits are those of tile_run. */
static void split_fold(void *arg, size_t piece, int thread)
{
    const struct job *job = arg;
    const struct tile *t = &job->split[piece];
    float *top = job->split_top + piece * ROWS, *total = job->split_total + piece * ROWS;
    (void)thread;
    for (int idx = 0; idx < job->chunks_a_round; idx++) {
        int chunk = round_chunk(job, t, idx);
        if (chunk >= chunks_end(t)) return;
        struct sums sums = slot_at(job, (int)piece, idx);
        chunk_fold(job, t, &sums, top, total);
        if (chunk == chunks_end(t) - 1) tile_finish(job, t, top, total);
    }
}

/* Slots are sized by the largest of the split tiles, which often have few rows (a single token has
 * one row per query head), so that a round covers as many chunks as the scratch allows. */
static void split_rounds(struct job *job)
{
    int chunks = 0, rows = 0;
    for (int i = 0; i < job->split_count; i++) {
        const struct tile *t = &job->split[i];
        chunks = max_int(chunks, chunks_end(t) - t->key_first / CHUNK);
        rows = max_int(rows, t->rows);
        for (int r = 0; r < t->rows; r++) job->split_top[i * ROWS + r] = -INFINITY;
    }
    job->slot_size = sums_size(rows, job->layout.v_pad);
    job->chunks_a_round = (int)(job->threads * SLOTS * sums_size(ROWS, job->layout.v_pad) /
                                (job->slot_size * job->split_count));
    for (job->round = 0; job->round * job->chunks_a_round < chunks; job->round++) {
        size_t pieces = (size_t)job->split_count * job->chunks_a_round;
        sh_cpu_each(job->cpu, pieces, false, split_run, job);
        sh_cpu_each(job->cpu, (size_t)job->split_count, false, split_fold, job);
    }
}

/* The cost of a tile of the span, in rows times keys. */
static int64_t tile_cost(const struct job *job, const sh_span *span)
{
    int end = span->pos + span->count;
    return (int64_t)min_int(ROWS, span->count * job->group_heads) *
           (end - key_first(job, span->pos));
}

/* A tile that costs more than half of a thread's share would keep the other threads waiting. Fewer
 * than SPLIT_TILES per thread can be that expensive, which bounds the size of job->split. */
static bool split_wanted(const struct job *job, const sh_span *span, int64_t cost_all)
{
    int chunks = (span->pos + span->count - 1) / CHUNK - key_first(job, span->pos) / CHUNK + 1;
    return job->threads > 1 && chunks > 1 &&
           tile_cost(job, span) * SPLIT_TILES * job->threads > cost_all;
}

/* Decides which spans are split. Returns the cost of all tiles, in the unit of tile_cost. */
static int64_t tiles_plan(struct job *job)
{
    int64_t cost_all = 0;
    for (int s = 0; s < job->batch->span_count; s++) {
        const sh_span *span = &job->batch->spans[s];
        cost_all += span_tiles(job, span) * tile_cost(job, span);
    }
    job->begin[0] = 0;
    for (int s = 0; s < job->batch->span_count; s++) {
        const sh_span *span = &job->batch->spans[s];
        int tiles = span_tiles(job, span);
        bool split = split_wanted(job, span, cost_all);
        job->begin[s + 1] = job->begin[s] + (split ? 0 : tiles);
        for (int i = 0; split && i < tiles; i++) {
            struct tile t = tile_at(job, span, i);
            if (t.rows > 0) job->split[job->split_count++] = t;
        }
    }
    return cost_all;
}

void sh_cpu_attend(sh_device *dev, const sh_device_batch *b, const sh_attention *attn,
                   const sh_kv *kv, sh_tensor q, sh_tensor out)
{
    const sh_batch *batch = &b->in;
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_scratch scratch = {.base = cpu->scratch};
    struct job job = {.cpu = cpu,
                      .threads = sh_pool_threads(cpu->pool),
                      .kernels = cpu->level->vector,
                      .attn = attn,
                      .kv = kv,
                      .batch = batch,
                      .q = sh_cpu_f32(q),
                      .out = sh_cpu_f32(out),
                      .q_stride = q.stride,
                      .out_stride = out.stride,
                      .layout = sh_kv_layout_of(&kv->shape)};
    if (attn->heads == 0 || batch->span_count == 0) return;
    place(&job, &scratch, batch->span_count, attn->heads, kv->shape.k_dim, job.layout.v_pad);
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    groups_find(&job);
    int64_t cost = tiles_plan(&job) * (kv->shape.k_dim + kv->shape.v_dim);
    if (job.split_count > 0) split_rounds(&job);
    sh_cpu_each(cpu, (size_t)job.begin[batch->span_count], cost <= ALONE, tile_run, &job);
}

size_t sh_cpu_attend_scratch(const sh_cpu *cpu, const sh_limits *limits)
{
    sh_kv_shape widest = {.k_dim = limits->head_dim, .v_dim = limits->head_dim};
    struct job job = {.threads = sh_pool_threads(cpu->pool)};
    sh_scratch s = {0};
    place(&job, &s, limits->tokens, limits->heads, widest.k_dim, sh_kv_layout_of(&widest).v_pad);
    return s.used;
}
