/* Forms of outputs: for every dialect, outputs are drawn at random from the grammar, token by
 * token, and parsed by the dialect's parser. What comes out must be calls of the request's tools
 * whose arguments are valid under their schemas, and nothing else. */
#include "text/output/output_form.h"

#include "base/hash.h"
#include "test.h"
#include "text/grammar/matcher.h"

#include <stdlib.h>
#include <string.h>

static const char *const dialects[] = {"hermes",   "granite", "llama3",  "mistral",
                                       "deepseek", "glm",     "longcat", "qwen3_coder",
                                       "kimi_k2",  "harmony", "lfm2",    "pythonic"};

/* All markers that some tokenizer has as a special token. */
static const char *const specials[] = {
    "<|end_of_text|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call|>",
    "<|python_tag|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_calls_section_end|>",
    "<longcat_tool_call>",
    "</longcat_tool_call>",
    "<longcat_arg_key>",
    "</longcat_arg_key>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
    "<|constrain|>",
};

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"strict\":true,\"parameters\":"
    "{"
    "\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\",\"maxLength\":12},"
    "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14},"
    "\"unit\":{\"enum\":[\"C\",\"F\",null]},"
    "\"zip\":{\"type\":[\"string\",\"null\"],\"maxLength\":5},"
    "\"when\":{\"anyOf\":[{\"type\":\"string\",\"format\":\"date\"},{\"type\":\"number\"}]},"
    "\"where\":{\"$ref\":\"#/$defs/place\"}},"
    "\"required\":[\"city\",\"unit\",\"zip\"],\"additionalProperties\":false,"
    "\"$defs\":{\"place\":{\"type\":\"object\",\"properties\":{\"lat\":{\"type\":\"number\"},"
    "\"note\":{\"type\":\"string\",\"maxLength\":8},\"in\":{\"$ref\":\"#/$defs/place\"}},"
    "\"required\":[\"lat\"],\"additionalProperties\":false}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"tag.it-now\",\"strict\":true,\"parameters\":{"
    "\"properties\":{\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":6},"
    "\"maxItems\":3},\"deep\":{\"type\":\"boolean\"},\"mixed\":{\"type\":[\"string\",\"object\"],"
    "\"maxLength\":6,\"properties\":{\"a\":{\"const\":1}},\"additionalProperties\":false}},"
    "\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":4}}}]";

/* ---- a byte-level tokenizer with these special tokens ---- */

static void add_byte_vocab(sh_buf *out)
{
    int other = 256;
    for (int byte = 0; byte < 256; byte++) {
        bool shown = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        sh_buf_addf(out, "%s\"\\u%04x\":%d", byte == 0 ? "" : ",", shown ? byte : other, byte);
        other += !shown;
    }
}

