/* Grammars as bytes: they come back as they were, and bytes that are no grammar are refused. */
#include "text/grammar/pack.h"

#include "text/grammar/matcher.h"

#include "test.h"

static sh_err err;

static void grammar_pack(const char *text, sh_buf *out)
{
    sh_grammar *g = NULL;
    sh_grammar_builder *b = sh_grammar_builder_create();
    CHECK_OK(sh_grammar_compile(b, sh_expr_gbnf(b, sh_str_of(text)), &g, &err), err);
    sh_grammar_builder_free(b);
    sh_grammar_pack(g, out);
    sh_grammar_free(g);
}

static const char *const grammars[] = {
    "root ::= \"yes\" | \"no\"",
    "root ::= [a-z]+ (\",\" [a-z]+)* \".\"",
    "root ::= \"(\" root? \")\" | item\nitem ::= [0-9] item | \"x\"",
    "root ::= \"\\\"\" [^\\x00-\\x1f\"\\\\]{2,40} \"\\\"\"",
};

static sh_token_trie *letters(void)
{
    static char bytes[128];
    sh_token_text tokens[128];
    for (int i = 0; i < 128; i++) {
        bytes[i] = (char)i;
        tokens[i] = (sh_token_text){.bytes = {bytes + i, 1}};
    }
    return sh_token_trie_build(tokens, 128, NULL, 0);
}

TEST(a_grammar_comes_back_as_it_was)
{
    UNUSED_STATE;
    sh_token_trie *trie = letters();
    for (size_t i = 0; i < SH_COUNT_OF(grammars); i++) {
        sh_buf bytes = {0}, again = {0};
        sh_grammar *g;
        grammar_pack(grammars[i], &bytes);
        CHECK_OK(sh_grammar_unpack(sh_buf_str(&bytes), &g, &err), err);
        sh_grammar_pack(g, &again);
        assert_int_equal(again.len, bytes.len);
        assert_memory_equal(again.ptr, bytes.ptr, bytes.len);
        sh_matcher *m = sh_matcher_create(g, trie);
        sh_match_state at;
        CHECK_OK(sh_matcher_bytes(m, SH_MATCH_START, SH_STR("((2x))"), &at, &err), err);
        assert_int_equal(at != SH_MATCH_DEAD && sh_matcher_accepts(m, at), i == 2);
        sh_matcher_free(m);
        sh_grammar_free(g);
        sh_buf_reset(&bytes);
        sh_buf_reset(&again);
    }
    sh_token_trie_free(trie);
}

TEST(bytes_that_are_no_grammar_are_refused)
{
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(grammars); i++) {
        sh_buf bytes = {0};
        sh_grammar *g;
        grammar_pack(grammars[i], &bytes);
        for (size_t len = 0; len < bytes.len; len++)
            assert_int_equal(sh_grammar_unpack((sh_str){bytes.ptr, len}, &g, &err), SH_ERR_INPUT);
        sh_buf_add_char(&bytes, 0);
        assert_int_equal(sh_grammar_unpack(sh_buf_str(&bytes), &g, &err), SH_ERR_INPUT);
        sh_buf_reset(&bytes);
    }
}

/* A flipped bit may give another grammar, but never one that leaves its own memory. */
TEST(whatever_unpacks_can_be_run)
{
    UNUSED_STATE;
    sh_token_trie *trie = letters();
    int unpacked = 0;
    for (size_t i = 0; i < SH_COUNT_OF(grammars); i++) {
        sh_buf bytes = {0}, forced = {0};
        grammar_pack(grammars[i], &bytes);
        for (size_t bit = 0; bit < bytes.len * 8; bit++) {
            sh_grammar *g;
            sh_token_mask mask;
            sh_match_state at;
            bytes.ptr[bit / 8] ^= (char)(1 << bit % 8);
            if (sh_grammar_unpack(sh_buf_str(&bytes), &g, &err) == SH_OK) {
                sh_matcher *m = sh_matcher_create(g, trie);
                if (sh_matcher_bytes(m, SH_MATCH_START, SH_STR("(1"), &at, &err) == SH_OK &&
                    sh_matcher_mask(m, at, &mask, &err) == SH_OK &&
                    sh_matcher_forced(m, at, &forced, &err) == SH_OK)
                    unpacked++;
                sh_matcher_free(m);
                sh_grammar_free(g);
            }
            bytes.ptr[bit / 8] ^= (char)(1 << bit % 8);
        }
        sh_buf_reset(&bytes);
        sh_buf_reset(&forced);
    }
    assert_true(unpacked > 100);
    sh_token_trie_free(trie);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_comes_back_as_it_was),
        cmocka_unit_test(bytes_that_are_no_grammar_are_refused),
        cmocka_unit_test(whatever_unpacks_can_be_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
