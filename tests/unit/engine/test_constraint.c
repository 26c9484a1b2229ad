/* Answers bound to grammars in the whole engine, with the demo model: they match, and they are the
 * same tokens alone and in a batch with others, with and without drafts, with few KV blocks, and on
 * every split of the model. */
#include "engine/engine.h"

#include "base/json.h"
#include "base/log.h"
#include "cmd/support/vocabulary.h"
#include "text/grammar/pack.h"

#include "unit/engine/ranks.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ASKS = 12, ANSWER = 48, PROMPT_MAX = 160, RANKS_MAX = 4, CHUNK = 48, TOP = 3 };
enum { END_OF_TEXT = 4085, IM_END = 4087, IM_START = 4086 };

static const char DIR[] = "models/demo";

struct answer {
    int count;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    int top_count[ANSWER];
    sh_token_logprob top[ANSWER][TOP];
    sh_event end;
};

static int answer_max(void)
{
    return test_is_short() ? ANSWER / 2 : ANSWER;
}

/* How the requests run. */
struct way {
    const char *name;
    int tensor, stages;
    int drafts;
    int kv_tokens; /* 0: enough */
    bool alone;    /* one at a time */
};

static struct {
    struct answer answers[ASKS];
    atomic_int ended, failed;
    atomic_bool told;
    sh_err error; /* of the last that failed */
    long paused, tried, kept, constrained, used, sent, made, forced;
} got;

/* ---- requests ---- */

static const struct ask {
    const char *kind, *text; /* NULL: no grammar */
    double temperature, top_p, frequency;
    int top_k, min_tokens, logprobs;
} asks[ASKS] = {
    {NULL, NULL, 0, 1, 0, 0, 0, -1},
    {"schema",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":"
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"married\":{\"type\":\"boolean\"}},"
     "\"required\":[\"name\",\"age\",\"married\"],\"additionalProperties\":false}",
     0, 1, 0, 0, 0, -1},
    {"regex", "[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8}){1,3}\\.", 0.8, 0.9, 0, 0, 0, TOP},
    {"gbnf", "root ::= term ([+*-] term)*\nterm ::= [0-9]{1,4} | \"(\" root \")\"", 1, 1, 0.5, 0, 9,
     0},
    {"choice", "the first possibility|the second one|neither of them", 1, 1, 0, 0, 0, TOP},
    {"object", "", 1, 1, 0, 40, 0, -1},
    {"schema",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},\"age\":"
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"married\":{\"type\":\"boolean\"}},"
     "\"required\":[\"name\",\"age\",\"married\"],\"additionalProperties\":false}",
     0.7, 1, 0, 0, 40, 1},
    {NULL, NULL, 0.9, 0.9, 0, 0, 0, TOP},
    {"call", "find_the_weather_of_tomorrow", 0.5, 1, 0, 0, 0, 1},
    {"regex", "[0-9]{200}", 1, 1, 0, 0, 0, 0}, /* is cut by max_tokens */
    {"call", "find_the_weather_of_tomorrow", 0, 1, 0, 0, 0, -1},
    {"regex", "(ha){3,40}", 1.5, 1, 0, 5, 0, 0},
};

static sh_grammar *compiled[ASKS];
static sh_buf packed[ASKS];
static sh_vocabulary_files files = {.model_dir = DIR};
static sh_vocabulary vocabulary;

static sh_expr choice_make(sh_grammar_builder *b, const char *text)
{
    sh_str parts[8];
    size_t count = 0;
    for (const char *at = text; at != NULL && count < SH_COUNT_OF(parts);) {
        const char *bar = strchr(at, '|');
        parts[count++] = (sh_str){at, bar == NULL ? strlen(at) : (size_t)(bar - at)};
        at = bar == NULL ? NULL : bar + 1;
    }
    return sh_expr_choice(b, parts, count);
}

