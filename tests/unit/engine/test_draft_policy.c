/* How many tokens are drafted, with simulated models (draft_sim.h). */
#include "engine/draft_policy.h"

#include "draft_sim.h"

enum { PROMPT = 100, CASES = SLOW ? 8 : 40, MANY = 64 };

/* How much faster the answers come with the draft model. */
static double gain(const char *name, const struct machine *machine, const struct load *load)
{
    sh_sched_stats stats;
    double without = sim_run(machine, load, SIM_NONE, &stats),
           with = sim_run(machine, load, SIM_POLICY, &stats);
    print_message("# %s: %.3f times as fast, %d of %d drafts kept\n", name, without / with,
                  (int)stats.drafts_kept[SH_DRAFT_MODEL], (int)stats.drafts_tried[SH_DRAFT_MODEL]);
    return without / with;
}

/* A large model whose steps are bound by memory, and a draft model of a seventh of its size. */
static const struct machine RIGHT = {0.100, 0.012, 0.015, 0.003, .right = 70};
static const struct machine WRONG = {0.100, 0.012, 0.015, 0.003, .right = 0};
static const struct load ALONE = {1, 4, PROMPT, .answer = 300},
                         FOUR = {4, 6, PROMPT, .answer = 200}, SHORT = {4, 6, 30, .answer = 200},
                         ALL = {MANY, 2, PROMPT, .answer = 100};

TEST(right_drafts_make_answers_faster)
{
    UNUSED_STATE;
    assert_true(gain("alone", &RIGHT, &ALONE) > 1.3);
    assert_true(gain("four at once, short prompts", &RIGHT, &SHORT) > 1.05);
    assert_true(gain("four at once", &RIGHT, &FOUR) > 0.97);
    struct machine perfect = RIGHT;
    perfect.right = 100;
    assert_true(gain("always right", &perfect, &ALONE) > 1.9);
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
    assert_true(gain("long prompts", &WRONG, &(struct load){1, 4, 2000, .answer = 100}) > 0.97);
}

static double between(uint64_t *random, double low, double high)
{
    return low * pow(high / low, (double)(sh_mix64((*random)++) % 10001) / 10000);
}

static int below(uint64_t *random, int bound)
{
    return (int)(sh_mix64((*random)++) % (uint64_t)bound);
}

/* What else may be special about a machine and its load. */
struct kind {
    const char *name;
    void (*change)(struct machine *m, struct load *l, uint64_t *random);
};

static void in_tiles(struct machine *m, struct load *l, uint64_t *random)
{
    (void)l;
    m->tile = 4 + 4 * below(random, 2);
}

static void in_stages(struct machine *m, struct load *l, uint64_t *random)
{
    m->stages = 2 + below(random, SIM_STAGES - 1);
    /* If all ended at the same time, prompts would meet no answers: drafts would change that. */
    l->varied = l->at_once > 1;
    l->rounds += 5;
    l->prompt = 1 + l->prompt / 8;
}

/* The draft model is another's, or there is none. */
static void with_repeats(struct machine *m, struct load *l, uint64_t *random)
{
    (void)l;
    m->period = 10 + below(random, 100);
    if (below(random, 2) == 0) m->draft_s = 0;
}

static void with_few_words(struct machine *m, struct load *l, uint64_t *random)
{
    (void)l;
    m->words = 4 + below(random, 16);
    if (below(random, 2) == 0) m->draft_s = 0;
}

static void with_fixed_state(struct machine *m, struct load *l, uint64_t *random)
{
    (void)l;
    (void)random;
    m->fixed_state = true;
}

static void with_head(struct machine *m, struct load *l, uint64_t *random)
{
    (void)l;
    m->head = true;
    m->draft_s = between(random, 0.002, 0.02);
    m->token_s = m->draft_s * between(random, 0.02, 0.2);
}

static void with_arrivals(struct machine *m, struct load *l, uint64_t *random)
{
    (void)m;
    l->varied = true;
    l->open = below(random, 2) == 0;
}

static void with_turns(struct machine *m, struct load *l, uint64_t *random)
{
    m->turns_s = between(random, 5, 100);
    l->rounds = 4;
}

static void with_many(struct machine *m, struct load *l, uint64_t *random)
{
    *l = (struct load){MANY, 1, 1 + below(random, 100), 100, .varied = true};
    m->more_s = between(random, 0.0003, 0.02);
}

static const struct kind KINDS[] = {
    {"plain", NULL},
    {"tiles", in_tiles},
    {"stages", in_stages},
    {"repeated text", with_repeats},
    {"few words", with_few_words},
    {"fixed-size state", with_fixed_state},
    {"head", with_head},
    {"arrivals", with_arrivals},
    {"turns", with_turns},
    {"many at once", with_many},
};

