/* dot.h - shared by the levels of the matrix products.
 *
 * Threads: pure functions. */
#ifndef SH_KERNELS_CPU_DOT_H
#define SH_KERNELS_CPU_DOT_H

#include "kernels/cpu/matrix.h"

/* A loop over registers, fully unrolled. Not in a sanitizer build: GCC cannot unroll a loop with
 * the checks inside, and clang produces an enormous amount of code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if defined(SANITIZED)
#define UNROLL(i, count) for (int i = 0; i < (count); i++)
#elif defined(__clang__)
#define UNROLL(i, count) _Pragma("clang loop unroll(full)") for (int i = 0; i < (count); i++)
#else
#define UNROLL(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)
#endif

/* As a number of bits: 4 bits that a table maps to codes up to 24, twice the value plus
 * SH_FP4_ZERO.
 */
enum { SH_FP4 = 104, SH_FP4_ZERO = 12 };

/* x86: how many sums of two products code * 127 can be added up in signed 16 bits, for codes up to
 * 15 (also the halves of 8 bits), 24 or 31, and 63: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 31 * 127 =
 * 31496, 2 * 2 * 63 * 127 = 32004, all below 32768. */
#define SH_SAFE_RUN(bits) ((bits) <= 4 || (bits) == 8 ? 8 : (bits) == 6 ? 2 : 4)

void sh_quantize_avx512(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                        int32_t *sum);
void sh_dot_f32_avx512(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                       float *y, int64_t y_stride);
void sh_dot_codes_avx512vnni(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a,
                             float *y, int64_t y_stride);
int64_t sh_spin_avx512vnni(int64_t loops);
void sh_quantize_avx2(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                      int32_t *sum);
void sh_dot_f32_avx2(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                     int64_t y_stride);
void sh_quantize_neon(const float *x, int64_t cols, int step, int tile, int8_t *q, float *d,
                      int32_t *sum);
void sh_dot_f32_neon(const sh_panel *p, const uint8_t *w, int64_t rows, const sh_acts *a, float *y,
                     int64_t y_stride);

extern const sh_matrix_kernels sh_matrix_avx2;
extern const sh_matrix_kernels sh_matrix_avx512;
extern const sh_matrix_kernels sh_matrix_avx512vnni;
extern const sh_matrix_kernels sh_matrix_avx512bf16;
extern const sh_matrix_kernels sh_matrix_neon;
extern const sh_matrix_kernels sh_matrix_dotprod;
extern const sh_matrix_kernels sh_matrix_i8mm;

#endif
