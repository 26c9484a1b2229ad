/* Requests that are cut off and submitted again with the answer so far: put together, the parts
 * must be the undisturbed answer, token for token and number for number.
 *
 * The model behind the scheduler makes a row of logits from everything before a position, read back
 * through the KV blocks that the plan names, and draws from it as the ranks do. So a wrong block, a
 * stale prefix, a draw at the wrong position or a penalty over the wrong tokens gives another
 * answer. A third of the requests are bound to a grammar; what they give must match it as well. */
#include "engine/scheduler.h"

#include "base/hash.h"
#include "text/grammar/pack.h"

#include "test.h"

enum {
    VOCAB = 60,
    SLOTS = 5,
    TOKENS = 96,
    CONTEXT = 8 * SH_KV_BLOCK,
    MANY_BLOCKS = 64,
    FEW_BLOCKS = 13,
    REQUESTS = 60,
    STAGES = 2,
    DRAWS = SLOTS * (SH_DRAFTS_MAX + 1)
};

struct ask {
    sh_sequence_spec spec; /* as it was submitted first */
    int32_t prompt[CONTEXT];
    int32_t stop_ids[4], bias_ids[3];
    int grammar; /* its number + 1; 0: none */
    float bias[3];
};

struct answer {
    bool done, lost;
    int count, computed;
    int32_t tokens[CONTEXT];
    float logprobs[CONTEXT];
    sh_event end;
};

struct bench {
    sh_sched_opts opts;
    sh_blocks *blocks;
    sh_sched *sched;
    sh_batch_state *state;
    sh_step_plan *plans[STAGES], *copy;
    uint64_t random;
    sh_status refusal; /* what requests are refused with */
    int32_t kv[MANY_BLOCKS][SH_KV_BLOCK];
    struct answer answers[REQUESTS];
};

/* ---- grammars ---- */

enum { TEXTS = 57, SPECIAL = TEXTS, GRAMMARS = 4 }; /* tokens with text; the others are special */

static const char *const texts[TEXTS] = {
    "a",    "b",  "c",  "d",    "e",  "f",  "g",  "h",   "i",     "j",   "k",    "l",
    "m",    "n",  "o",  "p",    "q",  "r",  "s",  "t",   "u",     "v",   "w",    "x",
    "y",    "z",  "0",  "1",    "2",  "3",  "4",  "5",   "6",     "7",   "8",    "9",
    "{",    "}",  "[",  "]",    ",",  ":",  "\"", "{\"", "abc",   "\":", "true", "false",
    "list", "],", "ab", "\":[", "al", "12", "}}", "a,",  "\"list"};

static struct {
    sh_token_trie *trie;
    sh_constraints *all;
    sh_grammar *compiled[GRAMMARS];
    sh_buf packed[GRAMMARS];
} grammars;

/* The longest token first: not what the model prefers, so some of these drafts are wrong. */
static int encode(void *ctx, sh_str text, int32_t *out, int max)
{
    int count = 0;
    (void)ctx;
    while (text.len > 0 && count < max) {
        size_t best = 0;
        for (int i = 0; i < TEXTS; i++) {
            size_t len = strlen(texts[i]);
            if (len <= best || len > text.len || memcmp(texts[i], text.ptr, len) != 0) continue;
            best = len;
            out[count] = i;
        }
        if (best == 0) break;
        text = (sh_str){text.ptr + best, text.len - best};
        count++;
    }
    return count;
}

static sh_status vocabulary_load(void *ctx, sh_vocabulary *out, sh_err *err)
{
    (void)ctx;
    (void)err;
    *out = (sh_vocabulary){.trie = grammars.trie, .encode = encode};
    return SH_OK;
}

/* Text that may end early, text with forced runs, nesting, and special tokens, of which the last is
 * among the stop ids of some requests. */
