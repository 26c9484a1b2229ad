/* Loads weights: plan first, then read and pack on several threads.
 *
 * While matrices and vectors are declared, the loader only adds up sizes and appends jobs. Nothing
 * has an address yet, since a region is mapped when its size is known. sh_loader_run then goes
 * through the regions in waves: it maps the regions of a wave, fills in their addresses and numbers
 * the pieces. A job (one matrix of a stack, or one vector) is cut into pieces of chunk_rows rows,
 * and the threads take pieces from a shared counter until none is left. Pieces are small, so
 * threads finish together although jobs differ in size by orders of magnitude.
 *
 * There is one wave, unless there is a loader before this one. A wave then is a small part of the
 * whole, and regions of the loader before are freed as soon as nothing more comes from them, so
 * that the old and the new weights are never in memory together. Regions that replace others come
 * first: they make room.
 *
 * chunk_rows is a multiple of the device's pack_rows, so that no two pieces touch the same packed
 * rows and no locks are needed. */
#include "model/loader.h"

#include "base/alloc.h"
#include "model/loader_internal.h"

#include <stdlib.h>

enum {
    ALIGN = 4096,          /* of a matrix in device memory */
    VECTOR_ALIGN = 64,     /* of a vector */
    CHUNK_BYTES = 1 << 20, /* size of a read, unless pack_rows rows are more */
    PROGRESS_EVERY = 1 << 24,
    WAVES = 16, /* at least, when there is a loader before */
};

sh_loader *sh_loader_create(const sh_tensors *set, sh_device *dev)
{
    sh_loader *loader = sh_alloc(sizeof(*loader));
    loader->set = set;
    loader->dev = dev;
    return loader;
}

static void region_free(const sh_loader *loader, sh_load_region *region)
{
    if (region->memory != NULL) loader->dev->ops->unmap(loader->dev, region->memory, region->size);
    region->memory = NULL;
}

void sh_loader_free(sh_loader *loader)
{
    if (loader == NULL) return;
    for (int i = 0; i < loader->region_count; i++) region_free(loader, &loader->regions[i]);
    free(loader->regions);
    free(loader->places);
    free(loader->jobs);
    free(loader);
}

/* An empty region is used again: a rank may have no part of what it was meant for. */
void sh_loader_region(sh_loader *loader)
{
    if (loader->region_count > 0 && loader->regions[loader->region_count - 1].size == 0) return;
    loader->regions = sh_realloc_array(loader->regions, (size_t)loader->region_count + 1,
                                       sizeof(*loader->regions));
    loader->regions[loader->region_count++] = (sh_load_region){.job_first = loader->job_count};
}

static size_t take(sh_loader *loader, size_t size, size_t align)
{
    sh_load_region *region = &loader->regions[loader->region_count - 1];
    size_t offset = (region->size + align - 1) / align * align;
    region->size = offset + size;
    return offset;
}

void sh_loader_place(sh_loader *loader, sh_matrix *m)
{
    m->stride = loader->dev->ops->matrix_bytes(loader->dev, &m->quant, m->rows, m->cols);
    loader->places = sh_realloc_array(loader->places, loader->place_count + 1,
                                      sizeof(*loader->places));
    loader->places[loader->place_count++] = (sh_load_place){
        .m = m,
        .region = loader->region_count - 1,
        .offset = take(loader, m->stride * (size_t)m->count, ALIGN)};
}

static sh_load_job *add_job(sh_loader *loader, sh_job_kind kind, int64_t rows, int64_t cols)
{
    loader->jobs = sh_realloc_array(loader->jobs, loader->job_count + 1, sizeof(*loader->jobs));
    sh_load_job *j = &loader->jobs[loader->job_count++];
    *j = (sh_load_job){.kind = kind,
                       .region = loader->region_count - 1,
                       .rows = rows,
                       .cols = cols,
                       .chunk_rows = rows};
    loader->regions[j->region].job_count++;
    return j;
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
    sh_load_job *j = add_job(loader, source->transposed ? SH_JOB_TRANSPOSE : SH_JOB_PACK, m->rows,
                             m->cols);
    SH_ASSERT(row_first + m->rows <= source->rows && col_first + m->cols <= source->cols);
    j->m = m;
    j->index = index;
    j->source = *source;
    j->row_first = row_first;
    j->col_first = col_first;
    size_t bytes = sh_load_row_bytes(source, m->cols);
    loader->total += bytes * (uint64_t)m->rows;
    /* A quantized source to be transposed is read as a whole: a group of the file runs across our
     * rows, and cannot be cut. Such sources are small (the latent projection of MLA). */
    if (!source->transposed || source->quant.group == 0) j->chunk_rows = chunk_rows(loader, bytes);
    if (!source->transposed) j->lead = row_first % j->chunk_rows;
    if (j->lead % loader->dev->ops->pack_rows != 0) j->lead = 0; /* no two pieces share a panel */
}

void sh_loader_vector(sh_loader *loader, const float **out, const sh_vector_source *source)
{
    sh_load_job *j = add_job(loader, SH_JOB_VECTOR, source->rows, source->count);
    j->out = out;
    j->vector = *source;
    j->offset = take(loader, (size_t)(source->rows * source->count) * sizeof(float), VECTOR_ALIGN);
    loader->total += source->tensor->size;
}

