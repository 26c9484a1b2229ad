/* Streams of random ids: the texts are complete characters, come as early as possible, and
 * concatenated equal the result of decoding all ids at once (which test_tokenizer.c compares with a
 * reference). */
#include "text/tokenizer/detokenizer.h"

#include "base/hash.h"
#include "text/tokenizer/unicode.h"
#include "tokenizer_cases.h"

enum { STREAMS = 400, STREAM_MAX = 40 };

static uint64_t draws = 1;

static uint32_t pick(uint32_t count)
{
    return (uint32_t)(sh_mix64(draws++) >> 33) % count;
}

/* Random ids; runs of byte tokens (3 to 258 in the spm kinds) are the hard part. */
static void stream_make(const sh_tokenizer *tok, sh_ids *out)
{
    out->len = 0;
    uint32_t size = (uint32_t)sh_tokenizer_size(tok), bytes = pick(2);
    for (uint32_t left = pick(STREAM_MAX); left > 0; left--) {
        bool byte = bytes != 0 && pick(3) > 0;
        sh_ids_add(out, byte ? (int32_t)(3 + pick(256)) : (int32_t)pick(size + 2) - 1);
    }
}

static void stream_check(const sh_tokenizer *tok, sh_detokenizer *detok, const sh_ids *ids,
                         bool skip)
{
    sh_buf whole = {0}, joined = {0};
    sh_tokenizer_decode(tok, ids->ptr, ids->len, skip, &whole);
    for (size_t i = 0; i < ids->len; i++) {
        sh_str text = sh_detokenizer_push(detok, ids->ptr[i]);
        assert_true(sh_utf8_valid(text.ptr, text.len));
        sh_buf_add_str(&joined, text);
        assert_true(sh_str_starts(sh_buf_str(&whole), sh_buf_str(&joined)));
    }
    sh_buf_add_str(&joined, sh_detokenizer_finish(detok));
    assert_true(sh_str_eq(sh_buf_str(&joined), sh_buf_str(&whole)));
    sh_buf_reset(&whole);
    sh_buf_reset(&joined);
}

TEST(streamed_texts_equal_decoding_at_once)
{
    UNUSED_STATE;
    for (size_t kind = 0; kind < SH_COUNT_OF(case_kinds); kind++) {
        sh_tokenizer *tok = case_tokenizer(case_kinds[kind]);
        for (int skip = 0; skip < 2; skip++) {
            sh_detokenizer *detok = sh_detokenizer_create(tok, skip);
            sh_ids ids = {0};
            for (int i = 0; i < STREAMS; i++) {
                stream_make(tok, &ids);
                stream_check(tok, detok, &ids, skip);
            }
            sh_ids_reset(&ids);
            sh_detokenizer_free(detok);
        }
        sh_tokenizer_free(tok);
    }
}

/* After a token that ends in a complete character nothing is held back. */
TEST(byte_level_text_comes_with_the_token_that_completes_it)
{
    UNUSED_STATE;
    sh_tokenizer *tok = case_tokenizer("gpt2");
    sh_detokenizer *detok = sh_detokenizer_create(tok, false);
    sh_ids ids = {0};
    sh_buf joined = {0}, so_far = {0};
    sh_err err;
    sh_str text = SH_STR("Hello \xf0\x9f\x99\x82 w\xc3\xb6rld \xe4\xb8\xad");
    CHECK_OK(sh_tokenizer_encode(tok, text, (sh_encode_opts){0}, &ids, &err), err);
    for (size_t i = 0; i < ids.len; i++) {
        sh_tokenizer_bytes(tok, ids.ptr[i], &so_far);
        sh_buf_add_str(&joined, sh_detokenizer_push(detok, ids.ptr[i]));
        assert_int_equal(joined.len, sh_utf8_valid_prefix(so_far.ptr, so_far.len));
    }
    assert_true(sh_str_eq(sh_buf_str(&joined), text));
    sh_ids_reset(&ids);
    sh_buf_reset(&joined);
    sh_buf_reset(&so_far);
    sh_detokenizer_free(detok);
    sh_tokenizer_free(tok);
}

/* The text, with an F for each U+FFFD. */
static void shown_check(sh_str text, const char *want)
{
    sh_buf shown = {0};
    for (size_t at, from = 0; from < text.len; from = at + 3) {
        at = sh_str_find(text, SH_STR("\xef\xbf\xbd"), from);
        sh_buf_add(&shown, text.ptr + from, at - from);
        if (at < text.len) sh_buf_add_char(&shown, 'F');
    }
    assert_true(sh_str_is(sh_buf_str(&shown), want));
    sh_buf_reset(&shown);
}

