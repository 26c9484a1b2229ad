/* A sequence of the scheduler has a `shadow` here, which is a sequence in the drafter's own book of
 * blocks: same tokens, other KV. The shadow is brought up to date when drafts are wanted, never in
 * between, so a sequence that gets no drafts costs nothing.
 *
 * Drafting is a number of rounds, one forward pass each. In the first, the shadows run what they
 * lack; each round appends a draft to the sequences that still want one, and the next round
 * runs it. Drafts stay in the shadow until the next call finds out which of them the model has
 * accepted. The KV of wrong ones is overwritten. */
#include "engine/drafter_internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 512,      /* tokens of a round, at most */
    MASKS_KEPT = 256, /* as in the model group */
};

static sh_status vocab_check(const sh_drafter *d, sh_err *err)
{
    if (d->config.vocab == d->opts.vocab) return SH_OK;
    return sh_err_set(err, SH_ERR_INPUT,
                      "the draft model %s has a vocabulary of %d tokens, the model one of %d; they "
                      "must have the same",
                      d->opts.model_dir, d->config.vocab, d->opts.vocab);
}

static sh_status model_load(sh_drafter *d, sh_err *err)
{
    sh_shard whole = sh_shard_whole(&d->config);
    sh_model_opts opts = {.tokens_max = d->tokens_max,
                          .rows_max = d->opts.slots,
                          .kv_format = d->opts.kv_format,
                          .load = d->opts.load};
    return sh_model_load(d->opts.model_dir, &d->config, &whole, d->dev, &opts, &d->model, err);
}

sh_status sh_drafter_open(const sh_drafter_opts *opts, sh_drafter **out, sh_err *err)
{
    sh_drafter *d = sh_alloc(sizeof(*d));
    d->opts = *opts;
    d->tokens_max = opts->slots * 2 > CHUNK ? opts->slots * 2 : CHUNK;
    sh_status status = sh_config_load(opts->model_dir, &d->config, err);
    if (status == SH_OK && opts->head) status = sh_config_take_mtp(&d->config, err);
    if (status == SH_OK) status = vocab_check(d, err);
    if (status == SH_OK) status = sh_device_open(opts->device, &opts->device_opts, &d->dev, err);
    if (status == SH_OK) status = model_load(d, err);
    if (status != SH_OK) {
        sh_drafter_close(d);
        return status;
    }
    d->fixed_state = sh_config_has_fixed_state(&d->config);
    if (d->config.rope[0].kind == SH_ROPE_LONGROPE)
        d->rope_original = d->config.rope[0].original_context;
    *out = d;
    return SH_OK;
}

void sh_drafter_leave(sh_drafter *d, int slot)
{
    sh_shadow *w = &d->shadows[slot];
    if (w->seq == NULL) return;
    sh_sequence_stop(w->seq, d->blocks);
    sh_sequence_free(w->seq);
    *w = (sh_shadow){0};
}

void sh_drafter_release(sh_drafter *d)
{
    sh_err err;
    if (d->blocks == NULL) return;
    for (int i = 0; i < d->opts.slots; i++) sh_drafter_leave(d, i);
    sh_rank_free(d->rank);
    sh_step_plan_free(d->plan);
    sh_blocks_free(d->blocks);
    sh_mask_table_free(d->masks);
    sh_marks_reset(&d->marks);
    free(d->shadows);
    free(d->drawing);
    free(d->row);
    free(d->sorted);
    free(d->held);
    free(d->inputs);
    d->held = d->inputs = NULL;
    d->blocks = NULL;
    sh_status freed = sh_model_reserve_kv(d->model, 0, &err);
    SH_ASSERT(freed == SH_OK);
}

void sh_drafter_close(sh_drafter *d)
{
    if (d == NULL) return;
    sh_drafter_release(d);
    sh_model_free(d->model);
    sh_config_reset(&d->config);
    if (d->dev != NULL) d->dev->ops->close(d->dev);
    free(d);
}

sh_draft_source sh_drafter_source(const sh_drafter *d)
{
    return d->opts.head ? SH_DRAFT_HEAD : SH_DRAFT_MODEL;
}

size_t sh_drafter_block_bytes(const sh_drafter *d)
{
    return sh_model_kv_block_bytes(d->model);
}

