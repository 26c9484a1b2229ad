/* Runs the scheduler, plans and batch state against a model whose next token is a hash of
 * everything before it, read back through the KV blocks that the plan names: a wrong block, a lost
 * token or a stale prefix gives a wrong answer. Part of the hash is a fixed-size state, one for
 * each block, so a state that a wrong draft went into does so too, unless the test says that the
 * model has none. */
#include "engine/scheduler.h"

#include "base/hash.h"
#include "engine/mask_table.h"

#include "test.h"

enum {
    VOCAB = 50,
    EOS = 49,
    SLOTS = 6,
    TOKENS = 128,
    BLOCKS_MAX = 64,
    REQUESTS_MAX = 400,
    ANSWER_MAX = 200,
    BEGIN = 3,
    END = 4, /* of reasoning */
};

struct answer {
    bool done, failed;
    int count;
    int32_t tokens[ANSWER_MAX];
    sh_event end;
};

struct bench {
    sh_sched_opts opts;
    sh_blocks *blocks;
    sh_sched *sched;
    sh_batch_state *state;
    sh_step_plan *plan, *copy;
    int32_t kv[BLOCKS_MAX][SH_KV_BLOCK];
    uint64_t fixed[BLOCKS_MAX]; /* the state after the last token computed in each block */
    sh_span spans[SLOTS];
    struct answer answers[REQUESTS_MAX];
    int longest_step;
};

static const int32_t eos[] = {EOS};

static void on_event(void *ctx, uint64_t owner, const sh_event *e)
{
    struct bench *b = ctx;
    (void)owner;
    struct answer *a = &b->answers[e->id];
    assert_false(a->done); /* nothing follows the end */
    if (e->kind == SH_EVENT_PROGRESS) return;
    if (e->kind == SH_EVENT_TOKEN) {
        assert_true(a->count < ANSWER_MAX);
        a->tokens[a->count++] = e->token;
        return;
    }
    a->done = true;
    a->failed = e->kind == SH_EVENT_ERROR;
    a->end = *e;
}

/* To be called after options were changed, before the first request. */
static void bench_restart(struct bench *b)
{
    sh_sched_free(b->sched);
    sh_batch_state_free(b->state);
    sh_step_plan_free(b->plan);
    sh_step_plan_free(b->copy);
    b->sched = sh_sched_create(&b->opts, b->blocks, on_event, b);
    b->state = sh_batch_state_create(&b->opts.limits);
    b->plan = sh_step_plan_create(&b->opts.limits);
    b->copy = sh_step_plan_create(&b->opts.limits);
}

static struct bench *bench_open(int blocks, int drafts)
{
    struct bench *b = calloc(1, sizeof(*b));
    b->opts = (sh_sched_opts){.limits = {.slots = SLOTS,
                                         .tokens = TOKENS,
                                         .draws = SLOTS * (SH_DRAFTS_MAX + 1),
                                         .adjusts = 256,
                                         .blocks = blocks,
                                         .seq_blocks = 32,
                                         .vocab = VOCAB,
                                         .masks = 8},
                              .context = 32 * SH_KV_BLOCK,
                              .queue_max = REQUESTS_MAX,
                              .stall_s = 1,
                              .stages_in_flight = 1,
                              .drafts = drafts,
                              .drafts_always = true};
    b->blocks = sh_blocks_create(blocks, (sh_key128){1, 2}, (sh_key128){3, 4});
    bench_restart(b);
    return b;
}

static void bench_close(struct bench *b)
{
    sh_sched_free(b->sched);
    sh_blocks_free(b->blocks);
    sh_batch_state_free(b->state);
    sh_step_plan_free(b->plan);
    sh_step_plan_free(b->copy);
    free(b);
}

static uint64_t state_next(uint64_t state, int32_t token)
{
    return sh_mix64(state ^ (uint64_t)token);
}

/* `all` is the state after the tokens of the history. */
static int32_t next_token(const int32_t *history, int count, uint64_t all)
{
    uint64_t h = 0;
    int from =
        count > 3
            ? count - 3
            : 0; /* a short memory, so that n-grams repeat and drafts are right now and then */
    for (int i = from; i < count; i++) h = sh_mix64(h ^ (uint64_t)history[i]);
    return (int32_t)((all % 16 == 0 ? all >> 8 : h) % VOCAB);
}

