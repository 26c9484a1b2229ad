/* draft_sim.h - the scheduler with a simulated model and draft model: a step and a draft take the
 * time that a formula says, and drafts are right at a chosen rate. So what is measured does not
 * depend on the machine.
 *
 * The functions of the drafter are defined here, in the place of those in engine/drafter.c. */
#ifndef TESTS_UNIT_ENGINE_DRAFT_SIM_H
#define TESTS_UNIT_ENGINE_DRAFT_SIM_H

#include "base/alloc.h"
#include "base/hash.h"
#include "engine/scheduler.h"

#include "test.h"

#include <math.h>

enum {
    SIM_SLOTS = 64,
    SIM_STAGES = 4,
    SIM_DRAWS = SIM_SLOTS + 17,
    SIM_TOKENS = 256,
    SIM_CONTEXT = 8192,
    SIM_VOCAB = 60000,
    SIM_REQUESTS = 600,
    SIM_NEAR = 32, /* tokens that a drafter computes along with its first draft */
};

/* A machine and the models on it. */
struct machine {
    double first_s, more_s; /* a step with one token, each further one */
    double draft_s;         /* a draft for any number of sequences */
    double token_s;         /* a token that the draft model catches up on */
    int right;              /* percent of its drafts */
    double turns_s;         /* they are wrong for so long, right at that rate for as long, ...; 0:
                               always at that rate */
    double noise;           /* by which measured times vary: 0.3 for 30 % */
    int tile;               /* a step takes longer only every so many tokens; 0: with every token */
    int stages;             /* of a pipeline; 0: none */
    bool fixed_state;       /* of the model */
    bool head;              /* the drafter is an MTP layer: it must be shown each step */
    int period;             /* the text repeats itself after so many tokens; 0: never */
    int words;              /* it has so few that pairs recur, but not what follows; 0: many */
};

/* As many requests at once, each with a new one after it when it has ended. */
struct load {
    int at_once, rounds, prompt, answer;
    bool varied; /* prompts and answers of half that length up to all of it */
    bool open;   /* answers end by themselves, when nobody expects it */
};

/* How drafts are made. */
enum { SIM_NONE = 0, SIM_POLICY = -1 }; /* else: always so many, if there are any */

static struct {
    const struct machine *machine;
    double now, drafting_s;
    uint64_t random, noise;
    int lag[SIM_SLOTS]; /* -1: all of it */
    int longest_catch_up;
    int open;               /* requests */
    double answer_s;        /* that all of them took */
    int left[SIM_REQUESTS]; /* tokens of their answers */
} sim;

static inline int32_t sim_token_at(int64_t position)
{
    const struct machine *m = sim.machine;
    if (m->period > 0) position %= m->period;
    return (int32_t)(sh_mix64((uint64_t)position) % (uint64_t)(m->words > 0 ? m->words : 50000));
}

/* ---- the drafter ---- */

static void sim_draft_for(double seconds)
{
    sim.now += seconds;
    sim.drafting_s += seconds;
}

int sh_drafter_lag(sh_drafter *d, const sh_sequence *seq)
{
    (void)d;
    if (sim.lag[seq->slot] < 0 && !sim.machine->head) sim.lag[seq->slot] = seq->count;
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
    return sim.machine->head ? SH_DRAFT_HEAD : SH_DRAFT_MODEL;
}

/* A head computes what it is shown in one go, when that is a lot. */
sh_status sh_drafter_see(sh_drafter *d, const sh_sequence *seq, const sh_seen *seen, sh_err *err)
{
    int *lag = &sim.lag[seq->slot];
    (void)d;
    (void)err;
    int known = seq->count - seen->pos < seen->count ? seq->count - seen->pos : seen->count;
    *lag = (*lag < 0 ? 0 : *lag) + known;
    if (*lag <= SIM_NEAR) return SH_OK;
    sim_draft_for((*lag - 1) * sim.machine->token_s);
    *lag = 1;
    return SH_OK;
}

static bool sim_right(void)
{
    double turns_s = sim.machine->turns_s;
    bool wrong = turns_s > 0 && (int64_t)(sim.now / turns_s) % 2 == 0;
    return (int)(sh_mix64(sim.random++) % 100) < sim.machine->right && !wrong;
}

