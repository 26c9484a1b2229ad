/* Requests for embeddings from their JSON to token ids, and vectors back to JSON. */
#include "api/vectors.h"

#include "api/ollama.h"
#include "api/openai.h"
#include "api/served_model.h"

#include "test.h"

#include <math.h>

enum { WIDTH = 32, CONTEXT = 40 };

static sh_served_model *served;
static sh_job_spec spec;
static sh_tokens *tokens;
static size_t count;

static int model_open(void **state)
{
    UNUSED_STATE;
    sh_err err;
    sh_engine_info info = {.model_dir = "tests/data/encoders/modernbert-mean",
                           .vocab = 316,
                           .context = CONTEXT,
                           .headless = true,
                           .vector_len = WIDTH,
                           .normalized = true};
    CHECK_OK(sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err), err);
    return 0;
}

static int model_close(void **state)
{
    UNUSED_STATE;
    sh_job_spec_reset(&spec);
    sh_served_model_close(served);
    return 0;
}

static bool read_as(const sh_job_format *format, const char *body, sh_api_error *error)
{
    sh_err err;
    sh_job_spec_reset(&spec);
    CHECK_OK(sh_json_parse(sh_str_of(body), "body", &spec.json, &err), err);
    return format->read(&spec, error) && sh_served_model_check_task(served, &spec, error) &&
           sh_served_model_prepare(served, &spec, &tokens, &count, error);
}

static void taken(const char *body)
{
    sh_api_error error;
    if (!read_as(&sh_openai_embeddings, body, &error)) fail_msg("%s: %s", body, error.message);
}

static void refused(const char *body, const char *param, const char *part)
{
    sh_api_error error;
    if (read_as(&sh_openai_embeddings, body, &error)) fail_msg("%s was taken", body);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.param, param);
    if (strstr(error.message, part) == NULL) fail_msg("'%s' is not in '%s'", part, error.message);
}

TEST(inputs_have_four_forms)
{
    UNUSED_STATE;
    taken("{\"input\":\"fish\"}");
    assert_int_equal(count, 1);
    size_t one = tokens[0].count;
    assert_int_equal(tokens[0].ids[0], 0);       /* [CLS] */
    assert_int_equal(tokens[0].ids[one - 1], 2); /* [SEP] */
    taken("{\"input\":[\"fish\",\"fish fish\"]}");
    assert_int_equal(count, 2);
    assert_int_equal(tokens[0].count, one);
    taken("{\"input\":[7,8,9]}");
    assert_int_equal(count, 1);
    assert_int_equal(tokens[0].count, 3);
    taken("{\"input\":[[7,8],[9],\"fish\"]}");
    assert_int_equal(count, 3);
    assert_int_equal(tokens[1].ids[0], 9);
}

TEST(what_is_wrong_is_named_with_its_index)
{
    UNUSED_STATE;
    sh_buf body = {0};
    refused("{}", "input", "input");
    refused("{\"input\":[]}", "input", "0 entries; 1 to 2048");
    refused("{\"input\":[\"a\",true]}", "input[1]", "must be a text");
    refused("{\"input\":[[1],[1.5]]}", "input[1]", "whole numbers");
    refused("{\"input\":[[1],[316]]}", "input[1]", "the vocabulary has 0 to 315");
    refused("{\"input\":[[1],[]]}", "input[1]", "is empty");
    refused("{\"input\":[[]]}", "input[0]", "is empty");
    refused("{\"input\":[{\"text\":\"a\"}]}", "input[0]", "must be a text");
    refused("{\"input\":\"a\",\"encoding_format\":\"int8\"}", "encoding_format", "int8");
    refused("{\"input\":\"a\",\"dimensions\":9}", "dimensions", "can be shortened to 8, 16");
    refused("{\"input\":\"a\",\"dimensions\":33}", "dimensions", "have 32");
    refused("{\"input\":\"a\",\"prompt_name\":\"x\"}", "prompt_name", "it has: document, query");
    sh_buf_add_text(&body, "{\"input\":[\"a\"");
    for (int i = 0; i < 2048; i++) sh_buf_add_text(&body, ",\"a\"");
    sh_buf_add_text(&body, "]}");
    refused(body.ptr, "input", "2049 entries");
    sh_buf_reset(&body);
}

