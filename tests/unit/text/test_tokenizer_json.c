/* Files that are truncated, wrong or hostile: an error in one line with file and position, never a
 * crash. */
#include "base/json.h"
#include "text/tokenizer/tokenizer.h"
#include "tokenizer_cases.h"

#include <unistd.h>

/* Small, and with every component. */
static const char small[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true,"
    "\"lstrip\":false,\"rstrip\":false,\"single_word\":false,\"normalized\":false},"
    "{\"id\":6,\"content\":\"Xz\",\"special\":false}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"z+\"},\"content\":\"a\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
    "{\"Regex\":\" ?\\\\p{L}+\"},\"behavior\":\"Isolated\",\"invert\":false},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
    "\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":"
    "{\"<s>\":{\"id\":\"<s>\",\"ids\":[5],\"tokens\":[\"<s>\"]}}},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":"
    "{\"String\":\"q\"},\"content\":\" \"},{\"type\":\"ByteLevel\"},{\"type\":\"Strip\","
    "\"content\":\" \",\"start\":1,\"stop\":0}]},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"fuse_unk\":false,\"byte_fallback\":false,"
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"\xc4\xa0\":3,\"\xc4\xa0"
    "ab\":4},"
    "\"merges\":[\"a b\",[\"\xc4\xa0\",\"ab\"]]}}";

/* The text is in memory of exactly its size, so that a sanitizer sees a read past its end. */
static sh_status parse(const char *json, size_t len, sh_tokenizer **out, sh_err *err)
{
    char *copy = malloc(len == 0 ? 1 : len);
    memcpy(copy, json, len);
    sh_status status = sh_tokenizer_parse((sh_str){copy, len}, "t.json", out, err);
    free(copy);
    return status;
}

TEST(the_small_tokenizer_works)
{
    UNUSED_STATE;
    sh_tokenizer *tok = NULL;
    sh_ids ids = {0};
    sh_err err;
    static const int32_t want[] = {5, 2, 4, 6, 1, 0, 5};
    CHECK_OK(parse(small, sizeof(small) - 1, &tok, &err), err);
    sh_encode_opts opts = {.add_special = true, .parse_special = true};
    CHECK_OK(sh_tokenizer_encode(tok, SH_STR("ab abXzzbzzz<s>"), opts, &ids, &err), err);
    assert_int_equal(ids.len, SH_COUNT_OF(want));
    assert_memory_equal(ids.ptr, want, sizeof(want));
    sh_ids_reset(&ids);
    sh_tokenizer_free(tok);
}

TEST(a_file_truncated_at_any_byte_is_rejected)
{
    UNUSED_STATE;
    for (size_t len = 0; len < sizeof(small) - 1; len++) {
        sh_tokenizer *tok = NULL;
        sh_err err;
        CHECK_FAILS(parse(small, len, &tok, &err), err, "t.json");
        assert_null(tok);
        assert_null(strchr(err.text, '\n'));
    }
}

/* With any one byte changed the file is rejected, or it is a tokenizer that works. */
TEST(a_file_with_any_byte_changed_does_no_harm)
{
    UNUSED_STATE;
    static const char changes[] = "\"{],0-e\\\xc4";
    char json[sizeof(small)];
    for (size_t at = 0; at < sizeof(small) - 1; at++) {
        for (size_t i = 0; i < sizeof(changes); i++) {
            sh_tokenizer *tok = NULL;
            sh_ids ids = {0};
            sh_err err;
            memcpy(json, small, sizeof(small));
            json[at] = changes[i];
            if (parse(json, sizeof(small) - 1, &tok, &err) != SH_OK) continue;
            (void)!sh_tokenizer_encode(tok, SH_STR("ab abXzzbzz"), (sh_encode_opts){0}, &ids, &err);
            sh_ids_reset(&ids);
            sh_tokenizer_free(tok);
        }
    }
}

/* Replaces the item at `path` ("model.vocab.a", a number for an index) by `value`. */
static void changed_check(const char *path, const char *value, const char *part)
{
    cJSON *root = NULL, *at;
    sh_tokenizer *tok = NULL;
    sh_err err;
    sh_str rest = sh_str_of(path), key;
    CHECK_OK(sh_json_parse(sh_str_of(small), "small", &root, &err), err);
    at = root;
    while (sh_str_cut(&rest, '.', &key)) {
        char name[64];
        snprintf(name, sizeof(name), "%.*s", (int)key.len, key.ptr);
        cJSON *item = value == NULL || rest.len > 0 ? NULL : cJSON_Parse(value);
        bool list = cJSON_IsArray(at);
        if (rest.len > 0)
            at = list ? cJSON_GetArrayItem(at, atoi(name)) : cJSON_GetObjectItem(at, name);
        else if (list)
            cJSON_ReplaceItemInArray(at, atoi(name), item);
        else if (value == NULL || cJSON_HasObjectItem(at, name))
            cJSON_DeleteItemFromObject(at, name);
        if (item != NULL && !list) cJSON_AddItemToObject(at, name, item);
    }
    char *json = cJSON_PrintUnformatted(root);
    if (parse(json, strlen(json), &tok, &err) == SH_OK) fail_msg("%s = %s was taken", path, value);
    if (strstr(err.text, part) == NULL || strstr(err.text, "t.json") == NULL)
        fail_msg("%s = %s: '%s' and the file are not in '%s'", path, value, part, err.text);
    free(json);
    cJSON_Delete(root);
}

TEST(names_an_unknown_component)
{
    UNUSED_STATE;
    changed_check("model.type", "\"WordLevel\"", "model 'WordLevel' is not supported");
    changed_check("normalizer.normalizers.0.type", "\"Foo\"", "normalizer 'Foo' is not supported");
    changed_check("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}",
                  "pre_tokenizer 'UnicodeScripts' is not supported");
    changed_check("post_processor.type", "\"Foo\"", "post_processor 'Foo' is not supported");
    changed_check("decoder.decoders.1.type", "\"CTC\"", "decoder 'CTC' is not supported");
    changed_check("model.dropout", "0.5", "'dropout' 0.5 is not supported");
    changed_check("pre_tokenizer.pretokenizers.0.behavior", "\"Sideways\"", "'Sideways'");
    changed_check("pre_tokenizer.pretokenizers.0.pattern.Regex", "\"(?~a)\"", "not supported");
}

TEST(names_the_value_that_is_wrong)
{
    UNUSED_STATE;
    changed_check("model", "7", "'model' must be an object, not a number");
    changed_check("model", NULL, "'model' must be an object, not nothing");
    changed_check("model.vocab", "[]", "'vocab' must be an object");
    changed_check("model.vocab.a", "\"0\"", "the id of 'a' in 'vocab' is a string");
    changed_check("model.vocab.a", "1.5", "the id of 'a'");
    changed_check("model.vocab.a", "-1", "'a' has id -1");
    changed_check("model.vocab.a", "1", "id 1 is assigned to both");
    changed_check("model.vocab.a", "2000000000", "ids must be 0 to");
    changed_check("model.vocab.a", "1e300", "the id of 'a'");
    changed_check("model.merges", "{}", "'merges' must be a list");
    changed_check("model.merges.0", "\"a  b\"", "merge 0 is not a pair");
    changed_check("model.merges.0", "\"a\"", "merge 0");
    changed_check("model.merges.1", "[\"a\"]", "merge 1 is not a pair");
    changed_check("model.merges.1", "[\"a\",\"b\",\"c\"]", "merge 1 is not a pair");
    changed_check("model.merges.0", "\"a zz\"", "'zz' is not in 'vocab'");
    changed_check("model.merges.0", "\"b a\"", "'ba' is not in 'vocab'");
    changed_check("model.fuse_unk", "1", "'fuse_unk' must be true or false");
    changed_check("added_tokens", "{}", "'added_tokens' must be a list");
    changed_check("added_tokens.0.id", "-5", "'id' must be a whole number");
    changed_check("added_tokens.0.id", "2", "id 2 is assigned to both 'ab' and '<s>'");
    changed_check("added_tokens.0.id", "6", "id 6 is assigned to both");
    changed_check("added_tokens.0.content", "\"ab\"", "'ab' appears twice");
    changed_check("added_tokens.0.content", "\"Xz\"", "'Xz' appears twice");
    changed_check("added_tokens.0.content", "7", "'content' must be a string");
    changed_check("normalizer", "[]", "normalizer must be an object");
    changed_check("normalizer.type", NULL, "'type' is missing");
    changed_check("normalizer.normalizers", "7", "'normalizers' of the normalizer must be a list");
    changed_check("normalizer.normalizers.1.pattern", "\"z\"", "'pattern' must be an object");
    changed_check("normalizer.normalizers.1.pattern.Regex", "\"(\"", "pattern");
    changed_check("decoder.decoders.2.content", "\"ab\"", "must be one character");
    changed_check("decoder.decoders.2.start", "-1", "'start' must be a whole number");
    changed_check("post_processor.special_tokens.<s>.ids", "[7]", "no token has id 7");
    changed_check("post_processor.special_tokens.<s>.ids", "[-7]", "a token id");
    changed_check("post_processor.special_tokens", "{}", "has no ids for '<s>'");
    changed_check("post_processor.single", "[]", "sequence A once");
}

static void nested(const char *open, const char *close, int depth, sh_buf *out)
{
    sh_buf_add_text(out, "{\"normalizer\":");
    for (int i = 0; i < depth; i++) sh_buf_add_text(out, open);
    for (int i = 0; i < depth; i++) sh_buf_add_text(out, close);
    sh_buf_add_text(out, "}");
}

TEST(nesting_and_counts_are_limited)
{
    UNUSED_STATE;
    sh_buf json = {0};
    sh_tokenizer *tok = NULL;
    sh_err err;
    nested("{\"type\":\"Sequence\",\"normalizers\":[", "]}", 100, &json);
    CHECK_FAILS(parse(json.ptr, json.len, &tok, &err), err, "nested deeper than");
    sh_buf_clear(&json);
    nested("[", "]", 100000, &json);
    CHECK_FAILS(parse(json.ptr, json.len, &tok, &err), err, "not valid JSON");
    sh_buf_clear(&json);
    sh_buf_add_text(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 1000; i++) sh_buf_addf(&json, "%s{\"type\":\"NFC\"}", i > 0 ? "," : "");
    sh_buf_add_text(&json, "]}}");
    CHECK_FAILS(parse(json.ptr, json.len, &tok, &err), err, "more than 64 parts");
    sh_buf_reset(&json);
}

/* 64 steps, each of which turns one letter into a thousand. */
TEST(a_text_that_grows_too_long_is_an_error)
{
    UNUSED_STATE;
    sh_buf json = {0};
    sh_tokenizer *tok = NULL;
    sh_ids ids = {0};
    sh_err err;
    char letters[1001];
    memset(letters, 'a', 1000);
    letters[1000] = '\0';
    sh_buf_add_text(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 64; i++)
        sh_buf_addf(&json,
                    "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
                    i > 0 ? "," : "", letters);
    sh_buf_add_text(&json, "]},\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    CHECK_OK(parse(json.ptr, json.len, &tok, &err), err);
    CHECK_FAILS(sh_tokenizer_encode(tok, SH_STR("a"), (sh_encode_opts){0}, &ids, &err), err,
                "replacing makes the text longer");
    assert_int_equal(ids.len, 0);
    sh_ids_reset(&ids);
    sh_buf_reset(&json);
    sh_tokenizer_free(tok);
}

static void tiktoken_fails(const char *text, const char *part)
{
    char path[] = "/tmp/shoal-tiktoken-XXXXXX";
    sh_tokenizer *tok = NULL;
    sh_err err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    CHECK_OK(sh_file_write(path, text, strlen(text), &err), err);
    CHECK_FAILS(sh_tokenizer_load(path, &tok, &err), err, part);
    assert_non_null(strstr(err.text, path));
    unlink(path);
}

TEST(bad_tiktoken_lines_are_named)
{
    UNUSED_STATE;
    tiktoken_fails("", "no token for byte 0x00");
    tiktoken_fails("IQ== 0\nIg== x\n", "line 2: expected a token in base64");
    tiktoken_fails("IQ== 0\nI*== 1\n", "line 2: expected a token in base64");
    tiktoken_fails("IQ== 0\n\nIg== 0\n", "line 3: id 0 is assigned to both");
    tiktoken_fails("IQ== 0\nIQ== 1\n", "line 2: '!' appears twice");
    tiktoken_fails("IQ== -1\n", "line 1: '!' has id -1");
    tiktoken_fails("IQ==\n", "line 1");
    tiktoken_fails("IQ== 0\n", "no token for byte 0x00");
}

TEST(a_missing_file_is_named)
{
    UNUSED_STATE;
    sh_tokenizer *tok = NULL;
    sh_err err;
    CHECK_FAILS(sh_tokenizer_load("/nowhere/tokenizer.json", &tok, &err), err,
                "/nowhere/tokenizer");
    CHECK_FAILS(sh_tokenizer_load("tests/data", &tok, &err), err, "tests/data: found neither");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_tokenizer_works),
        cmocka_unit_test(a_file_truncated_at_any_byte_is_rejected),
        cmocka_unit_test(a_file_with_any_byte_changed_does_no_harm),
        cmocka_unit_test(names_an_unknown_component),
        cmocka_unit_test(names_the_value_that_is_wrong),
        cmocka_unit_test(nesting_and_counts_are_limited),
        cmocka_unit_test(a_text_that_grows_too_long_is_an_error),
        cmocka_unit_test(bad_tiktoken_lines_are_named),
        cmocka_unit_test(a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
