/* Products of activations with matrices. Rows are cut into pieces that the threads take one by one.
 * Products that share an input (q, k and v; gate and up) are one list of pieces: the input is
 * quantized once, and the threads are woken and joined once. */
#include "kernels/cpu/acts.h"

enum {
    PIECE_ROWS = 64,         /* the weights of a piece stay in the cache of a core for all tokens */
    PIECES_EACH = 4,         /* pieces per thread; with fewer, pieces are made smaller */
    ALONE_NUMBERS = 1 << 15, /* fewer numbers to quantize, or */
    ALONE_PRODUCTS = 1 << 18, /* fewer multiplications, are not worth waking a thread for */
    STEP_MIN = 16,
};

struct job {
    sh_cpu *cpu;
    const sh_product *products;
    sh_acts acts;
    int64_t piece_rows;
};

static size_t product_pieces(const sh_product *product, int64_t piece_rows)
{
    return (size_t)((product->w->rows + piece_rows - 1) / piece_rows);
}

/* Biases are added last, to the finished sums, at every level alike. */
static void bias_add(const float *bias, float *y, int64_t y_stride, int tokens, int64_t rows)
{
    for (int t = 0; t < tokens; t++)
        for (int64_t r = 0; r < rows; r++) y[t * y_stride + r] += bias[r];
}

static void piece_run(void *arg, size_t piece, int thread)
{
    struct job *job = arg;
    const sh_product *product = job->products;
    (void)thread;
    for (size_t count; piece >= (count = product_pieces(product, job->piece_rows)); product++)
        piece -= count;
    const sh_matrix *w = product->w;
    sh_panel p = sh_panel_of(&w->quant, w->cols);
    int64_t row = (int64_t)piece * job->piece_rows;
    int64_t rows = w->rows - row < job->piece_rows ? w->rows - row : job->piece_rows;
    const uint8_t *panel = (const uint8_t *)w->data + (size_t)(row / SH_PANEL_ROWS) * p.panel_bytes;
    float *y = sh_cpu_f32(product->y) + row;
    sh_acts_dot(job->cpu, &p, panel, rows, &job->acts, y, product->y.stride);
    if (product->bias != NULL)
        bias_add(product->bias + row, y, product->y.stride, job->acts.tokens, rows);
}

struct fill {
    const sh_cpu *cpu;
    const sh_acts *acts;
    int64_t cols;
    int step;
};

static void fill_run(void *arg, size_t token, int thread)
{
    struct fill *f = arg;
    int t = (int)token;
    (void)thread;
    sh_acts_fill(f->cpu, f->acts, t, 0, sh_acts_x(f->acts, t), f->cols, f->step);
}

/* How many of the leading products use the input in the same form (f32, or codes of one step size);
 * `rows` is the sum of their rows. */
static int count_alike(const sh_cpu *cpu, const sh_product *products, int count, int64_t *rows)
{
    sh_panel first = sh_panel_of(&products->w->quant, products->w->cols);
    bool codes = sh_acts_are_codes(cpu, &first);
    int alike = 0;
    for (*rows = 0; alike < count; alike++) {
        const sh_matrix *w = products[alike].w;
        sh_panel p = sh_panel_of(&w->quant, w->cols);
        if (sh_acts_are_codes(cpu, &p) != codes || (codes && p.step != first.step)) break;
        *rows += w->rows;
    }
    return alike;
}

static void run_alike(sh_cpu *cpu, const sh_product *products, int count, int64_t rows, sh_tensor x,
                      int tokens)
{
    sh_scratch scratch = {.base = cpu->scratch};
    sh_panel p = sh_panel_of(&products->w->quant, products->w->cols);
    struct job job = {.cpu = cpu, .products = products, .piece_rows = PIECE_ROWS};
    bool codes = sh_acts_are_codes(cpu, &p);
    if (codes) job.acts = sh_acts_place(&scratch, tokens, p.cols, p.step);
    SH_ASSERT(scratch.used <= cpu->scratch_size);
    job.acts.tokens = tokens;
    job.acts.x = sh_cpu_f32(x);
    job.acts.x_stride = x.stride;
    struct fill fill = {cpu, &job.acts, p.cols, p.step};
    if (codes) sh_cpu_each(cpu, (size_t)tokens, tokens * p.cols < ALONE_NUMBERS, fill_run, &fill);

    /* Small matrices: halve the pieces until every thread has some, down to a single panel. */
    while (job.piece_rows > SH_PANEL_ROWS &&
           rows / job.piece_rows < PIECES_EACH * sh_pool_threads(cpu->pool))
        job.piece_rows /= 2;
    size_t pieces = 0;
    for (int i = 0; i < count; i++) pieces += product_pieces(&products[i], job.piece_rows);
    sh_cpu_each(cpu, pieces, rows * p.cols * tokens < ALONE_PRODUCTS, piece_run, &job);
}

