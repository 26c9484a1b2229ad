#include "base/json.h"

#include "base/buf.h"

#include "test.h"

static sh_err err;

TEST(faults_are_given_by_line_and_column)
{
    UNUSED_STATE;
    cJSON *json = NULL;
    CHECK_FAILS(sh_json_parse(SH_STR("{\n \"a\": 1,\n ü"), "x", &json, &err), err,
                "x: not valid JSON at line 3");
    CHECK_FAILS(sh_json_parse(SH_STR(""), "x", &json, &err), err, "line 1, column 1");
    CHECK_FAILS(sh_json_parse(SH_STR("{} x"), "x", &json, &err), err,
                "unexpected text after the JSON value at line 1, column 4");
    CHECK_FAILS(sh_json_parse(SH_STR("\"\xff\""), "x", &json, &err), err, "not valid UTF-8");
    assert_null(json);
}

TEST(a_zero_in_a_string_is_refused_with_its_place)
{
    UNUSED_STATE;
    CHECK_FAILS(sh_json_refuse_nul(SH_STR("{\"a\":\n \"b\\u0000c\"}"), "x", &err), err,
                "x: a string contains \\u0000 at line 2, column 4");
    CHECK_FAILS(sh_json_refuse_nul(SH_STR("\"\\\\\\u0000\""), "x", &err), err, "column 4");
    CHECK_OK(sh_json_refuse_nul(SH_STR("\"\\\\u0000 \\u0001\""), "x", &err), err);
    CHECK_OK(sh_json_refuse_nul(SH_STR("\"\\u000"), "x", &err), err);
}

static size_t values_of(const cJSON *item)
{
    size_t count = 0;
    for (; item != NULL; item = item->next) count += 1 + values_of(item->child);
    return count;
}

TEST(values_are_counted_before_they_take_memory)
{
    UNUSED_STATE;
    static const char *const texts[] = {
        "0",
        "[]",
        "{}",
        "[0,0,0]",
        "[[],[[]],{}]",
        "{\"a,b\":\"[{,\",\"c\\\"[\":[1,\"\\\\\",2]}",
        " { \"x\" : [ 1 , { \"y\" : null } ] } ",
    };
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++) {
        cJSON *json = NULL;
        CHECK_OK(sh_json_parse(sh_str_of(texts[i]), "x", &json, &err), err);
        size_t count = sh_json_value_count(sh_str_of(texts[i]));
        assert_true(count >= values_of(json) && count <= 2 * values_of(json));
        cJSON_Delete(json);
    }
    assert_int_equal(sh_json_value_count(SH_STR("[0,0,0,0]")), 5);
    assert_int_equal(sh_json_value_count(SH_STR("\"[,{,")), 1);
    assert_int_equal(sh_json_value_count(SH_STR("\"\\")), 1);
}

TEST(depth_is_bounded)
{
    UNUSED_STATE;
    char deep[200001];
    memset(deep, '[', sizeof(deep) - 1);
    cJSON *json = NULL;
    CHECK_FAILS(sh_json_parse((sh_str){deep, sizeof(deep) - 1}, "x", &json, &err), err, "x: ");
}

TEST(a_field_of_the_wrong_kind_is_named_with_what_is_allowed)
{
    UNUSED_STATE;
    cJSON *json = NULL;
    CHECK_OK(
        sh_json_parse(SH_STR("{\"i\": 3, \"s\": \"t\", \"f\": 2.5, \"n\": null, \"big\": 1e30}"),
                      "cfg", &json, &err),
        err);
    int64_t whole = 7;
    double number = 0;
    bool yes = false;
    const char *text = NULL;
    CHECK_OK(sh_json_int(json, "i", "cfg", 1, 5, &whole, &err), err);
    assert_int_equal(whole, 3);
    CHECK_OK(sh_json_int(json, "n", "cfg", 1, 5, &whole, &err), err);
    CHECK_OK(sh_json_int(json, "absent", "cfg", 1, 5, &whole, &err), err);
    assert_int_equal(whole, 3);
    CHECK_FAILS(sh_json_int(json, "i", "cfg", 4, 5, &whole, &err), err,
                "cfg: 'i' must be a whole number from 4 to 5, not 3");
    CHECK_FAILS(sh_json_int(json, "f", "cfg", 0, 5, &whole, &err), err, "not 2.5");
    CHECK_FAILS(sh_json_int(json, "big", "cfg", 0, INT64_MAX, &whole, &err), err, "1e+30");
    CHECK_FAILS(sh_json_int(json, "s", "cfg", 0, 5, &whole, &err), err, "not a string");
    CHECK_FAILS(sh_json_int_required(json, "n", "cfg", 0, 5, &whole, &err), err,
                "cfg: 'n' is missing");
    CHECK_FAILS(sh_json_double(json, "s", "cfg", 0, 5, &number, &err), err, "must be a number");
    CHECK_FAILS(sh_json_bool(json, "i", "cfg", &yes, &err), err, "true or false, not a number");
    CHECK_FAILS(sh_json_string_required(json, "i", "cfg", &text, &err), err, "must be a string");
    cJSON_Delete(json);
}

