/* loader_internal.h - what the files of the loader share; private to them.
 *
 * Threads: jobs and regions are read-only while threads run. */
#ifndef SH_MODEL_LOADER_INTERNAL_H
#define SH_MODEL_LOADER_INTERNAL_H

#include "base/buf.h"
#include "base/pool.h"
#include "model/loader.h"

#include <stdatomic.h>

typedef enum { SH_JOB_PACK, SH_JOB_TRANSPOSE, SH_JOB_FLOATS, SH_JOB_VECTOR } sh_job_kind;

/* One matrix of a stack, or one vector, and where it comes from. */
typedef struct sh_load_job sh_load_job;
struct sh_load_job {
    sh_job_kind kind;
    int region;
    sh_matrix *m;
    int64_t index;
    sh_source source;
    sh_vector_source vector;
    const float **out; /* FLOATS and VECTOR: where the address goes */
    size_t offset;     /* of their data in the region */
    int64_t row_first; /* of the source */
    int64_t col_first;
    int64_t rows; /* of the job */
    int64_t cols;
    int64_t chunk_rows;
    int64_t lead; /* rows that the first piece lacks, so that pieces begin where those of other
                     shards do: what a rank keeps of them is of use for several */
    const sh_load_job *old; /* the job of the loader before that has this part of it; or NULL */
    sh_matrix_part kept;
};

typedef struct {
    sh_matrix *m;
    int region;
    size_t offset;
} sh_load_place;

typedef struct {
    size_t size;
    uint8_t *memory; /* NULL before it is loaded, and after another loader has taken it */
    size_t job_first, job_count;
    int last_use; /* when the loader that takes over needs it for the last time; -1: never */
} sh_load_region;

struct sh_loader {
    const sh_tensors *set;
    sh_device *dev;
    sh_load_region *regions;
    int region_count;
    sh_load_place *places;
    size_t place_count;
    sh_load_job *jobs;
    size_t job_count;
    uint64_t total;
    atomic_uint_least64_t read; /* of `total`, from the files */
    /* only while it runs */
    sh_pool *pool;
    const sh_load_opts *opts;
    const sh_load_job **wave; /* the jobs that are run now */
    size_t *first_pieces;     /* [wave_jobs] */
    size_t wave_jobs;
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
} sh_load_staging;

/* Bytes in the files of `cols` columns of a row, with scales and biases. */
size_t sh_load_row_bytes(const sh_source *source, int64_t cols);

/* Reads a part of a job's matrix from the files and packs it. */
SH_MUST_CHECK sh_status sh_load_read_part(sh_loader *loader, const sh_load_job *job,
                                          const sh_matrix_part *part, sh_load_staging *st,
                                          sh_err *err);

/* Reads the vector, or the matrix of floats, of a job. */
SH_MUST_CHECK sh_status sh_load_read_floats(sh_loader *loader, const sh_load_job *job,
                                            sh_load_staging *st, sh_err *err);

/* Finds for each job of `loader` what `before` has of it. */
void sh_load_match(sh_loader *loader, const sh_loader *before);

/* Whether a region is the same as the one of `before` that its first job is from. */
bool sh_load_same_region(const sh_loader *loader, const sh_load_region *region,
                         const sh_loader *before);

/* Copies the vector, or the matrix of floats, of a job from the one before. */
void sh_load_copy_floats(const sh_loader *loader, const sh_load_job *job);

#endif
