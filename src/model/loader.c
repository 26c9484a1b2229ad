/* Loads weights: plan first, then read and pack on several threads.
 *
 * While matrices and vectors are declared, the loader only adds up sizes and appends jobs. Nothing
 * has an address yet, since the one mapping for everything is made when the total is known.
 * sh_loader_run then maps it, fills in all the addresses and numbers the pieces: a job (one matrix
 * of a stack, or one vector) is cut into pieces of chunk_rows rows, and the threads take pieces
 * from a shared counter until none is left. Pieces are small, so threads finish together although
 * jobs differ in size by orders of magnitude.
 *
 * Invariants: chunk_rows is a multiple of the device's pack_rows, so that no two pieces touch the
 * same packed rows and no locks are needed. A thread's staging buffers are all the extra memory
 * there is: file contents are never held as a whole. Files are read with pread, not mapped: a file
 * that shrinks gives an error and not SIGBUS. */
#include "model/loader.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/pool.h"
#include "kernels/half.h"
#include "model/dequant.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN = 4096,          /* of a matrix in device memory */
    VECTOR_ALIGN = 64,     /* of a vector */
    CHUNK_BYTES = 1 << 20, /* size of a read, unless pack_rows rows are more */
    PROGRESS_EVERY = 1 << 24,
};

typedef enum { JOB_PACK, JOB_TRANSPOSE, JOB_FLOATS, JOB_VECTOR } job_kind;

/* One matrix of a stack, or one vector; cut into pieces of chunk_rows. */
typedef struct {
    job_kind kind;
    sh_matrix *m;
    int64_t index;
    sh_source source;
    sh_vector_source vector;
    const float **out; /* FLOATS and VECTOR: where the address goes */
    size_t offset;     /* of their data in the memory */
    int64_t row_first;
    int64_t col_first;
    int64_t rows; /* of the job */
    int64_t cols;
    int64_t chunk_rows;
    size_t first_piece;
} job;

typedef struct {
    sh_matrix *m;
    size_t offset;
} place;

struct sh_loader {
    const sh_tensors *set;
    sh_device *dev;
    size_t size; /* of the memory */
    uint8_t *memory;
    place *places;
    size_t place_count;
    job *jobs;
    size_t job_count;
    uint64_t total;
    /* only while it runs */
    sh_pool *pool;
    const sh_load_opts *opts;
    size_t pieces;
    sh_err *errs; /* one per thread */
    atomic_bool failed;
    atomic_uint_least64_t done;
};

/* The buffers of a thread; each grows to its largest chunk and is reused. */
typedef struct {
    sh_buf w;
    sh_buf scales;
    sh_buf biases;
    sh_buf floats;
    sh_buf packed;
} staging;

sh_loader *sh_loader_create(const sh_tensors *set, sh_device *dev)
{
    sh_loader *loader = sh_alloc(sizeof(*loader));
    loader->set = set;
    loader->dev = dev;
    return loader;
}

void sh_loader_free(sh_loader *loader)
{
    if (loader == NULL) return;
    free(loader->places);
    free(loader->jobs);
    free(loader);
}

static size_t take(sh_loader *loader, size_t size, size_t align)
{
    size_t offset = (loader->size + align - 1) / align * align;
    loader->size = offset + size;
    return offset;
}

void sh_loader_place(sh_loader *loader, sh_matrix *m)
{
    m->stride = loader->dev->ops->matrix_bytes(loader->dev, &m->quant, m->rows, m->cols);
    loader->places = sh_realloc_array(loader->places, loader->place_count + 1,
                                      sizeof(*loader->places));
    loader->places[loader->place_count++] = (place){
        .m = m, .offset = take(loader, m->stride * (size_t)m->count, ALIGN)};
}

static job *add_job(sh_loader *loader, job_kind kind, int64_t rows, int64_t cols)
{
    loader->jobs = sh_realloc_array(loader->jobs, loader->job_count + 1, sizeof(*loader->jobs));
    job *j = &loader->jobs[loader->job_count++];
    *j = (job){.kind = kind, .rows = rows, .cols = cols, .chunk_rows = rows};
    return j;
}

static size_t row_bytes(const sh_source *source, int64_t cols)
{
    size_t scales = sh_quant_scale_bytes(&source->quant, cols);
    return sh_quant_row_bytes(&source->quant, cols) + scales * (source->biases != NULL ? 2 : 1);
}

/* Rows of a piece, always a multiple of pack_rows as matrix_pack requires. */
static int64_t chunk_rows(const sh_loader *loader, size_t bytes_each)
{
    int64_t unit = loader->dev->ops->pack_rows;
    int64_t rows = (int64_t)(CHUNK_BYTES / (bytes_each + 1)) / unit * unit;
    return rows < unit ? unit : rows;
}

