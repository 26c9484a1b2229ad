#include "text/output/stop.h"

#include "test.h"

typedef struct {
    size_t end; /* of the released text */
    int matched;
} outcome;

/* The definition, by plain search: the earliest end wins, then the longest string. */
static outcome expected_of(sh_str text, const sh_str *strings, size_t count)
{
    for (size_t end = 1; end <= text.len; end++) {
        outcome best = {text.len, -1};
        for (size_t i = 0; i < count; i++) {
            if (!sh_str_ends(sh_str_sub(text, 0, end), strings[i])) continue;
            if (best.matched < 0 || strings[i].len > strings[best.matched].len)
                best = (outcome){end - strings[i].len, (int)i};
        }
        if (best.matched >= 0) return best;
    }
    return (outcome){text.len, -1};
}

static bool may_become_stop(sh_str tail, const sh_str *strings, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (sh_str_starts(strings[i], tail)) return true;
    return false;
}

static void check_text(sh_str text, const sh_str *strings, size_t count, size_t most)
{
    outcome want = expected_of(text, strings, count);
    sh_stop *stop = NULL;
    sh_buf out = {0};
    sh_err err;

    CHECK_OK(sh_stop_create(strings, count, &stop, &err), err);
    for (size_t at = 0, len; at < text.len; at += len) {
        len = 1 + (size_t)rand() % most;
        bool matched = sh_stop_push(stop, sh_str_sub(text, at, len), &out);
        assert_int_equal(matched, sh_stop_matched(stop) >= 0);
        assert_true(out.len <= want.end);
        if (matched) continue;
        /* Only text that may become a stop string is held back. */
        size_t seen = at + len < text.len ? at + len : text.len;
        sh_str held = sh_str_sub(text, out.len, seen - out.len);
        if (held.len > 0) assert_true(may_become_stop(held, strings, count));
    }
    sh_stop_finish(stop, &out);
    assert_int_equal(sh_stop_matched(stop), want.matched);
    assert_int_equal(out.len, want.end);
    if (out.len > 0) assert_memory_equal(out.ptr, text.ptr, out.len);
    sh_stop_free(stop);
    sh_buf_reset(&out);
}

TEST(matches_like_a_plain_search_however_text_is_split)
{
    UNUSED_STATE;
    srand(2);
    for (int round = 0; round < 30000; round++) {
        char text[40], words[4][6];
        sh_str strings[4];
        size_t count = (size_t)rand() % 5, len = (size_t)rand() % sizeof(text);
        int letters = 1 + rand() % 3;
        for (size_t i = 0; i < count; i++) {
            strings[i] = (sh_str){words[i], 1 + (size_t)rand() % sizeof(words[i])};
            for (size_t k = 0; k < strings[i].len; k++)
                words[i][k] = (char)('a' + rand() % letters);
        }
        for (size_t k = 0; k < len; k++) text[k] = (char)('a' + rand() % letters);
        check_text((sh_str){text, len}, strings, count, 1 + (size_t)rand() % 8);
    }
}

TEST(never_leaks_the_beginning_of_a_stop_string)
{
    sh_str strings[] = {SH_STR("\n\nUser:"), SH_STR("<|end|>"), SH_STR("\xe2\x82\xac")};
    sh_stop *stop = NULL;
    sh_buf out = {0};
    sh_err err;
    UNUSED_STATE;
    CHECK_OK(sh_stop_create(strings, SH_COUNT_OF(strings), &stop, &err), err);
    assert_false(sh_stop_push(stop, SH_STR("Hi\n\nUse"), &out));
    assert_string_equal(out.ptr, "Hi");
    assert_false(sh_stop_push(stop, SH_STR("ful.\n"), &out));
    assert_string_equal(out.ptr, "Hi\n\nUseful.");
    assert_false(sh_stop_push(stop, SH_STR("\n"), &out));
    assert_true(sh_stop_push(stop, SH_STR("User: more"), &out));
    assert_true(sh_stop_push(stop, SH_STR("more"), &out));
    sh_stop_finish(stop, &out);
    assert_string_equal(out.ptr, "Hi\n\nUseful.");
    assert_int_equal(sh_stop_matched(stop), 0);

    sh_stop_reset(stop);
    sh_buf_clear(&out);
    assert_false(sh_stop_push(stop, SH_STR("a<|en"), &out));
    sh_stop_finish(stop, &out);
    assert_string_equal(out.ptr, "a<|en");
    assert_int_equal(sh_stop_matched(stop), -1);
    sh_stop_free(stop);
    sh_buf_reset(&out);
}

