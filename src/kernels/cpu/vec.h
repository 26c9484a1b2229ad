/* vec.h - how the functions of the vec_*.h and the loops over registers are to be compiled.
 *
 * Arrays of vectors stay in registers only where every loop over them is taken apart. */
#ifndef SH_KERNELS_CPU_VEC_H
#define SH_KERNELS_CPU_VEC_H

#define VEC_INLINE static inline __attribute__((always_inline))

#if defined(__clang__)
/* It also tries before a count is known, and says that it could not. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