static sh_expr grammar_make(sh_grammar_builder *b, int which)
{
    if (which == 0) return sh_expr_regex(b, SH_STR("[a-z]{1,30}"));
    if (which == 1)
        return sh_expr_regex(b, SH_STR("\\{\"abc\":(true|false|[0-9]{1,5}),\"list\":"
                                       "\\[([a-c]+(,[a-c]+)*)?\\]\\}"));
    if (which == 2)
        return sh_expr_gbnf(b, SH_STR("root ::= [a-f] | \"[\" root (\",\" root)* \"]\""));
    sh_expr items[] = {sh_expr_regex(b, SH_STR("[a-f]{0,9}")), sh_expr_token(b, SPECIAL),
                       sh_expr_literal(b, SH_STR("true")), sh_expr_token(b, SPECIAL + 1)};
    return sh_expr_seq(b, items, SH_COUNT_OF(items));
}

static int grammars_open(void **state)
{
    UNUSED_STATE;
    sh_err err;
    sh_token_text tokens[VOCAB];
    for (int i = 0; i < VOCAB; i++)
        tokens[i] = (sh_token_text){sh_str_of(i < TEXTS ? texts[i] : ""), i >= SPECIAL};
    grammars.trie = sh_token_trie_build(tokens, VOCAB, NULL, 0);
    sh_grammar_builder *b = sh_grammar_builder_create();
    for (int i = 0; i < GRAMMARS; i++) {
        CHECK_OK(sh_grammar_compile(b, grammar_make(b, i), &grammars.compiled[i], &err), err);
        sh_grammar_pack(grammars.compiled[i], &grammars.packed[i]);
    }
    sh_grammar_builder_free(b);
    sh_vocabulary_source source = {vocabulary_load, NULL};
    CHECK_OK(sh_constraints_open(&source, VOCAB, &grammars.all, &err), err);
    sh_status status;
    while ((status = sh_constraints_ready(grammars.all, &err)) == SH_AGAIN) sh_sleep_ms(1);
    CHECK_OK(status, err);
    return 0;
}

static int grammars_close(void **state)
{
    UNUSED_STATE;
    sh_constraints_close(grammars.all);
    for (int i = 0; i < GRAMMARS; i++) {
        sh_grammar_free(grammars.compiled[i]);
        sh_buf_reset(&grammars.packed[i]);
    }
    sh_token_trie_free(grammars.trie);
    return 0;
}

/* An answer matches its grammar, and if it ended by itself it is complete: before the stop id, or
 * with it. */
static void check_matches(const struct ask *ask, const struct answer *a)
{
    if (ask->grammar == 0) return;
    sh_err err;
    sh_match_state state = SH_MATCH_START;
    sh_matcher *m = sh_matcher_create(grammars.compiled[ask->grammar - 1], grammars.trie);
    for (int i = 0; i < a->count; i++) {
        CHECK_OK(sh_matcher_token(m, state, a->tokens[i], &state, &err), err);
        assert_true(state != SH_MATCH_DEAD);
    }
    bool complete = sh_matcher_accepts(m, state);
    for (int i = 0; i < ask->spec.stop_id_count && !complete; i++) {
        sh_match_state after;
        CHECK_OK(sh_matcher_token(m, state, ask->stop_ids[i], &after, &err), err);
        complete = after != SH_MATCH_DEAD && sh_matcher_accepts(m, after);
    }
    assert_true(complete || a->end.finish == SH_FINISH_LENGTH);
    sh_matcher_free(m);
}

/* ---- the ranks ---- */

static uint64_t next(uint64_t *random, uint64_t below)
{
    *random = sh_mix64(*random + 1);
    return (*random >> 16) % below;
}

static void on_event(void *ctx, uint64_t owner, const sh_event *e)
{
    struct bench *b = ctx;
    (void)owner;
    struct answer *a = &b->answers[e->id];
    assert_false(a->done || a->lost); /* nothing follows the end */
    switch (e->kind) {
    case SH_EVENT_PROGRESS:
        assert_true(e->computed < CONTEXT);
        a->computed = e->computed;
        break;
    case SH_EVENT_TOKEN:
        assert_true(a->count < CONTEXT);
        a->tokens[a->count] = e->token;
        a->logprobs[a->count++] = e->logprob;
        break;
    case SH_EVENT_ERROR:
        assert_int_equal(e->error.status, b->refusal); /* nothing else is refused here */
        a->lost = true;
        break;
    default: a->done = true; a->end = *e;
    }
}

