#include "grammar_case.h"

static sh_expr make_with(sh_grammar_builder *b, const char *text, bool spaces)
{
    cJSON *schema = NULL;
    sh_err err;
    CHECK_OK(sh_json_parse(sh_str_of(text), "schema", &schema, &err), err);
    sh_expr e = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = spaces});
    cJSON_Delete(schema);
    return e;
}

static sh_expr make(sh_grammar_builder *b, const char *text)
{
    return make_with(b, text, false);
}

static sh_expr make_spaced(sh_grammar_builder *b, const char *text)
{
    return make_with(b, text, true);
}

static void check_cases(const grammar_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) check_case(make, &cases[i]);
}

TEST(types)
{
    static const grammar_case cases[] = {
        {"{\"type\":\"null\"}", {"null"}, {"0", ""}},
        {"{\"type\":\"boolean\"}", {"true", "false"}, {"null"}},
        {"{\"type\":\"integer\"}", {"0", "-12"}, {"1.0", "01", "-0", "1e2"}},
        {"{\"type\":\"number\"}", {"0", "-1.50", "2e-3", "-0.5"}, {"01", ".5", "1.", "NaN"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"\xc3\xa9\\n\\\"\\\\\\/\"", "\"\\u00e9\\ud83d\\ude00\""},
         {"\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"", "\"\xc3\""}},
        {"{\"type\":\"array\"}", {"[]", "[1,[null],{}]"}, {"[1,]", "{}"}},
        {"{\"type\":\"object\"}", {"{}", "{\"a\":{\"b\":[]}}"}, {"{\"a\"}", "{,}", "[]"}},
        {"{\"type\":[\"string\",\"null\"]}", {"null", "\"a\""}, {"1"}},
        {"{\"type\":\"integer\",\"nullable\":true}", {"null", "1"}, {"true"}},
        {"true", {"1", "{}", "\"x\"", "null"}, {""}},
        {"{}", {"1", "{}"}, {""}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(values)
{
    static const grammar_case cases[] = {
        {"{\"enum\":[\"a\",1,null,[2],{\"b\":true}]}",
         {"\"a\"", "1", "null", "[2]", "{\"b\":true}"},
         {"a", "2", "[]"}},
        {"{\"const\":\"a\\\"\\n\xc3\xa9\"}", {"\"a\\\"\\n\xc3\xa9\""}, {"\"a\""}},
        {"{\"const\":12345678901234567890}", {"12345678901234567890"}, {"1"}},
        {"{\"enum\":[1,2,3,\"x\"],\"type\":\"integer\",\"minimum\":2}", {"2", "3"}, {"1", "\"x\""}},
        {"{\"enum\":[\"ab\",\"b\",\"abc\"],\"pattern\":\"^a\",\"maxLength\":2}",
         {"\"ab\""},
         {"\"b\"", "\"abc\""}},
        {"{\"allOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}", {"2"}, {"1", "3"}},
        {"{\"enum\":[{\"a\":1},{\"a\":\"x\"},[1]],\"properties\":{\"a\":{\"type\":\"string\"}}}",
         {"{\"a\":\"x\"}", "[1]"},
         {"{\"a\":1}"}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(strings)
{
    static const grammar_case cases[] = {
        /* Lengths are in characters, however they are written. */
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\n\\u0041\\ud83d\\ude00\""},
         {"\"a\"", "\"abcd\"", "\"\xc3\xa9\"", "\"\\ud83d\\ude00\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\"}", {"\"b\"", "\"abc\""}, {"\"a\"", "\"\""}},
        {"{\"type\":\"string\",\"pattern\":\"^a.c$\"}", {"\"abc\"", "\"a\\\"c\""}, {"\"xabc\""}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\d+$\",\"minLength\":2}", {"\"12\""}, {"\"1\""}},
        {"{\"allOf\":[{\"type\":\"string\",\"pattern\":\"a\"},{\"pattern\":\"b\"}]}",
         {"\"ab\"", "\"b-a\""},
         {"\"a\"", "\"b\""}},
        {"{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2024-02-29\"", "\"1999-12-31\""},
         {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\""}},
        {"{\"type\":\"string\",\"format\":\"time\"}", {"\"23:59:59.5+02:00\""}, {"\"24:00:00Z\""}},
        {"{\"type\":\"string\",\"format\":\"date-time\"}",
         {"\"2024-02-29T00:00:00Z\""},
         {"\"2024-02-30T00:00:00Z\"", "\"2024-02-29\""}},
        {"{\"type\":\"string\",\"format\":\"uuid\"}",
         {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123e4567e89b12d3a456426614174000\""}},
        {"{\"type\":\"string\",\"format\":\"email\"}", {"\"a.b@c-d.org\""}, {"\"a@b\"", "\"a\""}},
        {"{\"type\":\"string\",\"format\":\"hostname\"}",
         {"\"a-b.example\""},
         {"\"-a\"", "\"a..b\""}},
        {"{\"type\":\"string\",\"format\":\"ipv4\"}", {"\"255.0.10.1\""}, {"\"256.0.0.1\""}},
        {"{\"type\":\"string\",\"format\":\"ipv6\"}",
         {"\"::\"", "\"2001:db8::1\"", "\"1:2:3:4:5:6:7:8\""},
         {"\"1::2::3\"", "\"1:2\""}},
        {"{\"type\":\"string\",\"format\":\"uri\"}",
         {"\"https://a.example:80/b%20c?d=e#f\""},
         {"\"a b\"", "\"/a\""}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(numbers)
{
    static const grammar_case cases[] = {
        {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
         {"-12", "-1", "0", "99", "100", "105"},
         {"-13", "106", "1000"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":10}",
         {"1", "9"},
         {"0", "10", "-1"}},
        {"{\"type\":\"integer\",\"minimum\":1.5}", {"2", "10"}, {"1", "-2"}},
        {"{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":2.5}",
         {"-1.25", "-1.2", "0", "2.49", "2.500"},
         {"-1.26", "2.51", "3", "1e0"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
         {"0.001", "0.9"},
         {"0", "0.0", "1", "1.0"}},
        {"{\"type\":\"number\",\"exclusiveMaximum\":0}", {"-0.1", "-5"}, {"0", "-0", "1"}},
        {"{\"type\":\"number\",\"minimum\":5,\"exclusiveMinimum\":true}", {"5.1"}, {"5", "5.0"}},
        {"{\"type\":\"integer\",\"multipleOf\":7}", {"0", "-14", "7007"}, {"1", "15"}},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", {"1", "0.5", "-2.75"}, {"0.3", "0.125"}},
        {"{\"type\":\"integer\",\"multipleOf\":3,\"minimum\":10,\"maximum\":20}",
         {"12", "15", "18"},
         {"9", "14", "21"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"multipleOf\":2},{\"multipleOf\":3}]}",
         {"6"},
         {"2", "3"}},
        {"{\"type\":\"integer\",\"format\":\"int32\"}", {"1"}, {"1.5"}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(arrays)
{
    static const grammar_case cases[] = {
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}",
         {"[null]", "[null,null]"},
         {"[]", "[null,null,null]", "[1]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1},{\"const\":2}],\"items\":{\"const\":3}"
         "}",
         {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
         {"[2]", "[1,3]", "[1,2,2]"}},
        {"{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":false,\"minItems\":1}",
         {"[1]"},
         {"[]", "[1,1]"}},
        {"{\"type\":\"array\",\"items\":[{\"const\":1}],\"additionalItems\":{\"const\":2}}",
         {"[1,2]"},
         {"[2]"}},
        {"{\"type\":\"array\",\"maxItems\":0}", {"[]"}, {"[1]"}},
        {"{\"type\":\"array\",\"uniqueItems\":false}", {"[1,1]"}, {""}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(objects)
{
    static const grammar_case cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":2},\"c\":{"
         "\"const\":"
         "3}},\"required\":[\"b\"],\"additionalProperties\":false}",
         {"{\"b\":2}", "{\"a\":1,\"b\":2}", "{\"b\":2,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
         {"{}", "{\"a\":1}", "{\"b\":2,\"a\":1}", "{\"b\":2,\"d\":1}", "{\"b\":2,}", "{,\"b\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":{"
         "\"const\":"
         "2}}",
         {"{}", "{\"x\":2}", "{\"a\":1,\"x\":2,\"ab\":2}"},
         {"{\"a\":2}", "{\"x\":1}", "{\"\\u0061\":2}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1}}}",
         {"{\"b\":[]}"},
         {"{\"a\":2}"}},
        {"{\"type\":\"object\",\"required\":[\"x\"]}", {"{\"x\":0}", "{\"x\":0,\"y\":1}"}, {"{}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\\\"b\":{\"const\":1}},\"additionalProperties\":"
         "false}",
         {"{\"a\\\"b\":1}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"const\":1},\"y$\":{\"type\":"
         "\"integer\"}},"
         "\"additionalProperties\":false}",
         {"{\"x\":1}", "{\"y\":5}", "{\"xy\":1}"},
         {"{\"x\":2}", "{\"z\":1}", "{\"xy\":2}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"maxLength\":2}}",
         {"{\"ab\":1}"},
         {"{\"abc\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"a\",\"b\"]}}",
         {"{\"a\":1}"},
         {"{\"c\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"const\":1},\"b\":{\"const\":1},\"c\":{"
         "\"const\":1}},"
         "\"additionalProperties\":false,\"minProperties\":2,\"maxProperties\":2}",
         {"{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}"},
         {"{}", "{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}"}},
        {"{\"type\":\"object\",\"maxProperties\":1}", {"{}", "{\"a\":1}"}, {"{\"a\":1,\"b\":1}"}},
        {"{\"type\":\"object\",\"minProperties\":1}", {"{\"a\":1}"}, {"{}"}},
        /* Without a type, the keywords say which is meant. */
        {"{\"properties\":{\"a\":{\"const\":1}}}", {"{\"a\":1}"}, {"1"}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(combinations)
{
    static const grammar_case cases[] = {
        {"{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"integer\",\"minimum\":3}]}",
         {"null", "3"},
         {"2"}},
        {"{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", {"\"\"", "1"}, {"null"}},
        {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":["
         "\"k\"],"
         "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"k\":{\"const\":"
         "\"b\"}},"
         "\"required\":[\"k\"],\"additionalProperties\":false}]}",
         {"{\"k\":\"a\"}", "{\"k\":\"b\"}"},
         {"{\"k\":\"c\"}", "{}"}},
        {"{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
         "\"required\":"
         "[\"a\"]},{\"properties\":{\"a\":{\"minimum\":5},\"b\":{\"type\":\"null\"}}}]}",
         {"{\"a\":5}", "{\"a\":7,\"b\":null}"},
         {"{\"a\":4}", "{\"b\":null}"}},
        {"{\"type\":\"integer\",\"anyOf\":[{\"minimum\":10},{\"maximum\":-10}]}",
         {"10", "-10"},
         {"0"}},
        {"{\"$ref\":\"#/$defs/x\",\"$defs\":{\"x\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
        {"{\"$ref\":\"#/definitions/a~1b%20c\",\"definitions\":{\"a/b c\":{\"type\":\"null\"}}}",
         {"null"},
         {"1"}},
        {"{\"$id\":\"https://x/y\",\"$ref\":\"https://x/y#n\",\"$defs\":{\"q\":{\"$anchor\":\"n\","
         "\"const\":1}}}",
         {"1"},
         {"2"}},
        {"{\"$ref\":\"#/$defs/t\",\"$defs\":{\"t\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/"
         "$defs/t\"}}}}",
         {"[]", "[[],[[]]]"},
         {"[1]"}},
        {"{\"type\":\"object\",\"properties\":{\"next\":{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":"
         "\"null\"}]}},"
         "\"required\":[\"next\"],\"additionalProperties\":false}",
         {"{\"next\":null}", "{\"next\":{\"next\":null}}"},
         {"{}", "null"}},
        {"{\"anyOf\":[false,{\"const\":1}]}", {"1"}, {"2"}},
        {"{\"title\":\"t\",\"description\":\"d\",\"default\":1,\"examples\":[2],\"$comment\":\"c\","
         "\"deprecated\":true,\"readOnly\":true,\"$schema\":\"s\",\"x-own\":1,\"const\":1}",
         {"1"},
         {"2"}},
    };
    UNUSED_STATE;
    check_cases(cases, SH_COUNT_OF(cases));
}

TEST(white_space_is_allowed_but_limited)
{
    static const grammar_case c = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}",
        {"{\"a\":[]}", "{ \"a\": [ 1, 2 ] }", "{\n  \"a\": [\n    1,\n\t2\n  ]\n}"},
        {"{\"a\" :[]}", "{  \"a\":[]}", " {\"a\":[]}", "{\n\n\"a\":[]}", "{\"a\":\n[]}"}};
    UNUSED_STATE;
    check_case(make_spaced, &c);
}

TEST(what_cannot_be_enforced_is_refused_by_its_path)
{
    static const refused_case cases[] = {
        {"{\"properties\":{\"a\":{\"not\":{}}}}", "/properties/a/not: cannot be enforced"},
        {"{\"if\":{}}", "/if: cannot be enforced"},
        {"{\"items\":{\"contains\":{}}}", "/items/contains: cannot be enforced"},
        {"{\"uniqueItems\":true}", "/uniqueItems: cannot be enforced"},
        {"{\"unevaluatedProperties\":false}", "/unevaluatedProperties: cannot be enforced"},
        {"{\"dependentRequired\":{}}", "/dependentRequired: cannot be enforced"},
        {"{\"$dynamicRef\":\"#a\"}", "/$dynamicRef: cannot be enforced"},
        {"{\"frobnicate\":1}", "/frobnicate: unknown keyword"},
        {"{\"format\":\"duration\"}", "/format: this format cannot be enforced"},
        {"{\"pattern\":\"a(?=b)\"}", "/pattern: pattern, at 1: looking ahead"},
        {"{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
         "/oneOf: cannot be enforced"},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         "/oneOf: cannot be enforced"},
        {"{\"type\":\"object\",\"minProperties\":2}", "/minProperties: cannot be enforced"},
        {"{\"type\":\"integer\",\"multipleOf\":123456789}", "/multipleOf: cannot be enforced"},
        {"{\"$ref\":\"other.json\"}", "/$ref: refers to another document"},
        {"{\"anyOf\":[{\"$ref\":\"#/a~1\"}]}",
         "/anyOf/0/$ref: refers to something that is not there"},
        {"{\"type\":\"text\"}", "/type: must be null, boolean"},
        {"{\"properties\":{\"a/b\":7}}", "/properties/a~1b: a schema must be"},
        {"{\"minLength\":-1}", "/minLength: must be a whole number"},
        {"{\"minLength\":99999999}", "/minLength: is larger"},
        {"{\"enum\":[]}", "/enum: must be a list"},
        {"{\"required\":[1]}", "/required: must be a list of strings"},
        {"{\"anyOf\":{}}", "/anyOf: must be a list of schemas"},
        {"{\"minimum\":\"1\"}", "/minimum: must be a number"},
        {"{\"multipleOf\":0}", "/multipleOf: must be a number greater than 0"},
        {"7", "a schema must be an object or a boolean"},
        {"false", "matches no text"},
        {"{\"type\":\"integer\",\"minimum\":2,\"maximum\":1}", "matches no text"},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "matches no text"},
        {"{\"$ref\":\"#\"}", "/$ref: leads back to itself"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "/allOf/0/$ref: leads back to itself"},
        {"{\"oneOf\":[{\"type\":\"null\"},{\"$ref\":\"#\"}]}", "/oneOf/1/$ref: leads back"},
        {"{\"items\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},"
         "\"b\":{\"anyOf\":[{\"type\":\"null\"},{\"$ref\":\"#/$defs/a\"}]}}}",
         "/$defs/b/anyOf/1/$ref: leads back to itself"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "matches no text"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_refused(make, &cases[i]);
}

/* Many alternatives in each of many schemas: the combinations are what is limited. */
TEST(hostile_schemas_end_with_a_limit)
{
    sh_buf text = {0};
    sh_grammar *g = NULL;
    sh_err err;
    UNUSED_STATE;
    sh_buf_add_text(&text, "{\"allOf\":[");
    for (int i = 0; i < 24; i++)
        sh_buf_addf(&text, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}",
                    i == 0 ? "" : ",", i, i);
    sh_buf_add_text(&text, "],\"type\":\"object\"}");
    assert_int_equal(compile_case(make, text.ptr, &g, &err), SH_ERR_LIMIT);
    sh_buf_reset(&text);
}

/* Each of these is about as long as a request may be. */
TEST(a_schema_of_a_megabyte_ends_with_a_limit)
{
    static const char *const parts[][3] = {
        {"{\"enum\":[\"\"", ",\"value%06d\"", "]}"},
        {"{\"type\":\"object\",\"properties\":{\"\":{}", ",\"p%06d\":{\"type\":\"string\"}", "}}"},
        {"{\"anyOf\":[{}", ",{\"properties\":{\"k\":{\"const\":\"v%d\"}}}", "]}"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(parts); i++) {
        sh_buf text = {0};
        sh_grammar *g = NULL;
        sh_err err;
        sh_buf_add_text(&text, parts[i][0]);
        for (int k = 0; text.len < 1000000; k++) sh_buf_addf(&text, parts[i][1], k);
        sh_buf_add_text(&text, parts[i][2]);
        assert_int_equal(compile_case(make, text.ptr, &g, &err), SH_ERR_LIMIT);
        sh_buf_reset(&text);
    }
}

TEST(many_optional_properties_compile)
{
    sh_buf text = {0};
    sh_grammar *g = NULL;
    sh_err err;
    UNUSED_STATE;
    sh_buf_add_text(&text, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
    for (int i = 0; i < 600; i++)
        sh_buf_addf(&text, "%s\"p%d\":{\"type\":\"integer\"}", i == 0 ? "" : ",", i);
    sh_buf_add_text(&text, "}}");
    CHECK_OK(compile_case(make, text.ptr, &g, &err), err);
    sh_matcher *m = sh_matcher_create(g, NULL);
    assert_true(case_matches(m, "{}"));
    assert_true(case_matches(m, "{\"p0\":1,\"p300\":2,\"p599\":3}"));
    assert_false(case_matches(m, "{\"p1\":1,\"p0\":2}"));
    sh_matcher_free(m);
    sh_grammar_free(g);
    sh_buf_reset(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types),
        cmocka_unit_test(values),
        cmocka_unit_test(strings),
        cmocka_unit_test(numbers),
        cmocka_unit_test(arrays),
        cmocka_unit_test(objects),
        cmocka_unit_test(combinations),
        cmocka_unit_test(white_space_is_allowed_but_limited),
        cmocka_unit_test(what_cannot_be_enforced_is_refused_by_its_path),
        cmocka_unit_test(hostile_schemas_end_with_a_limit),
        cmocka_unit_test(a_schema_of_a_megabyte_ends_with_a_limit),
        cmocka_unit_test(many_optional_properties_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
