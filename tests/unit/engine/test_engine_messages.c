/* What crosses the engine's socket arrives as it was sent, or is refused. */
#include "engine/engine_messages.h"

#include "test.h"

static const int32_t prompt[] = {5, 6, 7, 8, 9}, stops[] = {3, 4}, bias_ids[] = {1};
static const float bias[] = {-1.5f};
static sh_err err;

static sh_sequence_spec spec_make(void)
{
    sh_sequence_spec q = {.id = 77,
                          .client = 12,
                          .prompt = prompt,
                          .prompt_count = SH_COUNT_OF(prompt),
                          .answered = 3,
                          .replayed = true,
                          .max_tokens = 100,
                          .min_tokens = 2,
                          .stop_ids = stops,
                          .stop_id_count = SH_COUNT_OF(stops),
                          .logprobs = 4,
                          .timeout_ms = 1234,
                          .score_from = 2,
                          .grammar = {"gr\0mar", 6},
                          .sampling = sh_sampling_default()};
    q.sampling.seed = 1u << 31;
    q.sampling.logit_bias_count = SH_COUNT_OF(bias);
    q.sampling.logit_bias_ids = bias_ids;
    q.sampling.logit_bias = bias;
    return q;
}

static sh_engine_msg_frame frame_of(const sh_buf *bytes)
{
    sh_engine_msg_frame frame;
    CHECK_OK(sh_engine_msg_next(bytes, &frame, &err), err);
    assert_int_equal(frame.size, bytes->len);
    return frame;
}

TEST(a_request_arrives_with_the_answer_so_far)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_submit_message got;
    sh_sequence_spec q = spec_make();
    sh_engine_msg_put_submit(&bytes, &q);
    sh_engine_msg_frame frame = frame_of(&bytes);
    assert_int_equal(frame.type, SH_ENGINE_MSG_SUBMIT);
    CHECK_OK(sh_engine_msg_get_submit(frame.payload, &got, &err), err);
    assert_int_equal(got.spec.id, 77);
    assert_int_equal(got.spec.answered, 3);
    assert_true(got.spec.replayed);
    assert_int_equal(got.spec.max_tokens, 100);
    assert_int_equal(got.spec.min_tokens, 2);
    assert_int_equal(got.spec.timeout_ms, 1234);
    assert_int_equal(got.spec.score_from, 2);
    assert_int_equal(got.spec.sampling.seed, 1u << 31);
    assert_int_equal(got.spec.prompt_count, SH_COUNT_OF(prompt));
    assert_memory_equal(got.spec.prompt, prompt, sizeof(prompt));
    assert_memory_equal(got.spec.stop_ids, stops, sizeof(stops));
    assert_memory_equal(got.spec.sampling.logit_bias, bias, sizeof(bias));
    assert_int_equal(got.spec.grammar.len, 6);
    assert_memory_equal(got.spec.grammar.ptr, "gr\0mar", 6);
    sh_submit_message_reset(&got);
    for (size_t len = 0; len < frame.payload.len; len++) {
        CHECK_FAILS(sh_engine_msg_get_submit((sh_str){frame.payload.ptr, len}, &got, &err), err,
                    "submit");
        sh_submit_message_reset(&got);
    }
    sh_buf_reset(&bytes);
}

TEST(progress_arrives_and_is_not_taken_for_a_token)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_event got;
    sh_engine_msg_put_event(&bytes,
                            &(sh_event){.kind = SH_EVENT_PROGRESS, .id = 9, .computed = 4096});
    sh_engine_msg_frame frame = frame_of(&bytes);
    CHECK_OK(sh_engine_msg_get_event(&frame, &got, &err), err);
    assert_int_equal(got.kind, SH_EVENT_PROGRESS);
    assert_int_equal(got.id, 9);
    assert_int_equal(got.computed, 4096);
    for (frame.payload.len--; frame.payload.len > 0; frame.payload.len--)
        assert_true(sh_engine_msg_get_event(&frame, &got, &err) < 0);
    sh_buf_reset(&bytes);
}

TEST(a_vector_arrives_with_the_end_of_its_request)
{
    UNUSED_STATE;
    static const float vector[] = {1.5f, -2.25f, 1e-30f};
    sh_buf bytes = {0};
    sh_event got;
    sh_engine_msg_put_event(
        &bytes, &(sh_event){.kind = SH_EVENT_DONE, .id = 9, .vector = vector, .vector_len = 3});
    sh_engine_msg_frame frame = frame_of(&bytes);
    CHECK_OK(sh_engine_msg_get_event(&frame, &got, &err), err);
    assert_int_equal(got.vector_len, 3);
    assert_memory_equal(got.vector, vector, sizeof(vector));
    for (frame.payload.len--; frame.payload.len > 0; frame.payload.len--)
        assert_true(sh_engine_msg_get_event(&frame, &got, &err) < 0);
    sh_buf_reset(&bytes);
}

TEST(a_pair_of_texts_is_no_longer_than_its_tokens)
{
    UNUSED_STATE;
    sh_sequence_spec q = spec_make();
    q.pooled = true;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "the answer so far");
    q.answered = 0;
    q.second = (int)q.prompt_count;
    CHECK_OK(sh_sequence_spec_check(&q, 100, &err), err);
    q.second++;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "second part at 6");
}

