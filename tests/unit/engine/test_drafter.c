/* Draft models: they change no answer, whatever they draft, and they draft what the model draws.
 *
 * The scheduler runs with real models here, but the time of a step is made up, and so long that
 * drafts are always worth their time: what is drafted does not depend on the speed of the machine.
 */
#include "base/log.h"
#include "base/str.h"
#include "cmd/support/vocabulary.h"
#include "engine/model_group.h"
#include "engine/scheduler.h"
#include "text/grammar/pack.h"

#include "scratch.h"
#include "table_mtp.h"
#include "unit/engine/ranks.h"

#include <sys/wait.h>

enum { ASKS = 8, ANSWER = 72, PROMPT_MAX = 100, SLOTS = 3, CHUNK = 48, STAGES_MAX = 2 };
enum { END_OF_TEXT = 4085, IM_END = 4087, VOCAB = 4096 };

static const char MODEL[] = "models/demo", HEAD[] = "head";

struct answer {
    int count;
    int32_t tokens[ANSWER];
    float logprobs[ANSWER];
    sh_finish finish;
    bool ended, failed;
};

/* How the requests run. */
struct way {
    const char *name;
    const char *draft; /* NULL: no draft model; HEAD: the model's own layer */
    int tensor, stages;
    int kv_tokens;     /* 0: enough */
    int cut_after;     /* steps after which all requests are lost and submitted again; 0: never */
    int cancel;        /* this request is cancelled early; 0: none */
    double stall_s;    /* 0: 0.2 */
    bool few;          /* half of the requests */
    const char *model; /* NULL: MODEL */
    int drafts;        /* 0: 4 */
    bool greedy;
};

static const struct ask {
    int prompt;
    double temperature, top_p, min_p, repetition, presence;
    int top_k, min_tokens;
    const char *regex;
    bool biased;
} asks[ASKS] = {
    {.prompt = 31, .top_p = 1, .repetition = 1},
    {.prompt = 100, .temperature = 1, .top_p = 1, .repetition = 1},
    {.prompt = 64, .temperature = 0.9, .top_p = 0.9, .repetition = 1.1, .presence = 0.5},
    {.prompt = 33, .temperature = 1.5, .top_p = 1, .top_k = 40, .repetition = 1, .min_tokens = 30},
    {.prompt = 7, .temperature = 1, .top_p = 1, .min_p = 0.05, .repetition = 1, .biased = true},
    {.prompt = 50,
     .temperature = 1,
     .top_p = 1,
     .repetition = 1,
     .regex = "[A-Z][a-z]{2,8}( [A-Z][a-z]{2,8}){1,9}\\."},
    {.prompt = 96, .top_p = 1, .repetition = 1, .regex = "[0-9]{200}"},
    {.prompt = 65, .temperature = 2, .top_p = 0.99, .repetition = 1},
};

static sh_vocabulary_files files = {.model_dir = MODEL};
static sh_vocabulary vocabulary;
static sh_buf packed[ASKS];
static char *tiny;                         /* a random draft model of the same vocabulary */
static char *tables[TABLE_MTP_RANDOM + 1]; /* models with a multi-token-prediction layer */

static sh_status vocabulary_give(void *ctx, sh_vocabulary *out, sh_err *err)
{
    (void)ctx;
    (void)err;
    *out = vocabulary;
    return SH_OK;
}

/* With experts in the last layer, and with long rows, so that the table wins at any temperature. */
static void tables_write(void)
{
    static const char config[] =
        "{\"model_type\":\"glm4_moe\",\"hidden_size\":128,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,"
        "\"intermediate_size\":64,\"vocab_size\":4096,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"
        "\"max_position_embeddings\":2048,\"tie_word_embeddings\":false,\"attention_bias\":false,"
        "\"n_routed_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":64,"
        "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,"
        "\"routed_scaling_factor\":1,\"norm_topk_prob\":true,\"num_nextn_predict_layers\":1}";
    sh_err err;
    for (int i = 0; i <= TABLE_MTP_RANDOM; i++) {
        tables[i] = sh_asprintf("%s/table-%d", dir, i);
        if (!table_model_write(tables[i], config, 16, 100, &err)) fail_msg("%s", err.text);
        CHECK_OK(table_mtp_write(tables[i], 2, (table_mtp)i, &err), err);
    }
}

