/* vec.h - how the functions of vec_*.h and the loops over registers are compiled.
 *
 * Arrays of vectors stay in registers only if every loop over them is fully unrolled. */
#ifndef SH_KERNELS_CPU_VEC_H
#define SH_KERNELS_CPU_VEC_H

#define VEC_INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
/* clang also tries to unroll before the count is known, and warns that it failed. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
