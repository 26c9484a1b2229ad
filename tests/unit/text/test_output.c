/* Every case is parsed at once, character by character and split at random: the merged events must
 * be the same. Expected events are written as one text: [C] content, [R] reasoning, [B name] or [B
 * name id] begin of a call (the id only if the model wrote it), [A] arguments, [E] end, [X] broken.
 * A call that ends the text without [E] was cut. */
#include "text/output/output.h"

#include "base/buf.h"
#include "test.h"

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"metric\":{\"type\":\"boolean\"},\"near\":{\"type\":\"array\"},\"opts\":{\"type\":\"object\"}"
    ","
    "\"when\":{\"type\":[\"string\",\"null\"]},\"unit\":{\"enum\":[\"C\",\"F\"]},"
    "\"size\":{\"anyOf\":[{\"type\":\"number\"},{\"type\":\"string\"}]},"
    "\"mix\":{\"enum\":[1,null,true,[],{}]},\"strange\":{\"type\":\"date\"},"
    "\"maybe\":{\"type\":\"integer\",\"nullable\":true}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]";

typedef struct {
    const char *tools, *reasoning;
    const char *text;
    const char *events;
} output_case;

typedef struct {
    const char *source;
    sh_buf text;
    int last_kind;
    int open_call; /* -1: none */
    int calls;
    sh_buf args;
    size_t reported; /* bytes of content and reasoning */
} transcript;

static void check_object(sh_str text)
{
    cJSON *args = NULL;
    sh_err err;
    CHECK_OK(sh_json_parse(text, "arguments", &args, &err), err);
    assert_true(cJSON_IsObject(args));
    cJSON_Delete(args);
}

static void write_begin(transcript *t, const sh_output_event *e)
{
    assert_int_equal(t->open_call, -1);
    assert_int_equal(e->call, t->calls);
    t->open_call = t->calls++;
    assert_true(e->id.len > 0);
    sh_buf_addf(&t->text, "[B %.*s", (int)e->name.len, e->name.ptr);
    if (sh_str_find(sh_str_of(t->source), e->id, 0) < strlen(t->source))
        sh_buf_addf(&t->text, " %.*s", (int)e->id.len, e->id.ptr);
    sh_buf_add_char(&t->text, ']');
    sh_buf_clear(&t->args);
}

static void write_event(void *arg, const sh_output_event *e)
{
    static const char *const tags[] = {"[C]", "[R]", "", "[A]", "[E]", "[X]"};
    transcript *t = arg;

    if (e->kind <= SH_OUTPUT_REASONING) t->reported += e->text.len;
    if (e->kind == SH_OUTPUT_CALL_ARGS) sh_buf_add_str(&t->args, e->text);
    if (e->kind >= SH_OUTPUT_CALL_ARGS) assert_int_equal(e->call, t->open_call);
    if (e->kind == SH_OUTPUT_CALL_BEGIN)
        write_begin(t, e);
    else if ((int)e->kind != t->last_kind)
        sh_buf_add_text(&t->text, tags[e->kind]);
    if (e->kind == SH_OUTPUT_CALL_END) check_object(sh_buf_str(&t->args));
    if (e->kind >= SH_OUTPUT_CALL_END) t->open_call = -1;
    if (e->kind != SH_OUTPUT_CALL_BEGIN && e->kind < SH_OUTPUT_CALL_END)
        assert_true(e->text.len > 0);
    sh_buf_add_str(&t->text, e->text);
    t->last_kind = (int)e->kind;
}

static void transcript_reset(transcript *t)
{
    sh_buf_reset(&t->text);
    sh_buf_reset(&t->args);
    *t = (transcript){.last_kind = -1, .open_call = -1};
}

static sh_output_dialect dialect_of(const char *tools, const char *reasoning)
{
    sh_output_dialect d = {0};
    sh_err err;
    CHECK_OK(sh_output_tools_named(tools, &d.tools, &err), err);
    CHECK_OK(sh_output_reasoning_named(reasoning, &d.reasoning, &err), err);
    return d;
}

/* Pieces have at most `most` characters; 0: all of the text. A reasoning of "+think" means that the
 * prompt has opened it. */
static void read_cut(const output_case *c, const cJSON *tools, size_t most, transcript *t)
{
    bool inside = c->reasoning[0] == '+';
    sh_output_dialect d = dialect_of(c->tools, c->reasoning + (inside ? 1 : 0));
    sh_output_opts opts = {.in_reasoning = inside, .tools = tools, .id_seed = 7};
    size_t len = strlen(c->text);

    transcript_reset(t);
    t->source = c->text;
    sh_output *o = sh_output_create(&d, &opts, write_event, t);
    for (size_t at = 0; at < len;) {
        size_t chars = most == 0 ? len : 1 + (size_t)rand() % most, end = at;
        for (; chars > 0 && end < len; chars--) {
            end++;
            while (end < len && (c->text[end] & 0xc0) == 0x80) end++;
        }
        sh_output_push(o, (sh_str){c->text + at, end - at});
        at = end;
    }
    sh_output_finish(o);
    bool in_call = t->last_kind == SH_OUTPUT_CALL_BEGIN || t->last_kind == SH_OUTPUT_CALL_ARGS;
    assert_int_equal(t->open_call >= 0, in_call);
    sh_output_free(o);
}