/* Any text, then a call: special tokens around forced text, and a stop id as the last token. */
static sh_expr call_make(sh_grammar_builder *b, const char *name)
{
    sh_expr items[] = {sh_expr_regex(b, SH_STR("[a-z ]{0,20}")),
                       sh_expr_token(b, IM_START),
                       sh_expr_literal(b, SH_STR("{\"name\": \"")),
                       sh_expr_literal(b, sh_str_of(name)),
                       sh_expr_literal(b, SH_STR("\", \"arguments\": {}}")),
                       sh_expr_token(b, IM_START),
                       sh_expr_token(b, IM_END)};
    return sh_expr_seq(b, items, SH_COUNT_OF(items));
}

static sh_expr expr_make(sh_grammar_builder *b, const struct ask *a)
{
    sh_err err;
    if (strcmp(a->kind, "regex") == 0) return sh_expr_regex(b, sh_str_of(a->text));
    if (strcmp(a->kind, "gbnf") == 0) return sh_expr_gbnf(b, sh_str_of(a->text));
    if (strcmp(a->kind, "choice") == 0) return choice_make(b, a->text);
    if (strcmp(a->kind, "call") == 0) return call_make(b, a->text);
    if (strcmp(a->kind, "object") == 0)
        return sh_expr_json_object(b, (sh_json_form){.spaces = true});
    cJSON *schema = NULL;
    CHECK_OK(sh_json_parse(sh_str_of(a->text), "schema", &schema, &err), err);
    sh_expr made = sh_expr_json_schema(b, schema, (sh_json_form){.spaces = true});
    cJSON_Delete(schema);
    return made;
}

static int open_all(void **state)
{
    UNUSED_STATE;
    sh_err err;
    CHECK_OK(sh_vocabulary_load(&files, &vocabulary, &err), err);
    for (int i = 0; i < ASKS; i++) {
        if (asks[i].kind == NULL) continue;
        sh_grammar_builder *b = sh_grammar_builder_create();
        CHECK_OK(sh_grammar_compile(b, expr_make(b, &asks[i]), &compiled[i], &err), err);
        sh_grammar_builder_free(b);
        sh_grammar_pack(compiled[i], &packed[i]);
    }
    return 0;
}

static int close_all(void **state)
{
    UNUSED_STATE;
    for (int i = 0; i < ASKS; i++) {
        sh_grammar_free(compiled[i]);
        sh_buf_reset(&packed[i]);
    }
    sh_vocabulary_files_reset(&files);
    return 0;
}

/* ---- the engine ---- */

static sh_status vocabulary_give(void *ctx, sh_vocabulary *out, sh_err *err)
{
    (void)ctx;
    (void)err;
    sh_sleep_ms(20); /* requests have to wait for it */
    *out = vocabulary;
    return SH_OK;
}

static long count_of(const char *json, const char *name)
{
    const char *at = strstr(json, name);
    return at == NULL ? -1 : strtol(at + strlen(name), NULL, 10);
}

/* Runs on the engine's thread. */
static void sink(void *ctx, uint64_t owner, const sh_event *e)
{
    (void)ctx;
    (void)owner;
    struct answer *a = &got.answers[e->id];
    if (e->kind == SH_EVENT_TOKEN) {
        a->tokens[a->count] = e->token;
        a->top_count[a->count] = e->top_count;
        memcpy(a->top[a->count], e->top, sizeof(a->top[0]));
        a->logprobs[a->count++] = e->logprob;
    } else if (e->kind == SH_EVENT_STATS) {
        got.paused += count_of(e->stats.ptr, "\"paused\":");
        got.tried += count_of(e->stats.ptr, "\"drafts_tried\":");
        got.kept += count_of(e->stats.ptr, "\"drafts_kept\":");
        got.constrained += count_of(e->stats.ptr, "\"constrained\":");
        got.used += count_of(e->stats.ptr, "\"masks_used\":");
        got.sent += count_of(e->stats.ptr, "\"masks_sent\":");
        got.made += count_of(e->stats.ptr, "\"masks_made\":");
        got.forced += count_of(e->stats.ptr, "\"forced_tokens\":");
        atomic_store(&got.told, true);
    } else if (e->kind == SH_EVENT_ERROR) {
        got.error = e->error;
        atomic_fetch_add(&got.failed, 1);
    } else if (e->kind == SH_EVENT_DONE) {
        a->end = *e;
        atomic_fetch_add(&got.ended, 1);
    }
}