sh_model_memory sh_drafter_memory(const sh_drafter *d)
{
    return sh_model_memory_used(d->model);
}

double sh_drafter_step_s(const sh_drafter *d, int sequences)
{
    return sh_step_times_of(&d->times, sequences);
}

double sh_drafter_token_s(const sh_drafter *d)
{
    return d->token_s;
}

double sh_drafter_busy_s(const sh_drafter *d)
{
    return d->busy_s;
}

/* ---- following the sequences ---- */

/* Whether the sequence and its drafts need the long factors of a RoPE that has two sets. */
static bool outgrown(const sh_drafter *d, const sh_sequence *seq)
{
    return d->rope_original > 0 && seq->count + SH_DRAFTS_MAX > d->rope_original;
}

static bool shadow_start(sh_drafter *d, const sh_sequence *seq)
{
    sh_shadow *w = &d->shadows[seq->slot];
    sh_sequence_spec spec = {.prompt = seq->tokens,
                             .prompt_count = (size_t)seq->count,
                             .max_tokens = seq->count_max - seq->count + 1};
    bool wait;
    w->seq = sh_sequence_create(&spec, d->context);
    w->seq->long_rope = outgrown(d, seq);
    if (!sh_sequence_start(w->seq, d->blocks, 0, &wait)) {
        sh_sequence_free(w->seq);
        w->seq = NULL;
        return false;
    }
    w->seq->slot = seq->slot;
    w->known = seq->count;
    return true;
}

/* Takes over what became of the drafts. Of what the shadow has computed, that is good which the
 * sequence has at the same place. The last known token is always left to compute: the next draft is
 * drawn from it. */
static void shadow_update(sh_drafter *d, const sh_sequence *seq)
{
    sh_shadow *w = &d->shadows[seq->slot];
    sh_sequence *own = w->seq;
    int computed = own->computed, good = computed < w->known ? computed : w->known;
    while (good < computed && good < seq->count && own->tokens[good] == seq->tokens[good]) good++;
    if (good == seq->count) good--;
    /* A fixed-size state has taken in what was computed after that; see tokens_lost(). */
    if (d->fixed_state && good < computed) good -= good % SH_KV_BLOCK;
    memcpy(own->tokens + w->known, seq->tokens + w->known,
           (size_t)(seq->count - w->known) * sizeof(*own->tokens));
    own->count = w->known = seq->count;
    sh_sequence_computed(own, d->blocks, good);
}

int sh_drafter_lag(sh_drafter *d, const sh_sequence *seq)
{
    sh_shadow *w = &d->shadows[seq->slot];
    if (seq->count + SH_DRAFTS_MAX >= d->context) return -1;
    if (d->opts.head) return sh_drafter_head_lag(d, seq);
    if (w->seq != NULL && !w->seq->long_rope && outgrown(d, seq)) sh_drafter_leave(d, seq->slot);
    if (w->seq == NULL && !shadow_start(d, seq)) return -1;
    shadow_update(d, seq);
    return seq->count - w->seq->computed;
}

/* ---- drafting ---- */

/* Tokens that sequences with a lot to catch up on may run in a round of about `seconds`. */
static int catch_up_max(const sh_drafter *d, double seconds)
{
    double fit = d->token_s > 0 ? seconds / d->token_s : SH_KV_BLOCK;
    return fit < SH_KV_BLOCK ? SH_KV_BLOCK : fit < d->tokens_max ? (int)fit : d->tokens_max;
}

/* Adds the next draw of a sequence; false if there is none to make. */
static bool add_draw(sh_drafter *d, sh_draft_order *order)
{
    const sh_sequence *seq = order->seq;
    int mask = 0;
    if (seq->constraint != NULL) {
        sh_mask bits;
        sh_err ignored; /* that far the answer may never come */
        bool sent;
        if (sh_step_mask_after(seq, seq->draft_count, &bits, &ignored) != SH_OK) return false;
        mask = sh_step_add_mask(d->plan, d->masks, seq->constraint, &bits, &sent);
    }
    d->drawing[d->plan->draw_count] = order;
    sh_step_add_draw(d->plan, seq, seq->draft_count, mask, &d->marks);
    d->plan->draws[d->plan->draw_count - 1].draw.logprobs = -1;
    return true;
}

