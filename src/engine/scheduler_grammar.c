/* Answers that are bound to a grammar.
 *
 * A sequence is bound before it starts, which may have to wait for the vocabulary. From then on it
 * has the state of the match after its known tokens, and each of its draws has a mask. Masks are
 * made when the plan is: the matcher caches them, and the ranks keep what they were sent, so in
 * most steps this means looking up a number.
 *
 * What goes wrong with a grammar (a limit of its matcher, a text that no token can continue) ends
 * its own request and no other. */
#include "engine/scheduler_internal.h"

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
    sh_mask mask;
    *out = -1;
    if (seq->constraint == NULL) return SH_OK;
    int64_t start = sh_clock_ns();
    sh_status status = sh_step_mask_after(seq, 0, &mask, err);
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    if (status != SH_OK || mask.allowed != 1) return status;
    int32_t id = sh_constraint_only(seq->constraint, &mask);
    if (id < s->opts.limits.vocab) *out = id;
    return SH_OK;
}

/* Names a mask in the plan. */
static int mask_number(sh_sched *s, sh_step_plan *step, const sh_constraint *c, const sh_mask *mask)
{
    bool sent;
    int number = sh_step_add_mask(step, s->masks, c, mask, &sent);
    s->stats.masks_used++;
    s->stats.masks_sent += sent;
    return number;
}

sh_status sh_sched_mask(sh_sched *s, sh_step_plan *step, sh_sequence *seq, sh_err *err)
{
    if (seq->constraint == NULL) return SH_OK;
    int64_t start = sh_clock_ns();
    sh_status status = SH_OK;
    for (int i = 0; i <= seq->draft_count && status == SH_OK; i++) {
        sh_mask mask;
        status = sh_step_mask_after(seq, i, &mask, err);
        if (status == SH_OK)
            seq->masks[i] = mask_number(s, step, seq->constraint, &mask);
        else if (i > 0) {
            /* That far the answer may never come. */
            seq->draft_count = i - 1;
            status = SH_OK;
        }
    }
    s->stats.mask_s += (double)(sh_clock_ns() - start) * 1e-9;
    return status;
}
