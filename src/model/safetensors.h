/* safetensors.h - the header of a .safetensors file: names, types, shapes and places of tensors.
 *
 * A file is a length (8 bytes, little-endian), a JSON header of that length, and the tensors'
 * bytes. Everything in a header is checked before anybody uses it: shapes against bytes, places
 * against the file's size and against each other. What a set of files holds is in model/tensors.h;
 * writing one is in model/safetensors_writer.h.
 *
 * Threads: pure functions. */
#ifndef SH_MODEL_SAFETENSORS_H
#define SH_MODEL_SAFETENSORS_H

#include "base/arena.h"
#include "base/status.h"

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
    SH_TENSOR_OTHER, /* a known type that no weight of ours has */
} sh_tensor_type;

enum {
    SH_TENSOR_DIMS_MAX = 8,
    SH_SAFETENSORS_PREFIX = 8,             /* bytes of the length in front of the header */
    SH_SAFETENSORS_HEADER_MAX = 100000000, /* the format's own bound */
};

typedef struct {
    const char *name;
    const char *type_name; /* as the file has it, such as "BF16" */
    sh_tensor_type type;
    int dims;
    int64_t shape[SH_TENSOR_DIMS_MAX];
    uint64_t offset; /* of its first byte in the file */
    uint64_t size;   /* bytes */
    int file;        /* which file of a set */
} sh_tensor;

typedef struct {
    sh_tensor *tensors; /* sorted by name */
    size_t count;
} sh_tensor_list;

/* Bytes of one number; 0 for SH_TENSOR_OTHER. */
size_t sh_tensor_type_size(sh_tensor_type type);
const char *sh_tensor_type_name(sh_tensor_type type);

/* "[4, 128, 16]" for error texts, into a buffer of the caller. */
enum { SH_TENSOR_SHAPE_TEXT_MAX = SH_TENSOR_DIMS_MAX * 22 + 3 };
const char *sh_tensor_shape_text(const sh_tensor *tensor, char text[SH_TENSOR_SHAPE_TEXT_MAX]);

/* Reads the 8 bytes in front of a header; file_size is that of the whole file. */
SH_MUST_CHECK sh_status sh_safetensors_header_len(const uint8_t prefix[SH_SAFETENSORS_PREFIX],
                                                  uint64_t file_size, const char *path, size_t *out,
                                                  sh_err *err);

/* Checks a header and lists its tensors, in memory of the arena. */
SH_MUST_CHECK sh_status sh_safetensors_parse(sh_str header, uint64_t file_size, const char *path,
                                             sh_arena *arena, sh_tensor_list *out, sh_err *err);

/* The tensor of that name, or NULL. */
const sh_tensor *sh_tensor_list_find(const sh_tensor_list *list, const char *name);

#endif
