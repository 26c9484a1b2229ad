/* Decodes tokens of the demo model, as an engine would send them. */
#include "text/answer_text.h"

#include "base/alloc.h"

#include "test.h"

static sh_model_text *model;
static sh_buf seen;              /* events, one mark each */
static sh_answer_text *one_call; /* to be stopped after its first call */
static sh_err err;

static void on_event(void *arg, const sh_output_event *event)
{
    static const char marks[] = "CRbaex";
    (void)arg;
    sh_buf_add_char(&seen, marks[event->kind]);
    sh_str text = event->kind == SH_OUTPUT_CALL_BEGIN ? event->name : event->text;
    sh_buf_addf(&seen, "(%.*s)", (int)text.len, text.len > 0 ? text.ptr : "");
    if (event->kind == SH_OUTPUT_CALL_END && one_call != NULL) sh_answer_text_stop(one_call);
}

static sh_answer_text *start(const sh_answer_text_opts *opts)
{
    sh_answer_text *text = NULL;
    sh_buf_clear(&seen);
    CHECK_OK(sh_answer_text_create(model, opts, on_event, NULL, &text, &err), err);
    return text;
}

/* The number of tokens up to the one that ended the answer, or of all. */
static size_t say(sh_answer_text *text, const char *words)
{
    sh_ids ids = {0};
    size_t count = 0;
    CHECK_OK(sh_model_text_encode(model, sh_str_of(words), true, &ids, &err), err);
    for (bool ended = false; count < ids.len && !ended; count++)
        ended = sh_answer_text_push(text, ids.ptr[count]);
    sh_ids_reset(&ids);
    return count;
}

static void end(sh_answer_text *text, const char *events, const char *reason)
{
    sh_answer_text_finish(text);
    assert_string_equal(seen.len > 0 ? seen.ptr : "", events);
    assert_string_equal(sh_answer_text_finish_reason(text), reason);
    sh_answer_text_free(text);
}

TEST(a_stop_string_ends_the_text_and_consumes_its_tokens)
{
    UNUSED_STATE;
    sh_str stop = SH_STR("layer across");
    sh_answer_text *text = start(&(sh_answer_text_opts){.stops = &stop, .stop_count = 1});
    size_t count = say(text, "splits every layer across the machines");
    size_t settled = sh_answer_text_settled(text);
    assert_true(settled > 0 && settled < count);
    assert_true(sh_answer_text_push(text, 300)); /* further tokens are ignored */
    sh_answer_text_finish(text);
    assert_int_equal(sh_answer_text_settled(text), settled);
    assert_non_null(strstr(seen.ptr, "every"));
    assert_null(strstr(seen.ptr, "lay"));
    sh_answer_text_free(text);

    /* The start of a stop string without the rest is text. */
    text = start(&(sh_answer_text_opts){.stops = &stop, .stop_count = 1});
    count = say(text, "every layer acr");
    assert_true(sh_answer_text_settled(text) < count);
    sh_answer_text_finish(text);
    assert_int_equal(sh_answer_text_settled(text), count);
    sh_answer_text_free(text);
}

#define CALL "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>"

TEST(calls_are_parsed_only_if_the_request_has_tools)
{
    UNUSED_STATE;
    cJSON *tools = cJSON_Parse("[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]");
    sh_answer_text *text = start(&(sh_answer_text_opts){.chat = true, .tools = tools});
    say(text, CALL CALL);
    end(text, "b(f)a({})e()b(f)a({})e()", "tool_calls");
    text = one_call = start(&(sh_answer_text_opts){.chat = true, .tools = tools});
    say(text, CALL CALL);
    end(text, "b(f)a({})e()", "tool_calls");
    one_call = NULL;
    text = start(&(sh_answer_text_opts){.tools = tools});
    say(text, CALL);
    sh_answer_text_finish(text);
    assert_null(strstr(seen.ptr, "b("));
    sh_answer_text_free(text);
    cJSON_Delete(tools);
}

TEST(end_tokens_are_not_text)
{
    UNUSED_STATE;
    sh_answer_text *text = start(&(sh_answer_text_opts){.chat = true});
    say(text, "a<|im_end|>b");
    sh_answer_text_finish(text);
    assert_null(strstr(seen.ptr, "im_end"));
    assert_false(sh_answer_text_in_reasoning(text));
    sh_answer_text_free(text);
}

/* Decoders of SentencePiece strip the space before the first word of a text. */
TEST(an_answer_that_goes_on_keeps_its_first_space)
{
    UNUSED_STATE;
    sh_model_text *demo = model;
    sh_model_text_opts opts = {.parts = SH_MODEL_TEXT_TOKENS,
                               .tokenizer = "tests/data/tokenizers/spm-legacy.json"};
    CHECK_OK(sh_model_text_open(NULL, &opts, &model, &err), err);
    sh_ids word = {0};
    CHECK_OK(sh_model_text_encode(model, SH_STR("Hello"), true, &word, &err), err);
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        sh_answer_text *text = start(&(sh_answer_text_opts){
            .chat = true, .prompt = word.ptr, .prompt_count = goes_on == 1 ? word.len : 0});
        for (size_t i = 0; i < word.len; i++) sh_answer_text_push(text, word.ptr[i]);
        sh_answer_text_finish(text);
        assert_int_equal(seen.ptr[2] == ' ', goes_on);
        sh_answer_text_free(text);
    }
    sh_ids_reset(&word);
    sh_model_text_close(model);
    model = demo;
}

TEST(wrong_stop_strings_are_refused)
{
    UNUSED_STATE;
    sh_str empty = SH_STR("");
    sh_answer_text *text = NULL;
    sh_answer_text_opts opts = {.stops = &empty, .stop_count = 1};
    CHECK_FAILS(sh_answer_text_create(model, &opts, on_event, NULL, &text, &err), err, "stop");
    assert_null(text);
}

static int open_model(void **state)
{
    UNUSED_STATE;
    return sh_model_text_open("models/demo", &(sh_model_text_opts){0}, &model, &err) != SH_OK;
}

static int close_model(void **state)
{
    UNUSED_STATE;
    sh_model_text_close(model);
    sh_buf_reset(&seen);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_ends_the_text_and_consumes_its_tokens),
        cmocka_unit_test(calls_are_parsed_only_if_the_request_has_tools),
        cmocka_unit_test(end_tokens_are_not_text),
        cmocka_unit_test(an_answer_that_goes_on_keeps_its_first_space),
        cmocka_unit_test(wrong_stop_strings_are_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
