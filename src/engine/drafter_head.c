/* A multi-token-prediction layer as a drafter. Its token at position p enters together with the
 * model's output for position p - 1, and predicts the token at p + 1. To go on from its own draft
 * it takes its own output in the place of the model's: the one layer is used again and again.
 *
 * So its shadow of a sequence has the same tokens but the first. Outputs of the model exist only
 * when a step has run, and are too large to keep: the few that decoding gives wait until drafts are
 * wanted, those of a prompt are computed at once, for the KV alone. What was computed from its own
 * outputs is computed again from the model's, when these have come; drafts are the better for it.
 *
 * The model may have found the beginning of a prompt in its prefix cache: there are no outputs for
 * it. Mostly the head has the same tokens in its own. If not, it starts after them and attends to
 * what it has. Only differences of positions matter to it, so its own begin at 0. */
#include "engine/drafter_internal.h"

#include "base/clock.h"

#include <string.h>

static size_t row_bytes(const sh_drafter *d)
{
    return (size_t)d->config.hidden * sizeof(float);
}

/* Its own output for the last draft, and those of the model that wait. */
static float *own_output(const sh_drafter *d, int slot)
{
    return d->held + (size_t)slot * (SH_DRAFTER_NEAR + 1) * (size_t)d->config.hidden;
}

static float *held_outputs(const sh_drafter *d, int slot)
{
    return own_output(d, slot) + d->config.hidden;
}

/* The prefix cache knows blocks by their tokens, and the first of all is not among a shadow's. Two
 * prompts that differ in that one alone share the KV of one of them: their drafts may suffer. */
static bool shadow_start(sh_drafter *d, const sh_sequence *seq, int first, bool shared)
{
    sh_shadow *w = &d->shadows[seq->slot];
    sh_sequence_spec spec = {.prompt = seq->tokens + first + 1,
                             .prompt_count = (size_t)(seq->count - first - 1),
                             .max_tokens = seq->count_max - seq->count + 1};
    bool wait;
    sh_sequence *own = sh_sequence_create(&spec, d->context);
    own->unshared = !shared;
    if (!sh_sequence_start(own, d->blocks, 0, &wait)) {
        sh_sequence_free(own);
        return false;
    }
    own->slot = seq->slot;
    *w = (sh_shadow){.seq = own, .known = own->count, .first = first, .sure = own->computed};
    return true;
}

/* Starts a shadow that can go on with the output for position `pos`. */
static bool shadow_start_at(sh_drafter *d, const sh_sequence *seq, int pos)
{
    sh_drafter_leave(d, seq->slot);
    if (seq->count <= pos + 1) return false;
    if (shadow_start(d, seq, 0, true)) {
        if (d->shadows[seq->slot].sure >= pos) return true;
        sh_drafter_leave(d, seq->slot);
    }
    return shadow_start(d, seq, pos, false);
}

/* Drops the drafts, and takes over the tokens that the sequence has got since. */
static void shadow_update(sh_drafter *d, const sh_sequence *seq)
{
    sh_shadow *w = &d->shadows[seq->slot];
    sh_sequence *own = w->seq;
    int count = seq->count - w->first - 1;
    memcpy(own->tokens + w->known, seq->tokens + w->first + 1 + w->known,
           (size_t)(count - w->known) * sizeof(*own->tokens));
    own->count = w->known = count;
    sh_sequence_computed(own, d->blocks, w->sure);
}

int sh_drafter_head_lag(sh_drafter *d, const sh_sequence *seq)
{
    const sh_shadow *w = &d->shadows[seq->slot];
    if (w->seq == NULL) return -1;
    shadow_update(d, seq);
    return w->held > 0 && w->sure + w->held == w->known ? w->held : -1;
}

