/* Compiles the vector kernels for AVX2. */
#define VECTOR_TABLE sh_vector_avx2
#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/vector_body.h"
