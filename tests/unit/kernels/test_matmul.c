#include "kernels/device.h"

#include "test.h"

#include "unit/kernels/matrix_data.h"

static const char *const level_names[] = {"generic", "avx2",    "avx512", "avx512vnni",
                                          "neon",    "dotprod", "i8mm"};

static const sh_quant formats[] = {
    {SH_FORMAT_F32, 0, 0, SH_DTYPE_F32, 1},        {SH_FORMAT_F16, 0, 0, SH_DTYPE_F32, 1},
    {SH_FORMAT_BF16, 0, 0, SH_DTYPE_F32, 1},       {SH_FORMAT_AFFINE, 2, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 3, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 4, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 5, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 6, 64, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 8, 64, SH_DTYPE_BF16, 1},   {SH_FORMAT_AFFINE, 4, 64, SH_DTYPE_F16, 1},
    {SH_FORMAT_AFFINE, 4, 32, SH_DTYPE_F32, 1},    {SH_FORMAT_AFFINE, 3, 32, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 4, 128, SH_DTYPE_BF16, 1},  {SH_FORMAT_AFFINE, 8, 128, SH_DTYPE_F16, 1},
    {SH_FORMAT_AFFINE, 2, 128, SH_DTYPE_F32, 1},   {SH_FORMAT_AFFINE, 8, 32, SH_DTYPE_BF16, 1},
    {SH_FORMAT_AFFINE, 5, 32, SH_DTYPE_F16, 1},    {SH_FORMAT_AFFINE, 6, 128, SH_DTYPE_BF16, 1},
    {SH_FORMAT_MXFP4, 4, 32, SH_DTYPE_F32, 1},     {SH_FORMAT_MXFP8, 8, 32, SH_DTYPE_F32, 1},
    {SH_FORMAT_NVFP4, 4, 16, SH_DTYPE_F32, 0.25f},
};

static sh_device *device_open(const char *level, int threads, sh_activations activations)
{
    sh_cpu_opts opts = {.threads = threads, .level = level, .activations = activations};
    sh_limits limits = {.tokens = 48,
                        .cols = 1024,
                        .rows = 256,
                        .hidden = 256,
                        .experts = 8,
                        .topk = 4,
                        .heads = 8,
                        .head_dim = 128};
    sh_device *dev;
    sh_err err;
    if (sh_device_open_cpu(&opts, &dev, &err) != SH_OK) return NULL;
    CHECK_OK(dev->ops->reserve(dev, &limits, &err), err);
    return dev;
}

static sh_matrix pack(sh_device *dev, const raw_matrix *raw)
{
    sh_matrix m = {.quant = raw->quant, .rows = raw->rows, .cols = raw->cols, .count = 1};
    sh_err err;
    m.stride = dev->ops->matrix_bytes(dev, &raw->quant, raw->rows, raw->cols);
    CHECK_OK(dev->ops->map(dev, m.stride, "test", &m.data, &err), err);
    for (int64_t row = 0; row < raw->rows; row += SH_PACK_ROWS) {
        sh_raw_rows rows = raw_rows_at(raw, row);
        int64_t left = raw->rows - row;
        dev->ops->matrix_pack(dev, &m, 0, row, left < SH_PACK_ROWS ? left : SH_PACK_ROWS, &rows);
    }
    return m;
}

/* Every output against the sum in double. f32: the error of adding cols products one by one. int8:
 * each input is off by at most half a step of its group, d/2 = max|x| / 254. */
static void check_against_truth(sh_device *dev, const raw_matrix *raw, int tokens, bool codes)
{
    int64_t rows = raw->rows, cols = raw->cols;
    sh_matrix m = pack(dev, raw);
    float *x = malloc(sizeof(float) * (size_t)(tokens * cols));
    float *y = malloc(sizeof(float) * (size_t)(tokens * rows));
    for (int64_t i = 0; i < tokens * cols; i++) x[i] = random_float() * 3;
    sh_product product = {.w = &m, .y = y, .y_stride = rows};
    dev->ops->matmul(dev, &product, 1, x, cols, tokens);
    for (int t = 0; t < tokens; t++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0, size = 0, weight = 0;
            for (int64_t c = 0; c < cols; c++) {
                double w = raw_weight(raw, r, c);
                sum += w * x[t * cols + c];
                size += fabs(w * x[t * cols + c]);
                weight += fabs(w);
            }
            double bound = (size + weight) * (double)(cols + 64) * 0x1p-22;
            if (codes) bound += weight * 3 / 254 * 1.001;
            if (!(fabs(y[t * rows + r] - sum) <= bound))
                fail_msg(
                    "format %d bits %d group %d: row %d col count %d token %d: %g, not %g (%g)",
                    raw->quant.format, raw->quant.bits, raw->quant.group, (int)r, (int)cols, t,
                    (double)y[t * rows + r], sum, bound);
        }
    free(x);
    free(y);
    dev->ops->unmap(dev, m.data, m.stride);
}

static void check_level(const char *level, sh_activations activations)
{
    sh_device *dev = device_open(level, 2, activations);
    if (dev == NULL) return;
    for (size_t f = 0; f < SH_COUNT_OF(formats); f++) {
        const sh_quant *q = &formats[f];
        bool codes = activations == SH_ACTIVATIONS_INT8 && q->group != 0 &&
                     q->format != SH_FORMAT_MXFP8;
        int unit = q->group == 0 ? 1 : q->group;
        for (int i = 1; i <= 5; i++) {
            raw_matrix raw = raw_random(*q, 13 + 27 * i, unit * (q->group == 0 ? 37 * i : i));
            check_against_truth(dev, &raw, 1 + 3 * i, codes);
            raw_free(&raw);
        }
    }
    dev->ops->close(dev);
}

TEST(every_format_matches_double_with_f32_activations)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(level_names); i++)
        check_level(level_names[i], SH_ACTIVATIONS_F32);
}

TEST(every_format_matches_double_with_int8_activations)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(level_names); i++)
        check_level(level_names[i], SH_ACTIVATIONS_INT8);
}

TEST(an_unknown_level_is_refused_with_the_list)
{
    UNUSED_STATE;
    sh_cpu_opts opts = {.threads = 1, .level = "sse9"};
    sh_device *dev;
    sh_err err;
    CHECK_FAILS(sh_device_open_cpu(&opts, &dev, &err), err, "generic");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_matches_double_with_f32_activations),
        cmocka_unit_test(every_format_matches_double_with_int8_activations),
        cmocka_unit_test(an_unknown_level_is_refused_with_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
