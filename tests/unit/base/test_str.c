#include "base/str.h"

#include "base/status.h"

#include "test.h"

TEST(numbers_must_be_the_whole_text)
{
    UNUSED_STATE;
    int64_t whole;
    double number;
    assert_true(sh_str_to_int(SH_STR("-42"), &whole));
    assert_int_equal(whole, -42);
    assert_false(sh_str_to_int(SH_STR(""), &whole));
    assert_false(sh_str_to_int(SH_STR(" 1"), &whole));
    assert_false(sh_str_to_int(SH_STR("1x"), &whole));
    assert_false(sh_str_to_int(SH_STR("9223372036854775808"), &whole));
    assert_true(sh_str_to_double(SH_STR("2.5e3"), &number));
    assert_true(number == 2500.0);
    assert_false(sh_str_to_double(SH_STR("nan"), &number));
    assert_false(sh_str_to_double(SH_STR("inf"), &number));
    assert_false(sh_str_to_double(SH_STR("1e999"), &number));
    assert_false(sh_str_to_int((sh_str){"1\0002", 3}, &whole));
}

TEST(cutting_gives_every_part_once)
{
    UNUSED_STATE;
    sh_str rest = SH_STR("a,,b"), part;
    const char *want[] = {"a", "", "b"};
    int count = 0;
    while (sh_str_cut(&rest, ',', &part)) assert_true(sh_str_is(part, want[count++]));
    assert_int_equal(count, 3);
}

TEST(finding_stays_inside_the_text)
{
    UNUSED_STATE;
    sh_str text = SH_STR("abcabc");
    assert_int_equal(sh_str_find(text, SH_STR("bc"), 0), 1);
    assert_int_equal(sh_str_find(text, SH_STR("bc"), 2), 4);
    assert_int_equal(sh_str_find(text, SH_STR("x"), 0), text.len);
    assert_int_equal(sh_str_find(text, SH_STR("abcabcabc"), 0), text.len);
    assert_int_equal(sh_str_find(text, SH_STR("a"), 99), text.len);
}

TEST(every_scalar_value_survives_utf8)
{
    UNUSED_STATE;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        char bytes[4];
        uint32_t back;
        int len = sh_utf8_encode(code, bytes);
        assert_int_equal(sh_utf8_decode(bytes, (size_t)len, &back), len);
        assert_int_equal(back, code);
        assert_int_equal(sh_utf8_decode(bytes, (size_t)len - 1, &back), 0);
    }
}

TEST(what_is_not_utf8_is_seen)
{
    UNUSED_STATE;
    static const char *const bad[] = {
        "\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x80\x80",
        "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff",
        "\xe2\x28\xa1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(sh_utf8_valid(bad[i], strlen(bad[i])));
    assert_int_equal(sh_utf8_valid_prefix("ab\xc3", 3), 2);
}

TEST(a_swap_is_one_typo)
{
    UNUSED_STATE;
    assert_int_equal(sh_str_distance(SH_STR("prot"), SH_STR("port")), 1);
    assert_int_equal(sh_str_distance(SH_STR("part"), SH_STR("port")), 1);
    assert_int_equal(sh_str_distance(SH_STR("kitten"), SH_STR("sitting")), 3);
    assert_int_equal(sh_str_distance(SH_STR(""), SH_STR("abc")), 3);
    assert_int_equal(sh_str_distance(SH_STR("abc"), SH_STR("abc")), 0);
}

TEST(what_is_near_is_suggested)
{
    static const char *const names[] = {"part", "port", "temperature", "top-k", "ips"};
    static const struct {
        const char *typed, *name;
    } cases[] = {{"prot", "port"},
                 {"temp", "temperature"},
                 {"tempreture", "temperature"},
                 {"ip", "ips"},
                 {"x", NULL},
                 {"te", NULL},
                 {"something-else", NULL},
                 {"ips", "ips"}};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_suggestion meant = {.typed = sh_str_of(cases[i].typed)};
        for (size_t k = 0; k < SH_COUNT_OF(names); k++) sh_suggestion_try(&meant, names[k]);
        if (cases[i].name == NULL)
            assert_null(meant.name);
        else
            assert_string_equal(meant.name == NULL ? "" : meant.name, cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_must_be_the_whole_text),
        cmocka_unit_test(cutting_gives_every_part_once),
        cmocka_unit_test(finding_stays_inside_the_text),
        cmocka_unit_test(every_scalar_value_survives_utf8),
        cmocka_unit_test(what_is_not_utf8_is_seen),
        cmocka_unit_test(a_swap_is_one_typo),
        cmocka_unit_test(what_is_near_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
