/* Models in YAML: what is read, and what is wrong with a file. */
#include "base/file.h"
#include "store/definition.h"

#include "scratch.h"
#include "test.h"

#include <math.h>
#include <sys/stat.h>

static sh_definition definition;
static sh_err err;

static sh_status parse(const char *text)
{
    sh_definition_reset(&definition);
    return sh_definition_parse(sh_str_of(text), "m.yaml", &definition, &err);
}

static int tidy(void **state)
{
    sh_definition_reset(&definition);
    return remove_dir(state);
}

#define WHOLE "name: a\nparameters:\n  model: org/name\n"

TEST(all_keys_of_a_model_are_read)
{
    UNUSED_STATE;
    assert_int_equal(parse("name: fox\n"
                           "backend: mlx-distributed\n"
                           "parameters:\n"
                           "  model: org/fox-4bit\n"
                           "  temperature: 0.7\n"
                           "  top_p: 0.9\n"
                           "  top_k: 40\n"
                           "  min_p: 0.05\n"
                           "  max_tokens: 256\n"
                           "  seed: 3\n"
                           "  repeat_penalty: 1.1\n"
                           "  frequency_penalty: -0.5\n"
                           "  presence_penalty: 1\n"
                           "context_size: 8192\n"
                           "options: [\"hostfile:/x.json\", 'ranks:2']\n"
                           "stopwords:\n- \"<|end|>\"\n- \"\\n\\n\"\n"
                           "system_prompt: |\n  You are a fox.\n"
                           "template:\n  use_tokenizer_template: true\n"
                           "draft_model: org/cub\n"
                           "threads: 4\nf16: true\nfunction: {grammar: {disable: true}}\n"),
                     SH_OK);
    assert_string_equal(definition.name, "fox");
    assert_string_equal(definition.model, "org/fox-4bit");
    assert_string_equal(definition.draft_model, "org/cub");
    assert_string_equal(definition.system_prompt, "You are a fox.\n");
    assert_true(definition.temperature == 0.7 && definition.frequency_penalty == -0.5);
    assert_int_equal(definition.top_k, 40);
    assert_int_equal(definition.context_size, 8192);
    assert_int_equal(definition.options.count, 2);
    assert_string_equal(definition.options.items[1], "ranks:2");
    assert_string_equal(definition.stopwords.items[1], "\n\n");
    assert_string_equal(definition.notes.ptr, "m.yaml:24: 'threads' has no effect here\n"
                                              "m.yaml:25: 'f16' has no effect here\n"
                                              "m.yaml:26: 'function' has no effect here\n");
}

TEST(what_is_not_given_is_left_open)
{
    UNUSED_STATE;
    assert_int_equal(parse(WHOLE "context_size:\nstopwords: []\n"), SH_OK);
    assert_true(isnan(definition.temperature) && isnan(definition.repeat_penalty));
    assert_int_equal(definition.seed, -1);
    assert_int_equal(definition.context_size, -1);
    assert_int_equal(definition.stopwords.count, 0);
    assert_null(definition.system_prompt);
}

