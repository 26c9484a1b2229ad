/* Answers that are bound to a grammar.
 *
 * A sequence is bound before it starts, which may have to wait for the vocabulary. From then on it
 * has the state of the match after its known tokens, and each of its draws has a mask. The matcher
 * caches masks and the ranks keep what they were sent, so in most steps this means looking up a
 * number. A mask that is not cached gets its number in the plan, too, and is made while the forward
 * pass runs (engine/mask_maker.h): the ranks need its bits only at the end of the pass. In the time
 * between sh_sched_make_masks and sh_sched_join_masks, the constraints belong to the maker.
 *
 * What goes wrong with a grammar (a limit of its matcher, a text that no token can continue) ends
 * its own request and no other. If a mask could not be made, its draw was made without one, and the
 * sequence fails when it gets to the pick of that draw. */
#include "engine/scheduler_internal.h"

#include "base/alloc.h"

#include <stdlib.h>

static sh_status match_answer(sh_sequence *seq, sh_err *err)
{
    seq->states[0] = SH_MATCH_START;
    for (int i = seq->prompt_count; i < seq->count; i++) {
        sh_status status = sh_constraint_next(seq->constraint, seq->states[0], seq->tokens[i],
                                              &seq->states[0], err);
        if (status != SH_OK) return status;
        if (seq->states[0] == SH_MATCH_DEAD)
            return sh_err_set(err, SH_ERR_INPUT,
                              "the answer so far does not match the grammar: token %d of %d",
                              i - seq->prompt_count + 1, seq->count - seq->prompt_count);
    }
    return SH_OK;
}

sh_status sh_sched_bind(sh_sched *s, sh_sequence *seq, sh_err *err)
{
    if (!sh_sequence_unbound(seq)) return SH_OK;
    int64_t start = sh_clock_ns();
    const sh_sequence_spec *q = &seq->spec;
    sh_status status = sh_constraints_ready(s->opts.constraints, err);
    if (status == SH_OK)
        status = sh_constraints_take(s->opts.constraints, q->grammar, q->stop_ids, q->stop_id_count,
                                     &seq->constraint, err);
    if (status != SH_OK) return status;
    free((void *)seq->spec.grammar.ptr);
    seq->spec.grammar.ptr = NULL;
    s->stats.constrained++;
    status = match_answer(seq, err);
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

sh_status sh_sched_match(sh_sched *s, sh_sequence *seq, int32_t token, sh_err *err)
{
    if (seq->constraint == NULL) return SH_OK;
    int64_t start = sh_clock_ns();
    sh_status status = sh_constraint_next(seq->constraint, seq->states[0], token, &seq->states[0],
                                          err);
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK || seq->states[0] != SH_MATCH_DEAD) return status;
    /* Only a row without a number to compare gives such a token. */
    return sh_err_set(err, SH_ERR_SYSTEM, "token %d was drawn, which the grammar does not allow",
                      token);
}

sh_status sh_sched_only_token(sh_sched *s, sh_sequence *seq, int32_t *out, sh_err *err)
{
    *out = -1;
    if (seq->constraint == NULL) return SH_OK;
    int64_t start = sh_clock_ns();
    sh_status status = sh_constraint_only(seq->constraint, seq->states[0], sh_step_may_end(seq, 0),
                                          out, err);
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (*out >= s->opts.limits.vocab) *out = -1;
    return status;
}

/* Names a mask that is at hand in the plan. */
static sh_status mask_take(sh_sched *s, sh_step_plan *step, const sh_sequence *seq, int drafts,
                           int *number, sh_err *err)
{
    sh_mask mask;
    bool sent;
    sh_status status = sh_step_mask_after(seq, drafts, &mask, err);
    if (status != SH_OK) return status;
    *number = sh_step_add_mask(step, s->masks, seq->constraint, &mask, &sent);
    s->stats.masks_sent += sent;
    return SH_OK;
}

/* Names a mask that is still to be made. */
static int mask_order(sh_sched *s, sh_step_plan *step, const sh_sequence *seq, int drafts)
{
    bool may_end = sh_step_may_end(seq, drafts), first;
    sh_match_state state = seq->states[drafts];
    sh_mask_key key = sh_constraint_future_key(seq->constraint, state, may_end);
    int number = sh_mask_table_number(s->masks, &key, &first);
    if (!first) return number; /* another draw of this plan has ordered it */
    *sh_mask_maker_add(s->maker) = (sh_mask_order){.constraint = seq->constraint,
                                                   .state = state,
                                                   .may_end = may_end,
                                                   .number = number,
                                                   .bits = sh_step_new_mask(step, number)};
    s->stats.masks_sent++;
    s->stats.masks_made++;
    return number;
}

sh_status sh_sched_mask(sh_sched *s, sh_step_plan *step, sh_sequence *seq, sh_err *err)
{
    if (seq->constraint == NULL) return SH_OK;
    int64_t start = sh_clock_ns();
    sh_status status = SH_OK;
    for (int i = 0; i <= seq->draft_count && status == SH_OK; i++) {
        if (!sh_constraint_has_mask(seq->constraint, seq->states[i]))
            seq->masks[i] = mask_order(s, step, seq, i);
        else
            status = mask_take(s, step, seq, i, &seq->masks[i], err);
        s->stats.masks_used += status == SH_OK;
        if (status != SH_OK && i > 0) {
            /* That far the answer may never come. */
            seq->draft_count = i - 1;
            status = SH_OK;
        }
    }
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}

static void sequence_blame(sh_sequence *seq, const sh_step_draw *draws, int count,
                           const sh_mask_order *order)
{
    int first = 0, at;
    while (first < count && draws[first].mask == 0) first++; /* those before score the prompt */
    for (at = first; at < count && draws[at].mask != order->number;) at++;
    if (at == count || (seq->mask_error != NULL && seq->mask_error_at <= at - first)) return;
    if (seq->mask_error == NULL) seq->mask_error = sh_alloc(sizeof(*seq->mask_error));
    *seq->mask_error = *order->err;
    seq->mask_error_at = at - first;
}

/* The sequences that are drawn from with this mask learn that it could not be made. */
static void mask_failed(sh_sched *s, const sh_step_plan *step, const sh_mask_order *order)
{
    for (int i = 0, draw = 0; i < step->seq_count; draw += step->seqs[i++].draw_count)
        sequence_blame(s->slots[step->seqs[i].slot], &step->draws[draw], step->seqs[i].draw_count,
                       order);
}

void sh_sched_join_masks(sh_sched *s)
{
    const sh_step_plan *step = s->making;
    int64_t start = sh_clock_ns();
    int count;
    if (step == NULL) return;
    s->making = NULL;
    const sh_mask_order *orders = sh_mask_maker_wait(s->maker, &count);
    for (int i = 0; i < count; i++) {
        bool made = orders[i].err == NULL;
        sh_mask_table_rename(s->masks, orders[i].number, made ? &orders[i].key : NULL);
        if (!made) mask_failed(s, step, &orders[i]);
    }
    sh_mask_maker_clear(s->maker);
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
}

static void join(void *ctx)
{
    sh_sched_join_masks(ctx);
}

void sh_sched_make_masks(sh_sched *s, sh_step_plan *step)
{
    if (!sh_mask_maker_start(s->maker)) return;
    s->making = step;
    step->await = join;
    step->await_ctx = s;
}
