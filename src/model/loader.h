/* loader.h - reads weights from the files into the layout of a device.
 *
 * First everything is declared: which matrices and vectors, from where, which rows and columns.
 * Then one block of device memory is taken for all of them, and several threads read with pread and
 * pack, row chunk by row chunk, through a small buffer each. Nothing is held twice, and only the
 * bytes of the declared rows and columns are read.
 *
 * Threads: one owner; run uses threads of its own. */
#ifndef SH_MODEL_LOADER_H
#define SH_MODEL_LOADER_H

#include "kernels/device.h"
#include "model/shard.h"
#include "model/source.h"

typedef struct sh_loader sh_loader;

/* Bytes read so far, of all; called now and then by one thread. */
typedef void (*sh_progress_fn)(void *ctx, uint64_t done, uint64_t total);

typedef struct {
    int threads;             /* 0: one for each processor */
    bool exact;              /* keep what must be turned in f32, where f16 would do */
    sh_progress_fn progress; /* or NULL */
    void *progress_ctx;
} sh_load_opts;

sh_loader *sh_loader_create(const sh_tensors *set, sh_device *dev);
void sh_loader_free(sh_loader *loader);

/* Declares a matrix: m->quant, rows, cols and count are set, data follows in run. m stays where it
 * is until then, likewise the pointers below. */
void sh_loader_place(sh_loader *loader, sh_matrix *m);

/* Matrix `index` of m comes from `source`: rows [row_first, row_first + m->rows) and columns
 * [col_first, col_first + m->cols) of it. m->quant is the source's, or a plain format when the
 * source is transposed. */
void sh_loader_fill(sh_loader *loader, sh_matrix *m, int64_t index, const sh_source *source,
                    int64_t row_first, int64_t col_first);

/* Vectors as f32: [rows, count] numbers. */
void sh_loader_vector(sh_loader *loader, const float **out, const sh_vector_source *source);

/* A whole matrix as f32 [rows, cols]. */
void sh_loader_floats(sh_loader *loader, const float **out, const sh_source *source);

/* Reads it all. The memory becomes the caller's: dev->ops->unmap. */
SH_MUST_CHECK sh_status sh_loader_run(sh_loader *loader, const sh_load_opts *opts, void **memory,
                                      size_t *size, sh_err *err);

#endif
