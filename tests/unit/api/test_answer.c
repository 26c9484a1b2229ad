/* Events as an engine would send them, with the tokens of the demo model. What a client would
 * receive is parsed by cJSON and put together again. */
#include "api/answer.h"
#include "api/answer_blocks.h"
#include "api/openai.h"

#include "test.h"

#include <math.h>

static sh_served_model *served;
static sh_job_spec request;
static sh_tokens *prompts;
static sh_answer *answer;
static sh_buf streamed; /* all events of the stream */
static bool stream_on;

static void start(const sh_job_format *format, const char *body)
{
    sh_api_error error = {0};
    sh_err err;
    size_t count;
    sh_answer_free(answer);
    answer = NULL;
    sh_job_spec_reset(&request);
    sh_buf_clear(&streamed);
    request.json = cJSON_Parse(body);
    assert_non_null(request.json);
    if (!format->read(&request, &error)) fail_msg("%s", error.message);
    if (!sh_served_model_prepare(served, &request, &prompts, &count, &error))
        fail_msg("%s", error.message);
    CHECK_OK(sh_answer_create(&request, served, prompts, count, &answer, &err), err);
    snprintf(answer->id, sizeof(answer->id), "chatcmpl-1");
    stream_on = request.stream;
}

static void tell(const sh_job_format *format, sh_choice *choice)
{
    if (!stream_on || choice->over || (!sh_choice_has_pending(choice) && !choice->done)) return;
    format->part(answer, choice, &streamed);
    sh_choice_sent(choice);
}

/* Sends one token; true when the choice asks to be cancelled. */
static bool token(const sh_job_format *format, int choice, int32_t id)
{
    sh_event event = {.kind = SH_EVENT_TOKEN, .token = id, .logprob = -0.5f, .top_count = 1};
    event.top[0] = (sh_token_logprob){id, -0.5f};
    bool cancel = sh_answer_event(answer, &answer->choices[choice], &event);
    tell(format, &answer->choices[choice]);
    return cancel;
}

/* Sends all tokens of a text. Returns their number, negative when the last one asked to cancel. */
static int say(const sh_job_format *format, int choice, const char *text)
{
    sh_ids ids = {0};
    sh_err err;
    sh_encode_opts opts = {.parse_special = true};
    CHECK_OK(
        sh_tokenizer_encode(sh_served_model_tokenizer(served), sh_str_of(text), opts, &ids, &err),
        err);
    int count = 0;
    bool cancel = false;
    for (size_t i = 0; i < ids.len && !cancel; i++, count++)
        cancel = token(format, choice, ids.ptr[i]);
    sh_ids_reset(&ids);
    return cancel ? -count : count;
}

static void done(const sh_job_format *format, int choice, sh_finish finish)
{
    sh_event event = {.kind = SH_EVENT_DONE,
                      .finish = finish,
                      .cached_tokens = 3,
                      .queue_s = 0.1,
                      .prefill_s = 0.2,
                      .decode_s = 0.4};
    sh_answer_event(answer, &answer->choices[choice], &event);
    tell(format, &answer->choices[choice]);
}

static cJSON *whole(const sh_job_format *format)
{
    sh_buf text = {0};
    format->whole(answer, &text);
    cJSON *json = cJSON_Parse(text.ptr);
    assert_non_null(json);
    sh_buf_reset(&text);
    return json;
}

/* "choices.0.message.content" */
static const cJSON *at(const cJSON *json, const char *path)
{
    sh_str rest = sh_str_of(path), part;
    while (json != NULL && sh_str_cut(&rest, '.', &part)) {
        char key[64];
        snprintf(key, sizeof(key), "%.*s", (int)part.len, part.ptr);
        int64_t index;
        json = cJSON_IsArray(json) && sh_str_to_int(part, &index)
                   ? cJSON_GetArrayItem(json, (int)index)
                   : cJSON_GetObjectItemCaseSensitive(json, key);
    }
    return json;
}

