/* Where templates and their variables come from, in folders laid out like those of models. */
#include "text/chat_template.h"

#include "base/alloc.h"
#include "base/file.h"

#include "scratch.h"

#include <sys/stat.h>
#include <unistd.h>

static sh_err err;

static void put(const char *name, const char *text)
{
    char *path = sh_path_join(dir, name);
    if (strchr(name, '/') != NULL) {
        char *folder = sh_strndup(path, (size_t)(strrchr(path, '/') - path));
        mkdir(folder, 0700);
        free(folder);
    }
    CHECK_OK(sh_file_write(path, text, strlen(text), &err), err);
    free(path);
}

/* The prompt of a request, or "error: ..."; owned by the caller. */
static char *prompt(const char *model, const char *file, const char *request)
{
    sh_chat_template *chat = NULL;
    cJSON *json = NULL;
    sh_buf out = {0};
    CHECK_OK(sh_json_parse(sh_str_of(request), "request", &json, &err), err);
    sh_status status = sh_chat_template_load(model, file, &chat, &err);
    if (status == SH_OK) status = sh_chat_template_render(chat, json, NULL, &out, &err);
    if (status != SH_OK) sh_buf_addf(&out, "error: %s", err.text);
    sh_chat_template_free(chat);
    cJSON_Delete(json);
    return out.ptr == NULL ? sh_strdup("") : sh_buf_take(&out);
}

static void check(const char *request, const char *want)
{
    char *got = prompt(dir, NULL, request);
    if (strstr(want, "error: ") == want)
        assert_non_null(strstr(got, want + strlen("error: ")));
    else
        assert_string_equal(got, want);
    free(got);
}

#define HI "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"
#define HI_TOOLS "{\"messages\": [{\"role\": \"user\"}], \"tools\": [{}]}"

TEST(special_tokens_and_defaults_are_variables)
{
    UNUSED_STATE;
    put("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|"
                               "{{ tools is none }}|{{ documents }}|{{ add_generation_prompt }}");
    put("tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\", \"lstrip\": false}, "
                                 "\"eos_token\": \"</s>\", \"pad_token\": null}");
    check(HI, "<s>|</s>|False|True|None|True");
    check("{\"messages\": [{}], \"eos_token\": \"E\", \"add_generation_prompt\": false}",
          "<s>|E|False|True|None|False");
    put("special_tokens_map.json", "{\"eos_token\": \"<map>\"}");
    check(HI, "<s>|<map>|False|True|None|True");
    put("tokenizer_config.json", "{\"eos_token\": \"</s>\", \"added_tokens_decoder\": {}}");
    check(HI, "|</s>|False|True|None|True");
}

TEST(the_jinja_file_takes_precedence_over_the_config)
{
    UNUSED_STATE;
    put("tokenizer_config.json", "{\"bos_token\": \"B\", \"chat_template\": \"config\"}");
    check(HI, "config");
    put("chat_template.json", "{\"chat_template\": \"json {{ bos_token }}\"}");
    check(HI, "json B");
    put("chat_templates/default.jinja", "named");
    check(HI, "named");
    put("additional_chat_templates/default.jinja", "added");
    check(HI, "added");
    put("chat_template.jinja", "file");
    check(HI, "file");
    put("other.jinja", "other {{ bos_token }}");
    char *path = sh_path_join(dir, "other.jinja"), *got = prompt(dir, path, HI);
    assert_string_equal(got, "other B");
    free(got);
    got = prompt(NULL, path, HI);
    assert_string_equal(got, "other ");
    free(got);
    free(path);
}

