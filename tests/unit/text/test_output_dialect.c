#include "text/output/output.h"

#include "base/buf.h"
#include "base/file.h"
#include "test.h"

TEST(detects_the_dialect_of_a_template)
{
    static const struct {
        const char *text, *model_type, *reasoning, *tools;
    } cases[] = {
        {"{{ '<tool_call>' }} {{ '</think>' }}", NULL, "think", "hermes"},
        {"<tool_call>{name}\n<arg_key>", "glm4_moe", "think", "glm"},
        {"<tool_call>\n<function=f>\n<parameter=p>", "qwen3_moe", "think", "qwen3_coder"},
        {"{{ '<|channel|>analysis' }}", "gpt_oss", "harmony", "harmony"},
        {"[AVAILABLE_TOOLS][TOOL_CALLS]", "mistral", "none", "mistral"},
        {"[THINK] [TOOL_CALLS]", "mistral", "mistral", "mistral"},
        {"<think> <｜tool▁calls▁begin｜>", "qwen2", "think", "deepseek"},
        {"<|tool_calls_section_begin|>", "kimi_k2", "think", "kimi_k2"},
        {"{{ '<|python_tag|>' }}", "llama", "none", "llama3"},
        {"{\"name\": function name, \"parameters\": dictionary", "llama", "none", "llama3"},
        {"<longcat_think><longcat_tool_call>", NULL, "longcat", "longcat"},
        {"<|channel>thought", "gemma4", "gemma", "none"},
        {"<|tool_call|>", NULL, "none", "granite"},
        {"", "gpt_oss", "harmony", "harmony"},
        {"", "qwen3", "think", "hermes"},
        {"{{ messages }}", "llama", "none", "none"},
        {"", NULL, "none", "none"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_output_dialect d = sh_output_dialect_detect(sh_str_of(cases[i].text),
                                                       cases[i].model_type);
        assert_string_equal(sh_output_reasoning_name(d.reasoning), cases[i].reasoning);
        assert_string_equal(sh_output_tools_name(d.tools), cases[i].tools);
    }
}

TEST(refuses_dialects_it_does_not_know)
{
    const sh_output_tools *tools = NULL;
    const sh_output_reasoning *reasoning = NULL;
    sh_err err;
    UNUSED_STATE;
    CHECK_FAILS(sh_output_tools_named("xml", &tools, &err), err,
                "'xml', choose one of none, harmony");
    CHECK_FAILS(sh_output_reasoning_named("", &reasoning, &err), err, "think");
}

/* Takes the names from the error message that lists them. */
TEST(has_every_dialect_on_the_page_for_users)
{
    const sh_output_tools *tools = NULL;
    const sh_output_reasoning *reasoning = NULL;
    sh_buf page = {0};
    sh_err err[2], file_err;
    UNUSED_STATE;
    CHECK_OK(sh_file_read("docs/text.md", 1 << 20, &page, &file_err), file_err);
    assert_true(sh_output_tools_named("?", &tools, &err[0]) < 0);
    assert_true(sh_output_reasoning_named("?", &reasoning, &err[1]) < 0);
    for (int i = 0; i < 2; i++) {
        int count = 0;
        for (char *name = strtok(strstr(err[i].text, "none, ") + 6, ", "); name != NULL; count++) {
            char row[64];
            snprintf(row, sizeof(row), "\n| `%s` |", name);
            if (strstr(page.ptr, row) == NULL) fail_msg("docs/text.md has no row for %s", name);
            name = strtok(NULL, ", ");
        }
        assert_int_equal(count, i == 0 ? 10 : 5);
    }
    sh_buf_reset(&page);
}

static sh_output_dialect dialect_of(const char *tools, const char *reasoning)
{
    sh_output_dialect d = {0};
    sh_err err;
    CHECK_OK(sh_output_tools_named(tools, &d.tools, &err), err);
    CHECK_OK(sh_output_reasoning_named(reasoning, &d.reasoning, &err), err);
    return d;
}

TEST(detects_that_the_prompt_opened_the_reasoning)
{
    sh_output_dialect think = dialect_of("none", "think"),
                      harmony = dialect_of("harmony", "harmony");
    sh_output_dialect none = {0};
    UNUSED_STATE;
    assert_true(sh_output_prompt_opens(&think, SH_STR("<|Assistant|><think>\n")));
    assert_false(sh_output_prompt_opens(&think, SH_STR("<think>\n\n</think>\n\n")));
    assert_false(sh_output_prompt_opens(&think, SH_STR("")));
    assert_false(sh_output_prompt_opens(&harmony, SH_STR("<think>")));
    assert_false(sh_output_prompt_opens(&none, SH_STR("<think>")));
}

TEST(a_name_overrides_what_was_detected)
{
    UNUSED_STATE;
    sh_err err;
    sh_output_dialect d = sh_output_dialect_detect(SH_STR(""), "qwen3");
    CHECK_OK(sh_output_dialect_choose(&d, "auto", NULL, &err), err);
    assert_string_equal(sh_output_reasoning_name(d.reasoning), "think");
    CHECK_OK(sh_output_dialect_choose(&d, "none", "mistral", &err), err);
    assert_null(d.reasoning);
    assert_string_equal(sh_output_tools_name(d.tools), "mistral");
    CHECK_FAILS(sh_output_dialect_choose(&d, "think", "nope", &err), err, "hermes");
    assert_null(d.reasoning); /* set only if both names are known */
}

typedef struct {
    char name[32];
    int begun, whole;
    size_t content;
} seen;

static void see(void *arg, const sh_output_event *event)
{
    seen *s = arg;
    if (event->kind == SH_OUTPUT_CALL_BEGIN) {
        s->begun++;
        snprintf(s->name, sizeof(s->name), "%.*s", (int)event->name.len, event->name.ptr);
    }
    if (event->kind == SH_OUTPUT_CALL_END) s->whole++;
    if (event->kind == SH_OUTPUT_CONTENT) s->content += event->text.len;
}

/* The lead of a call, continued as a model would, is a call of that function. */
static void check_lead(const char *tools, const char *reasoning, const char *name, const char *rest)
{
    sh_output_dialect dialect = {0};
    sh_output_opts opts = {.in_reasoning = reasoning != NULL};
    sh_buf lead = {0};
    sh_err err;
    seen s = {0};
    CHECK_OK(
        sh_output_dialect_choose(&dialect, reasoning == NULL ? "none" : reasoning, tools, &err),
        err);
    assert_true(sh_output_call_lead(&dialect, reasoning != NULL, name, &lead));
    sh_output *output = sh_output_create(&dialect, &opts, see, &s);
    sh_output_push(output, sh_buf_str(&lead));
    assert_int_equal(s.whole + (int)s.content, 0);
    sh_output_push(output, sh_str_of(rest));
    sh_output_finish(output);
    if (s.whole != 1 || s.content > 0 || strcmp(s.name, "look_up") != 0)
        fail_msg("%s: %d whole, named '%s', behind '%s'", tools, s.whole, s.name, lead.ptr);
    sh_output_free(output);
    sh_buf_reset(&lead);
}

TEST(begins_calls_in_every_dialect)
{
    static const struct {
        const char *tools, *after_name, *without_name;
    } cases[] = {
        {"hermes", " {\"a\": 1}}\n</tool_call>",
         "look_up\", \"arguments\": {\"a\": 1}}\n</tool_call>"},
        {"granite", " {}}]", "look_up\", \"arguments\": {}}]"},
        {"llama3", " {\"a\": 1}}", "look_up\", \"parameters\": {\"a\": 1}}"},
        {"mistral", "look_up[ARGS]{\"a\": 1}", "[{\"name\": \"look_up\", \"arguments\": {}}]"},
        {"deepseek", "look_up<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
         "function<｜tool▁sep｜>look_up\n```json\n{}\n```<｜tool▁call▁end｜>"},
        {"kimi_k2", "0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
         "look_up:0<|tool_call_argument_begin|>{}<|tool_call_end|>"},
        {"glm", "<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
         "look_up\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"},
        {"longcat", "</longcat_tool_call>", "look_up\n</longcat_tool_call>"},
        {"qwen3_coder", "<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
         "look_up>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
        {"harmony", "{\"a\": 1}<|call|>", "look_up <|constrain|>json<|message|>{}<|call|>"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        check_lead(cases[i].tools, NULL, "look_up", cases[i].after_name);
        check_lead(cases[i].tools, NULL, NULL, cases[i].without_name);
        if (strcmp(cases[i].tools, "harmony") == 0) continue;
        check_lead(cases[i].tools, "think", "look_up", cases[i].after_name);
    }
    sh_output_dialect none = {0};
    sh_buf lead = {0};
    assert_false(sh_output_call_lead(&none, false, "look_up", &lead));
    assert_int_equal(lead.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_overrides_what_was_detected),
        cmocka_unit_test(detects_the_dialect_of_a_template),
        cmocka_unit_test(refuses_dialects_it_does_not_know),
        cmocka_unit_test(has_every_dialect_on_the_page_for_users),
        cmocka_unit_test(detects_that_the_prompt_opened_the_reasoning),
        cmocka_unit_test(begins_calls_in_every_dialect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
