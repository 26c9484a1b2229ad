/* Where drafts come from, and how many there are.
 *
 * A sequence that decodes may get drafts from one of three sources: the text that its grammar
 * forces, what followed the last two tokens when they occurred before, and the drafter, which is a
 * draft model or the model's own multi-token-prediction layer. The first two are free to make but
 * seldom have anything to offer; the model always does and takes time. One rule chooses among them:
 * whatever gives the most tokens per second (engine/draft_policy.h), judged by how often drafts of
 * that source were right in this sequence and, while there were few, in all. So text that repeats
 * itself is copied while that works, and the model is asked otherwise.
 *
 * Four things keep the rule honest. A source that is not worthwhile is still tried now and then, or
 * it could never recover; such probes have a small share of the time. Some steps have no drafts,
 * since those are what drafts are judged by. The draft model must have computed the whole sequence
 * before it can draft, which only a long enough answer pays back: it is expected to go on for as
 * long as it has been going on, or as most do. And what is expected may be wrong, above all at
 * first. So there is a credit of time that drafts may lose: it grows by LOSS_SHARE of all time and
 * by what drafts save, what they take is taken from it, and no drafts are made that could lose more
 * than is left. */
#include "engine/scheduler_internal.h"

#include "base/log.h"

#include <math.h>
#include <stdlib.h>

static const double LOSS_SHARE = 0.015;
static const double FIRST_SHARE = 0.02; /* of the answer to come: may be lost on top of that */
static const double CREDIT_MAX_S = 60;  /* what was saved long ago counts for nothing, ... */
static const double DEBT_MAX = 16;      /* ... nor, in steps, what was lost */
static const double PROBES_MAX_S = 10;
static const double SEQUENCE_MEMORY = 32; /* drafts of a sequence that count for its rates */
static const double ALL_MEMORY = 128;     /* drafts of all sequences */
static const double KNOWN = 8;            /* drafts after which a source is known a little */
static const double CERTAINTY = 1.3;      /* how far savings must exceed the cost of catching up */
static const double CATCH_UP_SHARE = 0.5; /* of stall_s, for a draft model to catch up */
enum {
    LIKELY_MORE = 32, /* tokens that an answer goes on for, at least */
    PLAIN_EVERY = 32, /* steps, one has no drafts */
    TEXT_EVERY = 15,  /* steps, one prefers drafts that are copied */
    USUAL_OF = 10,    /* answers whose length is the usual one */
};

/* What to expect of a source before anything is known. */
static const double FIRST_RATES[SH_DRAFT_SOURCES] = {[SH_DRAFT_FORCED] = 0.9,
                                                     [SH_DRAFT_REPEATED] = 0.5,
                                                     [SH_DRAFT_MODEL] = 0.6,
                                                     [SH_DRAFT_HEAD] = 0.7};

/* Shares of the time for drafts that are only made to see how they do. */
static const double PROBES_SHARES[SH_DRAFT_SOURCES] = {[SH_DRAFT_FORCED] = 0.0025,
                                                       [SH_DRAFT_REPEATED] = 0.0025,
                                                       [SH_DRAFT_MODEL] = 0.01,
                                                       [SH_DRAFT_HEAD] = 0.01};

static int draft_repeated(sh_sequence *seq, int max)
{
    int32_t *t = seq->tokens;
    int n = seq->count;
    /* Starting at n - 5 leaves at least one token to copy between the match and the last pair. */
    for (int p = n - 5; max > 0 && p >= 0; p--) {
        if (t[p] != t[n - 2] || t[p + 1] != t[n - 1]) continue;
        int drafts = 0;
        while (drafts < max && p + 2 + drafts < n - 2) {
            t[n + drafts] = t[p + 2 + drafts];
            drafts++;
        }
        return drafts;
    }
    return 0;
}

static int draft_forced(sh_sequence *seq, int max)
{
    if (seq->constraint == NULL || max <= 0) return 0;
    return sh_constraint_forced(seq->constraint, seq->states[0], seq->tokens + seq->count, max);
}

