/* Experts: the tokens of a batch are sorted by expert, so that the weights of each expert are read
 * once for all its tokens.
 *
 * A slot is one (token, choice) pair; slots are numbered in the order of their experts. The work
 * runs in two phases. In the first, a piece is a stripe of rows of gate and up of one expert, and
 * ends in act(gate, up), quantized right away as the input of down. In the second, a piece is a
 * stripe of rows of down for all experts; it finishes by summing the slots of each token, in the
 * order of the token's choices. So no sum depends on the batch or on the number of threads, and no
 * two threads write to the same output. */
#include "kernels/cpu/acts.h"

#include <string.h>

enum {
    STRIPE = 64,     /* rows; a multiple of every step: a stripe of act(gate, up) is whole steps */
    PIECES_EACH = 4, /* pieces per thread; with fewer, stripes are made smaller */
    STEP_MIN = 16,
    TILE = SH_ACTS_TILE,
};

struct job {
    sh_cpu *cpu;
    const sh_experts *ex;
    sh_panel gate, up, down;
    bool in_codes, mid_codes;
    int topk, slots, used;
    const float *weights;
    float *y;
    int64_t y_stride;
    int32_t *expert; /* [used] the experts that were chosen */
    int32_t *begin;  /* [used + 1] first slot of each */
    int32_t *place;  /* [experts] counts, then the next free slot, while sorting */
    int32_t *token;  /* [slots] */
    int32_t *slot;   /* [tokens, topk] the slot of each choice */
    sh_acts in;      /* [slots, cols]; a single token is quantized once for all its slots */
    sh_acts mid;     /* [slots, rows] */
    float *mid_x;    /* [slots, rows], when down does not use codes */
    float *out;      /* [threads][slots, STRIPE] */
    int64_t stripe;  /* rows of down */
};

static void job_place(struct job *job, sh_scratch *s, int threads, int experts, int tokens,
                      int64_t cols, int64_t rows, int steps[2])
{
    size_t slots = (size_t)job->slots;
    job->expert = sh_scratch_take(s, (size_t)experts * sizeof(int32_t));
    job->begin = sh_scratch_take(s, ((size_t)experts + 1) * sizeof(int32_t));
    job->place = sh_scratch_take(s, (size_t)experts * sizeof(int32_t));
    job->token = sh_scratch_take(s, slots * sizeof(int32_t));
    job->slot = sh_scratch_take(s, slots * sizeof(int32_t));
    job->in = sh_acts_place(s, tokens == 1 ? 1 : job->slots, cols, steps[0]);
    job->mid = sh_acts_place(s, job->slots, rows, steps[1]);
    job->mid_x = sh_scratch_take(s, slots * (size_t)rows * sizeof(float));
    job->out = sh_scratch_take(s, (size_t)threads * slots * STRIPE * sizeof(float));
}

/* A counting sort by expert; it is stable, so tokens stay in order. */
static void slots_sort(struct job *job, const int32_t *ids, int experts)
{
    memset(job->place, 0, (size_t)experts * sizeof(int32_t));
    for (int i = 0; i < job->slots; i++) job->place[ids[i]]++;
    int32_t next = 0;
    job->used = 0;
    for (int e = 0; e < experts; e++) {
        int32_t count = job->place[e];
        if (count == 0) continue;
        job->expert[job->used] = e;
        job->place[e] = next;
        job->begin[job->used++] = next;
        next += count;
    }
    job->begin[job->used] = next;
    for (int i = 0; i < job->slots; i++) {
        job->slot[i] = job->place[ids[i]]++;
        job->token[job->slot[i]] = i / job->topk;
    }
}

/* The input of one expert: its slots, tiled from its first slot on. A single token has only one
 * input, which all its experts share. */
static sh_acts input_of(const struct job *job, int used)
{
    int first = job->begin[used];
    if (job->in.tokens == 1) return job->in;
    return sh_acts_part(&job->in, first, job->begin[used + 1] - first, job->gate.step);
}

static sh_acts middle_of(const struct job *job, int used)
{
    int first = job->begin[used];
    return sh_acts_part(&job->mid, first, job->begin[used + 1] - first, job->down.step);
}

static void input_fill(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    (void)thread;
    if (job->in.tokens == 1) {
        sh_acts_fill(job->cpu, &job->in, 0, 0, job->in.x, job->gate.cols, job->gate.step);
        return;
    }
    sh_acts in = input_of(job, (int)piece);
    for (int t = 0; t < in.tokens; t++)
        sh_acts_fill(job->cpu, &in, t, 0, sh_acts_x(&in, t), job->gate.cols, job->gate.step);
}

/* Rows [row, row + rows) of one matrix of a stack, with its bias. */
static void stripe_dot(const struct job *job, const sh_matrix *m, const sh_panel *p, int expert,
                       int64_t row, int64_t rows, const sh_acts *a, const float *bias, float *y)
{
    const uint8_t *w = (const uint8_t *)m->data + (size_t)expert * m->stride;
    sh_acts_dot(job->cpu, p, w + (size_t)(row / SH_PANEL_ROWS) * p->panel_bytes, rows, a, y,
                STRIPE);
    if (bias == NULL) return;
    bias += expert * m->rows + row;
    for (int t = 0; t < a->tokens; t++)
        for (int64_t r = 0; r < rows; r++) y[t * STRIPE + r] += bias[r];
}

