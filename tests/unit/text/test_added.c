/* Edge cases of the search; test_tokenizer.c compares it with the reference. */
#include "text/tokenizer/added.h"

#include "base/buf.h"
#include "base/clock.h"

#include "test.h"

static void added_make(sh_added *added, const sh_added_token *tokens, size_t count)
{
    sh_err err;
    *added = (sh_added){0};
    for (size_t i = 0; i < count; i++) {
        sh_added_token token = tokens[i];
        token.shown = token.content;
        sh_added_add(added, &token);
    }
    CHECK_OK(sh_added_seal(added, &err), err);
}

/* Plain text in brackets, tokens by their ids. */
static void walk_check(const sh_added *added, const char *text, const char *want)
{
    sh_added_walk walk = {.trie = added->raw, .text = sh_str_of(text)};
    sh_buf got = {0};
    for (bool more = true; more;) {
        more = sh_added_next(&walk);
        if (walk.from < walk.first)
            sh_buf_addf(&got, "[%.*s]", (int)(walk.first - walk.from), text + walk.from);
        if (more) sh_buf_addf(&got, "%d", walk.token->id);
    }
    if (!sh_str_is(sh_buf_str(&got), want)) fail_msg("'%s' gives %s", text, got.ptr);
    sh_buf_reset(&got);
}

TEST(the_leftmost_and_then_the_longest_token_wins)
{
    UNUSED_STATE;
    static const sh_added_token tokens[] = {
        {.content = {"ab", 2}, .id = 1},
        {.content = {"abc", 3}, .id = 2},
        {.content = {"bcd", 3}, .id = 3},
        {.content = {"x", 1}, .id = 4, .lstrip = true, .rstrip = true},
        {.content = {"y", 1}, .id = 5, .single_word = true},
    };
    sh_added added;
    added_make(&added, tokens, SH_COUNT_OF(tokens));
    walk_check(&added, "abcd", "2[d]");
    walk_check(&added, "aabd", "[a]1[d]");
    walk_check(&added, "1  x  2", "[1]4[2]");
    walk_check(&added, "y y1 y", "5[ y1 ]5");
    walk_check(&added, "\xe4\xb8\xady", "[\xe4\xb8\xady]");
    walk_check(&added, "", "");
    assert_ptr_equal(sh_added_by_id(&added, 3), sh_added_by_content(&added, SH_STR("bcd")));
    assert_null(sh_added_by_id(&added, 6));
    assert_null(sh_added_by_content(&added, SH_STR("a")));
    sh_added_reset(&added);
}

TEST(duplicates_are_merged_and_contradictions_rejected)
{
    UNUSED_STATE;
    static const sh_added_token rows[][2] = {
        {{.content = {"a", 1}, .id = 1}, {.content = {"a", 1}, .id = 1}},
        {{.content = {"a", 1}, .id = 1}, {.content = {"b", 1}, .id = 1}},
        {{.content = {"a", 1}, .id = 1}, {.content = {"a", 1}, .id = 2}},
    };
    for (int i = 0; i < 3; i++) {
        sh_added added = {0};
        sh_err err;
        sh_added_add(&added, &rows[i][0]);
        sh_added_add(&added, &rows[i][1]);
        sh_status status = sh_added_seal(&added, &err);
        assert_int_equal(status, i == 0 ? SH_OK : SH_ERR_INPUT);
        if (i == 0) assert_int_equal(added.count, 1);
        sh_added_reset(&added);
    }
}

TEST(a_megabyte_of_white_space_tokens_is_fast)
{
    UNUSED_STATE;
    enum { LEN = 1 << 20 };
    static const sh_added_token tokens[] = {{.content = {"\n", 1}, .id = 1, .rstrip = true},
                                            {.content = {"\t", 1}, .id = 2, .lstrip = true}};
    sh_added added;
    char *text = malloc(LEN);
    size_t count = 0;
    added_make(&added, tokens, 2);
    for (size_t i = 0; i < LEN; i++) text[i] = i % 2 == 0 ? '\n' : '\t';
    sh_added_walk walk = {.trie = added.raw, .text = {text, LEN}};
    int64_t start = sh_clock_ns();
    while (sh_added_next(&walk)) count++;
    assert_true(sh_clock_ns() - start < (int64_t)20 * 1000 * 1000 * 1000);
    assert_true(count >= LEN / 2);
    free(text);
    sh_added_reset(&added);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_leftmost_and_then_the_longest_token_wins),
        cmocka_unit_test(duplicates_are_merged_and_contradictions_rejected),
        cmocka_unit_test(a_megabyte_of_white_space_tokens_is_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