/* How many of the drafts the grammar allows. A stop id is no use as a draft: nothing follows. */
static int drafts_allowed(sh_sequence *seq, int drafts)
{
    sh_err ignored; /* a limit of the matcher; if the answer gets there, it will say so */
    for (int i = 0; seq->constraint != NULL && i < drafts; i++) {
        int32_t token = seq->tokens[seq->count + i];
        if (sh_sequence_stops(seq, token) ||
            sh_constraint_next(seq->constraint, seq->states[i], token, &seq->states[i + 1],
                               &ignored) != SH_OK ||
            seq->states[i + 1] == SH_MATCH_DEAD)
            return i;
    }
    return drafts;
}

/* How many drafts a sequence may have: they must not go past the end of the answer, nor past the
 * point at which the sequence changes its RoPE factors, since all tokens of a step use the same. */
static int drafts_max(const sh_sched *s, const sh_sequence *seq, int left)
{
    int most = s->opts.drafts < SH_DRAFTS_MAX ? s->opts.drafts : SH_DRAFTS_MAX;
    if (most > left) most = left;
    if (most > seq->count_max - seq->count - 1) most = seq->count_max - seq->count - 1;
    if (!seq->long_rope && sh_sched_outgrown(s, seq->count + most))
        most = s->opts.rope_original - seq->count;
    return most;
}

/* Drafts that a step of so many tokens has space for. Rows of logits are limited, too; one for each
 * sequence is set aside. `drafts`: that it has already. */
static int drafts_room(const sh_sched *s, int tokens, int drafts)
{
    int rows = s->opts.limits.draws - s->opts.limits.slots - drafts;
    int space = s->opts.limits.tokens - tokens;
    return rows < space ? rows : space;
}

static sh_draft_offer offer_of(const sh_sched *s, const sh_sequence *seq, sh_draft_source source,
                               int most)
{
    double usual = sh_draft_rate_of(&s->drafting.rates[source], FIRST_RATES[source]);
    return (sh_draft_offer){.most = most,
                            .rate = sh_draft_rate_of(&seq->draft_rates[source], usual),
                            .redo = s->opts.fixed_state ? seq->count % SH_KV_BLOCK : 0};
}

/* Tokens that an answer is expected to go on for: as long as it has been going on, or as long as
 * most do. */
static double tokens_ahead(const sh_sched *s, const sh_sequence *seq)
{
    double answered = sh_sequence_answered(seq), left = seq->count_max - seq->count;
    return fmin(left, fmax(fmax(answered, LIKELY_MORE), s->drafting.usual_answer - answered));
}

static void credit_add(sh_sched *s, double seconds)
{
    sh_sched_drafting *d = &s->drafting;
    d->credit_s = fmin(d->credit_s + seconds, CREDIT_MAX_S);
    d->credit_s = fmax(d->credit_s, -DEBT_MAX * d->step_s);
}

/* Time has passed, in steps or drafting. */
static void credit_grow(sh_sched *s, double seconds)
{
    sh_sched_drafting *d = &s->drafting;
    credit_add(s, LOSS_SHARE * seconds);
    for (int i = 0; i < SH_DRAFT_SOURCES; i++)
        d->probes_s[i] = fmin(d->probes_s[i] + PROBES_SHARES[i] * seconds, PROBES_MAX_S);
}

/* Whether drafts for a sequence may lose so much in the step being planned. */
static bool affords(const sh_sched *s, const sh_sequence *seq, double risk_s)
{
    const sh_sched_drafting *d = &s->drafting;
    if (s->opts.drafts_always) return true;
    double ahead = FIRST_SHARE * tokens_ahead(s, seq);
    return d->step_s > 0 && d->risked_s + risk_s <= d->credit_s + ahead * d->step_s;
}

/* Whether drafts that are not worthwhile may be made to see how they do. */
static bool probe_fits(const sh_sched *s, const sh_sequence *seq, sh_draft_source source,
                       double risk_s)
{
    return risk_s <= s->drafting.probes_s[source] && affords(s, seq, risk_s);
}

static bool probe(sh_sched *s, const sh_sequence *seq, sh_draft_source source, double risk_s)
{
    bool fits = probe_fits(s, seq, source, risk_s);
    if (fits) s->drafting.probes_s[source] -= risk_s;
    return fits;
}

