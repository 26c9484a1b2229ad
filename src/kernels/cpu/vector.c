#include "kernels/cpu/vector.h"

#include "kernels/cpu/vec_generic.h"
#include "kernels/cpu/vector_body.h"

const sh_vector_kernels sh_vector_generic = VECTOR_KERNELS;
