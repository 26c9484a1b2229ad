/* step_fill.h - puts a sequence into a step plan: its tokens, its blocks, its draws and their
 * masks.
 *
 * The scheduler fills the plans of the model with these, the drafter those of the draft model. Both
 * draw in the same way, so a draft model that agrees with the model drafts what the model will
 * draw.
 *
 * Threads: those of the plan and the sequence. */
#ifndef SH_ENGINE_STEP_FILL_H
#define SH_ENGINE_STEP_FILL_H

#include "engine/mask_table.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

/* Whether the plan has space for all logit changes that a sequence's next draws may need: one after
 * its known tokens and one after each of `drafts` drafts. If not, the sequence must wait for
 * another step: dropping a change would make its output depend on the rest of the batch. */
bool sh_step_fits_adjusts(const sh_step_plan *step, const sh_sequence *seq, int drafts);

/* Adds `count` tokens of a sequence, from the first that is not computed, and the blocks that the
 * ranks do not know yet. The caller adds as many draws as it says. Returns what was added. */
sh_step_seq *sh_step_add_tokens(sh_step_plan *step, sh_sequence *seq, int count, int draws);

/* Adds a draw after the known tokens and `drafts` of the drafts. `mask` is a number in the plan. */
void sh_step_add_draw(sh_step_plan *step, const sh_sequence *seq, int drafts, int mask,
                      sh_marks *marks);

/* Whether an answer of a sequence may end after the known tokens and `drafts` of the drafts, if its
 * grammar allows it. */
bool sh_step_may_end(const sh_sequence *seq, int drafts);

/* The mask to draw with after the known tokens and `drafts` of the drafts, of a sequence that is
 * bound to a grammar. */
SH_MUST_CHECK sh_status sh_step_mask_after(const sh_sequence *seq, int drafts, sh_mask *out,
                                           sh_err *err);

/* Adds a mask that the ranks do not have, under this number. Returns where its bits go. */
uint64_t *sh_step_new_mask(sh_step_plan *step, int number);

/* Names a mask in the plan; adds its bits, and sets *sent, if the ranks do not have them. */
int sh_step_add_mask(sh_step_plan *step, sh_mask_table *table, const sh_constraint *constraint,
                     const sh_mask *mask, bool *sent);

#endif
