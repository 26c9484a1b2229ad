/* How many tokens are drafted, with simulated models: the scheduler is the real one, but a step and
 * a draft take the time that a formula says, and drafts are right at a chosen rate. So what is
 * claimed here does not depend on the machine.
 *
 * The functions of the drafter are defined here, in the place of those in engine/drafter.c. */
#include "engine/draft_policy.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "engine/scheduler.h"

#include "test.h"

#include <math.h>

enum { SLOTS = 8, VOCAB = 60000, TOKENS = 256, CONTEXT = 8192, PROMPT = 200, RANDOM_RUNS = 600 };

/* A machine: what a step of n tokens takes, and what a draft does. */
struct machine {
    double first_s, more_s; /* the first token of a step, each further one */
    double draft_s;         /* a draft for any number of sequences */
    double token_s;         /* a token that the draft model catches up on */
    int right;              /* percent of the drafts */
    double wrong_s;         /* before this time all drafts are wrong */
    double noise;           /* by which times vary: 0.3 for 30 % */
};

static struct {
    const struct machine *machine;
    double now, drafting_s;
    uint64_t random, noise;
    int lag[SLOTS]; /* -1: all of it */
    int longest_catch_up;
    int open;        /* requests */
    double answer_s; /* that all of them took */
} sim;

static int32_t token_at(int64_t position)
{
    return (int32_t)(sh_mix64((uint64_t)position) % VOCAB);
}

/* ---- the drafter ---- */

int sh_drafter_lag(sh_drafter *d, const sh_sequence *seq)
{
    (void)d;
    if (sim.lag[seq->slot] < 0) sim.lag[seq->slot] = seq->count;
    return sim.lag[seq->slot];
}

double sh_drafter_step_s(const sh_drafter *d, int sequences)
{
    (void)d;
    (void)sequences;
    return sim.machine->draft_s;
}

double sh_drafter_token_s(const sh_drafter *d)
{
    (void)d;
    return sim.machine->token_s;
}

double sh_drafter_busy_s(const sh_drafter *d)
{
    (void)d;
    return sim.drafting_s;
}

void sh_drafter_leave(sh_drafter *d, int slot)
{
    (void)d;
    sim.lag[slot] = -1;
}

sh_draft_source sh_drafter_source(const sh_drafter *d)
{
    (void)d;
    return SH_DRAFT_MODEL;
}

sh_status sh_drafter_see(sh_drafter *d, const sh_sequence *seq, const sh_seen *seen, sh_err *err)
{
    (void)d;
    (void)seq;
    (void)seen;
    (void)err;
    return SH_OK;
}

static void draft(sh_sequence *seq, int drafts)
{
    while (seq->draft_count < drafts) {
        int at = seq->count + seq->draft_count++;
        bool right = (int)(sh_mix64(sim.random++) % 100) < sim.machine->right &&
                     sim.now >= sim.machine->wrong_s;
        seq->tokens[at] = right ? token_at(at) : VOCAB - 1;
    }
}

sh_status sh_drafter_run(sh_drafter *d, sh_draft_order *orders, int count, double catch_up_s,
                         sh_err *err)
{
    double start = sim.now;
    int rounds = 0, budget = (int)(catch_up_s / sim.machine->token_s);
    (void)d;
    (void)err;
    for (int i = 0; i < count; i++) {
        int *lag = &sim.lag[orders[i].seq->slot];
        int run = *lag <= 32 ? 0 : *lag - 1 < budget ? *lag - 1 : budget;
        if (run > sim.longest_catch_up) sim.longest_catch_up = run;
        budget -= run;
        *lag -= run;
        sim.now += run * sim.machine->token_s;
        if (*lag > 32) continue;
        draft(orders[i].seq, orders[i].drafts);
        *lag = 2;
        if (orders[i].drafts > rounds) rounds = orders[i].drafts;
    }
    sim.now += rounds * sim.machine->draft_s;
    sim.drafting_s += sim.now - start;
    return SH_OK;
}

/* ---- the model ---- */

static double step_s(int tokens)
{
    return sim.machine->first_s + (tokens - 1) * sim.machine->more_s;
}

/* What the scheduler is told. The clock of the simulation goes by the usual time, or it would be
 * luck which run is faster. */