static void bench_start(struct bench *b)
{
    b->sched = sh_sched_create(&b->opts, b->blocks, on_event, b);
    b->state = sh_batch_state_create(&b->opts.limits);
}

static struct bench *bench_open(int blocks, int drafts, int stages)
{
    struct bench *b = calloc(1, sizeof(*b));
    b->opts = (sh_sched_opts){.limits = {.slots = SLOTS,
                                         .tokens = TOKENS,
                                         .draws = DRAWS,
                                         .adjusts = 4 * CONTEXT + 2048,
                                         .blocks = blocks,
                                         .seq_blocks = CONTEXT / SH_KV_BLOCK + 2,
                                         .vocab = VOCAB,
                                         .masks = DRAWS},
                              .constraints = grammars.all,
                              .context = CONTEXT,
                              .queue_max = REQUESTS,
                              .stall_s = 1,
                              .stages_in_flight = stages,
                              .drafts = drafts,
                              .drafts_always = true};
    b->refusal = SH_ERR_GROUP;
    b->blocks = sh_blocks_create(blocks, (sh_key128){1, 2}, (sh_key128){3, 4});
    sh_blocks_reuse_parts(b->blocks, SH_PARTS_ANY);
    for (int i = 0; i < STAGES; i++) b->plans[i] = sh_step_plan_create(&b->opts.limits);
    b->copy = sh_step_plan_create(&b->opts.limits);
    bench_start(b);
    return b;
}

static void bench_close(struct bench *b)
{
    sh_sched_free(b->sched);
    sh_blocks_free(b->blocks);
    sh_batch_state_free(b->state);
    for (int i = 0; i < STAGES; i++) sh_step_plan_free(b->plans[i]);
    sh_step_plan_free(b->copy);
    free(b);
}

/* The row after `count` tokens. A short memory now and then, so that drafts are sometimes right. */
static void row_make(const int32_t *history, int count, float row[VOCAB])
{
    uint64_t all = 0, few = 0;
    for (int i = 0; i < count; i++) all = sh_mix64(all ^ (uint64_t)history[i]);
    for (int i = count < 2 ? 0 : count - 2; i < count; i++)
        few = sh_mix64(few ^ (uint64_t)history[i]);
    uint64_t from = all % 8 == 0 ? all : few;
    for (int i = 0; i < VOCAB; i++) row[i] = (float)(sh_mix64(from + (uint64_t)i) % 1000) * 0.008f;
}

static void draw(const sh_batch_state *state, const sh_step_draw *d, const sh_adjust *adjusts,
                 const int32_t *history, int count, sh_pick *out)
{
    float row[VOCAB];
    sh_candidate scratch[2 * VOCAB];
    sh_row_query query = {.draw = d->draw,
                          .adjusts = adjusts,
                          .adjust_count = d->adjust_count,
                          .allowed = sh_batch_state_mask(state, d)};
    assert_int_equal(d->draw.position, count);
    row_make(history, count, row);
    sh_row_query_apply(&query, row, 0, VOCAB);
    sh_pick_whole(&d->draw, row, VOCAB, scratch, out);
}

/* Does what ranks do: unpack the plan, apply it, compute through the blocks. Rows of a sequence
 * with the long RoPE factors differ. `break_at`: the ranks are lost when they have written so many
 * tokens to the cache. */
