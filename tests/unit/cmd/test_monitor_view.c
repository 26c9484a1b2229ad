#include "cmd/support/monitor_view.h"

#include "test.h"

static sh_buf frame;

static void draw(const char *snapshot, const char *recent, int columns, int rows)
{
    cJSON *a = cJSON_Parse(snapshot), *b = recent == NULL ? NULL : cJSON_Parse(recent);
    assert_non_null(a);
    sh_buf_clear(&frame);
    sh_monitor_view_draw(a, b, columns, rows, &frame);
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static bool has(const char *part)
{
    return strstr(frame.ptr, part) != NULL;
}

TEST(ranks_speed_queue_and_requests_are_shown)
{
    UNUSED_STATE;
    draw("{\"model\":\"m\",\"status\":\"healthy\",\"uptime_s\":3725,\"avg_tps_60s\":12.5,"
         "\"queue_size\":3,\"queue_max\":6,\"engine\":{\"ranks\":[{\"rank\":0,\"host\":\"h0\","
         "\"memory\":{\"total\":8589934592,\"available\":4294967296,\"weights\":1073741824},"
         "\"compute_s\":3,\"collective_s\":1},"
         "{\"rank\":1,\"host\":\"h1\"}],\"kv\":{\"blocks\":10,\"free\":4,\"cached\":2}}}",
         "{\"requests\":[{\"kind\":\"chat\",\"prompt_tokens\":7,\"status\":\"ok\"}]}", 200, 0);
    assert_true(has("m   healthy   up 1:02:05") && has("12.5 tok/s") && has("3 of 6 waiting"));
    assert_true(has("[##########..........]") && has("  4.0    8.0     1.00"));
    assert_true(has("  25 %"));
    assert_true(has("   1  h1 ") && has("6 of 10 blocks in use, 2 kept") && has("chat "));
}

TEST(several_models_are_told_apart)
{
    UNUSED_STATE;
    draw("{\"models\":[{\"name\":\"a\",\"state\":\"loaded\",\"memory\":1073741824,\"running\":2},"
         "{\"name\":\"b\",\"state\":\"not loaded\"}]}",
         NULL, 200, 0);
    assert_true(has("model a ") && has("1.00 GiB  2 running") && has("not loaded: 1"));
    draw("{\"models\":[{\"name\":\"a\",\"state\":\"loaded\"}]}", NULL, 200, 0);
    assert_false(has("model a "));
}

TEST(an_answer_without_any_field_can_be_drawn)
{
    UNUSED_STATE;
    draw("{}", NULL, 80, 0);
    assert_true(has("the engine has not answered yet"));
    draw("[]", "7", 80, 0);
    draw("{\"engine\":{\"ranks\":[1,null,{}]},\"model\":7}", "{\"requests\":[null]}", 80, 0);
}

TEST(lines_and_rows_are_bounded_and_control_characters_do_not_pass)
{
    UNUSED_STATE;
    draw("{\"model\":\"\\u001b[2Jgr\\u00fc\\u00df\",\"engine\":{\"ranks\":[{},{},{},{},{},{},{}]}}",
         NULL, 9, 6);
    sh_str rest = sh_buf_str(&frame), line;
    int rows = 0;
    assert_null(strchr(frame.ptr, 033));
    while (sh_str_cut(&rest, '\n', &line)) rows++;
    assert_int_equal(rows, 6);
    assert_true(has("?[2Jgr\xc3\xbc\xc3\x9f \n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_speed_queue_and_requests_are_shown),
        cmocka_unit_test(several_models_are_told_apart),
        cmocka_unit_test(an_answer_without_any_field_can_be_drawn),
        cmocka_unit_test(lines_and_rows_are_bounded_and_control_characters_do_not_pass),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sh_buf_reset(&frame);
    return failed;
}