static sh_engine_opts engine_opts(const struct way *way)
{
    return (sh_engine_opts){.model_group = {.model_dir = DIR,
                                            .device = test_device(),
                                            .device_opts = {.threads = 1,
                                                            .level = getenv("SHOAL_CPU"),
                                                            .activations = SH_ACTIVATIONS_F32},
                                            .kv_format = SH_KV_F32,
                                            .context = 512,
                                            .tensor = way->tensor,
                                            .stages = way->stages,
                                            .slots = 4,
                                            .chunk = CHUNK,
                                            .kv_tokens = way->kv_tokens,
                                            .load = {.exact = true}},
                            .queue_max = 100,
                            .stall_s = 0.2,
                            .drafts = way->drafts,
                            .drafts_always = true,
                            .vocabulary = {vocabulary_give, NULL}};
}

static pid_t worker_start(const struct way *way, int rank, const char *where)
{
    sh_engine_opts opts = engine_opts(way);
    sh_group_opts own = group_opts(rank, way->tensor * way->stages, where, -1, NULL);
    own.silence_ms = 20000;
    return rank_start(&opts.model_group, &own);
}

/* Prompts of lengths around the borders of blocks; with an answer so far, the request is one that
 * goes on. */
static void ask_more(sh_engine *engine, int id, const struct answer *so_far, int answered)
{
    static const int lengths[] = {31, 32, 33, 63, 64, 65, 95, 100, 7, 60, 50, 20};
    static const int32_t stop_ids[] = {IM_END, END_OF_TEXT};
    const struct ask *a = &asks[id];
    int32_t prompt[PROMPT_MAX + ANSWER];
    int count = lengths[id];
    for (int i = 0; i < count; i++) prompt[i] = 300 + (i % 13 * 17 + (i < 20 ? 0 : id)) % 3000;
    for (int i = 0; i < answered; i++) prompt[count++] = so_far->tokens[i];
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = prompt,
                          .prompt_count = (size_t)count,
                          .answered = answered,
                          .max_tokens = answer_max(),
                          .min_tokens = a->min_tokens,
                          .stop_ids = stop_ids,
                          .stop_id_count = SH_COUNT_OF(stop_ids),
                          .logprobs = a->logprobs,
                          .grammar = sh_buf_str(&packed[id]),
                          .sampling = sh_sampling_default()};
    q.sampling.temperature = a->temperature;
    q.sampling.top_p = a->top_p;
    q.sampling.top_k = a->top_k;
    q.sampling.frequency_penalty = a->frequency;
    q.sampling.seed = (uint64_t)id;
    engine_ask(engine, &q);
}

static void ask(sh_engine *engine, int id)
{
    ask_more(engine, id, NULL, 0);
}

static void await(int ended, int failed)
{
    sh_deadline end = sh_deadline_in_ms(200000);
    while (atomic_load(&got.ended) + atomic_load(&got.failed) < ended + failed &&
           !sh_deadline_passed(end))
        sh_sleep_ms(1);
    if (atomic_load(&got.failed) != failed) fail_msg("%s", got.error.text);
    assert_int_equal(atomic_load(&got.ended), ended);
}

static void stats_take(sh_engine *engine)
{
    sh_deadline end = sh_deadline_in_ms(100000);
    atomic_store(&got.told, false);
    sh_engine_ask_stats(engine, 1);
    while (!atomic_load(&got.told) && !sh_deadline_passed(end)) sh_sleep_ms(1);
    assert_true(atomic_load(&got.told));
}

