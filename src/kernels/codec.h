/* codec.h - the wire format of the numbers in an all-reduce, and their summation.
 *
 * A vector is [rows, cols]. It is divided into blocks of SH_CODEC_BLOCK numbers (the last block of
 * a row may be shorter), and rounding depends only on the block, so the result does not depend on
 * where a vector was cut or on what else is in the message. f32 and bf16 ignore rows and see one
 * long row.
 *
 *   f32   4 bytes per number
 *   bf16  2 bytes per number, rounded to nearest, ties to even
 *   int8  per block a scale (f32), then the numbers as multiples -127..127 of it
 *
 * Parts are added in the given order, element by element, in f32: ((p0 + p1) + p2) + ...
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CODEC_H
#define SH_KERNELS_CODEC_H

#include <stddef.h>
#include <stdint.h>

typedef enum { SH_CODEC_F32, SH_CODEC_BF16, SH_CODEC_INT8 } sh_codec;

enum { SH_CODEC_BLOCK = 32 };

typedef struct {
    sh_codec codec;
    size_t rows;
    size_t cols;
    size_t row_blocks; /* blocks per row */
    size_t row_bytes;  /* bytes per row on the wire */
} sh_layout;

sh_layout sh_layout_of(sh_codec codec, size_t rows, size_t cols);

size_t sh_layout_blocks(const sh_layout *layout);

/* Where a block starts, in numbers and in bytes; one past the last block gives the totals. */
size_t sh_layout_number_at(const sh_layout *layout, size_t block);
size_t sh_layout_byte_at(const sh_layout *layout, size_t block);

/* Converts blocks [first, end) to the wire format and back; x and wire point to block `first`. */
void sh_codec_encode(void *wire, const sh_layout *layout, size_t first, size_t end, const float *x);
void sh_codec_decode(float *x, const sh_layout *layout, size_t first, size_t end, const void *wire);

/* x = the sum of `count` parts, each of them blocks [first, end) in wire format. With f32, x may be
 * one of the parts. */
void sh_codec_fold(float *x, const sh_layout *layout, size_t first, size_t end,
                   const void *const *parts, int count);

/* The same, and with `sum`, writes the sum there in wire format and rounds x to what that says:
 * every rank then continues with the same numbers, the one that added them too. */
void sh_codec_fold_round(float *x, const sh_layout *layout, size_t first, size_t end,
                         const void *const *parts, int count, void *sum);

#endif
