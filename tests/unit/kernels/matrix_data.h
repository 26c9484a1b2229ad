/* matrix_data.h - random matrices as files store them, and reference values in double.
 *
 * The reference is decoded from the raw bits, element by element, by code that shares nothing with
 * the packing under test. */
#ifndef SH_TESTS_KERNELS_MATRIX_DATA_H
#define SH_TESTS_KERNELS_MATRIX_DATA_H

#include "unit/kernels/levels.h"

typedef struct {
    sh_quant quant;
    int64_t rows, cols;
    uint8_t *w, *scales, *biases;
    size_t w_stride, scales_stride;
} raw_matrix;

static inline int raw_bits(const sh_quant *q)
{
    switch (q->format) {
    case SH_FORMAT_F32: return 32;
    case SH_FORMAT_F16:
    case SH_FORMAT_BF16: return 16;
    case SH_FORMAT_AFFINE: return q->bits;
    case SH_FORMAT_MXFP8: return 8;
    default: return 4;
    }
}

static inline size_t raw_scale_size(const sh_quant *q)
{
    if (q->format != SH_FORMAT_AFFINE) return 1;
    return q->scale_dtype == SH_DTYPE_F32 ? 4 : 2;
}

/* Floats as 16-bit patterns of ordinary size, either kind. */
static inline void random_float_bytes(uint64_t *seed, uint8_t *dst, int bits, bool bf16, float size)
{
    float x = random_float(seed) * size;
    uint32_t u;
    memcpy(&u, &x, 4);
    if (bits == 32) {
        memcpy(dst, &u, 4);
        return;
    }
    uint16_t h = (uint16_t)(u >> 16);
    if (!bf16) /* sign, an exponent from 2^-14 to 1, any fraction */
        h = (uint16_t)((random_u32(seed) & 0x83ff) | (1 + random_u32(seed) % 13) << 10);
    memcpy(dst, &h, 2);
}

static inline raw_matrix raw_random(uint64_t *seed, sh_quant quant, int64_t rows, int64_t cols)
{
    raw_matrix m = {.quant = quant, .rows = rows, .cols = cols};
    int bits = raw_bits(&quant);
    m.w_stride = (size_t)(cols * bits / 8);
    m.w = malloc(m.w_stride * (size_t)rows + 1);
    for (size_t i = 0; i < m.w_stride * (size_t)rows; i++) m.w[i] = (uint8_t)random_u32(seed);
    if (quant.group == 0) {
        for (int64_t i = 0; i < rows * cols; i++)
            random_float_bytes(seed, m.w + i * bits / 8, bits, quant.format == SH_FORMAT_BF16,
                               0.5f);
        return m;
    }
    if (quant.format == SH_FORMAT_MXFP8) /* no NaN */
        for (size_t i = 0; i < m.w_stride * (size_t)rows; i++)
            if ((m.w[i] & 0x7f) == 0x7f) m.w[i] ^= 1;
    size_t size = raw_scale_size(&quant), groups = (size_t)(cols / quant.group);
    m.scales_stride = groups * size;
    m.scales = malloc(m.scales_stride * (size_t)rows + 1);
    m.biases = malloc(m.scales_stride * (size_t)rows + 1);
    for (size_t i = 0; i < groups * (size_t)rows; i++) {
        if (size == 1) {
            m.scales[i] = quant.format == SH_FORMAT_NVFP4 ? (uint8_t)(random_u32(seed) % 0x7f)
                                                          : (uint8_t)(115 + random_u32(seed) % 10);
            continue;
        }
        bool bf16 = quant.scale_dtype == SH_DTYPE_BF16;
        random_float_bytes(seed, m.scales + i * size, (int)size * 8, bf16, 0.01f);
        random_float_bytes(seed, m.biases + i * size, (int)size * 8, bf16, 0.05f);
    }
    return m;
}

static inline void raw_free(raw_matrix *m)
{
    free(m->w);
    free(m->scales);
    free(m->biases);
}

static inline double raw_f16(uint16_t h)
{
    int e = h >> 10 & 31;
    double f = h & 1023, x = e == 0 ? ldexp(f, -24) : ldexp(f + 1024, e - 25);
    return h >> 15 ? -x : x;
}

static inline double raw_float(const uint8_t *src, int bits, bool bf16)
{
    uint32_t u = 0;
    float x;
    memcpy(&u, src, (size_t)bits / 8);
    if (bits == 16 && !bf16) return raw_f16((uint16_t)u);
    if (bits == 16) u <<= 16;
    memcpy(&x, &u, 4);
    return x;
}

static inline double raw_e4m3(uint8_t b)
{
    int e = b >> 3 & 15, f = b & 7;
    double x = e == 0 ? ldexp(f, -9) : ldexp(f + 8, e - 10);
    return b >> 7 ? -x : x;
}

static inline uint32_t raw_code(const raw_matrix *m, int64_t row, int64_t col)
{
    int bits = raw_bits(&m->quant);
    uint32_t code = 0;
    for (int i = 0; i < bits; i++) {
        int64_t at = col * bits + i;
        code |= (uint32_t)(m->w[(size_t)row * m->w_stride + (size_t)(at / 8)] >> (at % 8) & 1) << i;
    }
    return code;
}

