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
 * Two exceptions keep the rule honest. A source that is not worthwhile is still tried now and then,
 * or it could never recover; such probes may take PROBES_SHARE of the time. And the draft model
 * must have computed the whole sequence before it can draft, which only a long enough answer pays
 * back. How long an answer will be is not known: it is expected to go on for as long as it has been
 * going on. */
#include "engine/scheduler_internal.h"

#include "base/log.h"

static const double PROBES_SHARE = 0.01;
static const double SEQUENCE_MEMORY = 32; /* drafts of a sequence that count for its rates */
static const double ALL_MEMORY = 128;     /* drafts of all sequences */
static const double KNOWN = 8;            /* drafts after which a source is known a little */
static const double CERTAINTY = 1.3;      /* how far savings must exceed the cost of catching up */
static const double CATCH_UP_SHARE = 0.5; /* of stall_s, for a draft model to catch up */
enum { LIKELY_MORE = 32 };                /* tokens that an answer goes on for, at least */

/* What to expect of a source before anything is known. */
static const double FIRST_RATES[SH_DRAFT_SOURCES] = {[SH_DRAFT_FORCED] = 0.9,
                                                     [SH_DRAFT_REPEATED] = 0.5,
                                                     [SH_DRAFT_MODEL] = 0.6,
                                                     [SH_DRAFT_HEAD] = 0.7};

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

static sh_draft_offer offer_of(const sh_sched *s, const sh_sequence *seq, sh_draft_source source,
                               int most)
{
    double usual = sh_draft_rate_of(&s->drafting.rates[source], FIRST_RATES[source]);
    return (sh_draft_offer){.sequences = 1,
                            .most = most,
                            .rate = sh_draft_rate_of(&seq->draft_rates[source], usual),
                            .redo = s->opts.fixed_state ? seq->count % SH_KV_BLOCK : 0};
}

/* Whether drafts that are not worthwhile may be made to see how they do. */
static bool probe_fits(const sh_sched *s, double cost_s)
{
    return s->drafting.probes_s + cost_s <= PROBES_SHARE * s->drafting.busy_s;
}

static bool probe(sh_sched *s, double cost_s)
{
    bool fits = probe_fits(s, cost_s);
    if (fits) s->drafting.probes_s += cost_s;
    return fits;
}

/* Drafts that are copied from text: appended to the sequence at once. */
static sh_draft_choice choose_text(sh_sched *s, const sh_step_outlook *step, sh_sequence *seq,
                                   int most)
{
    static int (*const sources[])(sh_sequence *, int) = {
        [SH_DRAFT_FORCED] = draft_forced, [SH_DRAFT_REPEATED] = draft_repeated};
    for (int i = 0; i <= SH_DRAFT_REPEATED; i++) {
        int found = drafts_allowed(seq, sources[i](seq, most));
        if (found == 0) continue;
        sh_draft_offer offer = offer_of(s, seq, (sh_draft_source)i, found);
        sh_draft_choice choice = sh_draft_choose(step, &offer),
                        one = sh_draft_weigh(step, &offer, 1);
        if (choice.drafts == 0 && probe(s, one.seconds)) choice = one;
        if (choice.drafts == 0) continue;
        seq->draft_source = (sh_draft_source)i;
        seq->draft_count = choice.drafts;
        return choice;
    }
    return (sh_draft_choice){0};
}

/* Whether catching up with a sequence will pay: what the drafts save in each step, for as long as
 * the answer may go on. */
static bool catch_up_pays(const sh_sequence *seq, const sh_step_outlook *step,
                          const sh_draft_choice *choice, double cost_s)
{
    int answered = sh_sequence_answered(seq), left = seq->count_max - seq->count;
    int more = answered > LIKELY_MORE ? answered : LIKELY_MORE;
    if (more > left) more = left;
    double saved_s = choice->answers * step->seconds / step->answers - choice->seconds;
    return saved_s * more / (1 + choice->answers) > CERTAINTY * cost_s;
}

/* How many drafts the draft model makes for each of the sequences that decode, if it makes any. It
 * drafts for all at once, so the time for one is worth spending only together. */
static int rounds_choose(const sh_sched *s, const sh_step_outlook *step, sh_sequence **seqs,
                         int count)
{
    if (s->opts.drafter == NULL) return 0;
    sh_draft_offer all = {.sequences = count,
                          .most = s->opts.drafts < SH_DRAFTS_MAX ? s->opts.drafts : SH_DRAFTS_MAX,
                          .draft_s = sh_drafter_step_s(s->opts.drafter, count)};
    for (int i = 0; i < count; i++) {
        sh_draft_offer one = offer_of(s, seqs[i], sh_drafter_source(s->opts.drafter), 1);
        all.rate += one.rate / count;
        if (one.redo > all.redo) all.redo = one.redo;
    }
    return sh_draft_choose(step, &all).drafts;
}

/* Whether the draft model may catch up with a sequence. As long as it is unknown how good it is, it
 * does so with one at a time. */
static bool may_catch_up(const sh_sched *s)
{
    return s->drafting.rates[sh_drafter_source(s->opts.drafter)].tried >= KNOWN ||
           s->drafting.order_count == 0;
}

