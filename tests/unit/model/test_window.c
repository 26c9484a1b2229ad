/* Windows: what fits, how they are cut, and that reading one gives its bytes. */
#include "model/window.h"

#include "test.h"

#include <fcntl.h>
#include <unistd.h>

TEST(a_window_fits_or_not_whatever_its_numbers_are)
{
    UNUSED_STATE;
    static const struct {
        sh_window window;
        uint64_t size;
        bool fits;
    } cases[] = {
        {{0, 10, 10, 1}, 10, true},
        {{1, 10, 10, 1}, 10, false},
        {{0, 10, 4, 3}, 24, true},
        {{0, 10, 4, 3}, 23, false},
        {{0, 0, 4, 1}, 4, true}, /* the stride of one row does not matter */
        {{0, 3, 4, 2}, 100, false},
        {{0, 10, 0, 3}, 100, false},
        {{0, 10, 4, 0}, 100, false},
        {{UINT64_MAX, 10, 4, 1}, UINT64_MAX, false},
        {{0, UINT64_MAX, 4, 2}, UINT64_MAX, false},
        {{0, UINT64_MAX / 2, 4, 4}, UINT64_MAX, false},
        {{0, 8, 8, UINT64_MAX}, UINT64_MAX, false},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++)
        assert_int_equal(sh_window_fits(&cases[i].window, cases[i].size), cases[i].fits);
}

TEST(the_parts_of_a_window_have_its_bytes)
{
    UNUSED_STATE;
    static const sh_window windows[] = {
        {7, 100, 30, 9}, {0, 30, 30, 9}, {500, 400, 256, 3}, {0, 999, 999, 1}, {3, 1, 1, 700}};
    static const uint64_t most[] = {1, 16, 30, 31, 100, 5000};
    char name[] = "/tmp/shoal-test-XXXXXX", file[2000], want[2000], got[2000];
    int fd = mkstemp(name);
    sh_err err;
    for (size_t i = 0; i < sizeof(file); i++) file[i] = (char)(i * 7 + i / 256);
    assert_int_equal(write(fd, file, sizeof(file)), sizeof(file));
    for (size_t i = 0; i < SH_COUNT_OF(windows); i++) {
        const sh_window *w = &windows[i];
        assert_true(sh_window_fits(w, sizeof(file)));
        for (uint64_t r = 0; r < w->rows; r++)
            memcpy(want + r * w->len, file + w->offset + r * w->stride, w->len);
        CHECK_OK(sh_window_read(fd, name, w, got, &err), err);
        assert_memory_equal(got, want, sh_window_bytes(w));
        for (size_t k = 0; k < SH_COUNT_OF(most); k++) {
            sh_window part;
            memset(got, 0, sizeof(got));
            for (uint64_t done = 0, at = 0; sh_window_next(w, most[k], &done, &part); at = done) {
                assert_true(sh_window_bytes(&part) <= most[k]);
                CHECK_OK(sh_window_read(fd, name, &part, got + at, &err), err);
            }
            assert_memory_equal(got, want, sh_window_bytes(w));
        }
    }
    sh_window beyond = sh_window_range(1990, 20);
    CHECK_FAILS(sh_window_read(fd, name, &beyond, got, &err), err, name);
    close(fd);
    unlink(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_fits_or_not_whatever_its_numbers_are),
        cmocka_unit_test(the_parts_of_a_window_have_its_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
