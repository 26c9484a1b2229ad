#include "base/pack.h"

#include "test.h"

TEST(what_is_written_is_read_back)
{
    UNUSED_STATE;
    sh_buf buf = {0};
    int32_t ints[] = {1, -2, INT32_MIN};
    sh_put_uint(&buf, 0x1234, 2);
    sh_put_uint(&buf, UINT64_MAX, 8);
    sh_put_uint(&buf, (uint32_t)-7, 4);
    sh_put_double(&buf, -0.1);
    sh_put_text(&buf, SH_STR("héllo"));
    sh_put_ints(&buf, ints, 3);
    assert_int_equal((unsigned char)buf.ptr[0], 0x34);

    sh_reader r = sh_reader_of(sh_buf_str(&buf));
    sh_err err;
    assert_int_equal(sh_get_uint(&r, 2), 0x1234);
    assert_true(sh_get_uint(&r, 8) == UINT64_MAX);
    assert_int_equal(sh_get_int(&r), -7);
    assert_true(sh_get_double(&r) == -0.1);
    assert_true(sh_str_is(sh_get_text(&r), "héllo"));
    assert_memory_equal(sh_get_array(&r, 3, 4), ints, sizeof(ints));
    CHECK_OK(sh_get_end(&r, "message", &err), err);
    sh_buf_reset(&buf);
}

TEST(a_short_message_fails_once_and_gives_zeros)
{
    UNUSED_STATE;
    sh_err err;
    sh_reader r = sh_reader_of((sh_str){"\xff\xff\xff\xff\x01", 5});
    assert_int_equal(sh_get_text(&r).len, 0);
    assert_int_equal(sh_get_uint(&r, 1), 0);
    assert_null(sh_get_array(&r, SIZE_MAX, 8));
    CHECK_FAILS(sh_get_end(&r, "message", &err), err, "message is truncated");
    r = sh_reader_of(SH_STR("abc"));
    sh_get_uint(&r, 2);
    CHECK_FAILS(sh_get_end(&r, "message", &err), err, "message has 1 extra bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(a_short_message_fails_once_and_gives_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