TEST(a_token_of_the_prompt_is_not_one_of_the_answer)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_event got;
    sh_engine_msg_put_event(&bytes, &(sh_event){.kind = SH_EVENT_PROMPT_TOKEN,
                                                .id = 9,
                                                .token = 7,
                                                .logprob = -1.5f,
                                                .top_count = 1,
                                                .top = {{8, -0.5f}}});
    sh_engine_msg_frame frame = frame_of(&bytes);
    CHECK_OK(sh_engine_msg_get_event(&frame, &got, &err), err);
    assert_int_equal(got.kind, SH_EVENT_PROMPT_TOKEN);
    assert_int_equal(got.token, 7);
    assert_true(got.logprob == -1.5f && got.top_count == 1 && got.top[0].id == 8);
    sh_buf_reset(&bytes);
}

/* What an engine is asked to report must be there to report, and come before the answer. */
TEST(scores_are_of_tokens_of_the_prompt)
{
    static const struct {
        int prompt_count, answered, score_from, logprobs;
        const char *says; /* NULL: fine */
    } cases[] = {
        {4, 0, 0, -1, NULL}, {4, 0, 1, 0, NULL},          {4, 0, 4, 0, NULL},
        {4, 1, 3, 0, NULL},  {4, 0, 1, -1, "'logprobs'"}, {4, 0, 5, 0, "the prompt has 4"},
        {4, 0, -1, 0, "-1"}, {4, 1, 1, 0, "so far"},      {4, 1, 4, 0, "the prompt has 3"},
    };
    static const int32_t ids[4] = {1, 2, 3, 4};
    UNUSED_STATE;
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        sh_sequence_spec q = {.prompt = ids,
                              .prompt_count = (size_t)cases[i].prompt_count,
                              .answered = cases[i].answered,
                              .score_from = cases[i].score_from,
                              .logprobs = cases[i].logprobs,
                              .max_tokens = 9,
                              .sampling = sh_sampling_default()};
        if (cases[i].says == NULL)
            CHECK_OK(sh_sequence_spec_check(&q, 10, &err), err);
        else
            CHECK_FAILS(sh_sequence_spec_check(&q, 10, &err), err, cases[i].says);
    }
}

TEST(an_engine_says_which_model_it_has)
{
    UNUSED_STATE;
    sh_buf bytes = {0};
    sh_engine_info got;
    sh_engine_msg_put_info(&bytes, &(sh_engine_info){.model_dir = "models/demo",
                                                     .vocab = 10,
                                                     .context = 20,
                                                     .world_size = 3,
                                                     .ready = true,
                                                     .headless = true,
                                                     .vector_len = 384,
                                                     .normalized = true,
                                                     .model_hash = UINT64_C(0xfedcba9876543210)});
    CHECK_OK(sh_engine_msg_get_info(frame_of(&bytes).payload, &got, &err), err);
    assert_true(got.model_hash == UINT64_C(0xfedcba9876543210));
    assert_true(got.ready && got.headless && got.normalized && !got.scores);
    assert_int_equal(got.vector_len, 384);
    assert_int_equal(got.world_size, 3);
    free((void *)got.model_dir);
    sh_buf_reset(&bytes);
}

TEST(the_answer_so_far_is_less_than_the_prompt_with_it)
{
    UNUSED_STATE;
    sh_sequence_spec q = spec_make();
    q.score_from = 0;
    for (q.answered = 0; q.answered < (int)q.prompt_count; q.answered++)
        CHECK_OK(sh_sequence_spec_check(&q, 100, &err), err);
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "5 of 5 tokens");
    q.answered = INT32_MAX;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "of 5 tokens");
    q.answered = -1;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "-1 of 5 tokens");
}

TEST(a_grammar_has_a_size_and_an_end)
{
    UNUSED_STATE;
    sh_sequence_spec q = spec_make();
    CHECK_OK(sh_sequence_spec_check(&q, 100, &err), err);
    q.stop_id_count = 0;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "needs stop ids");
    q = spec_make();
    q.grammar.len = SH_GRAMMAR_PACKED_MAX + 1;
    CHECK_FAILS(sh_sequence_spec_check(&q, 100, &err), err, "16777217 bytes; at most 16777216");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_arrives_with_the_answer_so_far),
        cmocka_unit_test(progress_arrives_and_is_not_taken_for_a_token),
        cmocka_unit_test(a_vector_arrives_with_the_end_of_its_request),
        cmocka_unit_test(a_pair_of_texts_is_no_longer_than_its_tokens),
        cmocka_unit_test(a_token_of_the_prompt_is_not_one_of_the_answer),
        cmocka_unit_test(scores_are_of_tokens_of_the_prompt),
        cmocka_unit_test(an_engine_says_which_model_it_has),
        cmocka_unit_test(the_answer_so_far_is_less_than_the_prompt_with_it),
        cmocka_unit_test(a_grammar_has_a_size_and_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