/* Does what ranks do: unpack the plan, apply it, compute through the blocks. */
static void model_run(struct bench *b, sh_pick *picks)
{
    sh_err err;
    sh_buf bytes = {0};
    sh_step_plan_pack(b->plan, &bytes);
    CHECK_OK(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    sh_buf_reset(&bytes);
    CHECK_OK(sh_batch_state_apply(b->state, b->copy, b->spans, &err), err);
    for (int i = 0, draw = 0; i < b->copy->seq_count; i++) {
        const sh_span *span = &b->spans[i];
        int32_t history[32 * SH_KV_BLOCK];
        uint64_t states[32 * SH_KV_BLOCK + 1] = {0}; /* before each token */
        int end = span->pos + span->count, draws = b->copy->seqs[i].draw_count;
        if (span->pos > 0)
            states[span->pos] = b->fixed[span->blocks[(span->pos - 1) / SH_KV_BLOCK]];
        for (int pos = span->pos; pos < end; pos++) {
            int32_t block = span->blocks[pos / SH_KV_BLOCK];
            int32_t token = b->copy->tokens[span->first + pos - span->pos];
            b->kv[block][pos % SH_KV_BLOCK] = token;
            b->fixed[block] = states[pos + 1] = state_next(states[pos], token);
        }
        for (int t = 0; t < end; t++)
            history[t] = b->kv[span->blocks[t / SH_KV_BLOCK]][t % SH_KV_BLOCK];
        if (!b->opts.fixed_state)
            for (int t = 0; t < end; t++) states[t + 1] = state_next(states[t], history[t]);
        for (int known = end - draws + 1; known <= end; known++)
            picks[draw++] = (sh_pick){.id = next_token(history, known, states[known])};
    }
}

static bool bench_step(struct bench *b)
{
    static sh_pick picks[SLOTS * (SH_DRAFTS_MAX + 1)];
    if (!sh_sched_plan(b->sched, b->plan)) return false;
    if (b->plan->token_count > b->longest_step) b->longest_step = b->plan->token_count;
    model_run(b, picks);
    sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
    return true;
}

static void bench_finish(struct bench *b)
{
    for (int steps = 0; sh_sched_busy(b->sched); steps++) {
        assert_true(steps < 200000);
        assert_true(bench_step(b));
    }
    assert_int_equal(sh_blocks_available(b->blocks),
                     sh_blocks_total(b->blocks)); /* nobody holds anything */
}

struct ask {
    int32_t prompt[300];
    int count, max;
    int reasoning_max; /* 0: no limit */
    bool reasoning_begun;
};

static sh_sequence_spec spec_of(int id, const struct ask *ask)
{
    return (sh_sequence_spec){.id = (uint64_t)id,
                              .client = (uint64_t)(id % 3),
                              .prompt = ask->prompt,
                              .prompt_count = (size_t)ask->count,
                              .max_tokens = ask->max,
                              .reasoning_max = ask->reasoning_max,
                              .reasoning_begin = BEGIN,
                              .reasoning_end = END,
                              .reasoning_begun = ask->reasoning_begun,
                              .stop_ids = eos,
                              .stop_id_count = 1,
                              .logprobs = -1,
                              .sampling = sh_sampling_default()};
}

static void submit(struct bench *b, int id, const struct ask *ask)
{
    sh_sequence_spec q = spec_of(id, ask);
    sh_sched_submit(b->sched, 1, &q);
}

static void check_answer(const struct answer *a, const struct ask *ask)
{
    int32_t history[600];
    memcpy(history, ask->prompt, sizeof(ask->prompt));
    int count = ask->count, reasoned = 0;
    uint64_t state = 0;
    bool reasoning = ask->reasoning_begun;
    assert_true(a->done);
    assert_false(a->failed);
    for (int t = 0; t < count; t++) state = state_next(state, history[t]);
    for (int i = 0;; i++) {
        bool limit = reasoning && ask->reasoning_max > 0 && reasoned == ask->reasoning_max;
        int32_t want = limit ? END : next_token(history, count, state);
        if (want == EOS || i == ask->max) {
            assert_int_equal(a->count, i);
            assert_int_equal(a->end.finish, i == ask->max ? SH_FINISH_LENGTH : SH_FINISH_STOP);
            return;
        }
        assert_true(i < a->count);
        assert_int_equal(a->tokens[i], want);
        history[count++] = want;
        state = state_next(state, want);
        reasoned += reasoning && want != BEGIN && want != END;
        reasoning = want == BEGIN || (reasoning && want != END);
    }
}

/* Prompts that share prefixes, like the turns of conversations; in some the reasoning is limited.
 */
static struct ask random_ask(uint64_t *random)
{
    struct ask ask = {0};
    *random = sh_mix64(*random);
    int family = (int)(*random % 4);
    ask.count = 1 + (int)((*random >> 8) % 280);
    ask.max = 1 + (int)((*random >> 32) % 60);
    int shared = (int)((*random >> 40) % 256);
    if ((*random >> 16) % 2 == 0) ask.reasoning_max = 1 + (int)((*random >> 20) % 20);
    ask.reasoning_begun = (*random >> 17) % 2 == 0;
    for (int i = 0; i < ask.count; i++)
        ask.prompt[i] =
            (int32_t)(sh_mix64((uint64_t)i * 7 + (uint64_t)family + (i < shared ? 0 : *random)) %
                      (VOCAB - 1));
    return ask;
}

static void check_many(int blocks, int drafts, bool fixed_state, int requests)
{
    struct bench *b = bench_open(blocks, drafts);
    b->opts.fixed_state = fixed_state;
    bench_restart(b);
    struct ask *asks = calloc((size_t)requests, sizeof(*asks));
    uint64_t random = (uint64_t)(blocks * 1000 + drafts);
    for (int i = 0; i < requests; i++) {
        asks[i] = random_ask(&random);
        submit(b, i, &asks[i]);
        for (int s = (int)((random >> 50) % 5); s > 0; s--) bench_step(b);
    }
    bench_finish(b);
    for (int i = 0; i < requests; i++) check_answer(&b->answers[i], &asks[i]);
    const sh_sched_stats *stats = sh_sched_stats_of(b->sched);
    assert_int_equal(stats->finished, requests);
    assert_true(stats->cached_tokens > 0);
    if (drafts > 0) assert_true(stats->drafts_kept[SH_DRAFT_REPEATED] > 0);
    if (blocks < 20) assert_true(stats->paused > 0);
    free(asks);
    bench_close(b);
}

TEST(every_answer_is_what_the_request_gives_alone)
{
    UNUSED_STATE;
    check_many(BLOCKS_MAX, 0, false, 300);
}

TEST(drafts_change_no_answer)
{
    UNUSED_STATE;
    check_many(BLOCKS_MAX, 4, false, 300);
}

TEST(too_few_kv_blocks_pause_requests_and_lose_nothing)
{
    UNUSED_STATE;
    check_many(14, 0, false, 300);
    check_many(14, 4, false, 300);
}

TEST(drafts_change_no_answer_of_a_model_with_a_fixed_state)
{
    UNUSED_STATE;
    check_many(BLOCKS_MAX, 0, true, 300);
    check_many(BLOCKS_MAX, 4, true, 300);
    check_many(14, 4, true, 300);
}

/* What a client does whose engine was lost: it goes on with the answer so far, wherever that ends.
 */
TEST(an_answer_that_goes_on_elsewhere_keeps_the_limit_of_its_reasoning)
{
    UNUSED_STATE;
    uint64_t random = 11;
    for (int i = 0; i < 300; i++) {
        struct bench *b = bench_open(BLOCKS_MAX, i % 2 * 4);
        struct ask ask = random_ask(&random);
        struct answer *a = &b->answers[0];
        submit(b, 0, &ask);
        bench_finish(b);
        check_answer(a, &ask);
        int32_t prompt[600];
        sh_sequence_spec q = spec_of(0, &ask);
        q.answered = a->count == 0 ? 0 : (int)((random >> 7) % (uint64_t)a->count);
        memcpy(prompt, ask.prompt, sizeof(ask.prompt));
        memcpy(prompt + ask.count, a->tokens, (size_t)q.answered * sizeof(*prompt));
        q.prompt = prompt;
        q.prompt_count += (size_t)q.answered;
        a->count = q.answered;
        a->done = false;
        sh_sched_submit(b->sched, 1, &q);
        bench_finish(b);
        check_answer(a, &ask);
        bench_close(b);
    }
}

TEST(right_drafts_do_not_go_past_the_limit_of_reasoning)
{
    UNUSED_STATE;
    enum { PROMPT = 40 };
    struct bench *b = bench_open(BLOCKS_MAX, 4);
    struct ask ask = {.count = PROMPT, .max = 20, .reasoning_max = 2, .reasoning_begun = true};
    sh_pick picks[1 + SH_DRAFTS_MAX] = {{0}};
    const struct answer *a = &b->answers[0];
    for (int i = 0; i < PROMPT; i++) ask.prompt[i] = i % 8 + 10;
    for (int i = 0; i <= SH_DRAFTS_MAX; i++) picks[i].id = (PROMPT + i) % 8 + 10;
    submit(b, 0, &ask);
    assert_true(sh_sched_plan(b->sched, b->plan));
    sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
    assert_true(sh_sched_plan(b->sched, b->plan));
    assert_int_equal(b->plan->seqs[0].draw_count, 5);
    sh_sched_commit(b->sched, b->plan, picks + 1, 1e-3, 1e-3); /* all are right */
    assert_int_equal(a->count, 3);
    assert_int_equal(a->tokens[1], picks[1].id);
    assert_int_equal(a->tokens[2], END);
    assert_true(sh_sched_plan(b->sched, b->plan));
    const sh_step_seq *q = &b->plan->seqs[0];
    assert_int_equal(q->pos + q->token_count - (q->draw_count - 1), PROMPT + 3);
    assert_int_equal(b->plan->tokens[q->token_count - q->draw_count], END);
    sh_sched_forget(b->sched, 1);
    sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
    bench_close(b);
}

/* A chunk of the size that a step can take, and one that is smaller than a block. */
TEST(tokens_to_compute_again_respect_the_size_of_a_step)
{
    UNUSED_STATE;
    static const int sizes[] = {17, SH_KV_BLOCK, 40};
    for (size_t i = 0; i < SH_COUNT_OF(sizes); i++) {
        struct bench *b = bench_open(BLOCKS_MAX, 4);
        struct ask asks[40];
        uint64_t random = 3;
        b->opts.fixed_state = true;
        b->opts.limits.tokens = sizes[i];
        bench_restart(b);
        for (int r = 0; r < 40; r++) {
            asks[r] = random_ask(&random);
            submit(b, r, &asks[r]);
        }
        bench_finish(b);
        for (int r = 0; r < 40; r++) check_answer(&b->answers[r], &asks[r]);
        assert_true(b->longest_step <= sizes[i]);
        assert_true(sh_sched_stats_of(b->sched)->drafts_tried[SH_DRAFT_REPEATED] > 0);
        bench_close(b);
    }
}

/* Runs a prompt whose continuation is drafted wrong, and looks at the plan after it. */
TEST(after_a_wrong_draft_a_fixed_state_continues_at_the_block_border)
{
    UNUSED_STATE;
    enum { PROMPT = 40 };
    for (int fixed = 0; fixed < 2; fixed++) {
        struct bench *b = bench_open(BLOCKS_MAX, 4);
        struct ask ask = {.count = PROMPT, .max = 20};
        sh_pick picks[1 + SH_DRAFTS_MAX] = {{0}};
        b->opts.fixed_state = fixed == 1;
        bench_restart(b);
        for (int i = 0; i < PROMPT; i++) ask.prompt[i] = i % 8 + 1;
        submit(b, 0, &ask);
        assert_true(sh_sched_plan(b->sched, b->plan));
        assert_int_equal(b->plan->seqs[0].draw_count, 1);
        sh_sched_commit(b->sched, b->plan, &(sh_pick){.id = PROMPT % 8 + 1}, 1e-3, 1e-3);
        assert_true(sh_sched_plan(b->sched, b->plan));
        assert_int_equal(b->plan->seqs[0].pos, PROMPT);
        assert_int_equal(b->plan->seqs[0].draw_count, 5);
        /* Two of the four drafts are right. */
        for (int i = 0; i < 5; i++) picks[i].id = i == 2 ? 30 : (PROMPT + 1 + i) % 8 + 1;
        sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
        assert_true(sh_sched_plan(b->sched, b->plan));
        const sh_step_seq *q = &b->plan->seqs[0];
        assert_int_equal(q->pos, fixed == 1 ? SH_KV_BLOCK : PROMPT + 3);
        assert_int_equal(q->pos + q->token_count, PROMPT + 4);
        assert_int_equal(q->draw_count, 1);
        assert_int_equal(b->plan->tokens[q->token_count - 1], 30);
        sh_sched_commit(b->sched, b->plan, &(sh_pick){.id = 31}, 1e-3, 1e-3);
        assert_true(sh_sched_plan(b->sched, b->plan));
        assert_int_equal(b->plan->seqs[0].pos, PROMPT + 4);
        sh_sched_forget(b->sched, 1);
        sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
        bench_close(b);
    }
}

TEST(a_second_turn_finds_the_first_in_the_cache)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 200, .max = 8};
    for (int i = 0; i < 300; i++) ask.prompt[i] = i % 40;
    submit(b, 0, &ask);
    bench_finish(b);
    ask.count = 230;
    submit(b, 1, &ask);
    bench_finish(b);
    check_answer(&b->answers[1], &ask);
    assert_int_equal(b->answers[0].end.cached_tokens, 0);
    assert_int_equal(b->answers[1].end.cached_tokens, 192);
    submit(b, 2, &ask); /* the last token is computed even when the whole prompt is cached */
    bench_finish(b);
    assert_int_equal(b->answers[2].end.cached_tokens, 224);
    bench_close(b);
}