static const char *text_at(const cJSON *json, const char *path)
{
    return cJSON_GetStringValue(at(json, path));
}

/* What a client makes of the stream: one field of all deltas of a choice, joined. */
static void joined(const char *path, int choice, sh_buf *out)
{
    sh_str rest = sh_buf_str(&streamed), line;
    sh_buf_clear(out);
    sh_buf_add_text(out, "");
    while (sh_str_cut(&rest, '\n', &line)) {
        if (line.len == 0 || sh_str_is(line, "data: [DONE]")) continue;
        assert_true(sh_str_starts(line, SH_STR("data: ")));
        char *copy = sh_str_dup(sh_str_sub(line, 6, line.len));
        cJSON *json = cJSON_Parse(copy);
        assert_non_null(json);
        const cJSON *first = at(json, "choices.0");
        if (first != NULL && at(first, "index")->valueint == choice && text_at(first, path) != NULL)
            sh_buf_add_text(out, text_at(first, path));
        cJSON_Delete(json);
        free(copy);
    }
}

static void check_joined(const char *path, int choice, const char *expected)
{
    sh_buf text = {0};
    joined(path, choice, &text);
    assert_string_equal(text.ptr == NULL ? "" : text.ptr, expected);
    sh_buf_reset(&text);
}

#define CHAT(fields) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" fields "}"
#define STREAM ",\"stream\":true"
#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{"   \
    "\"type\":\"object\"}}}]"
#define CALL                                                                                       \
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>"

TEST(gives_a_whole_answer)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(",\"conversation_id\":\"c1\""));
    int count = say(&sh_openai_chat, 0, "Hello, w\xc3\xb6rld \xf0\x9f\x90\x9f!");
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.message.content"),
                        "Hello, w\xc3\xb6rld \xf0\x9f\x90\x9f!");
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "stop");
    assert_string_equal(text_at(json, "object"), "chat.completion");
    assert_string_equal(text_at(json, "model"), "demo");
    assert_string_equal(text_at(json, "conversation_id"), "c1");
    assert_int_equal(at(json, "usage.completion_tokens")->valueint, count);
    assert_int_equal(at(json, "usage.prompt_tokens")->valueint, (int)prompts[0].count);
    assert_int_equal(at(json, "usage.prompt_tokens_details.cached_tokens")->valueint, 3);
    assert_true(cJSON_IsTrue(at(json, "performance.cache_hit")));
    assert_non_null(at(json, "timing.tokens_per_sec"));
    cJSON_Delete(json);
}

TEST(streams_the_same_text_in_pieces)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(STREAM ",\"stream_options\":{\"include_usage\":true}"));
    say(&sh_openai_chat, 0, "Hello, w\xc3\xb6rld \xf0\x9f\x90\x9f!");
    done(&sh_openai_chat, 0, SH_FINISH_LENGTH);
    sh_openai_chat.end(answer, &streamed);
    check_joined("delta.content", 0, "Hello, w\xc3\xb6rld \xf0\x9f\x90\x9f!");
    check_joined("delta.role", 0, "assistant");
    check_joined("finish_reason", 0, "length");
    assert_true(sh_str_ends(sh_buf_str(&streamed), SH_STR("data: [DONE]\n\n")));
    assert_non_null(strstr(streamed.ptr, "\"choices\":[],\"usage\":{\"prompt_tokens\""));
}

TEST(accumulates_what_a_slow_client_has_not_read)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(STREAM));
    say(&sh_openai_chat, 0, "One");
    stream_on = false; /* blocked */
    say(&sh_openai_chat, 0, " two three four five");
    stream_on = true;
    say(&sh_openai_chat, 0, " six");
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    check_joined("delta.content", 0, "One two three four five six");
    check_joined("finish_reason", 0, "stop");
}