static sh_tokenizer *make_tokenizer(bool special)
{
    sh_buf json = {0};
    sh_tokenizer *tok;
    sh_err err;
    sh_buf_add_text(&json, "{\"added_tokens\":[");
    for (size_t i = 0; i < SH_COUNT_OF(specials); i++)
        sh_buf_addf(&json,
                    "%s{\"id\":%zu,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                    i == 0 ? "" : ",", 256 + i, specials[i], special || i == 0 ? "true" : "false");
    sh_buf_add_text(&json, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                           "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                           "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
                           "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    add_byte_vocab(&json);
    sh_buf_add_text(&json, "}}}");
    CHECK_OK(sh_tokenizer_parse(sh_buf_str(&json), "tokenizer", &tok, &err), err);
    sh_buf_reset(&json);
    return tok;
}

/* ---- walks ---- */

static uint64_t dice;

static uint64_t draw(uint64_t below)
{
    return sh_mix64(dice++) % below;
}

/* Structure is preferred, or strings would go on for long. */
static int32_t draw_token(const sh_token_mask *mask)
{
    static const char structure[] = "\"}]<,:/";
    for (size_t i = 0; i < sizeof(structure) && draw(3) == 0; i++) {
        unsigned id = (unsigned char)structure[draw(sizeof(structure) - 1)];
        if (mask->words[id / 64] >> (id % 64) & 1) return (int32_t)id;
    }
    uint64_t skip = draw(mask->allowed);
    for (uint32_t id = 0; id < mask->word_count * 64; id++)
        if ((mask->words[id / 64] >> (id % 64) & 1) != 0 && skip-- == 0) return (int32_t)id;
    return -1;
}

/* False if the walk got too long. */
static bool walk(sh_matcher *m, const sh_tokenizer *tok, sh_buf *out)
{
    enum { STEPS_MAX = 6000 };
    sh_match_state state = SH_MATCH_START;
    sh_err err;
    for (int step = 0; step < STEPS_MAX; step++) {
        sh_token_mask mask;
        CHECK_OK(sh_matcher_mask(m, state, &mask, &err), err);
        if (mask.allowed == 0) fail_msg("nothing may follow: %s", out->ptr);
        int32_t id = draw_token(&mask);
        if (id == 256) return true; /* the end */
        if (sh_tokenizer_is_special(tok, id))
            sh_buf_add_str(out, sh_tokenizer_piece(tok, id));
        else
            sh_tokenizer_bytes(tok, id, out);
        CHECK_OK(sh_matcher_token(m, state, id, &state, &err), err);
        assert_int_not_equal(state, SH_MATCH_DEAD);
    }
    return false;
}

/* ---- what the parser finds ---- */

enum { CALLS_MAX = 64 };

typedef struct {
    int begun, whole, broken;
    char names[CALLS_MAX][64];
    sh_buf args[CALLS_MAX];
    sh_buf content, reasoning;
} seen;

static void see(void *arg, const sh_output_event *event)
{
    seen *s = arg;
    int call = event->call < CALLS_MAX ? event->call : CALLS_MAX - 1;
    switch (event->kind) {
    case SH_OUTPUT_CONTENT: sh_buf_add_str(&s->content, event->text); break;
    case SH_OUTPUT_REASONING: sh_buf_add_str(&s->reasoning, event->text); break;
    case SH_OUTPUT_CALL_BEGIN:
        s->begun++;
        sh_buf_clear(&s->args[call]);
        snprintf(s->names[call], sizeof(s->names[call]), "%.*s", (int)event->name.len,
                 event->name.ptr);
        break;
    case SH_OUTPUT_CALL_ARGS: sh_buf_add_str(&s->args[call], event->text); break;
    case SH_OUTPUT_CALL_END: s->whole++; break;
    case SH_OUTPUT_CALL_BROKEN: s->broken++; break;
    }
}

static void forget(seen *s)
{
    for (int i = 0; i < CALLS_MAX; i++) sh_buf_reset(&s->args[i]);
    sh_buf_reset(&s->content);
    sh_buf_reset(&s->reasoning);
    *s = (seen){0};
}

static void parse(const sh_output_form *form, sh_str text, seen *s)
{
    sh_output_opts opts = {.in_reasoning = form->in_reasoning, .tools = form->tools};
    sh_output_dialect dialect = form->dialect;
    if (form->calls == SH_OUTPUT_CALLS_NONE) dialect.tools = NULL;
    sh_output *output = sh_output_create(&dialect, &opts, see, s);
    sh_output_push(output, text);
    sh_output_finish(output);
    sh_output_free(output);
}

/* ---- grammars ---- */

static sh_grammar *compile(sh_grammar_builder *b, sh_expr root)
{
    sh_grammar *grammar;
    sh_err err;
    CHECK_OK(sh_grammar_compile(b, root, &grammar, &err), err);
    sh_grammar_builder_free(b);
    return grammar;
}

static sh_grammar *form_grammar(const sh_output_form *form)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    int bad = -1;
    return compile(b, sh_output_form_expr(b, form, &bad));
}

static bool matches(const sh_grammar *grammar, sh_str text)
{
    sh_matcher *m = sh_matcher_create(grammar, NULL);
    sh_match_state state;
    sh_err err;
    CHECK_OK(sh_matcher_bytes(m, SH_MATCH_START, text, &state, &err), err);
    bool fine = state != SH_MATCH_DEAD && sh_matcher_accepts(m, state);
    sh_matcher_free(m);
    return fine;
}

/* What the arguments of each tool must match. */
static sh_grammar *args_grammar(const cJSON *tool)
{
    sh_grammar_builder *b = sh_grammar_builder_create();
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    const cJSON *schema = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    cJSON *none = cJSON_Parse("{\"additionalProperties\":false}");
    sh_json_form json = {.spaces = true, .object = true};
    sh_expr e = sh_expr_json_schema(b, schema == NULL ? none : schema, json);
    cJSON_Delete(none);
    return compile(b, e);
}

static sh_output_form form_of(const char *dialect, bool reasons, const cJSON *tools,
                              const sh_tokenizer *tok)
{
    sh_output_form form = {.tokenizer = tok, .tools = tools, .strict = true, .may_reason = true};
    sh_err err;
    const char *reasoning = !reasons ? "none" : strcmp(dialect, "harmony") == 0 ? dialect : "think";
    CHECK_OK(sh_output_dialect_choose(&form.dialect, reasoning, dialect, &err), err);
    return form;
}

static void check_call(const char *dialect, const cJSON *tools, sh_grammar *const *args,
                       const seen *s, int call, const char *text)
{
    int i = 0;
    for (const cJSON *tool = tools->child; tool != NULL; tool = tool->next, i++) {
        const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(function, "name");
        if (strcmp(name->valuestring, s->names[call]) != 0) continue;
        if (!matches(args[i], sh_buf_str(&s->args[call])))
            fail_msg("%s: %s: invalid arguments %s in %s", dialect, s->names[call],
                     s->args[call].ptr, text);
        return;
    }
    fail_msg("%s: call of '%s' in %s", dialect, s->names[call], text);
}

/* Draws outputs and checks each; returns how many there were. */
static int check_walks(const char *name, const sh_output_form *form, const sh_tokenizer *tok,
                       const sh_token_trie *trie, int count)
{
    sh_grammar *grammar = form_grammar(form), *args[3];
    sh_matcher *m = sh_matcher_create(grammar, trie);
    int done = 0, i = 0;
    for (const cJSON *tool = form->tools->child; tool != NULL; tool = tool->next)
        args[i++] = args_grammar(tool);
    for (int turn = 0; turn < count; turn++) {
        sh_buf text = {0};
        seen s = {0};
        if (walk(m, tok, &text)) {
            parse(form, sh_buf_str(&text), &s);
            if (s.broken > 0 || s.whole != s.begun ||
                (s.whole == 0 && form->calls == SH_OUTPUT_CALLS_MUST))
                fail_msg("%s: %d of %d calls: %s", name, s.whole, s.begun, text.ptr);
            if (form->calls == SH_OUTPUT_CALLS_MUST && s.content.len > 0)
                fail_msg("%s: content '%s' in %s", name, s.content.ptr, text.ptr);
            if (form->one_call) assert_true(s.whole <= 1);
            for (int call = 0; call < s.whole && call < CALLS_MAX - 1; call++)
                check_call(name, form->tools, args, &s, call, text.ptr);
            done++;
        }
        forget(&s);
        sh_buf_reset(&text);
    }
    while (i > 0) sh_grammar_free(args[--i]);
    sh_matcher_free(m);
    sh_grammar_free(grammar);
    return done;
}

TEST(what_is_drawn_from_a_form_is_parsed_as_calls)
{
    UNUSED_STATE;
    int32_t end = 256;
    cJSON *tools = cJSON_Parse(tools_text);
    assert_non_null(tools);
    for (int special = 0; special < 2; special++) {
        sh_tokenizer *tok = make_tokenizer(special);
        sh_token_trie *trie = sh_token_trie_create(tok, &end, 1);
        for (size_t i = 0; i < SH_COUNT_OF(dialects); i++) {
            for (int way = 0; way < 9; way++) {
                sh_output_form form = form_of(dialects[i], way % 3 > 0, tools, tok);
                form.calls = way < 6 ? SH_OUTPUT_CALLS_MUST : SH_OUTPUT_CALLS_MAY;
                form.in_reasoning = way % 3 == 2 && strcmp(dialects[i], "harmony") != 0;
                form.one_call = way / 3 == 1;
                int done = check_walks(dialects[i], &form, tok, trie, 10);
                if (done < 4) fail_msg("%s: only %d walks ended", dialects[i], done);
            }
        }
        sh_token_trie_free(trie);
        sh_tokenizer_free(tok);
    }
    cJSON_Delete(tools);
}

/* ---- given texts ---- */

#define WEATHER "{\"city\": \"Oslo\", \"unit\": \"C\", \"zip\": null}"
#define BAD_WEATHER "{\"city\": 5, \"unit\": \"C\", \"zip\": null}"

static const struct {
    const char *dialect, *before, *after;
} given[] = {
    {"hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", "}\n</tool_call>"},
    {"granite", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": ", "}]"},
    {"llama3", "{\"name\": \"get_weather\", \"parameters\": ", "}"},
    {"llama3", "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": ", "}"},
    {"mistral", "[TOOL_CALLS]get_weather[ARGS]", ""},
    {"mistral", "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": ", "}]"},
    {"deepseek", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>",
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"deepseek",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n",
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>",
     "<|tool_call_end|><|tool_calls_section_end|>"},
    {"harmony", "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
     "<|call|>"},
};

