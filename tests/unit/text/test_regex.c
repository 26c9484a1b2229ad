/* What the translation keeps, rejects and limits. test_tokenizer.c compares complete patterns with
 * the reference. */
#include "text/tokenizer/regex.h"

#include "base/clock.h"
#include "text/tokenizer/unicode.h"

#include "test.h"

static sh_regex *regex_of(const char *pattern)
{
    sh_regex *regex = NULL;
    sh_err err;
    CHECK_OK(sh_regex_create(sh_str_of(pattern), &regex, &err), err);
    return regex;
}

/* The matches in the text, joined with '|'. */
static void matches_check(const char *pattern, const char *text, const char *want)
{
    sh_regex *regex = regex_of(pattern);
    sh_regex_scratch scratch = {0};
    sh_regex_hit hit = {0};
    sh_buf got = {0};
    sh_err err;
    sh_str subject = sh_str_of(text);
    for (size_t at = 0; at <= subject.len; at = hit.end + (hit.first == hit.end)) {
        CHECK_OK(sh_regex_find(regex, subject, at, &scratch, &hit, &err), err);
        if (!hit.found) break;
        if (got.len > 0) sh_buf_add_char(&got, '|');
        sh_buf_add(&got, text + hit.first, hit.end - hit.first);
    }
    if (!sh_str_is(sh_buf_str(&got), want))
        fail_msg("%s in '%s' finds '%.*s', not '%s'", pattern, text, (int)got.len, got.ptr, want);
    sh_buf_reset(&got);
    sh_regex_scratch_reset(&scratch);
    sh_regex_free(regex);
}

TEST(means_what_oniguruma_means)
{
    UNUSED_STATE;
    matches_check("\\p{N}{1,3}+", "1234567 8", "1234567|8"); /* the + repeats, in Ruby's syntax */
    matches_check("a{2}?b", "aab b", "aab|b");
    matches_check("a{,2}b", "aaab", "aab");
    matches_check("x{,}|{a", "x{,}{a", "x{,}|{a");
    matches_check("^a|b$", "a\nab\nb", "a|a|b|b");
    matches_check("(?m:a.b)|a.c", "a\nb a\nc", "a\nb");
    matches_check("\\h+", "xdeadz", "dead");
    matches_check("[\\w-]+", "a-b c", "a-b|c");
    matches_check("[\\s-x]+", "a -x", " -x");
    matches_check("[a[b-d]]+", "xabcdx", "abcd");
    matches_check("(?i:'S)", "'s '\xc5\xbf", "'s|'\xc5\xbf");
    matches_check("\\bab\\b", "ab cab ab", "ab|ab");
    matches_check("\\u00e9\\x{4e2d}\\x41",
                  "\xc3\xa9\xe4\xb8\xad"
                  "A",
                  "\xc3\xa9\xe4\xb8\xad"
                  "A");
    matches_check("\\p{Han}+", "a\xe4\xb8\xad\xe3\x80\x82", "\xe4\xb8\xad");
}

static bool matches(const sh_regex *regex, uint32_t code, sh_regex_scratch *scratch)
{
    char text[4];
    sh_regex_hit hit;
    sh_err err;
    sh_str subject = {text, (size_t)sh_utf8_encode(code, text)};
    CHECK_OK(sh_regex_find(regex, subject, 0, scratch, &hit, &err), err);
    return hit.found;
}

TEST(white_space_is_unicodes_in_every_spelling)
{
    UNUSED_STATE;
    static const char *const spaces[] = {"\\s", "[\\s]", "[^\\S]"};
    static const char *const others[] = {"\\S", "[\\S]", "[^\\s]"};
    sh_regex_scratch scratch = {0};
    for (size_t i = 0; i < SH_COUNT_OF(spaces); i++) {
        sh_regex *space = regex_of(spaces[i]), *other = regex_of(others[i]);
        for (uint32_t code = 0; code < 0x11000; code++) {
            if (code >= 0xd800 && code < 0xe000) continue;
            assert_int_equal(matches(space, code, &scratch), sh_unicode_is_space(code));
            assert_int_equal(matches(other, code, &scratch), !sh_unicode_is_space(code));
        }
        sh_regex_free(space);
        sh_regex_free(other);
    }
    sh_regex_scratch_reset(&scratch);
}