TEST(equal_prompts_at_once_are_computed_once)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 250, .max = 4};
    for (int i = 0; i < 300; i++) ask.prompt[i] = i % 40;
    for (int i = 0; i < 5; i++) submit(b, i, &ask);
    bench_finish(b);
    for (int i = 0; i < 5; i++) check_answer(&b->answers[i], &ask);
    assert_int_equal(sh_sched_stats_of(b->sched)->cached_tokens, 4 * 224);
    bench_close(b);
}

TEST(a_request_that_can_never_fit_is_refused_with_the_numbers)
{
    UNUSED_STATE;
    struct bench *b = bench_open(4, 0);
    struct ask ask = {.count = 200, .max = 8};
    submit(b, 0, &ask);
    assert_true(b->answers[0].failed);
    assert_non_null(strstr(b->answers[0].end.error.text, "200 tokens; the KV cache holds 128"));
    assert_false(b->answers[0].end.retry);
    bench_close(b);
}

TEST(a_full_queue_refuses_and_allows_a_retry)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 10, .max = 8};
    b->opts.queue_max = 1;
    bench_restart(b);
    for (int i = 0; i <= SLOTS + 1; i++) submit(b, i, &ask); /* before any plan is made */
    assert_false(b->answers[SLOTS].failed);
    assert_true(b->answers[SLOTS + 1].failed);
    assert_true(b->answers[SLOTS + 1].end.retry);
    assert_true(bench_step(b));
    submit(b, SLOTS + 2, &ask);
    assert_true(b->answers[SLOTS + 2].failed);
    bench_finish(b);
    for (int i = 0; i <= SLOTS; i++) check_answer(&b->answers[i], &ask);
    bench_close(b);
}

