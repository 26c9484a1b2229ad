#include "kernels/cpu/acts.h"

#include "unit/kernels/matrix_data.h"

enum { TOKENS_MAX = 40 };

static float *product_of(sh_device *dev, const sh_matrix *m, const float *x, int tokens)
{
    float *y = malloc(sizeof(float) * (size_t)(tokens * m->rows));
    sh_product product = {.w = m, .y = tensor_of(y, m->rows)};
    dev->ops->matmul(dev, &product, 1, tensor_of(x, m->cols), tokens);
    return y;
}

/* Every output against the sum in double. Bounds: for f32, the rounding of `cols` additions of
 * terms of that size. For int8 each input is off by at most half a step of its group, max|x| / 254,
 * or by a 254th of that where its residual is coded too; for bf16 by 2^-9 of itself. */
static void check_against_truth(sh_device *dev, const raw_matrix *raw, const float *x, float x_max,
                                int tokens, bool codes, bool rounded)
{
    int64_t rows = raw->rows, cols = raw->cols;
    sh_matrix m = raw_pack(dev, raw, 1);
    float *y = product_of(dev, &m, x, tokens);
    for (int64_t r = 0; r < rows; r++) {
        double w[1024];
        for (int64_t c = 0; c < cols; c++) w[c] = raw_weight(raw, r, c);
        for (int t = 0; t < tokens; t++) {
            double sum = 0, size = 0, weight = 0;
            for (int64_t c = 0; c < cols; c++) {
                sum += w[c] * x[t * cols + c];
                size += fabs(w[c] * x[t * cols + c]);
                weight += fabs(w[c]);
            }
            double bound = (size + 8 * weight * x_max) * (double)(cols + 64) * 0x1p-24;
            if (codes) bound += weight * x_max / 254 * 1.001 / (cols <= SH_ACTS_NARROW ? 254 : 1);
            if (rounded) bound += size * 0x1p-9 * 1.001;
            if (!(fabs(y[t * rows + r] - sum) <= bound))
                fail_msg("format %d bits %d group %d, %d columns: row %d, token %d of %d: %g, not "
                         "%g within %g",
                         raw->quant.format, raw->quant.bits, raw->quant.group, (int)cols, (int)r, t,
                         tokens, (double)y[t * rows + r], sum, bound);
        }
    }
    free(y);
    matrix_free(dev, &m);
}

static void check_truth(sh_activations mode)
{
    const char *names[LEVELS_MAX];
    for (int l = 0, count = product_levels_list(names); l < count; l++) {
        sh_device *dev = mode_open(names[l], 2, mode);
        uint64_t seed = 1;
        for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++)
            for (int i = 1; i <= 5; i++) {
                const sh_quant *q = &raw_formats[f];
                raw_matrix raw = raw_random(&seed, *q, 13 + 27 * i, odd_cols(q, i));
                float *x = random_floats(&seed, (size_t)((3 * i + 1) * raw.cols), 3);
                check_against_truth(dev, &raw, x, 3, 3 * i + 1,
                                    mode == SH_ACTIVATIONS_INT8 && has_codes(q),
                                    mode == SH_ACTIVATIONS_INT8 && q->format == SH_FORMAT_BF16);
                free(x);
                raw_free(&raw);
            }
        dev->ops->close(dev);
    }
}

TEST(every_format_matches_double_with_f32_activations)
{
    UNUSED_STATE;
    check_truth(SH_ACTIVATIONS_F32);
}

TEST(every_format_matches_double_with_int8_activations)
{
    UNUSED_STATE;
    check_truth(SH_ACTIVATIONS_INT8);
}

/* Codes and activations all at their limits, with equal and with mixed signs: where sums in 16 bits
 * would saturate. */
TEST(the_largest_codes_do_not_saturate)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    static const uint8_t fills[] = {0xff, 0x00, 0x77, 0x88, 0xf0};
    for (int l = 0, count = product_levels_list(names); l < count; l++) {
        sh_device *dev = mode_open(names[l], 1, SH_ACTIVATIONS_INT8);
        uint64_t seed = 2;
        for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++)
            for (size_t i = 0; i < SH_COUNT_OF(fills); i++) {
                const sh_quant *q = &raw_formats[f];
                if (!has_codes(q)) continue;
                raw_matrix raw = raw_random(&seed, *q, 19, 512);
                memset(raw.w, fills[i], raw.w_stride * (size_t)raw.rows);
                float x[3 * 512];
                for (int c = 0; c < 512; c++) {
                    x[c] = 5;
                    x[512 + c] = -5;
                    x[1024 + c] = c % 2 == 0 ? 5 : -5;
                }
                check_against_truth(dev, &raw, x, 5, 3, true, false);
                raw_free(&raw);
            }
        dev->ops->close(dev);
    }
}

