/* postprocessor.h - the ids added around those of a text when special tokens are requested.
 *
 * Whatever processors the file has, for a single text they amount to a list of ids before it and a
 * list after it; for a pair of texts there is one between them as well.
 *
 * Threads: immutable after reading. */
#ifndef SH_TEXT_TOKENIZER_POSTPROCESSOR_H
#define SH_TEXT_TOKENIZER_POSTPROCESSOR_H

#include "base/json.h"
#include "text/ids.h"

typedef struct {
    sh_ids before;
    sh_ids after;
    bool pairs; /* the file says how to write a pair of texts */
    sh_ids pair_before, between, pair_after;
} sh_postprocessor;

/* Reads the value of "post_processor"; *out must be zero, and must be reset also after a failure.
 */
SH_MUST_CHECK sh_status sh_postprocessor_read(const cJSON *json, const char *where,
                                              sh_postprocessor *out, sh_err *err);
void sh_postprocessor_reset(sh_postprocessor *post);

#endif