TEST(refuses_strings_out_of_bounds)
{
    char text[SH_STOP_LEN_MAX + 1];
    sh_str strings[SH_STOP_COUNT_MAX + 1];
    sh_stop *stop = NULL;
    sh_err err;
    UNUSED_STATE;
    memset(text, 'a', sizeof(text));
    for (size_t i = 0; i < SH_COUNT_OF(strings); i++) strings[i] = (sh_str){text, SH_STOP_LEN_MAX};
    CHECK_FAILS(sh_stop_create(strings, SH_COUNT_OF(strings), &stop, &err), err, "at most 32");
    strings[3].len = 0;
    CHECK_FAILS(sh_stop_create(strings, 4, &stop, &err), err, "string 3 is empty");
    strings[3].len = SH_STOP_LEN_MAX + 1;
    CHECK_FAILS(sh_stop_create(strings, 4, &stop, &err), err, "513 bytes");
    assert_null(stop);
    CHECK_OK(sh_stop_create(strings, 3, &stop, &err), err);
    sh_stop_free(stop);
    sh_stop_free(NULL);
}

TEST(accepts_the_largest_set)
{
    static char texts[SH_STOP_COUNT_MAX][SH_STOP_LEN_MAX];
    sh_str strings[SH_STOP_COUNT_MAX];
    sh_stop *stop = NULL;
    sh_buf out = {0};
    sh_err err;
    UNUSED_STATE;
    for (size_t i = 0; i < SH_STOP_COUNT_MAX; i++) {
        memset(texts[i], (int)i + 1, SH_STOP_LEN_MAX);
        strings[i] = (sh_str){texts[i], SH_STOP_LEN_MAX};
    }
    CHECK_OK(sh_stop_create(strings, SH_STOP_COUNT_MAX, &stop, &err), err);
    assert_false(sh_stop_push(stop, sh_str_sub(strings[9], 0, SH_STOP_LEN_MAX - 1), &out));
    assert_int_equal(out.len, 0);
    assert_true(sh_stop_push(stop, sh_str_sub(strings[9], 0, 1), &out));
    assert_int_equal(sh_stop_matched(stop), 9);
    sh_stop_free(stop);
    sh_buf_reset(&out);
}

/* With "aaaa...b" and a text of 'a' a careless matcher backtracks at every byte. */
TEST(is_linear_in_hostile_text)
{
    static char word[SH_STOP_LEN_MAX], text[1 << 20];
    sh_str string = {word, sizeof(word)};
    sh_stop *stop = NULL;
    sh_buf out = {0};
    sh_err err;
    UNUSED_STATE;
    memset(word, 'a', sizeof(word));
    word[sizeof(word) - 1] = 'b';
    memset(text, 'a', sizeof(text));
    CHECK_OK(sh_stop_create(&string, 1, &stop, &err), err);
    for (size_t at = 0; at < sizeof(text); at += 3)
        assert_false(sh_stop_push(stop, sh_str_sub((sh_str){text, sizeof(text)}, at, 3), &out));
    assert_int_equal(out.len, sizeof(text) - SH_STOP_LEN_MAX + 1);
    sh_stop_free(stop);
    sh_buf_reset(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_like_a_plain_search_however_text_is_split),
        cmocka_unit_test(never_leaks_the_beginning_of_a_stop_string),
        cmocka_unit_test(refuses_strings_out_of_bounds),
        cmocka_unit_test(accepts_the_largest_set),
        cmocka_unit_test(is_linear_in_hostile_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
