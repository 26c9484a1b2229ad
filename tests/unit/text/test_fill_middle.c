/* Prompts that ask for the middle of a text, in the markers of each family. */
#include "text/fill_middle.h"

#include "base/buf.h"

#include "test.h"

static sh_err err;

/* A tokenizer of single letters with some more tokens, from id 10, and perhaps bos before texts. */
static sh_tokenizer *tokenizer_of(const char *const *markers, bool bos)
{
    sh_buf json = {0};
    sh_tokenizer *tok = NULL;
    sh_buf_add_text(&json, "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true}");
    for (int i = 0; markers[i] != NULL; i++)
        sh_buf_addf(&json, ",{\"id\":%d,\"content\":\"%s\",\"special\":true}", 10 + i, markers[i]);
    sh_buf_add_text(&json, "],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"b\":1,"
                           "\"c\":2,\"<\":3,\"s\":4,\">\":5}}");
    if (bos)
        sh_buf_add_text(&json, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
                               "\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{"
                               "\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{"
                               "\"<s>\":{\"id\":\"<s>\",\"ids\":[9],\"tokens\":[\"<s>\"]}}}");
    sh_buf_add_text(&json, "}");
    CHECK_OK(sh_tokenizer_parse(sh_buf_str(&json), "test", &tok, &err), err);
    sh_buf_reset(&json);
    return tok;
}

TEST(each_family_has_its_markers_and_its_order)
{
    static const struct {
        const char *markers[5];
        bool bos;
        int32_t end, ids[8];
        size_t count;
    } cases[] = {
        {{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}, false, -1, {10, 0, 12, 1, 11}, 5},
        {{"<fim_prefix>", "<fim_middle>", "<fim_suffix>"}, false, -1, {10, 0, 12, 1, 11}, 5},
        {{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
         true,
         -1,
         {9, 10, 0, 11, 1, 12},
         6},
        {{"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"}, true, 13, {9, 10, 0, 11, 1, 12}, 6},
        {{"[SUFFIX]", "[PREFIX]"}, true, -1, {9, 10, 1, 11, 0}, 5},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_tokenizer *tok = tokenizer_of(cases[i].markers, cases[i].bos);
        sh_ids ids = {0};
        int32_t end;
        assert_true(sh_fill_middle_known(tok, &end));
        assert_int_equal(end, cases[i].end);
        CHECK_OK(sh_fill_middle_encode(tok, SH_STR("a"), SH_STR("b"), &ids, &err), err);
        assert_int_equal(ids.len, cases[i].count);
        assert_memory_equal(ids.ptr, cases[i].ids, ids.len * sizeof(int32_t));
        sh_ids_reset(&ids);
        sh_tokenizer_free(tok);
    }
}

TEST(markers_in_the_texts_are_text)
{
    const char *markers[] = {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<s>c", NULL};
    sh_tokenizer *tok = tokenizer_of(markers, false);
    sh_ids ids = {0};
    UNUSED_STATE;
    CHECK_OK(sh_fill_middle_encode(tok, SH_STR("<s>"), SH_STR(""), &ids, &err), err);
    const int32_t expected[] = {10, 3, 4, 5, 11, 12};
    assert_int_equal(ids.len, SH_COUNT_OF(expected));
    assert_memory_equal(ids.ptr, expected, sizeof(expected));
    sh_ids_reset(&ids);
    sh_tokenizer_free(tok);
}

TEST(a_family_needs_all_of_its_markers)
{
    const char *markers[] = {"<fim_prefix>", "<fim_suffix>", "[SUFFIX]", NULL};
    sh_tokenizer *tok = tokenizer_of(markers, false);
    int32_t end;
    UNUSED_STATE;
    assert_false(sh_fill_middle_known(tok, &end));
    sh_tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_has_its_markers_and_its_order),
        cmocka_unit_test(markers_in_the_texts_are_text),
        cmocka_unit_test(a_family_needs_all_of_its_markers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