/* Models mix formats (8-bit next to 4-bit): products that need the input in another form start a
 * new run. */
void sh_cpu_matmul(sh_device *dev, const sh_product *products, int count, sh_tensor x, int tokens)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    for (int64_t rows; count > 0 && tokens > 0;) {
        int alike = count_alike(cpu, products, count, &rows);
        run_alike(cpu, products, alike, rows, x, tokens);
        products += alike;
        count -= alike;
    }
}

struct heads {
    sh_cpu *cpu;
    const sh_matrix *w;
    sh_panel p;
    bool codes;
    const float *x;
    int64_t x_token_stride, x_head_stride;
    float *y;
    int64_t y_token_stride, y_head_stride;
    int tokens;
    size_t scratch_each; /* of one thread */
};

static size_t heads_scratch(int64_t cols, int step)
{
    sh_scratch s = {0};
    sh_acts_place(&s, SH_ACTS_TILE, cols, step);
    return s.used;
}

/* One head, a tile of tokens at a time. Every head has an input of its own, so the thread quantizes
 * it itself, into its part of the scratch. */
static void heads_run(void *arg, size_t head, int thread)
{
    struct heads *h = arg;
    const uint8_t *w = (const uint8_t *)h->w->data + head * h->w->stride;
    const float *x = h->x + (int64_t)head * h->x_head_stride;
    float *y = h->y + (int64_t)head * h->y_head_stride;
    for (int t = 0; t < h->tokens; t += SH_ACTS_TILE) {
        int count = h->tokens - t < SH_ACTS_TILE ? h->tokens - t : SH_ACTS_TILE;
        sh_scratch scratch = {.base = h->cpu->scratch + (size_t)thread * h->scratch_each};
        sh_acts acts = {0};
        if (h->codes) acts = sh_acts_place(&scratch, count, h->p.cols, h->p.step);
        acts.tokens = count;
        acts.x = x + t * h->x_token_stride;
        acts.x_stride = h->x_token_stride;
        struct fill fill = {h->cpu, &acts, h->p.cols, h->p.step};
        for (int i = 0; i < count && h->codes; i++) fill_run(&fill, (size_t)i, thread);
        sh_acts_dot(h->cpu, &h->p, w, h->w->rows, &acts, y + t * h->y_token_stride,
                    h->y_token_stride);
    }
}

void sh_cpu_matmul_heads(sh_device *dev, const sh_matrix *w, sh_tensor x, int64_t x_head_stride,
                         sh_tensor y, int64_t y_head_stride, int tokens)
{
    sh_cpu *cpu = sh_cpu_of(dev);
    struct heads h = {
        .cpu = cpu,
        .w = w,
        .p = sh_panel_of(&w->quant, w->cols),
        .x = sh_cpu_f32(x),
        .x_token_stride = x.stride,
        .x_head_stride = x_head_stride,
        .y = sh_cpu_f32(y),
        .y_token_stride = y.stride,
        .y_head_stride = y_head_stride,
        .tokens = tokens,
    };
    h.codes = sh_acts_are_codes(cpu, &h.p);
    if (h.codes) h.scratch_each = heads_scratch(w->cols, h.p.step);
    SH_ASSERT(h.scratch_each * (size_t)sh_pool_threads(cpu->pool) <= cpu->scratch_size);
    bool alone = w->count * w->rows * w->cols * tokens < ALONE_PRODUCTS;
    sh_cpu_each(cpu, (size_t)w->count, alone, heads_run, &h);
}

/* The smallest step needs the most space: it has the most scales. */
size_t sh_cpu_matmul_scratch(const sh_cpu *cpu, const sh_limits *limits)
{
    sh_scratch s = {0};
    sh_acts_place(&s, limits->tokens, limits->cols, STEP_MIN);
    size_t heads = heads_scratch(limits->cols, STEP_MIN) * (size_t)sh_pool_threads(cpu->pool);
    return s.used > heads ? s.used : heads;
}
