/* Answers under a key: every client that asks gets each token once, in order, and one end, whenever
 * it comes and whatever was lost before. */
#include "engine/kept_answers.h"

#include "base/alloc.h"

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 40 };

static struct {
    int next;   /* token that the client expects */
    int scored; /* token of the prompt that it expects */
    int ends, errors;
    sh_status error;
} seen[3]; /* by owner */

static void sink(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    assert_true(owner == 1 || owner == 2);
    assert_int_equal(event->id, 10 * owner);
    if (event->kind == SH_EVENT_PROMPT_TOKEN) {
        assert_int_equal(event->token, seen[owner].scored++);
    } else if (event->kind == SH_EVENT_TOKEN) {
        assert_int_equal(event->token, seen[owner].next++);
        assert_int_equal(event->top_count, 2);
        assert_int_equal(event->top[1].id, event->token + 1000);
    } else if (event->kind == SH_EVENT_ERROR) {
        seen[owner].errors++;
        seen[owner].error = event->error.status;
    } else if (event->kind == SH_EVENT_DONE)
        seen[owner].ends++;
}

static sh_submit_message request(uint64_t owner, const char *key, uint64_t body, int answered)
{
    sh_submit_message message = {0};
    sh_buf frame = {0};
    sh_engine_msg_frame got;
    int32_t prompt[8 + TOKENS] = {7, 7, 7, 7, 7, 7, 7, 7};
    sh_err err;
    for (int i = 0; i < answered; i++) prompt[8 + i] = i;
    sh_sequence_spec spec = {.id = 10 * owner,
                             .prompt = prompt,
                             .prompt_count = 8 + (size_t)answered,
                             .answered = answered,
                             .max_tokens = TOKENS,
                             .retry_key = key,
                             .grammar = SH_STR("a grammar"),
                             .retry_body = body,
                             .sampling = sh_sampling_default()};
    sh_engine_msg_put_submit(&frame, &spec);
    CHECK_OK(sh_engine_msg_next(&frame, &got, &err), err);
    CHECK_OK(sh_engine_msg_get_submit(got.payload, &message, &err), err);
    sh_buf_reset(&frame);
    seen[owner].next = answered;
    seen[owner].ends = seen[owner].errors = 0;
    return message;
}

static const sh_sequence_spec *enter(sh_kept_answers *k, uint64_t owner, int answered)
{
    sh_submit_message message = request(owner, "key", 5, answered);
    const sh_sequence_spec *run;
    uint64_t replaced;
    sh_err err;
    CHECK_OK(sh_kept_enter(k, owner, &message, &run, &replaced, &err), err);
    assert_int_equal(replaced, 0);
    return run;
}

static const sh_sequence_spec *enter_scored(sh_kept_answers *k, uint64_t owner, int answered,
                                            int score_from)
{
    sh_submit_message message = request(owner, "key", 5, answered);
    const sh_sequence_spec *run;
    uint64_t replaced;
    sh_err err;
    message.spec.score_from = seen[owner].scored = score_from;
    CHECK_OK(sh_kept_enter(k, owner, &message, &run, &replaced, &err), err);
    return run;
}

static void score(sh_kept_answers *k, uint64_t id, int number)
{
    sh_kept_event(k, &(sh_event){.kind = SH_EVENT_PROMPT_TOKEN, .id = id, .token = number});
}

static void token(sh_kept_answers *k, uint64_t id, int number)
{
    sh_kept_event(k, &(sh_event){.kind = SH_EVENT_TOKEN,
                                 .id = id,
                                 .token = number,
                                 .top_count = 2,
                                 .top = {{number, -1}, {number + 1000, -2}}});
}

static void end(sh_kept_answers *k, uint64_t id, sh_status error)
{
    sh_event event = {.kind = error == SH_OK ? SH_EVENT_DONE : SH_EVENT_ERROR, .id = id};
    if (error != SH_OK) sh_err_set(&event.error, error, "as the test wants");
    sh_kept_event(k, &event);
}

TEST(an_answer_goes_on_without_its_client)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    uint64_t id = enter(k, 1, 0)->id;
    for (int i = 0; i < 5; i++) token(k, id, i);
    sh_kept_forget(k, 1);
    for (int i = 5; i < 9; i++) token(k, id, i);
    assert_int_equal(seen[1].next, 5);
    assert_null(enter(k, 2, 0)); /* it runs already */
    assert_int_equal(seen[2].next, 9);
    token(k, id, 9);
    end(k, id, SH_OK);
    assert_int_equal(seen[2].next, 10);
    assert_int_equal(seen[2].ends, 1);
    assert_null(enter(k, 1, 0)); /* complete: the same again */
    assert_int_equal(seen[1].next, 10);
    assert_int_equal(seen[1].ends, 1);
    sh_kept_free(k);
}

/* The tokens of the prompt come before those of the answer, each once as well. */
TEST(scores_of_the_prompt_are_kept_with_the_answer)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    const sh_sequence_spec *run = enter_scored(k, 1, 0, 1);
    uint64_t id = run->id;
    for (int i = 1; i < 5; i++) score(k, id, i);
    assert_int_equal(seen[1].scored, 5);
    end(k, id, SH_ERR_GROUP); /* lost; the client comes again with what it has */
    run = enter_scored(k, 1, 0, 5);
    assert_int_equal(run->score_from, 5);
    for (int i = 5; i < 8; i++) score(k, id, i);
    token(k, id, 0);
    assert_null(enter_scored(k, 2, 0, 1)); /* another one, from the start */
    assert_int_equal(seen[2].scored, 8);
    assert_int_equal(seen[2].next, 1);
    token(k, id, 1);
    end(k, id, SH_OK);
    assert_null(enter_scored(k, 1, 1, 8)); /* and one that has most of it */
    assert_int_equal(seen[1].scored, 8);
    assert_int_equal(seen[1].next, 2);
    assert_int_equal(seen[1].ends, 1);
    sh_kept_free(k);
}

