/* One number at a time, straight from the definition of each format: this runs on small tensors
 * only, and only at load, so it is written to be obviously right. */
#include "model/dequant.h"

#include "kernels/half.h"

#include <string.h>

static float load_float(sh_dtype dtype, const uint8_t *data, int64_t index)
{
    uint16_t half;
    float value;
    if (dtype == SH_DTYPE_F32) {
        memcpy(&value, data + index * 4, sizeof(value));
        return value;
    }
    memcpy(&half, data + index * 2, sizeof(half));
    return dtype == SH_DTYPE_F16 ? sh_f16_to_f32(half) : sh_bf16_to_f32(half);
}

static sh_dtype dtype_of(sh_tensor_type type)
{
    SH_ASSERT(type == SH_TENSOR_F32 || type == SH_TENSOR_F16 || type == SH_TENSOR_BF16);
    return type == SH_TENSOR_F32   ? SH_DTYPE_F32
           : type == SH_TENSOR_F16 ? SH_DTYPE_F16
                                   : SH_DTYPE_BF16;
}

void sh_floats_to_f32(sh_tensor_type type, const void *data, int64_t step, int64_t count,
                      float *out)
{
    sh_dtype dtype = dtype_of(type);
    for (int64_t i = 0; i < count; i++) out[i] = load_float(dtype, data, i * step);
}

/* Code `index` of a little-endian bit stream; with 3, 5 or 6 bits a code may span two bytes. */
static unsigned unpack(const uint8_t *w, int bits, int64_t index)
{
    int64_t bit = index * bits;
    unsigned two = w[bit / 8];
    if (bit % 8 + bits > 8) two |= (unsigned)w[bit / 8 + 1] << 8;
    return two >> (bit % 8) & ((1U << bits) - 1);
}

static float e2m1(unsigned bits)
{
    static const float sizes[8] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    return (bits & 8) != 0 ? -sizes[bits & 7] : sizes[bits & 7];
}

static float dequant_one(const sh_quant *q, const uint8_t *w, const uint8_t *scales,
                         const uint8_t *biases, int64_t i)
{
    int64_t group = q->group > 0 ? i / q->group : 0;
    switch (q->format) {
    case SH_FORMAT_F32: return load_float(SH_DTYPE_F32, w, i);
    case SH_FORMAT_F16: return load_float(SH_DTYPE_F16, w, i);
    case SH_FORMAT_BF16: return load_float(SH_DTYPE_BF16, w, i);
    case SH_FORMAT_AFFINE:
        return load_float(q->scale_dtype, scales, group) * (float)unpack(w, q->bits, i) +
               load_float(q->scale_dtype, biases, group);
    case SH_FORMAT_MXFP4: return e2m1(unpack(w, 4, i)) * sh_e8m0_to_f32(scales[group]);
    case SH_FORMAT_MXFP8: return sh_e4m3_to_f32(w[i]) * sh_e8m0_to_f32(scales[group]);
    case SH_FORMAT_NVFP4:
        return e2m1(unpack(w, 4, i)) * sh_e4m3_to_f32(scales[group]) * q->global_scale;
    }
    return 0;
}

void sh_dequant_row(const sh_quant *quant, const uint8_t *w, const uint8_t *scales,
                    const uint8_t *biases, int64_t cols, float *out)
{
    for (int64_t i = 0; i < cols; i++) out[i] = dequant_one(quant, w, scales, biases, i);
}