static cJSON *tools_parse(void)
{
    cJSON *tools = NULL;
    sh_err err;
    CHECK_OK(sh_json_parse(sh_str_of(TOOLS), "tools", &tools, &err), err);
    return tools;
}

static const char *text_of(const transcript *t)
{
    return t->text.ptr == NULL ? "" : t->text.ptr;
}

static void check_cases(const output_case *cases, size_t count)
{
    cJSON *tools = tools_parse();
    transcript t = {0};

    for (size_t i = 0; i < count; i++) {
        for (int round = 0; round < 40; round++) {
            read_cut(&cases[i], tools, round == 0 ? 0 : round < 3 ? 1 : (size_t)round, &t);
            if (strcmp(text_of(&t), cases[i].events) != 0)
                fail_msg("%s, cut %d:\n  %s\ngave\n  %s\nnot\n  %s", cases[i].tools, round,
                         cases[i].text, text_of(&t), cases[i].events);
        }
    }
    transcript_reset(&t);
    cJSON_Delete(tools);
}

#define CHECK_CASES(...)                                                                           \
    do {                                                                                           \
        static const output_case cases[] = {__VA_ARGS__};                                          \
        UNUSED_STATE;                                                                              \
        check_cases(cases, SH_COUNT_OF(cases));                                                    \
    } while (0)

TEST(reads_reasoning_between_markers)
{
    CHECK_CASES({"none", "think", "<think>\nI see.\n</think>\n\nYes.", "[R]I see.[C]Yes."},
                {"none", "think", "\n<think>a\n\nb </think> Yes.\n", "[R]a\n\nb[C] Yes.\n"},
                {"none", "think", "<think>\n\n</think>\n\nYes.", "[C]Yes."},
                {"none", "think", "<think>cut off\n", "[R]cut off"},
                {"none", "think", "<think>a < b </thin </think>c", "[R]a < b </thin[C]c"},
                {"none", "+think", "a</think>b", "[R]a[C]b"},
                {"none", "+think", "\n<think>\na</think>b", "[R]a[C]b"},
                {"none", "longcat", "<longcat_think>a</longcat_think>b", "[R]a[C]b"},
                {"none", "gemma", "<|channel>thought\na\n<channel|>b", "[R]a[C]b"},
                {"mistral", "mistral", "[THINK]a[/THINK]b", "[R]a[C]b"},
                {"hermes", "think",
                 "<think>call</think>\n\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
                 "[R]call[B now][A]{}[E]"}, );
}

TEST(treats_reasoning_markers_inside_the_answer_as_text)
{
    CHECK_CASES(
        {"none", "think", "Use <think> and </think>.", "[C]Use <think> and </think>."},
        {"none", "think", "<think>a</think>b <think>c</think>", "[R]a[C]b <think>c</think>"},
        {"none", "think", " </think>", "[C] </think>"},
        {"none", "none", "<think>a</think>", "[C]<think>a</think>"},
        {"hermes", "think", "<think>a <tool_call> b</think>c", "[R]a <tool_call> b[C]c"},
        {"none", "think", "<thin", "[C]<thin"}, {"none", "think", "", ""});
}

TEST(passes_text_without_markers)
{
    static const char text[] =
        "\n  Hello,\n\n\tworld! {\"a\": [1]} <b>\xe2\x82\xac</b> | [x] 1 < 2 \n\n";
    static const char *const tools[] = {"none",    "hermes",   "qwen3_coder", "llama3", "mistral",
                                        "granite", "deepseek", "kimi_k2",     "glm",    "longcat",
                                        "harmony", "lfm2",     "pythonic"};
    static const char expected[] =
        "[C]\n  Hello,\n\n\tworld! {\"a\": [1]} <b>\xe2\x82\xac</b> | [x] 1 < 2 \n\n";
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(tools); i++)
        check_cases(&(output_case){tools[i], "think", text, expected}, 1);
}

TEST(reads_hermes_calls)
{
    CHECK_CASES(
        {"hermes", "think",
         "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"Paris\"}}\n</tool_call>",
         "[B get_weather][A]{\"city\": \"Paris\"}[E]"},
        {"hermes", "none",
         "I look.\n<tool_call>{\"arguments\":{\"a\":[1,{}]},\"name\":\"f\"}</tool_call>\n"
         "<tool_call>\n{\"name\":\"now\"}\n</tool_call>\nDone.",
         "[C]I look.[B f][A]{\"a\":[1,{}]}[E][B now][A]{}[E][C]Done."},
        {"hermes", "none",
         "<tool_call>{\"id\":\"x1\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
         "[B f x1][A]{\"a\": 1}[E]"},
        {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":null}</tool_call>",
         "[B f][A]{}[E]"},
        {"hermes", "none",
         "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, "
         "{\"name\":\"g\",\"arguments\":{}}]</tool_call>.",
         "[B f][A]{}[E][B g][A]{}[E][C]."},
        {"hermes", "none",
         "<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\\u00e9}\"}}",
         "[B f][A]{\"s\":\"</tool_call>\\u00e9}\"}[E]"},
        {"hermes", "none",
         "<tool_call>{\"name\":\"f\",\"arguments\":{}}<tool_call>{\"name\":\"now\"}",
         "[B f][A]{}[E][B now][A]{}[E]"});
}

