#include "api/field.h"

#include "test.h"

typedef struct {
    bool flag;
    int64_t count;
    double share;
    const char *name;
    const char *mode;
    const cJSON *list;
    bool inner;
} target;

#define AT(field) .offset = offsetof(target, field)

static const sh_field inner_rows[] = {
    {.name = "on", .type = SH_FIELD_BOOL, .fallback = "true", .meaning = "m", AT(inner)},
};
static const sh_field_table inner = {inner_rows, 1, NULL};

static const sh_field shared_rows[] = {
    {.name = "name", .type = SH_FIELD_STRING, .max = 5, .meaning = "m", AT(name)},
};
static const sh_field_table shared = {shared_rows, 1, NULL};

static const sh_field rows[] = {
    {.name = "flag", .type = SH_FIELD_BOOL, .fallback = "true", .meaning = "m", AT(flag)},
    {.name = "count",
     .type = SH_FIELD_INT,
     .min = 1,
     .max = 9,
     .fallback = "4",
     .meaning = "m",
     AT(count)},
    {.name = "share",
     .type = SH_FIELD_NUMBER,
     .max = 1,
     .fallback = "0.5",
     .meaning = "m",
     AT(share)},
    {.name = "mode",
     .type = SH_FIELD_STRING,
     .max = 9,
     .choices = "a|bc",
     .meaning = "m",
     AT(mode)},
    {.name = "list",
     .type = SH_FIELD_JSON,
     .kinds = SH_KIND_ARRAY | SH_KIND_STRING,
     .required = true,
     .meaning = "m",
     AT(list)},
    {.name = "opts", .type = SH_FIELD_OBJECT, .inner = &inner, .meaning = "m"},
    {.name = "note", .type = SH_FIELD_IGNORED, .meaning = "m"},
    {.name = "magic", .type = SH_FIELD_REFUSED, .neutral = "0|{\"type\":\"text\"}", .meaning = "m"},
};
static const sh_field_table table = {rows, SH_COUNT_OF(rows), &shared};

static target out;
static sh_api_error error;

static bool reads(const char *text)
{
    static cJSON *json;
    cJSON_Delete(json);
    json = cJSON_Parse(text);
    assert_non_null(json);
    out = (target){0};
    error = (sh_api_error){0};
    return sh_fields_read(&table, json, &out, &error);
}

#define CHECK_REFUSES(text, field, part)                                                           \
    do {                                                                                           \
        assert_false(reads(text));                                                                 \
        assert_int_equal(error.status, 400);                                                       \
        assert_string_equal(error.param, field);                                                   \
        if (strstr(error.message, part) == NULL) fail_msg("%s", error.message);                    \
    } while (0)

TEST(sets_defaults_and_given_values)
{
    UNUSED_STATE;
    assert_true(reads("{\"list\":[1]}"));
    assert_true(out.flag && out.inner && out.count == 4 && out.share == 0.5);
    assert_null(out.name);
    assert_true(reads("{\"list\":\"x\",\"flag\":false,\"count\":9,\"share\":1,\"name\":\"abcde\","
                      "\"mode\":\"bc\",\"opts\":{\"on\":false},\"note\":{\"a\":[]}}"));
    assert_true(!out.flag && !out.inner && out.count == 9 && out.share == 1);
    assert_string_equal(out.name, "abcde");
    assert_string_equal(out.mode, "bc");
}

TEST(treats_null_as_absent)
{
    UNUSED_STATE;
    assert_true(reads("{\"list\":[],\"count\":null,\"magic\":null,\"opts\":null}"));
    assert_int_equal(out.count, 4);
    CHECK_REFUSES("{\"list\":null}", "list", "missing");
}

TEST(names_the_field_that_is_wrong)
{
    UNUSED_STATE;
    CHECK_REFUSES("{}", "list", "missing");
    CHECK_REFUSES("{\"list\":[],\"flag\":1}", "flag", "true or false, not a number");
    CHECK_REFUSES("{\"list\":[],\"count\":0}", "count", "from 1 to 9, not 0");
    CHECK_REFUSES("{\"list\":[],\"count\":1.5}", "count", "whole number");
    CHECK_REFUSES("{\"list\":[],\"count\":1e300}", "count", "from 1 to 9");
    CHECK_REFUSES("{\"list\":[],\"count\":\"3\"}", "count", "not a string");
    CHECK_REFUSES("{\"list\":[],\"share\":-0.1}", "share", "from 0 to 1");
    CHECK_REFUSES("{\"list\":[],\"name\":\"abcdef\"}", "name", "6 bytes");
    CHECK_REFUSES("{\"list\":[],\"mode\":\"b\"}", "mode", "a|bc");
    CHECK_REFUSES("{\"list\":7}", "list", "a string or a list");
    CHECK_REFUSES("{\"list\":[],\"opts\":{\"on\":0}}", "opts.on", "true or false");
    CHECK_REFUSES("{\"list\":[],\"opts\":[]}", "opts", "an object");
    CHECK_REFUSES("[]", "", "JSON object");
}

