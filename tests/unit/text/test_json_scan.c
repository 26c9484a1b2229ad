#include "text/output/json_scan.h"

#include "base/json.h"
#include "test.h"

/* "done" at the last byte, "over" if the last byte is not part of the value, "more", "bad", or
 * "early" if there was a result before the last byte. */
static const char *scan(const char *text, size_t len)
{
    static const char *const names[] = {"more", "done", "over", "bad"};
    sh_json_scan s;

    sh_json_scan_init(&s);
    for (size_t i = 0; i < len; i++) {
        sh_json_scan_result result = sh_json_scan_feed(&s, text[i]);
        if (result == SH_JSON_SCAN_BAD) return "bad";
        if (result != SH_JSON_SCAN_MORE) return i + 1 == len ? names[result] : "early";
    }
    return "more";
}

TEST(ends_a_value_at_its_last_byte)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "\"\"",
        "true",
        "false",
        "null",
        " \t\r\n{ }",
        "{\"a\":1}",
        "{ \"a\" : [ 1 , -2.5e+7 , 0 , 0.5E-1, 10 ] , \"b\" : { \"\" : null } }",
        "[[],{},\"x\",[true,false]]",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\xc3\xa9\"",
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++) {
        size_t len = strlen(texts[i]);
        assert_string_equal(scan(texts[i], len), "done");
        for (size_t cut = 0; cut < len; cut++) assert_string_equal(scan(texts[i], cut), "more");
    }
}

TEST(ends_a_number_before_the_byte_after_it)
{
    static const char *const texts[] = {"0 ", "-0,", "12}", "1.5]", "1e5\n", "-1.25E-10 ", "0x"};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++)
        assert_string_equal(scan(texts[i], strlen(texts[i])), "over");
    assert_string_equal(scan("01", 2), "over");
}

TEST(refuses_what_is_not_json)
{
    static const char *const texts[] = {
        "}",
        "]",
        ",",
        "x",
        "nul1",
        "tru ",
        "+1",
        ".5",
        "-x",
        "1. ",
        "1.e5",
        "1e ",
        "1e+ ",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{1:2}",
        "{\"a\"}",
        "{\"a\" 1}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":1]",
        "{'a':1}",
        "\"\n\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "[01]",
        "[1.5.5]",
        "[--1]",
        "[\"a\" \"b\"]",
        "{\"a\":1 \"b\":2}",
        "NaN",
        "\"\x01\"",
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++)
        if (strcmp(scan(texts[i], strlen(texts[i])), "bad") != 0) fail_msg("took %s", texts[i]);
    assert_string_equal(scan("\"\\\0", 3), "bad");
    assert_string_equal(scan("\0", 1), "bad");
}

TEST(bounds_the_depth)
{
    char text[SH_JSON_SCAN_DEPTH_MAX * 2 + 2];
    UNUSED_STATE;
    memset(text, '[', SH_JSON_SCAN_DEPTH_MAX + 1);
    assert_string_equal(scan(text, SH_JSON_SCAN_DEPTH_MAX), "more");
    assert_string_equal(scan(text, SH_JSON_SCAN_DEPTH_MAX + 1), "bad");
    memset(text + SH_JSON_SCAN_DEPTH_MAX, ']', SH_JSON_SCAN_DEPTH_MAX);
    assert_string_equal(scan(text, SH_JSON_SCAN_DEPTH_MAX * 2), "done");
}

/* Random texts of JSON's own characters: what the scanner accepts, cJSON accepts too. */
TEST(accepts_nothing_that_cjson_rejects)
{
    static const char *const parts[] = {"{",    "}",    "[", "]",  ",",     ":",     "\"a\"",
                                        "\"",   "1",    "-", "0",  ".5",    "e",     "E+",
                                        "true", "null", " ", "\\", "u00e9", "false", "\n"};
    int taken = 0;
    UNUSED_STATE;
    srand(1);
    for (int round = 0; round < 300000; round++) {
        char text[256] = "";
        for (int n = 1 + rand() % 7; n > 0; n--)
            strcat(text, parts[(size_t)rand() % SH_COUNT_OF(parts)]);
        if (strcmp(scan(text, strlen(text)), "done") != 0) continue;
        cJSON *item = NULL;
        sh_err err;
        CHECK_OK(sh_json_parse(sh_str_of(text), text, &item, &err), err);
        cJSON_Delete(item);
        taken++;
    }
    assert_true(taken > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_a_value_at_its_last_byte),
        cmocka_unit_test(ends_a_number_before_the_byte_after_it),
        cmocka_unit_test(refuses_what_is_not_json),
        cmocka_unit_test(bounds_the_depth),
        cmocka_unit_test(accepts_nothing_that_cjson_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