TEST(errors_have_the_file_the_line_and_the_key)
{
    UNUSED_STATE;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "m.yaml: the file is empty"},
        {"- a\n", "m.yaml:1: 'the file' must be a mapping of keys"},
        {"name: a\n", "m.yaml: the key 'parameters.model' is missing"},
        {"parameters: {model: b}\n", "m.yaml: the key 'name' is missing"},
        {WHOLE "tempature: 1\n", "m.yaml:4: unknown key 'tempature'"},
        {"name: a\nparameters:\n  model: b\n  temp: 1\n",
         "m.yaml:4: unknown key 'parameters.temp'"},
        {WHOLE "model: x\n", "m.yaml:4: unknown key 'model'"},
        {WHOLE "name: b\n", "m.yaml:4: 'name' is given twice"},
        {WHOLE "context_size: many\n",
         "m.yaml:4: 'context_size' must be a whole number from 0 to 1.67772e+07"},
        {WHOLE "context_size: 1.5\n",
         "m.yaml:4: 'context_size' must be a whole number from 0 to 1.67772e+07"},
        {"name: a\nparameters: {model: b, top_p: 2}\n",
         "m.yaml:2: 'parameters.top_p' must be a number from 0 to 1"},
        {WHOLE "options: x\n", "m.yaml:4: 'options' must be a list of texts"},
        {WHOLE "stopwords: [[a]]\n", "m.yaml:4: 'stopwords' must be a list of texts"},
        {WHOLE "system_prompt: {a: b}\n", "m.yaml:4: 'system_prompt' must be a text"},
        {WHOLE "system_prompt: \"a\\0b\"\n", "m.yaml:4: 'system_prompt' must be a text"},
        {WHOLE "template: {use_tokenizer_template: maybe}\n",
         "m.yaml:4: 'template.use_tokenizer_template' must be true or false"},
        {WHOLE "template:\n  chat: |\n    {{.Input}}\n",
         "m.yaml:5: 'template.chat' is a template in Go's language"},
        {WHOLE "---\nname: b\n", "m.yaml:5: a file describes one model, not several"},
        {WHOLE "x: [1\n", "not YAML"},
        {"name: a\nparameters: &p {model: b}\ntemplate: *p\n",
         "m.yaml:2: unknown key 'template.model'"},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        if (parse(cases[i].text) == SH_OK) fail_msg("accepted: %s", cases[i].text);
        if (strstr(err.text, cases[i].error) == NULL)
            fail_msg("no '%s' in '%s'", cases[i].error, err.text);
    }
}

static void file_write(const char *name, const char *text)
{
    char *path = sh_path_join(dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    free(path);
}

TEST(a_folder_of_files_is_a_list_of_models)
{
    UNUSED_STATE;
    sh_definitions all;
    file_write("b.yaml", "name: beaver\nparameters: {model: org/b}\n");
    file_write("a.yml", "name: ant\nparameters: {model: inside}\n");
    file_write("notes.txt", "not yaml: [");
    file_write(".hidden.yaml", "not: [");
    char *inside = sh_path_join(dir, "inside");
    assert_int_equal(mkdir(inside, 0700), 0);
    assert_int_equal(sh_definitions_load(dir, &all, &err), SH_OK);
    assert_int_equal(all.count, 2);
    assert_string_equal(all.list[0].name, "ant");
    assert_string_equal(all.list[0].model, inside); /* a folder beside the file */
    assert_string_equal(all.list[1].model, "org/b");
    sh_definitions_reset(&all);
    file_write("c.yaml", "name: ant\nparameters: {model: org/c}\n");
    file_write("d.yaml", "nme: ant\n");
    file_write("e.yaml", "name: eel\nparameters: {model: org/e}\ncontext_size: -5\n");
    file_write("f.yaml", "name: [\n");
    assert_int_equal(sh_definitions_load(dir, &all, &err), SH_OK);
    assert_int_equal(all.count, 2); /* a mistake in one file does not take the others away */
    assert_string_equal(all.list[0].model, inside);
    const char *problems = all.problems.ptr;
    assert_non_null(strstr(problems, "/a.yml defines a model 'ant' already"));
    assert_non_null(strstr(problems, "d.yaml:1: unknown key 'nme'"));
    assert_non_null(strstr(problems, "e.yaml:3: 'context_size' must be a whole number from 0 to"));
    assert_non_null(strstr(problems, "f.yaml:"));
    sh_definitions_reset(&all);
    assert_int_not_equal(sh_definitions_load("/nowhere/at/all", &all, &err), SH_OK);
    free(inside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_keys_of_a_model_are_read),
        cmocka_unit_test(what_is_not_given_is_left_open),
        cmocka_unit_test(errors_have_the_file_the_line_and_the_key),
        cmocka_unit_test(a_folder_of_files_is_a_list_of_models),
    };
    return cmocka_run_group_tests(tests, make_dir, tidy);
}
