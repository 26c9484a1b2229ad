/* Compiles the vector kernels for arm64. */
#define VECTOR_TABLE sh_vector_neon
#include "kernels/cpu/vec_neon.h"

#include "kernels/cpu/vector_body.h"