static void push_check(sh_detokenizer *detok, const sh_tokenizer *tok, const char *piece,
                       const char *want)
{
    int32_t id = sh_tokenizer_id(tok, sh_str_of(piece));
    assert_true(id >= 0);
    sh_str text = sh_detokenizer_push(detok, id);
    assert_true(sh_str_is(text, want));
}

/* Invalid UTF-8, split as in the Unicode standard (3.9, table 3-8 and those before it): one U+FFFD
 * for each longest start of a character. It is written as F here. */
TEST(broken_bytes_become_replacement_characters)
{
    UNUSED_STATE;
    static const struct {
        const char *bytes, *want, *held;
    } rows[] = {
        {"a\xf1\x80\x80\xe1\x80\xc2"
         "b\x80"
         "c\x80\xbf"
         "d",
         "aFFFbFcFFd", ""},
        {"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
         "A",
         "FFFFFFFFA", ""},
        {"\xed\xa0\x80\xed\xbf\xbf\xed\xaf"
         "A",
         "FFFFFFFFA", ""},
        {"\xf4\x91\x92\x93\xff"
         "A\x80\xbf"
         "B",
         "FFFFFAFFB", ""},
        {"\xff", "F", ""},
        {"x\xf0\x9f\x98", "x", "F"},
        {"\xe2\x28", "F(", ""},
    };
    sh_tokenizer *tok = case_tokenizer("gpt2");
    sh_detokenizer *detok = sh_detokenizer_create(tok, false);
    for (size_t i = 0; i < SH_COUNT_OF(rows); i++) {
        sh_buf got = {0};
        for (const char *b = rows[i].bytes; *b != '\0'; b++) {
            char piece[4];
            size_t len = (size_t)sh_utf8_encode(sh_bytelevel_char((uint8_t)*b), piece);
            int32_t id = sh_tokenizer_id(tok, (sh_str){piece, len});
            sh_buf_add_str(&got, sh_detokenizer_push(detok, id));
        }
        shown_check(sh_buf_str(&got), rows[i].want);
        shown_check(sh_detokenizer_finish(detok), rows[i].held);
        sh_buf_reset(&got);
    }
    sh_detokenizer_free(detok);
    sh_tokenizer_free(tok);
}

TEST(byte_tokens_are_held_until_their_run_ends_or_is_invalid)
{
    UNUSED_STATE;
    sh_tokenizer *tok = case_tokenizer("spm-legacy");
    sh_detokenizer *detok = sh_detokenizer_create(tok, false);
    push_check(detok, tok, "<0xC3>", "");
    push_check(detok, tok, "<0xA9>", "");
    push_check(detok, tok, "a",
               "\xc3\xa9"
               "a");
    /* A byte that cannot start a character spoils the run: each of its bytes is U+FFFD, at once. */
    push_check(detok, tok, "<0x41>", "");
    push_check(detok, tok, "<0xFF>", "\xef\xbf\xbd\xef\xbf\xbd");
    push_check(detok, tok, "<0x41>", "\xef\xbf\xbd");
    push_check(detok, tok, "b", "b");
    push_check(detok, tok, "<0xE2>", "");
    assert_true(sh_str_is(sh_detokenizer_finish(detok), "\xef\xbf\xbd"));
    sh_detokenizer_free(detok);
    sh_tokenizer_free(tok);
}

TEST(the_first_space_is_dropped_unless_the_stream_is_primed)
{
    UNUSED_STATE;
    sh_tokenizer *tok = case_tokenizer("spm-legacy");
    sh_detokenizer *detok = sh_detokenizer_create(tok, false);
    push_check(detok, tok, "\xe2\x96\x81", "");
    push_check(detok, tok, "\xe2\x96\x81", " ");
    assert_int_equal(sh_detokenizer_finish(detok).len, 0);
    push_check(detok, tok, "a", "a"); /* the prompt's last token */
    push_check(detok, tok, "\xe2\x96\x81", " ");
    sh_detokenizer_free(detok);
    sh_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streamed_texts_equal_decoding_at_once),
        cmocka_unit_test(byte_level_text_comes_with_the_token_that_completes_it),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(byte_tokens_are_held_until_their_run_ends_or_is_invalid),
        cmocka_unit_test(the_first_space_is_dropped_unless_the_stream_is_primed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
