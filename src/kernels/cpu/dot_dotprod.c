/* Code products with SDOT, which multiplies 4 rows by four codes of a token. The four codes are one
 * lane of a register with 16 of them, so a single load serves four instructions. */
#include "kernels/cpu/open_neon.h"

enum { NT = 4 }; /* tokens whose sums are computed together */

INLINE void reorder(int vecs, int8x16_t *w)
{
    (void)vecs;
    (void)w;
}

INLINE void dots(int bits, int vecs, int count, const int8x16_t *w, const int8_t *q, int32x4_t *dot)
{
    (void)bits;
    UNROLL (v, vecs / 4) {
        UNROLL (t, count) {
            int8x16_t x = vld1q_s8(q + 4 * (vecs * t + 4 * v));
            dot[t] = vdotq_laneq_s32(dot[t], w[4 * v], x, 0);
            dot[t] = vdotq_laneq_s32(dot[t], w[4 * v + 1], x, 1);
            dot[t] = vdotq_laneq_s32(dot[t], w[4 * v + 2], x, 2);
            dot[t] = vdotq_laneq_s32(dot[t], w[4 * v + 3], x, 3);
        }
    }
}

#include "kernels/cpu/dot_neon.h"

/* Twelve independent chains hide the latency of the instruction. */
static int64_t spin(int64_t loops)
{
    int8x16_t w = vdupq_n_s8(1);
    int32x4_t acc[12];
    UNROLL (i, 12) acc[i] = vdupq_n_s32(0);
    for (int64_t l = 0; l < loops; l++)
        UNROLL (i, 12) __asm__ volatile("sdot %0.4s, %1.16b, %1.16b" : "+w"(acc[i]) : "w"(w));
    return loops * 12 * 16 * 2;
}

const sh_matrix_kernels sh_matrix_dotprod = {
    .quantize = sh_quantize_neon,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_neon,
    .spin = spin,
};
