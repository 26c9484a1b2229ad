/* Code products for any arm64 CPU, without dot product instructions. Products of bytes are summed
 * in 16 bits as long as the largest codes allow, then in 32. */
#include "kernels/cpu/open_neon.h"

enum { NT = 2 }; /* tokens whose sums are computed together */

/* How many products code * 127 can be added up in signed 16 bits, for codes up to 15, 24 or 31, 63
 * and 128. */
#define SAFE_RUN(bits) ((bits) <= 4 ? 16 : (bits) == 6 ? 4 : (bits) == 8 ? 2 : 8)

INLINE void reorder(int vecs, int8x16_t *w)
{
    (void)vecs;
    (void)w;
}

/* Four rows, two in each half of the vectors; vpaddq adds the two partial sums of each row. */
INLINE int32x4_t one_dot(int bits, int vecs, const int8x16_t *w, const int8_t *q)
{
    const int safe = SAFE_RUN(bits), run = safe < vecs ? safe : vecs;
    int32x4_t low = vdupq_n_s32(0), high = vdupq_n_s32(0);
    UNROLL (r, vecs / run) {
        int16x8_t a = vdupq_n_s16(0), b = vdupq_n_s16(0);
        UNROLL (v, run) {
            int32_t four;
            memcpy(&four, q + 4 * (r * run + v), sizeof(four));
            int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
            a = vmlal_s8(a, vget_low_s8(w[r * run + v]), vget_low_s8(x));
            b = vmlal_high_s8(b, w[r * run + v], x);
        }
        low = vpadalq_s16(low, a);
        high = vpadalq_s16(high, b);
    }
    return vpaddq_s32(low, high);
}

INLINE void dots(int bits, int vecs, int count, const int8x16_t *w, const int8_t *q, int32x4_t *dot)
{
    UNROLL (t, count) dot[t] = vaddq_s32(dot[t], one_dot(bits, vecs, w, q + 4 * vecs * t));
}

#include "kernels/cpu/dot_neon.h"

const sh_matrix_kernels sh_matrix_neon = {
    .quantize = sh_quantize_neon,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_neon,
};