TEST(reports_broken_hermes_calls_as_content)
{
    CHECK_CASES({"hermes", "none", "a\n<tool_call>\nno json\n</tool_call> b",
                 "[C]a\n<tool_call>\nno json\n</tool_call> b"},
                {"hermes", "none", "<tool_call>{\"nme\":\"f\"}</tool_call>",
                 "[C]<tool_call>{\"nme\":\"f\"}</tool_call>"},
                {"hermes", "none", "<tool_call>{\"name\":\"f g\",\"arguments\":{}}",
                 "[C]<tool_call>{\"name\":\"f g\",\"arguments\":{}}"},
                {"hermes", "none", "<tool_call>{\"na\\me\":5}", "[C]<tool_call>{\"na\\me\":5}"},
                {"hermes", "none", "<tool_call>{\"name\":5}", "[C]<tool_call>{\"name\":5}"},
                {"hermes", "none", "<tool_call>{}", "[C]<tool_call>{}"},
                {"hermes", "none", "<tool_call><tool_call>{\"name\":\"now\"}</tool_call>",
                 "[C]<tool_call>[B now][A]{}[E]"},
                {"hermes", "none",
                 "x \n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": oops}}</tool_call>",
                 "[C]x[B f][A]{\"a\": [X][C] \n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": "
                 "oops}}</tool_call>"},
                {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":{}", "[B f][A]{}[E]"},
                {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":{},\"more\":1}",
                 "[B f][A]{}[E][C],\"more\":1}"},
                {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":[1]}",
                 "[C]<tool_call>{\"name\":\"f\",\"arguments\":[1]}"},
                {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":\"[1]\"}",
                 "[C]<tool_call>{\"name\":\"f\",\"arguments\":\"[1]\"}"},
                {"hermes", "none", "<tool_call>{\"arguments\":{},\"arguments\":{},\"name\":\"f\"}",
                 "[C]<tool_call>{\"arguments\":{},\"arguments\":{},\"name\":\"f\"}"},
                {"hermes", "none",
                 "<tool_call>[{\"name\":\"now\"} <tool_call>{\"name\":\"now\"}</tool_call>]",
                 "[B now][A]{}[E][B now][A]{}[E][C]]"},
                {"hermes", "none",
                 "<tool_call>[{\"name\":\"now\"} x <tool_call>[{\"name\":\"now\"}]",
                 "[B now][A]{}[E][C] x[B now][A]{}[E]"},
                {"hermes", "none", "<tool_cal", "[C]<tool_cal"});
}

TEST(reads_qwen3_coder_calls)
{
    CHECK_CASES(
        {"qwen3_coder", "none",
         "Ok.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis "
         "\"x\"\n\n</parameter>\n"
         "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
         "<tool_call>\n<function=now>\n</function>\n</tool_call>",
         "[C]Ok.[B get_weather][A]{\"city\": \"Paris \\\"x\\\"\\n\", \"days\": 3}[E][B "
         "now][A]{}[E]"},
        {"qwen3_coder", "none", "<function=now></function>x", "[B now][A]{}[E][C]x"},
        {"qwen3_coder", "none",
         "<tool_call><function=f><parameter=a>[1, 2]</parameter></tool_call>",
         "[B f][A]{\"a\": [1, 2]}[E]"},
        {"qwen3_coder", "none",
         "<function=get_weather>\n<parameter=city>\na\n</para\nb</parameter>\n",
         "[B get_weather][A]{\"city\": \"a\\n</para\\nb\"}[E]"},
        {"qwen3_coder", "none", "<tool_call>\nfoo</tool_call>", "[C]<tool_call>\nfoo</tool_call>"},
        {"qwen3_coder", "none", "<function=a b>", "[C]<function=a b>"},
        {"qwen3_coder", "none", "<function=f><parameter=a>\n1\n</parameter>x</function>",
         "[B f][A]{\"a\": 1[X][C]<function=f><parameter=a>\n1\n</parameter>x</function>"});
}

TEST(reads_glm_calls)
{
    CHECK_CASES(
        {"glm", "think",
         "\n<think>Need it.</think>\nLet me see.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
         "<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</"
         "tool_call>\n"
         "<tool_call>now\n</tool_call>",
         "[R]Need it.[C]Let me see.[B get_weather][A]{\"city\": \"Paris\", \"days\": 3}[E]"
         "[B now][A]{}[E]"},
        {"glm", "think",
         "<tool_call>get_weather<arg_key>city</arg_key><arg_value>a\n</arg_valu\"\\</arg_value>"
         "</tool_call>",
         "[B get_weather][A]{\"city\": \"a\\n</arg_valu\\\"\\\\\"}[E]"},
        {"glm", "none", "<tool_call>now</tool_call>", "[B now][A]{}[E]"},
        {"glm", "none", "<tool_call>now\n<arg_key>a</arg_key>b",
         "[B now][A]{\"a\": [X][C]<tool_call>now\n<arg_key>a</arg_key>b"},
        {"glm", "none", "<tool_call>is a tag", "[C]<tool_call>is a tag"},
        {"glm", "none", "<tool_call>now", "[C]<tool_call>now"},
        {"glm", "none", "<tool_call>now<b>", "[C]<tool_call>now<b>"},
        {"longcat", "none",
         "<longcat_tool_call>f\n<longcat_arg_key>a</longcat_arg_key>\n"
         "<longcat_arg_value>1</longcat_arg_value>\n</longcat_tool_call>",
         "[B f][A]{\"a\": 1}[E]"});
}

