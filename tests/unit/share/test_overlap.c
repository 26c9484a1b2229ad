/* What two windows have in common, against looking at every byte. */
#include "share/overlap.h"

#include "test.h"

#include <string.h>

enum { FILE_LEN = 400, TURNS = 20000 };

static sh_window random_window(uint64_t stride)
{
    for (;;) {
        sh_window w = {(uint64_t)rand() % FILE_LEN, stride, 1 + (uint64_t)rand() % stride,
                       1 + (uint64_t)rand() % 8};
        if (rand() % 4 == 0) w = sh_window_range(w.offset, 1 + (uint64_t)rand() % 100);
        w = sh_window_merged(w);
        if (sh_window_fits(&w, FILE_LEN)) return w;
    }
}

static void bytes_mark(const sh_window *w, uint8_t mark[FILE_LEN])
{
    memset(mark, 0, FILE_LEN);
    for (uint64_t i = 0; i < w->rows; i++) memset(mark + w->offset + i * w->stride, 1, w->len);
}

static void bytes_take(const sh_window *w, const uint8_t *file, uint8_t *out)
{
    for (uint64_t i = 0; i < w->rows; i++)
        memcpy(out + i * w->len, file + w->offset + i * w->stride, w->len);
}

static int common_bytes(const sh_window *a, const sh_window *b)
{
    uint8_t in_a[FILE_LEN], in_b[FILE_LEN];
    int count = 0;
    bytes_mark(a, in_a);
    bytes_mark(b, in_b);
    for (int i = 0; i < FILE_LEN; i++) count += in_a[i] && in_b[i];
    return count;
}

/* The bytes of `want` are those of the overlap, copied out of `have`, and those of the rest. */
static void check_parts(const sh_window *want, const sh_window *have, const sh_window_rect *rect)
{
    uint8_t file[FILE_LEN], expected[FILE_LEN], got[FILE_LEN], have_data[FILE_LEN];
    sh_window_rect all = sh_window_rect_all(want), rest[SH_WINDOW_REST_MAX];
    for (int i = 0; i < FILE_LEN; i++) file[i] = (uint8_t)(1 + rand() % 255);
    memset(got, 0, sizeof(got));
    bytes_take(want, file, expected);
    bytes_take(have, file, have_data);
    sh_window_rect_copy(want, rect, have, have_data, got + rect->row * want->len + rect->col,
                        want->len);
    int count = sh_window_rect_rest(&all, rect, rest);
    uint64_t bytes = rect->rows * rect->cols;
    for (int i = 0; i < count; i++) {
        sh_window part = sh_window_rect_cut(want, &rest[i]);
        bytes += sh_window_bytes(&part);
        for (uint64_t row = 0; row < part.rows; row++)
            memcpy(got + (rest[i].row + row) * want->len + rest[i].col,
                   file + part.offset + row * part.stride, part.len);
    }
    assert_int_equal(bytes, sh_window_bytes(want)); /* each byte once */
    assert_memory_equal(got, expected, sh_window_bytes(want));
}

TEST(an_overlap_and_the_rest_are_the_whole_window)
{
    UNUSED_STATE;
    int found = 0;
    srand(7);
    for (int i = 0; i < TURNS; i++) {
        uint64_t stride = 2 + (uint64_t)rand() % 40;
        sh_window want = random_window(stride), have = random_window(stride);
        sh_window_rect rect;
        if (!sh_window_overlap(&want, &have, &rect)) continue;
        check_parts(&want, &have, &rect);
        assert_true(rect.rows * rect.cols <= (uint64_t)common_bytes(&want, &have));
        found++;
    }
    assert_true(found > TURNS / 10);
}

/* Columns of one matrix, and ranges of its rows: nothing that is there is missed. */
TEST(shards_of_one_matrix_overlap_in_all_that_they_share)
{
    UNUSED_STATE;
    enum { STRIDE = 20, ROWS = 20 };
    srand(8);
    for (int i = 0; i < TURNS; i++) {
        uint64_t col[2] = {(uint64_t)rand() % STRIDE, (uint64_t)rand() % STRIDE};
        uint64_t row[2] = {(uint64_t)rand() % ROWS, (uint64_t)rand() % ROWS};
        sh_window w[2];
        for (int k = 0; k < 2; k++) {
            w[k] = (sh_window){row[k] * STRIDE + col[k], STRIDE,
                               1 + (uint64_t)rand() % (STRIDE - col[k]),
                               1 + (uint64_t)rand() % (ROWS - row[k])};
            if (k == 1 && i % 3 == 0)
                w[k] = (sh_window){row[k] * STRIDE, STRIDE, STRIDE, w[k].rows};
            w[k] = sh_window_merged(w[k]);
        }
        if (w[0].rows == 1 && w[0].len > STRIDE && w[1].rows > 1) continue; /* not looked for */
        sh_window_rect rect = {0};
        bool found = sh_window_overlap(&w[0], &w[1], &rect);
        assert_int_equal(found ? rect.rows * rect.cols : 0, common_bytes(&w[0], &w[1]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overlap_and_the_rest_are_the_whole_window),
        cmocka_unit_test(shards_of_one_matrix_overlap_in_all_that_they_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
