/* postprocessor.h - the ids that are put around those of a text when special tokens are wanted.
 *
 * Whatever the file's processors are, for a single text they come to a list of ids before it and
 * a list behind it.
 *
 * Threads: immutable after reading. */
#ifndef SH_TEXT_TOKENIZER_POSTPROCESSOR_H
#define SH_TEXT_TOKENIZER_POSTPROCESSOR_H

#include "base/json.h"
#include "text/ids.h"

typedef struct {
    sh_ids before;
    sh_ids after;
} sh_postprocessor;

/* From the value of "post_processor"; *out must be zero and is to be reset after a failure too. */
SH_MUST_CHECK sh_status sh_postprocessor_read(const cJSON *json, const char *where,
                                              sh_postprocessor *out, sh_err *err);
void sh_postprocessor_reset(sh_postprocessor *post);

#endif
