/* Code products with SMMLA, which multiplies two rows by two tokens over eight columns: a 2x2
 * matrix of sums per instruction. */
#include "kernels/cpu/open_neon.h"

enum { NT = 4 }; /* tokens whose sums are computed together */

/* From two registers with 4 rows of four columns each to rows 0 and 1, then rows 2 and 3, with
 * eight columns each. */
INLINE void reorder(int vecs, int8x16_t *w)
{
    UNROLL (v, vecs / 2) {
        int32x4_t a = vreinterpretq_s32_s8(w[2 * v]), b = vreinterpretq_s32_s8(w[2 * v + 1]);
        w[2 * v] = vreinterpretq_s8_s32(vzip1q_s32(a, b));
        w[2 * v + 1] = vreinterpretq_s8_s32(vzip2q_s32(a, b));
    }
}

/* Two tokens, or a single one twice: half of the work is wasted then, but the sums are the same. */
INLINE void dots_of_two(int vecs, const int8x16_t *w, const int8_t *p, const int8_t *q,
                        int32x4_t *of_p, int32x4_t *of_q)
{
    int32x4_t upper = vdupq_n_s32(0), lower = vdupq_n_s32(0);
    UNROLL (v, vecs / 2) {
        int8x16_t x = vcombine_s8(vld1_s8(p + 8 * v), vld1_s8(q + 8 * v));
        upper = vmmlaq_s32(upper, w[2 * v], x);
        lower = vmmlaq_s32(lower, w[2 * v + 1], x);
    }
    *of_p = vaddq_s32(*of_p, vuzp1q_s32(upper, lower));
    if (of_q != of_p) *of_q = vaddq_s32(*of_q, vuzp2q_s32(upper, lower));
}

INLINE void dots(int bits, int vecs, int count, const int8x16_t *w, const int8_t *q, int32x4_t *dot)
{
    (void)bits;
    if (count == 1) {
        dots_of_two(vecs, w, q, q, dot, dot);
        return;
    }
    UNROLL (t, count / 2)
        dots_of_two(vecs, w, q + 8 * vecs * t, q + 8 * vecs * t + 4 * vecs, &dot[2 * t],
                    &dot[2 * t + 1]);
}

#include "kernels/cpu/dot_neon.h"

/* Twelve independent chains hide the latency of the instruction. */
static int64_t spin(int64_t loops)
{
    int8x16_t w = vdupq_n_s8(1);
    int32x4_t acc[12];
    UNROLL (i, 12) acc[i] = vdupq_n_s32(0);
    for (int64_t l = 0; l < loops; l++)
        UNROLL (i, 12) __asm__ volatile("smmla %0.4s, %1.16b, %1.16b" : "+w"(acc[i]) : "w"(w));
    return loops * 12 * 32 * 2;
}

const sh_matrix_kernels sh_matrix_i8mm = {
    .quantize = sh_quantize_neon,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_neon,
    .spin = spin,
};