static sh_draft_choice choose_number(const sh_sched *s, const sh_step_outlook *step,
                                     const sh_draft_offer *offer)
{
    return s->opts.drafts_always ? sh_draft_weigh(step, offer, offer->most)
                                 : sh_draft_choose(step, offer);
}

/* Drafts that are copied from text: appended to the sequence at once. */
static sh_draft_choice choose_text(sh_sched *s, const sh_step_outlook *step, sh_sequence *seq,
                                   int most)
{
    static int (*const sources[])(sh_sequence *, int) = {
        [SH_DRAFT_FORCED] = draft_forced, [SH_DRAFT_REPEATED] = draft_repeated};
    for (int i = 0; i <= SH_DRAFT_REPEATED; i++) {
        sh_draft_source source = (sh_draft_source)i;
        int found = drafts_allowed(seq, sources[i](seq, most));
        if (found == 0) continue;
        sh_draft_offer offer = offer_of(s, seq, source, found);
        sh_draft_choice choice = choose_number(s, step, &offer),
                        one = sh_draft_weigh(step, &offer, 1);
        if (!affords(s, seq, sh_draft_risk_s(step, &offer, choice.drafts))) choice.drafts = 0;
        if (choice.drafts == 0 && probe(s, seq, source, sh_draft_risk_s(step, &offer, 1)))
            choice = one;
        if (choice.drafts == 0) continue;
        seq->draft_source = source;
        seq->draft_count = choice.drafts;
        return choice;
    }
    return (sh_draft_choice){0};
}

/* Whether catching up with a sequence will pay: what the drafts save in each step, for as long as
 * the answer may go on. */
static bool catch_up_pays(const sh_sched *s, const sh_sequence *seq, const sh_step_outlook *step,
                          const sh_draft_choice *choice, double cost_s)
{
    double saved_s = choice->answers * step->seconds / step->answers - choice->seconds;
    return saved_s * tokens_ahead(s, seq) / (1 + choice->answers) > CERTAINTY * cost_s;
}

static const sh_draft_rate *model_rate(const sh_sched *s)
{
    return &s->drafting.rates[sh_drafter_source(s->opts.drafter)];
}

/* Whether it is known, a little, how good the draft model is. */
static bool model_known(const sh_sched *s)
{
    return model_rate(s)->tried >= KNOWN;
}

/* Until it is known it may draft one more than were right. */
static int model_drafts_max(const sh_sched *s)
{
    int most = s->opts.drafts < SH_DRAFTS_MAX ? s->opts.drafts : SH_DRAFTS_MAX;
    double right = model_rate(s)->right;
    bool any = s->opts.drafts_always || model_known(s) || right >= most;
    return any ? most : 1 + (int)right;
}

static int by_rate(const void *a, const void *b)
{
    const sh_draft_offer *x = a, *y = b;
    return x->rate < y->rate ? 1 : x->rate > y->rate ? -1 : 0;
}

/* How many drafts the draft model makes for each of the sequences that it follows, if it makes any.
 * It drafts for all at once, so the time for one is worth spending only together. */
static void rounds_choose(sh_sched *s, const sh_step_outlook *step, sh_sequence **seqs, int count)
{
    sh_sched_drafting *d = &s->drafting;
    d->rounds = d->following = 0;
    d->decoding = count;
    d->rate_min = 0;
    if (s->opts.drafter == NULL) return;
    sh_draft_source source = sh_drafter_source(s->opts.drafter);
    for (int i = 0; i < count; i++)
        if (seqs[i]->followed)
            d->offers[d->following++] = offer_of(s, seqs[i], source, model_drafts_max(s));
    qsort(d->offers, (size_t)d->following, sizeof(*d->offers), by_rate);
    for (int i = 0; i < d->following; i++)
        d->offers[i].draft_s = sh_drafter_step_s(s->opts.drafter, i + 1);
    sh_draft_round_choice choice = sh_draft_choose_shared(step, d->offers, d->following,
                                                          drafts_room(s, step->tokens, 0));
    d->rounds = choice.rounds;
    if (choice.rounds > 0) d->rate_min = d->offers[choice.sequences - 1].rate;
}

