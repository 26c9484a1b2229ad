#include "base/status.h"

#include "base/str.h"

#include "test.h"

#include <errno.h>

TEST(an_error_is_one_clean_line)
{
    UNUSED_STATE;
    sh_err err;
    sh_err_set(&err, SH_ERR_INPUT, "a\nb\x1b[31m%s", "\xff!");
    assert_string_equal(err.text, "a?b?[31m?!");
    assert_int_equal(err.status, SH_ERR_INPUT);
}

TEST(a_long_text_is_cut_at_a_character)
{
    UNUSED_STATE;
    char text[SH_ERR_TEXT_MAX * 2 + 1];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 3 < sizeof(text); i += 3) memcpy(text + i, "\xe2\x82\xac", 4);
        sh_err err;
        sh_err_set(&err, SH_ERR_LIMIT, "%s", text);
        assert_true(strlen(err.text) >= SH_ERR_TEXT_MAX - 4);
        assert_true(sh_utf8_valid(err.text, strlen(err.text)));
        assert_null(strchr(err.text, '?'));
    }
}

TEST(callers_put_the_place_in_front)
{
    UNUSED_STATE;
    sh_err err;
    errno = ENOENT;
    assert_int_equal(sh_err_sys(&err, "open %s", "x"), SH_ERR_SYSTEM);
    sh_err_prefix(&err, "file %d", 7);
    assert_string_equal(err.text, "file 7: open x: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_is_one_clean_line),
        cmocka_unit_test(a_long_text_is_cut_at_a_character),
        cmocka_unit_test(callers_put_the_place_in_front),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