TEST(a_cancelled_request_is_not_in_the_next_step)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 10, .max = 100};
    submit(b, 0, &ask);
    submit(b, 1, &ask);
    assert_true(bench_step(b));
    sh_sched_cancel(b->sched, 1, 0);
    assert_true(b->answers[0].done);
    assert_int_equal(b->answers[0].end.finish, SH_FINISH_CANCEL);
    bench_finish(b);
    check_answer(&b->answers[1], &ask);
    bench_close(b);
}

TEST(plans_in_flight_share_the_requests_evenly)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    b->opts.stages_in_flight = 2;
    bench_restart(b);
    sh_step_plan *second = sh_step_plan_create(&b->opts.limits);
    struct ask ask = {.count = 10, .max = 5};
    for (int i = 0; i < SLOTS; i++) {
        ask.prompt[0] = i;
        submit(b, i, &ask);
    }
    static sh_pick picks[SLOTS];
    for (int round = 0; round < 3; round++) { /* prompts, then tokens of the answers */
        assert_true(sh_sched_plan(b->sched, b->plan));
        assert_true(sh_sched_plan(b->sched, second));
        assert_int_equal(b->plan->seq_count, SLOTS / 2);
        assert_int_equal(second->seq_count, SLOTS / 2);
        sh_sched_commit(b->sched, b->plan, picks, 1e-3, 1e-3);
        sh_sched_commit(b->sched, second, picks, 1e-3, 1e-3);
    }
    sh_step_plan_free(second);
    bench_close(b);
}