/* Two of three draft models are wrong nearly always, or always. */
static void case_make(const struct kind *kind, int number, uint64_t *random, struct machine *m,
                      struct load *l)
{
    *m = (struct machine){.first_s = 0.1,
                          .more_s = between(random, 0.001, 0.1),
                          .draft_s = between(random, 0.003, 0.1),
                          .noise = number % 2 * 0.1,
                          .right = number % 3 > 0 ? 0 : (int)between(random, 1, 101)};
    m->token_s = m->draft_s * between(random, 0.1, 0.7);
    *l = (struct load){.at_once = (int)between(random, 1, 9),
                       .rounds = (int)between(random, 1, 5),
                       .prompt = (int)between(random, 5, 3000),
                       .answer = (int)between(random, 100, 400)};
    if (kind->change != NULL) kind->change(m, l, random);
}

/* Whatever the machine, the draft model, the prompts and the answers. */
TEST(drafts_never_lose_more_than_three_percent)
{
    UNUSED_STATE;
    uint64_t random = 1;
    double worst_of_all = 2;
    for (size_t k = 0; k < sizeof(KINDS) / sizeof(*KINDS); k++) {
        double worst = 2;
        for (int i = 0; i < CASES; i++) {
            struct machine m;
            struct load l;
            sh_sched_stats stats;
            case_make(&KINDS[k], i, &random, &m, &l);
            double without = sim_run(&m, &l, SIM_NONE, &stats);
            worst = fmin(worst, without / sim_run(&m, &l, SIM_POLICY, &stats));
        }
        print_message("# %s: %.3f times as fast at worst\n", KINDS[k].name, worst);
        worst_of_all = fmin(worst_of_all, worst);
    }
    assert_true(worst_of_all >= 0.97);
}

/* A machine where a step takes time in proportion to its tokens has nothing to gain, however right
 * the drafts are; and neither has a draft model that is as slow as the model. */
TEST(drafts_that_cannot_pay_are_not_made)
{
    UNUSED_STATE;
    struct machine bound = {0.010, 0.010, 0.002, 0.001, .right = 70},
                   slow = {0.1, 0.01, 0.1, 0.01, .right = 90};
    assert_true(gain("bound by arithmetic", &bound, &FOUR) > 0.97);
    assert_true(gain("slow draft model", &slow, &ALONE) > 0.97);
}

/* The text changes after a minute, and with it the rate. */
TEST(a_source_that_was_wrong_is_tried_again)
{
    UNUSED_STATE;
    sh_sched_stats stats;
    struct machine changes = RIGHT;
    changes.turns_s = 60;
    sim_run(&changes, &(struct load){1, 10, PROMPT, .answer = 300}, SIM_POLICY, &stats);
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
    sim_run(&slow, &(struct load){1, 1, 3000, .answer = 20}, SIM_POLICY, &stats);
    assert_int_equal(stats.drafts_tried[SH_DRAFT_MODEL], 0);
    sim_run(&slow, &(struct load){1, 1, 70, .answer = 600}, SIM_POLICY, &stats);
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

/* A chunk of a prompt that was measured once must not make drafts next to it look dear. */
TEST(what_drafts_risk_is_not_guessed_low_and_what_they_added_not_high)
{
    UNUSED_STATE;
    sh_step_times t = {0};
    assert_true(sh_step_times_at_most(&t, 1) == 0);
    assert_true(sh_step_times_added(&t, 3, 2) == 0);
    for (int i = 0; i < 3; i++) sh_step_times_add(&t, 1, 0.1);
    assert_float_equal(sh_step_times_at_most(&t, 1), 0.1, 1e-9);
    assert_float_equal(sh_step_times_at_most(&t, 3), 0.3, 1e-9);
    sh_step_times_add(&t, 33, 0.1 + 32 * 0.05);
    assert_float_equal(sh_step_times_at_most(&t, 3), 0.2, 1e-9);
    assert_float_equal(sh_step_times_added(&t, 33, 2), 0.1, 1e-9);
    assert_true(sh_step_times_added(&t, 33, 0) == 0);
    assert_true(sh_step_times_added(&t, 0, 0) == 0);
    assert_true(sh_step_times_at_most(&t, 200) > sh_step_times_at_most(&t, 33));
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
    sh_step_outlook step = {&t, 1, 1, 1, sh_step_times_of(&t, 1)};
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
        cmocka_unit_test(what_drafts_risk_is_not_guessed_low_and_what_they_added_not_high),
        cmocka_unit_test(a_rate_counts_drafts_up_to_the_first_wrong_one),
        cmocka_unit_test(drafts_whose_failure_is_expensive_must_be_likely),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