static inline double raw_weight(const raw_matrix *m, int64_t row, int64_t col)
{
    static const double fp4[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const sh_quant *q = &m->quant;
    int bits = raw_bits(q);
    if (q->group == 0)
        return raw_float(m->w + (size_t)row * m->w_stride + (size_t)(col * bits / 8), bits,
                         q->format == SH_FORMAT_BF16);
    size_t size = raw_scale_size(q),
           at = (size_t)row * m->scales_stride + (size_t)(col / q->group) * size;
    uint32_t code = raw_code(m, row, col);
    if (q->format == SH_FORMAT_AFFINE) {
        bool bf16 = q->scale_dtype == SH_DTYPE_BF16;
        return code * raw_float(m->scales + at, (int)size * 8, bf16) +
               raw_float(m->biases + at, (int)size * 8, bf16);
    }
    if (q->format == SH_FORMAT_MXFP8)
        return raw_e4m3((uint8_t)code) * ldexp(1, m->scales[at] - 127);
    double value = code & 8 ? -fp4[code & 7] : fp4[code & 7];
    if (q->format == SH_FORMAT_MXFP4) return value * ldexp(1, m->scales[at] - 127);
    return value * raw_e4m3(m->scales[at]) * (double)q->global_scale;
}

static inline sh_raw_rows raw_rows_at(const raw_matrix *m, int64_t row)
{
    return (sh_raw_rows){
        .w = m->w + (size_t)row * m->w_stride,
        .w_stride = m->w_stride,
        .scales = m->scales == NULL ? NULL : m->scales + (size_t)row * m->scales_stride,
        .scales_stride = m->scales_stride,
        .biases = m->biases == NULL ? NULL : m->biases + (size_t)row * m->scales_stride,
        .biases_stride = m->scales_stride,
    };
}

/* The matrix on a device, packed in pieces like the loader does. */
static inline sh_matrix raw_pack(sh_device *dev, const raw_matrix *raws, int64_t count)
{
    sh_matrix m = {.quant = raws->quant, .rows = raws->rows, .cols = raws->cols, .count = count};
    sh_err err;
    m.stride = dev->ops->matrix_bytes(dev, &m.quant, m.rows, m.cols);
    CHECK_OK(dev->ops->map(dev, m.stride * (size_t)count, "test", &m.data, &err), err);
    for (int64_t i = 0; i < count; i++)
        for (int64_t row = 0; row < m.rows; row += dev->ops->pack_rows) {
            sh_raw_rows rows = raw_rows_at(&raws[i], row);
            int64_t left = m.rows - row, most = dev->ops->pack_rows;
            sh_matrix_part part = {
                .index = i, .row = row, .rows = left < most ? left : most, .cols = m.cols};
            dev->ops->matrix_pack(dev, &m, &part, &rows);
        }
    return m;
}

static inline void matrix_free(sh_device *dev, sh_matrix *m)
{
    dev->ops->unmap(dev, m->data, m->stride * (size_t)m->count);
}

static inline sh_device *mode_open(const char *level, int threads, sh_activations mode)
{
    sh_limits limits = {.tokens = 64,
                        .cols = 1024,
                        .expert_rows = 256,
                        .hidden = 256,
                        .experts = 16,
                        .topk = 4,
                        .heads = 8,
                        .head_dim = 128};
    sh_device_opts opts = {.threads = threads, .level = level, .activations = mode};
    sh_device *dev;
    sh_err err;
    CHECK_OK(sh_device_open(NULL, &opts, &dev, &err), err);
    CHECK_OK(dev->ops->reserve(dev, &limits, &err), err);
    return dev;
}

/* Every width of codes, group size, type of scale and kind of float. */
static const sh_quant raw_formats[] = {
    {SH_FORMAT_F32, 0, 0, SH_DTYPE_F32, 1},        {SH_FORMAT_F16, 0, 0, SH_DTYPE_F32, 1},
    {SH_FORMAT_BF16, 0, 0, SH_DTYPE_F32, 1},       {SH_FORMAT_AFFINE, 2, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 3, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 4, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 5, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 6, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 8, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 4, 64, SH_DTYPE_F16, 1},
    {SH_FORMAT_AFFINE, 4, 32, SH_DTYPE_F32, 1},    {SH_FORMAT_AFFINE, 3, 32, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 4, 128, SH_DTYPE_BF16, 1},  {SH_FORMAT_AFFINE, 8, 128, SH_DTYPE_F16, 1},
    {SH_FORMAT_AFFINE, 2, 128, SH_DTYPE_F32, 1},   {SH_FORMAT_AFFINE, 8, 32, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 5, 32, SH_DTYPE_F16, 1},    {SH_FORMAT_AFFINE, 6, 128, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 2, 32, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 6, 32, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 3, 128, SH_DTYPE_BF16, 1},  {SH_FORMAT_AFFINE, 5, 128, SH_DTYPE_F32, 1},
    {SH_FORMAT_MXFP4, 4, 32, SH_DTYPE_F32, 1},     {SH_FORMAT_MXFP8, 8, 32, SH_DTYPE_F32, 1},
    {SH_FORMAT_NVFP4, 4, 16, SH_DTYPE_F32, 0.25f},
};

static inline bool has_codes(const sh_quant *q)
{
    return q->group != 0 && q->format != SH_FORMAT_MXFP8;
}

/* The i-th of a few sizes that are odd wherever the format allows it. */
static inline int64_t odd_cols(const sh_quant *q, int i)
{
    return q->group == 0 ? 37 * i : q->group * (i == 5 ? 1024 / q->group - 1 : i);
}

#endif
