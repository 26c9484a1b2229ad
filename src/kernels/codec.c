/* Encoding and summing are done on blocks of 32 numbers with plain loops that the compiler
 * vectorizes; nothing here is specific to an instruction set.
 *
 * The order of the additions is part of the contract: a token's result must be the same bits
 * however a vector was cut, so a sum over ranks is always ((p0 + p1) + p2) + ... for each element
 * by itself. Vector code adds several elements at once, but never several parts of one element in
 * another order.
 *
 * Values that are not finite must survive: a fault on one rank has to reach the result, and not be
 * rounded into something plausible. */
#include "kernels/codec.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

enum { BLOCK = SH_CODEC_BLOCK, INT8_BLOCK_BYTES = 4 + BLOCK };

/* Four numbers that are added at once, on every CPU that we build for. */
typedef float lanes __attribute__((vector_size(16), aligned(4)));

sh_layout sh_layout_of(sh_codec codec, size_t rows, size_t cols)
{
    if (codec != SH_CODEC_INT8) {
        cols *= rows;
        rows = 1;
    }
    size_t blocks = (cols + BLOCK - 1) / BLOCK;
    size_t bytes = codec == SH_CODEC_F32    ? 4 * cols
                   : codec == SH_CODEC_BF16 ? 2 * cols
                                            : cols + 4 * blocks;
    return (sh_layout){codec, rows, cols, blocks, bytes};
}

size_t sh_layout_blocks(const sh_layout *layout)
{
    return layout->rows * layout->row_blocks;
}

size_t sh_layout_number_at(const sh_layout *layout, size_t block)
{
    if (block >= sh_layout_blocks(layout)) return layout->rows * layout->cols;
    return block / layout->row_blocks * layout->cols + block % layout->row_blocks * BLOCK;
}

size_t sh_layout_byte_at(const sh_layout *layout, size_t block)
{
    if (block >= sh_layout_blocks(layout)) return layout->rows * layout->row_bytes;
    size_t row = block / layout->row_blocks;
    size_t in_row = block % layout->row_blocks;
    size_t block_bytes = layout->codec == SH_CODEC_F32    ? 4 * BLOCK
                         : layout->codec == SH_CODEC_BF16 ? 2 * BLOCK
                                                          : INT8_BLOCK_BYTES;
    return row * layout->row_bytes + in_row * block_bytes;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40); /* NaN stays NaN */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The functions on one block take its length, which is BLOCK except at the end of a row. Callers
 * branch on that and pass the constant, so that the compiler can vectorize the inlined loops. */

static inline void bf16_encode(uint16_t *wire, const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) wire[i] = bf16_of(x[i]);
}

static inline void bf16_decode(float *x, const uint16_t *wire, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)wire[i] << 16;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

/* Rounds to the nearest integer, ties to even, for -127..127: adding 1.5 * 2^23 shifts the fraction
 * out of the mantissa and leaves the integer in its low bits. */
static inline uint8_t int8_of(float x)
{
    float shifted = x + 0x1.8p23f;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof(bits));
    return (uint8_t)bits;
}

/* A block that contains a number which is not finite gets NaN as its scale, so that all of it
 * becomes NaN. The largest magnitude is found on the bits as integers: they are ordered like the
 * magnitudes, with infinity and NaN above all finite ones, whereas a float comparison would skip
 * NaN. */
static inline void int8_encode(uint8_t *wire, const float *x, size_t count)
{
    int32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float max;
    memcpy(&max, &most, sizeof(max));
    float scale = isfinite(max) ? max / 127 : NAN;
    float inverse = scale > 0 ? 1 / scale : 0;
    if (isinf(inverse)) inverse = scale = 0; /* too small: 1/scale overflows, send zeros */
    memcpy(wire, &scale, sizeof(scale));
    for (size_t i = 0; i < count; i++) wire[4 + i] = inverse > 0 ? int8_of(x[i] * inverse) : 0;
}

static inline void int8_decode(float *x, const uint8_t *wire, size_t count)
{
    float scale;
    memcpy(&scale, wire, sizeof(scale));
    for (size_t i = 0; i < count; i++) x[i] = scale * (float)(int8_t)wire[4 + i];
}

static inline void block_encode(uint8_t *wire, sh_codec codec, const float *x, size_t count)
{
    switch (codec) {
    case SH_CODEC_F32: memcpy(wire, x, 4 * count); break;
    case SH_CODEC_BF16: bf16_encode((uint16_t *)(void *)wire, x, count); break;
    case SH_CODEC_INT8: int8_encode(wire, x, count); break;
    }
}

static inline void block_decode(float *x, sh_codec codec, const uint8_t *wire, size_t count)
{
    switch (codec) {
    case SH_CODEC_F32: memcpy(x, wire, 4 * count); break;
    case SH_CODEC_BF16: bf16_decode(x, (const uint16_t *)(const void *)wire, count); break;
    case SH_CODEC_INT8: int8_decode(x, wire, count); break;
    }
}

