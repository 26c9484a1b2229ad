/* fill_middle.h - prompts that ask a model for the text between two others (fill in the middle).
 *
 * Code models were trained on texts whose middle was moved to the end, marked by three tokens.
 * Which tokens, and in which order, is known for the common families; a model can do this if its
 * vocabulary has the tokens of one of them.
 *
 * Threads: pure functions over a constant tokenizer. */
#ifndef SH_TEXT_FILL_MIDDLE_H
#define SH_TEXT_FILL_MIDDLE_H

#include "text/tokenizer/tokenizer.h"

/* Whether the model has the tokens. *end receives the id that ends the middle in addition to the
 * model's own end ids, or -1. */
bool sh_fill_middle_known(const sh_tokenizer *tok, int32_t *end);

/* Appends the ids of a prompt for the text between `before` and `after`, with the token that the
 * tokenizer puts before a text. The tokens must be known. */
SH_MUST_CHECK sh_status sh_fill_middle_encode(const sh_tokenizer *tok, sh_str before, sh_str after,
                                              sh_ids *out, sh_err *err);

#endif
