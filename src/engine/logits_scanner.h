/* logits_scanner.h - reduces rows of logits to what the sampler needs: the largest logit, the sum
 * of exponentials, and a few candidates.
 *
 * In every step each sequence of a batch has a row as long as the vocabulary. A scanner cuts rows
 * into pieces for the device's threads and visits each number as rarely as possible: the maximum of
 * each block shows which blocks matter. No result depends on the cut, on the instruction set of the
 * kernels or on the other rows. All memory is allocated at creation.
 *
 * Threads: one owner, the same that owns the device. */
#ifndef SH_ENGINE_LOGITS_SCANNER_H
#define SH_ENGINE_LOGITS_SCANNER_H

#include "engine/sampler.h"
#include "kernels/device.h"

/* What to compute for one row. The adjusts are borrowed for one call. */
typedef struct {
    sh_draw draw;
    const sh_adjust *adjusts;
    int adjust_count;
} sh_row_query;

typedef struct sh_logits_scanner sh_logits_scanner;

/* For up to rows_max rows of the part [first, first + len) of the vocabulary. `dev` is borrowed. */
sh_logits_scanner *sh_logits_scanner_create(sh_device *dev, int32_t first, int32_t len,
                                            int rows_max);
void sh_logits_scanner_free(sh_logits_scanner *scanner);

/* Applies the changes to logits [count, len], in place, and summarises each row. */
void sh_logits_scanner_run(sh_logits_scanner *scanner, const sh_row_query *queries, int count,
                           float *logits, sh_logits_summary *out);

/* Better: higher logit, then lower id. NaN never wins. */
static inline bool sh_candidate_better(sh_candidate a, sh_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Sorts all tokens of a whole row, best first, into the first half of list [2 * len]; the second
 * half is scratch. */
void sh_row_sort(const float *logits, int32_t len, sh_candidate *list);

#endif
