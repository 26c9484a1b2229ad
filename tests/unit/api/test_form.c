/* Requests become grammars with the tokens of the demo model, whose calls are those of Hermes. */
#include "api/form.h"
#include "api/openai.h"

#include "test.h"
#include "text/grammar/matcher.h"
#include "text/grammar/pack.h"

static sh_served_model *served;
static sh_job_spec request;
static sh_api_error error;
static sh_tokens *prompts;

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]," fields "}"
#define SCHEMA                                                                                     \
    "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"],"     \
    "\"additionalProperties\":false}"
#define FORMAT                                                                                     \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\","               \
    "\"schema\":" SCHEMA "}}"
#define TOOL(name, more)                                                                           \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" SCHEMA more "}}"
#define TOOLS "\"tools\":[" TOOL("a", "") "," TOOL("b", "") "]"
#define STRICT_TOOLS "\"tools\":[" TOOL("a", ",\"strict\":true") "," TOOL("b", "") "]"
#define CALL(name, args)                                                                           \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " args "}\n</tool_call>"

static bool prepares(const sh_job_format *format, const char *body)
{
    size_t count;
    sh_err err;
    sh_job_spec_reset(&request);
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &request.json, &err), err);
    return format->read(&request, &error) && sh_form_check(served, &request, &error) &&
           sh_served_model_prepare(served, &request, &prompts, &count, &error);
}

/* The grammar of a request as the engine gets it; NULL if it has none. */
static sh_grammar *grammar_of(const sh_job_format *format, const char *body)
{
    sh_grammar *grammar;
    sh_buf packed = {0};
    sh_err err;
    if (!prepares(format, body)) fail_msg("%s: %s", body, error.message);
    if (!sh_form_is_needed(served, &request)) return NULL;
    if (!sh_form_compile(served, &request, prompts, &packed, &error))
        fail_msg("%s: %s", body, error.message);
    CHECK_OK(sh_grammar_unpack(sh_buf_str(&packed), &grammar, &err), err);
    sh_buf_reset(&packed);
    return grammar;
}

static bool matches(const sh_grammar *grammar, const char *text)
{
    sh_matcher *m = sh_matcher_create(grammar, NULL);
    sh_match_state state;
    sh_err err;
    CHECK_OK(sh_matcher_bytes(m, SH_MATCH_START, sh_str_of(text), &state, &err), err);
    bool fine = state != SH_MATCH_DEAD && sh_matcher_accepts(m, state);
    sh_matcher_free(m);
    return fine;
}

TEST(prescribes_nothing_unless_asked_to)
{
    UNUSED_STATE;
    assert_null(grammar_of(&sh_openai_chat, CHAT("\"n\":1")));
    assert_null(grammar_of(&sh_openai_chat, CHAT(TOOLS)));
    assert_null(grammar_of(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":\"auto\"")));
    assert_null(grammar_of(&sh_openai_chat, CHAT(STRICT_TOOLS ",\"tool_choice\":\"none\"")));
}