void sh_loader_fill(sh_loader *loader, sh_matrix *m, int64_t index, const sh_source *source,
                    int64_t row_first, int64_t col_first)
{
    job *j = add_job(loader, source->transposed ? JOB_TRANSPOSE : JOB_PACK, m->rows, m->cols);
    SH_ASSERT(row_first + m->rows <= source->rows && col_first + m->cols <= source->cols);
    j->m = m;
    j->index = index;
    j->source = *source;
    j->row_first = row_first;
    j->col_first = col_first;
    size_t bytes = row_bytes(source, m->cols);
    loader->total += bytes * (uint64_t)m->rows;
    /* A quantized source to be transposed is read as a whole: a group of the file runs across our
     * rows, and cannot be cut. Such sources are small (the latent projection of MLA). */
    if (!source->transposed || source->quant.group == 0) j->chunk_rows = chunk_rows(loader, bytes);
}

void sh_loader_vector(sh_loader *loader, const float **out, const sh_vector_source *source)
{
    job *j = add_job(loader, JOB_VECTOR, source->rows, source->count);
    j->out = out;
    j->vector = *source;
    j->offset = take(loader, (size_t)(source->rows * source->count) * sizeof(float), VECTOR_ALIGN);
    loader->total += source->tensor->size;
}

void sh_loader_floats(sh_loader *loader, const float **out, const sh_source *source)
{
    job *j = add_job(loader, JOB_FLOATS, source->rows, source->cols);
    j->out = out;
    j->source = *source;
    j->offset = take(loader, (size_t)(source->rows * source->cols) * sizeof(float), VECTOR_ALIGN);
    loader->total += row_bytes(source, source->cols) * (uint64_t)source->rows;
}

/* A window on a tensor: columns [col_first, col_first + cols) of rows row, row + step, ... */
typedef struct {
    int64_t file_cols;
    int64_t row;
    int64_t step;
    int64_t count;
    int64_t col_first;
    int64_t cols;
} window;

typedef size_t (*row_size_fn)(const sh_quant *quant, int64_t cols);

/* The bytes of the window, row after row. Adjacent whole rows are a single read. */
static sh_status read_window(const sh_loader *loader, const sh_stored_tensor *tensor,
                             const sh_quant *quant, row_size_fn size_of, const window *win,
                             sh_buf *buf, sh_err *err)
{
    size_t file_row = size_of(quant, win->file_cols), len = size_of(quant, win->cols);
    sh_buf_clear(buf);
    char *to = sh_buf_reserve(buf, (size_t)win->count * len);
    if (win->step == 1 && len == file_row)
        return sh_tensors_read(loader->set, tensor, (uint64_t)win->row * file_row, to,
                               (size_t)win->count * len, err);
    for (int64_t i = 0; i < win->count; i++) {
        uint64_t at = (uint64_t)(win->row + i * win->step) * file_row +
                      size_of(quant, win->col_first);
        sh_status status = sh_tensors_read(loader->set, tensor, at, to + (size_t)i * len, len, err);
        if (status != SH_OK) return status;
    }
    return SH_OK;
}

/* Rows as the file stores them, with their scales and biases. */
static sh_status read_source(const sh_loader *loader, const sh_source *s, const window *win,
                             staging *st, sh_raw_rows *raw, sh_err *err)
{
    const sh_quant *q = &s->quant;
    sh_status status = read_window(loader, s->w, q, sh_quant_row_bytes, win, &st->w, err);
    if (status == SH_OK && s->scales != NULL)
        status = read_window(loader, s->scales, q, sh_quant_scale_bytes, win, &st->scales, err);
    if (status == SH_OK && s->biases != NULL)
        status = read_window(loader, s->biases, q, sh_quant_scale_bytes, win, &st->biases, err);
    size_t scale_len = sh_quant_scale_bytes(q, win->cols);
    *raw = (sh_raw_rows){.w = st->w.ptr,
                         .w_stride = sh_quant_row_bytes(q, win->cols),
                         .scales = s->scales != NULL ? st->scales.ptr : NULL,
                         .scales_stride = scale_len,
                         .biases = s->biases != NULL ? st->biases.ptr : NULL,
                         .biases_stride = scale_len};
    return status;
}

static sh_status run_pack(const sh_loader *loader, const job *j, int64_t row, int64_t count,
                          staging *st, sh_err *err)
{
    const sh_source *s = &j->source;
    sh_raw_rows raw;
    window win = {.file_cols = s->cols,
                  .row = s->index * s->file_rows + s->row_first +
                         (j->row_first + row) * s->row_step,
                  .step = s->row_step,
                  .count = count,
                  .col_first = j->col_first,
                  .cols = j->cols};
    sh_status status = read_source(loader, s, &win, st, &raw, err);
    if (status == SH_OK)
        loader->dev->ops->matrix_pack(loader->dev, j->m, j->index, row, count, &raw);
    return status;
}

