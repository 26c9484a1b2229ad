/* matrix.h - the kernels of matrix products, as a level's table holds them.
 *
 * Numbers. With int8 activations and a format that has codes, an output is
 *     sum over steps of (d*s) * dot(codes - zero, q) + (d*sum(q)) * b
 * in the order of the columns, from zero, each of the two terms added by one fused multiply-add, s
 * and b being the step's scale and bias of the row; FP4 has no b, and only its codes have a zero.
 * The dots are exact, so this order gives the same bits at every level, for every tile of rows or
 * tokens and any number of threads. BF16 may round the activations likewise where a level has an
 * instruction for it, and adds pairs of columns in order. Otherwise an output is the sum of weight
 * * x in the order of the columns, fused or not as the level has it, but always the same at one
 * level.
 *
 * Threads: kernels are pure functions. */
#ifndef SH_KERNELS_CPU_MATRIX_H
#define SH_KERNELS_CPU_MATRIX_H

#include "kernels/cpu/panel.h"

enum { SH_ACTS_TILE = 32 };

/* The input of a product: as f32, and as codes when the panel has them. Codes lie in tiles of 32
 * tokens (the last may have fewer), each as [step][token of the tile][column of the step], so that
 * a kernel with a step's weights in its registers reads the tokens of a tile one behind the other.
 */
typedef struct {
    int tokens;
    const float *x; /* rows of cols numbers; token t is row pick[t], or t when pick is NULL */
    int64_t x_stride;
    const int32_t *pick;
    int8_t *q;
    float *d;      /* for each row of q two: its scale, and scale * sum of its codes */
    int32_t *sum;  /* for each row of q the sum of its codes */
    int64_t steps; /* of a token */
    int64_t low;   /* rows of q from a row to that of its rest, which is coded too; 0: is not */
} sh_acts;

static inline const float *sh_acts_x(const sh_acts *a, int t)
{
    return a->x + (a->pick == NULL ? t : a->pick[t]) * a->x_stride;
}

/* Tokens of the tile that starts at token t. */
static inline int sh_acts_tile(const sh_acts *a, int t)
{
    return a->tokens - t < SH_ACTS_TILE ? a->tokens - t : SH_ACTS_TILE;
}

/* y[t, 0..rows) of all tokens for the panels that start at `w`, `rows` of whose rows exist. */
typedef void (*sh_dot_fn)(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                          float *y, int64_t y_stride);

/* What the largest of a step is brought to 127 by; so small a step is all zeros. */
static inline float sh_quant_inverse(float top)
{
    return top > 1e-30f ? 127.0f / top : 0;
}

typedef struct {
    /* One token's activations to codes -127..127 in steps of 16, 32 or 64 columns. Step i is
     * written to q + i*tile*step, d + i*tile*2 and sum + i*tile, `tile` being the tokens of its
     * tile. Same bits at every level. */
    void (*quantize)(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                     int32_t *sum);
    sh_dot_fn dot_codes; /* int8 activations, formats with codes */
    sh_dot_fn dot_f32;   /* any format */
    sh_dot_fn dot_bf16;  /* BF16 with activations rounded to BF16; NULL: dot_f32 instead */
    /* Runs the level's dot product instruction on registers; returns the multiplications and
     * additions done. NULL at a level without one. */
    int64_t (*spin)(int64_t loops);
} sh_matrix_kernels;

extern const sh_matrix_kernels sh_matrix_generic;

#endif