/* As long as little is known of the draft model, it catches up with one at a time. */
static bool catch_up_may(const sh_sched *s, const sh_sequence *seq, const sh_step_outlook *step,
                         const sh_draft_choice *choice, double risk_s, double lag_s)
{
    if (s->opts.drafts_always) return true;
    return (model_known(s) || s->drafting.order_count == 0) && affords(s, seq, risk_s + lag_s) &&
           catch_up_pays(s, seq, step, choice, lag_s);
}

/* What the draft model should make for a sequence. If it follows it, that was decided for all that
 * share the rounds; if not, the question is whether to start to, as it would with all others. */
static sh_draft_choice choose_drafts(const sh_sched *s, const sh_step_outlook *step,
                                     const sh_sequence *seq, sh_draft_offer *offer)
{
    const sh_sched_drafting *d = &s->drafting;
    int sharing = seq->followed ? d->following : d->decoding;
    offer->draft_s = sh_drafter_step_s(s->opts.drafter, sharing) / sharing;
    if (offer->most > model_drafts_max(s)) offer->most = model_drafts_max(s);
    if (s->opts.drafts_always || !seq->followed) return choose_number(s, step, offer);
    return sh_draft_weigh(step, offer, offer->rate >= d->rate_min ? d->rounds : 0);
}

/* Drafts of the draft model for a sequence. `lag_s`: the time to catch up before them. */
static sh_draft_choice choose_model(sh_sched *s, const sh_step_outlook *step, sh_sequence *seq,
                                    int most, double *lag_s)
{
    sh_drafter *drafter = s->opts.drafter;
    sh_draft_choice none = {0};
    if (drafter == NULL) return none;
    sh_draft_source source = sh_drafter_source(drafter);
    sh_draft_offer offer = offer_of(s, seq, source, most), single = offer;
    single.draft_s = sh_drafter_step_s(drafter, 1);
    single.most = 1;
    sh_draft_choice choice = choose_drafts(s, step, seq, &offer),
                    one = sh_draft_weigh(step, &single, 1);
    double risk_s = sh_draft_risk_s(step, &offer, choice.drafts),
           one_risk_s = sh_draft_risk_s(step, &single, 1);
    if (!affords(s, seq, risk_s)) choice = choose_number(s, step, &single), risk_s = one_risk_s;
    if (!affords(s, seq, one_risk_s)) choice.drafts = 0;
    if (choice.drafts == 0 && !seq->probed && !probe_fits(s, seq, source, one_risk_s)) return none;
    int lag = sh_drafter_lag(drafter, seq); /* last, since following a sequence takes time, too */
    seq->followed = lag > 0 && lag <= SH_KV_BLOCK;
    if (lag < 0) return none;
    bool probed = seq->probed;
    if (seq->followed) seq->probed = false;
    if (probed) return one; /* was decided, and counted, when it began to catch up */
    *lag_s = (lag - 1) * sh_drafter_token_s(drafter);
    if (choice.drafts > 0 && (seq->followed || catch_up_may(s, seq, step, &choice, risk_s, *lag_s)))
        return choice;
    if (seq->draft_count > 0 || !probe(s, seq, source, one_risk_s + *lag_s)) return none;
    seq->probed = !seq->followed;
    return one;
}

/* What the draft model is to make, it makes for all sequences together. */
static void order_add(sh_sched *s, sh_sequence *seq, int drafts)
{
    seq->draft_source = sh_drafter_source(s->opts.drafter);
    seq->draft_count = 0;
    s->drafting.orders[s->drafting.order_count++] = (sh_draft_order){.seq = seq, .drafts = drafts};
}

/* Whether drafts from text are preferred, to see how they do: they are free to make. */
static bool text_wanted(const sh_sched *s, const sh_sequence *seq)
{
    const sh_sched_drafting *d = &s->drafting;
    return d->rates[seq->draft_source].tried < KNOWN || d->turn % TEXT_EVERY == 0;
}