TEST(prompts_enter_a_pipeline_a_few_at_a_time_and_a_lone_one_whole)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    b->opts.stages_in_flight = 2;
    bench_restart(b);
    sh_step_plan *second = sh_step_plan_create(&b->opts.limits);
    struct ask ask = {.count = 40, .max = 5};
    for (int i = 0; i < 6; i++) {
        ask.prompt[0] = i;
        submit(b, i, &ask);
    }
    assert_true(sh_sched_plan(b->sched, b->plan));
    assert_true(sh_sched_plan(b->sched, second));
    assert_int_equal(b->plan->seq_count, 2); /* of three that would fit: 64 tokens are enough */
    assert_int_equal(second->seq_count, 2);
    sh_step_plan_free(second);
    bench_close(b);

    b = bench_open(BLOCKS_MAX, 0);
    b->opts.stages_in_flight = 2;
    bench_restart(b);
    submit(b, 0, &(struct ask){.count = 100, .max = 5});
    assert_true(sh_sched_plan(b->sched, b->plan));
    assert_int_equal(b->plan->token_count, 100); /* splitting it would help nobody else */
    bench_close(b);
}

TEST(a_prompt_does_not_hold_up_a_stream_in_another_stage)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    b->opts.stages_in_flight = 2;
    bench_restart(b);
    sh_step_plan *second = sh_step_plan_create(&b->opts.limits);
    static sh_pick picks[SLOTS];
    struct ask stream = {.count = 80, .max = 50}, prompt = {.prompt = {1}, .count = 128, .max = 5};
    submit(b, 0, &stream);
    assert_true(sh_sched_plan(b->sched, b->plan));
    sh_sched_commit(b->sched, b->plan, picks, 80 * 0.02,
                    80 * 0.02); /* 50 tokens in the second of a stall */
    assert_true(sh_sched_plan(b->sched, b->plan));
    submit(b, 1, &prompt);
    assert_true(sh_sched_plan(b->sched, second));
    assert_int_equal(b->plan->token_count, 1);
    assert_int_equal(second->token_count, 50);
    sh_step_plan_free(second);
    bench_close(b);
}

TEST(a_flood_of_one_client_does_not_starve_another)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 20, .max = 30};
    for (int i = 0; i < 90; i += 3) submit(b, i, &ask); /* client 0 */
    ask.prompt[0] = 7;
    submit(b, 100, &ask); /* client 1, last in the queue */
    int steps = 0;
    while (!b->answers[100].done) {
        assert_true(bench_step(b));
        steps++;
    }
    assert_true(steps < 80); /* it got the first slot that became free */
    bench_finish(b);
    bench_close(b);
}

/* Choosing the next request must not count the running requests of every client for each waiting
 * one. */
TEST(a_long_queue_of_many_clients_is_admitted_quickly)
{
    UNUSED_STATE;
    enum { WAITING = SLOW ? 2000 : 20000, PLACES = 256 };
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    sh_sched_opts opts = b->opts;
    opts.limits.slots = PLACES;
    opts.limits.tokens = 4 * PLACES;
    opts.limits.draws = 16 * PLACES;
    opts.limits.blocks = 4 * PLACES;
    opts.queue_max = WAITING;
    opts.stall_s = 100;
    sh_blocks *blocks = sh_blocks_create(4 * PLACES, (sh_key128){1, 2}, (sh_key128){3, 4});
    sh_sched *sched = sh_sched_create(&opts, blocks, on_event, b);
    sh_step_plan *plan = sh_step_plan_create(&opts.limits);
    for (int i = 0; i < WAITING; i++) {
        int32_t prompt[3] = {i % 49, i / 49 % 49, 3};
        sh_sequence_spec q = {.id = 0,
                              .client = (uint64_t)i / 2,
                              .prompt = prompt,
                              .prompt_count = 3,
                              .max_tokens = 10,
                              .logprobs = -1,
                              .sampling = sh_sampling_default()};
        sh_sched_submit(sched, 1, &q);
    }
    int64_t start = sh_clock_ns();
    assert_true(sh_sched_plan(sched, plan));
    double took = (double)(sh_clock_ns() - start) * 1e-9;
    assert_int_equal(plan->seq_count, PLACES);
    for (int i = 0; i < PLACES; i++) /* the first request of each client */
        assert_int_equal(plan->tokens[3 * i], 2 * i % 49);
    if (!SLOW && took > 2) fail_msg("%d of %d were admitted in %.3f s", PLACES, WAITING, took);
    sh_step_plan_free(plan);
    sh_sched_free(sched);
    sh_blocks_free(blocks);
    bench_close(b);
}