TEST(ends_before_a_stop_string_wherever_tokens_are_cut)
{
    UNUSED_STATE;
    for (int streaming = 0; streaming < 2; streaming++) {
        start(&sh_openai_chat, streaming ? CHAT(STREAM ",\"stop\":[\"the end\",\"END\"]")
                                         : CHAT(",\"stop\":[\"the end\",\"END\"]"));
        assert_true(say(&sh_openai_chat, 0, "This is the ending of it") < 0);
        assert_false(token(&sh_openai_chat, 0, 100)); /* still in flight when it was cancelled */
        done(&sh_openai_chat, 0, SH_FINISH_CANCEL);
        if (streaming) {
            check_joined("delta.content", 0, "This is ");
            check_joined("finish_reason", 0, "stop");
        } else {
            cJSON *json = whole(&sh_openai_chat);
            assert_string_equal(text_at(json, "choices.0.message.content"), "This is ");
            cJSON_Delete(json);
        }
    }
}

TEST(returns_text_that_only_looked_like_a_stop_string)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(STREAM ",\"stop\":\"the end of all\""));
    assert_true(say(&sh_openai_chat, 0, "at the end of a") > 0);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    check_joined("delta.content", 0, "at the end of a");
}

TEST(reports_tool_calls_whole_and_streamed)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TOOLS));
    say(&sh_openai_chat, 0, CALL);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "tool_calls");
    assert_true(cJSON_IsNull(at(json, "choices.0.message.content")));
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.name"),
                        "get_weather");
    cJSON *args = cJSON_Parse(text_at(json, "choices.0.message.tool_calls.0.function.arguments"));
    assert_string_equal(text_at(args, "city"), "Oslo");
    cJSON_Delete(args);
    cJSON_Delete(json);

    start(&sh_openai_chat, CHAT(STREAM TOOLS));
    say(&sh_openai_chat, 0, CALL);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    check_joined("delta.tool_calls.0.function.name", 0, "get_weather");
    check_joined("delta.tool_calls.0.type", 0, "function");
    check_joined("finish_reason", 0, "tool_calls");
    sh_buf text = {0};
    joined("delta.tool_calls.0.function.arguments", 0, &text);
    args = cJSON_Parse(text.ptr);
    assert_string_equal(text_at(args, "city"), "Oslo");
    cJSON_Delete(args);
    sh_buf_reset(&text);
}

TEST(leaves_calls_alone_when_there_are_no_tools)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(""));
    say(&sh_openai_chat, 0, CALL);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "stop");
    assert_string_equal(text_at(json, "choices.0.message.content"), CALL);
    cJSON_Delete(json);
}

TEST(stops_after_the_first_call_when_asked)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TOOLS ",\"parallel_tool_calls\":false"));
    assert_true(say(&sh_openai_chat, 0, CALL "\n" CALL) < 0);
    done(&sh_openai_chat, 0, SH_FINISH_CANCEL);
    cJSON *json = whole(&sh_openai_chat);
    assert_int_equal(cJSON_GetArraySize(at(json, "choices.0.message.tool_calls")), 1);
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "tool_calls");
    cJSON_Delete(json);
}

#define REQUIRED ",\"tool_choice\":\"required\""
#define NAMED ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}}"
#define TWO_TOOLS                                                                                  \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\"}},"                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"get_time\"}}]"

TEST(hides_tools_that_may_not_be_called)
{
    UNUSED_STATE;
    int32_t plain[64];
    start(&sh_openai_chat, CHAT(""));
    size_t count = prompts[0].count;
    assert_true(count < SH_COUNT_OF(plain));
    memcpy(plain, prompts[0].ids, count * sizeof(*plain));
    start(&sh_openai_chat, CHAT(TOOLS ",\"tool_choice\":\"none\""));
    assert_int_equal(prompts[0].count, count);
    assert_memory_equal(prompts[0].ids, plain, count * sizeof(*plain));
    start(&sh_openai_chat, CHAT(TOOLS));
    assert_true(prompts[0].count > count);
}

