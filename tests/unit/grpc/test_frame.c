/* Prefixes, statuses, timeouts, and the budget of frames. */
#include "grpc/calm.h"
#include "grpc/frame.h"

#include "test.h"

#include <nghttp2/nghttp2.h>

TEST(a_message_has_a_prefix_with_its_length)
{
    UNUSED_STATE;
    sh_buf out = {0};
    size_t len;
    const char *why;
    size_t at = sh_grpc_message_begin(&out);
    for (int i = 0; i < 0x12345; i++) sh_buf_add_char(&out, 'x');
    sh_grpc_message_end(&out, at);
    assert_memory_equal(out.ptr, "\0\0\1\x23\x45", SH_GRPC_PREFIX);
    assert_int_equal(sh_grpc_prefix_read((const unsigned char *)out.ptr, &len, &why), SH_GRPC_OK);
    assert_int_equal(len, 0x12345);
    at = sh_grpc_message_begin(&out); /* a second one, after the first */
    sh_buf_add_text(&out, "ab");
    sh_grpc_message_end(&out, at);
    assert_memory_equal(out.ptr + SH_GRPC_PREFIX + 0x12345, "\0\0\0\0\2ab", 7);
    sh_buf_reset(&out);
}

TEST(a_status_is_told_from_a_message)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_grpc_code code;
    sh_str text;
    sh_grpc_status_write(SH_GRPC_UNAVAILABLE, "gone", &out);
    assert_true(sh_grpc_status_read(sh_buf_str(&out), &code, &text));
    assert_int_equal(code, SH_GRPC_UNAVAILABLE);
    assert_true(sh_str_is(text, "gone"));
    assert_false(sh_grpc_status_read((sh_str){"\0\0\0\0\0", 5}, &code, &text));
    assert_false(sh_grpc_status_read((sh_str){"", 0}, &code, &text));
    sh_buf_reset(&out);
}

TEST(timeouts_have_a_number_and_a_unit)
{
    UNUSED_STATE;
    static const char *const bad[] = {"", "S", "1", "1s", "-1S", "123456789S", "1 S", "x1S"};
    sh_deadline deadline;
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++)
        assert_false(sh_grpc_timeout_read(sh_str_of(bad[i]), &deadline));
    assert_true(sh_grpc_timeout_read(SH_STR("0m"), &deadline));
    assert_true(sh_deadline_passed(deadline));
    assert_true(sh_grpc_timeout_read(SH_STR("20M"), &deadline));
    assert_in_range(sh_deadline_left_ms(deadline), 1100000, 1200000);
    assert_true(sh_grpc_timeout_read(SH_STR("99999999H"), &deadline));
    assert_true(deadline > sh_clock_ns());
}

TEST(the_text_of_a_status_is_visible_ascii)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_grpc_text_encode(SH_STR("a b%\r\n\xC3\xA9~"), &out);
    assert_string_equal(out.ptr, "a b%25%0D%0A%C3%A9~");
    sh_buf_reset(&out);
}

TEST(frames_without_content_use_up_a_budget_that_time_and_answers_refill)
{
    UNUSED_STATE;
    sh_calm calm;
    int64_t now = 1000000000;
    sh_calm_init(&calm, now);
    for (int i = 0; i < SH_CALM_MOST; i++)
        assert_true(sh_calm_received(&calm, NGHTTP2_PING, 8, now));
    assert_false(sh_calm_received(&calm, NGHTTP2_PING, 8, now));
    assert_true(sh_calm_received(&calm, NGHTTP2_PING, 8, now += 1000000000));
    sh_calm_init(&calm, now);
    for (int i = 0; i < 100 * SH_CALM_MOST; i++) { /* a client that reads a long answer */
        sh_calm_sent(&calm);
        assert_true(sh_calm_received(&calm, NGHTTP2_WINDOW_UPDATE, 4, now));
        assert_true(sh_calm_received(&calm, NGHTTP2_WINDOW_UPDATE, 4, now));
    }
    for (int i = 0; i < 100 * SH_CALM_MOST; i++) {
        assert_true(sh_calm_received(&calm, NGHTTP2_DATA, 1, now));
        assert_true(sh_calm_received(&calm, NGHTTP2_HEADERS, 1, now));
    }
    int resets = 0;
    while (sh_calm_received(&calm, NGHTTP2_RST_STREAM, 4, now)) resets++;
    assert_in_range(resets, 50, 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_has_a_prefix_with_its_length),
        cmocka_unit_test(a_status_is_told_from_a_message),
        cmocka_unit_test(timeouts_have_a_number_and_a_unit),
        cmocka_unit_test(the_text_of_a_status_is_visible_ascii),
        cmocka_unit_test(frames_without_content_use_up_a_budget_that_time_and_answers_refill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