TEST(the_newest_client_gets_it)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    uint64_t id = enter(k, 1, 0)->id;
    token(k, id, 0);
    assert_null(enter(k, 2, 0));
    assert_int_equal(seen[1].errors, 1);
    assert_int_equal(seen[1].error, SH_ERR_CONFLICT);
    token(k, id, 1);
    assert_int_equal(seen[1].next, 1);
    assert_int_equal(seen[2].next, 2);
    assert_int_equal(sh_kept_find(k, 2, 20), id);
    assert_int_equal(sh_kept_find(k, 1, 10), 0);
    sh_kept_free(k);
}

TEST(another_request_under_the_key_is_refused)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    const sh_sequence_spec *run;
    uint64_t replaced;
    sh_err err;
    enter(k, 1, 0);
    sh_submit_message other = request(2, "key", 6, 0);
    assert_int_equal(sh_kept_enter(k, 2, &other, &run, &replaced, &err), SH_ERR_CONFLICT);
    sh_submit_message_reset(&other); /* still the caller's */
    other = request(2, "key2", 6, 0);
    CHECK_OK(sh_kept_enter(k, 2, &other, &run, &replaced, &err), err);
    assert_non_null(run);
    sh_kept_free(k);
}

TEST(one_that_failed_is_not_kept)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    end(k, enter(k, 1, 0)->id, SH_ERR_TIMEOUT);
    assert_int_equal(seen[1].error, SH_ERR_TIMEOUT);
    assert_non_null(enter(k, 1, 0));
    sh_kept_free(k);
}

/* Whoever asks after a loss gets the sequence to run again, with all that was drawn. */
TEST(a_lost_group_does_not_lose_the_record)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    uint64_t id = enter(k, 1, 0)->id;
    for (int i = 0; i < 3; i++) token(k, id, i);
    end(k, id, SH_ERR_GROUP);
    assert_int_equal(seen[1].error, SH_ERR_GROUP);
    const sh_sequence_spec *run = enter(k, 1, 3); /* the same API, which has three tokens */
    assert_int_equal(run->answered, 3);
    assert_true(run->replayed);
    assert_int_equal(run->prompt[run->prompt_count - 1], 2);
    token(k, id, 3);
    end(k, id, SH_ERR_GROUP);
    run = enter(k, 2, 0); /* a new one, which has none */
    assert_int_equal(seen[2].next, 4);
    assert_int_equal(run->answered, 4);
    token(k, run->id, 4);
    end(k, run->id, SH_OK);
    assert_int_equal(seen[2].next, 5);
    assert_int_equal(seen[2].ends, 1);
    sh_kept_free(k);
}

/* An engine that was started anew has only the second half of the answer. */
TEST(half_a_record_is_not_given_to_a_client_that_has_nothing)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    const sh_sequence_spec *run;
    uint64_t replaced, id = enter(k, 1, 6)->id;
    sh_err err;
    token(k, id, 6);
    sh_submit_message message = request(2, "key", 5, 0);
    CHECK_OK(sh_kept_enter(k, 2, &message, &run, &replaced, &err), err);
    assert_int_equal(replaced, id);
    assert_int_equal(run->answered, 0);
    token(k, id, 7); /* of the one that is being cancelled */
    token(k, run->id, 0);
    assert_int_equal(seen[2].next, 1);
    sh_kept_free(k);
}

TEST(there_is_room_for_new_ones)
{
    UNUSED_STATE;
    sh_kept_answers *k = sh_kept_create(sink, NULL);
    const sh_sequence_spec *run;
    uint64_t replaced;
    sh_err err;
    char key[32];
    for (int i = 0; i < SH_KEPT_MAX; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        sh_submit_message message = request(1, key, 5, 0);
        CHECK_OK(sh_kept_enter(k, 1, &message, &run, &replaced, &err), err);
        if (i == 100) end(k, run->id, SH_OK);
    }
    sh_submit_message message = request(1, "a", 5, 0);
    CHECK_OK(sh_kept_enter(k, 1, &message, &run, &replaced, &err), err); /* in place of k100 */
    message = request(1, "b", 5, 0);
    assert_int_equal(sh_kept_enter(k, 1, &message, &run, &replaced, &err), SH_ERR_LIMIT);
    sh_submit_message_reset(&message);
    sh_kept_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_goes_on_without_its_client),
        cmocka_unit_test(scores_of_the_prompt_are_kept_with_the_answer),
        cmocka_unit_test(the_newest_client_gets_it),
        cmocka_unit_test(another_request_under_the_key_is_refused),
        cmocka_unit_test(one_that_failed_is_not_kept),
        cmocka_unit_test(a_lost_group_does_not_lose_the_record),
        cmocka_unit_test(half_a_record_is_not_given_to_a_client_that_has_nothing),
        cmocka_unit_test(there_is_room_for_new_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