TEST(long_inputs_are_refused_or_cut_before_their_last_token)
{
    UNUSED_STATE;
    const char *text = "fish fish fish fish fish fish fish fish fish fish fish fish fish fish fish "
                       "fish fish fish fish fish fish fish fish fish";
    char body[512];
    snprintf(body, sizeof(body), "{\"input\":[\"a\",\"%s\"]}", text);
    refused(body, "input[1]", "tokens; the model takes at most 40");
    for (int most = -1; most <= CONTEXT; most += 12) {
        if (most == 0) continue;
        snprintf(body, sizeof(body), "{\"input\":\"%s\",\"truncate_prompt_tokens\":%d}", text,
                 most);
        taken(body);
        assert_int_equal(tokens[0].count, most < 0 ? CONTEXT : most);
        assert_int_equal(tokens[0].ids[tokens[0].count - 1], 2);
    }
    taken("{\"input\":[5,6,7,8],\"truncate_prompt_tokens\":3}"); /* ids are as they are */
    assert_int_equal(tokens[0].count, 3);
    assert_int_equal(tokens[0].ids[2], 7);
}

TEST(vectors_are_numbers_or_bytes_and_keep_their_length)
{
    UNUSED_STATE;
    float vector[WIDTH] = {0.6f, -0.48f, 0.64f}, eight[WIDTH];
    sh_choice choice = {.vector = vector, .vector_len = WIDTH};
    sh_answer answer = {.spec = &spec, .served = served};
    sh_buf out = {0};
    vector[WIDTH - 1] = 1e-9f;
    taken("{\"input\":\"a\",\"dimensions\":8}");
    memcpy(eight, vector, sizeof(eight));
    eight[7] = 3;
    choice.vector = eight;
    sh_vector_write(&answer, &choice, &out);
    cJSON *json = cJSON_Parse(out.ptr);
    assert_int_equal(cJSON_GetArraySize(json), 8);
    double squares = 0;
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        squares += item->valuedouble * item->valuedouble;
    assert_true(fabs(squares - 1) < 1e-6);
    cJSON_Delete(json);
    sh_buf_clear(&out);
    taken("{\"input\":\"a\",\"encoding_format\":\"base64\"}");
    choice.vector = vector;
    choice.vector_len = 2;
    sh_vector_write(&answer, &choice, &out);
    assert_string_equal(out.ptr, "\"mpkZP4/C9b4=\"");
    sh_buf_clear(&out);
    taken("{\"input\":\"a\"}");
    vector[1] = NAN;
    sh_vector_write(&answer, &choice, &out);
    assert_string_equal(out.ptr, "[0.600000024,null]");
    sh_buf_reset(&out);
}

TEST(a_model_is_asked_for_what_it_can_do)
{
    UNUSED_STATE;
    sh_api_error error;
    assert_false(read_as(&sh_openai_completion, "{\"prompt\":\"a\"}", &error));
    assert_string_equal(error.code, "unsupported_task");
    assert_false(read_as(&sh_openai_rerank, "{\"query\":\"a\",\"documents\":[\"b\"]}", &error));
    assert_non_null(strstr(error.message, "use /v1/embeddings"));
    sh_buf text = {0};
    assert_false(sh_served_model_render(served, &(sh_job_spec){0}, &text, &error));
    assert_non_null(strstr(error.message, "no chat template; it makes embeddings"));
    sh_buf_reset(&text);
}

