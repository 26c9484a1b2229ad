/* Ops that move numbers without arithmetic. They run on the caller. */
#include "kernels/cpu/cpu.h"

#include "base/hash.h"

#include <string.h>

void sh_cpu_zero(sh_device *dev, sh_tensor x, int rows, int64_t cols)
{
    (void)dev;
    SH_ASSERT(x.stride == cols);
    memset(x.data, 0, (size_t)rows * (size_t)cols * sizeof(float));
}

void sh_cpu_copy_rows(sh_device *dev, const sh_device_batch *b, sh_tensor y, sh_tensor x,
                      int64_t cols)
{
    (void)dev;
    for (int r = 0; r < b->in.row_count; r++)
        memcpy(sh_cpu_f32(y) + r * y.stride, sh_cpu_f32(x) + b->in.rows[r] * x.stride,
               (size_t)cols * sizeof(float));
}

void sh_cpu_copy_heads(sh_device *dev, sh_tensor y, int64_t y_head_stride, sh_tensor x,
                       int64_t x_head_stride, int tokens, int heads, int64_t dim)
{
    (void)dev;
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++)
            memcpy(sh_cpu_f32(y) + t * y.stride + h * y_head_stride,
                   sh_cpu_f32(x) + t * x.stride + h * x_head_stride, (size_t)dim * sizeof(float));
}

void sh_cpu_hash_rows(sh_device *dev, const sh_device_batch *b, sh_tensor x, int64_t cols,
                      uint64_t seed, uint64_t *out)
{
    sh_key128 key = {seed, 0};
    const int32_t last = b->in.tokens - 1;
    bool some = b->in.row_count > 0;
    (void)dev;
    for (int i = 0; i < (some ? b->in.row_count : 1); i++) {
        int64_t row = some ? b->in.rows[i] : last;
        key = sh_hash128(key, sh_cpu_f32(x) + row * x.stride, (size_t)cols * sizeof(float));
    }
    *out = key.lo;
}
