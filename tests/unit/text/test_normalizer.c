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

/* ﬁ, Ａ and № have rules in this map, and so has e with an accent of its own. */
static const char CHARSMAP[] =
    "AAQAAACQAQBlPAMAzAACAIEdAAANAACArQ0AAAAAAICmOQAAgKQCAAEAAICWBQAABwAAgIRAAgCBCQAArAgCAAoAAIChBQ"
    "AABQAAgBMAAAASAAAAFQAAABQAAAAXAAAAFgAAABkAAAAYAAAAGwAAABoAAAAdAAAAHAAAALy8AgAeAAAAIQAAACAAAAAj"
    "AAAAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEAAAAwAAAAMwAAADIAAA"
    "A1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAAQAAAAEMAAABCAAAARQAAAEQA"
    "AABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAAAABTAAAAUgAAAFUAAABUAAAAVwAAAF"
    "YAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAAYwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAA"
    "AGgAAABrAAAAagAAAG0AAABsAAAAbwAAAG4AAABxAAAAcAAAAHMAAAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAew"
    "AAAHoAAAB9AAAAfAAAAH8AAAB+"
    "AAAAgQAAAIAAAACDAAAAggAAAIUAAACEAAAA4jgAAIYAAACJAAAAiAAAAIsAAADvpAAAjQAAAIwAAACPAAAAjgAAAJEAAA"
    "CQAAAAkwAAAJIAAACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAAoAAAAKMA"
    "AACiAAAApQAAAKQAAADCOAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAAsgAAAL"
    "UAAAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/"
    "AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAAxAAAAMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADMAAAAzwAAAM4AAA"
    "DRAAAA0AAAANMAAADSAAAA1QAAANQAAADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAA"
    "AADjAAAA4gAAAOUAAADkAAAA5wAAAOYAAADpAAAA6AAAAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAP"
    "IAAAD1AAAA9AAAAPcAAAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAALi4uAEEATm8AZmkAw6kA";

static void charsmap_check(const char *text, const char *want)
{
    char json[sizeof(CHARSMAP) + 100];
    snprintf(json, sizeof(json), "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"}",
             CHARSMAP);
    normal_check(json, text, want);
}

TEST(a_charsmap_replaces_characters)
{
    UNUSED_STATE;
    charsmap_check("", "");
    charsmap_check("\xef\xac\x81ne \xe2\x84\x96 1", "fine No 1");
    charsmap_check("caf\x65\xcc\x81", "caf\xc3\xa9");
    charsmap_check("so\xc2\xad"
                   "ft",
                   "soft"); /* replaced by nothing */
}

TEST(a_damaged_charsmap_is_refused_or_harmless)
{
    UNUSED_STATE;
    static const char *const damaged[][2] = {{"?", "is not base64"},
                                             {"AA==", "cannot hold a trie"},
                                             {"/////w==", "cannot hold a trie"},
                                             {"AwAAAAAAAA==", "cannot hold a trie"},
                                             {"AAAAAP8=", "not valid UTF-8"}};
    sh_err err;
    for (size_t i = 0; i < SH_COUNT_OF(damaged); i++) {
        sh_normalizer *normalizer = NULL;
        cJSON *json = cJSON_CreateObject();
        cJSON_AddStringToObject(json, "type", "Precompiled");
        cJSON_AddStringToObject(json, "precompiled_charsmap", damaged[i][0]);
        CHECK_FAILS(sh_normalizer_create(json, "test", &normalizer, &err), err, damaged[i][1]);
        cJSON_Delete(json);
    }
    normal_check("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAAAA==\"}", "as it was",
                 "as it was");
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
        cmocka_unit_test(a_charsmap_replaces_characters),
        cmocka_unit_test(a_damaged_charsmap_is_refused_or_harmless),
        cmocka_unit_test(prepend_leaves_an_empty_text_empty),
        cmocka_unit_test(empty_matches_are_replaced_once_per_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