TEST(answers_have_the_form_that_is_asked_for)
{
    static const struct {
        const char *fields, *good, *bad;
    } cases[] = {
        {FORMAT, "{\"n\": 5}", "{\"n\": \"5\"}"},
        {"\"response_format\":{\"type\":\"json_object\"}", "{\"a\":[]}", "[]"},
        {"\"guided_json\":{\"enum\":[1,2]}", "2", "3"},
        {"\"guided_regex\":\"[ab]+\"", "abba", "abc"},
        {"\"guided_choice\":[\"yes\",\"no\"]", "no", "maybe"},
        {"\"grammar\":\"root ::= \\\"a\\\" root | \\\"b\\\"\"", "aab", "aa"},
        {"\"structured_outputs\":{\"choice\":[\"yes\"]}", "yes", "no"},
        {FORMAT "," TOOLS, "{\"n\": 5}", "five"},
        {FORMAT "," TOOLS, CALL("b", "{\"x\": 5}"), CALL("c", "{}")},
        {STRICT_TOOLS, "any text", CALL("a", "{}")},
        {STRICT_TOOLS, "Well.\n" CALL("a", "{\"n\": 1}"), "Well. " CALL("a", "{\"x\": 1}")},
        {STRICT_TOOLS, CALL("b", "{\"x\": 5}"), CALL("c", "{}")},
        {TOOLS ",\"tool_choice\":\"required\"", CALL("b", "{\"n\": 1}"), "any text"},
        {TOOLS ",\"tool_choice\":\"required\"",
         CALL("b", "{\"n\": 1}") "\n" CALL("a", "{\"n\": 1}"), CALL("b", "{\"x\": 5}")},
        {TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false",
         CALL("b", "{\"n\": 1}"), CALL("b", "{\"n\": 1}") "\n" CALL("a", "{\"n\": 1}")},
        {TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"b\"}}",
         CALL("b", "{\"n\": 1}"), CALL("a", "{\"n\": 1}")},
        {FORMAT "," TOOLS ",\"tool_choice\":\"required\"", CALL("b", "{\"n\": 1}"), "{\"n\": 5}"},
        {FORMAT "," TOOLS ",\"tool_choice\":\"none\"", "{\"n\": 5}", CALL("b", "{\"n\": 1}")},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[2048];
        snprintf(body, sizeof(body), CHAT("%s"), cases[i].fields);
        sh_grammar *grammar = grammar_of(&sh_openai_chat, body);
        assert_non_null(grammar);
        if (!matches(grammar, cases[i].good)) fail_msg("%s: %s", body, cases[i].good);
        if (matches(grammar, cases[i].bad)) fail_msg("%s: %s", body, cases[i].bad);
        sh_grammar_free(grammar);
    }
    sh_grammar *grammar = grammar_of(&sh_openai_completion,
                                     "{\"prompt\":[\"a\",\"b\"],\"guided_regex\":\"x{3}\"}");
    assert_true(matches(grammar, "xxx"));
    sh_grammar_free(grammar);
}

TEST(refusals_name_the_field_and_the_place)
{
    static const struct {
        const char *fields, *param, *part;
    } cases[] = {
        {"\"guided_json\":{\"properties\":{\"a\":{\"not\":{}}}}", "guided_json",
         "/properties/a/not"},
        {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":5}}}",
         "response_format.json_schema.schema", "/type"},
        {"\"guided_regex\":\"(?=a)\"", "guided_regex", "'guided_regex': "},
        {"\"grammar\":\"root ::= x\"", "grammar", "x"},
        {"\"tool_choice\":\"required\",\"tools\":[" TOOL(
             "a", "") ",{\"type\":\"function\",\"function\":{"
                      "\"name\":\"b\",\"parameters\":{\"if\":{}}}}]",
         "tools[1].function.parameters", "/if"},
    };
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        char body[1024];
        sh_buf packed = {0};
        snprintf(body, sizeof(body), CHAT("%s"), cases[i].fields);
        if (!prepares(&sh_openai_chat, body)) fail_msg("%s: %s", body, error.message);
        assert_false(sh_form_compile(served, &request, prompts, &packed, &error));
        assert_int_equal(error.status, 400);
        assert_string_equal(error.param, cases[i].param);
        if (strstr(error.message, cases[i].part) == NULL) fail_msg("%s", error.message);
        sh_buf_reset(&packed);
    }
    assert_false(prepares(&sh_openai_chat, CHAT(FORMAT ",\"ignore_eos\":true")));
    assert_string_equal(error.param, "ignore_eos");
    assert_true(prepares(&sh_openai_chat, CHAT("\"ignore_eos\":true")));
}

#define BEGUN(text)                                                                                \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"    \
    "\"" text "\"}]," TOOLS ",\"tool_choice\":\"required\"}"

TEST(a_call_cannot_go_on_with_text)
{
    UNUSED_STATE;
    assert_false(prepares(&sh_openai_chat, BEGUN("Sure, I")));
    assert_int_equal(error.status, 400);
    assert_string_equal(error.param, "tool_choice");
    assert_false(prepares(&sh_openai_chat, BEGUN("<tool_call>")));
    assert_true(prepares(&sh_openai_chat, BEGUN("<think>I should")));
}