void sh_drafter_head_gather(sh_drafter *d)
{
    char *to = (char *)d->inputs;
    d->plan->outputs = true;
    for (int i = 0; i < d->plan->seq_count; i++) {
        const sh_step_seq *q = &d->plan->seqs[i];
        bool draft = d->shadows[q->slot].held == 0;
        size_t len = (size_t)q->token_count * row_bytes(d);
        memcpy(to, draft ? own_output(d, q->slot) : held_outputs(d, q->slot), len);
        to += len;
    }
}

void sh_drafter_head_ran(sh_drafter *d)
{
    const char *end = (const char *)sh_rank_outputs(d->rank, d->plan->step);
    for (int i = 0; i < d->plan->seq_count; i++) {
        const sh_step_seq *q = &d->plan->seqs[i];
        sh_shadow *w = &d->shadows[q->slot];
        end += (size_t)q->token_count * row_bytes(d);
        if (d->plan->outputs) memcpy(own_output(d, q->slot), end - row_bytes(d), row_bytes(d));
        if (w->seq->computed > w->known) continue; /* that was a draft */
        w->sure = w->seq->computed;
        w->held = 0;
        sh_sequence_computed(w->seq, d->blocks, w->sure);
    }
}

/* Computes the tokens that `fresh` more outputs, and those that wait, go with. */
static sh_status outputs_run(sh_drafter *d, sh_shadow *w, const char *from, int fresh, sh_err *err)
{
    int64_t start = sh_clock_ns();
    size_t waiting = (size_t)w->held * row_bytes(d);
    sh_step_plan_clear(d->plan);
    memcpy(d->inputs, held_outputs(d, w->seq->slot), waiting);
    memcpy((char *)d->inputs + waiting, from, (size_t)fresh * row_bytes(d));
    sh_step_add_tokens(d->plan, w->seq, w->held + fresh, 0);
    sh_status status = sh_drafter_round(d, err);
    d->busy_s += (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

/* At least the last is kept waiting: drafts are drawn from it. */
static sh_status outputs_take(sh_drafter *d, sh_shadow *w, const char *from, int count, sh_err *err)
{
    int slot = w->seq->slot;
    while (w->held + count > SH_DRAFTER_NEAR) {
        int run = w->held + count - 1;
        int fresh = (run < d->tokens_max ? run : d->tokens_max) - w->held;
        if (!sh_sequence_grow(w->seq, d->blocks, w->seq->count)) {
            sh_drafter_leave(d, slot);
            return SH_OK;
        }
        sh_status status = outputs_run(d, w, from, fresh, err);
        if (status != SH_OK) return status;
        from += (size_t)fresh * row_bytes(d);
        count -= fresh;
    }
    memcpy((char *)held_outputs(d, slot) + (size_t)w->held * row_bytes(d), from,
           (size_t)count * row_bytes(d));
    w->held += count;
    return SH_OK;
}

/* How many of the outputs are of the sequence, not of a wrong draft, and go with a known token. */
static int outputs_good(const sh_sequence *seq, const sh_seen *seen)
{
    int good = 0;
    while (good < seen->count && seen->pos + good + 1 < seq->count &&
           seen->tokens[good] == seq->tokens[seen->pos + good])
        good++;
    return good;
}

sh_status sh_drafter_see(sh_drafter *d, const sh_sequence *seq, const sh_seen *seen, sh_err *err)
{
    if (!d->opts.head) return SH_OK;
    sh_shadow *w = &d->shadows[seq->slot];
    if (seq->count + SH_DRAFTS_MAX >= d->context) {
        sh_drafter_leave(d, seq->slot);
        return SH_OK;
    }
    bool follows = w->seq != NULL && seen->pos <= w->first + w->sure + w->held;
    if (!follows && !shadow_start_at(d, seq, seen->pos)) return SH_OK;
    shadow_update(d, seq);
    /* Some positions run again, after wrong drafts in a model with fixed-size state. */
    int again = w->first + w->sure + w->held - seen->pos, good = outputs_good(seq, seen);
    if (again >= good) return SH_OK;
    return outputs_take(d, w, seen->outputs + (size_t)again * row_bytes(d), good - again, err);
}
