#include "grammar_case.h"

static sh_expr make(sh_grammar_builder *b, const char *text)
{
    return sh_expr_regex(b, sh_str_of(text));
}

TEST(whole_texts_match)
{
    static const grammar_case cases[] = {
        {"", {""}, {"a"}},
        {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
        {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
        {"(ab)*c+", {"c", "ababcc"}, {"", "ab", "abac"}},
        {"a?b{2}c{1,2}d{2,}", {"bbcdd", "abbccddd"}, {"bcdd", "bbcccdd", "bbcd"}},
        {"x{,2}", {"", "xx"}, {"xxx"}},
        {"a{b}", {"a{b}"}, {"ab"}},
        {"[a-c]", {"a", "b", "c"}, {"d", "", "ab"}},
        {"[^a-c]", {"d", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80"}, {"a", "", "\xc3"}},
        {"[a\\]^-]", {"a", "]", "^", "-"}, {"b"}},
        {"[-a]", {"-", "a"}, {"b"}},
        {"[\\d_]+", {"12_"}, {"a"}},
        {"\\d\\D\\w\\W\\s\\S", {"1ab-\tx", "1\xc3\xa9_ \xe2\x80\xa8y"}, {"a1b- x"}},
        {".", {"a", "\xe2\x82\xac"}, {"\n", "\r", "\xe2\x80\xa8"}},
        {"\\x41\\u00e9\\u{1F600}\\uD83D\\uDE00",
         {"A\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80"},
         {"A"}},
        {"\\.\\*\\/\\-\\n\\t\\0?", {".*/-\n\t"}, {"a"}},
        {"(?:a|(?<n>b)|(?P<m>c))+", {"abc"}, {""}},
        {"a+?b*?c??", {"a", "aabbc"}, {"b"}},
        {"^a$", {"a"}, {"^a$"}},
        {"^(a|b$)", {"a", "b"}, {"ab"}},
        {"(^a|b)c", {"ac", "bc"}, {"abc"}},
        {"\\Aa\\Z", {"a"}, {""}},
        {"[\xc3\xa0-\xc3\xbf]+", {"\xc3\xa9\xc3\xbc"}, {"\xc4\x80", "e"}},
        {"[\\u0800-\\uffff]", {"\xe0\xa0\x80", "\xef\xbf\xbf"}, {"\xed\xa0\x80", "\xdf\xbf"}},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_case(make, &cases[i]);
}

TEST(what_cannot_be_enforced_is_refused_by_its_position)
{
    static const refused_case cases[] = {
        {"ab(?=c)", "at 2: looking ahead"},
        {"(?!a)", "at 0: looking ahead"},
        {"(?<=a)b", "looking ahead or behind"},
        {"(?i)a", "at 0: this kind of group"},
        {"a\\b", "at 1: a word boundary"},
        {"(a)\\1", "at 3: a back reference"},
        {"\\p{L}", "at 0: a Unicode property"},
        {"a++", "at 2: a possessive quantifier"},
        {"\\q", "at 0: an unknown escape"},
        {"*a", "at 0: a quantifier without"},
        {"(a", "at 0: a group that is not closed"},
        {"a)", "at 1: a ) without"},
        {"[a", "at 0: a class that is not closed"},
        {"[]", "at 0: an empty class"},
        {"[b-a]", "wrong order"},
        {"a{3,2}", "wrong order"},
        {"a\\", "a backslash at the end"},
        {"\\x4", "hexadecimal"},
        {"\\ud800", "hexadecimal"},
        {"^*", "a quantifier after an anchor"},
        {"a^b", "matches no text"},
        {"[^\\s\\S]", "matches no text"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_refused(make, &cases[i]);
}

TEST(hostile_patterns_end_with_a_limit)
{
    static const refused_case cases[] = {
        {"(a|b)*a(a|b){30}", "states"},
        {"((a{1000}){1000}){1000}", "too complex"},
        {"(((((.{0,99}){0,99}){0,99}){0,99}){0,99})", "too complex"},
        {"a{70000}", "at most 65000 repetitions"},
    };
    char deep[1001];
    sh_grammar *g = NULL;
    sh_err err;
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) check_refused(make, &cases[i]);
    memset(deep, '(', 1000);
    deep[1000] = '\0';
    CHECK_FAILS(compile_case(make, deep, &g, &err), err, "nested more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_texts_match),
        cmocka_unit_test(what_cannot_be_enforced_is_refused_by_its_position),
        cmocka_unit_test(hostile_patterns_end_with_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
