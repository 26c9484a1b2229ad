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

/* The same events result however the bytes are split. */
TEST(takes_events_off_a_stream)
{
    UNUSED_STATE;
    static const char stream[] = ": hi\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata:  2\r\n\r\n"
                                 "id: 7\n\ndata\n\ndata: \n\ndata: cut";
    for (size_t cut = 1; cut < sizeof(stream); cut++) {
        sh_buf in = {0}, data = {0}, all = {0};
        for (size_t at = 0; at < sizeof(stream) - 1; at += cut) {
            size_t left = sizeof(stream) - 1 - at;
            sh_buf_add(&in, stream + at, left < cut ? left : cut);
            while (sh_sse_take(&in, &data)) sh_buf_addf(&all, "[%s]", data.len > 0 ? data.ptr : "");
        }
        assert_string_equal(all.ptr, "[one][two\n 2][]");
        sh_buf_reset(&in);
        sh_buf_reset(&data);
        sh_buf_reset(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_one_event),
        cmocka_unit_test(keeps_data_inside_its_event),
        cmocka_unit_test(takes_events_off_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
