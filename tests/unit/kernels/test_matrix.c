#include "unit/kernels/matrix_data.h"

/* The weight in f32 as specified: product and sum are rounded separately. */
static float weight_f32(const raw_matrix *raw, int64_t row, int64_t col)
{
    const sh_quant *q = &raw->quant;
    if (q->format != SH_FORMAT_AFFINE) return (float)raw_weight(raw, row, col);
    size_t size = raw_scale_size(q);
    size_t at = (size_t)row * raw->scales_stride + (size_t)(col / q->group) * size;
    bool bf16 = q->scale_dtype == SH_DTYPE_BF16;
    float scale = (float)raw_float(raw->scales + at, (int)size * 8, bf16);
    float bias = (float)raw_float(raw->biases + at, (int)size * 8, bf16);
    float product = scale * (float)raw_code(raw, row, col);
    return product + bias;
}

TEST(embedding_a_row_gives_its_weights_to_the_bit_at_every_level)
{
    UNUSED_STATE;
    enum { ROWS = 75, FIRST = 1000, TOKENS = 6 };
    static const int32_t ids[TOKENS] = {1000, 1074, 1016, 1075, 999, 1047};
    const char *names[LEVELS_MAX];
    for (int l = 0, count = levels_list(names); l < count; l++) {
        sh_device *dev = mode_open(names[l], 2, SH_ACTIVATIONS_INT8);
        uint64_t seed = 11;
        for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++) {
            raw_matrix raw = raw_random(&seed, raw_formats[f], ROWS, odd_cols(&raw_formats[f], 3));
            sh_matrix m = raw_pack(dev, &raw, 1);
            float *y = malloc(sizeof(float) * (size_t)(TOKENS * raw.cols));
            sh_span span = {.count = TOKENS};
            sh_batch batch = {.tokens = TOKENS, .ids = ids, .span_count = 1, .spans = &span};
            dev->ops->embed(dev, dev->ops->step_begin(dev, &batch), &m, FIRST, 3.0f,
                            tensor_of(y, raw.cols));
            for (int t = 0; t < TOKENS; t++)
                for (int64_t c = 0; c < raw.cols; c++) {
                    int64_t row = ids[t] - FIRST;
                    float want = row < 0 || row >= ROWS ? 0 : 3.0f * weight_f32(&raw, row, c);
                    if (y[t * raw.cols + c] != want)
                        fail_msg("format %zu: token %d, column %d: %.9g, not %.9g", f, t, (int)c,
                                 (double)y[t * raw.cols + c], (double)want);
                }
            free(y);
            matrix_free(dev, &m);
            raw_free(&raw);
        }
        dev->ops->close(dev);
    }
}

/* The size of a matrix in memory against its size in the file: the weights of a model must not grow
 * by more than a tenth. */
TEST(packed_matrices_are_hardly_larger_than_the_file)
{
    UNUSED_STATE;
    sh_device *dev = mode_open(NULL, 1, SH_ACTIVATIONS_INT8);
    for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++) {
        const sh_quant *q = &raw_formats[f];
        double bits = raw_bits(q);
        if (q->group != 0)
            bits += (q->format == SH_FORMAT_AFFINE ? 2 : 1) * 8.0 * (double)raw_scale_size(q) /
                    q->group;
        double file = 4096.0 * 2880 * bits / 8;
        sh_quant quant = *q;
        int64_t cols = quant.group == 128 ? 2944 : 2880;
        double packed = (double)dev->ops->matrix_bytes(dev, &quant, 4096, cols) * 2880 /
                        (double)cols;
        if (packed > file * 1.02) fail_msg("format %zu: %.0f bytes for %.0f", f, packed, file);
    }
    dev->ops->close(dev);
}

/* The raw rows from `row` on, from column `col` on. */
static sh_raw_rows raw_from(const raw_matrix *raw, int64_t row, int64_t col)
{
    sh_raw_rows rows = raw_rows_at(raw, row);
    size_t scale = raw->quant.group == 0
                       ? 0
                       : (size_t)(col / raw->quant.group) * raw_scale_size(&raw->quant);
    rows.w = (const uint8_t *)rows.w + (size_t)(col * raw_bits(&raw->quant) / 8);
    if (rows.scales != NULL) rows.scales = (const uint8_t *)rows.scales + scale;
    if (rows.biases != NULL) rows.biases = (const uint8_t *)rows.biases + scale;
    return rows;
}

static sh_matrix map_matrix(sh_device *dev, const sh_quant *quant, int64_t rows, int64_t cols)
{
    sh_err err;
    sh_matrix m = {.quant = *quant, .rows = rows, .cols = cols, .count = 1};
    m.stride = dev->ops->matrix_bytes(dev, quant, rows, cols);
    CHECK_OK(dev->ops->map(dev, m.stride, "test", &m.data, &err), err);
    return m;
}

/* Rows [row, row + rows) and the columns from `col` on, once packed at once, once from a strip that
 * is packed, rows that are packed and the rest, which is copied. */
static void check_part(sh_device *dev, const raw_matrix *raw, const sh_matrix *from, int64_t row,
                       int64_t rows, int64_t col, size_t format)
{
    int64_t cols = raw->cols - col, cut = dev->ops->matrix_cut(dev, &raw->quant);
    int64_t unit = dev->ops->pack_rows, strip = cols > cut ? cut : 0;
    sh_matrix want = map_matrix(dev, &raw->quant, rows, cols);
    sh_matrix got = map_matrix(dev, &raw->quant, rows, cols);
    sh_raw_rows source = raw_from(raw, row, col);
    dev->ops->matrix_pack(dev, &want, &(sh_matrix_part){.rows = rows, .cols = cols}, &source);
    dev->ops->matrix_pack(dev, &got, &(sh_matrix_part){.rows = unit, .cols = cols}, &source);
    source = raw_from(raw, row + unit, col);
    sh_matrix_part part = {.row = unit, .rows = rows - unit, .cols = strip};
    if (strip > 0) dev->ops->matrix_pack(dev, &got, &part, &source);
    part.col = strip;
    part.cols = cols - strip;
    dev->ops->matrix_copy(dev, &got, &part, from, 0, row + unit, col + strip);
    if (memcmp(got.data, want.data, want.stride) != 0)
        fail_msg("format %zu: %d rows from %d, columns from %d", format, (int)rows, (int)row,
                 (int)col);
    matrix_free(dev, &want);
    matrix_free(dev, &got);
}

TEST(parts_of_matrices_are_put_together_like_whole_ones)
{
    UNUSED_STATE;
    enum { ROWS = 107 };
    sh_device *dev = mode_open(NULL, 1, SH_ACTIVATIONS_INT8);
    uint64_t seed = 5;
    for (size_t f = 0; f < SH_COUNT_OF(raw_formats); f++) {
        raw_matrix raw = raw_random(&seed, raw_formats[f], ROWS, odd_cols(&raw_formats[f], 5));
        sh_matrix m = raw_pack(dev, &raw, 1);
        int64_t cut = dev->ops->matrix_cut(dev, &raw.quant);
        for (int64_t row = 0; row < 36; row += 5)
            for (int64_t col = 0; col < raw.cols; col += cut < 32 ? 26 * cut : cut)
                check_part(dev, &raw, &m, row, row % 2 == 0 ? 64 : ROWS - row, col, f);
        matrix_free(dev, &m);
        raw_free(&raw);
    }
    dev->ops->close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_a_row_gives_its_weights_to_the_bit_at_every_level),
        cmocka_unit_test(parts_of_matrices_are_put_together_like_whole_ones),
        cmocka_unit_test(packed_matrices_are_hardly_larger_than_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