TEST(a_named_function_is_called_once)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TWO_TOOLS NAMED));
    assert_int_equal(cJSON_GetArraySize(request.tools), 1); /* the prompt shows no other */
    assert_true(say(&sh_openai_chat, 0, CALL "\n" CALL) < 0);
    done(&sh_openai_chat, 0, SH_FINISH_CANCEL);
    cJSON *json = whole(&sh_openai_chat);
    assert_int_equal(cJSON_GetArraySize(at(json, "choices.0.message.tool_calls")), 1);
    assert_true(cJSON_IsNull(at(json, "choices.0.message.content")));
    cJSON_Delete(json);
}

#define CUT_CALL "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci"

TEST(a_call_that_is_cut_is_a_call_with_part_of_its_arguments)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TWO_TOOLS REQUIRED));
    say(&sh_openai_chat, 0, CUT_CALL);
    done(&sh_openai_chat, 0, SH_FINISH_LENGTH);
    assert_false(answer->choices[0].failed);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "length");
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.0.function.arguments"),
                        "{\"ci");
    assert_true(cJSON_IsNull(at(json, "choices.0.message.content")));
    cJSON_Delete(json);

    start(&sh_openai_chat, CHAT(TWO_TOOLS REQUIRED STREAM));
    say(&sh_openai_chat, 0, CUT_CALL);
    done(&sh_openai_chat, 0, SH_FINISH_LENGTH);
    check_joined("delta.tool_calls.0.function.name", 0, "get_weather");
    check_joined("delta.tool_calls.0.function.arguments", 0, "{\"ci");
    check_joined("delta.content", 0, "");
    check_joined("finish_reason", 0, "length");
}

TEST(a_call_that_is_cut_waits_for_no_result)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TWO_TOOLS ",\"stop\":\"ci\""));
    say(&sh_openai_chat, 0, "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n" CUT_CALL);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.finish_reason"), "stop");
    assert_string_equal(text_at(json, "choices.0.message.tool_calls.1.function.arguments"), "{\"");
    cJSON_Delete(json);
}

TEST(numbers_calls_without_gaps_for_broken_ones)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(TWO_TOOLS STREAM));
    say(&sh_openai_chat, 0, "<tool_call>\n{\"name\": 5}\n</tool_call>\n" CALL);
    done(&sh_openai_chat, 0, SH_FINISH_STOP);
    assert_false(answer->choices[0].failed);
    check_joined("delta.tool_calls.0.function.name", 0, "get_weather");
    assert_non_null(strstr(streamed.ptr, "\"tool_calls\":[{\"index\":0,"));
    assert_null(strstr(streamed.ptr, "\"tool_calls\":[{\"index\":1,"));
}

TEST(gives_log_probabilities_with_their_text)
{
    UNUSED_STATE;
    start(&sh_openai_chat, CHAT(",\"logprobs\":true,\"top_logprobs\":1,\"stop\":\" three\""));
    say(&sh_openai_chat, 0, "one two three");
    done(&sh_openai_chat, 0, SH_FINISH_CANCEL);
    cJSON *json = whole(&sh_openai_chat);
    const cJSON *list = at(json, "choices.0.logprobs.content");
    sh_buf text = {0};
    for (const cJSON *entry = list->child; entry != NULL; entry = entry->next) {
        sh_buf_add_text(&text, text_at(entry, "token"));
        assert_true(fabs(at(entry, "logprob")->valuedouble + 0.5) < 1e-6);
        assert_int_equal(cJSON_GetArraySize(at(entry, "top_logprobs")), 1);
        assert_int_equal(cJSON_GetArraySize(at(entry, "bytes")), strlen(text_at(entry, "token")));
    }
    assert_string_equal(text.ptr, "one two");
    sh_buf_reset(&text);
    cJSON_Delete(json);
}