static double measured_s(int tokens)
{
    double noise = (double)(sh_mix64(++sim.noise) % 2001) / 1000 - 1;
    return step_s(tokens) * (1 + sim.machine->noise * noise);
}

static void on_event(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    assert_int_not_equal(event->kind, SH_EVENT_ERROR);
    if (event->kind != SH_EVENT_DONE) return;
    sim.open--;
    sim.answer_s += sim.now;
}

static sh_sched *sched_open(bool drafter, sh_blocks *blocks)
{
    sh_sched_opts opts = {.limits = {.slots = SLOTS,
                                     .tokens = TOKENS,
                                     .draws = SLOTS + 17,
                                     .adjusts = 1000,
                                     .blocks = sh_blocks_total(blocks),
                                     .seq_blocks = CONTEXT / SH_KV_BLOCK + 2,
                                     .vocab = VOCAB,
                                     .masks = SLOTS + 17},
                          .context = CONTEXT,
                          .queue_max = 100,
                          .stall_s = 0.25,
                          .stages_in_flight = 1,
                          .drafts = 4,
                          .drafter = drafter ? (sh_drafter *)&sim : NULL};
    return sh_sched_create(&opts, blocks, on_event, NULL);
}

static void ask(sh_sched *sched, int id, int prompt, int answer)
{
    int32_t *tokens = sh_alloc_array((size_t)prompt, sizeof(*tokens));
    for (int i = 0; i < prompt; i++) tokens[i] = (token_at(i) + id) % VOCAB;
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = tokens,
                          .prompt_count = (size_t)prompt,
                          .max_tokens = answer,
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    sim.answer_s -= sim.now;
    sh_sched_submit(sched, 1, &q);
    free(tokens);
}

/* As many requests at once, each with a new one after it when it has ended. */
struct load {
    int at_once, rounds, prompt, answer;
};

/* Simulated seconds that the answers take, all added up. */
static double run(const struct machine *machine, const struct load *load, bool drafter,
                  sh_sched_stats *stats)
{
    static sh_pick picks[SLOTS + 17];
    sh_blocks *blocks = sh_blocks_create(4096, (sh_key128){1, 2}, (sh_key128){3, 4});
    sim.machine = machine;
    sim.now = sim.drafting_s = sim.answer_s = 0;
    sim.random = sim.noise = 1;
    sim.longest_catch_up = 0;
    for (int i = 0; i < SLOTS; i++) sim.lag[i] = -1;
    sh_sched *sched = sched_open(drafter, blocks);
    sh_step_plan *plan = sh_step_plan_create(
        &(sh_step_limits){.slots = SLOTS,
                          .tokens = TOKENS,
                          .draws = SLOTS + 17,
                          .adjusts = 1000,
                          .blocks = 4096,
                          .seq_blocks = CONTEXT / SH_KV_BLOCK + 2,
                          .vocab = VOCAB,
                          .masks = SLOTS + 17});
    for (int asked = 0; asked < load->at_once * load->rounds || sim.open > 0;) {
        for (; sim.open < load->at_once && asked < load->at_once * load->rounds; sim.open++)
            ask(sched, asked++, load->prompt, load->answer);
        assert_true(sh_sched_plan(sched, plan));
        for (int i = 0; i < plan->draw_count; i++)
            picks[i] = (sh_pick){.id = token_at(plan->draws[i].draw.position)};
        sim.now += step_s(plan->token_count);
        sh_sched_commit(sched, plan, picks, measured_s(plan->token_count));
    }
    *stats = *sh_sched_stats_of(sched);
    sh_step_plan_free(plan);
    sh_sched_free(sched);
    sh_blocks_free(blocks);
    return sim.answer_s;
}

/* How much faster the answers come with the draft model. */
static double gain(const char *name, const struct machine *machine, const struct load *load)
{
    sh_sched_stats stats;
    double without = run(machine, load, false, &stats), with = run(machine, load, true, &stats);
    print_message("# %s: %.3f times as fast, %d of %d drafts kept\n", name, without / with,
                  (int)stats.drafts_kept[SH_DRAFT_MODEL], (int)stats.drafts_tried[SH_DRAFT_MODEL]);
    return without / with;
}

