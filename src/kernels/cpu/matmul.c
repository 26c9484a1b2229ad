/* Products of activations with matrices. Rows are cut into pieces that the threads take one by one;
 * products that share an input are one list of pieces. */
#include "kernels/cpu/acts.h"

enum {
    PIECE_ROWS = 64,
    HEADS_TILE = 16,     /* tokens that a thread quantizes at once for one head */
    ALONE_OPS = 1 << 16, /* a product of fewer multiplications is not worth a wake-up */
    STEP_MIN = 16,
};

struct job {
    sh_cpu *cpu;
    const sh_product *products;
    int count;
    const sh_acts *acts;
    int tokens;
};

static size_t product_pieces(const sh_product *product)
{
    return (size_t)((product->w->rows + PIECE_ROWS - 1) / PIECE_ROWS);
}

static void bias_add(const float *bias, float *y, int64_t y_stride, int tokens, int64_t rows)
{
    if (bias == NULL) return;
    for (int t = 0; t < tokens; t++)
        for (int64_t r = 0; r < rows; r++) y[t * y_stride + r] += bias[r];
}

static void piece_run(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    const sh_product *product = job->products;
    (void)thread;
    for (; piece >= product_pieces(product); product++) piece -= product_pieces(product);
    const sh_matrix *w = product->w;
    sh_panel p = sh_panel_of(&w->quant, w->cols);
    int64_t row = (int64_t)piece * PIECE_ROWS;
    int64_t rows = w->rows - row < PIECE_ROWS ? w->rows - row : PIECE_ROWS;
    const uint8_t *panel = (const uint8_t *)w->data + (size_t)(row / SH_PANEL_ROWS) * p.panel_bytes;
    sh_acts_dot(job->cpu, &p, panel, rows, job->acts, job->tokens, product->y + row,
                product->y_stride);
    bias_add(product->bias == NULL ? NULL : product->bias + row, product->y + row,
             product->y_stride, job->tokens, rows);
}

struct fill {
    const sh_cpu *cpu;
    sh_acts acts;
    int64_t cols;
    int step;
};

static void fill_run(void *arg, size_t piece, int thread)
{
    struct fill *f = arg;
    (void)thread;
    sh_acts_fill(f->cpu, &f->acts, (int64_t)piece, f->acts.x + (int64_t)piece * f->acts.x_stride,
                 f->cols, f->step);
}

/* Runs the leading products that take the same form of the input; returns how many. */
static int run_alike(sh_cpu *cpu, const sh_product *products, int count, const float *x,
                     int64_t x_stride, int tokens)
{
    sh_scratch scratch = {.base = cpu->scratch};
    sh_panel p = sh_panel_of(&products->w->quant, products->w->cols);
    struct fill fill = {cpu, {0}, p.cols, p.step};
    bool codes = sh_acts_are_codes(cpu, &p);
    if (codes) fill.acts = sh_acts_place(&scratch, tokens, p.cols, p.step);
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    fill.acts.x = x;
    fill.acts.x_stride = x_stride;
    if (codes) sh_cpu_each(cpu, (size_t)tokens, tokens * p.cols < ALONE_OPS, fill_run, &fill);

    struct job job = {cpu, products, 0, &fill.acts, tokens};
    size_t pieces = 0;
    int64_t rows = 0;
    for (; job.count < count; job.count++) {
        sh_panel next = sh_panel_of(&products[job.count].w->quant, p.cols);
        if (sh_acts_are_codes(cpu, &next) != codes || (codes && next.step != p.step)) break;
        pieces += product_pieces(&products[job.count]);
        rows += products[job.count].w->rows;
    }
    sh_cpu_each(cpu, pieces, rows * p.cols * tokens < ALONE_OPS, piece_run, &job);
    return job.count;
}

void sh_cpu_matmul(sh_device *dev, const sh_product *products, int count, const float *x,
                   int64_t x_stride, int tokens)
{
    while (count > 0 && tokens > 0) {
        int done = run_alike(sh_cpu_of(dev), products, count, x, x_stride, tokens);
        products += done;
        count -= done;
    }
}

struct heads {
    sh_cpu *cpu;
    const sh_matrix *w;
    sh_panel p;
    const float *x;
    int64_t x_token_stride, x_head_stride;
    float *y;
    int64_t y_token_stride, y_head_stride;
    int tokens;
    uint8_t *scratch; /* of thread 0; others follow */
    size_t scratch_each;
};

static size_t heads_scratch(int64_t cols, int step)
{
    sh_scratch s = {0};
    sh_acts_place(&s, HEADS_TILE, cols, step);
    return s.used;
}

/* One head, HEADS_TILE tokens at a time. */
static void heads_run(void *arg, size_t head, int thread)
{
    struct heads *h = arg;
    sh_scratch scratch = {.base = h->scratch + (size_t)thread * h->scratch_each};
    const uint8_t *w = (const uint8_t *)h->w->data + head * h->w->stride;
    bool codes = sh_acts_are_codes(h->cpu, &h->p);
    sh_acts acts = {0};
    if (codes) acts = sh_acts_place(&scratch, HEADS_TILE, h->p.cols, h->p.step);
    acts.x_stride = h->x_token_stride;
    for (int t = 0; t < h->tokens; t += HEADS_TILE) {
        int count = h->tokens - t < HEADS_TILE ? h->tokens - t : HEADS_TILE;
        acts.x = h->x + t * h->x_token_stride + (int64_t)head * h->x_head_stride;
        for (int i = 0; i < count && codes; i++)
            sh_acts_fill(h->cpu, &acts, i, acts.x + i * acts.x_stride, h->p.cols, h->p.step);
        sh_acts_dot(h->cpu, &h->p, w, h->w->rows, &acts, count,
                    h->y + t * h->y_token_stride + (int64_t)head * h->y_head_stride,
                    h->y_token_stride);
    }
}

void sh_cpu_matmul_heads(sh_device *dev, const sh_matrix *w, const float *x, int64_t x_token_stride,
                         int64_t x_head_stride, float *y, int64_t y_token_stride,
                         int64_t y_head_stride, int tokens)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct heads h = {.cpu = cpu,
                      .w = w,
                      .p = sh_panel_of(&w->quant, w->cols),
                      .x = x,
                      .x_token_stride = x_token_stride,
                      .x_head_stride = x_head_stride,
                      .y = y,
                      .y_token_stride = y_token_stride,
                      .y_head_stride = y_head_stride,
                      .tokens = tokens,
                      .scratch = cpu->scratch};
    if (sh_acts_are_codes(cpu, &h.p)) h.scratch_each = heads_scratch(w->cols, h.p.step);
    SH_ASSERT(h.scratch_each * (size_t)sh_pool_threads(cpu->pool) <= cpu->scratch_size);
    sh_cpu_each(cpu, (size_t)w->count, w->count * w->rows * w->cols * tokens < ALONE_OPS, heads_run,
                &h);
}

size_t sh_cpu_matmul_scratch(const sh_cpu *cpu, const sh_limits *limits)
{
    sh_scratch s = {0};
    sh_acts_place(&s, limits->tokens, limits->cols, STEP_MIN);
    size_t heads = heads_scratch(limits->cols, STEP_MIN) * (size_t)sh_pool_threads(cpu->pool);
    return s.used > heads ? s.used : heads;
}
