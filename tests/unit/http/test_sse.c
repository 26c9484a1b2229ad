#include "http/sse.h"

#include "test.h"

TEST(frames_one_event)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_sse_event(&out, NULL, SH_STR("{\"a\":1}"));
    sh_sse_event(&out, "ping", SH_STR(""));
    sh_sse_comment(&out, "wait");
    assert_string_equal(out.ptr, "data: {\"a\":1}\n\nevent: ping\ndata: \n\n: wait\n\n");
    sh_buf_reset(&out);
}

TEST(keeps_data_inside_its_event)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_sse_event(&out, NULL, SH_STR("a\n\nevent: forged\r\nb\rc\n"));
    assert_string_equal(out.ptr,
                        "data: a\ndata: \ndata: event: forged\ndata: b\ndata: c\ndata: \n\n");
    sh_buf_reset(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_one_event),
        cmocka_unit_test(keeps_data_inside_its_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