static bool model_run(struct bench *b, const sh_step_plan *plan, int break_at, sh_pick *picks)
{
    sh_err err;
    sh_buf bytes = {0};
    sh_span spans[SLOTS];
    sh_step_plan_pack(plan, &bytes);
    CHECK_OK(sh_step_plan_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    CHECK_OK(sh_batch_state_apply(b->state, b->copy, spans, &err), err);
    sh_buf_clear(&bytes);
    sh_step_masks_await(plan);
    sh_step_masks_pack(plan, &bytes);
    CHECK_OK(sh_step_masks_unpack(sh_buf_str(&bytes), b->copy, &err), err);
    sh_batch_state_take_masks(b->state, b->copy);
    sh_buf_reset(&bytes);
    if (break_at == 0) return false;
    for (int i = 0; i < b->copy->seq_count; i++) {
        const sh_step_seq *seq = &b->copy->seqs[i];
        int32_t *to = b->kv[spans[i].blocks[seq->pos / SH_KV_BLOCK]];
        if (seq->copies) memmove(to, b->kv[seq->copied], sizeof(b->kv[0]));
    }
    const sh_adjust *adjusts = b->copy->adjusts;
    for (int i = 0, at = 0; i < b->copy->seq_count; i++) {
        const sh_span *span = &spans[i];
        const sh_step_seq *seq = &b->copy->seqs[i];
        int32_t history[CONTEXT + SH_DRAFTS_MAX + 1];
        for (int t = 0; t < span->count; t++) {
            int pos = span->pos + t;
            if (break_at-- == 0) return false;
            b->kv[span->blocks[pos / SH_KV_BLOCK]][pos % SH_KV_BLOCK] =
                b->copy->tokens[span->first + t] + (seq->long_rope ? 1000 : 0);
        }
        for (int t = 0; t < span->pos + span->count; t++)
            history[t] = b->kv[span->blocks[t / SH_KV_BLOCK]][t % SH_KV_BLOCK];
        for (int d = 0; d < seq->draw_count; d++, at++) {
            draw(b->state, &b->copy->draws[at], adjusts, history,
                 span->pos + span->count - seq->draw_count + 1 + d, &picks[at]);
            adjusts += b->copy->draws[at].adjust_count;
        }
    }
    return true;
}

/* Makes as many plans as there are stages and commits them in order. `lose`: the ranks are lost in
 * one of them. False when there was nothing to run, or they were lost. */
static bool bench_step(struct bench *b, bool lose)
{
    static sh_pick picks[DRAWS];
    int count = 0;
    while (count < b->opts.stages_in_flight && sh_sched_plan(b->sched, b->plans[count])) count++;
    int lost_in = lose && count > 0 ? (int)next(&b->random, (uint64_t)count) : -1;
    for (int i = 0; i < count; i++) {
        int tokens = b->plans[i]->token_count;
        int at = i == lost_in ? (int)next(&b->random, (uint64_t)tokens) : tokens + 1;
        if (!model_run(b, b->plans[i], at, picks)) return false;
        sh_sched_commit(b->sched, b->plans[i], picks, 1e-3, 1e-3);
    }
    return count > 0;
}

static void ask_submit(struct bench *b, const struct ask *ask, int id)
{
    int32_t ids[2 * CONTEXT];
    const struct answer *a = &b->answers[id];
    size_t prompt = ask->spec.prompt_count;
    memcpy(ids, ask->prompt, prompt * sizeof(*ids));
    memcpy(ids + prompt, a->tokens, (size_t)a->count * sizeof(*ids));
    sh_sequence_spec q = ask->spec;
    q.id = (uint64_t)id;
    q.prompt = ids;
    q.prompt_count = prompt + (size_t)a->count;
    q.answered = a->count;
    q.replayed = b->answers[id].lost;
    q.stop_ids = ask->stop_ids;
    if (ask->grammar > 0) q.grammar = sh_buf_str(&grammars.packed[ask->grammar - 1]);
    q.sampling.logit_bias_ids = ask->bias_ids;
    q.sampling.logit_bias = ask->bias;
    b->answers[id].lost = false;
    sh_sched_submit(b->sched, 1, &q);
}

/* The ranks are lost: everything open ends, and is submitted again to a new scheduler. The KV cache
 * stays with its book, or both are new. */
static void bench_lose(struct bench *b, const struct ask *asks, int count, bool keep)
{
    sh_err err;
    sh_err_set(&err, SH_ERR_GROUP, "rank 1 was lost");
    sh_sched_fail_all(b->sched, &err);
    assert_int_equal(sh_blocks_available(b->blocks), sh_blocks_total(b->blocks));
    sh_sched_free(b->sched);
    sh_batch_state_free(b->state);
    if (!keep) {
        int total = sh_blocks_total(b->blocks);
        sh_blocks_free(b->blocks);
        b->blocks = sh_blocks_create(total, (sh_key128){5, b->random}, (sh_key128){3, 4});
        sh_blocks_reuse_parts(b->blocks, SH_PARTS_ANY);
        memset(b->kv, 0x3f, sizeof(b->kv));
    }
    bench_start(b);
    for (int i = 0; i < count; i++)
        if (b->answers[i].lost) ask_submit(b, &asks[i], i);
}

static void bench_finish(struct bench *b)
{
    for (int steps = 0; sh_sched_busy(b->sched); steps++) {
        assert_true(steps < 100000);
        assert_true(bench_step(b, false));
    }
    assert_int_equal(sh_blocks_available(b->blocks), sh_blocks_total(b->blocks));
}

static double any(uint64_t *random, double least, double most)
{
    return least + (most - least) * (double)next(random, 1000) / 999;
}

/* Half of the prompts begin alike. */
static void ask_make(struct ask *ask, uint64_t *random)
{
    sh_sampling *s = &ask->spec.sampling;
    bool plain = next(random, 4) == 0;
    uint64_t family = next(random, 2);
    ask->spec = (sh_sequence_spec){.client = next(random, 3),
                                   .prompt_count = 1 + next(random, 230)};
    for (size_t i = 0; i < ask->spec.prompt_count; i++)
        ask->prompt[i] = (int32_t)(family == 0 ? sh_mix64(i) % VOCAB : next(random, VOCAB));
    ask->spec.max_tokens = 1 + (int)next(random, 70);
    ask->spec.min_tokens = (int)next(random, 2) * (int)next(random, 40);
    ask->spec.logprobs = (int)next(random, 4) - 1;
    ask->spec.stop_id_count = (int)next(random, 4);
    for (int i = 0; i < 4; i++) ask->stop_ids[i] = (int32_t)next(random, VOCAB);
    if (next(random, 3) == 0) {
        ask->grammar = 1 + (int)next(random, GRAMMARS);
        ask->spec.stop_id_count = 1 + (int)next(random, 3);
        ask->stop_ids[0] = SPECIAL + 2;
        ask->stop_ids[1] = SPECIAL + 1;
        ask->stop_ids[2] = 'z' - 'a';
    }
    *s = sh_sampling_default();
    s->seed = next(random, 1000);
    s->temperature = next(random, 3) == 0 ? 0 : any(random, 0.1, 1.6);
    if (plain) return;
    s->top_k = (int)next(random, 2) * (int)next(random, 20);
    s->top_p = next(random, 2) == 0 ? 1 : any(random, 0.3, 1);
    s->min_p = next(random, 2) == 0 ? 0 : any(random, 0, 0.4);
    s->repetition_penalty = next(random, 2) == 0 ? 1 : any(random, 0.7, 1.6);
    s->repetition_window = 1 + (int)next(random, 100);
    s->presence_penalty = next(random, 2) == 0 ? 0 : any(random, -1, 2);
    s->frequency_penalty = next(random, 2) == 0 ? 0 : any(random, -1, 2);
    s->logit_bias_count = (int)next(random, 4);
    for (int i = 0; i < 3; i++) {
        ask->bias_ids[i] = (int32_t)(i * 20) + (int32_t)next(random, 20);
        ask->bias[i] = (float)any(random, -5, 5);
    }
}

static void check_same(const struct answer *got, const struct answer *want)
{
    assert_true(got->done && want->done);
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        assert_int_equal(got->tokens[i], want->tokens[i]);
        assert_memory_equal(&got->logprobs[i], &want->logprobs[i], sizeof(float));
    }
    assert_int_equal(got->end.kind, SH_EVENT_DONE);
    assert_int_equal(got->end.finish, want->end.finish);
    assert_int_equal(got->end.prompt_tokens, want->end.prompt_tokens);
    assert_int_equal(got->end.completion_tokens, want->end.completion_tokens);
    assert_true(got->end.cached_tokens <= got->end.prompt_tokens);
}