#define GLM(key, value)                                                                            \
    "<tool_call>get_weather\n<arg_key>" key "</arg_key>\n<arg_value>" value                        \
    "</arg_value>\n</tool_call>"
#define GLM_CASE(key, value, json)                                                                 \
    {                                                                                              \
        "glm", "none", GLM(key, value), "[B get_weather][A]{\"" key "\": " json "}[E]"             \
    }

TEST(gives_tagged_arguments_the_types_of_the_schema)
{
    CHECK_CASES(GLM_CASE("city", "75001", "\"75001\""), GLM_CASE("city", "true", "\"true\""),
                GLM_CASE("city", " \"a\" ", "\" \\\"a\\\" \""), GLM_CASE("city", "", "\"\""),
                GLM_CASE("city", "\t\x01\r", "\"\\t\\u0001\\r\""), GLM_CASE("days", " 3\n", "3"),
                GLM_CASE("days", "03", "\"03\""), GLM_CASE("days", "three", "\"three\""),
                GLM_CASE("days", "", "\"\""), GLM_CASE("days", "true", "\"true\""),
                GLM_CASE("metric", "true", "true"), GLM_CASE("metric", "False", "false"),
                GLM_CASE("near", "[\"a\", 1]", "[\"a\", 1]"), GLM_CASE("near", "[1,", "\"[1,\""),
                GLM_CASE("opts", "{\"a\": {}}", "{\"a\": {}}"), GLM_CASE("when", "null", "null"),
                GLM_CASE("when", "\"now\"", "\"\\\"now\\\"\""), GLM_CASE("when", "5", "\"5\""),
                GLM_CASE("unit", "C", "\"C\""), GLM_CASE("size", "2.5e3", "2.5e3"),
                GLM_CASE("size", "large", "\"large\""), GLM_CASE("other", "-1", "-1"),
                GLM_CASE("mix", "[]", "[]"), GLM_CASE("mix", "None", "null"),
                GLM_CASE("mix", "{}", "{}"), GLM_CASE("mix", "\"1\"", "\"\\\"1\\\"\""),
                GLM_CASE("maybe", "null", "null"), GLM_CASE("maybe", "x", "\"x\""),
                GLM_CASE("strange", "2024", "2024"), GLM_CASE("other", "\"q\"", "\"q\""),
                GLM_CASE("other", "word", "\"word\""));
}

TEST(reads_llama3_calls)
{
    CHECK_CASES(
        {"llama3", "none", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}",
         "[B get_weather][A]{\"city\": \"Paris\"}[E]"},
        {"llama3", "none",
         "\n{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; {\"name\": \"now\", "
         "\"arguments\": {}}",
         "[B now][A]{}[E][B now][A]{}[E]"},
        {"llama3", "none", "<|python_tag|>{\"name\": \"now\", \"parameters\": {}}",
         "[B now][A]{}[E]"},
        {"llama3", "none", "<|python_tag|>print(1)", "[C]<|python_tag|>print(1)"},
        {"llama3", "none", "{\"name\": \"now\", \"parameters\": {}", "[B now][A]{}[E]"},
        {"llama3", "none", "{\"name\": \"Bob\", \"parameters\": {}}",
         "[C]{\"name\": \"Bob\", \"parameters\": {}}"},
        {"llama3", "none", "{\"name\": \"now\"}", "[C]{\"name\": \"now\"}"},
        {"llama3", "none", "{\"result\": [1]} {\"name\": \"now\", \"parameters\": {}}",
         "[C]{\"result\": [1]} {\"name\": \"now\", \"parameters\": {}}"},
        {"llama3", "none", "It is {\"name\": \"now\", \"parameters\": {}}",
         "[C]It is {\"name\": \"now\", \"parameters\": {}}"},
        {"llama3", "none", "{\"name\": \"now\", \"parameters\": {}}; so",
         "[B now][A]{}[E][C]; so"});
}

TEST(reads_mistral_calls)
{
    CHECK_CASES(
        {"mistral", "none",
         "[TOOL_CALLS] [{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}, {\"id\": "
         "\"123456789\", \"name\": \"f\", \"arguments\": {\"a\": 1}}]",
         "[B now][A]{}[E][B f 123456789][A]{\"a\": 1}[E]"},
        {"mistral", "none",
         "Wait.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
         "[C]Wait.[B f][A]{\"a\": 1}[E][B g 123456789][A]{}[E]"},
        {"mistral", "none", "[TOOL_CALLS]f{\"a\": 1}\n", "[B f][A]{\"a\": 1}[E]"},
        {"mistral", "none", "[TOOL_CALLS][1]", "[C][TOOL_CALLS][1]"},
        {"mistral", "none", "[TOOL_CALLS]a b{}", "[C][TOOL_CALLS]a b{}"},
        {"mistral", "none", "[TOOL_CALLS]f[ARGS]x{}", "[C][TOOL_CALLS]f[ARGS]x{}"},
        {"mistral", "none", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}},5]",
         "[B f][A]{}[E][C],5]"},
        {"granite", "none", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]",
         "[B f][A]{}[E]"});
}