static void choose(sh_sched *s, sh_step_outlook *step, sh_sequence *seq, int most)
{
    double lag_s = 0;
    sh_draft_choice text = choose_text(s, step, seq, most);
    sh_draft_choice model = choose_model(s, step, seq, most, &lag_s);
    bool better = model.tokens_per_second > text.tokens_per_second && !text_wanted(s, seq);
    bool by_model = model.drafts > 0 && (text.drafts == 0 || better);
    if (by_model) order_add(s, seq, model.drafts);
    s->drafting.risked_s += by_model ? model.seconds + lag_s : text.seconds;
    sh_step_outlook_add(step, by_model ? &model : &text);
}

/* Counts the time that the drafter has taken since it was asked last. One that fails is done
 * without: answers do not depend on it. */
static void drafter_used(sh_sched *s, sh_status status, const sh_err *err)
{
    sh_sched_drafting *d = &s->drafting;
    double took = sh_drafter_busy_s(s->opts.drafter) - d->drafter_s;
    d->drafter_s += took;
    s->stats.draft_s += took;
    credit_grow(s, took);
    credit_add(s, -took);
    if (status == SH_OK) return;
    SH_LOGE("the draft model is not used any more: %s", err->text);
    for (int i = 0; i < d->order_count; i++) d->orders[i].seq->draft_count = 0;
    s->opts.drafter = NULL;
}

static void orders_run(sh_sched *s)
{
    sh_sched_drafting *d = &s->drafting;
    sh_err err;
    if (d->order_count == 0) return;
    sh_status status = sh_drafter_run(s->opts.drafter, d->orders, d->order_count,
                                      CATCH_UP_SHARE * s->opts.stall_s, &err);
    drafter_used(s, status, &err);
    d->order_count = 0;
}

/* Whether drafts of a head are worth their time, as far as is known. */
static bool head_pays(const sh_sched *s)
{
    const sh_sched_drafting *d = &s->drafting;
    int count = d->decoding > 0 ? d->decoding : 1;
    sh_step_outlook step = {.times = &d->times,
                            .tokens = count,
                            .overlap = 1,
                            .answers = count,
                            .seconds = sh_step_times_of(&d->times, count)};
    sh_draft_offer offer = {.most = model_drafts_max(s),
                            .rate = sh_draft_rate_of(model_rate(s), FIRST_RATES[SH_DRAFT_HEAD]),
                            .draft_s = sh_drafter_step_s(s->opts.drafter, count) / count};
    return sh_draft_choose(&step, &offer).drafts > 0;
}

/* A head that misses something can start anew after it. One that does not pay sees something now
 * and then, to be tried. */
void sh_sched_draft_see(sh_sched *s, const sh_sequence *seq, const sh_seen *seen)
{
    sh_err err;
    sh_drafter *drafter = s->opts.drafter;
    if (drafter == NULL) return;
    double cost_s = seen->count * sh_drafter_token_s(drafter);
    s->drafting.risked_s = 0;
    if (!s->opts.drafts_always &&
        !(head_pays(s) ? affords(s, seq, cost_s) : probe(s, seq, SH_DRAFT_HEAD, cost_s)))
        return;
    drafter_used(s, sh_drafter_see(drafter, seq, seen, &err), &err);
}

/* Steps without drafts are what drafts are judged by: some come first, and one now and then. Those
 * with tokens that run again would be too many kinds. */
static bool plain_wanted(const sh_sched *s, int count, int tokens)
{
    if (s->opts.drafts_always) return false;
    bool known = sh_step_times_known(&s->drafting.times, tokens) || tokens > count;
    return !known || s->drafting.turn % PLAIN_EVERY == 0;
}

void sh_sched_draft(sh_sched *s, sh_sequence **seqs, int count, int tokens)
{
    sh_sched_drafting *d = &s->drafting;
    sh_step_outlook step = {.times = &d->times,
                            .tokens = tokens,
                            .overlap = (int)(d->planned - d->committed) + 1,
                            .answers = count};
    step.seconds = sh_step_times_of(&d->times, tokens) / step.overlap;
    d->order_count = 0;
    d->risked_s = 0;
    d->step_s = step.seconds;
    d->turn++;
    for (int i = 0; i < count; i++) seqs[i]->draft_count = 0;
    if (plain_wanted(s, count, tokens)) return;
    rounds_choose(s, &step, seqs, count);
    for (int i = 0; i < count; i++) {
        /* The first gets the most, since each draft makes the next less worthwhile: take turns. */
        sh_sequence *seq = seqs[(d->turn + (unsigned)i) % (unsigned)count];
        int most = drafts_max(s, seq, drafts_room(s, step.tokens, step.tokens - tokens));
        if (most > 0) choose(s, &step, seq, most);
    }
    orders_run(s);
}