/* Each alone, one after the other, in a new group. */
static void alone(const struct ask *asks, int count, int rope_original, struct answer *out)
{
    for (int i = 0; i < count; i++) {
        struct bench *b = bench_open(MANY_BLOCKS, 0, 1);
        b->opts.rope_original = rope_original;
        sh_sched_free(b->sched);
        sh_batch_state_free(b->state);
        bench_start(b);
        ask_submit(b, &asks[i], i);
        bench_finish(b);
        out[i] = b->answers[i];
        bench_close(b);
    }
}

enum { KEEP, FORGET, EITHER };

static void check_cuts(int blocks, int drafts, int stages, int rope_original, int kv, uint64_t seed)
{
    struct bench *b = bench_open(blocks, drafts, stages);
    struct ask *asks = calloc(REQUESTS, sizeof(*asks));
    struct answer *want = calloc(REQUESTS, sizeof(*want));
    int losses = 0, sent = 0;
    b->opts.rope_original = rope_original;
    b->random = seed;
    bench_lose(b, asks, 0, true);
    for (int i = 0; i < REQUESTS; i++) ask_make(&asks[i], &b->random);
    alone(asks, REQUESTS, rope_original, want);
    for (int steps = 0; sent < REQUESTS || sh_sched_busy(b->sched); steps++) {
        assert_true(steps < 100000);
        if (sent < REQUESTS && next(&b->random, 3) == 0) ask_submit(b, &asks[sent], sent), sent++;
        bool lose = next(&b->random, 12) == 0;
        bench_step(b, lose);
        if (!lose) continue;
        losses++;
        bench_lose(b, asks, sent, kv == KEEP || (kv == EITHER && next(&b->random, 2) == 0));
    }
    assert_true(losses > 5);
    for (int i = 0; i < REQUESTS; i++) {
        check_same(&b->answers[i], &want[i]);
        check_matches(&asks[i], &want[i]);
    }
    free(want);
    free(asks);
    bench_close(b);
}

