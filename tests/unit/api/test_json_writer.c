/* The output is read back by cJSON, an implementation that is not ours. */
#include "api/json_writer.h"

#include "base/json.h"
#include "test.h"

#include <math.h>

TEST(writes_what_a_parser_reads_back)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_json_writer w = sh_json_writer_on(&out);
    sh_write_begin(&w, NULL, '{');
    sh_write_text(&w, "text", "line\nquote\" back\\ tab\t bell\a \xc3\xa4\xf0\x9f\x90\x9f");
    sh_write_text(&w, "nothing", NULL);
    sh_write_begin(&w, "list", '[');
    sh_write_int(&w, NULL, -7);
    sh_write_begin(&w, NULL, '{');
    sh_write_end(&w, '}');
    sh_write_bool(&w, NULL, true);
    sh_write_end(&w, ']');
    sh_write_num(&w, "pi", 3.14159265);
    sh_write_num(&w, "nan", NAN);
    sh_write_fixed(&w, "time", 1794724132.25, 3);
    sh_write_raw(&w, "raw", SH_STR("[1,2]"));
    sh_write_end(&w, '}');

    cJSON *json = NULL;
    sh_err err;
    CHECK_OK(sh_json_parse(sh_buf_str(&out), "test", &json, &err), err);
    assert_string_equal(cJSON_GetObjectItem(json, "text")->valuestring,
                        "line\nquote\" back\\ tab\t bell\a \xc3\xa4\xf0\x9f\x90\x9f");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "nothing")));
    const cJSON *list = cJSON_GetObjectItem(json, "list");
    assert_int_equal(cJSON_GetArraySize(list), 3);
    assert_int_equal(cJSON_GetArrayItem(list, 0)->valueint, -7);
    assert_true(cJSON_IsTrue(cJSON_GetArrayItem(list, 2)));
    assert_true(fabs(cJSON_GetObjectItem(json, "pi")->valuedouble - 3.14159265) < 1e-9);
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "nan")));
    assert_true(cJSON_GetObjectItem(json, "time")->valuedouble == 1794724132.25);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "raw")), 2);
    cJSON_Delete(json);
    sh_buf_reset(&out);
}

TEST(replaces_bytes_that_are_not_utf8)
{
    UNUSED_STATE;
    sh_buf out = {0};
    sh_write_quoted(&out, SH_STR("a\xff\xc3(\x00z"));
    assert_string_equal(out.ptr, "\"a\xef\xbf\xbd\xef\xbf\xbd(\\u0000z\"");
    sh_buf_reset(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_a_parser_reads_back),
        cmocka_unit_test(replaces_bytes_that_are_not_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