TEST(numbers_several_answers_to_several_prompts)
{
    UNUSED_STATE;
    start(&sh_openai_completion, "{\"prompt\":[\"one\",\"two\"],\"n\":2,\"echo\":true}");
    static const char *const texts[] = {" a", " b", " c", " d"};
    for (int i = 3; i >= 0; i--) {
        say(&sh_openai_completion, i, texts[i]);
        done(&sh_openai_completion, i, SH_FINISH_LENGTH);
    }
    assert_int_equal(answer->open, 0);
    cJSON *json = whole(&sh_openai_completion);
    assert_int_equal(cJSON_GetArraySize(at(json, "choices")), 4);
    assert_string_equal(text_at(json, "choices.0.text"), "one a");
    assert_string_equal(text_at(json, "choices.3.text"), "two d");
    assert_int_equal(at(json, "usage.prompt_tokens")->valueint,
                     (int)(prompts[0].count + prompts[1].count));
    cJSON_Delete(json);
}

TEST(lists_log_probabilities_of_completions_in_parallel_arrays)
{
    UNUSED_STATE;
    start(&sh_openai_completion, "{\"prompt\":\"one\",\"logprobs\":1}");
    int count = say(&sh_openai_completion, 0, " two three");
    done(&sh_openai_completion, 0, SH_FINISH_LENGTH);
    cJSON *json = whole(&sh_openai_completion);
    const cJSON *logprobs = at(json, "choices.0.logprobs");
    static const char *const keys[] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};
    for (size_t i = 0; i < SH_COUNT_OF(keys); i++)
        assert_int_equal(cJSON_GetArraySize(at(logprobs, keys[i])), count);
    assert_int_equal(at(logprobs, "text_offset.0")->valueint, 0);
    assert_int_equal(at(logprobs, "text_offset.1")->valueint,
                     (int)strlen(text_at(logprobs, "tokens.0")));
    cJSON_Delete(json);
}

/* Every token's text is found in the whole text at its offset. */
static void check_offsets(const char *body, const char *shown)
{
    const int32_t *ends = sh_model_text_end_ids(sh_served_model_text(served))->ptr;
    start(&sh_openai_completion, body);
    say(&sh_openai_completion, 0, " tw\xc3\xb6");
    token(&sh_openai_completion, 0, ends[0]);
    token(&sh_openai_completion, 0, 4086); /* <|im_start|> */
    say(&sh_openai_completion, 0, " \xf0\x9f\xa6\x8a three");
    done(&sh_openai_completion, 0, SH_FINISH_LENGTH);
    cJSON *json = whole(&sh_openai_completion);
    assert_string_equal(text_at(json, "choices.0.text"), shown);
    const cJSON *tokens = at(json, "choices.0.logprobs.tokens");
    const cJSON *offset = at(json, "choices.0.logprobs.text_offset.0"), *piece;
    cJSON_ArrayForEach(piece, tokens)
    {
        const char *place = shown;
        for (int left = offset->valueint; left > 0; left--) do
                place++;
            while ((*place & 0xC0) == 0x80);
        bool special = piece->valuestring[0] == '<';
        bool part = strstr(piece->valuestring, "\xef\xbf\xbd") != NULL; /* of a character */
        if (!special && !part &&
            strncmp(place, piece->valuestring, strlen(piece->valuestring)) != 0)
            fail_msg("'%s' is not at %d: '%s'", piece->valuestring, offset->valueint, place);
        offset = offset->next;
    }
    assert_null(offset);
    cJSON_Delete(json);
}

TEST(gives_offsets_of_tokens_around_special_ones)
{
    UNUSED_STATE;
    check_offsets("{\"prompt\":\"one\",\"logprobs\":1,\"ignore_eos\":true}",
                  " tw\xc3\xb6 \xf0\x9f\xa6\x8a three");
}

