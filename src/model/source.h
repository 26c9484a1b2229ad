/* source.h - where the rows of a matrix lie in the files.
 *
 * The same matrix is stored in many ways: alone or fused with others, as one of a stack or under a
 * name of its own, plain or quantized, row by row or transposed. A source says which, after the
 * shapes and types of its tensors were checked against what config.json promised; the loader reads
 * by it. Names are tried in the order of the tables in source.c and source_experts.c.
 *
 * Threads: an open set of tensors may be searched by many, each with a finder of its own. */
#ifndef SH_MODEL_SOURCE_H
#define SH_MODEL_SOURCE_H

#include "model/config.h"
#include "model/tensors.h"

/* What a search needs to know. `stem` is in front of "layers.0...", such as "model.". */
typedef struct {
    const sh_tensors *set;
    const sh_config *config;
    const char *stem;
    bool *seen; /* [tensors of the set], the caller's: set for those that were found */
    sh_err *err;
} sh_finder;

/* The tensor, or NULL; notes that it is one that the model knows. */
const sh_tensor *sh_finder_find(const sh_finder *finder, const char *name, ...) SH_PRINTF(2, 3);

typedef struct {
    const sh_tensor *w;
    const sh_tensor *scales; /* NULL when not quantized */
    const sh_tensor *biases; /* affine only */
    const sh_tensor *bias;   /* added to the product; NULL when there is none */
    sh_quant quant;          /* how the file stores it */
    int64_t rows;            /* of the matrix itself */
    int64_t cols;
    int64_t file_rows; /* of one matrix of the tensor: more than `rows` when fused */
    int64_t index;     /* which matrix of a stack */
    int64_t row_first; /* row r is the file's row row_first + r * row_step */
    int64_t row_step;
    bool transposed; /* the file has columns where we have rows: its rows are our columns */
} sh_source;

/* Bytes of `cols` numbers of one row, and of its scales (likewise biases). */
size_t sh_quant_row_bytes(const sh_quant *quant, int64_t cols);
size_t sh_quant_scale_bytes(const sh_quant *quant, int64_t cols);

/* How a tensor of plain numbers is stored. */
sh_quant sh_quant_plain(const sh_tensor *tensor);

/* The module `path` (a whole name without ".weight") of [rows, cols], or a stack of `stack` such
 * when that is not 0. Missing or different is an error. */
SH_MUST_CHECK sh_status sh_source_find(const sh_finder *finder, const char *path, int64_t stack,
                                       int64_t rows, int64_t cols, sh_source *out);

/* True when the module has a weight in the files. */
bool sh_source_exists(const sh_finder *finder, const char *path);

/* Rows [row_first, row_first + rows) of a module that was found. */
sh_source sh_source_part(const sh_source *whole, int64_t row_first, int64_t rows);

/* Matrix `index` of a stack that was found. */
sh_source sh_source_at(const sh_source *stack, int64_t index);

/* The same numbers with rows and columns exchanged. */
sh_source sh_source_turned(const sh_source *source);

typedef enum { SH_EXPERT_GATE, SH_EXPERT_UP, SH_EXPERT_DOWN } sh_expert_part;

/* One part of all experts of a layer, out [config->moe.experts]; `path` is the module that holds
 * them, such as "model.layers.0.mlp". */
SH_MUST_CHECK sh_status sh_source_experts(const sh_finder *finder, const char *path,
                                          sh_expert_part part, sh_source *out);

/* The tensor `name` with exactly this type and shape; SH_TENSOR_OTHER stands for F32, F16 or BF16.
 */
SH_MUST_CHECK sh_status sh_source_tensor(const sh_finder *finder, const char *name,
                                         sh_tensor_type type, int dims, const int64_t *shape,
                                         const sh_tensor **out);

/* A vector or a stack of them: element i of row r is at r * row_len + first + i * step. */
typedef struct {
    const sh_tensor *tensor;
    int64_t rows;
    int64_t row_len;
    int64_t first;
    int64_t step;
    int64_t count;
    float plus; /* added to each */
} sh_vector_source;

/* The 1-D tensor `name` of `count` numbers. */
SH_MUST_CHECK sh_status sh_source_vector(const sh_finder *finder, const char *name, int64_t count,
                                         sh_vector_source *out);

#endif