/* Adds what a sequence runs in this round. `budget`: tokens left for those with a lot to catch up
 * on. */
static void add_order(sh_drafter *d, sh_draft_order *order, int *budget)
{
    const sh_sequence *seq = order->seq;
    sh_sequence *own = d->shadows[seq->slot].seq;
    int run = own->count - own->computed, space = d->tokens_max - d->plan->token_count;
    bool draws = run <= SH_DRAFTER_NEAR || run <= *budget;
    if (!draws) run = *budget;
    if (run > SH_DRAFTER_NEAR || !draws) *budget -= run;
    order->done = !draws;
    if (run == 0 || run > space || !sh_step_fits_adjusts(d->plan, seq, 0) ||
        !sh_sequence_grow(own, d->blocks, own->count) || (draws && !add_draw(d, order)))
        order->done = true;
    else
        sh_step_add_tokens(d->plan, own, run, draws);
}

/* The draft is appended to the sequence, and to its shadow for the next round. A stop id is no use
 * as a draft: nothing follows. */
static void take_pick(sh_drafter *d, sh_draft_order *order, int32_t token)
{
    sh_sequence *seq = order->seq, *own = d->shadows[seq->slot].seq;
    int at = seq->draft_count;
    sh_err ignored; /* a limit of the matcher; if the answer gets there, it will say so */
    order->done = true;
    if (sh_sequence_stops(seq, token)) return;
    if (seq->constraint != NULL && (sh_constraint_next(seq->constraint, seq->states[at], token,
                                                       &seq->states[at + 1], &ignored) != SH_OK ||
                                    seq->states[at + 1] == SH_MATCH_DEAD))
        return;
    seq->tokens[seq->count + at] = token;
    own->tokens[own->count++] = token;
    order->done = ++seq->draft_count == order->drafts;
}

static int32_t pick(sh_drafter *d, int draw)
{
    const sh_step_plan *plan = d->plan;
    sh_pick got;
    if (sh_pick_join(&plan->draws[draw].draw, &sh_rank_summaries(d->rank, plan->step)[draw], 1,
                     &got) == SH_OK)
        return got.id;
    bool kept = sh_rank_read_row(d->rank, plan->step, draw, d->row);
    SH_ASSERT(kept);
    sh_pick_whole(&plan->draws[draw].draw, d->row, d->config.vocab, d->sorted, &got);
    return got.id;
}

/* Rounds of single tokens and of chunks are different measures. */
static void measure(sh_drafter *d, double seconds)
{
    int tokens = d->plan->token_count;
    sh_step_times_add(&d->times, tokens, seconds);
    if (tokens < SH_KV_BLOCK) return;
    double cost = seconds / tokens;
    d->token_s = d->token_s == 0 ? cost : 0.7 * d->token_s + 0.3 * cost;
}

sh_status sh_drafter_round(sh_drafter *d, sh_err *err)
{
    uint64_t ignored;
    int64_t start = sh_clock_ns();
    d->plan->step++;
    sh_status status = sh_rank_apply(d->rank, d->plan, &ignored, err);
    if (status != SH_OK) return status;
    if (d->opts.head)
        d->dev->ops->write_rows(d->dev, sh_model_hidden(d->model), d->plan->token_count,
                                d->config.hidden, d->inputs);
    status = sh_rank_run(d->rank, d->plan, NULL, err);
    if (status != SH_OK) return status;
    for (int i = 0; i < d->plan->seq_count; i++)
        d->shadows[d->plan->seqs[i].slot].seq->computed += d->plan->seqs[i].token_count;
    if (d->opts.head) sh_drafter_head_ran(d);
    for (int i = 0; i < d->plan->draw_count; i++) take_pick(d, d->drawing[i], pick(d, i));
    measure(d, (double)(sh_clock_ns() - start) * 1e-9);
    return SH_OK;
}

static sh_status rounds_run(sh_drafter *d, sh_draft_order *orders, int count, double catch_up_s,
                            sh_err *err)
{
    int budget = catch_up_max(d, catch_up_s);
    for (;;) {
        sh_step_plan_clear(d->plan);
        sh_mask_table_turn(d->masks);
        for (int i = 0; i < count; i++)
            if (!orders[i].done) add_order(d, &orders[i], &budget);
        if (d->plan->seq_count == 0) return SH_OK;
        if (d->opts.head) sh_drafter_head_gather(d);
        sh_status status = sh_drafter_round(d, err);
        if (status != SH_OK) return status;
    }
}

