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
        {"<|tool_call_start|>[", "lfm2", "none", "lfm2"},
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
        assert_int_equal(count, i == 0 ? 12 : 5);
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

TEST(expects_reasoning_unless_it_was_closed_or_only_guessed)
{
    UNUSED_STATE;
    sh_err err;
    sh_output_dialect shown = sh_output_dialect_detect(SH_STR("<think> </think>"), "qwen3");
    sh_output_dialect guessed = sh_output_dialect_detect(SH_STR("{{ messages }}"), "qwen3");
    sh_output_dialect harmony = sh_output_dialect_detect(SH_STR("<|channel|>"), NULL);
    assert_true(sh_output_may_reason(&shown, SH_STR("assistant\n")));
    assert_true(sh_output_may_reason(&shown, SH_STR("assistant\n<think>\n")));
    assert_false(sh_output_may_reason(&shown, SH_STR("<think>\n\n</think>\n\n")));
    assert_false(sh_output_may_reason(&guessed, SH_STR("assistant\n")));
    assert_true(sh_output_may_reason(&guessed, SH_STR("assistant\n<think>\n")));
    assert_true(sh_output_may_reason(&harmony, SH_STR("<|start|>assistant")));
    CHECK_OK(sh_output_dialect_choose(&guessed, "think", NULL, &err), err);
    assert_true(sh_output_may_reason(&guessed, SH_STR("assistant\n")));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(expects_reasoning_unless_it_was_closed_or_only_guessed),
        cmocka_unit_test(a_name_overrides_what_was_detected),
        cmocka_unit_test(detects_the_dialect_of_a_template),
        cmocka_unit_test(refuses_dialects_it_does_not_know),
        cmocka_unit_test(has_every_dialect_on_the_page_for_users),
        cmocka_unit_test(detects_that_the_prompt_opened_the_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