/* One engine and its group, for all requests. */
static void run_all(const struct way *way)
{
    sh_err err;
    sh_engine *engine = NULL;
    sh_engine_opts opts = engine_opts(way);
    char where[SH_ADDR_TEXT_MAX];
    int size = way->tensor * way->stages, fd = listen_somewhere(where);
    pid_t pids[RANKS_MAX];
    for (int r = 1; r < size; r++) pids[r] = worker_start(way, r, where);
    sh_group_opts own = group_opts(0, size, where, fd, NULL);
    own.silence_ms = 20000;
    if (size > 1) opts.group = &own;
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    for (int i = 0; i < ASKS; i++) {
        ask(engine, i);
        if (way->alone) await(i + 1, 0);
    }
    await(ASKS, 0);
    stats_take(engine);
    sh_engine_stop(engine, 100);
    sh_engine_close(engine);
    for (int r = 1; r < size; r++) {
        int status = -1;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        assert_int_equal(status, 0);
    }
    close(fd);
}

static void run_way(const struct way *way, struct answer *answers)
{
    memset(&got, 0, sizeof(got));
    run_all(way);
    memcpy(answers, got.answers, sizeof(got.answers));
    print_message("# %s: %ld paused, %ld of %ld drafts kept, %ld tokens forced, %ld masks for %ld "
                  "draws, %ld made beside the forward pass\n",
                  way->name, got.paused, got.kept, got.tried, got.forced, got.sent, got.used,
                  got.made);
    assert_true(got.made > 0);
}

static void check_same(const char *name, const struct answer *a, const struct answer *b, bool bits)
{
    for (int i = 0; i < ASKS; i++) {
        for (int t = 0; t < a[i].count && t < b[i].count; t++)
            if (a[i].tokens[t] != b[i].tokens[t])
                fail_msg("%s: request %d, token %d is %d, not %d", name, i, t, b[i].tokens[t],
                         a[i].tokens[t]);
        assert_int_equal(a[i].count, b[i].count);
        assert_int_equal(a[i].end.finish, b[i].end.finish);
        if (bits) assert_memory_equal(a[i].logprobs, b[i].logprobs, sizeof(a[i].logprobs));
        if (bits) assert_memory_equal(a[i].top, b[i].top, sizeof(a[i].top));
    }
}

/* The answers match, and are complete unless they were cut. Alternatives are tokens that could have
 * come; their probabilities are those among the allowed tokens. */
static void check_matches(const struct answer *answers)
{
    sh_err err;
    for (int i = 0; i < ASKS; i++) {
        if (compiled[i] == NULL) continue;
        const struct answer *a = &answers[i];
        sh_match_state state = SH_MATCH_START, after;
        sh_matcher *m = sh_matcher_create(compiled[i], files.trie);
        sh_buf text = {0};
        sh_tokenizer_decode(files.tokenizer, a->tokens, (size_t)a->count, false, &text);
        print_message("# %d: %.*s\n", i, (int)text.len, text.ptr);
        sh_buf_reset(&text);
        for (int t = 0; t < a->count; t++) {
            for (int k = 0; k < a->top_count[t]; k++) {
                CHECK_OK(sh_matcher_token(m, state, a->top[t][k].id, &after, &err), err);
                assert_true(after != SH_MATCH_DEAD || sh_matcher_accepts(m, state));
                assert_true(isfinite(a->top[t][k].logprob) && a->top[t][k].logprob <= 0);
            }
            if (asks[i].logprobs > 0)
                assert_true(a->top_count[t] > 0 && a->top_count[t] <= asks[i].logprobs);
            CHECK_OK(sh_matcher_token(m, state, a->tokens[t], &state, &err), err);
            assert_true(state != SH_MATCH_DEAD);
        }
        CHECK_OK(sh_matcher_token(m, state, IM_END, &after, &err), err);
        bool complete = sh_matcher_accepts(m, state) ||
                        (after != SH_MATCH_DEAD && sh_matcher_accepts(m, after));
        assert_true(complete || a->end.finish == SH_FINISH_LENGTH);
        /* min_tokens holds where the grammar has more to say. */
        if (asks[i].kind[0] == 'g') assert_true(a->count >= asks[i].min_tokens);
        sh_matcher_free(m);
    }
}

static struct answer plain[ASKS], others[ASKS];