/* A narrow and a wide matrix. */
static const int WIDTHS[] = {3, 5};

static void check_levels(int width)
{
    const char *names[LEVELS_MAX];
    int count = product_levels_list(names);
    for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++) {
        const sh_quant *q = &raw_formats[f];
        if (!has_codes(q)) continue;
        uint64_t seed = 3;
        raw_matrix raw = raw_random(&seed, *q, 77, odd_cols(q, width));
        float *x = random_floats(&seed, (size_t)(TOKENS_MAX * raw.cols), 2), *first = NULL;
        for (int l = 0; l < count; l++) {
            sh_device *dev = mode_open(names[l], 1, SH_ACTIVATIONS_INT8);
            sh_matrix m = raw_pack(dev, &raw, 1);
            float *y = product_of(dev, &m, x, TOKENS_MAX);
            if (first == NULL) first = malloc(sizeof(float) * (size_t)(TOKENS_MAX * raw.rows));
            if (l == 0) memcpy(first, y, sizeof(float) * (size_t)(TOKENS_MAX * raw.rows));
            check_same_bits(names[l], first, y, sizeof(float) * (size_t)(TOKENS_MAX * raw.rows));
            free(y);
            matrix_free(dev, &m);
            dev->ops->close(dev);
        }
        free(first);
        free(x);
        raw_free(&raw);
    }
}

TEST(products_with_codes_have_the_same_bits_at_every_level)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(WIDTHS); i++) check_levels(WIDTHS[i]);
}

static void check_batches(const char *level, sh_activations mode, const sh_quant *q, int width)
{
    uint64_t seed = 4;
    raw_matrix raw = raw_random(&seed, *q, 91, odd_cols(q, width));
    float *x = random_floats(&seed, (size_t)(TOKENS_MAX * raw.cols), 1);
    sh_device *dev = mode_open(level, 1, mode), *wide = mode_open(level, 3, mode);
    sh_matrix m = raw_pack(dev, &raw, 1);
    size_t row = sizeof(float) * (size_t)raw.rows;
    float *alone = malloc(row * TOKENS_MAX);
    for (int t = 0; t < TOKENS_MAX; t++) {
        float *y = product_of(dev, &m, x + t * raw.cols, 1);
        memcpy(alone + t * raw.rows, y, row);
        free(y);
    }
    /* Kernels treat a few tokens in a way of their own. */
    int step = raw.cols > SH_ACTS_NARROW ? 6 : 1;
    for (int tokens = 2; tokens <= TOKENS_MAX; tokens += SLOW ? 11 : tokens < 8 ? 1 : step) {
        sh_device *with = tokens % 3 == 0 ? wide : dev;
        float *y = product_of(with, &m, x, tokens);
        check_same_bits(level, alone, y, row * (size_t)tokens);
        free(y);
    }
    free(alone);
    free(x);
    matrix_free(dev, &m);
    raw_free(&raw);
    dev->ops->close(dev);
    wide->ops->close(wide);
}

TEST(a_token_has_the_same_bits_alone_and_in_any_batch_on_any_threads)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    for (int l = 0, count = product_levels_list(names); l < count; l++)
        for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f += SLOW ? 2 : 1) {
            for (size_t i = 0; i < SH_COUNT_OF(WIDTHS); i++)
                check_batches(names[l], SH_ACTIVATIONS_INT8, &raw_formats[f], WIDTHS[i]);
            check_batches(names[l], SH_ACTIVATIONS_F32, &raw_formats[f], WIDTHS[0]);
        }
}