/* `count` rows of `cols` numbers each, from raw to f32. */
static float *dequant_rows(const sh_quant *quant, const sh_raw_rows *raw, int64_t count,
                           int64_t cols, sh_buf *buf)
{
    sh_buf_clear(buf);
    float *out = (float *)(void *)sh_buf_reserve(buf, (size_t)(count * cols) * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *w = raw->w, *scales = raw->scales, *biases = raw->biases;
        sh_dequant_row(quant, w + (size_t)i * raw->w_stride,
                       scales == NULL ? NULL : scales + (size_t)i * raw->scales_stride,
                       biases == NULL ? NULL : biases + (size_t)i * raw->biases_stride, cols,
                       out + i * cols);
    }
    return out;
}

static void store_float(sh_format format, void *row, int64_t col, float value)
{
    if (format == SH_FORMAT_F32)
        ((float *)row)[col] = value;
    else
        ((uint16_t *)row)[col] = format == SH_FORMAT_F16 ? sh_f32_to_f16(value)
                                                         : sh_f32_to_bf16(value);
}

/* Our rows are columns of the file. Reads the window of these columns from each row of the file
 * that is a column of ours, and transposes it. When the source is quantized the window is as wide
 * as the file, and `skip` selects the columns after dequantization. */
static sh_status run_transpose(const sh_loader *loader, const job *j, int64_t row, int64_t count,
                               staging *st, sh_err *err)
{
    const sh_source *s = &j->source;
    bool whole = s->quant.group != 0;
    int64_t skip = whole ? s->row_first + j->row_first + row : 0;
    window win = {.file_cols = s->file_rows,
                  .row = s->index * s->cols + j->col_first,
                  .step = 1,
                  .count = j->cols,
                  .col_first = whole ? 0 : s->row_first + (j->row_first + row) * s->row_step,
                  .cols = whole ? s->file_rows : (count - 1) * s->row_step + 1};
    sh_raw_rows raw;
    sh_status status = read_source(loader, s, &win, st, &raw, err);
    if (status != SH_OK) return status;
    const float *x = dequant_rows(&s->quant, &raw, win.count, win.cols, &st->floats);
    size_t stride = sh_quant_row_bytes(&j->m->quant, j->cols);
    sh_buf_clear(&st->packed);
    char *out = sh_buf_reserve(&st->packed, (size_t)count * stride);
    for (int64_t r = 0; r < count; r++)
        for (int64_t c = 0; c < j->cols; c++)
            store_float(j->m->quant.format, out + (size_t)r * stride, c,
                        x[c * win.cols + skip + r * s->row_step]);
    raw = (sh_raw_rows){.w = out, .w_stride = stride};
    loader->dev->ops->matrix_pack(loader->dev, j->m, j->index, row, count, &raw);
    return SH_OK;
}

/* A whole matrix to f32, in one piece: routers only. */
static sh_status run_floats(const sh_loader *loader, const job *j, staging *st, sh_err *err)
{
    const sh_source *s = &j->source;
    sh_raw_rows raw;
    window win = {.file_cols = s->cols,
                  .row = s->index * s->file_rows + s->row_first,
                  .step = s->row_step,
                  .count = j->rows,
                  .cols = j->cols};
    sh_status status = read_source(loader, s, &win, st, &raw, err);
    if (status != SH_OK) return status;
    const float *x = dequant_rows(&s->quant, &raw, j->rows, j->cols, &st->floats);
    loader->dev->ops->upload(loader->dev, loader->memory + j->offset, x,
                             (size_t)(j->rows * j->cols) * sizeof(float));
    return SH_OK;
}

/* Reads the whole tensor even for a part of it: vectors are small, and parts may be strided. */
static sh_status run_vector(const sh_loader *loader, const job *j, staging *st, sh_err *err)
{
    const sh_vector_source *v = &j->vector;
    size_t size = sh_tensor_type_size(v->tensor->type);
    sh_buf_clear(&st->w);
    sh_buf_clear(&st->floats);
    char *data = sh_buf_reserve(&st->w, v->tensor->size);
    float *out = (float *)(void *)sh_buf_reserve(&st->floats,
                                                 (size_t)(v->rows * v->count) * sizeof(float));
    sh_status status = sh_tensors_read(loader->set, v->tensor, 0, data, v->tensor->size, err);
    if (status != SH_OK) return status;
    for (int64_t r = 0; r < v->rows; r++)
        sh_floats_to_f32(v->tensor->type, data + (size_t)(r * v->row_len + v->first) * size,
                         v->step, v->count, out + r * v->count);
    for (int64_t i = 0; i < v->rows * v->count; i++) out[i] += v->plus;
    loader->dev->ops->upload(loader->dev, loader->memory + j->offset, out,
                             (size_t)(v->rows * v->count) * sizeof(float));
    return SH_OK;
}

