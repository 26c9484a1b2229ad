#include "kernels/codec.h"

#include "base/status.h"

#include "test.h"

#include <math.h>

/* A plain generator: the same numbers on every machine. */
static uint32_t seed = 1;
static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return ((float)(seed >> 8) / (float)(1 << 24) - 0.5f) * 20.0f;
}

TEST(layout_covers_rows_of_any_width)
{
    UNUSED_STATE;
    for (size_t cols = 1; cols < 100; cols += 7) {
        sh_layout l = sh_layout_of(SH_CODEC_INT8, 3, cols);
        size_t blocks = sh_layout_blocks(&l);
        assert_int_equal(blocks, 3 * ((cols + 31) / 32));
        assert_int_equal(sh_layout_number_at(&l, blocks), 3 * cols);
        assert_int_equal(sh_layout_byte_at(&l, blocks), 3 * cols + 4 * blocks);
        for (size_t b = 0; b < blocks; b++) {
            size_t count = sh_layout_number_at(&l, b + 1) - sh_layout_number_at(&l, b);
            assert_true(count >= 1 && count <= 32);
            assert_int_equal(sh_layout_byte_at(&l, b + 1) - sh_layout_byte_at(&l, b), count + 4);
        }
    }
    sh_layout f = sh_layout_of(SH_CODEC_F32, 3, 33);
    assert_int_equal(sh_layout_blocks(&f), 4);
    assert_int_equal(sh_layout_byte_at(&f, 4), 4 * 99);
    sh_layout none = sh_layout_of(SH_CODEC_INT8, 0, 33);
    assert_int_equal(sh_layout_blocks(&none), 0);
    assert_int_equal(sh_layout_byte_at(&none, 0), 0);
}

/* Numbers whose bf16 is known from the format: 8 bits of mantissa, ties to even. */
TEST(bf16_rounds_to_nearest_even)
{
    UNUSED_STATE;
    static const struct {
        float in;
        float out;
    } cases[] = {
        {1.0f, 1.0f},
        {1.0f + 0x1p-8f, 1.0f},                     /* half way: to even */
        {1.0f + 0x1p-7f + 0x1p-8f, 1.0f + 0x1p-6f}, /* half way: to even, upwards */
        {1.0f + 0x1p-8f + 0x1p-20f, 1.0f + 0x1p-7f},
        {-3.0e38f, -0x1.c4p+127f},
        {0x1.ffp+127f, INFINITY}, /* nothing is larger than the largest */
        {-INFINITY, -INFINITY},
        {-0.0f, -0.0f},
    };
    sh_layout l = sh_layout_of(SH_CODEC_BF16, 1, 1);
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        uint16_t wire;
        float back;
        sh_codec_encode(&wire, &l, 0, 1, &cases[i].in);
        sh_codec_decode(&back, &l, 0, 1, &wire);
        assert_memory_equal(&back, &cases[i].out, 4);
    }
    float nan = NAN;
    uint16_t wire;
    sh_codec_encode(&wire, &l, 0, 1, &nan);
    sh_codec_decode(&nan, &l, 0, 1, &wire);
    assert_true(isnan(nan));
}

TEST(int8_stays_within_half_a_step_of_its_block)
{
    UNUSED_STATE;
    enum { ROWS = 5, COLS = 77 };
    float x[ROWS * COLS];
    float y[ROWS * COLS];
    uint8_t wire[ROWS * COLS + 4 * ROWS * 3];
    sh_layout l = sh_layout_of(SH_CODEC_INT8, ROWS, COLS);
    for (size_t i = 0; i < ROWS * COLS; i++) x[i] = draw();
    sh_codec_encode(wire, &l, 0, sh_layout_blocks(&l), x);
    sh_codec_decode(y, &l, 0, sh_layout_blocks(&l), wire);
    for (size_t r = 0; r < ROWS; r++) {
        for (size_t c = 0; c < COLS; c++) {
            float max = 0;
            for (size_t k = c / 32 * 32; k < COLS && k < c / 32 * 32 + 32; k++)
                max = fmaxf(max, fabsf(x[r * COLS + k]));
            assert_true(fabsf(x[r * COLS + c] - y[r * COLS + c]) <= max / 127 * 0.5001f);
        }
    }
    /* A second rounding changes nothing: decoded values are exactly representable. */
    float z[ROWS * COLS];
    sh_codec_encode(wire, &l, 0, sh_layout_blocks(&l), y);
    sh_codec_decode(z, &l, 0, sh_layout_blocks(&l), wire);
    for (size_t i = 0; i < ROWS * COLS; i++) assert_true(fabsf(y[i] - z[i]) <= fabsf(y[i]) * 1e-6f);
}

TEST(int8_carries_zero_tiny_and_broken_numbers)
{
    UNUSED_STATE;
    float x[96] = {0};
    float y[96];
    uint8_t wire[96 + 12];
    sh_layout l = sh_layout_of(SH_CODEC_INT8, 1, 96);
    for (int i = 32; i < 64; i++) x[i] = 1e-42f;
    x[70] = NAN;
    sh_codec_encode(wire, &l, 0, 3, x);
    sh_codec_decode(y, &l, 0, 3, wire);
    for (int i = 0; i < 64; i++) assert_true(y[i] == 0);
    for (int i = 64; i < 96; i++) assert_true(isnan(y[i]));
    x[70] = INFINITY;
    sh_codec_encode(wire, &l, 0, 3, x);
    sh_codec_decode(y, &l, 0, 3, wire);
    assert_true(isnan(y[64]));
}

/* Folding any run of blocks gives what folding everything gives, in the order of the parts. */
TEST(folds_in_order_wherever_the_cut_is)
{
    UNUSED_STATE;
    enum { ROWS = 3, COLS = 75, COUNT = ROWS * COLS, PARTS = 3 };
    static float x[PARTS][COUNT];
    static uint8_t wire[PARTS][COUNT * 4 + 64];
    for (int codec = 0; codec < 3; codec++) {
        sh_layout l = sh_layout_of((sh_codec)codec, ROWS, COLS);
        size_t blocks = sh_layout_blocks(&l);
        const void *parts[PARTS];
        float rounded[PARTS][COUNT];
        for (int p = 0; p < PARTS; p++) {
            for (int i = 0; i < COUNT; i++) x[p][i] = draw() * (p == 1 ? 1e6f : 1.0f);
            sh_codec_encode(wire[p], &l, 0, blocks, x[p]);
            sh_codec_decode(rounded[p], &l, 0, blocks, wire[p]);
        }
        for (size_t first = 0; first < blocks; first++) {
            for (size_t end = first; end <= blocks; end++) {
                float out[COUNT];
                size_t from = sh_layout_number_at(&l, first);
                size_t to = sh_layout_number_at(&l, end);
                for (int p = 0; p < PARTS; p++) parts[p] = wire[p] + sh_layout_byte_at(&l, first);
                sh_codec_fold(out, &l, first, end, parts, PARTS);
                for (size_t i = from; i < to; i++) {
                    float want = rounded[0][i];
                    want += rounded[1][i];
                    want += rounded[2][i];
                    assert_memory_equal(&out[i - from], &want, 4);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_covers_rows_of_any_width),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(int8_stays_within_half_a_step_of_its_block),
        cmocka_unit_test(int8_carries_zero_tiny_and_broken_numbers),
        cmocka_unit_test(folds_in_order_wherever_the_cut_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
