/* Code products for AVX-512 without VNNI. vpmaddubsw leaves sums of two products in 16 bits, which
 * must not overflow: as many of these sums are added as the largest codes allow before they are
 * widened (SH_SAFE_RUN), and codes of 8 bits are multiplied as two halves of 4. */
#include "kernels/cpu/open_avx512.h"

INLINE __m512i four_codes(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof(x));
    return _mm512_set1_epi32(x);
}

/* Adds `factor` times the products of vectors [0, run) of codes with one token. */
INLINE __m512i run_add(int run, const __m512i *w, const int8_t *q, int factor, __m512i dot)
{
    __m512i sum = _mm512_maddubs_epi16(w[0], four_codes(q));
    UNROLL (v, run - 1)
        sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(w[v + 1], four_codes(q + 4 * (v + 1))));
    return _mm512_add_epi32(dot, _mm512_madd_epi16(sum, _mm512_set1_epi16((short)factor)));
}

INLINE void dots(int bits, int vecs, int count, int stride, const __m512i *w, const int8_t *q,
                 __m512i *dot)
{
    const int safe = SH_SAFE_RUN(bits), run = safe < vecs ? safe : vecs;
    UNROLL (r, vecs / run) {
        __m512i low[8], high[8];
        UNROLL (v, run) {
            low[v] = bits == 8 ? _mm512_and_si512(w[r * run + v], _mm512_set1_epi8(15))
                               : w[r * run + v];
            high[v] = _mm512_and_si512(_mm512_srli_epi16(w[r * run + v], 4), _mm512_set1_epi8(15));
        }
        UNROLL (t, count) {
            const int8_t *x = q + t * stride + 4 * r * run;
            dot[t] = run_add(run, low, x, 1, dot[t]);
            if (bits == 8) dot[t] = run_add(run, high, x, 16, dot[t]);
        }
    }
}

#include "kernels/cpu/dot_avx512.h"

/* The destination is write-only, so the instructions do not wait for each other. */
static int64_t spin(int64_t loops)
{
    __m512i acc[12], w = _mm512_set1_epi8(1);
    for (int64_t l = 0; l < loops; l++)
        UNROLL (i, 12) __asm__ volatile("vpmaddubsw %1, %1, %0" : "=v"(acc[i]) : "v"(w));
    return loops * 12 * 64 * 2;
}

const sh_matrix_kernels sh_matrix_avx512 = {
    .quantize = sh_quantize_avx512,
    .dot_codes = dot_codes,
    .dot_f32 = sh_dot_f32_avx512,
    .spin = spin,
};
