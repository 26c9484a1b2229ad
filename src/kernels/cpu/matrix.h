/* matrix.h - the kernels of matrix products, as the table of a level.
 *
 * Arithmetic. With int8 activations and a format that has codes, an output is
 *     sum over steps of (d*s) * dot(codes - zero, q) + (d*sum(q)) * b
 * where a step is a group of columns, d and q are the scale and the codes of the activations, s and
 * b the scale and the bias of the row in that step. Steps are added in the order of the columns,
 * starting from zero, each of the two terms by one fused multiply-add. FP4 has no b, and only its
 * codes have a zero. The dots are exact integers, so this order gives the same bits at every level,
 * for every tile of rows or tokens and any number of threads.
 *
 * BF16 weights may be multiplied with activations rounded to BF16, where the level has an
 * instruction for it; that adds pairs of columns in order. In all other cases an output is the sum
 * of weight * x in the order of the columns, fused or not depending on the level, but always the
 * same at one level.
 *
 * Threads: kernels are pure functions. */
#ifndef SH_KERNELS_CPU_MATRIX_H
#define SH_KERNELS_CPU_MATRIX_H

#include "kernels/cpu/panel.h"

enum { SH_ACTS_TILE = 32 };

/* The input of a product: as f32, and as codes when the panel has codes. Codes are in tiles of 32
 * tokens (the last may have fewer), each as [step][token of the tile][column of the step], so that
 * a kernel with the weights of a step in registers reads the tokens of a tile sequentially. A "row
 * of q" is one token's codes of one step. */
typedef struct {
    int tokens;
    const float *x; /* rows of cols numbers; token t is row pick[t], or t when pick is NULL */
    int64_t x_stride;
    const int32_t *pick;
    int8_t *q;
    float *d;      /* two for each row of q: its scale, and scale * sum of its codes */
    int32_t *sum;  /* for each row of q the sum of its codes */
    int64_t steps; /* of a token */
    int64_t low;   /* rows of q from a row to its residual's; 0: residuals are not coded */
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

/* y[t, 0..rows) of all tokens for the panels that start at `w`; the last may have fewer rows. */
typedef void (*sh_dot_fn)(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                          float *y, int64_t y_stride);

/* The factor that maps the largest magnitude of a step to 127. A step of next to nothing becomes
 * all zeros, before 127 / top can overflow. */
static inline float sh_quant_inverse(float top)
{
    return top > 1e-30f ? 127.0f / top : 0;
}

typedef struct {
    /* Quantizes the activations of one token to codes -127..127 in steps of 16, 32 or 64 columns.
     * Step i goes to q + i*tile*step, d + i*tile*2 and sum + i*tile, where `tile` is the number of
     * tokens in the tile. Same bits at every level. */
    void (*quantize)(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                     int32_t *sum);
    sh_dot_fn dot_codes; /* int8 activations, formats with codes */
    sh_dot_fn dot_f32;   /* any format */
    sh_dot_fn dot_bf16;  /* BF16 with activations rounded to BF16; NULL: dot_f32 instead */
    /* Runs the level's dot product instruction on registers and returns the number of
     * multiplications and additions; for measuring. NULL at a level without such a loop. */
    int64_t (*spin)(int64_t loops);
} sh_matrix_kernels;

extern const sh_matrix_kernels sh_matrix_generic;

#endif
