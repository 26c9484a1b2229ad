/* What LocalAI's messages become: the JSON of a request, and the settings of a model. */
#include "api/localai.h"
#include "base/log.h"
#include "grpc/frame.h"

#include "test.h"

#include <math.h>

static sh_api_error error;

static char *json_of(const Backend__PredictOptions *in,
                     bool (*parse)(sh_str, cJSON **, sh_api_error *))
{
    sh_buf wire = {0};
    cJSON *json = NULL;
    sh_message_frame(&in->base, &wire);
    bool fine = parse(sh_str_sub(sh_buf_str(&wire), SH_GRPC_PREFIX, wire.len), &json, &error);
    char *text = fine ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    sh_buf_reset(&wire);
    return text;
}

static void check_json(const Backend__PredictOptions *in, const char *want)
{
    char *text = json_of(in, sh_localai_parse_predict);
    if (text == NULL) fail_msg("%s", error.message);
    assert_string_equal(text, want);
    cJSON_free(text);
}

static void check_refused(const Backend__PredictOptions *in, const char *why)
{
    assert_null(json_of(in, sh_localai_parse_predict));
    if (strstr(error.message, why) == NULL) fail_msg("no '%s' in '%s'", why, error.message);
}

TEST(a_prompt_is_a_completion_and_zeros_are_defaults)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    in.prompt = "Once";
    in.threads = 4; /* without effect */
    in.seed = -1;
    in.tokens = -1;
    check_json(&in, "{\"prompt\":\"Once\"}");
    in.temperature = 0.7F;
    in.topp = 0.95F;
    in.minp = 0.05F;
    in.topk = 40;
    in.penalty = 1.1F;
    in.repeat = 64;
    in.seed = 3;
    in.tokens = 9;
    in.logprobs = 2;
    in.ignoreeos = true;
    in.logitbias = "{\"5\":-100}";
    check_json(&in, "{\"temperature\":0.7,\"top_p\":0.95,\"min_p\":0.05,\"repetition_penalty\":1.1,"
                    "\"top_k\":40,\"repetition_context_size\":64,\"seed\":3,\"max_tokens\":9,"
                    "\"ignore_eos\":true,\"logprobs\":2,\"logit_bias\":{\"5\":-100},"
                    "\"prompt\":\"Once\"}");
}

TEST(messages_are_a_chat_if_the_template_is_ours)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    Backend__Message user = BACKEND__MESSAGE__INIT, calls = BACKEND__MESSAGE__INIT;
    Backend__Message *messages[] = {&user, &calls};
    Backend__PredictOptions__MetadataEntry thinks = BACKEND__PREDICT_OPTIONS__METADATA_ENTRY__INIT;
    Backend__PredictOptions__MetadataEntry *metadata[] = {&thinks};
    user.role = "user";
    user.content = "Hi";
    calls.role = "assistant";
    calls.tool_calls = "[{\"id\":\"1\"}]";
    thinks.key = "enable_thinking";
    thinks.value = "false";
    in.prompt = "rendered by LocalAI";
    in.n_messages = 2;
    in.messages = messages;
    in.n_metadata = 1;
    in.metadata = metadata;
    check_json(&in, "{\"prompt\":\"rendered by LocalAI\"}");
    in.usetokenizertemplate = true;
    in.toplogprobs = 3;
    in.tools = "[]";
    in.toolchoice = "none";
    check_json(&in, "{\"logprobs\":true,\"top_logprobs\":3,\"messages\":[{\"role\":\"user\","
                    "\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":["
                    "{\"id\":\"1\"}]}],\"enable_thinking\":false,\"tools\":[],"
                    "\"tool_choice\":\"none\"}");
    in.toolchoice = "{\"type\":";
    check_refused(&in, "ToolChoice");
    in.toolchoice = "";
    calls.tool_calls = "[";
    check_refused(&in, "Messages.tool_calls");
}

TEST(what_cannot_be_answered_is_refused)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    char *images[] = {"aGk="};
    check_refused(&in, "Prompt is empty");
    in.prompt = "x";
    in.n_images = 1;
    in.images = images;
    check_refused(&in, "Images");
    cJSON *json = NULL;
    assert_false(sh_localai_parse_stream((sh_str){"\x0A\5x", 3}, &json, &error));
    cJSON_Delete(json);
}

TEST(an_embedding_is_of_text_or_of_tokens)
{
    UNUSED_STATE;
    Backend__PredictOptions in = BACKEND__PREDICT_OPTIONS__INIT;
    int32_t ids[] = {5, 6};
    in.embeddings = "a text";
    char *text = json_of(&in, sh_localai_parse_embedding);
    assert_string_equal(text, "{\"input\":\"a text\"}");
    cJSON_free(text);
    in.n_embeddingtokens = 2;
    in.embeddingtokens = ids;
    text = json_of(&in, sh_localai_parse_embedding);
    assert_string_equal(text, "{\"input\":[5,6]}");
    cJSON_free(text);
    in = (Backend__PredictOptions)BACKEND__PREDICT_OPTIONS__INIT;
    assert_null(json_of(&in, sh_localai_parse_embedding));
}

