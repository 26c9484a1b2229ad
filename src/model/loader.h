/* loader.h - reads weights from the files into the layout of a device, and owns them there.
 *
 * First everything is declared: which matrices and vectors, from where, which rows and columns.
 * Then memory is allocated, and several threads read with pread and pack, a chunk of rows at a
 * time, through a small buffer each. Nothing is in memory twice, and only the bytes of the declared
 * rows and columns are read.
 *
 * A loader that has run knows what it has in memory and where that came from. One that runs after
 * it, for another shard of the same files, takes over what both have and reads only the rest. For
 * this, memory is divided into regions, which are handed over or freed one by one.
 *
 * Threads: one owner; run uses threads of its own. */
#ifndef SH_MODEL_LOADER_H
#define SH_MODEL_LOADER_H

#include "kernels/device.h"
#include "model/shard.h"
#include "model/source.h"

typedef struct sh_loader sh_loader;

/* Bytes loaded so far and in total; called now and then, always by the same thread. */
typedef void (*sh_progress_fn)(void *ctx, uint64_t done, uint64_t total);

typedef struct {
    int threads;             /* 0: one per CPU */
    bool exact;              /* keep quantized matrices that must be transposed in f32, not f16 */
    sh_progress_fn progress; /* or NULL */
    void *progress_ctx;
    const sh_window_source *source; /* of the weights; NULL: the files. Outlives what is loaded */
} sh_load_opts;

/* The set is borrowed as long as the loader, and any that takes over from it, exists. */
sh_loader *sh_loader_create(const sh_tensors *set, sh_device *dev);
void sh_loader_free(sh_loader *loader);

/* What is declared from here on is in a region of its own. */
void sh_loader_region(sh_loader *loader);

/* Declares a matrix. The caller has set m->quant, rows, cols and count; run sets data. m must not
 * move as long as the loader exists; the same holds for the `out` pointers below. */
void sh_loader_place(sh_loader *loader, sh_matrix *m);

/* Matrix `index` of m is rows [row_first, row_first + m->rows) and columns [col_first, col_first +
 * m->cols) of `source`. m->quant is that of the source, or a plain format when the source is
 * transposed. */
void sh_loader_fill(sh_loader *loader, sh_matrix *m, int64_t index, const sh_source *source,
                    int64_t row_first, int64_t col_first);

/* Loads a vector, or a stack of them, as f32 [rows, count]. */
void sh_loader_vector(sh_loader *loader, const float **out, const sh_vector_source *source);

/* Loads a whole matrix as f32 [rows, cols]. */
void sh_loader_floats(sh_loader *loader, const float **out, const sh_source *source);

/* Loads everything. What `before` (or NULL) has of it is not read; what it has is gone after this,
 * even on failure. */
SH_MUST_CHECK sh_status sh_loader_run(sh_loader *loader, const sh_load_opts *opts,
                                      sh_loader *before, sh_err *err);

/* Bytes that all of this takes in the files, and how many were read from there. */
uint64_t sh_loader_total(const sh_loader *loader);
uint64_t sh_loader_read(const sh_loader *loader);

/* The regions in device memory. */
int sh_loader_regions(const sh_loader *loader);
const void *sh_loader_memory(const sh_loader *loader, int region, size_t *size);

#endif
