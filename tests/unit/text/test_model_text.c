/* Reading a model's folder, also with faulty files. */
#include "text/model_text.h"

#include "base/file.h"

#include "scratch.h"

static sh_err err;

static void put(const char *name, const char *text)
{
    char *path = sh_path_join(dir, name);
    CHECK_OK(sh_file_write(path, text, strlen(text), &err), err);
    free(path);
}

static void link_tokenizer(void)
{
    char *command = sh_asprintf("cp models/demo/tokenizer.json '%s'", dir);
    assert_int_equal(system(command), 0);
    free(command);
}

static sh_model_text *open_with(const sh_model_text_opts *opts)
{
    sh_model_text *text = NULL;
    CHECK_OK(sh_model_text_open(dir, opts, &text, &err), err);
    return text;
}

static void check_ends(int vocab, const int32_t *want, size_t count)
{
    sh_model_text *text = open_with(&(sh_model_text_opts){.vocab = vocab});
    const sh_ids *ends = sh_model_text_end_ids(text);
    assert_int_equal(ends->len, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(ends->ptr[i], want[i]);
    for (size_t i = 0; i < count; i++) assert_true(sh_model_text_is_end_id(text, want[i]));
    sh_model_text_close(text);
}

TEST(end_ids_come_from_all_files_and_are_in_the_vocabulary)
{
    UNUSED_STATE;
    link_tokenizer();
    put("generation_config.json", "{\"eos_token_id\": [7, 5, 7]}");
    put("config.json", "{\"eos_token_id\": 3, \"text_config\": {\"eos_token_id\": [5, 4]}}");
    put("tokenizer_config.json", "{\"eos_token\": \"<|im_end|>\"}");
    check_ends(5000, (const int32_t[]){7, 5, 3, 4, 4087}, 5);
    check_ends(4087, (const int32_t[]){7, 5, 3, 4}, 4);
    check_ends(5, (const int32_t[]){3, 4}, 2);
    put("generation_config.json", "{\"eos_token_id\": [-1, 1e300, 4096, 4095]}");
    put("config.json", "{\"eos_token_id\": null}");
    check_ends(4096, (const int32_t[]){4095, 4087}, 2);
}

TEST(end_ids_that_are_wrong_or_too_many_are_refused)
{
    UNUSED_STATE;
    sh_model_text *text = NULL;
    sh_model_text_opts opts = {.vocab = 100};
    put("generation_config.json", "{\"eos_token_id\": [1, \"2\"]}");
    CHECK_FAILS(sh_model_text_open(dir, &opts, &text, &err), err,
                "generation_config.json: 'eos_token_id' must be a token id or a list");
    put("generation_config.json", "{\"eos_token_id\": 1.5}");
    CHECK_FAILS(sh_model_text_open(dir, &opts, &text, &err), err, "must be a token id");
    sh_buf many = {0};
    sh_buf_add_text(&many, "{\"eos_token_id\": [0");
    for (int i = 1; i < SH_END_IDS_MAX; i++) sh_buf_addf(&many, ",%d", i);
    sh_buf_add_text(&many, "]}");
    put("config.json", many.ptr);
    put("generation_config.json", "{}");
    text = open_with(&opts);
    assert_int_equal(sh_model_text_end_ids(text)->len, SH_END_IDS_MAX);
    sh_model_text_close(text);
    put("generation_config.json", "{\"eos_token_id\": 99}");
    CHECK_FAILS(sh_model_text_open(dir, &opts, &text, &err), err,
                "config.json: more than 32 end-of-sequence tokens");
    sh_buf_reset(&many);
}

TEST(sampling_is_what_the_makers_recommend)
{
    UNUSED_STATE;
    put("generation_config.json",
        "{\"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, \"repetition_penalty\": 1.1}");
    sh_model_text *text = open_with(&(sh_model_text_opts){0});
    sh_sampling_recommended own = sh_model_text_sampling(text);
    assert_true(own.temperature == 0.6 && own.top_p == 0.95 && own.top_k == 20);
    assert_true(own.repetition_penalty == 1.1);
    sh_model_text_close(text);
    put("generation_config.json", "{\"temperature\": -3, \"top_k\": \"x\", \"do_sample\": false}");
    text = open_with(&(sh_model_text_opts){0});
    own = sh_model_text_sampling(text);
    assert_true(own.temperature == 0 && own.top_p == 1 && own.top_k == 0);
    sh_model_text_close(text);
}

/* Completions of ids need neither a tokenizer nor a template; functions that need one name the
 * folder in their error. */
TEST(a_bare_folder_says_what_it_lacks)
{
    UNUSED_STATE;
    sh_model_text *text = open_with(&(sh_model_text_opts){0});
    sh_ids ids = {0};
    sh_buf out = {0};
    assert_null(sh_model_text_tokenizer(text));
    assert_false(sh_model_text_has_chat(text));
    CHECK_FAILS(sh_model_text_encode(text, SH_STR("x"), false, &ids, &err), err,
                "has no tokenizer.json");
    CHECK_FAILS(sh_model_text_render(text, NULL, NULL, &out, &err), err, "has no chat template");
    sh_model_text_piece(text, 3, &out);
    assert_int_equal(out.len, 0);
    sh_model_text_close(text);
    text = NULL;
    CHECK_FAILS(
        sh_model_text_open(dir, &(sh_model_text_opts){.template = "/no/where"}, &text, &err), err,
        "/no/where");
    CHECK_FAILS(
        sh_model_text_open(dir, &(sh_model_text_opts){.tokenizer = "/no/where"}, &text, &err), err,
        "/no/where");
    CHECK_FAILS(
        sh_model_text_open(dir, &(sh_model_text_opts){.parts = SH_MODEL_TEXT_CHAT}, &text, &err),
        err, "no chat template");
    assert_null(text);
}

/* The markers of calls may be only in the template for tools. */
TEST(the_dialect_is_that_of_all_templates_unless_named)
{
    UNUSED_STATE;
    put("tokenizer_config.json",
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"<think></think>\"}, "
        "{\"name\": \"tool_use\", \"template\": \"<tool_call>{\\\"name\\\": </tool_call>\"}]}");
    sh_model_text *text = open_with(&(sh_model_text_opts){0});
    const sh_output_dialect *dialect = sh_model_text_dialect(text);
    assert_string_equal(sh_output_reasoning_name(dialect->reasoning), "think");
    assert_string_equal(sh_output_tools_name(dialect->tools), "hermes");
    sh_model_text_close(text);
    text = open_with(&(sh_model_text_opts){.reasoning_parser = "none", .tool_parser = "mistral"});
    dialect = sh_model_text_dialect(text);
    assert_null(dialect->reasoning);
    assert_string_equal(sh_output_tools_name(dialect->tools), "mistral");
    sh_model_text_close(text);
    text = NULL;
    CHECK_FAILS(sh_model_text_open(dir, &(sh_model_text_opts){.tool_parser = "wrong"}, &text, &err),
                err, "wrong");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(end_ids_come_from_all_files_and_are_in_the_vocabulary),
        IN_FOLDER(end_ids_that_are_wrong_or_too_many_are_refused),
        IN_FOLDER(sampling_is_what_the_makers_recommend),
        IN_FOLDER(a_bare_folder_says_what_it_lacks),
        IN_FOLDER(the_dialect_is_that_of_all_templates_unless_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