#define DS_BEGIN "<｜tool▁calls▁begin｜>"
#define DS_CALL "<｜tool▁call▁begin｜>"
#define DS_SEP "<｜tool▁sep｜>"
#define DS_END "<｜tool▁call▁end｜>"
#define DS_CLOSE "<｜tool▁calls▁end｜>"

TEST(reads_deepseek_calls)
{
    CHECK_CASES({"deepseek", "think",
                 "Hm.</think>Ok." DS_BEGIN DS_CALL "f" DS_SEP "{\"a\": \"<｜\"}" DS_END DS_CALL
                 "g" DS_SEP "{}" DS_END DS_CLOSE,
                 "[C]Hm.</think>Ok.[B f][A]{\"a\": \"<｜\"}[E][B g][A]{}[E]"},
                {"deepseek", "+think",
                 "Hm." DS_BEGIN DS_CALL "function" DS_SEP "f\n```json\n{\"a\": 1}\n```" DS_END
                 "\n" DS_CALL "function" DS_SEP "g\n```json\n{}\n```" DS_END DS_CLOSE "\nx",
                 "[R]Hm.[B f][A]{\"a\": 1}[E][B g][A]{}[E][C]x"},
                {"deepseek", "none", DS_BEGIN DS_CLOSE, "[C]" DS_BEGIN DS_CLOSE},
                {"deepseek", "none", DS_BEGIN DS_CALL "f{}" DS_CALL "g" DS_SEP "{}" DS_END,
                 "[C]" DS_BEGIN DS_CALL "f{}[B g][A]{}[E]"},
                {"deepseek", "none", DS_CALL "x" DS_SEP "f\n```json\n{}",
                 "[C]" DS_CALL "x" DS_SEP "f\n```json\n{}"},
                {"deepseek", "none", DS_BEGIN DS_CALL "f" DS_SEP "{\"a\"" DS_END,
                 "[B f][A]{\"a\"[X][C]" DS_BEGIN DS_CALL "f" DS_SEP "{\"a\"" DS_END});
}

#define KIMI_BEGIN "<|tool_calls_section_begin|>"
#define KIMI_CALL "<|tool_call_begin|>"
#define KIMI_ARGS "<|tool_call_argument_begin|>"
#define KIMI_END "<|tool_call_end|>"
#define KIMI_CLOSE "<|tool_calls_section_end|>"

TEST(reads_kimi_calls)
{
    CHECK_CASES({"kimi_k2", "think",
                 "Ok. " KIMI_BEGIN KIMI_CALL "functions.get_weather:0" KIMI_ARGS
                 "{\"city\": \"Paris\"}" KIMI_END KIMI_CALL " functions.now:1 " KIMI_ARGS
                 " {} " KIMI_END KIMI_CLOSE,
                 "[C]Ok.[B get_weather functions.get_weather:0][A]{\"city\": \"Paris\"}[E]"
                 "[B now functions.now:1][A]{}[E]"},
                {"kimi_k2", "+think",
                 "Hm. " KIMI_BEGIN KIMI_CALL "now" KIMI_ARGS "{}" KIMI_END KIMI_CLOSE,
                 "[R]Hm.[B now now][A]{}[E]"},
                {"kimi_k2", "none",
                 KIMI_BEGIN KIMI_CALL "bad" KIMI_END KIMI_CALL "functions.f:12" KIMI_ARGS
                                      "{}" KIMI_END KIMI_CLOSE,
                 "[C]" KIMI_BEGIN KIMI_CALL "bad" KIMI_END "[B f functions.f:12][A]{}[E]"},
                {"kimi_k2", "none", KIMI_BEGIN "\nwell", "[C]" KIMI_BEGIN "\nwell"});
}

TEST(reads_harmony_messages)
{
    CHECK_CASES(
        {"harmony", "harmony",
         "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|message|>"
         "Hi "
         "there.\n<|return|>",
         "[R]Think.[C]Hi there."},
        {"harmony", "harmony",
         "<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis<|message|>B<|"
         "end|>"
         "<|start|>assistant<|channel|>commentary<|message|>Soon.<|end|><|start|>assistant<|"
         "channel|>"
         "commentary to=functions.get_weather "
         "<|constrain|>json<|message|>{\"city\":\"Paris\"}<|call|>",
         "[R]A\nB[C]Soon.[B get_weather][A]{\"city\":\"Paris\"}[E]"},
        {"harmony", "harmony", " to=functions.now<|channel|>commentary json<|message|>{}",
         "[B now][A]{}[E]"},
        {"harmony", "harmony", "<|start|>assistant to=now<|channel|>analysis<|message|>{}<|call|>x",
         "[B now][A]{}[E][C]x"},
        {"harmony", "harmony",
         "<|channel|>final<|message|>a <|b <|start|>assistant<|channel|>final<|message|>\nc",
         "[C]a <|b\nc"},
        {"harmony", "harmony", "<|channel|>commentary to=python<|message|>print(1)<|call|>",
         "[C]<|channel|>commentary to=python<|message|>print(1)"},
        {"harmony", "harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\":x",
         "[B f][A]{\"a\":[X][C]<|channel|>commentary to=functions.f<|message|>{\"a\":x"},
        {"none", "harmony", "<|channel|>commentary to=functions.f<|message|>{}",
         "[C]<|channel|>commentary to=functions.f<|message|>{}"},
        {"harmony", "harmony", "<|channel|>final", "[C]<|channel|>final"},
        {"harmony", "harmony", "to do", "[C]to do"});
}

