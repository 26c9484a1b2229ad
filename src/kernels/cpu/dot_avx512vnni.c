/* Code products with VNNI: one vpdpbusd multiplies 64 codes and adds them up in fours. It is inline
 * assembly because compilers turn the broadcast memory operand into a separate load, which fills up
 * the reorder buffer. */
#include "kernels/cpu/open_avx512.h"

typedef int32_t four __attribute__((may_alias));

#define DOT(acc, w, x)                                                                             \
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(w), "m"(*(const four *)(x)))

/* A single token has two chains of sums: there is nothing else to hide the latency with. The sums
 * are integers, so the result is the same. */
INLINE void dots(int bits, int vecs, int count, int stride, const __m512i *w, const int8_t *q,
                 __m512i *dot)
{
    (void)bits;
    if (count == 1) {
        __m512i odd = _mm512_setzero_si512();
        UNROLL (v, vecs / 2) {
            DOT(dot[0], w[2 * v], q + 8 * v);
            DOT(odd, w[2 * v + 1], q + 8 * v + 4);
        }
        dot[0] = _mm512_add_epi32(dot[0], odd);
        return;
    }
    UNROLL (v, vecs)
        UNROLL (t, count) DOT(dot[t], w[v], q + 4 * v + t * stride);
}

#include "kernels/cpu/dot_avx512.h"

void sh_dot_codes_avx512vnni(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                             float *y, int64_t y_stride)
{
    dot_codes(p, w, rows, a, y, y_stride);
}

/* Twelve independent chains hide the latency of the instruction. */
int64_t sh_spin_avx512vnni(int64_t loops)
{
    __m512i acc[12], w = _mm512_set1_epi8(1);
    UNROLL (i, 12) acc[i] = _mm512_setzero_si512();
    for (int64_t l = 0; l < loops; l++)
        UNROLL (i, 12) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(acc[i]) : "v"(w));
    return loops * 12 * 64 * 2;
}

const sh_matrix_kernels sh_matrix_avx512vnni = {
    .quantize = sh_quantize_avx512,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_avx512,
    .spin = sh_spin_avx512vnni,
};