TEST(answers_match_their_grammars_and_nothing_else_changes_them)
{
    UNUSED_STATE;
    static const struct way alone = {"alone", 1, 1, 0, 0, true};
    static const struct way drafted = {"drafts together", 1, 1, 4, 0, false};
    static const struct way together = {"together", 1, 1, 0, 0, false};
    static const struct way tight = {"drafts together, few blocks", 1, 1, 8, 256, false};
    run_way(&alone, plain);
    check_matches(plain);
    assert_int_equal(plain[9].end.finish, SH_FINISH_LENGTH);
    assert_int_equal(plain[4].end.finish, SH_FINISH_STOP);
    run_way(&drafted, others);
    check_same(drafted.name, plain, others, true);
    assert_true(got.kept > 0 && got.forced > 0);
    if (test_is_short()) return;
    run_way(&together, others);
    check_same(together.name, plain, others, true);
    assert_int_equal(got.constrained, ASKS - 2);
    assert_true(got.sent < got.used); /* most masks were sent before */
    run_way(&tight, others);
    check_same(tight.name, plain, others, true);
    assert_true(got.kept > 0 && got.paused > 0);
}

/* Sums of other splits have other last bits, but drafts change none within a split. */
TEST(so_it_is_on_every_split)
{
    UNUSED_STATE;
    static const int splits[][2] = {{2, 1}, {3, 1}, {1, 2}, {2, 2}, {1, 4}};
    struct answer *own = calloc(ASKS, sizeof(*own));
    size_t count = test_is_short() ? 0 : SH_COUNT_OF(splits);
    for (size_t i = 0; i < count; i++) {
        struct way without = {"split", splits[i][0], splits[i][1], 0, 0, false};
        struct way with = {"split with drafts", splits[i][0], splits[i][1], 4, 320, false};
        run_way(&without, own);
        check_same(without.name, plain, own, false);
        run_way(&with, others);
        check_same(with.name, own, others, true);
        assert_true(got.kept > 0);
    }
    free(own);
}

