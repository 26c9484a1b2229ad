/* Ops that move numbers without arithmetic. They run on the caller. */
#include "kernels/cpu/cpu.h"

#include <string.h>

void sh_cpu_zero(sh_device *dev, float *x, size_t count)
{
    (void)dev;
    memset(x, 0, count * sizeof(*x));
}

void sh_cpu_copy_heads(sh_device *dev, float *y, int64_t y_token_stride, int64_t y_head_stride,
                       const float *x, int64_t x_token_stride, int64_t x_head_stride, int tokens,
                       int heads, int64_t dim)
{
    (void)dev;
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++)
            memcpy(y + t * y_token_stride + h * y_head_stride,
                   x + t * x_token_stride + h * x_head_stride, (size_t)dim * sizeof(*y));
}