static bool accepts(const sh_output_form *form, const char *a, const char *b, const char *c)
{
    sh_grammar *grammar = form_grammar(form);
    sh_buf text = {0};
    sh_buf_addf(&text, "%s%s%s", a, b, c);
    bool fine = matches(grammar, sh_buf_str(&text));
    sh_buf_reset(&text);
    sh_grammar_free(grammar);
    return fine;
}

TEST(accepts_calls_as_models_write_them)
{
    UNUSED_STATE;
    cJSON *tools = cJSON_Parse(tools_text);
    for (size_t i = 0; i < SH_COUNT_OF(given); i++) {
        sh_output_form form = form_of(given[i].dialect, false, tools, NULL);
        for (int may = 0; may < 2; may++) {
            form.calls = may ? SH_OUTPUT_CALLS_MAY : SH_OUTPUT_CALLS_MUST;
            form.strict = !may;
            if (!accepts(&form, given[i].before, WEATHER, given[i].after))
                fail_msg("%s: refuses %s" WEATHER "%s", given[i].dialect, given[i].before,
                         given[i].after);
            if (accepts(&form, given[i].before, BAD_WEATHER, given[i].after))
                fail_msg("%s: accepts invalid arguments", given[i].dialect);
        }
        form.calls = SH_OUTPUT_CALLS_MUST;
        assert_false(accepts(&form, "It is ", "cold", "."));
    }
    cJSON_Delete(tools);
}