TEST(an_answer_that_goes_on_elsewhere_goes_on_with_the_same_tokens)
{
    UNUSED_STATE;
    static const struct way way = {"resumed", 1, 1, 4, 0, false};
    static const int ids[] = {1, 8};
    sh_err err;
    sh_engine *engine = NULL;
    sh_engine_opts opts = engine_opts(&way);
    memset(&got, 0, sizeof(got));
    CHECK_OK(sh_engine_open(&opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    int ended = 0;
    for (size_t i = 0; i < SH_COUNT_OF(ids); i++)
        for (int cut = 1; cut < plain[ids[i]].count; cut += test_is_short() ? 40 : 1 + cut / 4) {
            const struct answer *want = &plain[ids[i]];
            struct answer *a = &got.answers[ids[i]];
            memset(a, 0, sizeof(*a));
            ask_more(engine, ids[i], want, cut);
            await(++ended, 0);
            assert_int_equal(a->count, want->count - cut);
            assert_memory_equal(a->tokens, want->tokens + cut,
                                (size_t)a->count * sizeof(*a->tokens));
            assert_memory_equal(a->logprobs, want->logprobs + cut,
                                (size_t)a->count * sizeof(*a->logprobs));
        }
    sh_engine_close(engine);
}

/* ---- what goes wrong ---- */

static sh_status vocabulary_fail(void *ctx, sh_vocabulary *out, sh_err *err)
{
    (void)ctx;
    (void)out;
    return sh_err_set(err, SH_ERR_NOT_FOUND, "there is no tokenizer.json");
}

/* One request fails, for a reason of its own; one that runs beside it does not notice. */
static void check_fails(const sh_engine_opts *opts, sh_str grammar, sh_status status,
                        const char *why)
{
    static const int32_t stop_ids[] = {IM_END};
    sh_err err;
    sh_engine *engine = NULL;
    memset(&got, 0, sizeof(got));
    CHECK_OK(sh_engine_open(opts, &engine, &err), err);
    CHECK_OK(sh_engine_start(engine, sink, NULL, &err), err);
    ask(engine, 0);
    int32_t prompt[40] = {300, 301, 302}, unlikely = sh_tokenizer_id(files.tokenizer, SH_STR("~"));
    float bias = -100;
    sh_sequence_spec q = {.id = 1,
                          .prompt = prompt,
                          .prompt_count = 40,
                          .max_tokens = answer_max(),
                          .stop_ids = stop_ids,
                          .stop_id_count = 1,
                          .grammar = grammar,
                          .sampling = sh_sampling_default()};
    q.sampling.logit_bias_count = 1;
    q.sampling.logit_bias_ids = &unlikely;
    q.sampling.logit_bias = &bias;
    engine_ask(engine, &q);
    await(1, 1);
    assert_int_equal(got.error.status, status);
    if (strstr(got.error.text, why) == NULL) fail_msg("%s", got.error.text);
    assert_int_equal(got.answers[0].count, plain[0].count);
    assert_memory_equal(got.answers[0].tokens, plain[0].tokens, sizeof(plain[0].tokens));
    sh_engine_close(engine);
}

static void grammar_of(sh_expr (*make)(sh_grammar_builder *b), sh_buf *out)
{
    sh_err err;
    sh_grammar *g = NULL;
    sh_grammar_builder *b = sh_grammar_builder_create();
    CHECK_OK(sh_grammar_compile(b, make(b), &g, &err), err);
    sh_grammar_builder_free(b);
    sh_buf_clear(out);
    sh_grammar_pack(g, out);
    sh_grammar_free(g);
}

/* Special tokens that the vocabulary does not have. */
static sh_expr make_unknown(sh_grammar_builder *b)
{
    sh_expr items[] = {sh_expr_regex(b, SH_STR("[a-z]{3,6}")), sh_expr_token(b, 1 << 20)};
    return sh_expr_seq(b, items, 2);
}

/* After each a there are two ways to go on, and both must be remembered. */
static sh_expr make_ambiguous(sh_grammar_builder *b)
{
    return sh_expr_gbnf(b, SH_STR("root ::= \"a\" root \"b\" | \"a\" other \"c\" | \"~\"\n"
                                  "other ::= \"a\" root \"d\" | \"a\" other \"e\" | \"~\""));
}

/* Hundreds of ways to read every text: each byte of each token would be tried in all of them. */
static sh_expr make_wide(sh_grammar_builder *b)
{
    sh_buf text = {0};
    sh_buf_add_text(&text, "root ::= ");
    for (int i = 0; i < 900; i++) sh_buf_addf(&text, "%sr%d", i == 0 ? "" : " | ", i);
    for (int i = 0; i < 900; i++) sh_buf_addf(&text, "\nr%d ::= [^x] r%d | \"x%d\"", i, i, i);
    sh_expr made = sh_expr_gbnf(b, sh_buf_str(&text));
    sh_buf_reset(&text);
    return made;
}

TEST(a_request_whose_grammar_fails_ends_alone)
{
    UNUSED_STATE;
    static const struct way way = {"fails", 1, 1, 4, 0, false};
    sh_engine_opts opts = engine_opts(&way);
    sh_buf grammar = {0};
    check_fails(&opts, SH_STR("nonsense"), SH_ERR_INPUT, "not a valid grammar");
    grammar_of(make_unknown, &grammar);
    check_fails(&opts, sh_buf_str(&grammar), SH_ERR_UNSUPPORTED, "no token of this model");
    grammar_of(make_ambiguous, &grammar);
    check_fails(&opts, sh_buf_str(&grammar), SH_ERR_LIMIT, "too ambiguous");
    if (!test_is_short()) {
        grammar_of(make_wide, &grammar);
        check_fails(&opts, sh_buf_str(&grammar), SH_ERR_LIMIT, "takes too long");
    }
    opts.vocabulary.load = vocabulary_fail;
    check_fails(&opts, sh_buf_str(&packed[1]), SH_ERR_NOT_FOUND, "there is no tokenizer.json");
    opts.vocabulary.load = NULL;
    check_fails(&opts, sh_buf_str(&packed[1]), SH_ERR_UNSUPPORTED, "no text for its tokens");
    sh_buf_reset(&grammar);
}

/* ---- constraints ---- */

TEST(a_grammar_that_comes_again_is_found)
{
    UNUSED_STATE;
    sh_err err;
    sh_constraints *all;
    sh_constraint *a, *b, *c;
    static const int32_t ends[] = {IM_END, END_OF_TEXT, IM_END};
    sh_vocabulary_source source = {vocabulary_give, NULL};
    CHECK_OK(sh_constraints_open(&source, 4096, &all, &err), err);
    while (sh_constraints_ready(all, &err) == SH_AGAIN) sh_sleep_ms(1);
    CHECK_OK(sh_constraints_take(all, sh_buf_str(&packed[1]), ends, 3, &a, &err), err);
    CHECK_OK(sh_constraints_take(all, sh_buf_str(&packed[6]), ends, 2, &b, &err), err);
    assert_ptr_equal(a, b); /* the same schema and, but for their order, the same ids */
    CHECK_OK(sh_constraints_take(all, sh_buf_str(&packed[1]), ends, 1, &c, &err), err);
    assert_ptr_not_equal(a, c);
    sh_constraint_release(a);
    sh_constraint_release(b);
    sh_constraint_release(c);
    CHECK_OK(sh_constraints_take(all, sh_buf_str(&packed[1]), ends, 3, &b, &err), err);
    assert_ptr_equal(a, b);
    sh_constraint_release(b);
    sh_constraints_close(all);
}

TEST(masks_have_the_ends_that_the_text_may_have)
{
    UNUSED_STATE;
    enum { WORDS = 4096 / 64 };
    sh_err err;
    sh_constraints *all;
    sh_constraint *c;
    sh_mask mask;
    sh_match_state at = SH_MATCH_START;
    uint64_t bits[WORDS];
    static const int32_t ends[] = {IM_END};
    sh_vocabulary_source source = {vocabulary_give, NULL};
    CHECK_OK(sh_constraints_open(&source, 4096, &all, &err), err);
    while (sh_constraints_ready(all, &err) == SH_AGAIN) sh_sleep_ms(1);
    CHECK_OK(sh_constraints_take(all, sh_buf_str(&packed[11]), ends, 1, &c, &err), err);
    int32_t ha = sh_tokenizer_id(files.tokenizer, SH_STR("ha"));
    assert_true(ha >= 0);
    for (int i = 0; i <= 40; i++) {
        CHECK_OK(sh_constraint_mask(c, at, true, &mask, &err), err);
        sh_constraint_mask_bits(c, &mask, bits);
        bool end = (bits[IM_END / 64] >> IM_END % 64 & 1) != 0;
        assert_int_equal(end, i >= 3);
        int allowed = 0;
        for (int w = 0; w < WORDS; w++) allowed += __builtin_popcountll(bits[w]);
        assert_int_equal(mask.allowed, allowed);
        int32_t only;
        CHECK_OK(sh_constraint_only(c, at, true, &only, &err), err);
        assert_int_equal(only, i == 40 ? IM_END : -1);
        /* Before min_tokens it may end only where it must. */
        CHECK_OK(sh_constraint_mask(c, at, false, &mask, &err), err);
        assert_int_equal(mask.key.ends != 0, i == 40);
        if (i < 40) CHECK_OK(sh_constraint_next(c, at, ha, &at, &err), err);
    }
    sh_constraint_release(c);
    sh_constraints_close(all);
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_that_comes_again_is_found),
        cmocka_unit_test(masks_have_the_ends_that_the_text_may_have),
        cmocka_unit_test(answers_match_their_grammars_and_nothing_else_changes_them),
        cmocka_unit_test(so_it_is_on_every_split),
        cmocka_unit_test(an_answer_that_goes_on_elsewhere_goes_on_with_the_same_tokens),
        cmocka_unit_test(a_request_whose_grammar_fails_ends_alone),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