static const char *spelling(const cJSON *json, int at)
{
    return cJSON_GetArrayItem(json, at)->valuestring;
}

TEST(numbers_keep_a_spelling_that_a_double_would_lose)
{
    UNUSED_STATE;
    cJSON *json = NULL;
    CHECK_OK(sh_json_parse(SH_STR("[1, \"2.0 \\\" 3\", 1.0, -12345678901234567890, true, 1e3, 0]"),
                           "x", &json, &err),
             err);
    assert_null(spelling(json, 0));
    assert_string_equal(spelling(json, 2), "1.0");
    assert_string_equal(spelling(json, 3), "-12345678901234567890");
    assert_string_equal(spelling(json, 5), "1e3");
    assert_null(spelling(json, 6));
    cJSON_Delete(json);
    CHECK_OK(
        sh_json_parse(SH_STR("{\"a\": {\"b\": [[], {\"1\": 2.50}]}, \"c\": 3}"), "x", &json, &err),
        err);
    const cJSON *b = cJSON_GetObjectItem(cJSON_GetObjectItem(json, "a"), "b");
    assert_string_equal(cJSON_GetArrayItem(b, 1)->child->valuestring, "2.50");
    assert_null(cJSON_GetObjectItem(json, "c")->valuestring);
    cJSON_Delete(json);
}

TEST(a_name_occurs_once_in_an_object)
{
    static const struct {
        const char *text, *name; /* NULL: fine */
    } cases[] = {
        {"{\"a\":1,\"b\":{\"a\":2},\"A\":[{\"a\":1},{\"a\":2}]}", NULL},
        {"{\"a\":1,\"b\":2,\"a\":3}", "'a'"},
        {"[[1],{\"x\":{\"deep\":1,\"deep\":{}}}]", "'deep'"},
    };
    sh_buf many = {0};
    cJSON *json;
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        CHECK_OK(sh_json_parse(sh_str_of(cases[i].text), "t", &json, &err), err);
        if (cases[i].name == NULL)
            CHECK_OK(sh_json_refuse_duplicates(json, "t", &err), err);
        else
            CHECK_FAILS(sh_json_refuse_duplicates(json, "t", &err), err, cases[i].name);
        cJSON_Delete(json);
    }
    sh_buf_add_char(&many, '{');
    for (int i = 0; i < 1000; i++) sh_buf_addf(&many, "\"%d\":0,", (i * 7919) % 1000);
    sh_buf_add_text(&many, "\"412\":1}");
    CHECK_OK(sh_json_parse(sh_buf_str(&many), "t", &json, &err), err);
    CHECK_FAILS(sh_json_refuse_duplicates(json, "t", &err), err, "'412'");
    cJSON_Delete(json);
    sh_buf_reset(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_given_by_line_and_column),
        cmocka_unit_test(a_zero_in_a_string_is_refused_with_its_place),
        cmocka_unit_test(values_are_counted_before_they_take_memory),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(numbers_keep_a_spelling_that_a_double_would_lose),
        cmocka_unit_test(a_field_of_the_wrong_kind_is_named_with_what_is_allowed),
        cmocka_unit_test(a_name_occurs_once_in_an_object),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