/* A stripe of act(gate, up) of one expert, a tile of tokens at a time. */
static void middle_run(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    const sh_experts *ex = job->ex;
    float gate[TILE * STRIPE], up[TILE * STRIPE];
    size_t stripes = (size_t)((ex->gate.rows + STRIPE - 1) / STRIPE);
    int used = (int)(piece / stripes), expert = job->expert[used];
    int64_t row = (int64_t)(piece % stripes) * STRIPE, left = ex->gate.rows - row;
    int64_t rows = left < STRIPE ? left : STRIPE;
    sh_acts in = input_of(job, used), mid = middle_of(job, used);
    (void)thread;
    for (int t = 0; t < in.tokens; t += TILE) {
        sh_acts tile = sh_acts_part(&in, t, sh_acts_tile(&in, t), job->gate.step);
        stripe_dot(job, &ex->gate, &job->gate, expert, row, rows, &tile, ex->gate_bias, gate);
        stripe_dot(job, &ex->up, &job->up, expert, row, rows, &tile, ex->up_bias, up);
        for (int i = 0; i < tile.tokens; i++) {
            float *h = gate + i * STRIPE;
            job->cpu->level->vector->act(ex->act, h, h, up + i * STRIPE, rows);
            if (job->mid_codes)
                sh_acts_fill(job->cpu, &mid, t + i, row, h, rows, job->down.step);
            else
                memcpy((float *)sh_acts_x(&mid, t + i) + row, h, (size_t)rows * sizeof(float));
        }
    }
}

/* A stripe of the outputs: the products of all experts, then the sum of each token. */
static void output_run(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    const sh_matrix *down = &job->ex->down;
    float *out = job->out + (size_t)thread * (size_t)job->slots * STRIPE;
    int64_t row = (int64_t)piece * job->stripe, left = down->rows - row;
    int64_t rows = left < job->stripe ? left : job->stripe;
    for (int u = 0; u < job->used; u++) {
        sh_acts mid = middle_of(job, u);
        stripe_dot(job, down, &job->down, job->expert[u], row, rows, &mid, job->ex->down_bias,
                   out + job->begin[u] * STRIPE);
    }
    for (int i = 0; i < job->slots; i += job->topk) {
        float *y = job->y + i / job->topk * job->y_stride + row;
        memset(y, 0, (size_t)rows * sizeof(*y));
        for (int k = i; k < i + job->topk; k++)
            for (int64_t r = 0; r < rows; r++)
                y[r] += job->weights[k] * out[job->slot[k] * STRIPE + r];
    }
}

static void job_run(struct job *job, const int32_t *ids)
{
    sh_cpu *cpu = job->cpu;
    int threads = sh_pool_threads(cpu->pool);
    int64_t hidden = job->ex->down.rows;
    slots_sort(job, ids, (int)job->ex->gate.count);
    job->in.pick = job->in.tokens == 1 ? NULL : job->token;
    if (job->in_codes)
        sh_cpu_each(cpu, job->in.tokens == 1 ? 1 : (size_t)job->used, false, input_fill, job);
    size_t stripes = (size_t)((job->ex->gate.rows + STRIPE - 1) / STRIPE);
    sh_cpu_each(cpu, (size_t)job->used * stripes, false, middle_run, job);
    /* The second phase has few pieces in a narrow model: cut them smaller for many threads. */
    job->stripe = STRIPE;
    while (job->stripe > SH_PANEL_ROWS && hidden / job->stripe < PIECES_EACH * threads)
        job->stripe /= 2;
    sh_cpu_each(cpu, (size_t)((hidden + job->stripe - 1) / job->stripe), false, output_run, job);
}

void sh_cpu_experts(sh_device *dev, const sh_experts *ex, sh_tensor x, int tokens,
                    const int32_t *ids, const float *weights, int topk, sh_tensor y)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_scratch scratch = {.base = cpu->scratch};
    struct job job = {
        .cpu = cpu,
        .ex = ex,
        .gate = sh_panel_of(&ex->gate.quant, ex->gate.cols),
        .up = sh_panel_of(&ex->up.quant, ex->up.cols),
        .down = sh_panel_of(&ex->down.quant, ex->down.cols),
        .topk = topk,
        .slots = tokens * topk,
        .weights = weights,
        .y = sh_cpu_f32(y),
        .y_stride = y.stride,
    };
    job.in_codes = sh_acts_are_codes(cpu, &job.gate);
    job.mid_codes = sh_acts_are_codes(cpu, &job.down);
    SH_ASSERT(sh_acts_are_codes(cpu, &job.up) == job.in_codes && job.up.step == job.gate.step);
    int steps[2] = {job.in_codes ? job.gate.step : STEP_MIN,
                    job.mid_codes ? job.down.step : STEP_MIN};
    job_place(&job, &scratch, sh_pool_threads(cpu->pool), (int)ex->gate.count, tokens,
              ex->gate.cols, ex->gate.rows, steps);
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    job.in.x = sh_cpu_f32(x);
    job.in.x_stride = x.stride;
    job.mid.x = job.mid_x;
    job.mid.x_stride = ex->gate.rows;
    job_run(&job, ids);
}

size_t sh_cpu_experts_scratch(const sh_cpu *cpu, const sh_limits *limits)
{
    sh_scratch s = {0};
    struct job job = {.topk = limits->topk, .slots = limits->tokens * limits->topk};
    int steps[2] = {STEP_MIN, STEP_MIN};
    if (limits->experts > 0)
        job_place(&job, &s, sh_pool_threads(cpu->pool), limits->experts, limits->tokens,
                  limits->cols, limits->expert_rows, steps);
    return s.used;
}
