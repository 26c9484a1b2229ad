/* Passes over rows against plain loops in double, and the same bits at every level. */
#include "kernels/rows.h"

#include "base/hash.h"
#include "kernels/cpu/cpu.h"

#include "levels.h"

enum { COUNT = 16 * SH_ROW_BLOCK + 5, BLOCKS = 17 };

static const sh_row_kernels *rows_of(const char *name)
{
    const sh_cpu_level *level;
    sh_err err;
    CHECK_OK(sh_cpu_level_find(name, &level, &err), err);
    return &level->vector->rows;
}

static void rows_fill(float *x, uint64_t seed)
{
    for (int i = 0; i < COUNT; i++) x[i] = random_float(&seed) * 20;
    x[3] = NAN;
    x[70] = -INFINITY;
    for (int i = 128; i < 192; i++) x[i] = -INFINITY;
    for (int i = 192; i < 256; i++) x[i] = NAN;
}

TEST(tops_are_the_largest_of_each_block_and_pass_over_nan)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    float x[COUNT], tops[BLOCKS];
    rows_fill(x, 5);
    for (int l = levels_list(names); l-- > 0;) {
        rows_of(names[l])->tops(tops, x, COUNT);
        for (int b = 0; b < BLOCKS; b++) {
            float want = -INFINITY;
            for (int i = b * SH_ROW_BLOCK; i < COUNT && i < (b + 1) * SH_ROW_BLOCK; i++)
                want = fmaxf(want, x[i]);
            if (tops[b] != want) fail_msg("%s, block %d: %g", names[l], b, (double)tops[b]);
        }
    }
}

TEST(sums_of_exponentials_are_near_and_the_same_bits_at_every_level)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    float x[COUNT];
    double sums[BLOCKS], first[BLOCKS] = {0};
    rows_fill(x, 6);
    for (int i = 0; i < COUNT; i++) x[i] = isnan(x[i]) ? -200 : x[i];
    for (int l = 0, count = levels_list(names); l < count; l++) {
        rows_of(names[l])->exps(sums, x, BLOCKS - 1, 20);
        for (int b = 0; b < BLOCKS - 1; b++) {
            double want = 0;
            for (int i = 0; i < SH_ROW_BLOCK; i++)
                want += exp((double)x[b * SH_ROW_BLOCK + i] - 20);
            if (fabs(sums[b] - want) > 1e-6 * want + 1e-35)
                fail_msg("%s, block %d: %.9g, not %.9g", names[l], b, sums[b], want);
        }
        if (l == 0) memcpy(first, sums, sizeof(sums));
        check_same_bits(names[l], sums, first, (BLOCKS - 1) * sizeof(double));
    }
}

TEST(noise_is_found_where_one_of_a_block_lacks_the_bits)
{
    UNUSED_STATE;
    const char *names[LEVELS_MAX];
    int found = 0;
    for (int l = levels_list(names); l-- > 0;) {
        for (uint32_t n = 0; n < 4000; n++) {
            uint64_t key = sh_mix64(n), mask = n % 16 == 0 ? 0 : ~(UINT64_MAX >> n % 16);
            bool want = false;
            for (uint32_t i = 0; i < SH_ROW_BLOCK; i++)
                want = want || (sh_mix64(key ^ (n * 37 + i)) & mask) == 0;
            assert_int_equal(rows_of(names[l])->noise_lacks(key, n * 37, mask), want);
            found += want;
        }
    }
    assert_in_range(found, 1000, 4000 * LEVELS_MAX - 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tops_are_the_largest_of_each_block_and_pass_over_nan),
        cmocka_unit_test(sums_of_exponentials_are_near_and_the_same_bits_at_every_level),
        cmocka_unit_test(noise_is_found_where_one_of_a_block_lacks_the_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