TEST(a_changed_state_changes_the_fingerprint)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 10, .max = 20};
    submit(b, 0, &ask);
    bench_step(b);
    uint64_t before = sh_batch_state_fingerprint(b->state);
    sh_err err;
    sh_step_plan_clear(b->copy); /* give another slot a block that is in no plan */
    b->copy->seqs[b->copy->seq_count++] = (sh_step_seq){
        .slot = 3, .fresh = true, .token_count = 1, .block_count = 1};
    b->copy->tokens[b->copy->token_count++] = 1;
    b->copy->blocks[b->copy->block_count++] = 9;
    CHECK_OK(sh_batch_state_apply(b->state, b->copy, b->spans, &err), err);
    assert_true(sh_batch_state_fingerprint(b->state) != before);
    bench_close(b);
}

TEST(a_plan_that_does_not_match_the_state_is_refused)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    struct ask ask = {.count = 40, .max = 20};
    sh_err err;
    submit(b, 0, &ask);
    assert_true(sh_sched_plan(b->sched, b->plan));
    sh_buf bytes = {0};
    sh_step_plan_pack(b->plan, &bytes);
    for (size_t len = 0; len < bytes.len; len++)
        assert_true(sh_step_plan_unpack((sh_str){bytes.ptr, len}, b->copy, &err) < 0);
    for (size_t i = 0; i < bytes.len;
         i++) { /* a flipped bit is refused, or at least touches no memory outside */
        bytes.ptr[i] ^= 0x40;
        if (sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err) == SH_OK) {
            sh_batch_state *fresh = sh_batch_state_create(&b->opts.limits);
            if (sh_batch_state_apply(fresh, b->copy, b->spans, &err) != SH_OK)
                assert_non_null(strstr(err.text, "slot"));
            sh_batch_state_free(fresh);
        }
        bytes.ptr[i] ^= 0x40;
    }
    sh_buf_reset(&bytes);
    bench_close(b);
}

TEST(a_sequence_is_pooled_or_drawn_from)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    sh_step_plan *p = b->copy;
    for (int i = 0; i < 5; i++) {
        sh_buf bytes = {0};
        sh_err err;
        sh_step_plan_clear(p);
        p->seqs[p->seq_count++] = (sh_step_seq){.fresh = true,
                                                .token_count = 1,
                                                .block_count = 1,
                                                .second = 7,
                                                .pool = SH_POOL_MEAN,
                                                .pool_ends = true};
        p->tokens[p->token_count++] = 1;
        p->blocks[p->block_count++] = 2;
        sh_step_seq *q = &p->seqs[0];
        if (i == 1) q->pool = SH_POOL_NONE; /* but one ends */
        if (i == 2) q->pool = SH_POOLS;
        if (i == 3) q->second = -1;
        if (i == 4) p->draws[p->draw_count++] = (sh_step_draw){.draw.logprobs = -1};
        q->draw_count = p->draw_count;
        sh_step_plan_pack(p, &bytes);
        assert_int_equal(sh_step_plan_unpack(sh_buf_str(&bytes), p, &err) == SH_OK, i == 0);
        if (i == 0) assert_int_equal(sh_step_plan_vectors(p), 1);
        if (i == 0) assert_int_equal(p->seqs[0].second, 7);
        sh_buf_reset(&bytes);
    }
    bench_close(b);
}

TEST(outputs_are_asked_for_only_where_there_is_memory_for_them)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    for (int agreed = 0; agreed < 2; agreed++) {
        sh_buf bytes = {0};
        sh_err err;
        sh_step_plan_clear(b->plan);
        b->plan->outputs = true;
        b->copy->limits.outputs = agreed;
        sh_step_plan_pack(b->plan, &bytes);
        assert_int_equal(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err) == SH_OK, agreed);
        assert_int_equal(b->copy->outputs, agreed);
        sh_buf_reset(&bytes);
    }
    bench_close(b);
}