TEST(limits_what_it_holds_back)
{
    char text[4096], expected[4200];
    UNUSED_STATE;
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    static const char *const openers[][2] = {{"kimi_k2", KIMI_CALL},
                                             {"mistral", "[TOOL_CALLS]"},
                                             {"glm", "<tool_call>"},
                                             {"qwen3_coder", "<function="},
                                             {"harmony", "<|channel|>"}};
    for (size_t i = 0; i < SH_COUNT_OF(openers); i++) {
        memcpy(text, openers[i][1], strlen(openers[i][1]));
        snprintf(expected, sizeof(expected), "[C]%s", text);
        check_cases(&(output_case){openers[i][0], "none", text, expected}, 1);
        memset(text, 'x', 64);
    }
}

TEST(limits_the_names_of_parameters)
{
    char text[400] = "<tool_call>now<arg_key>", expected[1000];
    UNUSED_STATE;
    size_t len = strlen(text);
    memset(text + len, 'k', 300);
    snprintf(expected, sizeof(expected), "[B now][A]{[X][C]%s", text);
    check_cases(&(output_case){"glm", "none", text, expected}, 1);
    strcpy(text + len + 257, "</arg_key>");
    snprintf(expected, sizeof(expected), "[B now][A]{[X][C]%s", text);
    check_cases(&(output_case){"glm", "none", text, expected}, 1);
    memcpy(text + len + 256, "</arg_key>", 10);
    snprintf(expected, sizeof(expected), "[B now][A]{\"%.256s\": [X][C]%s", text + len, text);
    check_cases(&(output_case){"glm", "none", text, expected}, 1);
}

TEST(rejects_json_that_is_nested_too_deeply)
{
    char text[1024] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":", expected[2048];
    UNUSED_STATE;
    for (int i = 0; i < 200; i++) strcat(text, "[");
    snprintf(expected, sizeof(expected), "[B f][A]{\"a\":%.*s[X][C]%s", 127, strstr(text, "[["),
             text);
    check_cases(&(output_case){"hermes", "none", text, expected}, 1);
}

/* A stream must not lag: of plain text only white space and what may be the start of a marker is
 * held back. */
TEST(holds_back_no_more_than_a_possible_marker)
{
    static const char text[] =
        "a <b> [T <tool_x <|tool_call_bx <| and so on \xe2\x82\xac [TOOL_CALL {x}";
    static const struct {
        const char *tools;
        size_t most;
    } held[] = {{"hermes", 7},   {"glm", 7},      {"kimi_k2", 14},
                {"mistral", 11}, {"deepseek", 2}, {"none", 0}};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(held); i++) {
        sh_output_dialect d = dialect_of(held[i].tools, "none");
        transcript t = {.source = "", .last_kind = -1, .open_call = -1};
        sh_output *o = sh_output_create(&d, &(sh_output_opts){0}, write_event, &t);
        size_t most = 0;
        for (size_t at = 0; at < sizeof(text) - 1; at++) {
            sh_output_push(o, (sh_str){text + at, 1});
            size_t lag = at + 1 - t.reported;
            if (text[at] != ' ' && lag > most) most = lag;
        }
        assert_int_equal(most, held[i].most);
        sh_output_finish(o);
        assert_int_equal(t.reported, sizeof(text) - 1);
        sh_output_free(o);
        transcript_reset(&t);
    }
}

TEST(streams_arguments_as_they_arrive)
{
    static const char *const texts[][2] = {
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"bcd"},
        {"kimi_k2", KIMI_CALL "functions.f:0" KIMI_ARGS "{\"a\":\"bcd"},
        {"harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\":\"bcd"}};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(texts); i++) {
        sh_output_dialect d = dialect_of(texts[i][0], "none");
        transcript t = {.source = texts[i][1], .last_kind = -1, .open_call = -1};
        sh_output *o = sh_output_create(&d, &(sh_output_opts){0}, write_event, &t);
        sh_output_push(o, sh_str_of(texts[i][1]));
        assert_string_equal(t.args.ptr, "{\"a\":\"bcd");
        assert_int_equal(t.open_call, 0);
        assert_int_equal(sh_output_calls(o), 0);
        sh_output_push(o, SH_STR("\"}"));
        sh_output_finish(o);
        assert_int_equal(sh_output_calls(o), 1);
        sh_output_free(o);
        transcript_reset(&t);
    }
}

