/* codec.h - how the numbers of an all-reduce look on the wire, and how they are summed.
 *
 * A vector is [rows, cols]. It is cut at blocks of SH_CODEC_BLOCK numbers (the last block of a row
 * may be shorter), and rounding stays inside a block, so the result does not depend on where a
 * vector was cut or on what else travels with it. f32 and bf16 do not care for rows and see one
 * long row.
 *
 *   f32   4 bytes a number
 *   bf16  2 bytes, to nearest, ties to even
 *   int8  for each block a scale (f32) and the numbers as scale times -127..127
 *
 * Parts are added in the order given, element by element, in f32: ((p0 + p1) + p2) + ...
 *
 * Threads: pure functions. */
#ifndef SH_COLL_CODEC_H
#define SH_COLL_CODEC_H

#include <stddef.h>
#include <stdint.h>

typedef enum { SH_CODEC_F32, SH_CODEC_BF16, SH_CODEC_INT8 } sh_codec;

enum { SH_CODEC_BLOCK = 32 };

typedef struct {
    sh_codec codec;
    size_t rows;
    size_t cols;
    size_t row_blocks; /* blocks of a row */
    size_t row_bytes;  /* of a row on the wire */
} sh_layout;

sh_layout sh_layout_of(sh_codec codec, size_t rows, size_t cols);

size_t sh_layout_blocks(const sh_layout *layout);

/* Where a block starts, in numbers and in bytes; the block behind the last one gives the totals. */
size_t sh_layout_number_at(const sh_layout *layout, size_t block);
size_t sh_layout_byte_at(const sh_layout *layout, size_t block);

/* Blocks [first, end) from numbers to wire and back; x and wire are the places of block `first`. */
void sh_codec_encode(void *wire, const sh_layout *layout, size_t first, size_t end, const float *x);
void sh_codec_decode(float *x, const sh_layout *layout, size_t first, size_t end, const void *wire);

/* x = the sum of `count` parts, each blocks [first, end) in wire form. With f32 x may be one of the
 * parts itself. */
void sh_codec_fold(float *x, const sh_layout *layout, size_t first, size_t end,
                   const void *const *parts, int count);

#endif
