/* What is taken of the hub's description of a model, and what is not. */
#include "store/listing.h"

#include "base/alloc.h"
#include "base/buf.h"

#include "test.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA1 "89abcdef0123456789abcdef0123456789abcdef"
#define SHA256 SHA1 "0123456789abcdef01234567"
#define SMALL(name) "{\"rfilename\":\"" name "\",\"size\":7,\"blobId\":\"" SHA1 "\"}"
#define LARGE(name)                                                                                \
    "{\"rfilename\":\"" name "\",\"size\":1,\"blobId\":\"" SHA1 "\",\"lfs\":{\"sha256\":\"" SHA256 \
    "\",\"size\":50000000000,\"pointerSize\":135}}"
#define LISTING(files) "{\"sha\":\"" COMMIT "\",\"siblings\":[" files "]}"

/* The names of the files that are taken, separated by spaces; or the error. */
static const char *taken(const char *json)
{
    static char text[1024];
    sh_listing listing;
    sh_err err;
    if (sh_listing_parse(sh_str_of(json), "hub", &listing, &err) != SH_OK) {
        snprintf(text, sizeof(text), "%s", err.text);
        return text;
    }
    text[0] = '\0';
    for (size_t i = 0; i < listing.count; i++) {
        strcat(text, i == 0 ? "" : " ");
        strcat(text, listing.files[i].path);
    }
    sh_listing_reset(&listing);
    return text;
}

TEST(sizes_and_digests_are_those_of_the_contents)
{
    UNUSED_STATE;
    sh_listing l;
    sh_err err;
    const char *json = LISTING(SMALL("config.json") "," LARGE("model.safetensors"));
    CHECK_OK(sh_listing_parse(sh_str_of(json), "hub", &l, &err), err);
    assert_string_equal(l.commit, COMMIT);
    assert_int_equal(l.count, 2);
    assert_int_equal(l.bytes, 50000000007);
    assert_string_equal(l.files[0].path, "model.safetensors");
    assert_string_equal(l.files[0].digest, SHA256);
    assert_int_equal(l.files[0].size, 50000000000);
    assert_string_equal(l.files[1].digest, SHA1);
    assert_int_equal(l.files[1].size, 7);
    sh_listing_reset(&l);
}

/* The same for a description of these files, separated by spaces; a large one has a + in front. */
static const char *taken_of(const char *names)
{
    static char out[1024];
    sh_buf json = {0};
    sh_str rest = sh_str_of(names), name;
    sh_buf_add_text(&json, "{\"sha\":\"" COMMIT "\",\"siblings\":[");
    for (bool first = true; sh_str_cut(&rest, ' ', &name); first = false) {
        bool large = name.ptr[0] == '+';
        sh_buf_addf(&json, "%s{\"rfilename\":\"%.*s\",\"size\":1,\"blobId\":\"" SHA1 "\"%s}",
                    first ? "" : ",", (int)name.len - large, name.ptr + large,
                    large ? ",\"lfs\":{\"sha256\":\"" SHA256 "\",\"size\":9}" : "");
    }
    sh_buf_add_text(&json, "]}");
    snprintf(out, sizeof(out), "%s", taken(json.ptr));
    sh_buf_reset(&json);
    return out;
}

TEST(only_what_is_read_is_taken_and_config_comes_last)
{
    UNUSED_STATE;
    assert_string_equal(taken_of("config.json README.md +pytorch_model.bin tokenizer.json "
                                 "+model-00001-of-00002.safetensors +consolidated.safetensors "
                                 "+model-00002-of-00002.safetensors +onnx/model.safetensors "
                                 "+model.fp16.safetensors modeling_x.py +x.gguf "
                                 "additional_chat_templates/tools.jinja"),
                        "additional_chat_templates/tools.jinja tokenizer.json "
                        "model-00001-of-00002.safetensors model-00002-of-00002.safetensors "
                        "config.json");
    assert_string_equal(taken_of("modules.json 1_Pooling/config.json config.json "
                                 "2_Dense/config.json +2_Dense/model.safetensors "
                                 "2_Dense/pytorch_model.bin +model.safetensors "
                                 "sentence_bert_config.json config_sentence_transformers.json"),
                        "modules.json 1_Pooling/config.json config_sentence_transformers.json "
                        "2_Dense/config.json 2_Dense/model.safetensors model.safetensors "
                        "sentence_bert_config.json config.json");
    assert_string_equal(taken_of("config.json +weights.00.safetensors +consolidated.safetensors"),
                        "weights.00.safetensors config.json");
}