/* A large model whose steps are bound by memory, and a draft model of a seventh of its size. */
static const struct machine RIGHT = {0.100, 0.012, 0.015, 0.003, 70, 0, 0};
static const struct machine WRONG = {0.100, 0.012, 0.015, 0.003, 0, 0, 0};
static const struct load ALONE = {1, 3, PROMPT, 300}, FOUR = {4, 6, PROMPT, 200},
                         SHORT = {4, 6, 30, 200}, ALL = {SLOTS, 2, PROMPT, 200};

TEST(right_drafts_make_answers_faster)
{
    UNUSED_STATE;
    assert_true(gain("alone", &RIGHT, &ALONE) > 1.3);
    assert_true(gain("four at once, short prompts", &RIGHT, &SHORT) > 1.05);
    assert_true(gain("four at once", &RIGHT, &FOUR) > 0.97);
    struct machine perfect = RIGHT;
    perfect.right = 100;
    assert_true(gain("always right", &perfect, &ALONE) > 2);
}

TEST(wrong_drafts_cost_nearly_nothing)
{
    UNUSED_STATE;
    assert_true(gain("alone", &WRONG, &ALONE) > 0.97);
    assert_true(gain("four at once", &WRONG, &FOUR) > 0.97);
    assert_true(gain("all at once", &WRONG, &ALL) > 0.97);
    struct machine noisy = WRONG;
    noisy.noise = 0.4;
    assert_true(gain("on a busy machine", &noisy, &ALONE) > 0.96); /* of that, noise is 1 % */
    assert_true(gain("long prompts", &WRONG, &(struct load){1, 4, 2000, 100}) > 0.97);
}

static double between(uint64_t *random, double low, double high)
{
    return low * pow(high / low, (double)(sh_mix64((*random)++) % 10001) / 10000);
}

/* Whatever the machine, the draft model, the prompts and the answers; most draft models are always
 * wrong. */
TEST(drafts_never_lose_more_than_three_percent)
{
    UNUSED_STATE;
    uint64_t random = 1;
    double worst = 2;
    for (int i = 0; i < RANDOM_RUNS; i++) {
        struct machine m = {.first_s = 0.1,
                            .more_s = between(&random, 0.001, 0.1),
                            .draft_s = between(&random, 0.003, 0.1),
                            .noise = i % 2 * 0.1,
                            .right = i % 3 > 0 ? 0 : (int)between(&random, 1, 101)};
        m.token_s = m.draft_s * between(&random, 0.1, 0.7);
        struct load l = {.at_once = (int)between(&random, 1, SLOTS + 1),
                         .rounds = (int)between(&random, 1, 7),
                         .prompt = (int)between(&random, 5, 3000),
                         .answer = (int)between(&random, 100, 400)};
        sh_sched_stats stats;
        double without = run(&m, &l, false, &stats), with = run(&m, &l, true, &stats);
        double got = without / with;
        if (got < worst) worst = got;
        if (got < 0.97)
            print_message("# case %d, {%g, %g, %g, %g, %d} with {%d, %d, %d, %d}: %.3f\n", i,
                          m.first_s, m.more_s, m.draft_s, m.token_s, m.right, l.at_once, l.rounds,
                          l.prompt, l.answer, got);
    }
    print_message("# %d cases: %.3f times as fast at worst\n", RANDOM_RUNS, worst);
    assert_true(worst >= 0.97);
}

/* A machine where a step takes time in proportion to its tokens has nothing to gain, however right
 * the drafts are; and neither has a draft model that is as slow as the model. */
TEST(drafts_that_cannot_pay_are_not_made)
{
    UNUSED_STATE;
    struct machine bound = {0.010, 0.010, 0.002, 0.001, 70, 0, 0},
                   slow = {0.1, 0.01, 0.1, 0.01, 90, 0, 0};
    assert_true(gain("bound by arithmetic", &bound, &FOUR) > 0.97);
    assert_true(gain("slow draft model", &slow, &ALONE) > 0.97);
}

/* The text changes after a minute, and with it the rate. */
TEST(a_source_that_was_wrong_is_tried_again)
{
    UNUSED_STATE;
    sh_sched_stats stats;
    struct machine changes = RIGHT;
    changes.wrong_s = 60;
    run(&changes, &(struct load){1, 10, PROMPT, 300}, true, &stats);
    print_message("# wrong for a minute: %d of %d drafts kept\n",
                  (int)stats.drafts_kept[SH_DRAFT_MODEL], (int)stats.drafts_tried[SH_DRAFT_MODEL]);
    assert_true(stats.drafts_kept[SH_DRAFT_MODEL] > 500);
}

