/* Experts: the tokens of a batch sorted by expert, so that each expert's weights are read once.
 * A slot is one (token, choice) pair; slots are numbered in the order of their experts. */
#include "kernels/cpu/acts.h"

#include <math.h>
#include <string.h>

enum { STEP_MIN = 16 };

struct job {
    sh_cpu *cpu;
    const sh_experts *ex;
    int tokens, topk, slots;
    int32_t *begin; /* [experts + 1] first slot of each expert */
    int32_t *token; /* [slots] */
    int32_t *slot;  /* [tokens, topk] where a choice went */
    sh_acts in;     /* [tokens, cols] */
    sh_acts mid;    /* [slots, rows]: act(gate, up) */
    float *gate;    /* [slots, rows] */
    float *up;      /* [slots, rows] */
    float *out;     /* [slots, hidden] */
};

static void place(struct job *job, sh_scratch *s, int experts, int64_t cols, int64_t rows,
                  int64_t hidden)
{
    size_t slots = (size_t)job->slots;
    job->begin = sh_scratch_take(s, ((size_t)experts + 1) * sizeof(int32_t));
    job->token = sh_scratch_take(s, slots * sizeof(int32_t));
    job->slot = sh_scratch_take(s, slots * sizeof(int32_t));
    job->in = sh_acts_place(s, job->tokens, cols, STEP_MIN);
    job->mid = sh_acts_place(s, job->slots, rows, STEP_MIN);
    job->gate = sh_scratch_take(s, slots * (size_t)rows * sizeof(float));
    job->up = sh_scratch_take(s, slots * (size_t)rows * sizeof(float));
    job->out = sh_scratch_take(s, slots * (size_t)hidden * sizeof(float));
}

static void slots_sort(struct job *job, const int32_t *ids)
{
    int experts = (int)job->ex->gate.count;
    memset(job->begin, 0, ((size_t)experts + 1) * sizeof(int32_t));
    for (int i = 0; i < job->slots; i++) job->begin[ids[i] + 1]++;
    for (int e = 0; e < experts; e++) job->begin[e + 1] += job->begin[e];
    for (int i = 0; i < job->slots; i++) {
        int32_t slot = job->begin[ids[i]]++;
        job->slot[i] = slot;
        job->token[slot] = i / job->topk;
    }
    for (int e = experts; e > 0; e--) job->begin[e] = job->begin[e - 1];
    job->begin[0] = 0;
}

static float act_one(sh_act act, float gate, float up)
{
    switch (act) {
    case SH_ACT_SILU: return gate / (1.0f + expf(-gate)) * up;
    case SH_ACT_GELU_TANH:
        return 0.5f * gate *
               (1.0f + tanhf(0.7978845608f * (gate + 0.044715f * gate * gate * gate))) * up;
    default:
        gate = fminf(gate, 7.0f);
        up = fminf(fmaxf(up, -7.0f), 7.0f);
        return gate / (1.0f + expf(-1.702f * gate)) * (up + 1.0f);
    }
}

static void bias_add(const float *bias, int64_t rows, int expert, float *y, int count)
{
    if (bias == NULL) return;
    for (int i = 0; i < count; i++)
        for (int64_t r = 0; r < rows; r++) y[i * rows + r] += bias[expert * rows + r];
}

static void stack_dot(const struct job *job, const sh_matrix *m, int expert, const sh_acts *acts,
                      int count, const float *bias, float *y)
{
    sh_panel p = sh_panel_of(&m->quant, m->cols);
    sh_acts_dot(job->cpu, &p, (const uint8_t *)m->data + (size_t)expert * m->stride, m->rows, acts,
                count, y, m->rows);
    bias_add(bias, m->rows, expert, y, count);
}

static void expert_run(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    const sh_experts *ex = job->ex;
    int expert = (int)piece, first = job->begin[expert], count = job->begin[expert + 1] - first;
    int64_t rows = ex->gate.rows;
    (void)thread;
    if (count == 0) return;
    sh_acts in = job->in;
    in.pick = job->token + first;
    float *gate = job->gate + first * rows, *up = job->up + first * rows;
    stack_dot(job, &ex->gate, expert, &in, count, ex->gate_bias, gate);
    stack_dot(job, &ex->up, expert, &in, count, ex->up_bias, up);
    for (int64_t i = 0; i < count * rows; i++) gate[i] = act_one(ex->act, gate[i], up[i]);

    sh_panel p = sh_panel_of(&ex->down.quant, ex->down.cols);
    sh_acts mid = job->mid;
    mid.q += first * mid.q_stride;
    mid.d += first * mid.d_stride;
    mid.dsum += first * mid.d_stride;
    mid.x = gate;
    mid.x_stride = rows;
    for (int i = 0; i < count && sh_acts_are_codes(job->cpu, &p); i++)
        sh_acts_fill(job->cpu, &mid, i, gate + i * rows, p.cols, p.step);
    stack_dot(job, &ex->down, expert, &mid, count, ex->down_bias, job->out + first * ex->down.rows);
}

static void token_sum(const struct job *job, int token, const float *weights, float *y)
{
    int64_t hidden = job->ex->down.rows;
    memset(y, 0, (size_t)hidden * sizeof(*y));
    for (int k = 0; k < job->topk; k++) {
        int i = token * job->topk + k;
        const float *out = job->out + job->slot[i] * hidden;
        for (int64_t c = 0; c < hidden; c++) y[c] += weights[i] * out[c];
    }
}

void sh_cpu_experts(sh_device *dev, const sh_experts *ex, const float *x, int tokens,
                    const int32_t *ids, const float *weights, int topk, float *y)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    sh_scratch scratch = {.base = cpu->scratch};
    struct job job = {.cpu = cpu, .ex = ex, .tokens = tokens, .topk = topk, .slots = tokens * topk};
    place(&job, &scratch, (int)ex->gate.count, ex->gate.cols, ex->gate.rows, ex->down.rows);
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    slots_sort(&job, ids);
    sh_panel p = sh_panel_of(&ex->gate.quant, ex->gate.cols);
    job.in.x = x;
    job.in.x_stride = p.cols;
    for (int t = 0; t < tokens && sh_acts_are_codes(cpu, &p); t++)
        sh_acts_fill(cpu, &job.in, t, x + t * p.cols, p.cols, p.step);
    sh_cpu_each(cpu, (size_t)ex->gate.count, false, expert_run, &job);
    for (int t = 0; t < tokens; t++) token_sum(&job, t, weights, y + t * ex->down.rows);
}

size_t sh_cpu_experts_scratch(const sh_limits *limits)
{
    sh_scratch s = {0};
    struct job job = {
        .tokens = limits->tokens, .topk = limits->topk, .slots = limits->tokens * limits->topk};
    if (limits->experts > 0)
        place(&job, &s, limits->experts, limits->cols, limits->rows, limits->hidden);
    return s.used;
}
