/* What a download shows. */
#include "cmd/support/pull_view.h"

#include "test.h"

static const char *text(sh_fetch_progress progress, double rate)
{
    static char out[160];
    sh_pull_view_text(&progress, rate, out, sizeof(out));
    return out;
}

TEST(rate_and_time_left_are_shown)
{
    UNUSED_STATE;
    assert_string_equal(text((sh_fetch_progress){.total = 4000000000, .done = 1000000000}, 50e6),
                        "25 %, 1.0 of 4.0 GB, 50.0 MB/s, 1:00 left");
    assert_string_equal(text((sh_fetch_progress){.total = 400000000000, .done = 1}, 50e6),
                        "0 %, 0.0 of 400.0 GB, 50.0 MB/s, 2:13:19 left");
    assert_string_equal(text((sh_fetch_progress){.total = 9000000, .done = 8999999}, 0),
                        "99 %, 9.0 of 9.0 MB");
    assert_string_equal(text((sh_fetch_progress){0}, 0), "100 %, 0.0 of 0.0 MB");
    assert_string_equal(text((sh_fetch_progress){.total = INT64_MAX, .done = 0}, 1e-9),
                        "0 %, 0.0 of 9223372036.9 GB, 0.0 MB/s, ? left");
}

TEST(waits_are_shown_instead)
{
    UNUSED_STATE;
    assert_string_equal(text((sh_fetch_progress){.total = 10, .done = 5, .waiting = "w"}, 1),
                        "50 %, 0.0 of 0.0 MB, w");
    assert_string_equal(text((sh_fetch_progress){.total = 10, .done = 5, .checking = "f"}, 1),
                        "50 %, 0.0 of 0.0 MB, checking what is here of f");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_and_time_left_are_shown),
        cmocka_unit_test(waits_are_shown_instead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
