/* Compiles the vector kernels for AVX-512. */
#define VECTOR_TABLE sh_vector_avx512
#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/vector_body.h"
