/* The order of steps and their edge cases; test_tokenizer.c compares each step with the reference.
 */
#include "text/tokenizer/normalizer.h"

#include "test.h"

static void normal_check(const char *json, const char *text, const char *want)
{
    cJSON *value = NULL;
    sh_normalizer *normalizer = NULL;
    sh_normalizer_scratch scratch = {0};
    sh_str got;
    sh_err err;
    CHECK_OK(sh_json_parse(sh_str_of(json), "test", &value, &err), err);
    CHECK_OK(sh_normalizer_create(value, "test", &normalizer, &err), err);
    CHECK_OK(sh_normalizer_apply(normalizer, sh_str_of(text), &scratch, &got, &err), err);
    if (!sh_str_is(got, want))
        fail_msg("'%s' becomes '%.*s', not '%s'", text, (int)got.len, got.ptr, want);
    sh_normalizer_scratch_reset(&scratch);
    sh_normalizer_free(normalizer);
    cJSON_Delete(value);
}

TEST(steps_work_in_order)
{
    UNUSED_STATE;
    const char *json =
        "{\"type\":\"Sequence\",\"normalizers\":["
        "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"B\"},"
        "{\"type\":\"Lowercase\"},"
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"A\"}]}]}";
    normal_check(json, "aXa", "Abxb");
    normal_check("null", "as it was", "as it was");
}

TEST(prepend_leaves_an_empty_text_empty)
{
    UNUSED_STATE;
    const char *json = "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Strip\"},"
                       "{\"type\":\"Prepend\",\"prepend\":\"_\"}]}";
    normal_check(json, " \xe3\x80\x80\n ", "");
    normal_check(json, " a ", "_a");
}

TEST(empty_matches_are_replaced_once_per_position)
{
    UNUSED_STATE;
    const char *json = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x*\"},\"content\":\"-\"}";
    normal_check(json, "ab", "-a-b-");
    normal_check(json, "axb", "-a-b-");
    normal_check(json, "\xc3\xa9", "-\xc3\xa9-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_work_in_order),
        cmocka_unit_test(prepend_leaves_an_empty_text_empty),
        cmocka_unit_test(empty_matches_are_replaced_once_per_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