static sh_status wish_of(char **options, size_t count, sh_localai_wish *wish, sh_err *err)
{
    Backend__ModelOptions in = BACKEND__MODEL_OPTIONS__INIT;
    in.model = "org/name";
    in.modelfile = "/nowhere/org/name";
    in.contextsize = 4096;
    in.n_options = count;
    in.options = options;
    return sh_localai_wish_read(&in, wish, err);
}

TEST(a_context_that_cannot_be_is_refused)
{
    UNUSED_STATE;
    static const int32_t sizes[] = {-1, INT32_MIN, INT32_MAX, (1 << 24) + 1};
    sh_err err;
    for (size_t i = 0; i < SH_COUNT_OF(sizes); i++) {
        Backend__ModelOptions in = BACKEND__MODEL_OPTIONS__INIT;
        sh_localai_wish wish;
        in.model = "org/name";
        in.contextsize = sizes[i];
        assert_int_equal(sh_localai_wish_read(&in, &wish, &err), SH_ERR_INPUT);
        assert_non_null(strstr(err.text, "ContextSize must be from 0 to 16777216"));
        sh_localai_wish_reset(&wish);
    }
}

TEST(options_of_a_model_are_settings_defaults_or_named)
{
    UNUSED_STATE;
    sh_localai_wish wish;
    sh_err err;
    char *options[] = {"hostfile:/etc/hosts.json",
                       "distributed_backend: ring",
                       "temp:0.5",
                       "top_k:20",
                       "max_tokens:100",
                       "seed:0",
                       "trust_remote_code:true",
                       "strange:1:2"};
    assert_int_equal(wish_of(options, SH_COUNT_OF(options), &wish, &err), SH_OK);
    char *text = cJSON_PrintUnformatted(wish.settings);
    assert_string_equal(text, "{\"model\":\"org/name\",\"context\":\"4096\","
                              "\"hostfile\":\"/etc/hosts.json\",\"backend\":\"ring\"}");
    cJSON_free(text);
    assert_true(wish.sampling.temperature == 0.5 && isnan(wish.sampling.top_p));
    assert_int_equal(wish.sampling.top_k, 20);
    assert_int_equal(wish.sampling.seed, 0);
    assert_int_equal(wish.max_tokens, 100);
    assert_non_null(strstr(wish.notes.ptr, "trust_remote_code: models are data"));
    assert_non_null(strstr(wish.notes.ptr, "strange: not an option"));
    sh_localai_wish_reset(&wish);
    assert_true(sh_localai_sampling().temperature == 0);
}

TEST(a_wrong_value_of_an_option_is_an_error)
{
    UNUSED_STATE;
    static char *bad[] = {"temperature:hot", "top_p:2", "top_k:1.5", "max_tokens:-1", "seed:"};
    for (size_t i = 0; i < SH_COUNT_OF(bad); i++) {
        sh_localai_wish wish;
        sh_err err;
        assert_int_equal(wish_of(&bad[i], 1, &wish, &err), SH_ERR_INPUT);
        assert_non_null(strstr(err.text, "must be a"));
        sh_localai_wish_reset(&wish);
    }
}

TEST(errors_have_the_codes_of_grpc)
{
    UNUSED_STATE;
    static const struct {
        int status;
        sh_grpc_code code;
    } cases[] = {{400, SH_GRPC_INVALID_ARGUMENT},   {409, SH_GRPC_FAILED_PRECONDITION},
                 {429, SH_GRPC_RESOURCE_EXHAUSTED}, {501, SH_GRPC_UNIMPLEMENTED},
                 {503, SH_GRPC_UNAVAILABLE},        {504, SH_GRPC_DEADLINE_EXCEEDED},
                 {422, SH_GRPC_INVALID_ARGUMENT},   {505, SH_GRPC_INTERNAL}};
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_buf out = {0};
        sh_grpc_code code;
        sh_str text;
        sh_api_fail(&error, cases[i].status, "x", NULL, "why");
        sh_localai_write_error(&error, &out);
        assert_true(sh_grpc_status_read(sh_buf_str(&out), &code, &text));
        assert_int_equal(code, cases[i].code);
        assert_true(sh_str_is(text, "why"));
        sh_buf_reset(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_a_completion_and_zeros_are_defaults),
        cmocka_unit_test(messages_are_a_chat_if_the_template_is_ours),
        cmocka_unit_test(what_cannot_be_answered_is_refused),
        cmocka_unit_test(an_embedding_is_of_text_or_of_tokens),
        cmocka_unit_test(a_context_that_cannot_be_is_refused),
        cmocka_unit_test(options_of_a_model_are_settings_defaults_or_named),
        cmocka_unit_test(a_wrong_value_of_an_option_is_an_error),
        cmocka_unit_test(errors_have_the_codes_of_grpc),
    };
    sh_log_set_level(SH_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