static int open_all(void **state)
{
    sh_err err;
    static const char config[] =
        "{\"model_type\":\"qwen3\",\"hidden_size\":64,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
        "\"intermediate_size\":128,\"vocab_size\":4096,\"rms_norm_eps\":1e-6,\"rope_theta\":10000,"
        "\"max_position_embeddings\":2048,\"tie_word_embeddings\":true}";
    if (make_dir(state) != 0) return 1;
    tiny = sh_asprintf("%s/tiny", dir);
    sh_synth_opts opts = {.bits = 16, .group = 64};
    CHECK_OK(sh_synth_write(sh_str_of(config), "config", tiny, &opts, &err), err);
    tables_write();
    CHECK_OK(sh_vocabulary_load(&files, &vocabulary, &err), err);
    for (int i = 0; i < ASKS; i++) {
        if (asks[i].regex == NULL) continue;
        sh_grammar *compiled = NULL;
        sh_grammar_builder *b = sh_grammar_builder_create();
        CHECK_OK(sh_grammar_compile(b, sh_expr_regex(b, sh_str_of(asks[i].regex)), &compiled, &err),
                 err);
        sh_grammar_builder_free(b);
        sh_grammar_pack(compiled, &packed[i]);
        sh_grammar_free(compiled);
    }
    return 0;
}

static int close_all(void **state)
{
    for (int i = 0; i < ASKS; i++) sh_buf_reset(&packed[i]);
    sh_vocabulary_files_reset(&files);
    free(tiny);
    for (int i = 0; i <= TABLE_MTP_RANDOM; i++) free(tables[i]);
    return remove_dir(state);
}

static int ask_count(const struct way *way)
{
    return test_is_short() || way->few ? ASKS / 2 : ASKS;
}

/* ---- an engine without its clock ---- */

struct bench {
    const struct way *way;
    sh_model_group *group;
    sh_drafter *drafter;
    sh_blocks *blocks;
    sh_constraints *constraints;
    sh_sched *sched;
    sh_step_plan *plans[STAGES_MAX];
    int first, in_flight;
    sh_pick *picks;
    struct answer answers[ASKS];
};

static void on_event(void *ctx, uint64_t owner, const sh_event *e)
{
    struct bench *b = ctx;
    struct answer *a = &b->answers[e->id];
    (void)owner;
    if (e->kind == SH_EVENT_TOKEN) {
        a->tokens[a->count] = e->token;
        a->logprobs[a->count++] = e->logprob;
    } else if (e->kind == SH_EVENT_DONE) {
        a->finish = e->finish;
        a->ended = true;
    } else if (e->kind == SH_EVENT_ERROR) {
        a->failed = true;
    }
}

static sh_model_group_opts group_of(const struct way *way)
{
    return (sh_model_group_opts){.model_dir = way->model != NULL ? way->model : MODEL,
                                 .device = test_device(),
                                 .device_opts = {.threads = 1,
                                                 .level = getenv("SHOAL_CPU"),
                                                 .activations = SH_ACTIVATIONS_F32},
                                 .kv_format = SH_KV_F32,
                                 .context = 256,
                                 .tensor = way->tensor,
                                 .stages = way->stages,
                                 .slots = SLOTS,
                                 .chunk = CHUNK,
                                 .draws = sh_engine_draws(SLOTS),
                                 .kv_tokens = way->kv_tokens,
                                 .outputs = way->draft == HEAD,
                                 .load = {.exact = true}};
}

