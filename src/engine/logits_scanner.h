/* logits_scanner.h - from rows of logits to what the sampler needs of them: a few candidates, the
 * largest, the sum of exponentials.
 *
 * Every sequence of a batch has a row as long as the vocabulary in every step. A scanner cuts rows
 * into pieces for the device's threads, and looks at each number as seldom as it can: the largest
 * numbers of blocks tell which blocks matter. Nothing in a result depends on the cut, on the level
 * of the kernels or on what other rows there are. All memory is made at the start.
 *
 * Threads: one owner, the same that owns the device. */
#ifndef SH_ENGINE_LOGITS_SCANNER_H
#define SH_ENGINE_LOGITS_SCANNER_H

#include "engine/sampler.h"
#include "kernels/device.h"

/* What is asked of one row. The adjusts are borrowed for the length of a run. */
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

/* Applies the changes to logits [count, len] and summaries each row. */
void sh_logits_scanner_run(sh_logits_scanner *scanner, const sh_row_query *asks, int count,
                           float *logits, sh_logits_summary *out);

/* Better: higher logit, then lower id. NaN never wins. */
static inline bool sh_candidate_better(sh_candidate a, sh_candidate b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* All tokens of a whole row, best first, into list [len]; behind it there is room for as many. */
void sh_row_sort(const float *logits, int32_t len, sh_candidate *list);

#endif