/* A plan with one sequence, one draw and two new masks. */
static void plan_with_masks(sh_step_plan *p)
{
    size_t words = sh_step_mask_words(&p->limits);
    sh_step_plan_clear(p);
    p->seqs[p->seq_count++] = (sh_step_seq){
        .slot = 1, .fresh = true, .token_count = 1, .draw_count = 1, .block_count = 1};
    p->tokens[p->token_count++] = 1;
    p->blocks[p->block_count++] = 2;
    p->draws[p->draw_count++] = (sh_step_draw){.draw = {.top_p = 1, .logprobs = -1}, .mask = 7};
    p->mask_numbers[p->mask_count++] = 7;
    p->mask_numbers[p->mask_count++] = 8;
    for (size_t i = 0; i < 2 * words; i++) p->mask_words[i] = sh_mix64(i);
    for (size_t i = words - 1; i < 2 * words; i += words)
        p->mask_words[i] &= UINT64_MAX >> (64 - VOCAB % 64) % 64;
}

TEST(masks_of_a_plan_become_part_of_the_state)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    sh_batch_state *other = sh_batch_state_create(&b->opts.limits);
    sh_err err;
    plan_with_masks(b->copy);
    CHECK_OK(sh_batch_state_apply(b->state, b->copy, b->spans, &err), err);
    sh_batch_state_take_masks(b->state, b->copy);
    const uint64_t *mask = sh_batch_state_mask(b->state, &b->copy->draws[0]);
    assert_memory_equal(mask, b->copy->mask_words,
                        sh_step_mask_words(&b->opts.limits) * sizeof(*mask));
    b->copy->draws[0].mask = 0;
    assert_null(sh_batch_state_mask(b->state, &b->copy->draws[0]));
    b->copy->mask_numbers[1] = 6;
    CHECK_OK(sh_batch_state_apply(other, b->copy, b->spans, &err), err);
    assert_true(sh_batch_state_fingerprint(other) != sh_batch_state_fingerprint(b->state));
    CHECK_OK(sh_batch_state_apply(b->state, b->copy, b->spans, &err), err);
    b->copy->mask_numbers[1] = 8; /* which numbers there are, not the order in which they came */
    CHECK_OK(sh_batch_state_apply(other, b->copy, b->spans, &err), err);
    assert_true(sh_batch_state_fingerprint(other) == sh_batch_state_fingerprint(b->state));
    b->copy->draws[0].mask = 3; /* which no plan has brought */
    assert_int_equal(sh_batch_state_apply(other, b->copy, b->spans, &err), SH_ERR_GROUP);
    assert_string_equal(err.text, "draw 0: there is no mask 3");
    sh_batch_state_free(other);
    bench_close(b);
}

/* A copy of the plan, as another rank has it. */
static void copy_plan(struct bench *b)
{
    sh_buf bytes = {0};
    sh_err err;
    sh_step_plan_pack(b->plan, &bytes);
    CHECK_OK(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    sh_buf_reset(&bytes);
}

TEST(the_bits_of_masks_follow_the_plan_and_fit_no_other)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    size_t words = sh_step_mask_words(&b->opts.limits);
    sh_buf bytes = {0};
    sh_err err;
    plan_with_masks(b->plan);
    b->plan->step = 5;
    copy_plan(b);
    memset(b->copy->mask_words, 0, 2 * words * sizeof(uint64_t));
    sh_step_masks_pack(b->plan, &bytes);
    assert_int_equal(bytes.len, sh_step_masks_bytes(b->copy));
    CHECK_OK(sh_step_masks_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    assert_memory_equal(b->copy->mask_words, b->plan->mask_words, 2 * words * sizeof(uint64_t));
    for (size_t len = 0; len < bytes.len; len++)
        assert_true(sh_step_masks_unpack((sh_str){bytes.ptr, len}, b->copy, &err) < 0);
    b->copy->step = 6;
    assert_true(sh_step_masks_unpack(sh_buf_str(&bytes), b->copy, &err) < 0);
    b->copy->step = 5;
    b->copy->mask_count = 1;
    assert_true(sh_step_masks_unpack(sh_buf_str(&bytes), b->copy, &err) < 0);
    copy_plan(b); /* a token that the model does not have */
    b->plan->mask_words[words - 1] |= (uint64_t)1 << VOCAB % 64;
    sh_buf_clear(&bytes);
    sh_step_masks_pack(b->plan, &bytes);
    assert_true(sh_step_masks_unpack(sh_buf_str(&bytes), b->copy, &err) < 0);
    sh_buf_reset(&bytes);
    bench_close(b);
}

/* What unpacks must be safe to apply. */
static void try_masks(struct bench *b, const sh_buf *bytes)
{
    sh_err err;
    if (sh_step_plan_unpack(sh_buf_str(bytes), b->copy, &err) != SH_OK) return;
    sh_batch_state *fresh = sh_batch_state_create(&b->opts.limits);
    if (sh_batch_state_apply(fresh, b->copy, b->spans, &err) != SH_OK)
        assert_true(strstr(err.text, "slot") != NULL || strstr(err.text, "mask") != NULL);
    sh_batch_state_free(fresh);
}

TEST(masks_that_cannot_be_are_refused)
{
    UNUSED_STATE;
    struct bench *b = bench_open(BLOCKS_MAX, 0);
    sh_err err;
    sh_buf bytes = {0};
    plan_with_masks(b->plan);
    sh_step_plan_pack(b->plan, &bytes);
    CHECK_OK(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    for (size_t len = 0; len < bytes.len; len++)
        assert_true(sh_step_plan_unpack((sh_str){bytes.ptr, len}, b->copy, &err) < 0);
    for (size_t i = 0; i < bytes.len * 8; i++) {
        bytes.ptr[i / 8] ^= (char)(1 << i % 8);
        try_masks(b, &bytes);
        bytes.ptr[i / 8] ^= (char)(1 << i % 8);
    }
    const int numbers[] = {-1, 0, 9, INT32_MAX}; /* of a mask */
    for (size_t i = 0; i < SH_COUNT_OF(numbers); i++) {
        plan_with_masks(b->plan);
        b->plan->mask_numbers[1] = numbers[i];
        sh_buf_clear(&bytes);
        sh_step_plan_pack(b->plan, &bytes);
        assert_true(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err) < 0);
    }
    const int draws[] = {-1, 9, INT32_MAX}; /* the mask of a draw */
    for (size_t i = 0; i < SH_COUNT_OF(draws); i++) {
        plan_with_masks(b->plan);
        b->plan->draws[0].mask = draws[i];
        sh_buf_clear(&bytes);
        sh_step_plan_pack(b->plan, &bytes);
        assert_true(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err) < 0);
    }
    sh_buf_reset(&bytes);
    bench_close(b);
}