#define KEPT "\"tools\":[" TOOL("kept", "") "]"

TEST(grammars_are_kept_by_what_they_were_made_from)
{
    UNUSED_STATE;
    static const char *const bodies[] = {
        CHAT("\"guided_json\":{\"const\":12345678901234567890}"),
        CHAT("\"guided_json\":{\"const\":12345678901234567891}"),
        CHAT("\"guided_json\":{\"enum\":[12345678901234567891]}"),
        CHAT("\"guided_regex\":\"b\""),
        CHAT("\"guided_choice\":[\"b\"]"),
        CHAT("\"guided_choice\":[\"b\",\"c\"]"),
        CHAT("\"guided_choice\":[\"b\",\"c\"]," KEPT),
        CHAT(KEPT ",\"tool_choice\":\"required\""),
        CHAT(KEPT ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false"),
    };
    for (size_t i = 0; i < SH_COUNT_OF(bodies); i++) {
        sh_buf packed = {0}, found = {0};
        assert_true(prepares(&sh_openai_chat, bodies[i]));
        if (sh_form_find(served, &request, prompts, &found)) fail_msg("found: %s", bodies[i]);
        assert_true(sh_form_compile(served, &request, prompts, &packed, &error));
        sh_tokens opened = {.in_reasoning = true};
        assert_false(sh_form_find(served, &request, &opened, &found));
        assert_true(sh_form_find(served, &request, prompts, &found));
        assert_int_equal(found.len, packed.len);
        assert_memory_equal(found.ptr, packed.ptr, packed.len);
        sh_buf_reset(&found);
        sh_buf_reset(&packed);
    }
}

TEST(the_least_recently_used_grammars_go_first)
{
    UNUSED_STATE;
    sh_form_cache *cache;
    sh_err err;
    sh_buf out = {0};
    CHECK_OK(sh_form_cache_create(&cache, &err), err);
    for (uint64_t i = 0; i < SH_FORM_CACHE_ENTRIES + 1; i++) {
        sh_form_cache_put(cache, (sh_key128){i, 0}, SH_STR("grammar"));
        assert_true(sh_form_cache_get(cache, (sh_key128){0, 0}, &out)); /* in use all the time */
    }
    assert_false(sh_form_cache_get(cache, (sh_key128){1, 0}, &out));
    assert_true(sh_form_cache_get(cache, (sh_key128){2, 0}, &out));
    /* Large ones push out many. */
    char *large = calloc(1, SH_FORM_CACHE_BYTES);
    sh_form_cache_put(cache, (sh_key128){1000, 0}, (sh_str){large, SH_FORM_CACHE_BYTES - 7});
    sh_form_cache_put(cache, (sh_key128){1001, 0}, SH_STR("grammar"));
    assert_true(sh_form_cache_get(cache, (sh_key128){1000, 0}, &out));
    assert_false(sh_form_cache_get(cache, (sh_key128){3, 0}, &out));
    sh_form_cache_put(cache, (sh_key128){1002, 0}, (sh_str){large, SH_FORM_CACHE_BYTES});
    assert_false(sh_form_cache_get(cache, (sh_key128){1001, 0}, &out));
    assert_true(sh_form_cache_get(cache, (sh_key128){1002, 0}, &out));
    free(large);
    sh_buf_reset(&out);
    sh_form_cache_free(cache);
}

static int open_model(void **state)
{
    sh_engine_info info = {.model_dir = "models/demo", .vocab = 4096, .context = 2048};
    sh_err err;
    (void)state;
    return sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err);
}

static int close_model(void **state)
{
    (void)state;
    sh_job_spec_reset(&request);
    sh_served_model_close(served);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prescribes_nothing_unless_asked_to),
        cmocka_unit_test(answers_have_the_form_that_is_asked_for),
        cmocka_unit_test(refusals_name_the_field_and_the_place),
        cmocka_unit_test(a_call_cannot_go_on_with_text),
        cmocka_unit_test(grammars_are_kept_by_what_they_were_made_from),
        cmocka_unit_test(the_least_recently_used_grammars_go_first),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