TEST(accepts_arguments_between_tags)
{
    UNUSED_STATE;
    cJSON *tools = cJSON_Parse(tools_text);
    sh_output_form glm = form_of("glm", false, tools, NULL);
    sh_output_form qwen = form_of("qwen3_coder", false, tools, NULL);
    glm.calls = qwen.calls = SH_OUTPUT_CALLS_MUST;
    assert_true(accepts(&glm, "<tool_call>get_weather\n<arg_key>city</arg_key>\n",
                        "<arg_value>Oslo</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>C",
                        "</arg_value>\n<arg_key>zip</arg_key>\n<arg_value>0150</arg_value>\n"
                        "</tool_call>"));
    assert_true(accepts(&glm, "<tool_call>stop", "\n", "</tool_call>"));
    assert_true(accepts(&qwen, "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo",
                        "\n</parameter>\n<parameter=unit>\nnull\n</parameter>\n<parameter=zip>\n"
                        "null\n</parameter>\n<parameter=where>\n{\"lat\": 1.5}\n</parameter>",
                        "\n</function>\n</tool_call>"));
    /* A required argument is missing; a value is too long. */
    assert_false(accepts(&qwen, "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo",
                         "\n</parameter>", "\n</function>\n</tool_call>"));
    assert_false(accepts(&glm, "<tool_call>get_weather\n<arg_key>city</arg_key>\n",
                         "<arg_value>a city with a long name</arg_value>\n<arg_key>unit</arg_key>\n"
                         "<arg_value>C",
                         "</arg_value>\n<arg_key>zip</arg_key>\n<arg_value>0150</arg_value>\n"
                         "</tool_call>"));
    cJSON_Delete(tools);
}