TEST(streams_tagged_strings_as_they_arrive)
{
    UNUSED_STATE;
    cJSON *tools = tools_parse();
    sh_output_dialect d = dialect_of("glm", "none");
    transcript t = {.source = "", .last_kind = -1, .open_call = -1};
    sh_output *o = sh_output_create(&d, &(sh_output_opts){.tools = tools}, write_event, &t);
    sh_output_push(
        o, SH_STR("<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Pa\"r</arg"));
    assert_string_equal(t.args.ptr, "{\"city\": \"Pa\\\"r");
    sh_output_finish(o);
    sh_output_free(o);
    transcript_reset(&t);
    cJSON_Delete(tools);
}

TEST(reads_calls_in_python)
{
    UNUSED_STATE;
#define LFM(list) "<|tool_call_start|>[" list "]<|tool_call_end|>"
    CHECK_CASES(
        {"lfm2", "none", LFM("get_weather(city='Paris', days=3)"),
         "[B get_weather][A]{\"city\": \"Paris\", \"days\": 3}[E]"},
        {"lfm2", "none", "Sure. " LFM("now(), f( a = 1 , )") " Done.",
         "[C]Sure.[B now][A]{}[E][B f][A]{\"a\": 1}[E][C] Done."},
        {"lfm2", "none",
         LFM("f(a=[1, 2.5, -3e2, .5, 1_000, +7.], b=(True, False, None), c={'k': {}})"),
         "[B f][A]{\"a\": [1, 2.5, -3e2, 0.5, 1000, 7.0], \"b\": [true, false, null], \"c\": "
         "{\"k\": {}}}[E]"},
        {"lfm2", "none", LFM("f(a='it\\'s \"q\" \\n\\t\\x41\\u20ac\\101\\d', b=\"),]\")"),
         "[B f][A]{\"a\": \"it's \\\"q\\\" \\u000a\\u0009A\xe2\x82\xac"
         "A\\\\d\", \"b\": \"),]\"}[E]"},
        {"lfm2", "none", LFM("f(a=true, b=null)"), "[B f][A]{\"a\": true, \"b\": null}[E]"},
        /* not calls */
        {"lfm2", "none", LFM("f(1)"), "[C]" LFM("f(1)")},
        {"lfm2", "none", LFM("f(a=1 2)"), "[C]" LFM("f(a=1 2)")},
        {"lfm2", "none", LFM("f(a=x)"), "[C]" LFM("f(a=x)")},
        {"lfm2", "none", LFM("f(a={1: 2})"), "[C]" LFM("f(a={1: 2})")},
        {"lfm2", "none", LFM("f(a=1, b=x)"), "[B f][A]{\"a\": 1[X][C]" LFM("f(a=1, b=x)")},
        {"lfm2", "none", "<|tool_call_start|>f(a=1)", "[C]<|tool_call_start|>f(a=1)"},
        {"lfm2", "none", "<|tool_call_start|>[f(a=1", "[C]<|tool_call_start|>[f(a=1"},
        {"lfm2", "none", "<|tool_call_start|>[f(a=1)", "[B f][A]{\"a\": 1}[E]"},
        {"lfm2", "none", "[f(a=1)]", "[C][f(a=1)]"},
        /* without markers only known tools are called */
        {"pythonic", "none", "[get_weather(city=\"Oslo\")]",
         "[B get_weather][A]{\"city\": \"Oslo\"}[E]"},
        {"pythonic", "none", "<|python_start|>[now()]<|python_end|>", "[B now][A]{}[E]"},
        {"pythonic", "none", "[1, 2, 3]", "[C][1, 2, 3]"},
        {"pythonic", "none", "[unknown(a=1)]", "[C][unknown(a=1)]"},
        {"pythonic", "none", "See [now()]", "[C]See [now()]"});
}

/* Only what was reported as a call stays one. What the parser holds back may be part of a marker,
 * or of a value whose type is not certain yet: it is dropped with the rest of the call. */
TEST(a_call_that_is_cut_by_the_end_stays_a_call)
{
    CHECK_CASES(
        {"hermes", "none", "a\n<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"b",
         "[C]a[B f][A]{\"a\":\"b"},
        {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":{", "[B f][A]{"},
        {"hermes", "none", "<tool_call>{\"name\":\"f\",\"arguments\":",
         "[C]<tool_call>{\"name\":\"f\",\"arguments\":"},
        {"hermes", "none", "<tool_call>{\"arguments\":{\"a\":1},\"name\":",
         "[C]<tool_call>{\"arguments\":{\"a\":1},\"name\":"},
        {"hermes", "none",
         "<tool_call>{\"name\":\"now\"}</tool_call>\n<tool_call>{\"name\":\"f\",\"arguments\":{ ",
         "[B now][A]{}[E][B f][A]{ "},
        {"llama3", "none", "{\"name\": \"now\", \"parameters\": {\"a", "[B now][A]{\"a"},
        {"mistral", "none", "[TOOL_CALLS]f[ARGS]{\"a\": 1", "[B f][A]{\"a\": 1"},
        {"harmony", "harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\":1",
         "[B f][A]{\"a\":1"},
        {"glm", "none", "<tool_call>now\n<arg_key>", "[B now][A]{"},
        {"glm", "none", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_val",
         "[B get_weather][A]{\"city\": \"Oslo"},
        {"glm", "none", "<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>1",
         "[B get_weather][A]{\"days\": "},
        {"lfm2", "none", "<|tool_call_start|>[f(a=1, b='x", "[B f][A]{\"a\": 1"});
}

