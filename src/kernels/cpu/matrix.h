/* matrix.h - the kernels of matrix products, as a level's table holds them.
 *
 * Numbers. With int8 activations and a format that has codes, an output is
 *     sum over steps of (d*s) * dot(codes, q) + (d*sum(q)) * b
 * in the order of the columns, from zero, each of the two terms added by one fused multiply-add, s
 * and b being the step's scale and bias of the row (b - zero*s for FP4). The dots are exact, so
 * this order gives the same bits at every level, for every tile of rows or tokens and any number of
 * threads. Otherwise an output is the sum of weight * x in the order of the columns, fused or not
 * as the level has it, but always the same at one level.
 *
 * Threads: kernels are pure functions. */
#ifndef SH_KERNELS_CPU_MATRIX_H
#define SH_KERNELS_CPU_MATRIX_H

#include "kernels/cpu/panel.h"

/* The input of a product: as f32, and as codes when the panel has them. Token t of the product is
 * row pick[t] of these, or row t when pick is NULL. */
typedef struct {
    const float *x; /* [tokens, cols] */
    int64_t x_stride;
    int8_t *q;   /* [tokens, cols], columns padded with zeros to a multiple of 64 */
    float *d;    /* [tokens, steps] scale of a step's codes */
    float *dsum; /* [tokens, steps] d * sum of the step's codes */
    int64_t q_stride;
    int64_t d_stride;
    const int32_t *pick;
} sh_acts;

static inline int64_t sh_acts_row(const sh_acts *a, int t)
{
    return a->pick == NULL ? t : a->pick[t];
}

/* y[t, 0..rows) for the panels that start at `w`, `rows` of whose rows exist. */
typedef void (*sh_dot_fn)(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                          int tokens, float *y, int64_t y_stride);

typedef struct {
    /* One row of activations to codes -127..127 in steps of 16, 32 or 64 columns. q is written up
     * to a multiple of 64, d and dsum for cols / step, rounded up. Same bits at every level. */
    void (*quantize)(const float *x, int64_t cols, int step, int8_t *q, float *d, float *dsum);
    sh_dot_fn dot_codes; /* int8 activations, formats with codes */
    sh_dot_fn dot_f32;   /* any format */
} sh_matrix_kernels;

extern const sh_matrix_kernels sh_matrix_generic;

#endif