/* Drafts of the draft model, for one of `among` sequences, which share the time of its steps. */
static sh_draft_choice choose_model(sh_sched *s, const sh_step_outlook *step, sh_sequence *seq,
                                    int most, int among)
{
    sh_drafter *drafter = s->opts.drafter;
    sh_draft_choice none = {0};
    if (drafter == NULL) return none;
    sh_draft_offer offer = offer_of(s, seq, sh_drafter_source(drafter), most);
    if (offer.most > s->drafting.rounds) offer.most = s->drafting.rounds;
    offer.draft_s = sh_drafter_step_s(drafter, among) / among;
    sh_draft_choice choice = sh_draft_choose(step, &offer), one = sh_draft_weigh(step, &offer, 1);
    if (choice.drafts == 0 && !seq->probed && !probe_fits(s, one.seconds)) return none;
    int lag = sh_drafter_lag(drafter, seq); /* last, since following a sequence takes time, too */
    if (lag < 0) return none;
    bool near = lag <= SH_KV_BLOCK, probed = seq->probed;
    if (near) seq->probed = false;
    if (probed) return one; /* was decided, and counted, when it began to catch up */
    double lag_s = (lag - 1) * sh_drafter_token_s(drafter);
    if (choice.drafts > 0 &&
        (near || (may_catch_up(s) && catch_up_pays(seq, step, &choice, lag_s))))
        return choice;
    if (seq->draft_count > 0 || !probe(s, one.seconds + lag_s)) return none;
    seq->probed = !near;
    return one;
}

/* What the draft model is to make, it makes for all sequences together. */
static void order_add(sh_sched *s, sh_sequence *seq, int drafts)
{
    seq->draft_source = sh_drafter_source(s->opts.drafter);
    seq->draft_count = 0;
    s->drafting.orders[s->drafting.order_count++] = (sh_draft_order){.seq = seq, .drafts = drafts};
}

static void choose(sh_sched *s, sh_step_outlook *step, sh_sequence *seq, int most, int among)
{
    sh_draft_choice text = choose_text(s, step, seq, most);
    sh_draft_choice model = choose_model(s, step, seq, most, among);
    bool by_model = model.drafts > 0 &&
                    (text.drafts == 0 || model.tokens_per_second > text.tokens_per_second);
    if (by_model) order_add(s, seq, model.drafts);
    sh_step_outlook_add(step, by_model ? &model : &text);
}

/* A drafter that fails is done without: answers do not depend on it. */
static void drafter_used(sh_sched *s, int64_t start_ns, sh_status status, const sh_err *err)
{
    sh_sched_drafting *d = &s->drafting;
    double took = (double)(sh_clock_ns() - start_ns) * 1e-9;
    s->stats.draft_s += took;
    d->busy_s += took;
    if (status == SH_OK) return;
    SH_LOGE("the draft model is not used any more: %s", err->text);
    for (int i = 0; i < d->order_count; i++) d->orders[i].seq->draft_count = 0;
    s->opts.drafter = NULL;
}

static void orders_run(sh_sched *s)
{
    sh_sched_drafting *d = &s->drafting;
    sh_err err;
    int64_t start = sh_clock_ns();
    if (d->order_count == 0) return;
    sh_status status = sh_drafter_run(s->opts.drafter, d->orders, d->order_count,
                                      CATCH_UP_SHARE * s->opts.stall_s, &err);
    drafter_used(s, start, status, &err);
    d->order_count = 0;
}

void sh_sched_draft_see(sh_sched *s, const sh_sequence *seq, const sh_seen *seen)
{
    sh_err err;
    int64_t start = sh_clock_ns();
    if (s->opts.drafter != NULL)
        drafter_used(s, start, sh_drafter_see(s->opts.drafter, seq, seen, &err), &err);
}

void sh_sched_draft(sh_sched *s, sh_sequence **seqs, int count, int tokens)
{
    sh_sched_drafting *d = &s->drafting;
    sh_step_outlook step = {.times = &d->times,
                            .tokens = tokens,
                            .answers = count,
                            .seconds = sh_step_times_of(&d->times, tokens)};
    d->order_count = 0;
    d->turn++;
    d->rounds = rounds_choose(s, &step, seqs, count);
    for (int i = 0; i < count; i++) {
        /* The first gets the most, since each draft makes the next less worthwhile: take turns. */
        sh_sequence *seq = seqs[(d->turn + (unsigned)i) % (unsigned)count];
        /* Rows of logits are limited; one for each sequence is set aside. */
        int rows = s->opts.limits.draws - s->opts.limits.slots - (step.tokens - tokens);
        int space = s->opts.limits.tokens - step.tokens;
        int most = drafts_max(s, seq, rows < space ? rows : space);
        seq->draft_count = 0;
        if (most > 0) choose(s, &step, seq, most, count);
    }
    orders_run(s);
}

void sh_sched_draft_result(sh_sched *s, sh_sequence *seq, int kept)
{
    sh_draft_source source = seq->draft_source;
    int drafts = seq->draft_count;
    bool wrong = kept < drafts;
    seq->draft_count = 0;
    if (drafts == 0) return;
    sh_draft_rate_add(&seq->draft_rates[source], kept, wrong, SEQUENCE_MEMORY);
    sh_draft_rate_add(&s->drafting.rates[source], kept, wrong, ALL_MEMORY);
    s->stats.drafts_tried[source] += (uint64_t)drafts;
    s->stats.drafts_kept[source] += (uint64_t)kept;
    if (source == SH_DRAFT_FORCED) s->stats.forced_tokens += (uint64_t)kept;
}

/* In a pipeline, several steps take their time at once. */
void sh_sched_draft_measure(sh_sched *s, int tokens, double step_s)
{
    sh_step_times_add(&s->drafting.times, tokens, step_s);
    s->drafting.busy_s += step_s / s->opts.stages_in_flight;
}
