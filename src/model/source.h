/* source.h - where the rows of a matrix are in the files.
 *
 * The same matrix may be stored in many ways: alone or fused with others, as one of a stack or
 * under a name of its own, plain or quantized, row by row or transposed. A source says which, and
 * tells the loader what to read; the types and shapes of its tensors have been checked against
 * config.json by then. The names of experts are tried in the order of the tables in
 * source_experts.c.
 *
 * Threads: several may search an open set of tensors, each with a finder of its own. */
#ifndef SH_MODEL_SOURCE_H
#define SH_MODEL_SOURCE_H

#include "model/config.h"
#include "model/tensors.h"

/* The context of a search. `stem` is what precedes "layers.0...", such as "model.". */
typedef struct {
    const sh_tensors *set;
    const sh_config *config;
    const char *stem;
    bool *seen; /* [tensors of the set], owned by the caller; set for those that were found */
    sh_err *err;
} sh_finder;

/* The tensor, or NULL; marks it as seen. */
const sh_stored_tensor *sh_finder_find(const sh_finder *finder, const char *name, ...)
    SH_PRINTF(2, 3);

typedef struct {
    const sh_stored_tensor *w;
    const sh_stored_tensor *scales; /* NULL when not quantized */
    const sh_stored_tensor *biases; /* affine only */
    const sh_stored_tensor *bias;   /* added to the product; NULL when there is none */
    sh_quant quant;                 /* how the file stores it */
    int64_t rows;                   /* of the matrix itself */
    int64_t cols;
    int64_t file_rows; /* of one matrix in the tensor: more than `rows` when fused */
    int64_t index;     /* which matrix of a stack */
    int64_t row_first; /* row r is row row_first + r * row_step of the file */
    int64_t row_step;
    bool transposed; /* the rows of the file are our columns */
} sh_source;

/* Bytes of `cols` numbers of one row, and of their scales (or biases). */
size_t sh_quant_row_bytes(const sh_quant *quant, int64_t cols);
size_t sh_quant_scale_bytes(const sh_quant *quant, int64_t cols);

/* The format of a tensor that is not quantized. */
sh_quant sh_quant_plain(const sh_stored_tensor *tensor);

/* Finds the module `path` (the full name without ".weight") of shape [rows, cols], or a stack of
 * `stack` of them when that is not 0. It is an error if it is missing or has another shape. */
SH_MUST_CHECK sh_status sh_source_find(const sh_finder *finder, const char *path, int64_t stack,
                                       int64_t rows, int64_t cols, sh_source *out);

/* True when the files have a weight of the module. */
bool sh_source_exists(const sh_finder *finder, const char *path);

/* Rows [row_first, row_first + rows) of a module that was found. */
sh_source sh_source_part(const sh_source *whole, int64_t row_first, int64_t rows);

/* Matrix `index` of a stack that was found. */
sh_source sh_source_at(const sh_source *stack, int64_t index);

/* The same numbers with rows and columns exchanged. */
sh_source sh_source_transpose(const sh_source *source);

typedef enum { SH_EXPERT_GATE, SH_EXPERT_UP, SH_EXPERT_DOWN } sh_expert_part;

/* Finds one part of all experts of a layer, out [config->moe.experts]; `path` is the module that
 * has them, such as "model.layers.0.mlp". */
SH_MUST_CHECK sh_status sh_source_experts(const sh_finder *finder, const char *path,
                                          sh_expert_part part, sh_source *out);

/* Finds the tensor `name` with exactly this type and shape; SH_TENSOR_OTHER means any of F32, F16
 * and BF16. */
SH_MUST_CHECK sh_status sh_source_tensor(const sh_finder *finder, const char *name,
                                         sh_tensor_type type, int dims, const int64_t *shape,
                                         const sh_stored_tensor **out);

/* A vector or a stack of them: element i of row r is at r * row_len + first + i * step, so that a
 * stack may also be the columns of a matrix. */
typedef struct {
    const sh_stored_tensor *tensor;
    int64_t rows;
    int64_t row_len;
    int64_t first;
    int64_t step;
    int64_t count;
    float plus; /* added to each element */
} sh_vector_source;

/* Finds the weights of the depthwise convolution `path`, as a stack of `taps` vectors of one number
 * for each channel: that is how kernels want them. */
SH_MUST_CHECK sh_status sh_source_conv(const sh_finder *finder, const char *path, int64_t channels,
                                       int64_t taps, sh_vector_source *out);

/* Finds the 1-D tensor `name` of `count` numbers. */
SH_MUST_CHECK sh_status sh_source_vector(const sh_finder *finder, const char *name, int64_t count,
                                         sh_vector_source *out);

#endif