TEST(a_mask_is_sent_once_until_others_need_its_number)
{
    UNUSED_STATE;
    enum { KEPT = 4 };
    sh_mask_table *t = sh_mask_table_create(KEPT);
    bool send;
    int numbers[KEPT];
    sh_mask_table_turn(t);
    for (int i = 0; i < KEPT; i++) {
        numbers[i] = sh_mask_table_number(t, &(sh_mask_key){1, 0, (uint64_t)i}, &send);
        assert_true(send && numbers[i] >= 1 && numbers[i] <= KEPT);
        for (int j = 0; j < i; j++) assert_true(numbers[i] != numbers[j]);
    }
    sh_mask_table_turn(t); /* all but the third are used again */
    for (int i = 0; i < KEPT; i++) {
        if (i == 2) continue;
        assert_int_equal(sh_mask_table_number(t, &(sh_mask_key){1, 0, (uint64_t)i}, &send),
                         numbers[i]);
        assert_false(send);
    }
    assert_int_equal(sh_mask_table_number(t, &(sh_mask_key){1, 1, 2}, &send), numbers[2]);
    assert_true(send);
    sh_mask_table_turn(t);
    assert_int_equal(sh_mask_table_number(t, &(sh_mask_key){2, 1, 2}, &send), numbers[0]);
    assert_true(send);
    sh_mask_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_answer_is_what_the_request_gives_alone),
        cmocka_unit_test(drafts_change_no_answer),
        cmocka_unit_test(drafts_change_no_answer_of_a_model_with_a_fixed_state),
        cmocka_unit_test(an_answer_that_goes_on_elsewhere_keeps_the_limit_of_its_reasoning),
        cmocka_unit_test(right_drafts_do_not_go_past_the_limit_of_reasoning),
        cmocka_unit_test(tokens_to_compute_again_respect_the_size_of_a_step),
        cmocka_unit_test(after_a_wrong_draft_a_fixed_state_continues_at_the_block_border),
        cmocka_unit_test(too_few_kv_blocks_pause_requests_and_lose_nothing),
        cmocka_unit_test(a_second_turn_finds_the_first_in_the_cache),
        cmocka_unit_test(equal_prompts_at_once_are_computed_once),
        cmocka_unit_test(a_request_that_can_never_fit_is_refused_with_the_numbers),
        cmocka_unit_test(a_full_queue_refuses_and_allows_a_retry),
        cmocka_unit_test(a_cancelled_request_is_not_in_the_next_step),
        cmocka_unit_test(plans_in_flight_share_the_requests_evenly),
        cmocka_unit_test(prompts_enter_a_pipeline_a_few_at_a_time_and_a_lone_one_whole),
        cmocka_unit_test(a_prompt_does_not_hold_up_a_stream_in_another_stage),
        cmocka_unit_test(a_flood_of_one_client_does_not_starve_another),
        cmocka_unit_test(a_long_queue_of_many_clients_is_admitted_quickly),
        cmocka_unit_test(a_changed_state_changes_the_fingerprint),
        cmocka_unit_test(a_plan_that_does_not_match_the_state_is_refused),
        cmocka_unit_test(a_sequence_is_pooled_or_drawn_from),
        cmocka_unit_test(outputs_are_asked_for_only_where_there_is_memory_for_them),
        cmocka_unit_test(masks_of_a_plan_become_part_of_the_state),
        cmocka_unit_test(the_bits_of_masks_follow_the_plan_and_fit_no_other),
        cmocka_unit_test(masks_that_cannot_be_are_refused),
        cmocka_unit_test(a_mask_is_sent_once_until_others_need_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