static void sim_draft(sh_sequence *seq, int drafts)
{
    while (seq->draft_count < drafts) {
        int at = seq->count + seq->draft_count++;
        seq->tokens[at] = sim_right() ? sim_token_at(at) : SIM_VOCAB - 1;
    }
}

sh_status sh_drafter_run(sh_drafter *d, sh_draft_order *orders, int count, double catch_up_s,
                         sh_err *err)
{
    int rounds = 0, budget = (int)(catch_up_s / sim.machine->token_s);
    (void)d;
    (void)err;
    for (int i = 0; i < count; i++) {
        int *lag = &sim.lag[orders[i].seq->slot];
        int run = *lag <= SIM_NEAR ? 0 : *lag - 1 < budget ? *lag - 1 : budget;
        if (run > sim.longest_catch_up) sim.longest_catch_up = run;
        budget -= run;
        *lag -= run;
        sim_draft_for(run * sim.machine->token_s);
        if (*lag > SIM_NEAR) continue;
        sim_draft(orders[i].seq, orders[i].drafts);
        *lag = sim.machine->head ? 0 : 2;
        if (orders[i].drafts > rounds) rounds = orders[i].drafts;
    }
    sim_draft_for(rounds * sim.machine->draft_s);
    return SH_OK;
}

/* ---- the model ---- */

static inline double sim_step_s(int tokens)
{
    const struct machine *m = sim.machine;
    int more = m->tile > 1 ? (tokens - 1) / m->tile * m->tile : tokens - 1;
    return m->first_s + more * m->more_s;
}

/* A step on its way through the stages. */
struct sim_flight {
    sh_step_plan *plan;
    double begun, ends;
    bool overlaps;
};

static struct {
    struct sim_flight flights[SIM_STAGES];
    int first, count;
    double free_at[SIM_STAGES]; /* the stages */
} sim_pipe;

static int sim_stages(void)
{
    return sim.machine->stages > 1 ? sim.machine->stages : 1;
}

/* The first stage runs where the scheduler does, which waits for it. */
static void sim_begin(struct sim_flight *f)
{
    double stage_s = sim_step_s(f->plan->token_count) / sim_stages();
    f->begun = sim.now;
    f->overlaps = sim_pipe.count > 0;
    if (f->overlaps) sim_pipe.flights[sim_pipe.first].overlaps = true;
    f->ends = sim.now += stage_s;
    for (int i = 1; i < sim_stages(); i++) {
        if (f->ends < sim_pipe.free_at[i]) f->ends = sim_pipe.free_at[i];
        sim_pipe.free_at[i] = f->ends += stage_s;
    }
    sim_pipe.count++;
}

/* The clock of the simulation goes by the usual time, or it would be luck which run is faster. */
static void sim_finish(sh_sched *sched, struct sim_flight *f)
{
    static sh_pick picks[SIM_DRAWS];
    static float output;
    double noise = 1 + sim.machine->noise * ((double)(sh_mix64(++sim.noise) % 2001) / 1000 - 1);
    for (int i = 0; i < f->plan->draw_count; i++)
        picks[i] = (sh_pick){.id = sim_token_at(f->plan->draws[i].draw.position)};
    if (sim.now < f->ends) sim.now = f->ends;
    sim_pipe.first = (sim_pipe.first + 1) % sim_stages();
    sim_pipe.count--;
    if (f->plan->outputs) sh_sched_outputs(sched, &output, 0);
    double took = sim.now - f->begun;
    sh_sched_commit(sched, f->plan, picks, took * noise,
                    (f->overlaps ? sim_step_s(f->plan->token_count) : took) * noise);
}

static void sim_event(void *ctx, uint64_t owner, const sh_event *event)
{
    (void)ctx;
    (void)owner;
    assert_int_not_equal(event->kind, SH_EVENT_ERROR);
    if (event->kind == SH_EVENT_TOKEN) sim.left[event->id]--;
    if (event->kind != SH_EVENT_DONE) return;
    sim.left[event->id] = INT32_MAX;
    sim.open--;
    sim.answer_s += sim.now;
}