TEST(refuses_what_would_change_the_answer)
{
    UNUSED_STATE;
    CHECK_REFUSES("{\"list\":[],\"magic\":1}", "magic", "not supported");
    assert_string_equal(error.code, "unsupported_field");
    assert_true(reads("{\"list\":[],\"magic\":0}"));
    assert_true(reads("{\"list\":[],\"magic\":{\"type\":\"text\"}}"));
    CHECK_REFUSES("{\"list\":[],\"magic\":{\"type\":\"json_object\"}}", "magic", "not supported");
    assert_true(reads("{\"list\":[],\"unheard_of\":1}"));
}

TEST(names_what_it_does_not_know)
{
    static const struct {
        const char *json, *names;
    } cases[] = {
        {"{\"list\":[],\"magic\":0}", ""},
        {"{\"lst\":[],\"magic\":0,\"Count\":1}", "lst, Count"},
        {"{\"a b,c\u00e4\n\":1}", "a?b?c???"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_buf names = {0};
        cJSON *json = cJSON_Parse(cases[i].json);
        sh_fields_unknown(&table, json, &names);
        assert_true(sh_str_is(sh_buf_str(&names), cases[i].names));
        cJSON_Delete(json);
        sh_buf_reset(&names);
    }
    /* However many there are, they fit into a header. */
    sh_buf names = {0};
    cJSON *json = cJSON_CreateObject();
    for (int i = 0; i < 1000; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%0100d", i);
        cJSON_AddNullToObject(json, name);
    }
    sh_fields_unknown(&table, json, &names);
    assert_true(names.len < 700 && sh_str_ends(sh_buf_str(&names), SH_STR(", ...")));
    cJSON_Delete(json);
    sh_buf_reset(&names);
}

TEST(lists_what_it_does_not_know)
{
    UNUSED_STATE;
    sh_buf names = {0};
    cJSON *obj = cJSON_Parse("{\"flag\":true,\"flags\":1,\"name\":\"x\",\"a, b\\r\\n\":1,\"opts\":{"
                             "\"on\":true,\"off\":1}}");
    sh_fields_unknown(&table, obj, &names);
    assert_string_equal(names.ptr, "flags, a??b??, opts.off");
    for (int i = 0; i < 1000; i++) sh_fields_note(&names, NULL, "again");
    assert_true(names.len < 1024);
    cJSON_Delete(obj);
    sh_buf_reset(&names);
}

TEST(writes_its_own_schema)
{
    UNUSED_STATE;
    sh_buf text = {0};
    sh_json_writer w = sh_json_writer_on(&text);
    sh_fields_schema(&table, "[{\"minProperties\":1}]", NULL, &w);
    cJSON *schema = cJSON_Parse(text.ptr);
    assert_non_null(schema);
    const cJSON *properties = cJSON_GetObjectItem(schema, "properties");
    assert_int_equal(cJSON_GetArraySize(properties), SH_COUNT_OF(rows) + 1);
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(schema, "required"), 0)->valuestring,
                        "list");
    const cJSON *count = cJSON_GetObjectItem(properties, "count");
    assert_int_equal(cJSON_GetObjectItem(count, "maximum")->valueint, 9);
    assert_int_equal(cJSON_GetObjectItem(count, "default")->valueint, 4);
    /* What may be missing may be null. */
    assert_string_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(count, "type"), 1)->valuestring,
                        "null");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(schema, "allOf")), 1);
    cJSON_Delete(schema);
    sh_buf_reset(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_defaults_and_given_values),
        cmocka_unit_test(treats_null_as_absent),
        cmocka_unit_test(names_the_field_that_is_wrong),
        cmocka_unit_test(refuses_what_would_change_the_answer),
        cmocka_unit_test(names_what_it_does_not_know),
        cmocka_unit_test(lists_what_it_does_not_know),
        cmocka_unit_test(writes_its_own_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