/* The job that a piece belongs to: the last one whose first_piece is not after it. */
static const job *find_job(const sh_loader *loader, size_t piece)
{
    size_t low = 0, high = loader->job_count;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (loader->jobs[mid].first_piece <= piece)
            low = mid;
        else
            high = mid;
    }
    return &loader->jobs[low];
}

static sh_status run_piece(sh_loader *loader, size_t piece, staging *st, sh_err *err)
{
    const job *j = find_job(loader, piece);
    int64_t row = (int64_t)(piece - j->first_piece) * j->chunk_rows;
    int64_t count = j->rows - row < j->chunk_rows ? j->rows - row : j->chunk_rows;
    uint64_t bytes = j->kind == JOB_VECTOR ? j->vector.tensor->size
                                           : row_bytes(&j->source, j->cols) * (uint64_t)count;
    /* Counted up front: this is for the progress display only. */
    atomic_fetch_add_explicit(&loader->done, bytes, memory_order_relaxed);
    switch (j->kind) {
    case JOB_PACK: return run_pack(loader, j, row, count, st, err);
    case JOB_TRANSPOSE: return run_transpose(loader, j, row, count, st, err);
    case JOB_FLOATS: return run_floats(loader, j, st, err);
    case JOB_VECTOR: return run_vector(loader, j, st, err);
    }
    return SH_OK;
}

static void report(const sh_loader *loader, uint64_t *last)
{
    uint64_t done = atomic_load_explicit(&loader->done, memory_order_relaxed);
    if (loader->opts->progress == NULL || done - *last < PROGRESS_EVERY) return;
    *last = done;
    loader->opts->progress(loader->opts->progress_ctx, done, loader->total);
}

/* The first error makes all threads stop at their next piece. Only thread 0, the caller's, reports
 * progress, so the callback needs no locks. */
static void run_thread(void *arg, int thread, int threads)
{
    sh_loader *loader = arg;
    staging st = {0};
    uint64_t last = 0;
    (void)threads;
    for (size_t piece; (piece = sh_pool_next(loader->pool)) < loader->pieces;) {
        if (atomic_load(&loader->failed)) break;
        if (run_piece(loader, piece, &st, &loader->errs[thread]) != SH_OK)
            atomic_store(&loader->failed, true);
        if (thread == 0) report(loader, &last);
    }
    sh_buf_reset(&st.w);
    sh_buf_reset(&st.scales);
    sh_buf_reset(&st.biases);
    sh_buf_reset(&st.floats);
    sh_buf_reset(&st.packed);
}

/* Fills in the addresses of everything that was declared, and numbers the pieces. Only now are the
 * arrays of jobs and places final. */
static void assign_addresses(sh_loader *loader)
{
    for (size_t i = 0; i < loader->place_count; i++)
        loader->places[i].m->data = loader->memory + loader->places[i].offset;
    loader->pieces = 0;
    for (size_t i = 0; i < loader->job_count; i++) {
        job *j = &loader->jobs[i];
        if (j->out != NULL) *j->out = (const float *)(const void *)(loader->memory + j->offset);
        j->first_piece = loader->pieces;
        loader->pieces += (size_t)((j->rows + j->chunk_rows - 1) / j->chunk_rows);
    }
}

static sh_status first_error(const sh_loader *loader, int threads, sh_err *err)
{
    for (int i = 0; i < threads; i++) {
        if (loader->errs[i].status == SH_OK) continue;
        *err = loader->errs[i];
        return err->status;
    }
    return SH_OK;
}

sh_status sh_loader_run(sh_loader *loader, const sh_load_opts *opts, void **memory, size_t *size,
                        sh_err *err)
{
    int threads = opts->threads > 0 ? opts->threads : sh_cpu_count();
    void *map = NULL;
    loader->opts = opts;
    sh_status status = loader->dev->ops->map(loader->dev, loader->size + 1, "weights", &map, err);
    if (status != SH_OK) return status;
    loader->memory = map;
    assign_addresses(loader);
    status = sh_pool_create(threads, &loader->pool, err);
    if (status == SH_OK) {
        loader->errs = sh_alloc_array((size_t)threads, sizeof(*loader->errs));
        sh_pool_run(loader->pool, run_thread, loader);
        status = first_error(loader, threads, err);
        free(loader->errs);
        sh_pool_free(loader->pool);
    }
    if (status == SH_OK) {
        *memory = map;
        *size = loader->size + 1;
        if (opts->progress != NULL)
            opts->progress(opts->progress_ctx, loader->total, loader->total);
    } else {
        loader->dev->ops->unmap(loader->dev, map, loader->size + 1);
    }
    return status;
}