/* Any prefix of any case must give the same events, however it is split. */
TEST(parses_every_prefix_the_same_however_it_is_split)
{
    static const output_case whole[] = {
        {"hermes", "think",
         "<think>a</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": "
         "1}\n</tool_call>\nx",
         ""},
        {"qwen3_coder", "think",
         "<tool_call>\n<function=get_weather>\n<parameter=city>\nP\n</"
         "parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
         ""},
        {"glm", "think",
         "\n<think>a</think>\n<tool_call>get_weather\n<arg_key>days</arg_key>\n<arg_value>3</"
         "arg_value>\n</tool_call>\nx",
         ""},
        {"llama3", "none",
         "{\"parameters\": {\"a\": 1}, \"name\": \"now\"} ; {\"name\": \"now\", \"parameters\": "
         "{}}x",
         ""},
        {"mistral", "mistral",
         "[THINK]a[/THINK][TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": "
         "\"g\"}][TOOL_CALLS]f[ARGS]{}",
         ""},
        {"deepseek", "+think",
         "a</think>b" DS_BEGIN DS_CALL "function" DS_SEP "f\n```json\n{}\n```" DS_END DS_CALL
         "g" DS_SEP "{}" DS_END DS_CLOSE,
         ""},
        {"kimi_k2", "+think",
         "a" KIMI_BEGIN KIMI_CALL "functions.f:0" KIMI_ARGS "{}" KIMI_END KIMI_CLOSE "b", ""},
        {"harmony", "harmony",
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f <|constrain|>json<|message|>{}<|call|>",
         ""},
    };
    cJSON *tools = tools_parse();
    transcript one = {0}, other = {0};
    char text[512];
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(whole); i++) {
        size_t len = strlen(whole[i].text);
        assert_true(len < sizeof(text));
        for (size_t cut = 0; cut <= len; cut++) {
            if ((whole[i].text[cut] & 0xc0) == 0x80) continue;
            snprintf(text, cut + 1, "%s", whole[i].text);
            output_case c = whole[i];
            c.text = text;
            read_cut(&c, tools, 0, &one);
            for (size_t most = 1; most < 8; most += 3) {
                read_cut(&c, tools, most, &other);
                assert_string_equal(text_of(&one), text_of(&other));
            }
        }
    }
    transcript_reset(&one);
    transcript_reset(&other);
    cJSON_Delete(tools);
}

#define BREAK "</arg_value>\x01" /* breaks any call below */

TEST(is_linear_in_hostile_output)
{
    static const char *const units[][2] = {
        {"hermes", "<tool_call>"},
        {"hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\""},
        {"kimi_k2", KIMI_CALL},
        {"glm", "<tool_call>f<arg_key>a</arg_key><arg_value>"},
        {"hermes", " "},
        {"harmony", "<|start|>"},
        {"mistral", "[TOOL_CALLS]["},
        {"lfm2", "<|tool_call_start|>[f(a='"},
        {"pythonic", "[f(a=["},
        {"llama3", "{"}};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(units); i++) {
        sh_output_dialect d = dialect_of(units[i][0], "none");
        transcript t = {.source = "", .last_kind = -1, .open_call = -1};
        sh_output *o = sh_output_create(&d, &(sh_output_opts){0}, write_event, &t);
        for (int n = 0; n < 20000; n++) sh_output_push(o, sh_str_of(units[i][1]));
        sh_output_push(o, SH_STR(BREAK)); /* or the last call would be one that was cut */
        sh_output_finish(o);
        assert_int_equal(t.reported, 20000 * strlen(units[i][1]) + strlen(BREAK));
        sh_output_free(o);
        transcript_reset(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_reasoning_between_markers),
        cmocka_unit_test(treats_reasoning_markers_inside_the_answer_as_text),
        cmocka_unit_test(passes_text_without_markers),
        cmocka_unit_test(reads_hermes_calls),
        cmocka_unit_test(reports_broken_hermes_calls_as_content),
        cmocka_unit_test(reads_qwen3_coder_calls),
        cmocka_unit_test(reads_glm_calls),
        cmocka_unit_test(reads_calls_in_python),
        cmocka_unit_test(gives_tagged_arguments_the_types_of_the_schema),
        cmocka_unit_test(reads_llama3_calls),
        cmocka_unit_test(reads_mistral_calls),
        cmocka_unit_test(reads_deepseek_calls),
        cmocka_unit_test(reads_kimi_calls),
        cmocka_unit_test(reads_harmony_messages),
        cmocka_unit_test(limits_what_it_holds_back),
        cmocka_unit_test(limits_the_names_of_parameters),
        cmocka_unit_test(rejects_json_that_is_nested_too_deeply),
        cmocka_unit_test(holds_back_no_more_than_a_possible_marker),
        cmocka_unit_test(streams_arguments_as_they_arrive),
        cmocka_unit_test(streams_tagged_strings_as_they_arrive),
        cmocka_unit_test(a_call_that_is_cut_by_the_end_stays_a_call),
        cmocka_unit_test(parses_every_prefix_the_same_however_it_is_split),
        cmocka_unit_test(is_linear_in_hostile_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