TEST(names_that_leave_the_folder_are_not_taken)
{
    UNUSED_STATE;
    assert_string_equal(taken_of("config.json +model.safetensors chat_templates/...jinja "
                                 "chat_templates/a\\\\b.jinja chat_templates/\\u0007.jinja "
                                 "../config.json /config.json chat_templates/../x.jinja"),
                        "model.safetensors config.json");
}

TEST(what_is_wrong_is_named)
{
    UNUSED_STATE;
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"[]", "'sha'"},
        {"{\"sha\":\"main\"}", "'sha' must be a commit of 40 hex digits"},
        {"{\"sha\":\"" COMMIT "\"}", "'siblings' must be a list of files, not nothing"},
        {LISTING(""), "no config.json"},
        {LISTING(SMALL("config.json")), "no *.safetensors"},
        {LISTING(LARGE("model.safetensors")), "no config.json"},
        {LISTING(LARGE("consolidated.safetensors") "," SMALL("config.json")), "no *.safetensors"},
        {LISTING("{\"rfilename\":\"config.json\"}"), "config.json: 'blobId'"},
        {LISTING("{\"rfilename\":\"config.json\",\"blobId\":\"" SHA1 "\",\"size\":-1}"), "'size'"},
        {LISTING("{\"rfilename\":\"config.json\",\"blobId\":\"ABC\",\"size\":1}"),
         "is not a digest of 40 hex digits"},
        {LISTING("{\"rfilename\":\"model.safetensors\",\"lfs\":{\"sha256\":\"" SHA1
                 "\",\"size\":1}}"),
         "is not a digest of 64 hex digits"},
        {LISTING(SMALL("config.json") "," SMALL("config.json")), "lists config.json twice"},
        {LISTING("{\"rfilename\":3}"), "'rfilename'"},
        {LISTING("4"), "'rfilename'"},
        {LISTING("{\"rfilename\":\"a\\u0000b\"}"), "u0000"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++)
        if (strstr(taken(cases[i].json), cases[i].part) == NULL)
            fail_msg("%s: '%s', not '%s'", cases[i].json, taken(cases[i].json), cases[i].part);
}

TEST(lists_have_bounds)
{
    UNUSED_STATE;
    sh_buf json = {0};
    sh_buf_add_text(&json, "{\"sha\":\"" COMMIT "\",\"siblings\":[" SMALL("config.json"));
    for (int i = 0; i < 5000; i++)
        sh_buf_addf(&json,
                    ",{\"rfilename\":\"model-%d-of-5000.safetensors\",\"size\":1,\"blobId\":\"" SHA1
                    "\"}",
                    i);
    sh_buf_add_text(&json, "]}");
    assert_non_null(strstr(taken(json.ptr), "more than 4096 files"));
    sh_buf_reset(&json);
    for (int i = 0; i < 1100000; i++) sh_buf_add_text(&json, i == 0 ? "[0" : ",0");
    sh_buf_add_text(&json, "]");
    assert_non_null(strstr(taken(json.ptr), "more than 1048576 values"));
    sh_buf_reset(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_and_digests_are_those_of_the_contents),
        cmocka_unit_test(only_what_is_read_is_taken_and_config_comes_last),
        cmocka_unit_test(names_that_leave_the_folder_are_not_taken),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(lists_have_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