static void check_echoed_offsets(const char *prompt, const char *expected)
{
    char body[256];
    snprintf(body, sizeof(body), "{\"prompt\":%s,\"max_tokens\":0,\"echo\":true,\"logprobs\":1}",
             prompt);
    start(&sh_openai_completion, body);
    for (size_t i = 1; i < prompts[0].count; i++) {
        sh_event event = {.kind = SH_EVENT_PROMPT_TOKEN, .token = prompts[0].ids[i]};
        sh_answer_event(answer, &answer->choices[0], &event);
    }
    done(&sh_openai_completion, 0, SH_FINISH_LENGTH);
    cJSON *json = whole(&sh_openai_completion);
    char *offsets = cJSON_PrintUnformatted(at(json, "choices.0.logprobs.text_offset"));
    assert_string_equal(offsets, expected);
    cJSON_free(offsets);
    cJSON_Delete(json);
}

TEST(gives_offsets_in_the_prompt_as_it_is_echoed)
{
    UNUSED_STATE;
    check_echoed_offsets("\"<|im_start|>user\\nhi<|im_end|>\\n\"", "[0,12,16,17,19,29]");
    check_echoed_offsets("[4086,4086,220]", "[0,0,0]"); /* the text of ids has no special tokens */
}

TEST(keeps_an_answer_whose_engine_dies_after_its_end)
{
    UNUSED_STATE;
    sh_event event = {.kind = SH_EVENT_ERROR};
    sh_err_set(&event.error, SH_ERR_PEER, "the engine is gone");
    start(&sh_openai_chat, CHAT(",\"stop\":\"stop\""));
    assert_true(say(&sh_openai_chat, 0, "please stop") < 0);
    sh_answer_event(answer, &answer->choices[0], &event);
    assert_false(answer->choices[0].failed);
    assert_true(answer->choices[0].done);

    start(&sh_openai_chat, CHAT(""));
    say(&sh_openai_chat, 0, "please");
    sh_answer_event(answer, &answer->choices[0], &event);
    assert_true(answer->choices[0].failed);
    assert_int_equal(answer->choices[0].error.status, 503);
}

TEST(keeps_special_tokens_out_of_the_text)
{
    UNUSED_STATE;
    const sh_ids *ends = sh_model_text_end_ids(sh_served_model_text(served));
    assert_true(ends->len >= 2);
    start(&sh_openai_chat, CHAT(",\"ignore_eos\":true"));
    say(&sh_openai_chat, 0, "one");
    token(&sh_openai_chat, 0, ends->ptr[0]);
    token(&sh_openai_chat, 0, 4086); /* <|im_start|> */
    say(&sh_openai_chat, 0, " two");
    done(&sh_openai_chat, 0, SH_FINISH_LENGTH);
    cJSON *json = whole(&sh_openai_chat);
    assert_string_equal(text_at(json, "choices.0.message.content"), "one two");
    cJSON_Delete(json);
}

TEST(refuses_prompts_longer_than_the_context)
{
    UNUSED_STATE;
    sh_api_error error;
    size_t count;
    sh_buf body = {0};
    sh_buf_add_text(&body, "{\"prompt\":\"");
    for (int i = 0; i < 3000; i++) sh_buf_add_text(&body, "word ");
    sh_buf_add_text(&body, "\"}");
    sh_job_spec_reset(&request);
    request.json = cJSON_Parse(body.ptr);
    assert_true(sh_openai_completion.read(&request, &error));
    assert_false(sh_served_model_prepare(served, &request, &prompts, &count, &error));
    assert_string_equal(error.code, "context_length_exceeded");
    assert_non_null(strstr(error.message, "2048"));
    sh_buf_reset(&body);
}

/* ---- blocks ---- */

static void on_begin(void *ctx, sh_block_kind kind, const sh_call *call)
{
    sh_buf_addf(ctx, "%c%s(", "-RTC"[kind], call == NULL ? "" : call->name);
}

static void on_delta(void *ctx, sh_block_kind kind, sh_str text)
{
    (void)kind;
    sh_buf_add_str(ctx, text);
}