void sh_loader_floats(sh_loader *loader, const float **out, const sh_source *source)
{
    sh_load_job *j = add_job(loader, SH_JOB_FLOATS, source->rows, source->cols);
    j->out = out;
    j->source = *source;
    j->offset = take(loader, (size_t)(source->rows * source->cols) * sizeof(float), VECTOR_ALIGN);
    loader->total += sh_load_row_bytes(source, source->cols) * (uint64_t)source->rows;
}

/* The index in the wave of the job that a piece belongs to: the last one whose first piece is not
 * after it. */
static size_t find_job(const sh_loader *loader, size_t piece)
{
    size_t low = 0, high = loader->wave_jobs;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (loader->first_pieces[mid] <= piece)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/* Rows [row, end) of a job that lie in the rows that are kept: reads what is left and right of the
 * kept columns, and copies these. */
static sh_status run_kept(sh_loader *loader, const sh_load_job *j, int64_t row, int64_t end,
                          sh_load_staging *st, sh_err *err)
{
    const sh_load_job *old = j->old;
    int64_t col_end = j->kept.col + j->kept.cols;
    sh_matrix_part part = {.index = j->index, .row = row, .rows = end - row};
    sh_status status = SH_OK;
    part.cols = j->kept.col;
    if (part.cols > 0) status = sh_load_read_part(loader, j, &part, st, err);
    part.col = col_end;
    part.cols = j->cols - col_end;
    if (status == SH_OK && part.cols > 0) status = sh_load_read_part(loader, j, &part, st, err);
    if (status != SH_OK) return status;
    part.col = j->kept.col;
    part.cols = j->kept.cols;
    loader->dev->ops->matrix_copy(loader->dev, j->m, &part, old->m, old->index,
                                  j->row_first + row - old->row_first,
                                  j->col_first + part.col - old->col_first);
    return SH_OK;
}

/* Rows [row, end) of a job: above, within and below those that are kept. */
static sh_status run_matrix(sh_loader *loader, const sh_load_job *j, int64_t row, int64_t end,
                            sh_load_staging *st, sh_err *err)
{
    int64_t kept_first = j->old == NULL ? end : j->kept.row;
    int64_t kept_end = j->old == NULL ? end : j->kept.row + j->kept.rows;
    sh_status status = SH_OK;
    while (row < end && status == SH_OK) {
        bool kept = row >= kept_first && row < kept_end;
        int64_t next = row < kept_first ? kept_first : kept ? kept_end : end;
        if (next > end) next = end;
        sh_matrix_part part = {.index = j->index, .row = row, .rows = next - row, .cols = j->cols};
        status = kept ? run_kept(loader, j, row, next, st, err)
                      : sh_load_read_part(loader, j, &part, st, err);
        row = next;
    }
    return status;
}

static sh_status run_piece(sh_loader *loader, size_t piece, sh_load_staging *st, sh_err *err)
{
    size_t idx = find_job(loader, piece);
    const sh_load_job *j = loader->wave[idx];
    int64_t row = (int64_t)(piece - loader->first_pieces[idx]) * j->chunk_rows - j->lead;
    int64_t end = j->rows - row < j->chunk_rows ? j->rows : row + j->chunk_rows;
    if (row < 0) row = 0;
    int64_t count = end - row;
    uint64_t bytes = j->kind == SH_JOB_VECTOR
                         ? j->vector.tensor->size
                         : sh_load_row_bytes(&j->source, j->cols) * (uint64_t)count;
    /* Counted up front: this is for the progress display only. */
    atomic_fetch_add_explicit(&loader->done, bytes, memory_order_relaxed);
    if (j->m != NULL) return run_matrix(loader, j, row, end, st, err);
    if (j->old == NULL) return sh_load_read_floats(loader, j, st, err);
    sh_load_copy_floats(loader, j);
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
    sh_load_staging st = {0};
    uint64_t last = atomic_load_explicit(&loader->done, memory_order_relaxed);
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

/* Fills in the addresses of everything in a region that has memory now. */
static void assign_addresses(const sh_loader *loader, int region)
{
    uint8_t *memory = loader->regions[region].memory;
    for (size_t i = 0; i < loader->place_count; i++)
        if (loader->places[i].region == region)
            loader->places[i].m->data = memory + loader->places[i].offset;
    const sh_load_job *jobs = loader->jobs + loader->regions[region].job_first;
    for (size_t i = 0; i < loader->regions[region].job_count; i++)
        if (jobs[i].out != NULL)
            *jobs[i].out = (const float *)(const void *)(memory + jobs[i].offset);
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

static void add_pieces(sh_loader *loader, const sh_load_region *region)
{
    for (size_t i = 0; i < region->job_count; i++) {
        const sh_load_job *j = &loader->jobs[region->job_first + i];
        loader->wave[loader->wave_jobs] = j;
        loader->first_pieces[loader->wave_jobs++] = loader->pieces;
        loader->pieces += (size_t)((j->rows + j->lead + j->chunk_rows - 1) / j->chunk_rows);
    }
}

/* Takes a region over as it is, or maps it and adds its pieces to the wave. */
static sh_status region_begin(sh_loader *loader, int index, sh_loader *before, sh_err *err)
{
    sh_load_region *region = &loader->regions[index];
    if (before != NULL && sh_load_same_region(loader, region, before)) {
        sh_load_region *old = &before->regions[loader->jobs[region->job_first].old->region];
        region->memory = old->memory;
        old->memory = NULL;
    } else {
        void *memory = NULL;
        sh_status status = loader->dev->ops->map(loader->dev, region->size, "weights", &memory,
                                                 err);
        if (status != SH_OK) return status;
        region->memory = memory;
        add_pieces(loader, region);
    }
    assign_addresses(loader, index);
    return SH_OK;
}

/* The regions in the order in which they are loaded: first those that replace others. Returns the
 * bytes that one wave may have. */
static size_t plan_order(const sh_loader *loader, int *regions)
{
    int count = 0;
    size_t size = 0;
    bool *replaces = sh_alloc_array((size_t)loader->region_count + 1, sizeof(*replaces));
    for (size_t i = 0; i < loader->job_count; i++)
        if (loader->jobs[i].old != NULL) replaces[loader->jobs[i].region] = true;
    for (int later = 0; later < 2; later++)
        for (int i = 0; i < loader->region_count; i++)
            if (replaces[i] != (later == 1)) regions[count++] = i;
    free(replaces);
    for (int i = 0; i < count; i++) size += loader->regions[i].size;
    return size / WAVES;
}

/* Notes when each region of the loader before is used for the last time, as an index into
 * `regions`. */
static void plan_frees(const sh_loader *loader, const int *regions, sh_loader *before)
{
    for (int i = 0; i < before->region_count; i++) before->regions[i].last_use = -1;
    for (int i = 0; i < loader->region_count; i++) {
        const sh_load_region *region = &loader->regions[regions[i]];
        for (size_t k = 0; k < region->job_count; k++) {
            const sh_load_job *old = loader->jobs[region->job_first + k].old;
            if (old != NULL) before->regions[old->region].last_use = i;
        }
    }
}

static void free_unused(sh_loader *before, int next)
{
    for (int i = 0; i < before->region_count; i++)
        if (before->regions[i].last_use < next) region_free(before, &before->regions[i]);
}

static sh_status run_wave(sh_loader *loader, int threads, sh_err *err)
{
    sh_pool_run(loader->pool, run_thread, loader);
    loader->wave_jobs = loader->pieces = 0;
    return first_error(loader, threads, err);
}

static sh_status run_waves(sh_loader *loader, int threads, sh_loader *before, sh_err *err)
{
    int *regions = sh_alloc_array((size_t)loader->region_count + 1, sizeof(*regions));
    size_t most = plan_order(loader, regions), size = 0;
    sh_status status = SH_OK;
    if (before != NULL) {
        plan_frees(loader, regions, before);
        free_unused(before, 0);
    }
    for (int i = 0; i < loader->region_count && status == SH_OK; i++) {
        status = region_begin(loader, regions[i], before, err);
        size += loader->regions[regions[i]].size;
        bool last = i == loader->region_count - 1;
        if (status != SH_OK || (!last && (before == NULL || size < most))) continue;
        status = run_wave(loader, threads, err);
        if (before != NULL) free_unused(before, i + 1);
        size = 0;
    }
    free(regions);
    return status;
}

sh_status sh_loader_run(sh_loader *loader, const sh_load_opts *opts, sh_loader *before, sh_err *err)
{
    int threads = opts->threads > 0 ? opts->threads : sh_cpu_count();
    loader->opts = opts;
    if (before != NULL) sh_load_match(loader, before);
    sh_status status = sh_pool_create(threads, &loader->pool, err);
    if (status != SH_OK) return status;
    loader->errs = sh_alloc_array((size_t)threads, sizeof(*loader->errs));
    loader->wave = sh_alloc_array(loader->job_count + 1, sizeof(*loader->wave));
    loader->first_pieces = sh_alloc_array(loader->job_count + 1, sizeof(*loader->first_pieces));
    status = run_waves(loader, threads, before, err);
    free(loader->errs);
    free(loader->wave);
    free(loader->first_pieces);
    sh_pool_free(loader->pool);
    for (size_t i = 0; i < loader->job_count; i++) loader->jobs[i].old = NULL;
    if (status == SH_OK && opts->progress != NULL)
        opts->progress(opts->progress_ctx, loader->total, loader->total);
    return status;
}

uint64_t sh_loader_total(const sh_loader *loader)
{
    return loader->total;
}

uint64_t sh_loader_read(const sh_loader *loader)
{
    return atomic_load(&loader->read);
}

int sh_loader_regions(const sh_loader *loader)
{
    return loader->region_count;
}

const void *sh_loader_memory(const sh_loader *loader, int region, size_t *size)
{
    *size = loader->regions[region].size;
    return loader->regions[region].memory;
}