static void drafter_open(struct bench *b, const sh_model_group_opts *group)
{
    sh_err err;
    bool head = b->way->draft == HEAD;
    sh_drafter_opts opts = {.model_dir = head ? group->model_dir : b->way->draft,
                            .head = head,
                            .device = group->device,
                            .device_opts = group->device_opts,
                            .kv_format = group->kv_format,
                            .load = group->load,
                            .slots = SLOTS,
                            .vocab = VOCAB};
    if (opts.model_dir == NULL) return;
    CHECK_OK(sh_drafter_open(&opts, &b->drafter, &err), err);
    CHECK_OK(sh_drafter_reserve(b->drafter, sh_model_group_limits(b->group),
                                sh_model_group_context(b->group), &err),
             err);
}

static void bench_open(struct bench *b, const struct way *way, sh_group *ranks)
{
    sh_err err;
    sh_model_group_opts group = group_of(way);
    *b = (struct bench){.way = way};
    CHECK_OK(sh_model_group_open(&group, &b->group, &err), err);
    CHECK_OK(sh_model_group_join(b->group, ranks, &err), err);
    drafter_open(b, &group);
    const sh_step_limits *limits = sh_model_group_limits(b->group);
    CHECK_OK(sh_constraints_open(&(sh_vocabulary_source){vocabulary_give, NULL}, VOCAB,
                                 &b->constraints, &err),
             err);
    while (sh_constraints_ready(b->constraints, &err) == SH_AGAIN) sh_sleep_ms(1);
    b->blocks = sh_blocks_create(limits->blocks, (sh_key128){1, 2}, (sh_key128){3, 4});
    sh_sched_opts opts = {.limits = *limits,
                          .constraints = b->constraints,
                          .context = sh_model_group_context(b->group),
                          .queue_max = 100,
                          .stall_s = way->stall_s > 0 ? way->stall_s : 0.2,
                          .stages_in_flight = way->stages,
                          .drafts_always = true,
                          .drafts = way->draft == NULL ? 0
                                    : way->drafts > 0  ? way->drafts
                                                       : 4,
                          .drafter = b->drafter};
    b->sched = sh_sched_create(&opts, b->blocks, on_event, b);
    for (int i = 0; i < way->stages; i++) b->plans[i] = sh_step_plan_create(limits);
    b->picks = sh_alloc_array((size_t)limits->draws, sizeof(*b->picks));
}

static void bench_close(struct bench *b)
{
    sh_sched_free(b->sched);
    sh_drafter_close(b->drafter);
    sh_constraints_close(b->constraints);
    sh_blocks_free(b->blocks);
    for (int i = 0; i < b->way->stages; i++) sh_step_plan_free(b->plans[i]);
    sh_model_group_close(b->group);
    free(b->picks);
}

/* With an answer so far the request goes on, as after a loss. */
static void ask(struct bench *b, int id)
{
    static const int32_t stop_ids[] = {IM_END, END_OF_TEXT}, bias_ids[] = {300, 301};
    static const float bias[] = {2, -3};
    const struct ask *a = &asks[id];
    struct answer *so_far = &b->answers[id];
    int32_t prompt[PROMPT_MAX + ANSWER];
    for (int i = 0; i < a->prompt; i++) prompt[i] = 300 + (i % 13 * 17 + (i < 40 ? 0 : id)) % 3000;
    memcpy(prompt + a->prompt, so_far->tokens, (size_t)so_far->count * sizeof(*prompt));
    so_far->failed = false;
    sh_sequence_spec q = {
        .id = (uint64_t)id,
        .prompt = prompt,
        .prompt_count = (size_t)(a->prompt + so_far->count),
        .answered = so_far->count,
        .replayed = so_far->count > 0,
        .max_tokens = test_is_short() ? ANSWER / 2 : ANSWER,
        .min_tokens = a->min_tokens,
        .stop_ids = stop_ids,
        .stop_id_count = id % 2 == 0 && packed[id].len == 0 ? 0 : SH_COUNT_OF(stop_ids),
        .logprobs = 0,
        .grammar = sh_buf_str(&packed[id]),
        .sampling = sh_sampling_default()};
    q.sampling.temperature = b->way->greedy ? 0 : a->temperature;
    q.sampling.top_p = a->top_p;
    q.sampling.top_k = a->top_k;
    q.sampling.min_p = a->min_p;
    q.sampling.repetition_penalty = a->repetition;
    q.sampling.presence_penalty = a->presence;
    q.sampling.logit_bias_ids = bias_ids;
    q.sampling.logit_bias = bias;
    q.sampling.logit_bias_count = a->biased ? SH_COUNT_OF(bias_ids) : 0;
    q.sampling.seed = (uint64_t)id;
    sh_sched_submit(b->sched, 1, &q);
}