TEST(a_draft_model_catches_up_in_pieces_and_only_for_long_answers)
{
    UNUSED_STATE;
    sh_sched_stats stats;
    struct machine slow = RIGHT;
    slow.token_s = 0.010;
    run(&slow, &(struct load){1, 1, 3000, 20}, true, &stats);
    assert_int_equal(stats.drafts_tried[SH_DRAFT_MODEL], 0);
    run(&slow, &(struct load){1, 1, 70, 600}, true, &stats);
    assert_true(stats.drafts_kept[SH_DRAFT_MODEL] > 100);
    assert_true(sim.longest_catch_up * slow.token_s <= 0.25);
}

TEST(times_of_steps_that_were_not_measured_are_guessed_low)
{
    UNUSED_STATE;
    sh_step_times t = {0};
    assert_true(sh_step_times_of(&t, 1) == 0);
    for (int i = 0; i < 5; i++) sh_step_times_add(&t, 32, 1);
    assert_true(sh_step_times_of(&t, 4) == 0);
    for (int i = 0; i < 5; i++) sh_step_times_add(&t, 2, 0.1);
    assert_float_equal(sh_step_times_of(&t, 2), 0.1, 1e-9);
    assert_true(sh_step_times_of(&t, 5) > 0.1 && sh_step_times_of(&t, 5) < 0.12);
    assert_true(sh_step_times_of(&t, 200) > 1);
    sh_step_times_add(&t, 2, 5); /* interrupted */
    assert_true(sh_step_times_of(&t, 2) < 0.4);
    sh_step_times_add(&t, SH_STEP_TIMES_MAX + 1, 5);
    sh_step_times_add(&t, 0, 5);
    assert_true(sh_step_times_of(&t, 32) < 1.2);
}

TEST(a_rate_counts_drafts_up_to_the_first_wrong_one)
{
    UNUSED_STATE;
    sh_draft_rate r = {0};
    assert_float_equal(sh_draft_rate_of(&r, 0.6), 0.6, 1e-9);
    for (int i = 0; i < 200; i++) sh_draft_rate_add(&r, 2, true, 64);
    assert_float_equal(sh_draft_rate_of(&r, 0), 0.64, 0.05);
    for (int i = 0; i < 200; i++) sh_draft_rate_add(&r, 0, true, 64);
    assert_true(sh_draft_rate_of(&r, 0.5) < 0.1);
    for (int i = 0; i < 200; i++) sh_draft_rate_add(&r, 4, false, 64);
    assert_true(sh_draft_rate_of(&r, 0.5) > 0.9);
}

/* Tokens that a wrong draft makes run again count: here they cost more than drafts can give. */
TEST(drafts_whose_failure_is_expensive_must_be_likely)
{
    UNUSED_STATE;
    sh_step_times t = {0};
    for (int n = 1; n <= 40; n++)
        for (int i = 0; i < 3; i++) sh_step_times_add(&t, n, 0.1 + 0.005 * n);
    for (int n = 1; n <= 40; n++) t.s[n] = 0.1 + 0.005 * n;
    sh_step_outlook step = {&t, 1, 1, sh_step_times_of(&t, 1)};
    sh_draft_offer cheap = {.most = 4, .rate = 0.5}, costly = cheap;
    costly.redo = 31;
    assert_true(sh_draft_choose(&step, &cheap).drafts > 0);
    assert_int_equal(sh_draft_choose(&step, &costly).drafts, 0);
    costly.rate = 0.95;
    assert_true(sh_draft_choose(&step, &costly).drafts > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_drafts_make_answers_faster),
        cmocka_unit_test(wrong_drafts_cost_nearly_nothing),
        cmocka_unit_test(drafts_never_lose_more_than_three_percent),
        cmocka_unit_test(drafts_that_cannot_pay_are_not_made),
        cmocka_unit_test(a_source_that_was_wrong_is_tried_again),
        cmocka_unit_test(a_draft_model_catches_up_in_pieces_and_only_for_long_answers),
        cmocka_unit_test(times_of_steps_that_were_not_measured_are_guessed_low),
        cmocka_unit_test(a_rate_counts_drafts_up_to_the_first_wrong_one),
        cmocka_unit_test(drafts_whose_failure_is_expensive_must_be_likely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