sh_status sh_drafter_run(sh_drafter *d, sh_draft_order *orders, int count, double catch_up_s,
                         sh_err *err)
{
    int64_t start = sh_clock_ns();
    sh_status status = rounds_run(d, orders, count, catch_up_s, err);
    d->busy_s += (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

/* ---- starting ---- */

/* The root need not tell models apart: this book is about one, and starts empty. */
static sh_status blocks_open(sh_drafter *d, int count, sh_err *err)
{
    sh_key128 secret;
    sh_status status = sh_random_bytes(&secret, sizeof(secret), err);
    if (status == SH_OK) status = sh_model_reserve_kv(d->model, count, err);
    if (status == SH_OK) d->blocks = sh_blocks_create(count, secret, (sh_key128){0, 0});
    return status;
}

/* Has it compute a text that is one token over and over, and draft what follows. */
static sh_status try_out(sh_drafter *d, int32_t token, sh_err *err)
{
    enum { LENGTH = SH_DRAFTER_NEAR + 1 }; /* so that it catches up first */
    int32_t text[LENGTH + SH_DRAFTS_MAX];
    for (int i = 0; i < LENGTH + SH_DRAFTS_MAX; i++) text[i] = token;
    sh_sequence_spec spec = {.prompt = text,
                             .prompt_count = LENGTH + SH_DRAFTS_MAX,
                             .max_tokens = 1,
                             .logprobs = -1,
                             .sampling = sh_sampling_default()};
    if (LENGTH + SH_DRAFTS_MAX >= d->context) return SH_OK;
    sh_sequence *seq = sh_sequence_create(&spec, d->context);
    seq->count = LENGTH; /* the rest is space for drafts */
    seq->slot = 0;
    sh_status status = SH_OK;
    for (int i = 0; i < 2 && status == SH_OK && sh_drafter_lag(d, seq) > 0; i++)
        status = sh_drafter_run(d, &(sh_draft_order){.seq = seq, .drafts = 1}, 1, 0, err);
    sh_drafter_leave(d, 0);
    sh_sequence_free(seq);
    return status;
}

/* Weights that are read for the first time take several times as long as ever after. The first
 * request shall not pay for that, nor shall it be taken for the usual speed. */
static sh_status warm_up(sh_drafter *d, sh_err *err)
{
    sh_status status = try_out(d, 0, err);
    d->times = (sh_step_times){0};
    d->token_s = 0;
    return status == SH_OK ? try_out(d, 1, err) : status;
}

sh_status sh_drafter_reserve(sh_drafter *d, const sh_step_limits *of_model, int context,
                             sh_err *err)
{
    sh_step_limits limits = *of_model;
    SH_ASSERT(d->blocks == NULL && limits.slots == d->opts.slots);
    d->context = context < d->config.context ? context : d->config.context;
    limits.tokens = d->tokens_max;
    limits.draws = limits.slots;
    limits.masks = limits.slots > MASKS_KEPT ? limits.slots : MASKS_KEPT;
    limits.outputs = d->opts.head;
    sh_status status = blocks_open(d, limits.blocks, err);
    if (status != SH_OK) return status;
    d->rank = sh_rank_create(d->model, NULL, &limits, 1);
    d->plan = sh_step_plan_create(&limits);
    d->masks = sh_mask_table_create(limits.masks);
    sh_marks_init(&d->marks, limits.vocab);
    d->shadows = sh_alloc_array((size_t)limits.slots, sizeof(*d->shadows));
    d->drawing = sh_alloc_array((size_t)limits.slots, sizeof(sh_draft_order *));
    d->row = sh_alloc_array((size_t)limits.vocab, sizeof(*d->row));
    d->sorted = sh_alloc_array(2 * (size_t)limits.vocab, sizeof(*d->sorted));
    if (!d->opts.head) return warm_up(d, err);
    size_t each = (size_t)d->config.hidden * sizeof(float);
    d->held = sh_alloc_array((size_t)limits.slots * (SH_DRAFTER_NEAR + 1), each);
    d->inputs = sh_alloc_array((size_t)limits.tokens, each);
    return SH_OK;
}