TEST(an_intersection_is_in_both_classes)
{
    UNUSED_STATE;
    sh_regex_scratch scratch = {0};
    sh_regex *both = regex_of("[\\p{Lu}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}a-z]]");
    sh_regex *neither = regex_of("[^\\p{Lu}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}a-z]]");
    sh_regex *left = regex_of("[\\p{Lu}\\p{Lm}\\p{Lo}\\p{M}]"), *right = regex_of("[^\\p{Han}a-z]");
    for (uint32_t code = 0; code < 0x32500; code++) {
        if (code >= 0xd800 && code < 0xe000) continue;
        bool want = matches(left, code, &scratch) && matches(right, code, &scratch);
        assert_int_equal(matches(both, code, &scratch), want);
        assert_int_equal(matches(neither, code, &scratch), !want);
    }
    sh_regex_free(both);
    sh_regex_free(neither);
    sh_regex_free(left);
    sh_regex_free(right);
    sh_regex_scratch_reset(&scratch);
}

TEST(rejects_what_it_cannot_translate)
{
    UNUSED_STATE;
    static const char *const patterns[] = {
        "(?~ab)",    "\\Qa\\E",  "[[:alpha:]]", "[a&&b]",       "[a[^b]]", "[[^b]a]", "[\\W]",
        "\\p{Alpha", "\\p{L-M}", "(*UTF8)a",    "(?R)",         "(?#x)a",  "\\u12",   "\\x{}",
        "[a",        "a)",       "\\",          "[\\",          "\\g<a>",  "\\p",     "[\\P{Han}]",
        "(a",        "*a",       "a{3,1}",      "\\p{No_Such}",
    };
    for (size_t i = 0; i < SH_COUNT_OF(patterns); i++) {
        sh_regex *regex = NULL;
        sh_err err;
        if (sh_regex_create(sh_str_of(patterns[i]), &regex, &err) == SH_OK)
            fail_msg("%s was taken", patterns[i]);
        assert_non_null(strstr(err.text, "pattern"));
    }
}

TEST(nesting_and_length_are_limited)
{
    UNUSED_STATE;
    enum { LEN = 200000 };
    char *text = malloc(LEN + 1);
    text[LEN] = '\0';
    sh_regex *regex = NULL;
    sh_err err;
    memset(text, 'a', LEN);
    CHECK_FAILS(sh_regex_create(sh_str_of(text), &regex, &err), err, "200000 bytes");
    for (const char *c = "(["; *c != '\0'; c++) {
        memset(text, *c, LEN);
        CHECK_FAILS(sh_regex_create((sh_str){text, 5000}, &regex, &err), err, "nested this deep");
    }
    free(text);
}

TEST(excessive_backtracking_is_an_error)
{
    UNUSED_STATE;
    sh_regex *regex = regex_of("(?:a+)+$|(a|aa)+b");
    sh_regex_scratch scratch = {0};
    sh_regex_hit hit;
    sh_err err;
    char text[64];
    memset(text, 'a', sizeof(text));
    text[63] = 'c';
    CHECK_FAILS(sh_regex_find(regex, (sh_str){text, sizeof(text)}, 0, &scratch, &hit, &err), err,
                "on this text failed");
    sh_regex_scratch_reset(&scratch);
    sh_regex_free(regex);
}

TEST(a_long_run_of_white_space_is_within_the_limits)
{
    UNUSED_STATE;
    enum { LEN = 24 << 20 };
    sh_regex *regex = regex_of("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
    sh_regex_scratch scratch = {0};
    sh_regex_hit hit;
    sh_err err;
    char *text = malloc(LEN);
    memset(text, ' ', LEN);
    text[LEN - 1] = 'x';
    CHECK_OK(sh_regex_find(regex, (sh_str){text, LEN}, 0, &scratch, &hit, &err), err);
    assert_true(hit.found);
    assert_int_equal(hit.end, LEN - 2);
    free(text);
    sh_regex_scratch_reset(&scratch);
    sh_regex_free(regex);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(means_what_oniguruma_means),
        cmocka_unit_test(white_space_is_unicodes_in_every_spelling),
        cmocka_unit_test(an_intersection_is_in_both_classes),
        cmocka_unit_test(rejects_what_it_cannot_translate),
        cmocka_unit_test(nesting_and_length_are_limited),
        cmocka_unit_test(excessive_backtracking_is_an_error),
        cmocka_unit_test(a_long_run_of_white_space_is_within_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
