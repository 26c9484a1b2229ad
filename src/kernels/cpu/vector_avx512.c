#include "kernels/cpu/vec_avx512.h"

#include "kernels/cpu/vector_body.h"

const sh_vector_kernels sh_vector_avx512 = VECTOR_KERNELS;