TEST(an_answer_that_is_cut_off_goes_on_with_the_same_tokens)
{
    UNUSED_STATE;
    for (uint64_t seed = 1; seed < 6; seed++) check_cuts(MANY_BLOCKS, 0, 1, 0, FORGET, seed);
}

TEST(so_it_does_where_the_kv_cache_was_kept)
{
    UNUSED_STATE;
    for (uint64_t seed = 11; seed < 16; seed++) check_cuts(MANY_BLOCKS, 0, 1, 0, KEEP, seed);
}

TEST(so_it_does_with_drafts_few_blocks_and_steps_in_flight)
{
    UNUSED_STATE;
    for (uint64_t seed = 21; seed < 26; seed++) {
        check_cuts(MANY_BLOCKS, 4, 1, 0, EITHER, seed);
        check_cuts(FEW_BLOCKS, 4, 1, 0, EITHER, seed);
        check_cuts(FEW_BLOCKS, 0, 2, 0, EITHER, seed);
        check_cuts(FEW_BLOCKS, 4, 2, 0, EITHER, seed);
    }
}

TEST(so_it_does_before_and_after_the_switch_to_the_long_rope_factors)
{
    UNUSED_STATE;
    for (uint64_t seed = 31; seed < 36; seed++) {
        check_cuts(MANY_BLOCKS, 0, 1, 100, EITHER, seed);
        check_cuts(FEW_BLOCKS, 4, 2, 100, EITHER, seed);
    }
}

/* Cuts after every token, around the switch of the RoPE factors and up to the end of the context.
 */