/* Begins a step if a stage is free and there is something to run, else finishes the oldest. */
static void bench_step(struct bench *b)
{
    sh_err err;
    sh_step_plan *next = b->plans[(b->first + b->in_flight) % b->way->stages];
    if (b->in_flight < b->way->stages && sh_sched_plan(b->sched, next)) {
        CHECK_OK(sh_model_group_begin(b->group, next, &err), err);
        b->in_flight++;
        return;
    }
    sh_step_plan *plan = b->plans[b->first];
    assert_true(b->in_flight > 0);
    CHECK_OK(sh_model_group_finish(b->group, plan, b->picks, &err), err);
    b->first = (b->first + 1) % b->way->stages;
    b->in_flight--;
    if (plan->outputs)
        sh_sched_outputs(b->sched, sh_model_group_outputs(b->group, plan),
                         sh_model_group_config(b->group)->hidden);
    sh_sched_commit(b->sched, plan, b->picks, 10, 10); /* seconds: drafts are cheap next to that */
}

static void lose_all(struct bench *b)
{
    sh_err lost;
    sh_err_set(&lost, SH_ERR_GROUP, "lost");
    while (b->in_flight > 0) {
        sh_step_plan *plan = b->plans[b->first];
        CHECK_OK(sh_model_group_finish(b->group, plan, b->picks, &lost), lost);
        b->first = (b->first + 1) % b->way->stages;
        b->in_flight--;
    }
    sh_sched_fail_all(b->sched, &lost);
    for (int i = 0; i < ask_count(b->way); i++)
        if (!b->answers[i].ended) ask(b, i);
}

static void bench_run(struct bench *b)
{
    for (int i = 0; i < ask_count(b->way); i++) ask(b, i);
    for (int steps = 1; sh_sched_busy(b->sched); steps++) {
        assert_true(steps < 5000);
        bench_step(b);
        if (steps == b->way->cut_after) lose_all(b);
        if (b->way->cancel > 0 && steps == 12)
            sh_sched_cancel(b->sched, 1, (uint64_t)b->way->cancel);
    }
    assert_int_equal(sh_blocks_available(b->blocks), sh_blocks_total(b->blocks));
}

static pid_t worker_start(const struct way *way, int rank, const char *where)
{
    sh_model_group_opts opts = group_of(way);
    sh_group_opts own = group_opts(rank, way->tensor * way->stages, where, -1, NULL);
    own.silence_ms = 20000;
    return rank_start(&opts, &own);
}

static struct answer plain[ASKS], others[ASKS];
static uint64_t tried[SH_DRAFT_SOURCES], kept[SH_DRAFT_SOURCES], paused;