/* Formats that need the input as codes of different steps, and as floats, in one call. */
TEST(products_that_share_an_input_are_those_made_one_by_one)
{
    UNUSED_STATE;
    enum { COUNT = 4, COLS = 256, TOKENS = 5 };
    static const int pick[COUNT] = {5, 10, 2, 22};
    const char *names[LEVELS_MAX];
    for (int l = 0, levels = product_levels_list(names); l < levels; l++) {
        sh_device *dev = mode_open(names[l], 2, SH_ACTIVATIONS_INT8);
        uint64_t seed = 5;
        float *x = random_floats(&seed, TOKENS * COLS, 1);
        raw_matrix raw[COUNT];
        sh_matrix m[COUNT];
        sh_product products[COUNT];
        float *bias[COUNT], y[COUNT][TOKENS * 100];
        for (int i = 0; i < COUNT; i++) {
            raw[i] = raw_random(&seed, raw_formats[pick[i]], 40 + 17 * i, COLS);
            m[i] = raw_pack(dev, &raw[i], 1);
            bias[i] = random_floats(&seed, 100, 1);
            products[i] = (sh_product){&m[i], i % 2 == 0 ? bias[i] : NULL, tensor_of(y[i], 100)};
        }
        dev->ops->matmul(dev, products, COUNT, tensor_of(x, COLS), TOKENS);
        for (int i = 0; i < COUNT; i++) {
            float *alone = product_of(dev, &m[i], x, TOKENS);
            for (int t = 0; t < TOKENS; t++)
                for (int64_t r = 0; r < m[i].rows; r++) {
                    float want = alone[t * m[i].rows + r] + (i % 2 == 0 ? bias[i][r] : 0);
                    if (y[i][t * 100 + r] != want) fail_msg("product %d, row %d", i, (int)r);
                }
            free(alone);
            free(bias[i]);
            matrix_free(dev, &m[i]);
            raw_free(&raw[i]);
        }
        free(x);
        dev->ops->close(dev);
    }
}

TEST(heads_are_products_of_each_matrix_of_the_stack)
{
    UNUSED_STATE;
    enum { HEADS = 5, ROWS = 24, COLS = 128, TOKENS = 37 };
    static const int pick[] = {2, 5, 7, 22, 24};
    const char *names[LEVELS_MAX];
    for (int l = 0, levels = product_levels_list(names); l < levels; l++)
        for (size_t f = 0; f < SH_COUNT_OF(pick); f++) {
            sh_device *dev = mode_open(names[l], 2, SH_ACTIVATIONS_INT8);
            uint64_t seed = 6;
            raw_matrix raw[HEADS];
            for (int h = 0; h < HEADS; h++)
                raw[h] = raw_random(&seed, raw_formats[pick[f]], ROWS, COLS);
            sh_matrix m = raw_pack(dev, raw, HEADS);
            float *x = random_floats(&seed, TOKENS * HEADS * COLS, 1);
            float *y = malloc(sizeof(float) * TOKENS * HEADS * ROWS);
            dev->ops->matmul_heads(dev, &m, tensor_of(x, HEADS * COLS), COLS,
                                   tensor_of(y, HEADS * ROWS), ROWS, TOKENS);
            for (int h = 0; h < HEADS; h++) {
                sh_matrix one = m;
                one.count = 1;
                one.data = (uint8_t *)m.data + (size_t)h * m.stride;
                for (int t = 0; t < TOKENS; t++) {
                    float *want = product_of(dev, &one, x + (t * HEADS + h) * COLS, 1);
                    check_same_bits("head", want, y + (t * HEADS + h) * ROWS, sizeof(float) * ROWS);
                    free(want);
                }
                raw_free(&raw[h]);
            }
            free(x);
            free(y);
            matrix_free(dev, &m);
            dev->ops->close(dev);
        }
}

TEST(an_unknown_level_is_refused_with_the_list)
{
    UNUSED_STATE;
    sh_device_opts opts = {.threads = 1, .level = "sse9"};
    sh_device *dev;
    sh_err err;
    CHECK_FAILS(sh_device_open(NULL, &opts, &dev, &err), err, "'sse9'");
    CHECK_FAILS(sh_device_open(NULL, &opts, &dev, &err), err, "generic");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_matches_double_with_f32_activations),
        cmocka_unit_test(every_format_matches_double_with_int8_activations),
        cmocka_unit_test(the_largest_codes_do_not_saturate),
        cmocka_unit_test(products_with_codes_have_the_same_bits_at_every_level),
        cmocka_unit_test(a_token_has_the_same_bits_alone_and_in_any_batch_on_any_threads),
        cmocka_unit_test(products_that_share_an_input_are_those_made_one_by_one),
        cmocka_unit_test(heads_are_products_of_each_matrix_of_the_stack),
        cmocka_unit_test(an_unknown_level_is_refused_with_the_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