TEST(requests_with_tools_use_the_template_for_tools)
{
    UNUSED_STATE;
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{{\"}, "
                                 "{\"name\": \"tool_use\", \"template\": \"T\"}, "
                                 "{\"name\": \"default\", \"template\": \"D\"}]}");
    check(HI, "D");
    check(HI_TOOLS, "T");
    check("{\"messages\": [{}], \"tools\": null}", "D");
    put("chat_template.jinja", "J");
    check(HI_TOOLS, "J");
    put("chat_templates/tool_use.jinja", "older");
    check(HI_TOOLS, "older");
    put("additional_chat_templates/tool_use.jinja", "JT");
    check(HI_TOOLS, "JT");
    check(HI, "J");
    sh_chat_template *chat = NULL;
    CHECK_OK(sh_chat_template_load(dir, NULL, &chat, &err), err);
    assert_true(sh_str_is(sh_chat_template_source(chat, false), "J"));
    assert_true(sh_str_is(sh_chat_template_source(chat, true), "JT"));
    sh_chat_template_free(chat);
}

TEST(errors_name_their_file)
{
    UNUSED_STATE;
    check(HI, "error: no chat template");
    assert_int_equal(err.status, SH_ERR_NOT_FOUND);
    put("tokenizer_config.json", "{\"chat_template\": 5}");
    check(HI, "error: tokenizer_config.json: 'chat_template' must be a string or a list");
    put("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\"}]}");
    check(HI, "error: 'template' is missing");
    put("tokenizer_config.json", "{\"chat_template\": [5]}");
    check(HI, "error: must be an object");
    put("tokenizer_config.json", "{");
    check(HI, "error: not valid JSON");
    put("tokenizer_config.json", "[]");
    put("chat_template.jinja", "a\n{{ 1 + }}");
    check(HI, "error: chat_template.jinja: line 2: unexpected");
}

TEST(requests_are_checked)
{
    UNUSED_STATE;
    put("chat_template.jinja", "{% if bad %}{{ raise_exception('no ' ~ bad) }}{% endif %}"
                               "{{ messages[0].content + 'x' }}");
    check("[]", "error: a chat request must be an object, not a list");
    check("{}", "error: 'messages' must be a list, not nothing");
    check("{\"messages\": []}", "error: at least one message");
    check("{\"messages\": [\"x\"]}", "error: a message must be an object, not a string");
    check("{\"messages\": [{}], \"tools\": {}}", "error: 'tools' must be a list");
    check(HI, "Hix");
    check("{\"messages\": [{\"content\": []}]}", "error: chat template: line 1: can only concat");
    char *got = prompt(dir, NULL, "{\"messages\": [{}], \"bad\": \"way\"}");
    assert_string_equal(got, "error: no way");
    free(got);
}

TEST(reasoning_is_available_under_every_name)
{
    UNUSED_STATE;
    put("chat_template.jinja",
        "{% for m in messages %}{{ m.thinking }},{{ m.reasoning_content }};{% endfor %}");
    check("{\"messages\": [{\"reasoning\": \"a\"}, {\"thinking\": \"b\"}, {\"content\": 1}, "
          "{\"reasoning_content\": \"c\", \"thinking\": null}, "
          "{\"reasoning_content\": null, \"reasoning\": \"d\"}]}",
          "a,a;b,b;,;None,c;d,d;");
}

TEST(kwargs_are_variables_but_do_not_override_the_request)
{
    UNUSED_STATE;
    put("chat_template.jinja", "{{ bos_token }}|{{ mood }}|{{ tools is none }}|"
                               "{{ documents is none }}|{{ messages | length }}|"
                               "{{ add_generation_prompt }}");
    put("tokenizer_config.json", "{\"bos_token\": \"B\"}");
    check("{\"messages\": [{}], \"mood\": \"low\", \"chat_template_kwargs\": {\"mood\": \"high\"}}",
          "B|high|True|True|1|True");
    check("{\"messages\": [{}], \"chat_template_kwargs\": {\"tools\": [{}], \"documents\": [{}], "
          "\"messages\": [], \"bos_token\": \"X\", \"add_generation_prompt\": false}}",
          "X||True|True|1|False");
    check("{\"messages\": [{}], \"chat_template_kwargs\": []}",
          "error: 'chat_template_kwargs' must be an object");
    check("{\"messages\": [{}], \"documents\": {}}", "error: 'documents' must be a list");
}

#define GO_ON(how, last)                                                                           \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, " last                             \
    "], \"continue_final_message\": " how "}"
#define SAYS(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"

/* The expected texts are what transformers 5.22 gives. */
TEST(the_last_message_can_be_continued)
{
    UNUSED_STATE;
    put("chat_template.jinja",
        "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}"
        "[{{ m.reasoning_content }}]{% endif %}{{ m.content }}</s>\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}");
    check(GO_ON("true", SAYS("Once upon ")), "<user>Hi</s>\n<assistant>Once upon ");
    check(GO_ON("false", SAYS("Once")), "<user>Hi</s>\n<assistant>Once</s>\n<assistant>");
    check(GO_ON("\"reasoning_content\"", "{\"role\": \"assistant\", \"thinking\": \"hm\"}"),
          "<user>Hi</s>\n<assistant>[hm");
    check(GO_ON("true", "{\"role\": \"assistant\"}"), "error: has no text in 'content'");
    check(GO_ON("true, \"add_generation_prompt\": true", SAYS("x")), "error: cannot both be set");
    put("chat_template.jinja",
        "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content | trim }}"
        "{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}</s>{% endfor %}");
    check(GO_ON("true", SAYS("Once upon  ")), "<user>Hi</s><assistant>Once upon");
    check(GO_ON("true", "{\"role\": \"assistant\", \"content\": [{\"text\": \"a\"}, "
                        "{\"text\": \"b \"}, {\"image\": 1}]}"),
          "<user>Hi</s><assistant>ab ");
    put("chat_template.jinja", "{{ messages[0].content }}");
    check(GO_ON("true", SAYS("lost")), "error: does not render the last message");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(special_tokens_and_defaults_are_variables),
        IN_FOLDER(the_jinja_file_takes_precedence_over_the_config),
        IN_FOLDER(requests_with_tools_use_the_template_for_tools),
        IN_FOLDER(errors_name_their_file),
        IN_FOLDER(requests_are_checked),
        IN_FOLDER(reasoning_is_available_under_every_name),
        IN_FOLDER(kwargs_are_variables_but_do_not_override_the_request),
        IN_FOLDER(the_last_message_can_be_continued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