TEST(a_client_is_told_of_its_own_field_for_cutting)
{
    UNUSED_STATE;
    sh_api_error error;
    sh_buf body = {0};
    sh_buf_add_text(&body, "{\"truncate\":false,\"input\":\"");
    for (int i = 0; i < 2 * CONTEXT; i++) sh_buf_add_text(&body, "fish ");
    sh_buf_add_text(&body, "\"}");
    assert_false(read_as(&sh_ollama_embed, body.ptr, &error));
    assert_non_null(strstr(error.message, "('truncate' cuts"));
    sh_buf_reset(&body);
}

/* ---- pairs of texts ---- */

static int scorer_open(void **state)
{
    UNUSED_STATE;
    sh_err err;
    sh_engine_info info = {.model_dir = "tests/data/encoders/xlm-roberta-rerank",
                           .vocab = 103,
                           .context = CONTEXT,
                           .headless = true,
                           .vector_len = 1,
                           .scores = true};
    CHECK_OK(sh_served_model_open(&info, &(sh_served_model_opts){0}, &served, &err), err);
    return 0;
}

/* With a query and a document of so many words. */
static bool pair_read(int query, int document, int truncate, sh_api_error *error)
{
    sh_buf body = {0};
    sh_buf_add_text(&body, "{\"query\":\"");
    for (int i = 0; i < query; i++) sh_buf_add_text(&body, "hello ");
    sh_buf_add_text(&body, "\",\"documents\":[\"");
    for (int i = 0; i < document; i++) sh_buf_add_text(&body, "fish ");
    sh_buf_addf(&body, "\"],\"truncate_prompt_tokens\":%d}", truncate);
    bool fine = read_as(&sh_openai_rerank, body.ptr, error);
    sh_buf_reset(&body);
    return fine;
}

TEST(the_longer_text_of_a_pair_is_cut)
{
    UNUSED_STATE;
    const int words[][2] = {{500, 1}, {1, 500}, {500, 500}};
    sh_api_error error;
    for (size_t i = 0; i < SH_COUNT_OF(words); i++) {
        if (!pair_read(words[i][0], words[i][1], -1, &error)) fail_msg("%s", error.message);
        const sh_tokens *pair = &tokens[0];
        assert_int_equal(pair->count, CONTEXT);
        assert_int_equal(pair->ids[0], 0); /* <s> query </s></s> document </s> */
        assert_true(pair->second > 4 && pair->second + 2 < pair->count);
        assert_int_equal(pair->ids[pair->second - 2], 2);
        assert_int_equal(pair->ids[pair->second - 1], 2);
        assert_int_equal(pair->ids[pair->count - 1], 2);
        if (words[i][0] == words[i][1]) assert_int_equal(pair->second, 1 + 18 + 2);
    }
    assert_false(pair_read(500, 500, 5, &error));
    assert_string_equal(error.param, "truncate_prompt_tokens");
}

TEST(the_longer_text_of_a_pair_is_named)
{
    UNUSED_STATE;
    sh_api_error error;
    assert_false(pair_read(500, 1, 0, &error));
    assert_string_equal(error.param, "query");
    assert_string_equal(error.code, "context_length_exceeded");
    assert_false(pair_read(1, 500, 0, &error));
    assert_string_equal(error.param, "documents[0]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_have_four_forms),
        cmocka_unit_test(what_is_wrong_is_named_with_its_index),
        cmocka_unit_test(long_inputs_are_refused_or_cut_before_their_last_token),
        cmocka_unit_test(vectors_are_numbers_or_bytes_and_keep_their_length),
        cmocka_unit_test(a_model_is_asked_for_what_it_can_do),
        cmocka_unit_test(a_client_is_told_of_its_own_field_for_cutting),
    };
    const struct CMUnitTest pairs[] = {
        cmocka_unit_test(the_longer_text_of_a_pair_is_cut),
        cmocka_unit_test(the_longer_text_of_a_pair_is_named),
    };
    return cmocka_run_group_tests(tests, model_open, model_close) +
           cmocka_run_group_tests(pairs, scorer_open, model_close);
}