TEST(every_place_to_cut_gives_the_same_answer)
{
    UNUSED_STATE;
    enum { PROMPT = 190, SWITCH = 200 };
    struct ask ask = {.spec = {.prompt_count = PROMPT, .max_tokens = 500, .logprobs = 1}};
    struct answer want;
    ask.spec.sampling = sh_sampling_default();
    ask.spec.sampling.frequency_penalty = 0.5;
    for (int i = 0; i < PROMPT; i++) ask.prompt[i] = i % 50;
    alone(&ask, 1, SWITCH, &want);
    assert_int_equal(want.count, CONTEXT - PROMPT); /* the context is full */
    for (int cut = 0; cut <= want.count; cut++)
        for (int drafts = 0; drafts <= 4; drafts += 4) {
            struct bench *b = bench_open(MANY_BLOCKS, drafts, 1);
            b->opts.rope_original = SWITCH;
            bench_lose(b, &ask, 0, true);
            struct answer *a = &b->answers[0];
            a->count = cut;
            memcpy(a->tokens, want.tokens, sizeof(want.tokens));
            memcpy(a->logprobs, want.logprobs, sizeof(want.logprobs));
            ask_submit(b, &ask, 0);
            bench_finish(b);
            check_same(a, &want);
            bench_close(b);
        }
}

/* The same with grammars. Some tokens are not drawn, since there is no choice. */
TEST(so_it_does_where_a_grammar_binds_the_answer)
{
    UNUSED_STATE;
    uint64_t forced[2] = {0}; /* without and with drafts */
    for (int which = 1; which <= GRAMMARS; which++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            struct ask ask = {.spec = {.prompt_count = 40,
                                       .max_tokens = 60,
                                       .min_tokens = seed % 2 == 0 ? 0 : 12,
                                       .logprobs = 2,
                                       .stop_id_count = 3},
                              .stop_ids = {SPECIAL + 1, SPECIAL + 2, 'z' - 'a'},
                              .grammar = which};
            struct answer want;
            ask.spec.sampling = sh_sampling_default();
            ask.spec.sampling.temperature = seed == 0 ? 0 : 1;
            ask.spec.sampling.seed = seed;
            alone(&ask, 1, 0, &want);
            check_matches(&ask, &want);
            for (int cut = 0; cut <= want.count; cut++)
                for (int drafts = 0; drafts <= 4; drafts += 4) {
                    struct bench *b = bench_open(MANY_BLOCKS, drafts, 1);
                    struct answer *a = &b->answers[0];
                    a->count = cut;
                    memcpy(a->tokens, want.tokens, sizeof(want.tokens));
                    memcpy(a->logprobs, want.logprobs, sizeof(want.logprobs));
                    ask_submit(b, &ask, 0);
                    bench_finish(b);
                    check_same(a, &want);
                    forced[drafts / 4] += sh_sched_stats_of(b->sched)->forced_tokens;
                    bench_close(b);
                }
        }
    assert_true(forced[0] > 0 && forced[1] > forced[0]);
}

TEST(an_answer_so_far_that_does_not_match_the_grammar_is_refused)
{
    UNUSED_STATE;
    struct bench *b = bench_open(MANY_BLOCKS, 0, 1);
    struct ask ask = {.spec = {.prompt_count = 10, .max_tokens = 9, .stop_id_count = 1},
                      .stop_ids = {SPECIAL + 2},
                      .grammar = 1};
    ask.spec.sampling = sh_sampling_default();
    b->answers[0] = (struct answer){.count = 2, .tokens = {0, 'Z' - 'A' + 1}};
    b->refusal = SH_ERR_INPUT;
    ask_submit(b, &ask, 0);
    assert_true(b->answers[0].lost);
    assert_false(sh_sched_busy(b->sched));
    bench_close(b);
}