static void run_way(const struct way *way, struct answer *answers)
{
    sh_err err;
    static struct bench b;
    sh_group *group = NULL;
    int size = way->tensor * way->stages, status = -1, fd = -1;
    pid_t pid = 0;
    if (size > 1) {
        char where[SH_ADDR_TEXT_MAX];
        fd = listen_somewhere(where);
        pid = worker_start(way, 1, where);
        sh_group_opts own = group_opts(0, size, where, fd, NULL);
        own.silence_ms = 20000;
        CHECK_OK(sh_group_open(&own, &group, &err), err);
    }
    bench_open(&b, way, group);
    bench_run(&b);
    const sh_sched_stats *stats = sh_sched_stats_of(b.sched);
    memcpy(tried, stats->drafts_tried, sizeof(tried));
    memcpy(kept, stats->drafts_kept, sizeof(kept));
    paused = stats->paused;
    memcpy(answers, b.answers, sizeof(b.answers));
    sh_draft_source source = way->draft == HEAD ? SH_DRAFT_HEAD : SH_DRAFT_MODEL;
    print_message("# %s: %d of %d drafts of the model kept, %d of %d repeated, %d paused\n",
                  way->name, (int)kept[source], (int)tried[source], (int)kept[SH_DRAFT_REPEATED],
                  (int)tried[SH_DRAFT_REPEATED], (int)paused);
    CHECK_OK(sh_model_group_stop(b.group, &err), err);
    if (group != NULL) sh_group_close(group);
    bench_close(&b);
    if (size == 1) return;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void check_same(const struct way *way, const struct answer *a, const struct answer *b)
{
    for (int i = 0; i < ASKS; i++) {
        if (i == way->cancel && i > 0) continue;
        for (int t = 0; t < a[i].count && t < b[i].count; t++)
            if (a[i].tokens[t] != b[i].tokens[t])
                fail_msg("%s: request %d, token %d is %d, not %d", way->name, i, t, b[i].tokens[t],
                         a[i].tokens[t]);
        assert_int_equal(a[i].count, b[i].count);
        assert_int_equal(a[i].finish, b[i].finish);
        assert_memory_equal(a[i].logprobs, b[i].logprobs, sizeof(a[i].logprobs));
    }
}

/* The draft model is the model itself: it computes the same bits, draws the same noise, and sees
 * the same penalties, bias and masks. So no draft is ever wrong. */
TEST(a_model_that_drafts_for_itself_is_always_right)
{
    UNUSED_STATE;
    static const struct way none = {.name = "no drafts", .tensor = 1, .stages = 1};
    static const struct way own = {.name = "itself", .draft = MODEL, .tensor = 1, .stages = 1};
    run_way(&none, plain);
    run_way(&own, others);
    check_same(&own, plain, others);
    assert_true(kept[SH_DRAFT_MODEL] > 30);
    assert_int_equal(tried[SH_DRAFT_MODEL], kept[SH_DRAFT_MODEL]);
}

TEST(wrong_drafts_pauses_losses_and_cancelled_requests_change_no_answer)
{
    UNUSED_STATE;
    const struct way ways[] = {
        {.name = "random, few blocks, lost and resumed",
         .draft = tiny,
         .tensor = 1,
         .stages = 1,
         .kv_tokens = 224,
         .cut_after = 31},
        {.name = "itself, few blocks", .draft = MODEL, .tensor = 1, .stages = 1, .kv_tokens = 224},
        {.name = "itself, one cancelled, slow to catch up, lost",
         .draft = MODEL,
         .tensor = 1,
         .stages = 1,
         .cut_after = 25,
         .cancel = 2,
         .stall_s = 1e-6},
    };
    for (size_t i = 0; i < SH_COUNT_OF(ways); i++) {
        run_way(&ways[i], others);
        check_same(&ways[i], plain, others);
        assert_true(tried[SH_DRAFT_MODEL] > 0);
        if (ways[i].draft == MODEL) assert_int_equal(tried[SH_DRAFT_MODEL], kept[SH_DRAFT_MODEL]);
        if (test_is_short()) return;
        if (ways[i].kv_tokens > 0) assert_true(paused > 0);
    }
}

/* Sums of other splits have other last bits, so the model may differ from itself, but rarely. */
TEST(drafts_change_no_answer_on_any_split)
{
    UNUSED_STATE;
    static const int splits[][2] = {{1, 2}, {2, 1}};
    if (test_is_short()) skip();
    for (size_t i = 0; i < SH_COUNT_OF(splits); i++) {
        struct way without = {
            .name = "split", .tensor = splits[i][0], .stages = splits[i][1], .few = true};
        struct way with = {.name = "split, itself",
                           .draft = MODEL,
                           .tensor = splits[i][0],
                           .stages = splits[i][1],
                           .kv_tokens = 320,
                           .cut_after = 40,
                           .few = true};
        run_way(&without, plain);
        run_way(&with, others);
        check_same(&with, plain, others);
        assert_true(kept[SH_DRAFT_MODEL] * 10 > tried[SH_DRAFT_MODEL] * 9);
        assert_true(kept[SH_DRAFT_MODEL] > 0);
    }
}

/* ---- the model's own layer ---- */

/* A layer that goes by its token is always right. One that goes by the output is right as long as
 * that is the model's: it must be the one for the position before. Chance gives one in thousands.
 */
TEST(a_layer_that_can_predict_does_and_none_changes_an_answer)
{
    UNUSED_STATE;
    const struct {
        table_mtp kind;
        struct way way;
        double least, most; /* of its drafts are kept */
    } cases[] = {
        {TABLE_MTP_TOKEN,
         {.name = "by token, few blocks, lost", .stages = 1, .kv_tokens = 224, .cut_after = 31},
         0.97,
         1},
        {TABLE_MTP_OUTPUT,
         {.name = "by output, one at a time",
          .stages = 1,
          .drafts = 1,
          .few = true,
          .greedy = true},
         0.97,
         1},
        {TABLE_MTP_OUTPUT,
         {.name = "by output, lost", .stages = 1, .drafts = 2, .cut_after = 25, .cancel = 2},
         0.2,
         0.7},
        {TABLE_MTP_RANDOM,
         {.name = "random, few blocks, lost", .stages = 1, .kv_tokens = 224, .cut_after = 31},
         0,
         0.15},
        {TABLE_MTP_OUTPUT,
         {.name = "by output, two stages", .stages = 2, .drafts = 1, .few = true, .greedy = true},
         0.97,
         1},
        {TABLE_MTP_RANDOM,
         {.name = "random, two stages, lost",
          .stages = 2,
          .kv_tokens = 320,
          .cut_after = 40,
          .few = true},
         0,
         0.15},
        {TABLE_MTP_OUTPUT,
         {.name = "by output, two ranks",
          .stages = 1,
          .tensor = 2,
          .drafts = 1,
          .few = true,
          .greedy = true},
         0.97,
         1},
    };
    for (size_t i = 0; i < SH_COUNT_OF(cases); i++) {
        struct way with = cases[i].way, without;
        with.draft = HEAD;
        with.model = tables[cases[i].kind];
        if (with.tensor == 0) with.tensor = 1;
        if (test_is_short() && with.tensor * with.stages > 1) continue;
        without = (struct way){.name = "no drafts",
                               .tensor = with.tensor,
                               .stages = with.stages,
                               .few = with.few,
                               .model = with.model,
                               .greedy = with.greedy};
        run_way(&without, plain);
        run_way(&with, others);
        check_same(&with, plain, others);
        double rate = (double)kept[SH_DRAFT_HEAD] / (double)tried[SH_DRAFT_HEAD];
        assert_true(tried[SH_DRAFT_HEAD] > 30);
        if (!(rate >= cases[i].least && rate <= cases[i].most))
            fail_msg("%s: %.2f of the drafts are kept", with.name, rate);
    }
}

/* ---- what became of the drafts ---- */

static sh_drafter *drafter_alone(const char *model, bool head, int vocab)
{
    sh_err err;
    sh_drafter *d = NULL;
    sh_drafter_opts opts = {.model_dir = model,
                            .head = head,
                            .device = test_device(),
                            .device_opts = {.threads = 1, .activations = SH_ACTIVATIONS_F32},
                            .kv_format = SH_KV_F32,
                            .load = {.exact = true},
                            .slots = 1,
                            .vocab = vocab};
    CHECK_OK(sh_drafter_open(&opts, &d, &err), err);
    return d;
}

/* Fresh KV blocks: nothing is known of any sequence. */
static void drafter_restart(sh_drafter *d, int vocab)
{
    sh_err err;
    sh_step_limits limits = {.slots = 1,
                             .tokens = CHUNK,
                             .draws = 1,
                             .adjusts = 100,
                             .blocks = 16,
                             .seq_blocks = 18,
                             .vocab = vocab,
                             .masks = 1};
    sh_drafter_release(d);
    CHECK_OK(sh_drafter_reserve(d, &limits, 512, &err), err);
}

static int drafts_of(sh_drafter *d, sh_sequence *seq, int32_t out[4])
{
    sh_err err;
    seq->draft_count = 0;
    for (int tries = 0; seq->draft_count == 0; tries++) {
        assert_true(tries < 20);
        assert_true(sh_drafter_lag(d, seq) > 0);
        CHECK_OK(sh_drafter_run(d, &(sh_draft_order){.seq = seq, .drafts = 4}, 1, 1e-9, &err), err);
    }
    memcpy(out, seq->tokens + seq->count, 4 * sizeof(*out));
    return seq->draft_count;
}

/* The model accepts some of the drafts and goes on otherwise: from then on the drafts must be those
 * of a draft model that has never seen the wrong ones. That is so for KV, for a fixed-size state,
 * which cannot be cut back, and where the RoPE factors change. */
TEST(wrong_drafts_leave_nothing_behind)
{
    UNUSED_STATE;
    static const char *const models[] = {"tests/data/models/llama-long-4bit",
                                         "tests/data/models/lfm2-long-4bit",
                                         "tests/data/models/phi3-longrope-long-4bit"};
    for (size_t m = 0; m < SH_COUNT_OF(models); m++) {
        sh_drafter *d = drafter_alone(models[m], false, 320),
                   *fresh = drafter_alone(models[m], false, 320);
        int32_t prompt[40], drafts[4], want[4];
        bool wait;
        for (int i = 0; i < 40; i++) prompt[i] = 3 + i * 7 % 300;
        sh_sequence_spec spec = {.prompt = prompt,
                                 .prompt_count = 40,
                                 .max_tokens = 200,
                                 .sampling = sh_sampling_default()};
        sh_blocks *blocks = sh_blocks_create(16, (sh_key128){1, 2}, (sh_key128){3, 4});
        sh_sequence *seq = sh_sequence_create(&spec, 512);
        assert_true(sh_sequence_start(seq, blocks, 0, &wait));
        seq->slot = 0;
        drafter_restart(d, 320);
        for (int round = 0; seq->count < (test_is_short() ? 80 : 140); round++) {
            int count = drafts_of(d, seq, drafts);
            drafter_restart(fresh, 320);
            assert_int_equal(drafts_of(fresh, seq, want), count);
            assert_memory_equal(drafts, want, (size_t)count * sizeof(*drafts));
            seq->count += round % 5 < count ? round % 5 : count;
            seq->tokens[seq->count++] = 3 + round * 11 % 300;
        }
        sh_drafter_close(d);
        sh_drafter_close(fresh);
        sh_sequence_stop(seq, blocks);
        sh_sequence_free(seq);
        sh_blocks_free(blocks);
    }
}

/* The model's output for a position: any numbers will do that depend on the text so far. */
static void output_make(const sh_sequence *seq, int pos, float out[128])
{
    uint64_t text = sh_hash64(seq->tokens, (size_t)(pos + 1) * sizeof(*seq->tokens));
    for (uint64_t i = 0; i < 128; i++) out[i] = (float)(sh_mix64(text + i) % 2000) / 1000 - 1;
}

/* Shows a drafter the outputs from one position to another, as of a step that ran `tokens`. */
static void outputs_show(sh_drafter *d, const sh_sequence *seq, int from, int to,
                         const int32_t *tokens)
{
    static float outputs[256][128];
    sh_err err;
    sh_seen seen = {
        .pos = from, .count = to - from, .tokens = tokens, .outputs = (const char *)outputs};
    for (int i = from; i < to; i++) output_make(seq, i, outputs[i - from]);
    CHECK_OK(sh_drafter_see(d, seq, &seen, &err), err);
}

static void drafts_compare(sh_drafter *d, sh_drafter *fresh, sh_sequence *seq, int32_t drafts[4])
{
    int32_t want[4];
    int count = drafts_of(d, seq, drafts);
    drafter_restart(fresh, 192);
    outputs_show(fresh, seq, 0, seq->count - 1, seq->tokens);
    assert_int_equal(drafts_of(fresh, seq, want), count);
    assert_memory_equal(drafts, want, (size_t)count * sizeof(*drafts));
}

/* A layer that has drafted, from its own outputs, must go on from the model's as if it had not; and
 * after the model has found a prefix in its cache, from what its own cache has of that. */
TEST(a_layer_goes_by_the_outputs_of_the_model_alone)
{
    UNUSED_STATE;
    static const char model[] = "tests/data/models/glm4_moe-mtp-4bit";
    sh_drafter *d = drafter_alone(model, true, 192), *fresh = drafter_alone(model, true, 192);
    int32_t prompt[90], drafts[4], ran[5];
    sh_err err;
    bool wait;
    for (int i = 0; i < 90; i++) prompt[i] = 3 + i * 7 % 180;
    sh_sequence_spec spec = {
        .prompt = prompt, .prompt_count = 90, .max_tokens = 100, .sampling = sh_sampling_default()};
    sh_blocks *blocks = sh_blocks_create(16, (sh_key128){1, 2}, (sh_key128){3, 4});
    sh_sequence *seq = sh_sequence_create(&spec, 512);
    assert_true(sh_sequence_start(seq, blocks, 0, &wait));
    seq->slot = 0;
    drafter_restart(d, 192);
    assert_int_equal(sh_drafter_lag(d, seq), -1); /* it has seen nothing */
    for (int at = 0, step = 1; at < 89; at += step, step = step * 3 % 47) {
        if (step > 89 - at) step = 89 - at;
        outputs_show(d, seq, at, at + step, seq->tokens + at);
    }
    for (int round = 0; seq->count < 140; round++) {
        drafts_compare(d, fresh, seq, drafts);
        int right = round % 5 < seq->draft_count ? round % 5 : seq->draft_count,
            pos = seq->count - 1;
        ran[0] = seq->tokens[pos];
        memcpy(ran + 1, drafts, sizeof(drafts));
        seq->count += right;
        seq->tokens[seq->count++] = (drafts[right % 4] + 1) % 192; /* never the next draft */
        outputs_show(d, seq, pos, pos + 1 + seq->draft_count, ran);
    }
    sh_drafter_leave(d, 0);
    outputs_show(d, seq, 96, seq->count - 1, seq->tokens + 96);
    drafts_compare(d, fresh, seq, drafts);
    drafter_restart(d, 192);
    outputs_show(d, seq, 96, seq->count - 1, seq->tokens + 96); /* its own cache has nothing */
    assert_true(drafts_of(d, seq, drafts) > 0);
    static const float any[128];
    sh_seen ahead = {
        .pos = seq->count, .count = 1, .tokens = seq->tokens, .outputs = (const char *)any};
    CHECK_OK(sh_drafter_see(d, seq, &ahead, &err), err); /* there is a gap before it */
    assert_int_equal(sh_drafter_lag(d, seq), -1);
    sh_drafter_close(d);
    sh_drafter_close(fresh);
    sh_sequence_stop(seq, blocks);
    sh_sequence_free(seq);
    sh_blocks_free(blocks);
}

TEST(another_vocabulary_is_refused)
{
    UNUSED_STATE;
    sh_err err;
    sh_drafter *d = NULL;
    sh_drafter_opts opts = {.model_dir = tiny, .slots = 1, .vocab = 5000};
    CHECK_FAILS(sh_drafter_open(&opts, &d, &err), err, "a vocabulary of 4096 tokens");
    opts.model_dir = "/nowhere";
    CHECK_FAILS(sh_drafter_open(&opts, &d, &err), err, "/nowhere");
}

int main(void)
{
    sh_log_set_level(SH_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_drafts_for_itself_is_always_right),
        cmocka_unit_test(wrong_drafts_pauses_losses_and_cancelled_requests_change_no_answer),
        cmocka_unit_test(drafts_change_no_answer_on_any_split),
        cmocka_unit_test(a_layer_that_can_predict_does_and_none_changes_an_answer),
        cmocka_unit_test(wrong_drafts_leave_nothing_behind),
        cmocka_unit_test(a_layer_goes_by_the_outputs_of_the_model_alone),
        cmocka_unit_test(another_vocabulary_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
