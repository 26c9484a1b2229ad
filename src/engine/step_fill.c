#include "engine/step_fill.h"

#include <math.h>

/* Before min_tokens, stop ids cannot be drawn. */
static int ban_stops(const sh_sequence_spec *q, sh_adjust *out)
{
    int count = 0;
    for (int i = 0; i < q->stop_id_count; i++)
        out[count++] = (sh_adjust){.id = q->stop_ids[i], .bias = -INFINITY, .factor = 1};
    return count;
}

bool sh_step_fits_adjusts(const sh_step_plan *step, const sh_sequence *seq, int drafts)
{
    const sh_sequence_spec *q = &seq->spec;
    int most = sh_adjust_max(&q->sampling, seq->count + drafts, seq->prompt_count);
    if (q->min_tokens > 0) most += q->stop_id_count;
    return (int64_t)most * (1 + drafts) <= step->limits.adjusts - step->adjust_count;
}

sh_step_seq *sh_step_add_tokens(sh_step_plan *step, sh_sequence *seq, int count, int draws)
{
    sh_step_seq *added = &step->seqs[step->seq_count++];
    *added = (sh_step_seq){.slot = seq->slot,
                           .fresh = seq->blocks_sent == 0,
                           .pos = seq->computed,
                           .token_count = count,
                           .draw_count = draws,
                           .block_count = seq->block_count - seq->blocks_sent,
                           .copies = seq->blocks_sent == 0 && seq->copied >= 0,
                           .copied = seq->copied,
                           .long_rope = seq->long_rope};
    for (int i = 0; i < count; i++)
        step->tokens[step->token_count++] = seq->tokens[seq->computed + i];
    while (seq->blocks_sent < seq->block_count)
        step->blocks[step->block_count++] = seq->blocks[seq->blocks_sent++];
    return added;
}

/* Where a grammar decides what may end the answer, min_tokens is part of the mask. */
void sh_step_add_draw(sh_step_plan *step, const sh_sequence *seq, int drafts, int mask,
                      sh_marks *marks)
{
    const sh_sequence_spec *q = &seq->spec;
    int known = seq->count + drafts;
    sh_step_draw *d = &step->draws[step->draw_count++];
    sh_adjust *list = step->adjusts + step->adjust_count;
    *d = (sh_step_draw){.draw = sh_draw_of(q, known), .mask = mask};
    d->adjust_count = sh_adjust_list(&q->sampling, seq->tokens, known, seq->prompt_count, marks,
                                     list);
    if (seq->constraint == NULL && known - seq->prompt_count < q->min_tokens)
        d->adjust_count += ban_stops(q, list + d->adjust_count);
    step->adjust_count += d->adjust_count;
}

bool sh_step_may_end(const sh_sequence *seq, int drafts)
{
    return sh_sequence_answered(seq) + drafts >= seq->spec.min_tokens;
}

sh_status sh_step_mask_after(const sh_sequence *seq, int drafts, sh_mask *out, sh_err *err)
{
    return sh_constraint_mask(seq->constraint, seq->states[drafts], sh_step_may_end(seq, drafts),
                              out, err);
}

uint64_t *sh_step_new_mask(sh_step_plan *step, int number)
{
    int at = step->mask_count++;
    step->mask_numbers[at] = number;
    return step->mask_words + (size_t)at * sh_step_mask_words(&step->limits);
}

int sh_step_add_mask(sh_step_plan *step, sh_mask_table *table, const sh_constraint *c,
                     const sh_mask *mask, bool *sent)
{
    int number = sh_mask_table_number(table, &mask->key, sent);
    if (*sent) sh_constraint_mask_bits(c, mask, sh_step_new_mask(step, number));
    return number;
}