static sh_sched *sim_open(int drafts, const sh_step_limits *limits, sh_blocks *blocks)
{
    sh_sched_opts opts = {.limits = *limits,
                          .context = SIM_CONTEXT,
                          .queue_max = 100,
                          .stall_s = 0.25,
                          .stages_in_flight = sim_stages(),
                          .drafts = drafts < 0 ? 4 : drafts,
                          .drafts_always = drafts > 0,
                          .fixed_state = sim.machine->fixed_state,
                          .drafter = drafts != 0 && sim.machine->draft_s > 0 ? (sh_drafter *)&sim
                                                                             : NULL};
    return sh_sched_create(&opts, blocks, sim_event, NULL);
}

/* Between half and all of it. */
static int sim_vary(const struct load *load, int id, int length)
{
    int half = length / 2;
    return load->varied ? length - (int)(sh_mix64((uint64_t)(id + length)) % (uint64_t)(half + 1))
                        : length;
}

static void sim_ask(sh_sched *sched, const struct load *load, int id)
{
    int prompt = sim_vary(load, 7919 * id, load->prompt);
    int32_t *tokens = sh_alloc_array((size_t)prompt, sizeof(*tokens));
    for (int i = 0; i < prompt; i++) tokens[i] = 50000 + (sim_token_at(i) + id) % 9000;
    sim.left[id] = sim_vary(load, id, load->answer);
    sh_sequence_spec q = {.id = (uint64_t)id,
                          .prompt = tokens,
                          .prompt_count = (size_t)prompt,
                          .max_tokens = load->open ? SIM_CONTEXT : sim.left[id],
                          .logprobs = -1,
                          .sampling = sh_sampling_default()};
    sim.answer_s -= sim.now;
    sim.open++;
    sh_sched_submit(sched, 1, &q);
    free(tokens);
}

/* Simulated seconds that the answers take, all added up. */
static double sim_run(const struct machine *machine, const struct load *load, int drafts,
                      sh_sched_stats *stats)
{
    int requests = load->at_once * load->rounds;
    sh_step_limits limits = {.slots = SIM_SLOTS,
                             .tokens = SIM_TOKENS,
                             .draws = SIM_DRAWS,
                             .adjusts = 1000,
                             .blocks = 8192,
                             .seq_blocks = SIM_CONTEXT / SH_KV_BLOCK + 2,
                             .outputs = machine->head,
                             .vocab = SIM_VOCAB,
                             .masks = SIM_DRAWS};
    sh_blocks *blocks = sh_blocks_create(limits.blocks, (sh_key128){1, 2}, (sh_key128){3, 4});
    assert_true(requests <= SIM_REQUESTS);
    memset(&sim, 0, sizeof(sim));
    memset(&sim_pipe, 0, sizeof(sim_pipe));
    sim.machine = machine;
    for (int i = 0; i < SIM_SLOTS; i++) sim.lag[i] = -1;
    sh_sched *sched = sim_open(drafts, &limits, blocks);
    for (int i = 0; i < sim_stages(); i++) sim_pipe.flights[i].plan = sh_step_plan_create(&limits);
    for (int asked = 0; asked < requests || sim.open > 0;) {
        while (sim.open < load->at_once && asked < requests) sim_ask(sched, load, asked++);
        while (sim_pipe.count < sim_stages()) {
            int at = (sim_pipe.first + sim_pipe.count) % sim_stages();
            if (!sh_sched_plan(sched, sim_pipe.flights[at].plan)) break;
            sim_begin(&sim_pipe.flights[at]);
        }
        assert_true(sim_pipe.count > 0);
        sim_finish(sched, &sim_pipe.flights[sim_pipe.first]);
        for (int i = 0; load->open && i < asked; i++)
            if (sim.left[i] <= 0) sh_sched_cancel(sched, 1, (uint64_t)i);
    }
    *stats = *sh_sched_stats_of(sched);
    for (int i = 0; i < sim_stages(); i++) sh_step_plan_free(sim_pipe.flights[i].plan);
    sh_sched_free(sched);
    sh_blocks_free(blocks);
    return sim.answer_s;
}

#endif
