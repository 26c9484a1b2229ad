#include "kernels/cpu/vec_avx2.h"

#include "kernels/cpu/vector_body.h"

const sh_vector_kernels sh_vector_avx2 = VECTOR_KERNELS;