TEST(free_text_may_come_before_calls_that_are_allowed)
{
    UNUSED_STATE;
    cJSON *tools = cJSON_Parse(tools_text);
    sh_output_form form = form_of("hermes", true, tools, NULL);
    form.calls = SH_OUTPUT_CALLS_MAY;
    form.strict = false;
    assert_true(accepts(&form, "It is ", "cold", "."));
    assert_true(accepts(&form, "<think>\nHm.", "\n</think>\n\n", "It is cold."));
    assert_true(accepts(&form, "Let me look.\n", given[0].before, WEATHER "}\n</tool_call>"));
    assert_false(accepts(&form, "Let me look.\n", given[0].before, BAD_WEATHER "}\n</tool_call>"));
    /* Calls of tools that are not strict: any object. */
    assert_true(accepts(&form, "<tool_call>\n{\"name\": \"stop\", \"arguments\": ", "{\"a\": [1]}",
                        "}\n</tool_call>"));
    /* With a form of the content: either. */
    sh_grammar_builder *b = sh_grammar_builder_create();
    sh_expr content = sh_expr_json_object(b, (sh_json_form){0});
    int bad = -1;
    form.content = &content;
    sh_grammar *grammar = compile(b, sh_output_form_expr(b, &form, &bad));
    assert_true(matches(grammar, SH_STR("{\"a\":1}")));
    assert_true(matches(grammar, SH_STR("<think>Hm.</think>{}")));
    assert_true(matches(grammar, SH_STR("<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n"
                                        "</tool_call>")));
    assert_false(matches(grammar, SH_STR("It is cold.")));
    sh_grammar_free(grammar);
    cJSON_Delete(tools);
}

TEST(content_comes_after_the_reasoning)
{
    UNUSED_STATE;
    static const struct {
        const char *reasoning;
        bool opened;
        const char *text;
        bool fine;
    } cases[] = {
        {"think", true, "so</think>\n\nyes", true},
        {"think", true, "yes", false},
        {"think", false, "yes", true},
        {"think", false, "<think>so</think>yes", true},
        {"think", false, "<think>so</think>maybe", false},
        {"mistral", false, "[THINK]so[/THINK]yes", true},
        {"harmony", false, "<|channel|>final<|message|>yes", true},
        {"harmony", false,
         "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>yes",
         true},
        {"harmony", false, "yes", false},
        {"none", false, "yes", true},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_grammar_builder *b = sh_grammar_builder_create();
        sh_expr content = sh_expr_choice(b, (sh_str[]){SH_STR("yes"), SH_STR("no")}, 2);
        sh_output_form form = {
            .in_reasoning = cases[i].opened, .may_reason = true, .content = &content};
        sh_err err;
        seen s = {0};
        int bad = -1;
        CHECK_OK(sh_output_dialect_choose(&form.dialect, cases[i].reasoning, "none", &err), err);
        sh_grammar *grammar = compile(b, sh_output_form_expr(b, &form, &bad));
        if (matches(grammar, sh_str_of(cases[i].text)) != cases[i].fine)
            fail_msg("%s: %s", cases[i].reasoning, cases[i].text);
        parse(&form, sh_str_of(cases[i].text), &s);
        if (cases[i].fine) assert_string_equal(s.content.ptr, "yes");
        forget(&s);
        sh_grammar_free(grammar);
    }
}

TEST(names_the_tool_whose_schema_cannot_be_enforced)
{
    UNUSED_STATE;
    cJSON *tools = cJSON_Parse("[{\"type\":\"function\",\"function\":{\"name\":\"a\"}},{\"type\":"
                               "\"function\",\"function\":{\"name\":\"b\",\"parameters\":{"
                               "\"properties\":{\"x\":{\"not\":{}}}}}}]");
    static const char *const some[] = {"hermes", "glm"};
    for (size_t i = 0; i < SH_COUNT_OF(some); i++) {
        sh_output_form form = form_of(some[i], false, tools, NULL);
        sh_grammar_builder *b = sh_grammar_builder_create();
        sh_grammar *grammar;
        sh_err err;
        int bad = -1;
        form.calls = SH_OUTPUT_CALLS_MUST;
        sh_expr e = sh_output_form_expr(b, &form, &bad);
        CHECK_FAILS(sh_grammar_compile(b, e, &grammar, &err), err, "/properties/x/not");
        assert_int_equal(bad, 1);
        sh_grammar_builder_free(b);
    }
    cJSON_Delete(tools);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_drawn_from_a_form_is_parsed_as_calls),
        cmocka_unit_test(accepts_calls_as_models_write_them),
        cmocka_unit_test(accepts_arguments_between_tags),
        cmocka_unit_test(free_text_may_come_before_calls_that_are_allowed),
        cmocka_unit_test(content_comes_after_the_reasoning),
        cmocka_unit_test(names_the_tool_whose_schema_cannot_be_enforced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