TEST(an_answer_that_lacks_only_its_end_ends_at_once)
{
    UNUSED_STATE;
    struct bench *b = bench_open(MANY_BLOCKS, 0, 1);
    struct ask ask = {.spec = {.prompt_count = 10, .max_tokens = 7, .logprobs = -1}};
    ask.spec.sampling = sh_sampling_default();
    b->answers[0].count = 7;
    ask_submit(b, &ask, 0);
    assert_true(b->answers[0].done);
    assert_int_equal(b->answers[0].end.finish, SH_FINISH_LENGTH);
    assert_int_equal(b->answers[0].end.prompt_tokens, 10);
    assert_int_equal(b->answers[0].end.completion_tokens, 7);
    ask.spec.max_tokens = 1000;
    b->answers[1].count = CONTEXT - 10;
    ask_submit(b, &ask, 1);
    assert_true(b->answers[1].done);
    assert_int_equal(b->answers[1].end.finish, SH_FINISH_LENGTH);
    assert_int_equal(b->answers[1].count, CONTEXT - 10);
    assert_false(sh_sched_busy(b->sched));
    assert_int_equal(sh_sched_stats_of(b->sched)->finished, 2);
    bench_close(b);
}

TEST(a_full_queue_does_not_refuse_what_was_accepted_before)
{
    UNUSED_STATE;
    struct bench *b = bench_open(MANY_BLOCKS, 0, 1);
    struct ask ask = {.spec = {.prompt_count = 10, .max_tokens = 5, .logprobs = -1}};
    ask.spec.sampling = sh_sampling_default();
    b->opts.queue_max = 0;
    bench_lose(b, &ask, 0, true);
    for (int i = 0; i < REQUESTS; i++) {
        b->answers[i].lost = i >= SLOTS; /* the first ones find a free slot */
        ask_submit(b, &ask, i);
    }
    bench_finish(b);
    for (int i = 0; i < REQUESTS; i++) assert_true(b->answers[i].done);
    bench_close(b);
}

TEST(progress_tells_the_start_and_every_chunk_of_a_prompt)
{
    UNUSED_STATE;
    struct bench *b = bench_open(MANY_BLOCKS, 0, 1);
    struct ask ask = {.spec = {.prompt_count = 230, .max_tokens = 5, .logprobs = -1}};
    ask.spec.sampling = sh_sampling_default();
    b->answers[0].computed = -1;
    ask_submit(b, &ask, 0);
    assert_int_equal(b->answers[0].computed, -1); /* it waits */
    assert_true(sh_sched_plan(b->sched, b->plans[0]));
    assert_int_equal(b->answers[0].computed, 0);
    static sh_pick picks[DRAWS];
    assert_true(model_run(b, b->plans[0], TOKENS + 1, picks));
    sh_sched_commit(b->sched, b->plans[0], picks, 1e-3, 1e-3);
    assert_int_equal(b->answers[0].computed, TOKENS);
    assert_true(bench_step(b, false));
    assert_int_equal(b->answers[0].computed, 2 * TOKENS);
    assert_int_equal(b->answers[0].count, 0);
    bench_lose(b, &ask, 1, true); /* what was computed is found again, which is no progress */
    assert_true(bench_step(b, false));
    assert_int_equal(b->answers[0].computed, 0);
    assert_int_equal(b->answers[0].count, 1);
    bench_finish(b);
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_that_is_cut_off_goes_on_with_the_same_tokens),
        cmocka_unit_test(so_it_does_where_the_kv_cache_was_kept),
        cmocka_unit_test(so_it_does_with_drafts_few_blocks_and_steps_in_flight),
        cmocka_unit_test(so_it_does_before_and_after_the_switch_to_the_long_rope_factors),
        cmocka_unit_test(every_place_to_cut_gives_the_same_answer),
        cmocka_unit_test(so_it_does_where_a_grammar_binds_the_answer),
        cmocka_unit_test(an_answer_so_far_that_does_not_match_the_grammar_is_refused),
        cmocka_unit_test(an_answer_that_lacks_only_its_end_ends_at_once),
        cmocka_unit_test(a_full_queue_does_not_refuse_what_was_accepted_before),
        cmocka_unit_test(progress_tells_the_start_and_every_chunk_of_a_prompt),
    };
    return cmocka_run_group_tests(tests, grammars_open, grammars_close);
}
