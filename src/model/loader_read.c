/* From the files into the layout of the device, through the buffers of a thread.
 *
 * A thread's staging buffers are all the extra memory there is: file contents are never held as a
 * whole. Files are read with pread, not mapped: a file that shrinks gives an error and not SIGBUS.
 */
#include "kernels/half.h"
#include "model/dequant.h"
#include "model/loader_internal.h"

size_t sh_load_row_bytes(const sh_source *source, int64_t cols)
{
    size_t scales = sh_quant_scale_bytes(&source->quant, cols);
    return sh_quant_row_bytes(&source->quant, cols) + scales * (source->biases != NULL ? 2 : 1);
}

/* A window on a tensor, in numbers: columns [col_first, col_first + cols) of rows row, row + step,
 * ... */
typedef struct {
    int64_t file_cols;
    int64_t row;
    int64_t step;
    int64_t count;
    int64_t col_first;
    int64_t cols;
} window;

typedef size_t (*row_size_fn)(const sh_quant *quant, int64_t cols);

/* The bytes of the window, row after row. */
static sh_status read_window(const sh_loader *loader, const sh_stored_tensor *tensor,
                             const sh_quant *quant, row_size_fn size_of, const window *win,
                             sh_buf *buf, sh_err *err)
{
    uint64_t file_row = size_of(quant, win->file_cols);
    sh_window bytes = {.offset = (uint64_t)win->row * file_row + size_of(quant, win->col_first),
                       .stride = (uint64_t)win->step * file_row,
                       .len = size_of(quant, win->cols),
                       .rows = (uint64_t)win->count};
    sh_buf_clear(buf);
    char *to = sh_buf_reserve(buf, (size_t)(bytes.len * bytes.rows));
    return sh_tensors_read_window(loader->set, tensor, &bytes, to, err);
}

/* Rows as the file stores them, with their scales and biases. */
static sh_status read_source(const sh_loader *loader, const sh_source *s, const window *win,
                             sh_load_staging *st, sh_raw_rows *raw, sh_err *err)
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

static sh_status read_packed(const sh_loader *loader, const sh_load_job *j,
                             const sh_matrix_part *part, sh_load_staging *st, sh_err *err)
{
    const sh_source *s = &j->source;
    sh_raw_rows raw;
    window win = {.file_cols = s->cols,
                  .row = s->index * s->file_rows + s->row_first +
                         (j->row_first + part->row) * s->row_step,
                  .step = s->row_step,
                  .count = part->rows,
                  .col_first = j->col_first + part->col,
                  .cols = part->cols};
    sh_status status = read_source(loader, s, &win, st, &raw, err);
    if (status == SH_OK) loader->dev->ops->matrix_pack(loader->dev, j->m, part, &raw);
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
static sh_status read_transposed(const sh_loader *loader, const sh_load_job *j,
                                 const sh_matrix_part *part, sh_load_staging *st, sh_err *err)
{
    const sh_source *s = &j->source;
    bool whole = s->quant.group != 0;
    int64_t row = s->row_first + (j->row_first + part->row) * s->row_step;
    int64_t skip = whole ? row : 0;
    window win = {.file_cols = s->file_rows,
                  .row = s->index * s->cols + j->col_first + part->col,
                  .step = 1,
                  .count = part->cols,
                  .col_first = whole ? 0 : row,
                  .cols = whole ? s->file_rows : (part->rows - 1) * s->row_step + 1};
    sh_raw_rows raw;
    sh_status status = read_source(loader, s, &win, st, &raw, err);
    if (status != SH_OK) return status;
    const float *x = dequant_rows(&s->quant, &raw, win.count, win.cols, &st->floats);
    size_t stride = sh_quant_row_bytes(&j->m->quant, part->cols);
    sh_buf_clear(&st->packed);
    char *out = sh_buf_reserve(&st->packed, (size_t)part->rows * stride);
    for (int64_t r = 0; r < part->rows; r++)
        for (int64_t c = 0; c < part->cols; c++)
            store_float(j->m->quant.format, out + (size_t)r * stride, c,
                        x[c * win.cols + skip + r * s->row_step]);
    raw = (sh_raw_rows){.w = out, .w_stride = stride};
    loader->dev->ops->matrix_pack(loader->dev, j->m, part, &raw);
    return SH_OK;
}

sh_status sh_load_read_part(sh_loader *loader, const sh_load_job *j, const sh_matrix_part *part,
                            sh_load_staging *st, sh_err *err)
{
    uint64_t bytes = sh_load_row_bytes(&j->source, part->cols) * (uint64_t)part->rows;
    atomic_fetch_add_explicit(&loader->read, bytes, memory_order_relaxed);
    return j->kind == SH_JOB_PACK ? read_packed(loader, j, part, st, err)
                                  : read_transposed(loader, j, part, st, err);
}

static void *floats_at(const sh_loader *loader, const sh_load_job *j)
{
    return loader->regions[j->region].memory + j->offset;
}

/* A whole matrix to f32, in one piece: routers only. */
static sh_status read_matrix(const sh_loader *loader, const sh_load_job *j, sh_load_staging *st,
                             sh_err *err)
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
    loader->dev->ops->upload(loader->dev, floats_at(loader, j), x,
                             (size_t)(j->rows * j->cols) * sizeof(float));
    return SH_OK;
}

/* Reads the whole tensor even for a part of it: vectors are small, and parts may be strided. */
static sh_status read_vector(const sh_loader *loader, const sh_load_job *j, sh_load_staging *st,
                             sh_err *err)
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
    loader->dev->ops->upload(loader->dev, floats_at(loader, j), out,
                             (size_t)(v->rows * v->count) * sizeof(float));
    return SH_OK;
}

sh_status sh_load_read_floats(sh_loader *loader, const sh_load_job *j, sh_load_staging *st,
                              sh_err *err)
{
    bool vector = j->kind == SH_JOB_VECTOR;
    uint64_t bytes = vector ? j->vector.tensor->size
                            : sh_load_row_bytes(&j->source, j->cols) * (uint64_t)j->rows;
    atomic_fetch_add_explicit(&loader->read, bytes, memory_order_relaxed);
    return vector ? read_vector(loader, j, st, err) : read_matrix(loader, j, st, err);
}
