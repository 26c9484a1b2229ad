/* Compiles the vector kernels for the generic level. */
#define VECTOR_TABLE sh_vector_generic
#include "kernels/cpu/vec_generic.h"

#include "kernels/cpu/vector_body.h"