void sh_sched_draft_result(sh_sched *s, sh_sequence *seq, int kept, int redo)
{
    sh_sched_drafting *d = &s->drafting;
    sh_draft_source source = seq->draft_source;
    int drafts = seq->draft_count;
    bool wrong = kept < drafts;
    seq->draft_count = 0;
    d->answering++;
    if (drafts == 0) return;
    d->kept += kept;
    d->redone += redo;
    sh_draft_rate_add(&seq->draft_rates[source], kept, wrong, SEQUENCE_MEMORY);
    sh_draft_rate_add(&d->rates[source], kept, wrong, ALL_MEMORY);
    s->stats.drafts_tried[source] += (uint64_t)drafts;
    s->stats.drafts_kept[source] += (uint64_t)kept;
    if (source == SH_DRAFT_FORCED) s->stats.forced_tokens += (uint64_t)kept;
}

void sh_sched_draft_ended(sh_sched *s, const sh_sequence *seq)
{
    sh_sched_drafting *d = &s->drafting;
    int answered = sh_sequence_answered(seq);
    if (answered == 0) return;
    if (d->ended < USUAL_OF) d->ended++;
    d->usual_answer += (answered - d->usual_answer) / d->ended;
}

void sh_sched_draft_carry(sh_sched *s, const sh_sched *before)
{
    const sh_sched_drafting *from = &before->drafting;
    sh_sched_drafting *d = &s->drafting;
    for (int i = 0; i < SH_DRAFT_SOURCES; i++) d->rates[i] = from->rates[i];
    d->credit_s = from->credit_s;
    d->ended = from->ended;
    d->usual_answer = from->usual_answer;
}

void sh_sched_draft_planned(sh_sched *s, const sh_step_plan *step)
{
    sh_sched_drafting *d = &s->drafting;
    unsigned stages = (unsigned)s->opts.stages_in_flight;
    int plain = step->token_count;
    for (int i = 0; i < step->seq_count; i++) plain -= s->slots[step->seqs[i].slot]->draft_count;
    d->flying[d->planned++ % stages] = (sh_sched_flight){step->token_count, plain};
    if (d->planned - d->committed > stages) d->committed++; /* that one is void */
}

/* The most tokens of a plan in flight: in a pipeline, that one sets the pace. */
static sh_sched_flight slowest(const sh_sched *s)
{
    const sh_sched_drafting *d = &s->drafting;
    sh_sched_flight most = {0};
    for (unsigned i = d->committed; i != d->planned; i++) {
        const sh_sched_flight *f = &d->flying[i % (unsigned)s->opts.stages_in_flight];
        if (f->tokens > most.tokens) most.tokens = f->tokens;
        if (f->plain > most.plain) most.plain = f->plain;
    }
    return most;
}

void sh_sched_draft_measure(sh_sched *s, int tokens, double alone_s)
{
    sh_sched_drafting *d = &s->drafting;
    sh_step_times_add(&d->times, tokens, alone_s);
    int overlap = (int)(d->planned - d->committed);
    if (overlap == 0) return;
    sh_sched_flight most = slowest(s);
    d->committed++;
    credit_grow(s, alone_s / overlap);
    double saved_s = -sh_step_times_added(&d->times, most.tokens, most.tokens - most.plain);
    /* A token that is kept saves its share of a step without drafts. */
    if (d->kept > 0) saved_s += d->kept * sh_step_times_of(&d->times, d->answering) / d->answering;
    saved_s -= sh_step_times_added(&d->times, d->answering + d->redone, d->redone);
    credit_add(s, saved_s / overlap);
    d->answering = d->kept = d->redone = 0;
}