static inline void block_fold(float *x, sh_codec codec, const uint8_t *const *parts,
                              int parts_count, size_t offset, size_t count)
{
    float sum[BLOCK];
    float part[BLOCK];
    block_decode(sum, codec, parts[0] + offset, count);
    for (int p = 1; p < parts_count; p++) {
        block_decode(part, codec, parts[p] + offset, count);
        for (size_t i = 0; i < count; i++) sum[i] += part[i];
    }
    memcpy(x, sum, 4 * count);
}

/* Iterates over blocks; number and byte are offsets from block `first`. */
typedef struct {
    const sh_layout *layout;
    size_t left;   /* blocks, including the current one */
    size_t in_row; /* index of the current block in its row */
    size_t number;
    size_t byte;
    size_t count; /* numbers in the current block */
} walk;

static inline void walk_measure(walk *w)
{
    size_t left = w->layout->cols - w->in_row * BLOCK;
    w->count = left < BLOCK ? left : BLOCK;
}

static inline walk walk_start(const sh_layout *layout, size_t first, size_t end)
{
    walk w = {.layout = layout, .left = end - first};
    if (w.left == 0) return w;
    w.in_row = first % layout->row_blocks;
    walk_measure(&w);
    return w;
}

static inline void walk_next(walk *w)
{
    static const uint8_t per_number[] = {4, 2, 1};
    static const uint8_t per_block[] = {0, 0, 4};
    w->number += w->count;
    w->byte += w->count * per_number[w->layout->codec] + per_block[w->layout->codec];
    w->left--;
    if (++w->in_row == w->layout->row_blocks) w->in_row = 0;
    walk_measure(w);
}

void sh_codec_encode(void *wire, const sh_layout *layout, size_t first, size_t end, const float *x)
{
    for (walk w = walk_start(layout, first, end); w.left > 0; walk_next(&w)) {
        uint8_t *at = (uint8_t *)wire + w.byte;
        if (w.count == BLOCK)
            block_encode(at, layout->codec, x + w.number, BLOCK);
        else
            block_encode(at, layout->codec, x + w.number, w.count);
    }
}

void sh_codec_decode(float *x, const sh_layout *layout, size_t first, size_t end, const void *wire)
{
    for (walk w = walk_start(layout, first, end); w.left > 0; walk_next(&w)) {
        const uint8_t *at = (const uint8_t *)wire + w.byte;
        if (w.count == BLOCK)
            block_decode(x + w.number, layout->codec, at, BLOCK);
        else
            block_decode(x + w.number, layout->codec, at, w.count);
    }
}

static inline lanes load(const float *x)
{
    return *(const lanes *)(const void *)x;
}

/* f32 needs no conversion and no blocks. Sixteen numbers are kept in registers while all parts are
 * added, so x is written once; that is also why x may be one of the parts. */
static void fold_f32(float *x, const float *const *parts, int count, size_t numbers)
{
    size_t i = 0;
    for (; i + 16 <= numbers; i += 16) {
        const float *p = parts[0] + i;
        lanes a = load(p), b = load(p + 4), c = load(p + 8), d = load(p + 12);
        for (int k = 1; k < count; k++) {
            p = parts[k] + i;
            a += load(p), b += load(p + 4), c += load(p + 8), d += load(p + 12);
        }
        lanes *to = (lanes *)(void *)(x + i);
        to[0] = a, to[1] = b, to[2] = c, to[3] = d;
    }
    for (; i < numbers; i++) {
        float sum = parts[0][i];
        for (int k = 1; k < count; k++) sum += parts[k][i];
        x[i] = sum;
    }
}

void sh_codec_fold(float *x, const sh_layout *layout, size_t first, size_t end,
                   const void *const *parts, int count)
{
    if (layout->codec == SH_CODEC_F32) {
        size_t numbers = sh_layout_number_at(layout, end) - sh_layout_number_at(layout, first);
        fold_f32(x, (const float *const *)parts, count, numbers);
        return;
    }
    const uint8_t *const *bytes = (const uint8_t *const *)parts;
    for (walk w = walk_start(layout, first, end); w.left > 0; walk_next(&w)) {
        if (w.count == BLOCK)
            block_fold(x + w.number, layout->codec, bytes, count, w.byte, BLOCK);
        else
            block_fold(x + w.number, layout->codec, bytes, count, w.byte, w.count);
    }
}

void sh_codec_fold_round(float *x, const sh_layout *layout, size_t first, size_t end,
                         const void *const *parts, int count, void *sum)
{
    sh_codec_fold(x, layout, first, end, parts, count);
    if (sum == NULL) return;
    sh_codec_encode(sum, layout, first, end, x);
    sh_codec_decode(x, layout, first, end, sum);
}
