/* safetensors.h - the header of a .safetensors file: names, types, shapes and offsets of tensors.
 *
 * A file is a length (8 bytes, little-endian), a JSON header of that length, and the bytes of the
 * tensors. Everything in a header is checked before it is used: shapes against bytes, offsets
 * against the size of the file and against each other. model/tensors.h puts several files together;
 * model/safetensors_writer.h writes one.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_SAFETENSORS_H
#define SH_MODEL_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SH_TENSOR_F32,
    SH_TENSOR_F16,
    SH_TENSOR_BF16,
    SH_TENSOR_U8,
    SH_TENSOR_U32,
    SH_TENSOR_I32,
    SH_TENSOR_F8_E4M3,
    SH_TENSOR_F8_E8M0,
    SH_TENSOR_OTHER, /* a type of the format that we do not read */
} sh_tensor_type;

enum {
    SH_TENSOR_DIMS_MAX = 8,
    SH_SAFETENSORS_PREFIX = 8,             /* bytes of the length before the header */
    SH_SAFETENSORS_HEADER_MAX = 100000000, /* the limit of the format */
};

typedef struct {
    const char *name;
    const char *type_name; /* as in the file, such as "BF16" */
    sh_tensor_type type;
    int dims;
    int64_t shape[SH_TENSOR_DIMS_MAX];
    uint64_t offset; /* of its first byte in the file */
    uint64_t size;   /* bytes */
    int file;        /* which file of a set */
} sh_stored_tensor;

typedef struct {
    sh_stored_tensor *tensors; /* sorted by name */
    size_t count;
    bool mlx; /* the metadata says that MLX wrote it */
} sh_tensor_list;

/* Bytes of one number; 0 for SH_TENSOR_OTHER. */
size_t sh_tensor_type_size(sh_tensor_type type);
const char *sh_tensor_type_name(sh_tensor_type type);

/* "[4, 128, 16]" for error texts, written to the caller's buffer. */
enum { SH_TENSOR_SHAPE_TEXT_MAX = SH_TENSOR_DIMS_MAX * 22 + 3 };
const char *sh_tensor_shape_text(const sh_stored_tensor *tensor,
                                 char text[SH_TENSOR_SHAPE_TEXT_MAX]);

/* Decodes and checks the 8 bytes before a header; file_size is that of the whole file. */
SH_MUST_CHECK sh_status sh_safetensors_header_len(const uint8_t prefix[SH_SAFETENSORS_PREFIX],
                                                  uint64_t file_size, const char *path, size_t *out,
                                                  sh_err *err);

/* Checks a header and lists its tensors; the list is in the arena. */
SH_MUST_CHECK sh_status sh_safetensors_parse(sh_str header, uint64_t file_size, const char *path,
                                             sh_arena *arena, sh_tensor_list *out, sh_err *err);

/* The tensor of that name, or NULL. */
const sh_stored_tensor *sh_tensor_list_find(const sh_tensor_list *list, const char *name);

#endif
