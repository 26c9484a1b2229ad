#include "text/tokenizer/unicode.h"

#include "base/clock.h"
#include "base/hash.h"

#include "test.h"

#include <utf8proc.h>

static uint64_t draws = 1;

static uint32_t pick(uint32_t count)
{
    return (uint32_t)(sh_mix64(draws++) >> 33) % count;
}

/* Letters, marks that compose, Hangul parts, compatibility forms, and arbitrary characters. */
static void text_make(sh_buf *out)
{
    static const uint32_t blocks[][2] = {{0x20, 0x7e},     {0xc0, 0x24f},    {0x300, 0x362},
                                         {0x1100, 0x1175}, {0xac00, 0xac40}, {0x1e00, 0x1eff},
                                         {0x900, 0x94d},   {0xff01, 0xff5e}, {0xfb00, 0xfb06},
                                         {0x3300, 0x33ff}, {0x1, 0xd7ff},    {0x10000, 0x2ffff}};
    sh_buf_clear(out);
    for (uint32_t left = pick(24); left > 0; left--) {
        const uint32_t *block = blocks[pick(SH_COUNT_OF(blocks))];
        sh_buf_add_utf8(out, block[0] + pick(block[1] - block[0] + 1));
    }
}

TEST(normal_forms_are_those_of_utf8proc)
{
    UNUSED_STATE;
    sh_buf text = {0}, got = {0};
    for (int i = 0; i < 20000; i++) {
        text_make(&text);
        for (int form = SH_UNICODE_NFC; form <= SH_UNICODE_NFKD; form++) {
            utf8proc_uint8_t *want = NULL;
            int options = UTF8PROC_STABLE;
            options |= form == SH_UNICODE_NFC || form == SH_UNICODE_NFKC ? UTF8PROC_COMPOSE
                                                                         : UTF8PROC_DECOMPOSE;
            options |= form >= SH_UNICODE_NFKC ? UTF8PROC_COMPAT : 0;
            utf8proc_ssize_t len = utf8proc_map(
                (const utf8proc_uint8_t *)(text.len == 0 ? "" : text.ptr),
                (utf8proc_ssize_t)text.len, &want, (utf8proc_option_t)options);
            sh_buf_clear(&got);
            sh_unicode_normalize(sh_buf_str(&text), (sh_unicode_form)form, &got);
            assert_int_equal(got.len, len);
            if (len > 0) assert_memory_equal(got.ptr, want, got.len);
            free(want);
        }
    }
    sh_buf_reset(&text);
    sh_buf_reset(&got);
}

TEST(a_million_marks_in_the_wrong_order_are_fast)
{
    UNUSED_STATE;
    sh_buf text = {0}, got = {0};
    for (int i = 0; i < 500000; i++) sh_buf_add_text(&text, "\xcc\x81\xcc\xa3"); /* 230, then 220 */
    int64_t start = sh_clock_ns();
    sh_unicode_normalize(sh_buf_str(&text), SH_UNICODE_NFC, &got);
    assert_true(sh_clock_ns() - start < (int64_t)20 * 1000 * 1000 * 1000);
    assert_int_equal(got.len, text.len);
    assert_memory_equal(got.ptr, "\xcc\xa3\xcc\xa3", 4);
    sh_buf_reset(&text);
    sh_buf_reset(&got);
}

TEST(lower_case_maps_single_characters)
{
    UNUSED_STATE;
    sh_buf got = {0};
    sh_unicode_lower(SH_STR("AbC \xc3\x84 \xce\xa3 \xc4\xb0 1"), &got);
    assert_true(sh_str_is(sh_buf_str(&got), "abc \xc3\xa4 \xcf\x83 i\xcc\x87 1"));
    sh_buf_reset(&got);
}

TEST(character_classes_match_their_definition)
{
    UNUSED_STATE;
    static const struct {
        uint32_t code;
        bool space, word, punct, number, mark;
    } rows[] = {
        {'a', 0, 1, 0, 0, 0},    {'_', 0, 1, 1, 0, 0},    {'7', 0, 1, 0, 1, 0},
        {'$', 0, 0, 1, 0, 0},    {'\n', 1, 0, 0, 0, 0},   {0x85, 1, 0, 0, 0, 0},
        {0x200b, 0, 0, 0, 0, 0}, {0x200d, 0, 1, 0, 0, 0}, {0x180e, 0, 0, 0, 0, 0},
        {0x3000, 1, 0, 0, 0, 0}, {0x301, 0, 1, 0, 0, 1},  {0x2167, 0, 1, 0, 1, 0},
        {0xbd, 0, 0, 0, 1, 0},   {0x24b6, 0, 1, 0, 0, 0}, {0x3001, 0, 0, 1, 0, 0},
        {0x20ac, 0, 0, 0, 0, 0}, {0x4e2d, 0, 1, 0, 0, 0}, {0x1f642, 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < SH_COUNT_OF(rows); i++) {
        assert_int_equal(sh_unicode_is_space(rows[i].code), rows[i].space);
        assert_int_equal(sh_unicode_is_word(rows[i].code), rows[i].word);
        assert_int_equal(sh_unicode_is_punct(rows[i].code), rows[i].punct);
        assert_int_equal(sh_unicode_is_number(rows[i].code), rows[i].number);
        assert_int_equal(sh_unicode_is_mark(rows[i].code), rows[i].mark);
    }
}

TEST(the_byte_alphabet_has_a_character_for_each_byte)
{
    UNUSED_STATE;
    char bytes[256];
    sh_buf piece = {0}, back = {0};
    for (int i = 0; i < 256; i++) bytes[i] = (char)i;
    sh_bytelevel_encode((sh_str){bytes, 256}, &piece);
    assert_true(sh_utf8_valid(piece.ptr, piece.len));
    assert_true(sh_bytelevel_decode(sh_buf_str(&piece), &back));
    assert_int_equal(back.len, 256);
    assert_memory_equal(back.ptr, bytes, 256);
    assert_int_equal(sh_bytelevel_char(' '), 0x120);
    assert_int_equal(sh_bytelevel_char('\n'), 0x10a);
    assert_int_equal(sh_bytelevel_char(173), 0x143);
    assert_false(sh_bytelevel_decode(SH_STR("a b"), &back));
    assert_false(sh_bytelevel_decode(SH_STR("\xc5\x84"), &back));
    assert_int_equal(back.len, 256);
    sh_buf_reset(&piece);
    sh_buf_reset(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_forms_are_those_of_utf8proc),
        cmocka_unit_test(a_million_marks_in_the_wrong_order_are_fast),
        cmocka_unit_test(lower_case_maps_single_characters),
        cmocka_unit_test(character_classes_match_their_definition),
        cmocka_unit_test(the_byte_alphabet_has_a_character_for_each_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