static void on_end(void *ctx, sh_block_kind kind)
{
    (void)kind;
    sh_buf_add_text(ctx, ")");
}

/* What has arrived together is reported in the order in which a model writes it; and a call that is
 * open gets its arguments before anything else begins. */
TEST(walks_over_output_block_by_block)
{
    UNUSED_STATE;
    static const sh_block_fns fns = {on_begin, on_delta, on_end};
    sh_call calls[] = {{.name = "f"}, {0}, {.name = "g"}}; /* the second one was dropped */
    sh_choice choice = {.calls = calls, .call_count = 1};
    sh_block_walk walk = {0};
    sh_buf seen = {0};
    sh_buf_add_text(&choice.reasoning, "r");
    sh_buf_add_text(&choice.content, "t");
    sh_buf_add_text(&calls[0].args, "1");
    sh_blocks_walk(&walk, &choice, &fns, &seen);
    sh_choice_sent(&choice);
    sh_buf_add_text(&calls[0].args, "2");
    sh_buf_add_text(&choice.content, "u");
    sh_buf_add_text(&calls[2].args, "3");
    choice.call_count = 3;
    sh_blocks_walk(&walk, &choice, &fns, &seen);
    sh_blocks_close(&walk, &fns, &seen);
    sh_blocks_close(&walk, &fns, &seen);
    assert_string_equal(seen.ptr, "R(r)T(t)Cf(12)T(u)Cg(3)");
    assert_int_equal(walk.index, 5);
    for (size_t i = 0; i < SH_COUNT_OF(calls); i++) sh_buf_reset(&calls[i].args);
    sh_buf_reset(&choice.reasoning);
    sh_buf_reset(&choice.content);
    sh_buf_reset(&seen);
}

static int open_model(void **state)
{
    UNUSED_STATE;
    sh_err err;
    sh_engine_info info = {.model_dir = "models/demo/", .vocab = 4096, .context = 2048};
    CHECK_OK(sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err), err);
    return 0;
}

static int close_model(void **state)
{
    UNUSED_STATE;
    sh_answer_free(answer);
    sh_job_spec_reset(&request);
    sh_buf_reset(&streamed);
    sh_served_model_close(served);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_a_whole_answer),
        cmocka_unit_test(streams_the_same_text_in_pieces),
        cmocka_unit_test(accumulates_what_a_slow_client_has_not_read),
        cmocka_unit_test(ends_before_a_stop_string_wherever_tokens_are_cut),
        cmocka_unit_test(returns_text_that_only_looked_like_a_stop_string),
        cmocka_unit_test(reports_tool_calls_whole_and_streamed),
        cmocka_unit_test(leaves_calls_alone_when_there_are_no_tools),
        cmocka_unit_test(stops_after_the_first_call_when_asked),
        cmocka_unit_test(hides_tools_that_may_not_be_called),
        cmocka_unit_test(a_named_function_is_called_once),
        cmocka_unit_test(a_call_that_is_cut_is_a_call_with_part_of_its_arguments),
        cmocka_unit_test(a_call_that_is_cut_waits_for_no_result),
        cmocka_unit_test(numbers_calls_without_gaps_for_broken_ones),
        cmocka_unit_test(gives_log_probabilities_with_their_text),
        cmocka_unit_test(numbers_several_answers_to_several_prompts),
        cmocka_unit_test(lists_log_probabilities_of_completions_in_parallel_arrays),
        cmocka_unit_test(gives_offsets_of_tokens_around_special_ones),
        cmocka_unit_test(gives_offsets_in_the_prompt_as_it_is_echoed),
        cmocka_unit_test(keeps_an_answer_whose_engine_dies_after_its_end),
        cmocka_unit_test(keeps_special_tokens_out_of_the_text),
        cmocka_unit_test(refuses_prompts_longer_than_the_context),
        cmocka_unit_test(walks_over_output_block_by_block),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
